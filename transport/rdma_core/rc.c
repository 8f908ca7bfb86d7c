/* rc.c: see rc.h. Layer: transport/rdma_core; no state. */
#include "transport/rdma_core/rc.h"

#include "src/runtime/runtime.h"

#include <string.h>

#define RNR_TIMER 12 /* 0.64 ms */

/* log2 of a number of reads, rounded down; a device has at least one. */
static uint8_t log_of(int reads)
{
    uint8_t log = 0;

    while (reads > 1) {
        reads >>= 1;
        log++;
    }
    return log;
}

struct rc_end swl_rc_end(const struct swl_port *port, const struct verbs_device_attr *attr,
                         uint32_t qpn, uint32_t psn)
{
    struct rc_end e = {.qpn = qpn,
                       .psn = psn,
                       .lid = port->lid,
                       .pkey = port->pkey,
                       .mtu = port->mtu,
                       .ethernet = port->ethernet,
                       .grh_required = port->grh_required,
                       .log_reads_out = log_of(attr->max_qp_init_rd_atom),
                       .log_reads_in = log_of(attr->max_qp_rd_atom)};

    memcpy(e.gid, port->gid, sizeof(e.gid));
    return e;
}

uint32_t swl_rc_psn(uint32_t qpn)
{
    const uint32_t mixed = (uint32_t)(swl_gpu_now_ns() * 0x9e3779b97f4a7c15ull >> 40);

    return (mixed ^ qpn) & 0xffffffu;
}

int swl_rc_init(const struct swl_verbs *verbs, struct verbs_qp *qp, const struct swl_port *port,
                bool adds)
{
    struct verbs_qp_attr a;

    memset(&a, 0, sizeof(a));
    a.qp_state = VERBS_STATE_INIT;
    a.port_num = port->number;
    a.pkey_index = port->pkey_index;
    a.qp_access_flags = VERBS_ACCESS_REMOTE_WRITE | VERBS_ACCESS_REMOTE_READ;
    if (adds)
        a.qp_access_flags |= VERBS_ACCESS_REMOTE_ATOMIC;
    return verbs->ibv_modify_qp(qp, &a,
                                VERBS_QP_STATE | VERBS_QP_PKEY | VERBS_QP_PORT | VERBS_QP_ACCESS);
}

int swl_rc_receive(const struct swl_verbs *verbs, struct verbs_qp *qp, const struct rc_path *path)
{
    struct verbs_qp_attr a;

    memset(&a, 0, sizeof(a));
    a.qp_state = VERBS_STATE_RTR;
    a.path_mtu = path->mtu;
    a.dest_qp_num = path->remote_qpn;
    a.rq_psn = path->recv_psn;
    a.max_dest_rd_atomic = (uint8_t)(1u << path->log_rra);
    a.min_rnr_timer = RNR_TIMER;
    a.ah_attr.port_num = path->port;
    a.ah_attr.sl = path->sl;
    a.ah_attr.dlid = path->rlid;
    if (path->ethernet || path->global) {
        a.ah_attr.is_global = 1;
        memcpy(a.ah_attr.dgid, path->rgid, sizeof(path->rgid));
        a.ah_attr.sgid_index = path->gid_index;
        a.ah_attr.hop_limit = path->hop_limit;
        a.ah_attr.traffic_class = path->tclass;
    }
    return verbs->ibv_modify_qp(qp, &a,
                                VERBS_QP_STATE | VERBS_QP_AV | VERBS_QP_MTU | VERBS_QP_PEER |
                                    VERBS_QP_RQ_PSN | VERBS_QP_READS_IN | VERBS_QP_RNR_TIMER);
}

int swl_rc_send(const struct swl_verbs *verbs, struct verbs_qp *qp, const struct rc_path *path)
{
    struct verbs_qp_attr a;

    memset(&a, 0, sizeof(a));
    a.qp_state = VERBS_STATE_RTS;
    a.sq_psn = path->send_psn;
    a.timeout = path->timeout;
    a.retry_cnt = path->retries;
    a.rnr_retry = 7; /* for ever; receives, where there are any, do not run out */
    a.max_rd_atomic = (uint8_t)(1u << path->log_sra);
    return verbs->ibv_modify_qp(qp, &a,
                                VERBS_QP_STATE | VERBS_QP_SQ_PSN | VERBS_QP_TIMEOUT |
                                    VERBS_QP_RETRY | VERBS_QP_RNR_RETRY | VERBS_QP_READS_OUT);
}

int swl_rc_leave(const struct swl_verbs *verbs, struct verbs_qp *qp, uint32_t state)
{
    struct verbs_qp_attr a;

    memset(&a, 0, sizeof(a));
    a.qp_state = state;
    return verbs->ibv_modify_qp(qp, &a, VERBS_QP_STATE);
}
