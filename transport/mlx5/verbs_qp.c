/* verbs_qp.c: queue pairs of the mlx5 NIC over verbs, from creation to reconnection; see verbs.h.
 *
 * Layer: transport/mlx5, behind nic.h. A reset makes both objects anew: the device numbers completions
 * from the creation of their queue, and entry i has to find its own at i modulo its length. */
#include "transport/mlx5/verbs.h"

#include "src/base/error.h"
#include "transport/verbs/rc.h"
#include "transport/wqe.h"

#include <errno.h>
#include <string.h>

#define COMPLETIONS      1   /* asked for; the library makes it two */
#define COMPLETIONS_MOST 16u /* a poster looks at each */

/* `error` of a call, 0 = none; the sentence's subject is the device. */
static ncclResult_t step(const struct mlv_nic *nic, int error, const char *what)
{
    return error == 0 ? ncclSuccess
                      : swl_fail(ncclSystemError, "rank %u nic: %s %s: %s", nic->device.rank,
                                 nic->device.port.name, what, swl_mlx5_error_text(error));
}

/* ---- the two objects ---- */

static ncclResult_t make_cq(struct mlv_nic *nic, struct mlv_qp *q)
{
    struct verbs_cq_init_attr attr;
    struct mlx5_cq_init_attr more;

    memset(&attr, 0, sizeof(attr));
    memset(&more, 0, sizeof(more));
    attr.cqe = COMPLETIONS;
    attr.comp_mask = VERBS_CQ_FLAGS;
    attr.flags = VERBS_CQ_IGNORE_OVERRUN;
    more.comp_mask = MLX5_CQ_CQE_SIZE;
    more.cqe_size = SWL_CQE_BYTES;
    errno = 0;
    q->cq = nic->device.verbs.mlx5dv_create_cq(nic->device.context, &attr, &more);
    return q->cq ? ncclSuccess
                 : step(nic, errno ? errno : EIO, "gives no completion queue without overrun");
}

static ncclResult_t make_qp(struct mlv_nic *nic, struct mlv_qp *q)
{
    struct verbs_qp_init_attr attr;

    memset(&attr, 0, sizeof(attr));
    attr.send_cq = attr.recv_cq = q->cq;
    attr.qp_type = VERBS_RC;
    attr.cap.max_send_wr = nic->depth;
    attr.cap.max_send_sge = 1;
    /* sq_sig_all stays 0: with it the device may put old values of adds into completions instead of
     * the sink. Every entry asks for its completion itself. */
    errno = 0;
    q->qp = nic->device.verbs.ibv_create_qp(nic->device.pd, &attr);
    return q->qp ? ncclSuccess : step(nic, errno ? errno : EIO, "gives no queue pair");
}

static bool power_of_two(uint32_t n, uint32_t least, uint32_t most)
{
    return n >= least && n <= most && (n & (n - 1)) == 0;
}

/* Where the library has put everything. */
static ncclResult_t locate(struct mlv_nic *nic, struct mlv_qp *q)
{
    struct mlx5_cq_out cq = {0};
    struct mlx5_qp_out qp = {0};
    struct mlx5_obj obj;

    memset(&obj, 0, sizeof(obj));
    obj.cq = (struct mlx5_obj_pair){q->cq, &cq};
    obj.qp = (struct mlx5_obj_pair){q->qp, &qp};
    SWL_TRY(step(nic, nic->device.verbs.mlx5dv_init_obj(&obj, MLX5_OBJ_CQ | MLX5_OBJ_QP),
                 "does not tell where its queues are"));
    if (qp.sq.stride != SWL_WQE_BYTES || !power_of_two(qp.sq.wqe_cnt, 2, SWL_WQE_DEPTH_MAX))
        return swl_fail(
            ncclSystemError, "rank %u nic: %s made a queue of %u entries of %u bytes out of %u",
            nic->device.rank, nic->device.port.name, qp.sq.wqe_cnt, qp.sq.stride, nic->depth);
    if (cq.cqe_size != SWL_CQE_BYTES || !power_of_two(cq.cqe_cnt, 1, COMPLETIONS_MOST))
        return swl_fail(ncclSystemError,
                        "rank %u nic: %s made a completion queue of %u entries of %u bytes",
                        nic->device.rank, nic->device.port.name, cq.cqe_cnt, cq.cqe_size);
    if (!swl_mlv_owns(nic, qp.sq.buf, (size_t)SWL_WQE_BYTES * qp.sq.wqe_cnt) ||
        !swl_mlv_owns(nic, cq.buf, (size_t)SWL_CQE_BYTES * cq.cqe_cnt) ||
        !swl_mlv_owns(nic, qp.dbrec, 2 * sizeof(*qp.dbrec)))
        return swl_fail(ncclSystemError,
                        "rank %u nic: %s made a queue in memory that the GPU does not reach",
                        nic->device.rank, nic->device.port.name);
    q->qpn = q->qp->qp_num;
    q->sq = qp.sq.buf;
    q->record = qp.dbrec;
    q->depth_log2 = (uint32_t)__builtin_ctz(qp.sq.wqe_cnt);
    q->completions = cq.buf;
    q->completions_mask = cq.cqe_cnt - 1;
    return swl_mlv_doorbell(nic, qp.bf.reg, &q->doorbell);
}

