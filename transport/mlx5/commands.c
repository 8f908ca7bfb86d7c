/* commands.c: see commands.h. Layer: transport/mlx5; pure. */
#include "transport/mlx5/commands.h"

#include "transport/mlx5/fields.h"
#include "transport/nic_kinds.h"

#include <stdio.h>
#include <string.h>

#define HEADER_BYTES   16
#define CAP_GENERAL    0x01 /* general capabilities, current values */
#define QPC_MIGRATED   3
#define QPC_RC         0
#define QPC_NO_RQ      3 /* a receive queue of size zero */
#define QPC_TS_FREE    0
#define QPC_TS_DEFAULT 1
#define USER_INDEX     0xffffffu
#define ATOMICS_8B     3
#define LOG_MSG_MAX    30
#define RNR_FOR_EVER   7
#define KEY_IN_PIECES  2
#define KEY_OF_NO_QP   0xffffffu
#define KEY_VARIANT    0x5au /* any; a key that lost its low byte is noticed */
#define MIN_RNR_NAK    12    /* 0.64 ms */
#define OPTIONAL_REMOTE                                                                            \
    (1u << 1 | 1u << 2 | 1u << 3) /* INIT2RTR may change read, atomic and write access */

static uint8_t *begin_command(struct mlx5_command *c, const char *name, enum mlx5_opcode opcode,
                              size_t in_bytes, size_t out_bytes)
{
    memset(c, 0, sizeof(*c));
    c->name = name;
    c->in_bytes = in_bytes;
    c->out_bytes = out_bytes;
    mlx5_set(c->in, CMD_OPCODE, opcode);
    return c->in;
}

/* A command that changes a queue pair; returns its context. */
static uint8_t *change_queue_pair(struct mlx5_command *c, const char *name, enum mlx5_opcode opcode,
                                  uint32_t qpn)
{
    uint8_t *in = begin_command(c, name, opcode, MLX5_IN_BYTES, HEADER_BYTES);

    mlx5_set(in, CMD_NUMBER, qpn);
    return in + MLX5_QPC_AT;
}

void swl_mlx5_query_caps(struct mlx5_command *c)
{
    uint8_t *in =
        begin_command(c, "QUERY_HCA_CAP", MLX5_QUERY_HCA_CAP, HEADER_BYTES, MLX5_OUT_BYTES);

    mlx5_set(in, CMD_MODIFIER, CAP_GENERAL);
}

void swl_mlx5_caps_read(const struct mlx5_command *c, struct mlx5_caps *caps)
{
    const uint8_t *cap = c->out + MLX5_CAP_AT;

    caps->log_max_qp_size = mlx5_get(cap, CAP_LOG_MAX_QP_SIZE);
    caps->log_reads_out = mlx5_get(cap, CAP_LOG_READS_OUT);
    caps->log_reads_in = mlx5_get(cap, CAP_LOG_READS_IN);
    caps->cqe_version = mlx5_get(cap, CAP_CQE_VERSION);
    caps->log_bf_bytes = mlx5_get(cap, CAP_LOG_BF_BYTES);
    caps->sq_ts_format = mlx5_get(cap, CAP_SQ_TS_FORMAT);
    caps->atomic = mlx5_get(cap, CAP_ATOMIC) != 0;
    caps->ece = mlx5_get(cap, CAP_ECE) != 0;
}

void swl_mlx5_create_cq(struct mlx5_command *c, const struct mlx5_cq_plan *plan)
{
    uint8_t *in = begin_command(c, "CREATE_CQ", MLX5_CREATE_CQ, MLX5_IN_BYTES, HEADER_BYTES);
    uint8_t *cqc = in + MLX5_CQC_AT;

    mlx5_set(in, CQ_UMEM_OFFSET, plan->place.ring);
    mlx5_set(in, CQ_UMEM_ID, plan->place.umem);
    mlx5_set(in, CQ_UMEM_VALID, 1);
    mlx5_set(cqc, CQC_ENTRY_BYTES, 0);
    mlx5_set(cqc, CQC_COLLAPSED, 1);
    mlx5_set(cqc, CQC_IGNORE_OVERRUN, 1);
    mlx5_set(cqc, CQC_LOG_SIZE, plan->log_size);
    mlx5_set(cqc, CQC_UAR_PAGE, plan->uar_page);
    mlx5_set(cqc, CQC_EVENT_QUEUE, plan->event_queue);
    mlx5_set(cqc, CQC_DBR_UMEM_VALID, 1);
    mlx5_set(cqc, CQC_DBR_UMEM_ID, plan->place.umem);
    mlx5_set(cqc, CQC_DBR_ADDRESS, plan->place.record);
}

