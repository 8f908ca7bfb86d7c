/* devx_qp.c: queue pairs by firmware commands, from creation to reconnection.
 *
 * Layer: transport/mlx5, behind nic.h. Our states are those of nic.h; the device's are
 *
 *     create: reset -> init      connect: init -> ready to receive -> ready to send
 *     to_error: any -> error     reset: any -> reset -> init
 *
 * A step that fails leaves a state that reset and destroy can leave again. What a peer of an
 * earlier connection may still send is refused by its packet number: every reset, also that of a
 * connection that failed half-way, moves ours by a quarter of the circle, and the address has the
 * new one. */
#include "transport/mlx5/devx.h"

#include "src/base/error.h"
#include "src/runtime/runtime.h"
#include "transport/wqe.h"

#include <errno.h>
#include <string.h>

#define PSN_MASK    0xffffffu
#define PSN_QUARTER 0x400000u

/* Run a command on the object that is to change; the sentence names the queue pair. */
static ncclResult_t modify(struct mlx5_nic *nic, struct mlx5_qp *q, struct mlx5_command *c)
{
    const int error = nic->device.verbs.mlx5dv_devx_obj_modify(q->qp_object, c->in, c->in_bytes,
                                                               c->out, c->out_bytes);
    char text[160];

    if (swl_mlx5_check(c, error, text, sizeof(text)))
        return ncclSuccess;
    return swl_fail(ncclSystemError, "rank %u nic: queue pair 0x%06x of %s: %s", nic->device.rank,
                    q->qpn, nic->device.port.name, text);
}

static ncclResult_t create_queue_pair(struct mlx5_nic *nic, struct mlx5_command *c,
                                      struct mlx5dv_devx_obj **object_p, uint32_t *number_p)
{
    char text[160];
    struct mlx5dv_devx_obj *object;

    errno = 0;
    object = nic->device.verbs.mlx5dv_devx_obj_create(nic->device.context, c->in, c->in_bytes,
                                                      c->out, c->out_bytes);
    if (object == NULL) {
        (void)swl_mlx5_check(c, errno ? errno : EIO, text, sizeof(text));
        return swl_fail(ncclSystemError, "rank %u nic: %s: %s", nic->device.rank,
                        nic->device.port.name, text);
    }
    *object_p = object;
    *number_p = swl_mlx5_number(c);
    return ncclSuccess;
}

/* What device and poster expect to find: no completion yet, nothing posted. The device counts from
 * zero after a reset, and so does the low half of first_index. */
static ncclResult_t start_memory(struct mlx5_nic *nic, const struct mlx5_qp *q)
{
    const uint32_t record[2] = {0, swl_dbr_value(nic->first_index)};
    const uint32_t nothing[2] = {0, 0};
    uint8_t none[SWL_CQE_BYTES];

    memset(none, 0xff, sizeof(none));
    SWL_TRY(swl_devx_put(nic, q->at.cq, none, sizeof(none)));
    SWL_TRY(swl_devx_put(nic, q->at.cq_record, nothing, sizeof(nothing)));
    return swl_devx_put(nic, q->at.sq_record, record, sizeof(record));
}

static ncclResult_t create_cq(struct mlx5_nic *nic, struct mlx5_qp *q)
{
    const struct mlx5_cq_plan plan = {
        .place = {nic->rings.umem->umem_id, q->at.cq, q->at.cq_record},
        .log_size = nic->depth_log2,
        .uar_page = nic->uar->page_id,
        .event_queue = nic->event_queue,
    };
    struct mlx5_command c;

    swl_mlx5_create_cq(&c, &plan);
    return create_queue_pair(nic, &c, &q->cq_object, &q->cqn);
}

static ncclResult_t create_rc(struct mlx5_nic *nic, struct mlx5_qp *q)
{
    const struct mlx5_qp_plan plan = {
        .place = {nic->rings.umem->umem_id, q->at.sq, q->at.sq_record},
        .log_size = nic->depth_log2,
        .uar_page = nic->uar->page_id,
        .pd = nic->device.pdn,
        .cqn = q->cqn,
        .ts_format = nic->caps.sq_ts_format,
    };
    struct mlx5_command c;

    swl_mlx5_create_qp(&c, &plan);
    SWL_TRY(create_queue_pair(nic, &c, &q->qp_object, &q->qpn));
    q->ece = nic->caps.ece ? swl_mlx5_ece(&c) : 0;
    return ncclSuccess;
}