/* Both objects, in init. On failure swl_mlv_close_qp follows. */
static ncclResult_t open_qp(struct mlv_nic *nic, struct mlv_qp *q)
{
    SWL_TRY(make_cq(nic, q));
    SWL_TRY(make_qp(nic, q));
    SWL_TRY(locate(nic, q));
    SWL_TRY(step(nic, swl_rc_init(&nic->device.verbs, q->qp, &nic->device.port, true),
                 "does not initialise a queue pair"));
    q->psn = swl_rc_psn(q->qpn);
    q->state = SWL_NIC_QP_INIT;
    q->syndrome = 0;
    q->bad_index = 0;
    return ncclSuccess;
}

ncclResult_t swl_mlv_close_qp(struct mlv_nic *nic, struct mlv_qp *q)
{
    ncclResult_t rc = ncclSuccess, next = ncclSuccess;

    if (q->qp)
        rc = step(nic, nic->device.verbs.ibv_destroy_qp(q->qp), "keeps a queue pair");
    if (q->cq)
        next = step(nic, nic->device.verbs.ibv_destroy_cq(q->cq), "keeps a completion queue");
    q->qp = NULL;
    q->cq = NULL;
    return rc != ncclSuccess ? rc : next;
}

ncclResult_t swl_mlv_create_qp(struct swl_nic *base, uint32_t *qp_p)
{
    struct mlv_nic *nic = mlv_of(base);
    struct mlv_qp *q = &nic->qps[nic->nqps];
    ncclResult_t rc;

    if (nic->nqps == nic->max_qps)
        return swl_fail(ncclInvalidUsage, "rank %u nic: more than %u queue pairs", nic->device.rank,
                        nic->max_qps);
    memset(q, 0, sizeof(*q));
    rc = open_qp(nic, q);
    if (rc != ncclSuccess) {
        (void)swl_mlv_close_qp(nic, q);
        return rc;
    }
    *qp_p = nic->nqps++;
    return ncclSuccess;
}

/* ---- connection ---- */

static ncclResult_t lost(const struct mlv_nic *nic, uint32_t qp)
{
    return swl_fail(ncclInvalidUsage, "rank %u nic: queue pair %u was lost by a failed reset",
                    nic->device.rank, qp);
}

ncclResult_t swl_mlv_address(struct swl_nic *base, uint32_t qp, struct swl_nic_address *address_p)
{
    const struct mlv_nic *nic = mlv_of(base);
    const struct mlv_qp *q = &nic->qps[qp];
    struct mlx5_address a = {.id = MLX5_ADDRESS_ID};

    if (q->qp == NULL)
        return lost(nic, qp);
    a.end = swl_rc_end(&nic->device.port, &nic->attr, q->qpn, q->psn);
    memset(address_p, 0, sizeof(*address_p));
    memcpy(address_p->bytes, &a, sizeof(a));
    return ncclSuccess;
}

static ncclResult_t bring_up(const struct mlv_nic *nic, struct mlv_qp *q,
                             const struct mlx5_path *path)
{
    SWL_TRY(step(nic, swl_rc_receive(&nic->device.verbs, q->qp, path),
                 "does not connect a queue pair"));
    SWL_TRY(
        step(nic, swl_rc_send(&nic->device.verbs, q->qp, path), "does not let a queue pair send"));
    q->state = SWL_NIC_QP_READY;
    return ncclSuccess;
}

ncclResult_t swl_mlv_connect(struct swl_nic *base, uint32_t qp, const struct swl_nic_address *peer)
{
    struct mlv_nic *nic = mlv_of(base);
    struct mlv_qp *q = &nic->qps[qp];
    const char *why = "the peer's NIC is of another kind or version";
    struct mlx5_address a;
    struct mlx5_path path;
    struct mlx5_end mine;
    ncclResult_t rc;

    memcpy(&a, peer->bytes, sizeof(a));
    if (q->state != SWL_NIC_QP_INIT)
        return swl_fail(ncclInvalidUsage, "rank %u nic: queue pair 0x%06x is %s", nic->device.rank,
                        q->qpn,
                        q->state == SWL_NIC_QP_READY ? "already connected" : "in error: reset it");
    mine = swl_rc_end(&nic->device.port, &nic->attr, q->qpn, q->psn);
    if (a.id != MLX5_ADDRESS_ID || !swl_mlx5_path(&path, &mine, &a.end, &nic->device.tuning, &why))
        return swl_fail(ncclInvalidUsage, "rank %u nic: queue pair 0x%06x of %s port %u: %s",
                        nic->device.rank, q->qpn, nic->device.port.name, nic->device.port.number,
                        why);
    rc = bring_up(nic, q, &path);
    if (rc != ncclSuccess)
        (void)swl_mlv_reset(base, qp); /* it must not take packets that nobody expects */
    return rc;
}

