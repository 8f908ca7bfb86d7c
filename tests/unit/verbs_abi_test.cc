// Every struct, number and call of transport/rdma_core/abi.h against the headers of rdma-core.
#include "tests/unit/same_abi.h"
#include "transport/rdma_core/verbs.h"

#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

// Macros that hide the exported functions.
#undef ibv_query_port
#undef ibv_reg_mr

namespace
{

#define EXPECT_SAME_CALL(result, symbol, arguments)                                                \
    EXPECT_TRUE((calls<decltype(swl_verbs::symbol), plain<decltype(&::symbol)>::type>::same()))    \
        << #symbol;

TEST(VerbsAbi, CallsHaveTheArgumentsOfTheLibraries){
    VERBS_CALLS(EXPECT_SAME_CALL) VERBS_LATER_CALLS(EXPECT_SAME_CALL) MLX5_CALLS(EXPECT_SAME_CALL)
        MLX5_LATER_CALLS(EXPECT_SAME_CALL)}

TEST(VerbsAbi, PortAttributesMatch)
{
    EXPECT_SAME_SIZE(verbs_port_attr, ibv_port_attr);
    EXPECT_SAME_FIELDS(verbs_port_attr, ibv_port_attr, state, active_mtu, gid_tbl_len, pkey_tbl_len,
                       lid, lmc, link_layer, flags);
}

TEST(VerbsAbi, OtherStructsOfLibibverbsMatch)
{
    EXPECT_SAME_SIZE(verbs_gid_entry, ibv_gid_entry);
    EXPECT_SAME_FIELDS(verbs_gid_entry, ibv_gid_entry, gid_index, gid_type);
    EXPECT_SAME_SIZE(verbs_ah_attr, ibv_ah_attr);
    EXPECT_SAME_FIELDS(verbs_ah_attr, ibv_ah_attr, dlid, sl, static_rate, is_global, port_num);
    EXPECT_SAME_FIELD(verbs_ah_attr, dgid, ibv_ah_attr, grh.dgid);
    EXPECT_SAME_FIELD(verbs_ah_attr, flow_label, ibv_ah_attr, grh.flow_label);
    EXPECT_SAME_FIELD(verbs_ah_attr, sgid_index, ibv_ah_attr, grh.sgid_index);
    EXPECT_SAME_FIELD(verbs_ah_attr, hop_limit, ibv_ah_attr, grh.hop_limit);
    EXPECT_SAME_FIELD(verbs_ah_attr, traffic_class, ibv_ah_attr, grh.traffic_class);
    EXPECT_SAME_SIZE(verbs_mr, ibv_mr);
    EXPECT_SAME_FIELDS(verbs_mr, ibv_mr, lkey, rkey);
}

TEST(VerbsAbi, StructsOfQueuePairsMatch)
{
    EXPECT_SAME_SIZE(verbs_device_attr, ibv_device_attr);
    EXPECT_SAME_FIELDS(verbs_device_attr, ibv_device_attr, max_mr_size, max_qp, max_qp_wr,
                       max_qp_rd_atom, max_qp_init_rd_atom, atomic_cap);
    EXPECT_SAME_SIZE(verbs_qp_init_attr, ibv_qp_init_attr);
    EXPECT_SAME_FIELDS(verbs_qp_init_attr, ibv_qp_init_attr, recv_cq, cap.max_inline_data, qp_type,
                       sq_sig_all);
    EXPECT_SAME_SIZE(verbs_qp_attr, ibv_qp_attr);
    EXPECT_SAME_FIELDS(verbs_qp_attr, ibv_qp_attr, path_mtu, rq_psn, sq_psn, dest_qp_num,
                       qp_access_flags, ah_attr, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer,
                       port_num, timeout, retry_cnt, rnr_retry);
    EXPECT_SAME_SIZE(verbs_cq_init_attr, ibv_cq_init_attr_ex);
    EXPECT_SAME_FIELDS(verbs_cq_init_attr, ibv_cq_init_attr_ex, cqe, channel, comp_vector, wc_flags,
                       comp_mask, flags);
    EXPECT_SAME_FIELDS(verbs_qp, ibv_qp, context, qp_num);
    EXPECT_SAME_FIELD(verbs_cq, context, ibv_cq, context);
}

TEST(VerbsAbi, StructsOfTheDataPathMatch)
{
    EXPECT_SAME_FIELDS(verbs_head, ibv_context, device, async_fd);
    EXPECT_SAME_FIELD(verbs_head, poll_cq, ibv_context, ops.poll_cq);
    EXPECT_SAME_FIELD(verbs_head, post_send, ibv_context, ops.post_send);
    EXPECT_SAME_FIELD(verbs_head, post_recv, ibv_context, ops.post_recv);
    EXPECT_SAME_FIELD(verbs_device, transport_type, ibv_device, transport_type);
    EXPECT_SAME_SIZE(verbs_sge, ibv_sge);
    EXPECT_SAME_FIELDS(verbs_sge, ibv_sge, length, lkey);
    EXPECT_SAME_SIZE(verbs_send_wr, ibv_send_wr);
    EXPECT_SAME_FIELDS(verbs_send_wr, ibv_send_wr, sg_list, num_sge, imm_data, opcode, send_flags,
                       wr.rdma.remote_addr, wr.rdma.rkey, wr.atomic.remote_addr,
                       wr.atomic.compare_add, wr.atomic.rkey);
    EXPECT_SAME_SIZE(verbs_recv_wr, ibv_recv_wr);
    EXPECT_SAME_FIELD(verbs_recv_wr, sg_list, ibv_recv_wr, sg_list);
    EXPECT_SAME_SIZE(verbs_wc, ibv_wc);
    EXPECT_SAME_FIELDS(verbs_wc, ibv_wc, status, opcode, imm_data, byte_len);
    EXPECT_SAME_SIZE(verbs_async_event, ibv_async_event);
    EXPECT_SAME_FIELD(verbs_async_event, event_type, ibv_async_event, event_type);
}

TEST(VerbsAbi, NumbersOfQueuePairsMatch)
{
    const int same[][2] = {{VERBS_IWARP, IBV_TRANSPORT_IWARP},
                           {VERBS_RC, IBV_QPT_RC},
                           {VERBS_ATOMIC_NONE, IBV_ATOMIC_NONE},
                           {VERBS_WR_WRITE, IBV_WR_RDMA_WRITE},
                           {VERBS_WR_SEND, IBV_WR_SEND},
                           {VERBS_WR_READ, IBV_WR_RDMA_READ},
                           {VERBS_WR_FETCH_ADD, IBV_WR_ATOMIC_FETCH_AND_ADD},
                           {VERBS_SEND_SIGNALLED, IBV_SEND_SIGNALED},
                           {VERBS_SEND_INLINE, IBV_SEND_INLINE},
                           {VERBS_STATE_RESET, IBV_QPS_RESET},
                           {VERBS_STATE_INIT, IBV_QPS_INIT},
                           {VERBS_STATE_RTR, IBV_QPS_RTR},
                           {VERBS_STATE_RTS, IBV_QPS_RTS},
                           {VERBS_STATE_ERROR, IBV_QPS_ERR},
                           {VERBS_QP_STATE, IBV_QP_STATE},
                           {VERBS_QP_ACCESS, IBV_QP_ACCESS_FLAGS},
                           {VERBS_QP_PKEY, IBV_QP_PKEY_INDEX},
                           {VERBS_QP_PORT, IBV_QP_PORT},
                           {VERBS_QP_AV, IBV_QP_AV},
                           {VERBS_QP_MTU, IBV_QP_PATH_MTU},
                           {VERBS_QP_TIMEOUT, IBV_QP_TIMEOUT},
                           {VERBS_QP_RETRY, IBV_QP_RETRY_CNT},
                           {VERBS_QP_RNR_RETRY, IBV_QP_RNR_RETRY},
                           {VERBS_QP_RQ_PSN, IBV_QP_RQ_PSN},
                           {VERBS_QP_READS_OUT, IBV_QP_MAX_QP_RD_ATOMIC},
                           {VERBS_QP_RNR_TIMER, IBV_QP_MIN_RNR_TIMER},
                           {VERBS_QP_SQ_PSN, IBV_QP_SQ_PSN},
                           {VERBS_QP_READS_IN, IBV_QP_MAX_DEST_RD_ATOMIC},
                           {VERBS_QP_PEER, IBV_QP_DEST_QPN},
                           {VERBS_EVENT_CQ_ERR, IBV_EVENT_CQ_ERR},
                           {VERBS_EVENT_QP_FATAL, IBV_EVENT_QP_FATAL},
                           {VERBS_EVENT_QP_REQUEST, IBV_EVENT_QP_REQ_ERR},
                           {VERBS_EVENT_QP_ACCESS, IBV_EVENT_QP_ACCESS_ERR},
                           {VERBS_EVENT_DEVICE_FATAL, IBV_EVENT_DEVICE_FATAL}};

    for (const auto &pair : same)
        EXPECT_EQ(pair[0], pair[1]) << "number " << &pair - same;
#define EXPECT_STATUS(name, number, ours) EXPECT_EQ(number, int{IBV_WC_##name}) << #name;
    VERBS_STATUSES(EXPECT_STATUS)
#undef EXPECT_STATUS
}

TEST(VerbsAbi, StructsOfLibmlx5Match)
{
    EXPECT_SAME_SIZE(mlx5_context_attr, mlx5dv_context_attr);
    EXPECT_SAME_FIELD(mlx5_context_attr, flags, mlx5dv_context_attr, flags);
    EXPECT_SAME_FIELD(mlx5_umem, umem_id, mlx5dv_devx_umem, umem_id);
    EXPECT_SAME_SIZE(mlx5_umem_in, mlx5dv_devx_umem_in);
    EXPECT_SAME_FIELDS(mlx5_umem_in, mlx5dv_devx_umem_in, size, access, pgsz_bitmap, comp_mask,
                       dmabuf_fd);
    EXPECT_SAME_FIELDS(mlx5_uar, mlx5dv_devx_uar, reg_addr, page_id, comp_mask);
    EXPECT_SAME_SIZE(mlx5_av, mlx5_wqe_av);
    EXPECT_SAME_FIELDS(mlx5_av, mlx5_wqe_av, rmac, rgid);
    EXPECT_SAME_FIELD(mlx5_pd_out, pdn, mlx5dv_pd, pdn);
    EXPECT_SAME_FIELD(mlx5_ah_out, av, mlx5dv_ah, av);
    EXPECT_SAME_SIZE(mlx5_cq_init_attr, mlx5dv_cq_init_attr);
    EXPECT_SAME_FIELDS(mlx5_cq_init_attr, mlx5dv_cq_init_attr, comp_mask, flags, cqe_size);
    EXPECT_SAME_SIZE(mlx5_allocators, mlx5dv_ctx_allocators);
    EXPECT_SAME_FIELDS(mlx5_allocators, mlx5dv_ctx_allocators, alloc, free, data);
    EXPECT_SAME_SIZE(mlx5_qp_out, mlx5dv_qp);
    EXPECT_SAME_FIELDS(mlx5_qp_out, mlx5dv_qp, dbrec, sq.buf, sq.wqe_cnt, sq.stride, bf.reg,
                       bf.size, comp_mask);
    EXPECT_SAME_SIZE(mlx5_cq_out, mlx5dv_cq);
    EXPECT_SAME_FIELDS(mlx5_cq_out, mlx5dv_cq, buf, dbrec, cqe_cnt, cqe_size, cqn, comp_mask);
    EXPECT_SAME_FIELDS(mlx5_obj, mlx5dv_obj, qp.in, qp.out, cq.in, cq.out);
    EXPECT_SAME_SIZE(mlx5_obj, mlx5dv_obj);
    EXPECT_SAME_FIELDS(mlx5_obj, mlx5dv_obj, ah.in, ah.out, pd.in, pd.out);
}

TEST(VerbsAbi, NumbersMatch)
{
    EXPECT_EQ(VERBS_PORT_ACTIVE, int{IBV_PORT_ACTIVE});
    EXPECT_EQ(VERBS_LINK_INFINIBAND, int{IBV_LINK_LAYER_INFINIBAND});
    EXPECT_EQ(VERBS_LINK_ETHERNET, int{IBV_LINK_LAYER_ETHERNET});
    EXPECT_EQ(VERBS_PORT_GRH_REQUIRED, int{IBV_QPF_GRH_REQUIRED});
    EXPECT_EQ(VERBS_GID_IB, int{IBV_GID_TYPE_IB});
    EXPECT_EQ(VERBS_GID_ROCE_V1, int{IBV_GID_TYPE_ROCE_V1});
    EXPECT_EQ(VERBS_GID_ROCE_V2, int{IBV_GID_TYPE_ROCE_V2});
    EXPECT_EQ(VERBS_ACCESS_LOCAL_WRITE, int{IBV_ACCESS_LOCAL_WRITE});
    EXPECT_EQ(VERBS_ACCESS_REMOTE_WRITE, int{IBV_ACCESS_REMOTE_WRITE});
    EXPECT_EQ(VERBS_ACCESS_REMOTE_READ, int{IBV_ACCESS_REMOTE_READ});
    EXPECT_EQ(VERBS_ACCESS_REMOTE_ATOMIC, int{IBV_ACCESS_REMOTE_ATOMIC});
    EXPECT_EQ(VERBS_ACCESS_RELAXED, int{IBV_ACCESS_RELAXED_ORDERING});
    EXPECT_EQ(MLX5_CONTEXT_DEVX, int{MLX5DV_CONTEXT_FLAGS_DEVX});
    EXPECT_EQ(MLX5_UMEM_DMABUF, int{MLX5DV_UMEM_MASK_DMABUF});
    EXPECT_EQ(MLX5_UAR_BF, int{MLX5DV_UAR_ALLOC_TYPE_BF});
    EXPECT_EQ(MLX5_UAR_NC, int{MLX5DV_UAR_ALLOC_TYPE_NC});
    EXPECT_EQ(VERBS_CQ_FLAGS, int{IBV_CQ_INIT_ATTR_MASK_FLAGS});
    EXPECT_EQ(VERBS_CQ_IGNORE_OVERRUN, int{IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN});
    EXPECT_EQ(MLX5_CQ_CQE_SIZE, int{MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE});
    EXPECT_EQ(MLX5_ATTR_ALLOCATORS, int{MLX5DV_CTX_ATTR_BUF_ALLOCATORS});
    EXPECT_EQ(MLX5_OBJ_QP, int{MLX5DV_OBJ_QP});
    EXPECT_EQ(MLX5_OBJ_CQ, int{MLX5DV_OBJ_CQ});
    EXPECT_EQ(MLX5_OBJ_AH, int{MLX5DV_OBJ_AH});
    EXPECT_EQ(MLX5_OBJ_PD, int{MLX5DV_OBJ_PD});
}

} // namespace
