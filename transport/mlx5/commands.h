/* commands.h: the firmware commands of the mlx5 driver: bytes in, fields out.
 *
 * Layer: transport/mlx5; pure. A command is a value of the caller: an encoder fills `in` from zero,
 * the caller lets the device run it (rdma-core's DevX calls), a reader takes fields out of
 * `out`. */
#ifndef SWL_MLX5_COMMANDS_H
#define SWL_MLX5_COMMANDS_H

#include "transport/rdma_core/path.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MLX5_IN_BYTES   272
#define MLX5_OUT_BYTES  4112 /* of QUERY_HCA_CAP; all others answer less */
#define MLX5_PIECES_MAX 256  /* of an indirect memory key, a multiple of 4 */

struct mlx5_command {
    const char *name;
    size_t in_bytes, out_bytes;
    uint8_t in[MLX5_IN_BYTES + 16 * MLX5_PIECES_MAX];
    uint8_t out[MLX5_OUT_BYTES];
};

struct mlx5_caps {
    uint32_t log_max_qp_size;
    uint32_t log_reads_out, log_reads_in;
    uint32_t cqe_version;
    uint32_t log_bf_bytes;
    uint32_t sq_ts_format; /* 0 = free running */
    bool atomic, ece;
};

/* A piece of registered memory. */
struct mlx5_place {
    uint32_t umem;
    uint64_t ring, record; /* offsets of the entries and of the doorbell record */
};

struct mlx5_cq_plan {
    struct mlx5_place place;
    uint32_t log_size, uar_page, event_queue;
};

struct mlx5_qp_plan {
    struct mlx5_place place;
    uint32_t log_size, uar_page, pd, cqn, ts_format, ece;
};

/* One key for memory that is registered in pieces, which follow each other in the peer's
 * addresses. */
struct mlx5_piece {
    uint64_t address, bytes; /* bytes: below 2 GiB */
    uint32_t key;
};

struct mlx5_mkey_plan {
    uint64_t start, bytes; /* what requests name */
    uint32_t pd;
    unsigned access;                 /* enum swl_nic_access */
    const struct mlx5_piece *pieces; /* [npieces] */
    uint32_t npieces;                /* at most MLX5_PIECES_MAX */
};

enum mlx5_qp_state {
    MLX5_QP_RESET = 0,
    MLX5_QP_INIT = 1,
    MLX5_QP_RTR = 2,
    MLX5_QP_RTS = 3,
    MLX5_QP_ERROR = 6,
};

void swl_mlx5_query_caps(struct mlx5_command *c);
void swl_mlx5_caps_read(const struct mlx5_command *c, struct mlx5_caps *caps);
/* Completions overwrite the first entry, and nobody has to take them. */
void swl_mlx5_create_cq(struct mlx5_command *c, const struct mlx5_cq_plan *plan);
/* RC without a receive queue. */
void swl_mlx5_create_qp(struct mlx5_command *c, const struct mlx5_qp_plan *plan);
void swl_mlx5_create_mkey(struct mlx5_command *c, const struct mlx5_mkey_plan *plan);
/* The key of CREATE_MKEY's answer. */
uint32_t swl_mlx5_key(const struct mlx5_command *c);
void swl_mlx5_init_qp(struct mlx5_command *c, uint32_t qpn, uint32_t port, uint32_t pkey_index);
void swl_mlx5_rtr_qp(struct mlx5_command *c, uint32_t qpn, const struct rc_path *path);
void swl_mlx5_rts_qp(struct mlx5_command *c, uint32_t qpn, const struct rc_path *path);
void swl_mlx5_error_qp(struct mlx5_command *c, uint32_t qpn);
void swl_mlx5_reset_qp(struct mlx5_command *c, uint32_t qpn);
void swl_mlx5_query_qp(struct mlx5_command *c, uint32_t qpn);
/* State and, of the send queue, the next entry the device will fetch. */
void swl_mlx5_qp_read(const struct mlx5_command *c, uint32_t *state_p, uint32_t *index_p);
/* Number of the created object. */
uint32_t swl_mlx5_number(const struct mlx5_command *c);
/* Options that CREATE_QP offers. */
uint32_t swl_mlx5_ece(const struct mlx5_command *c);

/* error: of the call that ran the command, 0 = none. false: text says what the kernel and the
 * firmware have against it. */
bool swl_mlx5_check(const struct mlx5_command *c, int error, char *text, size_t text_bytes);

#ifdef __cplusplus
}
#endif
#endif
