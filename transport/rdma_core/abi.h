/* abi.h: what we use of rdma-core's binary interface, declared by us.
 *
 * Layer: transport/rdma_core. No header of rdma-core is needed to build; verbs_abi_test compares
 * every struct, number and call of this file with the real headers where they are installed.
 * Objects that only pass through us keep rdma-core's names and stay incomplete. Functions and
 * fields carry the names of their symbols, so that a reader finds them in the manual. */
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
struct verbs_cq;
struct verbs_qp;
struct verbs_send_wr;
struct verbs_recv_wr;
struct verbs_wc;

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
    VERBS_IWARP = 1, /* verbs_device.transport_type */
    VERBS_RC = 2,
    VERBS_ATOMIC_NONE = 0,
    VERBS_WR_WRITE = 0,
    VERBS_WR_SEND = 2,
    VERBS_WR_READ = 4,
    VERBS_WR_FETCH_ADD = 6,
    VERBS_SEND_SIGNALLED = 1 << 1,
    VERBS_SEND_INLINE = 1 << 3,
    VERBS_CQ_FLAGS = 1 << 0,          /* verbs_cq_init_attr.comp_mask */
    VERBS_CQ_IGNORE_OVERRUN = 1 << 1, /* its flags */
};

enum {
    VERBS_STATE_RESET = 0,
    VERBS_STATE_INIT = 1,
    VERBS_STATE_RTR = 2,
    VERBS_STATE_RTS = 3,
    VERBS_STATE_ERROR = 6,
    VERBS_QP_STATE = 1 << 0, /* mask of ibv_modify_qp */
    VERBS_QP_ACCESS = 1 << 3,
    VERBS_QP_PKEY = 1 << 4,
    VERBS_QP_PORT = 1 << 5,
    VERBS_QP_AV = 1 << 7,
    VERBS_QP_MTU = 1 << 8,
    VERBS_QP_TIMEOUT = 1 << 9,
    VERBS_QP_RETRY = 1 << 10,
    VERBS_QP_RNR_RETRY = 1 << 11,
    VERBS_QP_RQ_PSN = 1 << 12,
    VERBS_QP_READS_OUT = 1 << 13,
    VERBS_QP_RNR_TIMER = 1 << 15,
    VERBS_QP_SQ_PSN = 1 << 16,
    VERBS_QP_READS_IN = 1 << 17,
    VERBS_QP_PEER = 1 << 20,
};

enum {
    VERBS_EVENT_CQ_ERR = 0,
    VERBS_EVENT_QP_FATAL = 1,
    VERBS_EVENT_QP_REQUEST = 2,
    VERBS_EVENT_QP_ACCESS = 3,
    VERBS_EVENT_DEVICE_FATAL = 8,
};

/* Status of a completion, in the library's order, and what it is among ours. */
#define VERBS_STATUSES(X)                                                                          \
    X(SUCCESS, 0, NONE)                                                                            \
    X(LOC_LEN_ERR, 1, LOCAL_LENGTH)                                                                \
    X(LOC_QP_OP_ERR, 2, LOCAL_OPERATION)                                                           \
    X(LOC_PROT_ERR, 4, LOCAL_PROTECTION)                                                           \
    X(WR_FLUSH_ERR, 5, FLUSHED)                                                                    \
    X(BAD_RESP_ERR, 7, BAD_RESPONSE)                                                               \
    X(LOC_ACCESS_ERR, 8, LOCAL_ACCESS)                                                             \
    X(REM_INV_REQ_ERR, 9, REMOTE_REQUEST)                                                          \
    X(REM_ACCESS_ERR, 10, REMOTE_ACCESS)                                                           \
    X(REM_OP_ERR, 11, REMOTE_OPERATION)                                                            \
    X(RETRY_EXC_ERR, 12, RETRY)                                                                    \
    X(RNR_RETRY_EXC_ERR, 13, RNR_RETRY)                                                            \
    X(REM_ABORT_ERR, 16, REMOTE_ABORTED)

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

/* The head of an open device's object: its functions for the data path, which libibverbs calls from
 * inline code and does not export. */
