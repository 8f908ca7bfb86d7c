/* fields.h: where the fields of mlx5 firmware commands lie, and the one place that sets them.
 *
 * Layer: transport/mlx5; pure, no state. A field is {byte offset of its big-endian 32-bit word,
 * right shift, width}; a width of 64 means two words, 128 and 48 are copied as bytes by their
 * users. The numbers are those of the public layouts of the device; mlx5_commands_test has them
 * once more, written apart. Offsets of QPC, ADS and CQC fields count from the context, see the *_AT
 * of the commands. */
#ifndef SWL_MLX5_FIELDS_H
#define SWL_MLX5_FIELDS_H

#include "transport/wqe.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

#define MLX5_FIELD(offset, shift, width) ((offset) << 16 | (shift) << 8 | (width))

enum mlx5_opcode {
    MLX5_QUERY_HCA_CAP = 0x100,
    MLX5_CREATE_MKEY = 0x200,
    MLX5_CREATE_CQ = 0x400,
    MLX5_CREATE_QP = 0x500,
    MLX5_RST2INIT_QP = 0x502,
    MLX5_INIT2RTR_QP = 0x503,
    MLX5_RTR2RTS_QP = 0x504,
    MLX5_2ERR_QP = 0x507,
    MLX5_2RST_QP = 0x50a,
    MLX5_QUERY_QP = 0x50b,
};

/* Contexts inside commands, bytes from the start of the command. */
enum {
    MLX5_CAP_AT = 0x10,  /* of QUERY_HCA_CAP's output */
    MLX5_CQC_AT = 0x10,  /* of CREATE_CQ */
    MLX5_QPC_AT = 0x18,  /* of all commands of queue pairs, and of QUERY_QP's output */
    MLX5_ADS_AT = 0x18,  /* inside a QPC */
    MLX5_MKC_AT = 0x10,  /* of CREATE_MKEY */
    MLX5_KLM_AT = 0x110, /* of CREATE_MKEY: its list of pieces, 16 bytes each */
};

