/* flush.c: messages wait until the GPU sees what the device placed before them.
 *
 * Layer: transport/proxy/verbs; see verbs.h. A completion says that the device has sent the payload
 * on its way to memory. To memory of a GPU that way is another one than that of the host's adds,
 * which may arrive first. A READ cannot pass writes before it: one of the memory itself, by a queue
 * pair that is connected to itself, returns when they are there. One READ serves all messages that
 * had arrived when it was posted. The queue pair is made by the host as soon as there are such a
 * region and a peer that adds by message, and made anew by a reset after it has failed. The serving
 * thread uses it. */
#include "transport/proxy/verbs/verbs.h"

#include "src/base/error.h"
#include "transport/rdma_core/rc.h"

#include <errno.h>
#include <string.h>

static ncclResult_t refuse_flush(const struct verbs_wire *w, const char *what, int error)
{
    return swl_fail(ncclSystemError, "rank %u nic: %s %s: %s", w->rank, w->port.name, what,
                    error ? strerror(error) : "no reason given");
}

/* The queue pair's peer is itself. */
static ncclResult_t connect_self(struct verbs_wire *w, struct verbs_qp *qp)
{
    const struct rc_end end = swl_rc_end(&w->port, &w->attr, qp->qp_num, swl_rc_psn(qp->qp_num));
    struct rc_path path;
    const char *why;
    int error;

    if (!swl_rc_path(&path, &end, &end, &w->tuning, &why))
        return swl_fail(ncclInvalidUsage, "rank %u nic: %s cannot reach itself: %s", w->rank,
                        w->port.name, why);
    error = swl_rc_init(&w->verbs, qp, &w->port, false);
    error = error ? error : swl_rc_receive(&w->verbs, qp, &path);
    error = error ? error : swl_rc_send(&w->verbs, qp, &path);
    return error ? refuse_flush(w, "does not connect a queue pair to itself", error) : ncclSuccess;
}

static ncclResult_t close_pair(struct verbs_wire *w)
{
    struct verbs_flush *f = &w->flush;
    const int first = f->qp ? w->verbs.ibv_destroy_qp(f->qp) : 0;
    const int second = f->cq ? w->verbs.ibv_destroy_cq(f->cq) : 0;

    f->qp = NULL;
    f->cq = NULL;
    return first || second ? refuse_flush(w, "keeps what it flushes with", first ? first : second)
                           : ncclSuccess;
}

static ncclResult_t make_pair(struct verbs_wire *w)
{
    struct verbs_flush *f = &w->flush;
    struct verbs_qp_init_attr attr = {.qp_type = VERBS_RC, .cap = {1, 1, 1, 1, 0}};

    errno = 0;
    f->cq = w->verbs.ibv_create_cq(w->context, 2, NULL, NULL, 0);
    if (!f->cq)
        return refuse_flush(w, "gives no completion queue", errno);
    attr.send_cq = attr.recv_cq = f->cq;
    f->qp = w->verbs.ibv_create_qp(w->pd, &attr);
    if (!f->qp)
        return refuse_flush(w, "gives no queue pair", errno);
    return connect_self(w, f->qp);
}

/* Nothing is left of a failure. */
static ncclResult_t open_pair(struct verbs_wire *w)
{
    const ncclResult_t rc = make_pair(w);

    if (rc != ncclSuccess)
        (void)close_pair(w);
    return rc;
}

static bool has_gpu(const struct verbs_wire *w)
{
    for (uint32_t i = 0; i < w->nregions; i++)
        if (w->regions[i].on_gpu)
            return true;
    return false;
}

ncclResult_t swl_verbs_flush_open(struct verbs_wire *w, bool messages, bool gpu)
{
    struct verbs_flush *f = &w->flush;

    f->messages = f->messages || messages;
    if (f->on || !f->messages || !(gpu || has_gpu(w)))
        return ncclSuccess;
    errno = 0;
    if (!f->mr)
        f->mr = w->verbs.ibv_reg_mr(w->pd, &f->sink, sizeof(f->sink), VERBS_ACCESS_LOCAL_WRITE);
    if (!f->mr)
        return refuse_flush(w, "cannot register a word", errno);
    SWL_TRY(open_pair(w));
    /* release: pairs with the acquire of the serving thread */
    __atomic_store_n(&f->on, true, __ATOMIC_RELEASE);
    return ncclSuccess;
}

