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
    EXPECT_EQ(sizeof(struct verbs_port_attr), sizeof(struct ibv_port_attr));
    EXPECT_SAME_FIELD(verbs_port_attr, state, ibv_port_attr, state);
    EXPECT_SAME_FIELD(verbs_port_attr, active_mtu, ibv_port_attr, active_mtu);
    EXPECT_SAME_FIELD(verbs_port_attr, gid_tbl_len, ibv_port_attr, gid_tbl_len);
    EXPECT_SAME_FIELD(verbs_port_attr, pkey_tbl_len, ibv_port_attr, pkey_tbl_len);
    EXPECT_SAME_FIELD(verbs_port_attr, lid, ibv_port_attr, lid);
    EXPECT_SAME_FIELD(verbs_port_attr, lmc, ibv_port_attr, lmc);
    EXPECT_SAME_FIELD(verbs_port_attr, link_layer, ibv_port_attr, link_layer);
    EXPECT_SAME_FIELD(verbs_port_attr, flags, ibv_port_attr, flags);
}

TEST(VerbsAbi, OtherStructsOfLibibverbsMatch)
{
    EXPECT_EQ(sizeof(struct verbs_gid_entry), sizeof(struct ibv_gid_entry));
    EXPECT_SAME_FIELD(verbs_gid_entry, gid_index, ibv_gid_entry, gid_index);
    EXPECT_SAME_FIELD(verbs_gid_entry, gid_type, ibv_gid_entry, gid_type);
    EXPECT_EQ(sizeof(struct verbs_ah_attr), sizeof(struct ibv_ah_attr));
    EXPECT_SAME_FIELD(verbs_ah_attr, dgid, ibv_ah_attr, grh.dgid);
    EXPECT_SAME_FIELD(verbs_ah_attr, flow_label, ibv_ah_attr, grh.flow_label);
    EXPECT_SAME_FIELD(verbs_ah_attr, sgid_index, ibv_ah_attr, grh.sgid_index);
    EXPECT_SAME_FIELD(verbs_ah_attr, hop_limit, ibv_ah_attr, grh.hop_limit);
    EXPECT_SAME_FIELD(verbs_ah_attr, traffic_class, ibv_ah_attr, grh.traffic_class);
    EXPECT_SAME_FIELD(verbs_ah_attr, dlid, ibv_ah_attr, dlid);
    EXPECT_SAME_FIELD(verbs_ah_attr, sl, ibv_ah_attr, sl);
    EXPECT_SAME_FIELD(verbs_ah_attr, static_rate, ibv_ah_attr, static_rate);
    EXPECT_SAME_FIELD(verbs_ah_attr, is_global, ibv_ah_attr, is_global);
    EXPECT_SAME_FIELD(verbs_ah_attr, port_num, ibv_ah_attr, port_num);
    EXPECT_EQ(sizeof(struct verbs_mr), sizeof(struct ibv_mr));
    EXPECT_SAME_FIELD(verbs_mr, lkey, ibv_mr, lkey);
    EXPECT_SAME_FIELD(verbs_mr, rkey, ibv_mr, rkey);
}

#define EXPECT_SAME_SIZE(mine, real) EXPECT_EQ(sizeof(struct mine), sizeof(struct real)) << #mine

