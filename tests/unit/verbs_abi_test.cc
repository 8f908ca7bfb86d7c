// Every struct, number and call of transport/verbs/abi.h against the headers of rdma-core.
#include "transport/verbs/verbs.h"

#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <type_traits>

// Macros that hide the exported functions.
#undef ibv_query_port
#undef ibv_reg_mr

namespace
{

// Two types that travel the same way: both pointers, or numbers of one size.
template <class A, class B> constexpr bool same_way()
{
    return std::is_pointer<A>::value == std::is_pointer<B>::value &&
           std::is_void<A>::value == std::is_void<B>::value &&
           (std::is_void<A>::value ||
            sizeof(std::conditional_t<std::is_void<A>::value, int, A>) ==
                sizeof(std::conditional_t<std::is_void<B>::value, int, B>));
}

template <class F, class G> struct calls;
template <class R, class... A, class S, class... B> struct calls<R (*)(A...), S (*)(B...)> {
    static constexpr bool same()
    {
        if constexpr (sizeof...(A) != sizeof...(B))
            return false;
        else
            return same_way<R, S>() && (same_way<A, B>() && ...);
    }
};

// noexcept is part of the type of some declarations.
template <class F> struct plain {
    using type = F;
};
template <class R, class... A> struct plain<R (*)(A...) noexcept> {
    using type = R (*)(A...);
};

#define EXPECT_SAME_CALL(result, symbol, arguments)                                                \
    EXPECT_TRUE((calls<decltype(swl_verbs::symbol), plain<decltype(&::symbol)>::type>::same()))    \
        << #symbol;

TEST(VerbsAbi, CallsHaveTheArgumentsOfTheLibraries){
    VERBS_CALLS(EXPECT_SAME_CALL) VERBS_LATER_CALLS(EXPECT_SAME_CALL) MLX5_CALLS(EXPECT_SAME_CALL)
        MLX5_LATER_CALLS(EXPECT_SAME_CALL)}

#define EXPECT_SAME_FIELD(mine, field, real, its)                                                  \
    EXPECT_EQ(offsetof(struct mine, field), offsetof(struct real, its)) << #mine "." #field;       \
    EXPECT_EQ(sizeof(mine::field), sizeof(real::its)) << #mine "." #field

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
    EXPECT_EQ(MLX5_OBJ_AH, int{MLX5DV_OBJ_AH});
    EXPECT_EQ(MLX5_OBJ_PD, int{MLX5DV_OBJ_PD});
}

} // namespace