/* Reset to init. */
static ncclResult_t initialise(struct mlx5_nic *nic, struct mlx5_qp *q)
{
    struct mlx5_command c;

    swl_mlx5_init_qp(&c, q->qpn, nic->device.port.number, nic->device.port.pkey_index);
    SWL_TRY(modify(nic, q, &c));
    q->state = SWL_NIC_QP_INIT;
    q->syndrome = 0;
    q->bad_index = 0;
    return ncclSuccess;
}

ncclResult_t swl_devx_open_qp(struct mlx5_nic *nic, struct mlx5_qp *q, uint32_t i)
{
    q->at = swl_devx_layout(nic, i);
    SWL_TRY(start_memory(nic, q));
    SWL_TRY(create_cq(nic, q));
    SWL_TRY(create_rc(nic, q));
    SWL_TRY(initialise(nic, q));
    q->psn = (uint32_t)(swl_gpu_now_ns() * 0x9e3779b97f4a7c15ull >> 40) & PSN_MASK;
    return ncclSuccess;
}

ncclResult_t swl_devx_close_qp(struct mlx5_nic *nic, struct mlx5_qp *q)
{
    ncclResult_t rc = ncclSuccess;
    int error = 0;

    if (q->qp_object)
        error = nic->device.verbs.mlx5dv_devx_obj_destroy(q->qp_object);
    if (error)
        rc = swl_fail(ncclSystemError, "rank %u nic: %s keeps queue pair 0x%06x: %s",
                      nic->device.rank, nic->device.port.name, q->qpn, strerror(error));
    error = q->cq_object ? nic->device.verbs.mlx5dv_devx_obj_destroy(q->cq_object) : 0;
    if (error && rc == ncclSuccess)
        rc = swl_fail(ncclSystemError, "rank %u nic: %s keeps completion queue 0x%06x: %s",
                      nic->device.rank, nic->device.port.name, q->cqn, strerror(error));
    q->qp_object = q->cq_object = NULL;
    return rc;
}

/* ---- connection ---- */

struct rc_end swl_devx_end(const struct mlx5_nic *nic, const struct mlx5_qp *q)
{
    struct rc_end end;

    memset(&end, 0, sizeof(end));
    end.qpn = q->qpn;
    end.psn = q->psn;
    end.ece = q->ece;
    end.lid = nic->device.port.lid;
    end.pkey = nic->device.port.pkey;
    end.mtu = nic->device.port.mtu;
    end.ethernet = nic->device.port.ethernet;
    end.grh_required = nic->device.port.grh_required;
    end.log_reads_out = (uint8_t)nic->caps.log_reads_out;
    end.log_reads_in = (uint8_t)nic->caps.log_reads_in;
    memcpy(end.gid, nic->device.port.gid, sizeof(end.gid));
    return end;
}

/* The MAC of the next hop: the kernel finds it while it makes an address handle. Zeroed, because a
 * rate that nobody meant is refused. */
static ncclResult_t resolve(struct mlx5_nic *nic, const struct mlx5_qp *q, struct rc_path *path)
{
    struct verbs_ah_attr attr;
    struct mlx5_ah_out out = {0};
    struct mlx5_obj obj;
    struct ibv_ah *ah;
    int error;

    memset(&attr, 0, sizeof(attr));
    memcpy(attr.dgid, path->rgid, sizeof(attr.dgid));
    attr.sgid_index = path->gid_index;
    attr.hop_limit = path->hop_limit;
    attr.traffic_class = path->tclass;
    attr.sl = path->sl;
    attr.is_global = 1;
    attr.port_num = path->port;
    errno = 0;
    ah = nic->device.verbs.ibv_create_ah(nic->device.pd, &attr);
    if (ah == NULL)
        return swl_fail(ncclSystemError,
                        "rank %u nic: queue pair 0x%06x: no way from %s port %u to the peer's "
                        "address: %s",
                        nic->device.rank, q->qpn, nic->device.port.name, path->port,
                        errno ? strerror(errno) : "no reason given");
    memset(&obj, 0, sizeof(obj));
    obj.ah.in = ah;
    obj.ah.out = &out;
    error = nic->device.verbs.mlx5dv_init_obj(&obj, MLX5_OBJ_AH);
    if (error == 0)
        memcpy(path->rmac, out.av->rmac, sizeof(path->rmac));
    (void)nic->device.verbs.ibv_destroy_ah(ah);
    return error == 0 ? ncclSuccess
                      : swl_fail(ncclSystemError,
                                 "rank %u nic: queue pair 0x%06x: %s does not tell the peer's MAC: "
                                 "%s",
                                 nic->device.rank, q->qpn, nic->device.port.name, strerror(error));
}