void swl_mlx5_create_qp(struct mlx5_command *c, const struct mlx5_qp_plan *plan)
{
    uint8_t *in = begin_command(c, "CREATE_QP", MLX5_CREATE_QP, MLX5_IN_BYTES, HEADER_BYTES);
    uint8_t *qpc = in + MLX5_QPC_AT;

    mlx5_set(in, CMD_ECE, plan->ece);
    mlx5_set(in, QP_UMEM_OFFSET, plan->place.ring);
    mlx5_set(in, QP_UMEM_ID, plan->place.umem);
    mlx5_set(in, QP_UMEM_VALID, 1);
    mlx5_set(qpc, QPC_TRANSPORT, QPC_RC);
    mlx5_set(qpc, QPC_MIGRATION, QPC_MIGRATED);
    mlx5_set(qpc, QPC_PD, plan->pd);
    mlx5_set(qpc, QPC_LOG_SQ_SIZE, plan->log_size);
    mlx5_set(qpc, QPC_RQ_TYPE, QPC_NO_RQ);
    mlx5_set(qpc, QPC_TS_FORMAT, plan->ts_format ? QPC_TS_DEFAULT : QPC_TS_FREE);
    mlx5_set(qpc, QPC_UAR_PAGE, plan->uar_page);
    mlx5_set(qpc, QPC_USER_INDEX, USER_INDEX);
    mlx5_set(qpc, QPC_SEND_CQ, plan->cqn);
    mlx5_set(qpc, QPC_RECV_CQ, plan->cqn);
    mlx5_set(qpc, QPC_DBR_UMEM_VALID, 1);
    mlx5_set(qpc, QPC_DBR_UMEM_ID, plan->place.umem);
    mlx5_set(qpc, QPC_DBR_ADDRESS, plan->place.record);
}

void swl_mlx5_create_mkey(struct mlx5_command *c, const struct mlx5_mkey_plan *plan)
{
    const uint32_t entries = (plan->npieces + 3) / 4 * 4; /* the list has whole cache lines */
    uint8_t *in = begin_command(c, "CREATE_MKEY", MLX5_CREATE_MKEY,
                                MLX5_IN_BYTES + 16 * (size_t)entries, HEADER_BYTES);
    uint8_t *mkc = in + MLX5_MKC_AT;

    mlx5_set(in, MKEY_OCTWORDS, entries);
    mlx5_set(mkc, MKC_MODE, KEY_IN_PIECES);
    mlx5_set(mkc, MKC_LOCAL_READ, 1);
    mlx5_set(mkc, MKC_LOCAL_WRITE, (plan->access & SWL_NIC_LOCAL_WRITE) != 0);
    mlx5_set(mkc, MKC_REMOTE_WRITE, (plan->access & SWL_NIC_REMOTE_WRITE) != 0);
    mlx5_set(mkc, MKC_REMOTE_READ, (plan->access & SWL_NIC_REMOTE_READ) != 0);
    mlx5_set(mkc, MKC_ATOMIC, (plan->access & SWL_NIC_REMOTE_ADD) != 0);
    mlx5_set(mkc, MKC_QPN, KEY_OF_NO_QP);
    mlx5_set(mkc, MKC_VARIANT, KEY_VARIANT);
    mlx5_set(mkc, MKC_PD, plan->pd);
    mlx5_set(mkc, MKC_START, plan->start);
    mlx5_set(mkc, MKC_LENGTH, plan->bytes);
    mlx5_set(mkc, MKC_OCTWORDS, entries);
    for (uint32_t i = 0; i < plan->npieces; i++) {
        uint8_t *klm = in + MLX5_KLM_AT + 16 * (size_t)i;

        mlx5_set(klm, KLM_BYTES, plan->pieces[i].bytes);
        mlx5_set(klm, KLM_KEY, plan->pieces[i].key);
        mlx5_set(klm, KLM_ADDRESS, plan->pieces[i].address);
    }
}