/* clang-format off */
enum mlx5_field {
    /* every command */
    CMD_OPCODE           = MLX5_FIELD(0x00, 16, 16),
    CMD_MODIFIER         = MLX5_FIELD(0x04, 0, 16),
    CMD_NUMBER           = MLX5_FIELD(0x08, 0, 24), /* of the object, in and out */
    CMD_OUT_STATUS       = MLX5_FIELD(0x00, 24, 8),
    CMD_OUT_SYNDROME     = MLX5_FIELD(0x04, 0, 32),
    CMD_OUT_ECE          = MLX5_FIELD(0x0c, 0, 32),
    CMD_OPTIONAL         = MLX5_FIELD(0x10, 0, 32), /* opt_param_mask */
    CMD_ECE              = MLX5_FIELD(0x14, 0, 32),
    /* CREATE_CQ, CREATE_QP: the ring */
    CQ_UMEM_OFFSET       = MLX5_FIELD(0x50, 0, 64),
    CQ_UMEM_ID           = MLX5_FIELD(0x58, 0, 32),
    CQ_UMEM_VALID        = MLX5_FIELD(0x5c, 31, 1),
    QP_UMEM_OFFSET       = MLX5_FIELD(0x100, 0, 64),
    QP_UMEM_ID           = MLX5_FIELD(0x108, 0, 32),
    QP_UMEM_VALID        = MLX5_FIELD(0x10c, 31, 1),
    /* completion queue context */
    CQC_DBR_UMEM_VALID   = MLX5_FIELD(0x00, 25, 1),
    CQC_ENTRY_BYTES      = MLX5_FIELD(0x00, 21, 3), /* 0 = 64 */
    CQC_COLLAPSED        = MLX5_FIELD(0x00, 20, 1),
    CQC_IGNORE_OVERRUN   = MLX5_FIELD(0x00, 17, 1),
    CQC_DBR_UMEM_ID      = MLX5_FIELD(0x04, 0, 32),
    CQC_LOG_SIZE         = MLX5_FIELD(0x0c, 24, 5),
    CQC_UAR_PAGE         = MLX5_FIELD(0x0c, 0, 24),
    CQC_EVENT_QUEUE      = MLX5_FIELD(0x14, 0, 8),
    CQC_DBR_ADDRESS      = MLX5_FIELD(0x38, 0, 64),
    /* queue pair context */
    QPC_STATE            = MLX5_FIELD(0x00, 28, 4),
    QPC_TRANSPORT        = MLX5_FIELD(0x00, 16, 8),
    QPC_MIGRATION        = MLX5_FIELD(0x00, 11, 2),
    QPC_PD               = MLX5_FIELD(0x04, 0, 24),
    QPC_MTU              = MLX5_FIELD(0x08, 29, 3),
    QPC_LOG_MSG_MAX      = MLX5_FIELD(0x08, 24, 5),
    QPC_LOG_SQ_SIZE      = MLX5_FIELD(0x08, 11, 4),
    QPC_TS_FORMAT        = MLX5_FIELD(0x08, 6, 2),
    QPC_UAR_PAGE         = MLX5_FIELD(0x0c, 0, 24),
    QPC_USER_INDEX       = MLX5_FIELD(0x10, 0, 24),
    QPC_REMOTE_QPN       = MLX5_FIELD(0x14, 0, 24),
    QPC_LOG_ACK_REQ_FREQ = MLX5_FIELD(0x70, 28, 4),
    QPC_LOG_SRA_MAX      = MLX5_FIELD(0x70, 21, 3),
    QPC_RETRY_COUNT      = MLX5_FIELD(0x70, 16, 3),
    QPC_RNR_RETRY        = MLX5_FIELD(0x70, 13, 3),
    QPC_NEXT_SEND_PSN    = MLX5_FIELD(0x78, 0, 24),
    QPC_SEND_CQ          = MLX5_FIELD(0x7c, 0, 24),
    QPC_LOG_RRA_MAX      = MLX5_FIELD(0x90, 21, 3),
    QPC_ATOMIC_MODE      = MLX5_FIELD(0x90, 16, 4),
    QPC_REMOTE_READ      = MLX5_FIELD(0x90, 15, 1),
    QPC_REMOTE_WRITE     = MLX5_FIELD(0x90, 14, 1),
    QPC_REMOTE_ATOMIC    = MLX5_FIELD(0x90, 13, 1),
    QPC_MIN_RNR_NAK      = MLX5_FIELD(0x94, 24, 5),
    QPC_NEXT_RECV_PSN    = MLX5_FIELD(0x94, 0, 24),
    QPC_RECV_CQ          = MLX5_FIELD(0x9c, 0, 24),
    QPC_DBR_ADDRESS      = MLX5_FIELD(0xa0, 0, 64),
    QPC_RQ_TYPE          = MLX5_FIELD(0xac, 24, 3),
    QPC_HW_SQ_COUNTER    = MLX5_FIELD(0xb4, 16, 16),
    QPC_DBR_UMEM_VALID   = MLX5_FIELD(0xd0, 28, 1),
    QPC_DBR_UMEM_ID      = MLX5_FIELD(0xe4, 0, 32),
    /* address path */
    ADS_PKEY_INDEX       = MLX5_FIELD(0x00, 0, 16),
    ADS_GRH              = MLX5_FIELD(0x04, 23, 1),
    ADS_RLID             = MLX5_FIELD(0x04, 0, 16),
    ADS_ACK_TIMEOUT      = MLX5_FIELD(0x08, 27, 5),
    ADS_SOURCE_INDEX     = MLX5_FIELD(0x08, 16, 8),
    ADS_HOP_LIMIT        = MLX5_FIELD(0x08, 0, 8),
    ADS_TRAFFIC_CLASS    = MLX5_FIELD(0x0c, 20, 8),
    ADS_RGID             = MLX5_FIELD(0x10, 0, 128),
    ADS_DSCP             = MLX5_FIELD(0x20, 16, 6),
    ADS_UDP_SPORT        = MLX5_FIELD(0x20, 0, 16),
    ADS_ETH_PRIO         = MLX5_FIELD(0x24, 28, 3),
    ADS_SL               = MLX5_FIELD(0x24, 24, 4),
    ADS_PORT             = MLX5_FIELD(0x24, 16, 8),
    ADS_RMAC_HIGH        = MLX5_FIELD(0x24, 0, 16),
    ADS_RMAC_LOW         = MLX5_FIELD(0x28, 0, 32),
    /* memory key context, and one piece of the memory behind an indirect key */
    MKEY_OCTWORDS        = MLX5_FIELD(0x60, 0, 32), /* of the list in the command */
    MKC_ATOMIC           = MLX5_FIELD(0x00, 14, 1),
    MKC_REMOTE_WRITE     = MLX5_FIELD(0x00, 13, 1),
    MKC_REMOTE_READ      = MLX5_FIELD(0x00, 12, 1),
    MKC_LOCAL_WRITE      = MLX5_FIELD(0x00, 11, 1),
    MKC_LOCAL_READ       = MLX5_FIELD(0x00, 10, 1),
    MKC_MODE             = MLX5_FIELD(0x00, 8, 2),
    MKC_QPN              = MLX5_FIELD(0x04, 8, 24),
    MKC_VARIANT          = MLX5_FIELD(0x04, 0, 8), /* low byte of the key */
    MKC_PD               = MLX5_FIELD(0x0c, 0, 24),
    MKC_START            = MLX5_FIELD(0x10, 0, 64),
    MKC_LENGTH           = MLX5_FIELD(0x18, 0, 64),
    MKC_OCTWORDS         = MLX5_FIELD(0x34, 0, 32),
    KLM_BYTES            = MLX5_FIELD(0x00, 0, 31),
    KLM_KEY              = MLX5_FIELD(0x04, 0, 32),
    KLM_ADDRESS          = MLX5_FIELD(0x08, 0, 64),
    /* general capabilities */
    CAP_LOG_MAX_QP_SIZE  = MLX5_FIELD(0x10, 16, 8),
    CAP_ECE              = MLX5_FIELD(0x14, 28, 1),
    CAP_LOG_READS_OUT    = MLX5_FIELD(0x28, 16, 6),
    CAP_LOG_READS_IN     = MLX5_FIELD(0x28, 0, 6),
    CAP_CQE_VERSION      = MLX5_FIELD(0x3c, 0, 4),
    CAP_ATOMIC           = MLX5_FIELD(0x40, 1, 1),
    CAP_LOG_BF_BYTES     = MLX5_FIELD(0x4c, 16, 5),
    CAP_SQ_TS_FORMAT     = MLX5_FIELD(0x88, 30, 2),
};
/* clang-format on */