TEST(VerbsAbi, StructsOfQueuePairsMatch)
{
    EXPECT_SAME_SIZE(verbs_device_attr, ibv_device_attr);
    EXPECT_SAME_FIELD(verbs_device_attr, max_mr_size, ibv_device_attr, max_mr_size);
    EXPECT_SAME_FIELD(verbs_device_attr, max_qp, ibv_device_attr, max_qp);
    EXPECT_SAME_FIELD(verbs_device_attr, max_qp_wr, ibv_device_attr, max_qp_wr);
    EXPECT_SAME_FIELD(verbs_device_attr, max_qp_rd_atom, ibv_device_attr, max_qp_rd_atom);
    EXPECT_SAME_FIELD(verbs_device_attr, max_qp_init_rd_atom, ibv_device_attr, max_qp_init_rd_atom);
    EXPECT_SAME_FIELD(verbs_device_attr, atomic_cap, ibv_device_attr, atomic_cap);
    EXPECT_SAME_SIZE(verbs_qp_init_attr, ibv_qp_init_attr);
    EXPECT_SAME_FIELD(verbs_qp_init_attr, recv_cq, ibv_qp_init_attr, recv_cq);
    EXPECT_SAME_FIELD(verbs_qp_init_attr, cap.max_inline_data, ibv_qp_init_attr,
                      cap.max_inline_data);
    EXPECT_SAME_FIELD(verbs_qp_init_attr, qp_type, ibv_qp_init_attr, qp_type);
    EXPECT_SAME_FIELD(verbs_qp_init_attr, sq_sig_all, ibv_qp_init_attr, sq_sig_all);
    EXPECT_SAME_SIZE(verbs_qp_attr, ibv_qp_attr);
    EXPECT_SAME_FIELD(verbs_qp_attr, path_mtu, ibv_qp_attr, path_mtu);
    EXPECT_SAME_FIELD(verbs_qp_attr, rq_psn, ibv_qp_attr, rq_psn);
    EXPECT_SAME_FIELD(verbs_qp_attr, sq_psn, ibv_qp_attr, sq_psn);
    EXPECT_SAME_FIELD(verbs_qp_attr, dest_qp_num, ibv_qp_attr, dest_qp_num);
    EXPECT_SAME_FIELD(verbs_qp_attr, qp_access_flags, ibv_qp_attr, qp_access_flags);
    EXPECT_SAME_FIELD(verbs_qp_attr, ah_attr, ibv_qp_attr, ah_attr);
    EXPECT_SAME_FIELD(verbs_qp_attr, max_rd_atomic, ibv_qp_attr, max_rd_atomic);
    EXPECT_SAME_FIELD(verbs_qp_attr, max_dest_rd_atomic, ibv_qp_attr, max_dest_rd_atomic);
    EXPECT_SAME_FIELD(verbs_qp_attr, min_rnr_timer, ibv_qp_attr, min_rnr_timer);
    EXPECT_SAME_FIELD(verbs_qp_attr, port_num, ibv_qp_attr, port_num);
    EXPECT_SAME_FIELD(verbs_qp_attr, timeout, ibv_qp_attr, timeout);
    EXPECT_SAME_FIELD(verbs_qp_attr, retry_cnt, ibv_qp_attr, retry_cnt);
    EXPECT_SAME_FIELD(verbs_qp_attr, rnr_retry, ibv_qp_attr, rnr_retry);
    EXPECT_SAME_SIZE(verbs_cq_init_attr, ibv_cq_init_attr_ex);
    EXPECT_SAME_FIELD(verbs_cq_init_attr, cqe, ibv_cq_init_attr_ex, cqe);
    EXPECT_SAME_FIELD(verbs_cq_init_attr, channel, ibv_cq_init_attr_ex, channel);
    EXPECT_SAME_FIELD(verbs_cq_init_attr, comp_vector, ibv_cq_init_attr_ex, comp_vector);
    EXPECT_SAME_FIELD(verbs_cq_init_attr, wc_flags, ibv_cq_init_attr_ex, wc_flags);
    EXPECT_SAME_FIELD(verbs_cq_init_attr, comp_mask, ibv_cq_init_attr_ex, comp_mask);
    EXPECT_SAME_FIELD(verbs_cq_init_attr, flags, ibv_cq_init_attr_ex, flags);
    EXPECT_SAME_FIELD(verbs_qp, context, ibv_qp, context);
    EXPECT_SAME_FIELD(verbs_qp, qp_num, ibv_qp, qp_num);
    EXPECT_SAME_FIELD(verbs_cq, context, ibv_cq, context);
}

