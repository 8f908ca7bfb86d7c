/* abi.h: what we use of rdma-core's binary interface, declared by us.
 *
 * Layer: transport/verbs. No header of rdma-core is needed to build; verbs_abi_test compares every
 * struct, number and call of this file with the real headers where they are installed. Objects that
 * only pass through us keep rdma-core's names and stay incomplete. Functions and fields carry the
 * names of their symbols, so that a reader finds them in the manual. */
#ifndef SWL_VERBS_ABI_H
#define SWL_VERBS_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ibv_device;
struct ibv_context;
struct ibv_pd;
struct ibv_ah;
struct mlx5dv_devx_obj;

/* ---- libibverbs ---- */

enum {
    VERBS_PORT_ACTIVE = 4,
    VERBS_LINK_INFINIBAND = 1,
    VERBS_LINK_ETHERNET = 2,
    VERBS_PORT_GRH_REQUIRED = 1, /* verbs_port_attr.flags */
    VERBS_GID_IB = 0,
    VERBS_GID_ROCE_V1 = 1,
    VERBS_GID_ROCE_V2 = 2,
    VERBS_ACCESS_LOCAL_WRITE = 1,
    VERBS_ACCESS_REMOTE_WRITE = 1 << 1,
    VERBS_ACCESS_REMOTE_READ = 1 << 2,
    VERBS_ACCESS_REMOTE_ATOMIC = 1 << 3,
    VERBS_ACCESS_RELAXED = 1 << 20,
};

/* As the exported ibv_query_port fills it; newer fields behind it need the provider's own entry. */
struct verbs_port_attr {
    uint32_t state, max_mtu, active_mtu;
    int32_t gid_tbl_len;
    uint32_t port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr;
    uint16_t pkey_tbl_len, lid, sm_lid;
    uint8_t lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply;
    uint8_t active_width, active_speed, phys_state, link_layer, flags;
    uint16_t port_cap_flags2;
};

struct verbs_gid_entry {
    uint8_t gid[16];
    uint32_t gid_index, port_num, gid_type, ndev_ifindex;
};

struct verbs_ah_attr {
    uint8_t dgid[16];
    uint32_t flow_label;
    uint8_t sgid_index, hop_limit, traffic_class;
    uint16_t dlid;
    uint8_t sl, src_path_bits, static_rate, is_global, port_num;
};

struct verbs_mr {
    void *context, *pd, *addr;
    size_t length;
    uint32_t handle, lkey, rkey;
};

/* ---- libmlx5 ---- */

enum {
    MLX5_CONTEXT_DEVX = 1, /* mlx5_context_attr.flags */
    MLX5_UMEM_DMABUF = 1,  /* mlx5_umem_in.comp_mask */
    MLX5_UAR_BF = 0,
    MLX5_UAR_NC = 1,
    MLX5_OBJ_AH = 1 << 5,
    MLX5_OBJ_PD = 1 << 6,
};
#define MLX5_UAR_NC_DEDICATED 0x80000000u /* rdma-core 46 and later */

struct mlx5_context_attr {
    uint32_t flags;
    uint64_t comp_mask;
};

struct mlx5_umem {
    uint32_t umem_id;
};

struct mlx5_umem_in {
    void *addr;
    size_t size;
    uint32_t access;
    uint64_t pgsz_bitmap, comp_mask;
    int dmabuf_fd;
};

struct mlx5_uar {
    void *reg_addr, *base_addr;
    uint32_t page_id;
    int64_t mmap_off;
    uint64_t comp_mask;
};

/* An address vector; of it we read the resolved MAC only. */
struct mlx5_av {
    uint8_t key[8];
    uint32_t dqp_dct;
    uint8_t stat_rate_sl, fl_mlid;
    uint16_t rlid;
    uint8_t reserved[4], rmac[6], tclass, hop_limit;
    uint32_t grh_gid_fl;
    uint8_t rgid[16];
};

struct mlx5_pd_out {
    uint32_t pdn;
    uint64_t comp_mask;
};