uint32_t swl_mlx5_key(const struct mlx5_command *c)
{
    return swl_mlx5_number(c) << 8 | KEY_VARIANT;
}

static void allow_remote(uint8_t *qpc)
{
    mlx5_set(qpc, QPC_REMOTE_READ, 1);
    mlx5_set(qpc, QPC_REMOTE_WRITE, 1);
    mlx5_set(qpc, QPC_REMOTE_ATOMIC, 1);
    mlx5_set(qpc, QPC_ATOMIC_MODE, ATOMICS_8B);
}

void swl_mlx5_init_qp(struct mlx5_command *c, uint32_t qpn, uint32_t port, uint32_t pkey_index)
{
    uint8_t *qpc = change_queue_pair(c, "RST2INIT_QP", MLX5_RST2INIT_QP, qpn);
    uint8_t *ads = qpc + MLX5_ADS_AT;

    mlx5_set(qpc, QPC_MIGRATION, QPC_MIGRATED);
    allow_remote(qpc);
    mlx5_set(ads, ADS_PKEY_INDEX, pkey_index);
    mlx5_set(ads, ADS_PORT, port);
}

/* The address path of INIT2RTR. */
static void set_path(uint8_t *ads, const struct rc_path *path)
{
    mlx5_set(ads, ADS_PORT, path->port);
    mlx5_set(ads, ADS_ACK_TIMEOUT, path->timeout);
    if (path->ethernet || path->global) {
        mlx5_set(ads, ADS_SOURCE_INDEX, path->gid_index);
        mlx5_set(ads, ADS_HOP_LIMIT, path->hop_limit);
        mlx5_set(ads, ADS_TRAFFIC_CLASS, path->tclass);
        memcpy(ads + (ADS_RGID >> 16), path->rgid, sizeof(path->rgid));
    }
    if (path->ethernet) {
        mlx5_set(ads, ADS_RMAC_HIGH, (uint32_t)path->rmac[0] << 8 | path->rmac[1]);
        mlx5_set(ads, ADS_RMAC_LOW,
                 (uint32_t)path->rmac[2] << 24 | (uint32_t)path->rmac[3] << 16 |
                     (uint32_t)path->rmac[4] << 8 | path->rmac[5]);
        mlx5_set(ads, ADS_UDP_SPORT, path->udp_sport);
        /* the device ignores the traffic class of such a queue pair unless these are set */
        mlx5_set(ads, ADS_DSCP, path->tclass >> 2);
        mlx5_set(ads, ADS_ETH_PRIO, path->sl);
    } else {
        mlx5_set(ads, ADS_GRH, path->global);
        mlx5_set(ads, ADS_RLID, path->rlid);
        mlx5_set(ads, ADS_SL, path->sl);
    }
}

void swl_mlx5_rtr_qp(struct mlx5_command *c, uint32_t qpn, const struct rc_path *path)
{
    uint8_t *qpc = change_queue_pair(c, "INIT2RTR_QP", MLX5_INIT2RTR_QP, qpn);

    mlx5_set(c->in, CMD_OPTIONAL, OPTIONAL_REMOTE);
    mlx5_set(c->in, CMD_ECE, path->ece);
    mlx5_set(qpc, QPC_MIGRATION, QPC_MIGRATED);
    mlx5_set(qpc, QPC_MTU, path->mtu);
    mlx5_set(qpc, QPC_LOG_MSG_MAX, LOG_MSG_MAX);
    mlx5_set(qpc, QPC_REMOTE_QPN, path->remote_qpn);
    mlx5_set(qpc, QPC_LOG_RRA_MAX, path->log_rra);
    mlx5_set(qpc, QPC_MIN_RNR_NAK, MIN_RNR_NAK);
    mlx5_set(qpc, QPC_NEXT_RECV_PSN, path->recv_psn);
    allow_remote(qpc);
    set_path(qpc + MLX5_ADS_AT, path);
}