ncclResult_t swl_verbs_flush_renew(struct verbs_wire *w)
{
    struct verbs_flush *f = &w->flush;
    ncclResult_t rc = ncclSuccess, closed;

    (void)pthread_mutex_lock(&f->lock);
    if (f->broken && !f->renewed) {
        closed = close_pair(w);
        rc = open_pair(w);
        f->renewed = rc == ncclSuccess;
        rc = closed != ncclSuccess ? closed : rc;
    }
    (void)pthread_mutex_unlock(&f->lock);
    return rc;
}

ncclResult_t swl_verbs_flush_close(struct verbs_wire *w)
{
    struct verbs_flush *f = &w->flush;
    ncclResult_t rc = close_pair(w);
    const int error = f->mr ? w->verbs.ibv_dereg_mr(f->mr) : 0;

    f->mr = NULL;
    if (error && rc == ncclSuccess)
        rc = refuse_flush(w, "keeps what it flushes with", error);
    (void)pthread_mutex_destroy(&f->lock);
    return rc;
}

bool swl_verbs_flushes(const struct verbs_wire *w)
{
    return __atomic_load_n(&w->flush.on, __ATOMIC_ACQUIRE);
}

/* A word of a GPU to read: of the signal words, which stay as long as the NIC, if they are
 * there. */
static bool word_to_read(struct verbs_wire *w, struct verbs_send_wr *wr)
{
    bool any = false, words = false;

    (void)pthread_mutex_lock(&w->lock);
    for (uint32_t i = 0; i < w->nregions && !words; i++) {
        const struct verbs_region *r = &w->regions[i];

        if (!r->on_gpu || !(r->access & SWL_NIC_REMOTE_READ) || r->bytes < 8)
            continue;
        any = true;
        words = (r->access & SWL_NIC_REMOTE_ADD) != 0;
        wr->wr.rdma.remote_addr = r->address;
        wr->wr.rdma.rkey = r->mr->rkey;
    }
    (void)pthread_mutex_unlock(&w->lock);
    return any;
}

/* With the lock, and a queue pair that works. */
static void post_read(struct verbs_wire *w)
{
    struct verbs_flush *f = &w->flush;
    struct verbs_sge sge = {(uintptr_t)&f->sink, sizeof(f->sink), f->mr->lkey};
    struct verbs_send_wr wr = {
        .sg_list = &sge, .num_sge = 1, .opcode = VERBS_WR_READ, .send_flags = VERBS_SEND_SIGNALLED};
    struct verbs_send_wr *bad;

    f->wanted = false;
    f->asked++;
    if (!word_to_read(w, &wr)) { /* nothing is left that could be late */
        f->done = f->asked;
        return;
    }
    f->posted = true;
    f->broken = f->qp->context->post_send(f->qp, &wr, &bad) != 0;
}

static void take_read(struct verbs_flush *f)
{
    struct verbs_wc wc;
    const int n = f->qp->context->poll_cq(f->cq, 1, &wc);

    if (n == 0)
        return;
    f->posted = false;
    f->broken = n < 0 || wc.status != 0;
    if (!f->broken)
        f->done = f->asked;
}

void swl_verbs_flush_post(struct verbs_wire *w)
{
    struct verbs_flush *f = &w->flush;

    if (!f->wanted || f->posted || f->broken || pthread_mutex_trylock(&f->lock) != 0)
        return; /* or the host makes it anew */
    post_read(w);
    (void)pthread_mutex_unlock(&f->lock);
}

void swl_verbs_flush_take(struct verbs_wire *w)
{
    struct verbs_flush *f = &w->flush;

    if (!(f->posted || f->broken) || pthread_mutex_trylock(&f->lock) != 0)
        return;
    if (f->broken && f->renewed) { /* what still waits wants another READ */
        f->broken = f->posted = f->renewed = false;
        f->wanted = true;
    } else if (!f->broken) {
        take_read(f);
    }
    (void)pthread_mutex_unlock(&f->lock);
}