TEST(VerbsAbi, StructsOfTheDataPathMatch)
{
    EXPECT_SAME_FIELD(verbs_head, device, ibv_context, device);
    EXPECT_SAME_FIELD(verbs_head, poll_cq, ibv_context, ops.poll_cq);
    EXPECT_SAME_FIELD(verbs_head, post_send, ibv_context, ops.post_send);
    EXPECT_SAME_FIELD(verbs_head, post_recv, ibv_context, ops.post_recv);
    EXPECT_SAME_FIELD(verbs_head, async_fd, ibv_context, async_fd);
    EXPECT_SAME_FIELD(verbs_device, transport_type, ibv_device, transport_type);
    EXPECT_SAME_SIZE(verbs_sge, ibv_sge);
    EXPECT_SAME_FIELD(verbs_sge, length, ibv_sge, length);
    EXPECT_SAME_FIELD(verbs_sge, lkey, ibv_sge, lkey);
    EXPECT_SAME_SIZE(verbs_send_wr, ibv_send_wr);
    EXPECT_SAME_FIELD(verbs_send_wr, sg_list, ibv_send_wr, sg_list);
    EXPECT_SAME_FIELD(verbs_send_wr, num_sge, ibv_send_wr, num_sge);
    EXPECT_SAME_FIELD(verbs_send_wr, imm_data, ibv_send_wr, imm_data);
    EXPECT_SAME_FIELD(verbs_send_wr, opcode, ibv_send_wr, opcode);
    EXPECT_SAME_FIELD(verbs_send_wr, send_flags, ibv_send_wr, send_flags);
    EXPECT_SAME_FIELD(verbs_send_wr, wr.rdma.remote_addr, ibv_send_wr, wr.rdma.remote_addr);
    EXPECT_SAME_FIELD(verbs_send_wr, wr.rdma.rkey, ibv_send_wr, wr.rdma.rkey);
    EXPECT_SAME_FIELD(verbs_send_wr, wr.atomic.remote_addr, ibv_send_wr, wr.atomic.remote_addr);
    EXPECT_SAME_FIELD(verbs_send_wr, wr.atomic.compare_add, ibv_send_wr, wr.atomic.compare_add);
    EXPECT_SAME_FIELD(verbs_send_wr, wr.atomic.rkey, ibv_send_wr, wr.atomic.rkey);
    EXPECT_SAME_SIZE(verbs_recv_wr, ibv_recv_wr);
    EXPECT_SAME_FIELD(verbs_recv_wr, sg_list, ibv_recv_wr, sg_list);
    EXPECT_SAME_SIZE(verbs_wc, ibv_wc);
    EXPECT_SAME_FIELD(verbs_wc, status, ibv_wc, status);
    EXPECT_SAME_FIELD(verbs_wc, opcode, ibv_wc, opcode);
    EXPECT_SAME_FIELD(verbs_wc, imm_data, ibv_wc, imm_data);
    EXPECT_SAME_FIELD(verbs_wc, byte_len, ibv_wc, byte_len);
    EXPECT_SAME_SIZE(verbs_async_event, ibv_async_event);
    EXPECT_SAME_FIELD(verbs_async_event, event_type, ibv_async_event, event_type);
}

