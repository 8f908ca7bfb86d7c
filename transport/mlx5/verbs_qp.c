/* verbs_qp.c: queue pairs by public calls, from creation to reconnection; see verbs.h.
 *
 * Layer: transport/mlx5, behind nic.h. A reset makes both objects anew: the device numbers
 * completions from the creation of their queue, and entry i has to find its own at i modulo its
 * length. */
#include "transport/mlx5/verbs.h"

#include "src/base/error.h"
#include "transport/rdma_core/rc.h"
#include "transport/wqe.h"

#include <errno.h>
#include <string.h>

#define COMPLETIONS      1   /* asked for; the library makes it two */
#define COMPLETIONS_MOST 16u /* a poster looks at each */

/* `error` of a call, 0 = none; the sentence's subject is the device. */
static ncclResult_t verbs_step(const struct mlx5_nic *nic, int error, const char *what)
{
    return error == 0 ? ncclSuccess
                      : swl_fail(ncclSystemError, "rank %u nic: %s %s: %s", nic->device.rank,
                                 nic->device.port.name, what, swl_mlx5_error_text(error));
}

/* ---- the two objects ---- */

static ncclResult_t make_cq(struct mlx5_nic *nic, struct mlx5_qp *q)
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
    return q->cq
               ? ncclSuccess
               : verbs_step(nic, errno ? errno : EIO, "gives no completion queue without overrun");
}

static ncclResult_t make_qp(struct mlx5_nic *nic, struct mlx5_qp *q)
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
    return q->qp ? ncclSuccess : verbs_step(nic, errno ? errno : EIO, "gives no queue pair");
}

static bool power_of_two(uint32_t n, uint32_t least, uint32_t most)
{
    return n >= least && n <= most && (n & (n - 1)) == 0;
}

/* Where the library has put everything. */
static ncclResult_t locate(struct mlx5_nic *nic, struct mlx5_qp *q)
{
    struct mlx5_cq_out cq = {0};
    struct mlx5_qp_out qp = {0};
    struct mlx5_obj obj;

    memset(&obj, 0, sizeof(obj));
    obj.cq = (struct mlx5_obj_pair){q->cq, &cq};
    obj.qp = (struct mlx5_obj_pair){q->qp, &qp};
    SWL_TRY(verbs_step(nic, nic->device.verbs.mlx5dv_init_obj(&obj, MLX5_OBJ_CQ | MLX5_OBJ_QP),
                       "does not tell where its queues are"));
    if (qp.sq.stride != SWL_WQE_BYTES || !power_of_two(qp.sq.wqe_cnt, 2, SWL_WQE_DEPTH_MAX))
        return swl_fail(
            ncclSystemError, "rank %u nic: %s made a queue of %u entries of %u bytes out of %u",
            nic->device.rank, nic->device.port.name, qp.sq.wqe_cnt, qp.sq.stride, nic->depth);
    if (cq.cqe_size != SWL_CQE_BYTES || !power_of_two(cq.cqe_cnt, 1, COMPLETIONS_MOST))
        return swl_fail(ncclSystemError,
                        "rank %u nic: %s made a completion queue of %u entries of %u bytes",
                        nic->device.rank, nic->device.port.name, cq.cqe_cnt, cq.cqe_size);
    if (!swl_mlx5_verbs_owns(nic, qp.sq.buf, (size_t)SWL_WQE_BYTES * qp.sq.wqe_cnt) ||
        !swl_mlx5_verbs_owns(nic, cq.buf, (size_t)SWL_CQE_BYTES * cq.cqe_cnt) ||
        !swl_mlx5_verbs_owns(nic, qp.dbrec, 2 * sizeof(*qp.dbrec)))
        return swl_fail(ncclSystemError,
                        "rank %u nic: %s made a queue in memory that the GPU does not reach",
                        nic->device.rank, nic->device.port.name);
    q->qpn = q->qp->qp_num;
    q->sq = qp.sq.buf;
    q->record = qp.dbrec;
    q->depth_log2 = (uint32_t)__builtin_ctz(qp.sq.wqe_cnt);
    q->completions = cq.buf;
    q->completions_mask = cq.cqe_cnt - 1;
    return swl_mlx5_verbs_doorbell(nic, qp.bf.reg, &q->doorbell);
}