struct verbs_head {
    struct verbs_device *device;
    void *before_poll[11];
    int (*poll_cq)(struct verbs_cq *, int, struct verbs_wc *);
    void *before_post[13];
    int (*post_send)(struct verbs_qp *, struct verbs_send_wr *, struct verbs_send_wr **);
    int (*post_recv)(struct verbs_qp *, struct verbs_recv_wr *, struct verbs_recv_wr **);
    void *behind[5];
    int cmd_fd, async_fd;
};

struct verbs_device {
    void *functions[2];
    int node_type, transport_type;
};

struct verbs_device_attr {
    char fw_ver[64];
    uint64_t node_guid, sys_image_guid, max_mr_size, page_size_cap;
    uint32_t vendor_id, vendor_part_id, hw_ver;
    int max_qp, max_qp_wr;
    uint32_t device_cap_flags;
    int max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd;
    int max_qp_rd_atom, max_ee_rd_atom, max_res_rd_atom, max_qp_init_rd_atom, max_ee_init_rd_atom;
    int atomic_cap;
    int rest[16];
};

/* Heads; the library makes these objects. */
struct verbs_cq {
    struct verbs_head *context;
};

struct verbs_qp {
    struct verbs_head *context;
    void *qp_context, *pd, *send_cq, *recv_cq, *srq;
    uint32_t handle, qp_num;
};

/* ibv_cq_init_attr_ex */
struct verbs_cq_init_attr {
    uint32_t cqe;
    void *cq_context, *channel;
    uint32_t comp_vector;
    uint64_t wc_flags;
    uint32_t comp_mask, flags;
    struct ibv_pd *parent_domain;
};

struct verbs_qp_cap {
    uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data;
};

struct verbs_qp_init_attr {
    void *qp_context;
    struct verbs_cq *send_cq, *recv_cq;
    void *srq;
    struct verbs_qp_cap cap;
    uint32_t qp_type;
    int sq_sig_all;
};

struct verbs_qp_attr {
    uint32_t qp_state, cur_qp_state, path_mtu, path_mig_state;
    uint32_t qkey, rq_psn, sq_psn, dest_qp_num, qp_access_flags;
    struct verbs_qp_cap cap;
    struct verbs_ah_attr ah_attr, alt_ah_attr;
    uint16_t pkey_index, alt_pkey_index;
    uint8_t en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic;
    uint8_t min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout;
    uint32_t rate_limit, pad; /* rdma-core aligns to 8 */
};

struct verbs_sge {
    uint64_t addr;
    uint32_t length, lkey;
};

struct verbs_send_wr {
    uint64_t wr_id;
    struct verbs_send_wr *next;
    struct verbs_sge *sg_list;
    int num_sge;
    uint32_t opcode, send_flags, imm_data;
    union {
        struct {
            uint64_t remote_addr;
            uint32_t rkey;
        } rdma;
        struct {
            uint64_t remote_addr, compare_add, swap;
            uint32_t rkey;
        } atomic;
    } wr;
    uint64_t rest[7];
};

struct verbs_recv_wr {
    uint64_t wr_id;
    struct verbs_recv_wr *next;
    struct verbs_sge *sg_list;
    int num_sge;
};

struct verbs_wc {
    uint64_t wr_id;
    uint32_t status, opcode, vendor_err, byte_len, imm_data, qp_num, src_qp, wc_flags;
    uint16_t pkey_index, slid;
    uint8_t sl, dlid_path_bits;
};

struct verbs_async_event {
    void *element; /* queue pair or completion queue */
    uint32_t event_type;
};

/* ---- libmlx5 ---- */