TEST(VerbsAbi, NumbersOfQueuePairsMatch)
{
    const int mine[] = {VERBS_IWARP,           VERBS_RC,
                        VERBS_ATOMIC_NONE,     VERBS_WR_WRITE,
                        VERBS_WR_SEND,         VERBS_WR_READ,
                        VERBS_WR_FETCH_ADD,    VERBS_SEND_SIGNALLED,
                        VERBS_SEND_INLINE,     VERBS_STATE_RESET,
                        VERBS_STATE_INIT,      VERBS_STATE_RTR,
                        VERBS_STATE_RTS,       VERBS_STATE_ERROR,
                        VERBS_QP_STATE,        VERBS_QP_ACCESS,
                        VERBS_QP_PKEY,         VERBS_QP_PORT,
                        VERBS_QP_AV,           VERBS_QP_MTU,
                        VERBS_QP_TIMEOUT,      VERBS_QP_RETRY,
                        VERBS_QP_RNR_RETRY,    VERBS_QP_RQ_PSN,
                        VERBS_QP_READS_OUT,    VERBS_QP_RNR_TIMER,
                        VERBS_QP_SQ_PSN,       VERBS_QP_READS_IN,
                        VERBS_QP_PEER,         VERBS_EVENT_CQ_ERR,
                        VERBS_EVENT_QP_FATAL,  VERBS_EVENT_QP_REQUEST,
                        VERBS_EVENT_QP_ACCESS, VERBS_EVENT_DEVICE_FATAL};
    const int real[] = {IBV_TRANSPORT_IWARP,
                        IBV_QPT_RC,
                        IBV_ATOMIC_NONE,
                        IBV_WR_RDMA_WRITE,
                        IBV_WR_SEND,
                        IBV_WR_RDMA_READ,
                        IBV_WR_ATOMIC_FETCH_AND_ADD,
                        IBV_SEND_SIGNALED,
                        IBV_SEND_INLINE,
                        IBV_QPS_RESET,
                        IBV_QPS_INIT,
                        IBV_QPS_RTR,
                        IBV_QPS_RTS,
                        IBV_QPS_ERR,
                        IBV_QP_STATE,
                        IBV_QP_ACCESS_FLAGS,
                        IBV_QP_PKEY_INDEX,
                        IBV_QP_PORT,
                        IBV_QP_AV,
                        IBV_QP_PATH_MTU,
                        IBV_QP_TIMEOUT,
                        IBV_QP_RETRY_CNT,
                        IBV_QP_RNR_RETRY,
                        IBV_QP_RQ_PSN,
                        IBV_QP_MAX_QP_RD_ATOMIC,
                        IBV_QP_MIN_RNR_TIMER,
                        IBV_QP_SQ_PSN,
                        IBV_QP_MAX_DEST_RD_ATOMIC,
                        IBV_QP_DEST_QPN,
                        IBV_EVENT_CQ_ERR,
                        IBV_EVENT_QP_FATAL,
                        IBV_EVENT_QP_REQ_ERR,
                        IBV_EVENT_QP_ACCESS_ERR,
                        IBV_EVENT_DEVICE_FATAL};

    static_assert(sizeof(mine) == sizeof(real), "one for one");
    for (size_t i = 0; i < sizeof(mine) / sizeof(mine[0]); i++)
        EXPECT_EQ(mine[i], real[i]) << "number " << i;
#define EXPECT_STATUS(name, number, ours) EXPECT_EQ(number, int{IBV_WC_##name}) << #name;
    VERBS_STATUSES(EXPECT_STATUS)
#undef EXPECT_STATUS
}