void swl_mlx5_rts_qp(struct mlx5_command *c, uint32_t qpn, const struct rc_path *path)
{
    uint8_t *qpc = change_queue_pair(c, "RTR2RTS_QP", MLX5_RTR2RTS_QP, qpn);

    mlx5_set(c->in, CMD_ECE, path->ece);
    mlx5_set(qpc, QPC_MIGRATION, QPC_MIGRATED);
    mlx5_set(qpc, QPC_LOG_ACK_REQ_FREQ, 0); /* every packet that ends a message asks */
    mlx5_set(qpc, QPC_LOG_SRA_MAX, path->log_sra);
    mlx5_set(qpc, QPC_RETRY_COUNT, path->retries);
    mlx5_set(qpc, QPC_RNR_RETRY, RNR_FOR_EVER);
    mlx5_set(qpc, QPC_NEXT_SEND_PSN, path->send_psn);
    mlx5_set(qpc + MLX5_ADS_AT, ADS_ACK_TIMEOUT, path->timeout);
}

static void short_command(struct mlx5_command *c, const char *name, enum mlx5_opcode opcode,
                          uint32_t qpn, size_t out_bytes)
{
    mlx5_set(begin_command(c, name, opcode, HEADER_BYTES, out_bytes), CMD_NUMBER, qpn);
}

void swl_mlx5_error_qp(struct mlx5_command *c, uint32_t qpn)
{
    short_command(c, "2ERR_QP", MLX5_2ERR_QP, qpn, HEADER_BYTES);
}

void swl_mlx5_reset_qp(struct mlx5_command *c, uint32_t qpn)
{
    short_command(c, "2RST_QP", MLX5_2RST_QP, qpn, HEADER_BYTES);
}

void swl_mlx5_query_qp(struct mlx5_command *c, uint32_t qpn)
{
    short_command(c, "QUERY_QP", MLX5_QUERY_QP, qpn, MLX5_IN_BYTES);
}

void swl_mlx5_qp_read(const struct mlx5_command *c, uint32_t *state_p, uint32_t *index_p)
{
    *state_p = mlx5_get(c->out + MLX5_QPC_AT, QPC_STATE);
    *index_p = mlx5_get(c->out + MLX5_QPC_AT, QPC_HW_SQ_COUNTER);
}

uint32_t swl_mlx5_number(const struct mlx5_command *c)
{
    return mlx5_get(c->out, CMD_NUMBER);
}

uint32_t swl_mlx5_ece(const struct mlx5_command *c)
{
    return mlx5_get(c->out, CMD_OUT_ECE);
}

static const char *status_text(uint32_t status)
{
    static const struct {
        uint32_t status;
        const char *text;
    } texts[] = {
        {0x00, "accepted"},
        {0x01, "internal error"},
        {0x02, "unknown operation"},
        {0x03, "bad parameter"},
        {0x04, "device is not in the right state"},
        {0x05, "bad resource"},
        {0x06, "resource is busy"},
        {0x08, "limits exceeded"},
        {0x09, "resource is not in the right state"},
        {0x0a, "index out of range"},
        {0x0f, "no resources left"},
        {0x10, "queue pair is not in the right state"},
        {0x40, "bad size"},
        {0x50, "bad length of the input"},
        {0x51, "bad length of the output"},
    };

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (texts[i].status == status)
            return texts[i].text;
    return "unknown status";
}

bool swl_mlx5_check(const struct mlx5_command *c, int error, char *text, size_t text_bytes)
{
    const uint32_t status = mlx5_get(c->out, CMD_OUT_STATUS);

    text[0] = '\0';
    if (error == 0 && status == 0)
        return true;
    if (status == 0) /* it never reached the firmware */
        snprintf(text, text_bytes, "%s: %s", c->name, strerror(error));
    else
        snprintf(text, text_bytes, "%s: firmware status 0x%02x (%s), syndrome 0x%08x", c->name,
                 status, status_text(status), mlx5_get(c->out, CMD_OUT_SYNDROME));
    return false;
}