ncclResult_t swl_devx_restart(struct mlx5_nic *nic, struct mlx5_qp *q)
{
    struct mlx5_command c;
    ncclResult_t rc;

    swl_mlx5_reset_qp(&c, q->qpn);
    rc = modify(nic, q, &c);
    if (rc == ncclSuccess)
        rc = start_memory(nic, q);
    if (rc == ncclSuccess)
        rc = initialise(nic, q);
    if (rc != ncclSuccess)
        q->state = SWL_NIC_QP_ERROR;
    else
        q->psn = (q->psn + PSN_QUARTER) & PSN_MASK;
    return rc;
}

static ncclResult_t bring_up(struct mlx5_nic *nic, struct mlx5_qp *q, const struct rc_path *path)
{
    struct mlx5_command c;
    ncclResult_t rc;

    swl_mlx5_rtr_qp(&c, q->qpn, path);
    SWL_TRY(modify(nic, q, &c));
    swl_mlx5_rts_qp(&c, q->qpn, path);
    rc = modify(nic, q, &c);
    if (rc == ncclSuccess)
        q->state = SWL_NIC_QP_READY;
    else
        (void)swl_devx_restart(nic, q); /* it must not take packets that nobody expects */
    return rc;
}

ncclResult_t swl_devx_connect(struct mlx5_nic *nic, struct mlx5_qp *q, struct rc_path *path)
{
    if (path->ethernet)
        SWL_TRY(resolve(nic, q, path));
    return bring_up(nic, q, path);
}

void swl_devx_view(const struct mlx5_nic *nic, const struct mlx5_qp *q, struct swl_qp *view_p)
{
    uint8_t *rings = nic->rings.base;

    view_p->sq = rings + q->at.sq;
    view_p->dbr = (uint32_t *)(rings + q->at.sq_record);
    view_p->doorbell = nic->doorbell;
    view_p->cq = (const uint32_t *)(rings + q->at.cq);
    view_p->depth_log2 = nic->depth_log2;
    /* the NIC reads memory of the GPU through its L2; what lies in the host's must have left it */
    view_p->scope = nic->rings.way == MLX5_WAY_HOST ? SWL_QP_SCOPE_SYS : SWL_QP_SCOPE_GPU;
}

/* ---- failures ---- */

/* The completion of the failure, unless those of entries flushed behind it have overwritten it. */
static ncclResult_t read_failure(struct mlx5_nic *nic, struct mlx5_qp *q)
{
    struct swl_cqe c;
    uint32_t last;

    SWL_TRY(swl_devx_get(nic, q->at.cq, &c, sizeof(c)));
    last = c.word[SWL_CQE_LAST_WORD];
    if (swl_cqe_opcode(last) == SWL_CQE_ERROR) {
        q->syndrome = swl_cqe_syndrome(c.word[SWL_CQE_SYNDROME_WORD]);
        q->bad_index = swl_index_after(nic->first_index, swl_cqe_index(last));
    }
    return ncclSuccess;
}

ncclResult_t swl_devx_look(struct mlx5_nic *nic, struct mlx5_qp *q, bool *sends_p)
{
    struct mlx5_command c;
    uint32_t state, index;
    char text[160];
    int error;

    swl_mlx5_query_qp(&c, q->qpn);
    error =
        nic->device.verbs.mlx5dv_devx_obj_query(q->qp_object, c.in, c.in_bytes, c.out, c.out_bytes);
    if (!swl_mlx5_check(&c, error, text, sizeof(text)))
        return swl_fail(ncclSystemError, "rank %u nic: queue pair 0x%06x of %s: %s",
                        nic->device.rank, q->qpn, nic->device.port.name, text);
    swl_mlx5_qp_read(&c, &state, &index);
    *sends_p = state == MLX5_QP_RTS;
    return *sends_p ? ncclSuccess : read_failure(nic, q);
}

ncclResult_t swl_devx_stop(struct mlx5_nic *nic, struct mlx5_qp *q)
{
    struct mlx5_command c;

    swl_mlx5_error_qp(&c, q->qpn);
    return modify(nic, q, &c);
}