ncclResult_t swl_mlv_view(struct swl_nic *base, uint32_t qp, struct swl_qp *view_p)
{
    const struct mlv_nic *nic = mlv_of(base);
    const struct mlv_qp *q = &nic->qps[qp];

    if (q->qp == NULL)
        return lost(nic, qp);
    memset(view_p, 0, sizeof(*view_p));
    view_p->sq = q->sq;
    view_p->dbr = q->record;
    view_p->doorbell = q->doorbell;
    view_p->cq = (const uint32_t *)(const void *)q->completions;
    view_p->cq_mask = q->completions_mask;
    view_p->sink = nic->sinks.address + 8ull * qp;
    view_p->sink_lkey = nic->sinks.lkey;
    view_p->qpn = q->qpn;
    view_p->depth_log2 = q->depth_log2;
    view_p->scope = SWL_QP_SCOPE_SYS; /* entries lie in host memory */
    view_p->reserved = view_p->ready = view_p->rung = view_p->done = nic->first_index;
    return ncclSuccess;
}

/* ---- failures ---- */

/* The completion of the failure; where later ones have overwritten it, that of a flushed entry. */
static void read_failure(const struct mlv_nic *nic, struct mlv_qp *q)
{
    for (uint32_t i = 0; i <= q->completions_mask; i++) {
        const uint32_t *words =
            (const uint32_t *)(void *)(q->completions + (size_t)i * SWL_CQE_BYTES);
        /* acquire: pairs with the device's write of the completion */
        const uint32_t last = __atomic_load_n(&words[SWL_CQE_LAST_WORD], __ATOMIC_ACQUIRE);
        const uint32_t syndrome = swl_cqe_syndrome(words[SWL_CQE_SYNDROME_WORD]);

        if (swl_cqe_opcode(last) != SWL_CQE_ERROR ||
            (q->syndrome != 0 && syndrome == SWL_SYNDROME_FLUSHED))
            continue;
        q->syndrome = syndrome;
        q->bad_index = swl_index_after(nic->first_index, swl_cqe_index(last));
    }
}

ncclResult_t swl_mlv_query(struct swl_nic *base, uint32_t qp, struct swl_nic_qp_status *status_p)
{
    struct mlv_nic *nic = mlv_of(base);
    struct mlv_qp *q = &nic->qps[qp];
    struct verbs_qp_attr attr;
    struct verbs_qp_init_attr init;

    if (q->state == SWL_NIC_QP_READY) {
        memset(&attr, 0, sizeof(attr));
        SWL_TRY(step(nic, nic->device.verbs.ibv_query_qp(q->qp, &attr, VERBS_QP_STATE, &init),
                     "does not tell the state of a queue pair"));
        if (attr.qp_state != VERBS_STATE_RTS) {
            read_failure(nic, q);
            q->state = SWL_NIC_QP_ERROR;
        }
    }
    status_p->state = q->state;
    status_p->qpn = q->qpn;
    status_p->syndrome = q->syndrome;
    status_p->index = q->bad_index;
    return ncclSuccess;
}

ncclResult_t swl_mlv_to_error(struct swl_nic *base, uint32_t qp)
{
    struct mlv_nic *nic = mlv_of(base);
    struct mlv_qp *q = &nic->qps[qp];

    if (q->state == SWL_NIC_QP_ERROR)
        return ncclSuccess;
    SWL_TRY(step(nic, swl_rc_leave(&nic->device.verbs, q->qp, VERBS_STATE_ERROR),
                 "does not stop a queue pair"));
    q->state = SWL_NIC_QP_ERROR;
    q->syndrome = SWL_SYNDROME_FLUSHED;
    return ncclSuccess;
}

ncclResult_t swl_mlv_reset(struct swl_nic *base, uint32_t qp)
{
    struct mlv_nic *nic = mlv_of(base);
    struct mlv_qp *q = &nic->qps[qp];
    ncclResult_t rc = swl_mlv_close_qp(nic, q);

    q->state = SWL_NIC_QP_ERROR;
    if (rc == ncclSuccess)
        rc = open_qp(nic, q);
    if (rc != ncclSuccess)
        (void)swl_mlv_close_qp(nic, q);
    return rc;
}