TEST(VerbsAbi, StructsOfLibmlx5Match)
{
    EXPECT_EQ(sizeof(struct mlx5_context_attr), sizeof(struct mlx5dv_context_attr));
    EXPECT_SAME_FIELD(mlx5_context_attr, flags, mlx5dv_context_attr, flags);
    EXPECT_SAME_FIELD(mlx5_umem, umem_id, mlx5dv_devx_umem, umem_id);
    EXPECT_EQ(sizeof(struct mlx5_umem_in), sizeof(struct mlx5dv_devx_umem_in));
    EXPECT_SAME_FIELD(mlx5_umem_in, size, mlx5dv_devx_umem_in, size);
    EXPECT_SAME_FIELD(mlx5_umem_in, access, mlx5dv_devx_umem_in, access);
    EXPECT_SAME_FIELD(mlx5_umem_in, pgsz_bitmap, mlx5dv_devx_umem_in, pgsz_bitmap);
    EXPECT_SAME_FIELD(mlx5_umem_in, comp_mask, mlx5dv_devx_umem_in, comp_mask);
    EXPECT_SAME_FIELD(mlx5_umem_in, dmabuf_fd, mlx5dv_devx_umem_in, dmabuf_fd);
    EXPECT_SAME_FIELD(mlx5_uar, reg_addr, mlx5dv_devx_uar, reg_addr);
    EXPECT_SAME_FIELD(mlx5_uar, page_id, mlx5dv_devx_uar, page_id);
    EXPECT_SAME_FIELD(mlx5_uar, comp_mask, mlx5dv_devx_uar, comp_mask);
    EXPECT_EQ(sizeof(struct mlx5_av), sizeof(struct mlx5_wqe_av));
    EXPECT_SAME_FIELD(mlx5_av, rmac, mlx5_wqe_av, rmac);
    EXPECT_SAME_FIELD(mlx5_av, rgid, mlx5_wqe_av, rgid);
    EXPECT_SAME_FIELD(mlx5_pd_out, pdn, mlx5dv_pd, pdn);
    EXPECT_SAME_FIELD(mlx5_ah_out, av, mlx5dv_ah, av);
    EXPECT_SAME_SIZE(mlx5_cq_init_attr, mlx5dv_cq_init_attr);
    EXPECT_SAME_FIELD(mlx5_cq_init_attr, comp_mask, mlx5dv_cq_init_attr, comp_mask);
    EXPECT_SAME_FIELD(mlx5_cq_init_attr, flags, mlx5dv_cq_init_attr, flags);
    EXPECT_SAME_FIELD(mlx5_cq_init_attr, cqe_size, mlx5dv_cq_init_attr, cqe_size);
    EXPECT_SAME_SIZE(mlx5_allocators, mlx5dv_ctx_allocators);
    EXPECT_SAME_FIELD(mlx5_allocators, alloc, mlx5dv_ctx_allocators, alloc);
    EXPECT_SAME_FIELD(mlx5_allocators, free, mlx5dv_ctx_allocators, free);
    EXPECT_SAME_FIELD(mlx5_allocators, data, mlx5dv_ctx_allocators, data);
    EXPECT_SAME_SIZE(mlx5_qp_out, mlx5dv_qp);
    EXPECT_SAME_FIELD(mlx5_qp_out, dbrec, mlx5dv_qp, dbrec);
    EXPECT_SAME_FIELD(mlx5_qp_out, sq.buf, mlx5dv_qp, sq.buf);
    EXPECT_SAME_FIELD(mlx5_qp_out, sq.wqe_cnt, mlx5dv_qp, sq.wqe_cnt);
    EXPECT_SAME_FIELD(mlx5_qp_out, sq.stride, mlx5dv_qp, sq.stride);
    EXPECT_SAME_FIELD(mlx5_qp_out, bf.reg, mlx5dv_qp, bf.reg);
    EXPECT_SAME_FIELD(mlx5_qp_out, bf.size, mlx5dv_qp, bf.size);
    EXPECT_SAME_FIELD(mlx5_qp_out, comp_mask, mlx5dv_qp, comp_mask);
    EXPECT_SAME_SIZE(mlx5_cq_out, mlx5dv_cq);
    EXPECT_SAME_FIELD(mlx5_cq_out, buf, mlx5dv_cq, buf);
    EXPECT_SAME_FIELD(mlx5_cq_out, dbrec, mlx5dv_cq, dbrec);
    EXPECT_SAME_FIELD(mlx5_cq_out, cqe_cnt, mlx5dv_cq, cqe_cnt);
    EXPECT_SAME_FIELD(mlx5_cq_out, cqe_size, mlx5dv_cq, cqe_size);
    EXPECT_SAME_FIELD(mlx5_cq_out, cqn, mlx5dv_cq, cqn);
    EXPECT_SAME_FIELD(mlx5_cq_out, comp_mask, mlx5dv_cq, comp_mask);
    EXPECT_SAME_FIELD(mlx5_obj, qp.in, mlx5dv_obj, qp.in);
    EXPECT_SAME_FIELD(mlx5_obj, qp.out, mlx5dv_obj, qp.out);
    EXPECT_SAME_FIELD(mlx5_obj, cq.in, mlx5dv_obj, cq.in);
    EXPECT_SAME_FIELD(mlx5_obj, cq.out, mlx5dv_obj, cq.out);
    EXPECT_EQ(sizeof(struct mlx5_obj), sizeof(struct mlx5dv_obj));
    EXPECT_SAME_FIELD(mlx5_obj, ah.in, mlx5dv_obj, ah.in);
    EXPECT_SAME_FIELD(mlx5_obj, ah.out, mlx5dv_obj, ah.out);
    EXPECT_SAME_FIELD(mlx5_obj, pd.in, mlx5dv_obj, pd.in);
    EXPECT_SAME_FIELD(mlx5_obj, pd.out, mlx5dv_obj, pd.out);
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