enum {
    MLX5_CONTEXT_DEVX = 1, /* mlx5_context_attr.flags */
    MLX5_UMEM_DMABUF = 1,  /* mlx5_umem_in.comp_mask */
    MLX5_UAR_BF = 0,
    MLX5_UAR_NC = 1,
    MLX5_CQ_CQE_SIZE = 1 << 2, /* mlx5_cq_init_attr.comp_mask */
    MLX5_ATTR_ALLOCATORS = 1,  /* mlx5dv_set_context_attr */
    MLX5_OBJ_QP = 1 << 0,
    MLX5_OBJ_CQ = 1 << 1,
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

struct mlx5_cq_init_attr {
    uint64_t comp_mask;
    uint8_t cqe_comp_res_format;
    uint32_t flags;
    uint16_t cqe_size;
};

/* Where the library takes the memory of rings and records. */
struct mlx5_allocators {
    void *(*alloc)(size_t bytes, void *data);
    void (*free)(void *ptr, void *data);
    void *data;
};

struct mlx5_ring {
    void *buf;
    uint32_t wqe_cnt, stride;
};

struct mlx5_doorbell {
    void *reg;
    uint32_t size;
};

struct mlx5_qp_out {
    uint32_t *dbrec;
    struct mlx5_ring sq, rq;
    struct mlx5_doorbell bf;
    uint64_t comp_mask;
    int64_t uar_mmap_offset;
    uint32_t tirn, tisn, rqn, sqn;
    uint64_t tir_icm_addr;
};

struct mlx5_cq_out {
    void *buf;
    uint32_t *dbrec, cqe_cnt, cqe_size;
    void *cq_uar;
    uint32_t cqn;
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
    X(int, ibv_query_pkey, (struct ibv_context *, uint8_t, int, uint16_t *)) /* big-endian */ \
    X(struct ibv_pd *, ibv_alloc_pd, (struct ibv_context *)) \
    X(int, ibv_dealloc_pd, (struct ibv_pd *)) \
    X(struct verbs_mr *, ibv_reg_mr, (struct ibv_pd *, void *, size_t, int)) \
    X(int, ibv_dereg_mr, (struct verbs_mr *)) \
    X(struct ibv_ah *, ibv_create_ah, (struct ibv_pd *, struct verbs_ah_attr *)) \
    X(int, ibv_destroy_ah, (struct ibv_ah *)) \
    X(int, ibv_query_device, (struct ibv_context *, struct verbs_device_attr *)) \
    X(struct verbs_cq *, ibv_create_cq, (struct ibv_context *, int, void *, void *, int)) \
    X(int, ibv_destroy_cq, (struct verbs_cq *)) \
    X(struct verbs_qp *, ibv_create_qp, (struct ibv_pd *, struct verbs_qp_init_attr *)) \
    X(int, ibv_destroy_qp, (struct verbs_qp *)) \
    X(int, ibv_modify_qp, (struct verbs_qp *, struct verbs_qp_attr *, int)) \
    X(int, ibv_query_qp, (struct verbs_qp *, struct verbs_qp_attr *, int, struct verbs_qp_init_attr *)) \
    X(int, ibv_get_async_event, (struct ibv_context *, struct verbs_async_event *)) \
    X(void, ibv_ack_async_event, (struct verbs_async_event *)) \
    X(const char *, ibv_wc_status_str, (int))

/* Younger than the library's first version: NULL where it lacks them. */
#define VERBS_LATER_CALLS(X) \
    X(int, _ibv_query_gid_ex, (struct ibv_context *, uint32_t, uint32_t, struct verbs_gid_entry *, uint32_t, size_t)) \
    X(struct verbs_mr *, ibv_reg_mr_iova2, (struct ibv_pd *, void *, size_t, uint64_t, unsigned int)) \
    X(struct verbs_mr *, ibv_reg_dmabuf_mr, (struct ibv_pd *, uint64_t, size_t, uint64_t, int, int))

#define MLX5_CALLS(X) \
    X(bool, mlx5dv_is_supported, (struct ibv_device *)) \
    X(struct ibv_context *, mlx5dv_open_device, (struct ibv_device *, struct mlx5_context_attr *)) \
    X(int, mlx5dv_init_obj, (struct mlx5_obj *, uint64_t)) \
    X(struct verbs_cq *, mlx5dv_create_cq, (struct ibv_context *, struct verbs_cq_init_attr *, struct mlx5_cq_init_attr *)) \
    X(int, mlx5dv_set_context_attr, (struct ibv_context *, int, void *)) \
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