static inline uint32_t mlx5_width(enum mlx5_field f)
{
    return (uint32_t)f & 0xffu;
}

static inline uint32_t mlx5_mask(enum mlx5_field f)
{
    return mlx5_width(f) >= 32 ? UINT32_MAX : (1u << mlx5_width(f)) - 1;
}

/* Set the field in the block; `value` fits, the callers have clamped what comes from elsewhere. */
static inline void mlx5_set(uint8_t *block, enum mlx5_field f, uint64_t value)
{
    uint8_t *at = block + ((uint32_t)f >> 16);
    const uint32_t shift = (uint32_t)f >> 8 & 0xffu;
    uint32_t word;

    if (mlx5_width(f) == 64) {
        word = swl_be32((uint32_t)(value >> 32));
        memcpy(at, &word, sizeof(word));
        word = swl_be32((uint32_t)value);
        memcpy(at + sizeof(word), &word, sizeof(word));
        return;
    }
    assert(mlx5_width(f) <= 32 && value <= mlx5_mask(f));
    memcpy(&word, at, sizeof(word));
    word = swl_be32(word) & ~(mlx5_mask(f) << shift);
    word = swl_be32(word | ((uint32_t)value & mlx5_mask(f)) << shift);
    memcpy(at, &word, sizeof(word));
}

/* A field of at most 32 bits. */
static inline uint32_t mlx5_get(const uint8_t *block, enum mlx5_field f)
{
    uint32_t word;

    memcpy(&word, block + ((uint32_t)f >> 16), sizeof(word));
    return swl_be32(word) >> ((uint32_t)f >> 8 & 0xffu) & mlx5_mask(f);
}
#endif