struct mlx5_ah_out {
    struct mlx5_av *av;
    uint64_t comp_mask;
};

struct mlx5_obj_pair {
    void *in, *out;
};

struct mlx5_obj {
    struct mlx5_obj_pair qp, cq, srq, rwq, dm, ah, pd;
};

/* ---- calls: X(result, symbol, arguments) ---- */
/* clang-format off */

#define VERBS_CALLS(X) \
    X(struct ibv_device **, ibv_get_device_list, (int *)) \
    X(void, ibv_free_device_list, (struct ibv_device **)) \
    X(const char *, ibv_get_device_name, (struct ibv_device *)) \
    X(struct ibv_context *, ibv_open_device, (struct ibv_device *)) \
    X(int, ibv_close_device, (struct ibv_context *)) \
    X(int, ibv_query_port, (struct ibv_context *, uint8_t, struct verbs_port_attr *)) \
    X(int, ibv_query_gid, (struct ibv_context *, uint8_t, int, void *)) \
    X(struct ibv_pd *, ibv_alloc_pd, (struct ibv_context *)) \
    X(int, ibv_dealloc_pd, (struct ibv_pd *)) \
    X(struct verbs_mr *, ibv_reg_mr, (struct ibv_pd *, void *, size_t, int)) \
    X(int, ibv_dereg_mr, (struct verbs_mr *)) \
    X(struct ibv_ah *, ibv_create_ah, (struct ibv_pd *, struct verbs_ah_attr *)) \
    X(int, ibv_destroy_ah, (struct ibv_ah *))

/* Younger than the library's first version: NULL where it lacks them. */
#define VERBS_LATER_CALLS(X) \
    X(int, _ibv_query_gid_ex, (struct ibv_context *, uint32_t, uint32_t, struct verbs_gid_entry *, uint32_t, size_t)) \
    X(struct verbs_mr *, ibv_reg_mr_iova2, (struct ibv_pd *, void *, size_t, uint64_t, unsigned int)) \
    X(struct verbs_mr *, ibv_reg_dmabuf_mr, (struct ibv_pd *, uint64_t, size_t, uint64_t, int, int))

#define MLX5_CALLS(X) \
    X(bool, mlx5dv_is_supported, (struct ibv_device *)) \
    X(struct ibv_context *, mlx5dv_open_device, (struct ibv_device *, struct mlx5_context_attr *)) \
    X(int, mlx5dv_init_obj, (struct mlx5_obj *, uint64_t)) \
    X(int, mlx5dv_devx_general_cmd, (struct ibv_context *, const void *, size_t, void *, size_t)) \
    X(struct mlx5dv_devx_obj *, mlx5dv_devx_obj_create, (struct ibv_context *, const void *, size_t, void *, size_t)) \
    X(int, mlx5dv_devx_obj_query, (struct mlx5dv_devx_obj *, const void *, size_t, void *, size_t)) \
    X(int, mlx5dv_devx_obj_modify, (struct mlx5dv_devx_obj *, const void *, size_t, void *, size_t)) \
    X(int, mlx5dv_devx_obj_destroy, (struct mlx5dv_devx_obj *)) \
    X(struct mlx5_umem *, mlx5dv_devx_umem_reg, (struct ibv_context *, void *, size_t, uint32_t)) \
    X(int, mlx5dv_devx_umem_dereg, (struct mlx5_umem *)) \
    X(struct mlx5_uar *, mlx5dv_devx_alloc_uar, (struct ibv_context *, uint32_t)) \
    X(void, mlx5dv_devx_free_uar, (struct mlx5_uar *)) \
    X(int, mlx5dv_devx_query_eqn, (struct ibv_context *, uint32_t, uint32_t *))

#define MLX5_LATER_CALLS(X) \
    X(struct mlx5_umem *, mlx5dv_devx_umem_reg_ex, (struct ibv_context *, struct mlx5_umem_in *))
/* clang-format on */

#ifdef __cplusplus
}
#endif
#endif