/* Both objects, in init. */
ncclResult_t swl_mlx5_verbs_open_qp(struct mlx5_nic *nic, struct mlx5_qp *q, uint32_t i)
{
    (void)i;
    SWL_TRY(make_cq(nic, q));
    SWL_TRY(make_qp(nic, q));
    SWL_TRY(locate(nic, q));
    SWL_TRY(verbs_step(nic, swl_rc_init(&nic->device.verbs, q->qp, &nic->device.port, true),
                       "does not initialise a queue pair"));
    q->psn = swl_rc_psn(q->qpn);
    q->state = SWL_NIC_QP_INIT;
    q->syndrome = 0;
    q->bad_index = 0;
    return ncclSuccess;
}

ncclResult_t swl_mlx5_verbs_close_qp(struct mlx5_nic *nic, struct mlx5_qp *q)
{
    ncclResult_t rc = ncclSuccess, next = ncclSuccess;

    if (q->qp)
        rc = verbs_step(nic, nic->device.verbs.ibv_destroy_qp(q->qp), "keeps a queue pair");
    if (q->cq)
        next = verbs_step(nic, nic->device.verbs.ibv_destroy_cq(q->cq), "keeps a completion queue");
    q->qp = NULL;
    q->cq = NULL;
    return rc != ncclSuccess ? rc : next;
}

/* ---- connection ---- */

struct rc_end swl_mlx5_verbs_end(const struct mlx5_nic *nic, const struct mlx5_qp *q)
{
    return swl_rc_end(&nic->device.port, &nic->attr, q->qpn, q->psn);
}

static ncclResult_t bring_up(const struct mlx5_nic *nic, struct mlx5_qp *q,
                             const struct rc_path *path)
{
    SWL_TRY(verbs_step(nic, swl_rc_receive(&nic->device.verbs, q->qp, path),
                       "does not connect a queue pair"));
    SWL_TRY(verbs_step(nic, swl_rc_send(&nic->device.verbs, q->qp, path),
                       "does not let a queue pair send"));
    q->state = SWL_NIC_QP_READY;
    return ncclSuccess;
}

ncclResult_t swl_mlx5_verbs_connect(struct mlx5_nic *nic, struct mlx5_qp *q, struct rc_path *path)
{
    const ncclResult_t rc = bring_up(nic, q, path);

    if (rc != ncclSuccess)
        (void)swl_mlx5_verbs_restart(nic, q); /* it must not take packets that nobody expects */
    return rc;
}

void swl_mlx5_verbs_view(const struct mlx5_nic *nic, const struct mlx5_qp *q, struct swl_qp *view_p)
{
    (void)nic;
    view_p->sq = q->sq;
    view_p->dbr = q->record;
    view_p->doorbell = q->doorbell;
    view_p->cq = (const uint32_t *)(const void *)q->completions;
    view_p->cq_mask = q->completions_mask;
    view_p->depth_log2 = q->depth_log2;
    view_p->scope = SWL_QP_SCOPE_SYS; /* entries lie in host memory */
}

/* ---- failures ---- */

/* The completion of the failure; where later ones have overwritten it, that of a flushed entry. */
static void read_failure(const struct mlx5_nic *nic, struct mlx5_qp *q)
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

ncclResult_t swl_mlx5_verbs_look(struct mlx5_nic *nic, struct mlx5_qp *q, bool *sends_p)
{
    struct verbs_qp_attr attr;
    struct verbs_qp_init_attr init;

    memset(&attr, 0, sizeof(attr));
    SWL_TRY(verbs_step(nic, nic->device.verbs.ibv_query_qp(q->qp, &attr, VERBS_QP_STATE, &init),
                       "does not tell the state of a queue pair"));
    *sends_p = attr.qp_state == VERBS_STATE_RTS;
    if (!*sends_p)
        read_failure(nic, q);
    return ncclSuccess;
}

ncclResult_t swl_mlx5_verbs_stop(struct mlx5_nic *nic, struct mlx5_qp *q)
{
    return verbs_step(nic, swl_rc_leave(&nic->device.verbs, q->qp, VERBS_STATE_ERROR),
                      "does not stop a queue pair");
}

ncclResult_t swl_mlx5_verbs_restart(struct mlx5_nic *nic, struct mlx5_qp *q)
{
    ncclResult_t rc = swl_mlx5_verbs_close_qp(nic, q);

    q->state = SWL_NIC_QP_ERROR;
    if (rc == ncclSuccess)
        rc = swl_mlx5_verbs_open_qp(nic, q, 0);
    if (rc != ncclSuccess)
        (void)swl_mlx5_verbs_close_qp(nic, q);
    q->lost = rc != ncclSuccess;
    return rc;
}
