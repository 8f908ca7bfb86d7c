/* rdma.c: builds the network of a rank from the operations of one NIC driver.
 *
 * Layer: transport, below src/. Creation is collective and goes in three exchanges: what everybody
 * has (counts, window), whom everybody wants (links with queue pair addresses), whether everybody is
 * connected. A rank that fails goes on exchanging, with its failure in the record, so that all ranks
 * end together. Owner of the NIC and of its registrations. */
#include "transport/rdma.h"

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/gpu.h"
#include "transport/nic.h"
#include "transport/select.h"
#include "transport/soft/soft.h"
#include "transport/wqe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RDMA_DEPTH 256u /* built-in entries of a send queue */

struct swl_rdma {
    uint32_t rank, nranks, nlinks;
    struct swl_nic *nic;
    struct swl_rdma_link *links; /* [nlinks] */
    struct swl_nic_region signal, payload, alarm;
    bool has_signal, has_payload, has_alarm;
    struct swl_rdma_view view;
    char name[96];
};

/* First exchange. */
struct rdma_hello {
    uint32_t failed; /* ncclResult_t of this rank so far */
    uint32_t nlinks;
    uint64_t base;
    uint32_t signal_rkey, payload_rkey;
    uint64_t alarm;
    uint32_t alarm_rkey, pad;
};

/* Second exchange, one for each link. */
struct rdma_offer {
    uint32_t peer, failed;
    uint64_t key;
    struct swl_nic_address address;
};

uint64_t swl_rdma_table_bytes(uint32_t nlinks)
{
    return nlinks * (uint64_t)(sizeof(struct swl_qp) + sizeof(struct swl_rdma_remote));
}

uint32_t swl_rdma_blocks(uint32_t driver, uint32_t soft_executor, uint32_t soft_blocks, bool apart)
{
    return driver == SWL_TRANSPORT_SOFT ? swl_soft_blocks(soft_executor, soft_blocks, apart) : 0;
}

static ncclResult_t check(const struct swl_rdma_config *c)
{
    if (c->nlinks == 0)
        return ncclSuccess;
    if (c->tables == NULL)
        return swl_fail(ncclInvalidArgument,
                        "rank %u rdma: no device memory for the tables of %u links", c->rank,
                        c->nlinks);
    if (c->window == NULL || c->window_bytes == 0 || c->signal_bytes > c->window_bytes)
        return swl_fail(ncclInvalidArgument,
                        "rank %u rdma: a window at %p of %llu bytes with %llu bytes of signals",
                        c->rank, c->window, (unsigned long long)c->window_bytes,
                        (unsigned long long)c->signal_bytes);
    for (uint32_t i = 0; i < c->nlinks; i++)
        if (c->links[i].peer >= c->nranks)
            return swl_fail(ncclInvalidArgument, "rank %u rdma: link %u goes to rank %u of %u",
                            c->rank, i, c->links[i].peer, c->nranks);
    return ncclSuccess;
}

static ncclResult_t open_nic(struct swl_rdma *r, const struct swl_rdma_config *c)
{
    const struct swl_nic_driver *driver = swl_driver_of(c->driver);
    char gpu[32] = "";
    const struct swl_nic_near near = {NULL, gpu, (uint32_t)c->device};
    struct swl_nic_config config = {
        .rank = c->rank,
        .device = c->device,
        .max_qps = c->nlinks,
        .depth = c->queue_depth ? c->queue_depth : RDMA_DEPTH,
        .first_index = c->first_index,
        .timeout_ns = c->timeout_ns,
        .ib = c->ib,
        .proxy_adds = c->proxy_adds,
        .socket_ifname = c->socket_ifname,
        .soft_link = c->soft_link,
        .soft_faults = c->soft_faults,
        .soft_executor = c->soft_executor,
        .gpu_blocks = c->gpu_blocks,
    };

    if (driver == NULL)
        return swl_fail(ncclInvalidArgument, "rank %u rdma: no NIC driver 0x%x", c->rank,
                        c->driver);
    if (swl_gpu_pci(c->device, gpu, sizeof(gpu)) == cudaSuccess)
        config.near = &near;
    return driver->ops()->create(&r->nic, &config);
}

static ncclResult_t register_memory(struct swl_rdma *r, const struct swl_rdma_config *c)
{
    const struct swl_nic_ops *ops = r->nic->ops;
    unsigned all = SWL_NIC_LOCAL_WRITE | SWL_NIC_REMOTE_WRITE | SWL_NIC_REMOTE_READ;
    uint8_t *window = c->window;

    if (c->signal_bytes > 0) {
        SWL_TRY(ops->reg_mr(r->nic, window, c->signal_bytes, all | SWL_NIC_REMOTE_ADD, &r->signal));
        r->has_signal = true;
    }
    if (c->window_bytes > c->signal_bytes) {
        SWL_TRY(ops->reg_mr(r->nic, window + c->signal_bytes, c->window_bytes - c->signal_bytes,
                            all | SWL_NIC_RELAXED, &r->payload));
        r->has_payload = true;
    }
    if (c->alarm != NULL) {
        SWL_TRY(ops->reg_mr(r->nic, c->alarm, sizeof(*c->alarm),
                            SWL_NIC_LOCAL_WRITE | SWL_NIC_REMOTE_WRITE, &r->alarm));
        r->has_alarm = true;
    }
    r->view.signal_lkey = r->signal.lkey;
    r->view.payload_lkey = r->payload.lkey;
    return ncclSuccess;
}

/* Everything that needs no peer. */
static ncclResult_t prepare(struct swl_rdma *r, const struct swl_rdma_config *c)
{
    struct swl_nic_caps caps = {0};

    SWL_TRY(check(c));
    if (c->nlinks == 0)
        return ncclSuccess;
    SWL_TRY(open_nic(r, c));
    r->nic->ops->caps(r->nic, &caps);
    snprintf(r->name, sizeof(r->name), "%s%s%s", caps.name, caps.device ? " on " : "",
             caps.device ? caps.device : "");
    r->view.nic_blocks = caps.gpu_blocks;
    r->view.nic = caps.gpu_port;
    SWL_TRY(register_memory(r, c));
    for (uint32_t i = 0; i < c->nlinks; i++) {
        uint32_t qp;

        SWL_TRY(r->nic->ops->create_qp(r->nic, &qp));
    }
    return ncclSuccess;
}

/* Peers' failures become ours; our own sentence, if there is one, stays. */
static ncclResult_t join(const struct swl_rdma *r, ncclResult_t mine, uint32_t peer,
                         uint32_t failed, const char *doing)
{
    const ncclResult_t theirs = swl_peer_result(failed);

    if (mine != ncclSuccess || theirs == ncclSuccess || peer == r->rank)
        return mine;
    return swl_fail(theirs, "rank %u rdma: rank %u failed while %s (%s)", r->rank, peer, doing,
                    ncclGetErrorString(theirs));
}

static void say_hello(const struct swl_rdma *r, const struct swl_rdma_config *c, ncclResult_t rc,
                      struct rdma_hello *mine)
{
    memset(mine, 0, sizeof(*mine));
    mine->failed = (uint32_t)rc;
    mine->nlinks = r->nlinks;
    if (rc != ncclSuccess || r->nlinks == 0)
        return;
    /* one address space: the payload region begins where the signal region ends */
    mine->base = r->has_signal ? r->signal.address : r->payload.address - c->signal_bytes;
    mine->signal_rkey = r->signal.rkey;
    mine->payload_rkey = r->payload.rkey;
    mine->alarm = r->has_alarm ? r->alarm.address : 0;
    mine->alarm_rkey = r->alarm.rkey;
}

static ncclResult_t make_offers(struct swl_rdma *r, struct rdma_offer *offers)
{
    ncclResult_t rc = ncclSuccess;

    for (uint32_t i = 0; i < r->nlinks; i++) {
        offers[i].peer = r->links[i].peer;
        offers[i].key = r->links[i].key;
        if (rc == ncclSuccess)
            rc = r->nic->ops->address(r->nic, i, &offers[i].address);
    }
    for (uint32_t i = 0; i < r->nlinks; i++)
        offers[i].failed = (uint32_t)rc;
    return rc;
}

static ncclResult_t connect_link(struct swl_rdma *r, uint32_t i, const struct rdma_offer *theirs,
                                 uint32_t ntheirs)
{
    const struct swl_rdma_link *link = &r->links[i];

    for (uint32_t k = 0; k < ntheirs; k++) {
        if (theirs[k].peer != r->rank || theirs[k].key != link->key)
            continue;
        SWL_TRY(join(r, ncclSuccess, link->peer, theirs[k].failed, "naming its queue pairs"));
        return r->nic->ops->connect(r->nic, i, &theirs[k].address);
    }
    return swl_fail(ncclInvalidUsage,
                    "rank %u rdma: rank %u has no link with key 0x%llx for link %u", r->rank,
                    link->peer, (unsigned long long)link->key, i);
}

/* Second exchange: offers of all ranks, as many each as the rank with most links has. */
static ncclResult_t connect_all(struct swl_rdma *r, const struct swl_rdma_config *c,
                                const struct rdma_hello *hellos, uint32_t most)
{
    size_t each = most * sizeof(struct rdma_offer);
    struct rdma_offer *all = calloc((size_t)r->nranks + 1, each);
    struct rdma_offer *mine;
    ncclResult_t rc;

    if (all == NULL)
        return swl_fail(ncclSystemError, "rank %u rdma: no memory for %zu bytes of addresses",
                        r->rank, (r->nranks + 1) * each);
    mine = all + (size_t)r->nranks * most;
    rc = make_offers(r, mine);
    /* a failure of our own travels in the offers; a failed exchange ends it for all */
    if (rc == ncclSuccess)
        rc = c->allgather(c->context, mine, all, each);
    else
        (void)c->allgather(c->context, mine, all, each);
    for (uint32_t i = 0; rc == ncclSuccess && i < r->nlinks; i++)
        rc = connect_link(r, i, all + (size_t)r->links[i].peer * most,
                          hellos[r->links[i].peer].nlinks);
    free(all);
    return rc;
}

static ncclResult_t copy_tables(struct swl_rdma *r, const void *tables, uint64_t timeout_ns)
{
    cudaStream_t stream;
    ncclResult_t rc;

    SWL_TRY(SWL_CUDA(swl_gpu_stream_create(&stream)));
    rc = SWL_CUDA(swl_gpu_copy(r->view.qps, tables, swl_rdma_table_bytes(r->nlinks), stream));
    if (rc == ncclSuccess)
        rc = SWL_CUDA(swl_gpu_stream_wait(stream, timeout_ns));
    (void)swl_gpu_stream_destroy(stream);
    return rc;
}

/* Device tables: views of the queue pairs, then windows of their peers. */
static ncclResult_t build_tables(struct swl_rdma *r, const struct swl_rdma_config *c,
                                 const struct rdma_hello *hellos)
{
    uint8_t *tables = calloc(1, swl_rdma_table_bytes(r->nlinks));
    struct swl_qp *qps = (struct swl_qp *)tables;
    struct swl_rdma_remote *remotes;
    ncclResult_t rc = ncclSuccess;

    if (tables == NULL)
        return swl_fail(ncclSystemError, "rank %u rdma: no memory for %u links", r->rank,
                        r->nlinks);
    remotes = (struct swl_rdma_remote *)(qps + r->nlinks);
    for (uint32_t i = 0; rc == ncclSuccess && i < r->nlinks; i++) {
        const struct rdma_hello *h = &hellos[r->links[i].peer];

        remotes[i].base = h->base;
        remotes[i].signal_rkey = h->signal_rkey;
        remotes[i].payload_rkey = h->payload_rkey;
        remotes[i].alarm = h->alarm;
        remotes[i].alarm_rkey = h->alarm_rkey;
        rc = r->nic->ops->view(r->nic, i, &qps[i]);
    }
    if (rc == ncclSuccess) {
        r->view.qps = c->tables;
        r->view.remotes = (const struct swl_rdma_remote *)(r->view.qps + r->nlinks);
        r->view.nlinks = r->nlinks;
        rc = copy_tables(r, tables, c->timeout_ns);
    }
    free(tables);
    return rc;
}

/* First exchange; *most_p is the largest number of links, 0 = nobody needs a network. */
static ncclResult_t exchange_hellos(struct swl_rdma *r, const struct swl_rdma_config *c,
                                    ncclResult_t rc, struct rdma_hello *hellos, uint32_t *most_p)
{
    struct rdma_hello mine;
    ncclResult_t exchanged;

    say_hello(r, c, rc, &mine);
    exchanged = c->allgather(c->context, &mine, hellos, sizeof(mine));
    *most_p = 0;
    if (exchanged != ncclSuccess)
        return rc != ncclSuccess ? rc : exchanged;
    for (uint32_t i = 0; i < r->nranks; i++) {
        rc = join(r, rc, i, hellos[i].failed, "preparing its network");
        if (hellos[i].nlinks > *most_p)
            *most_p = hellos[i].nlinks;
    }
    return rc;
}

/* Last exchange: nobody posts before everybody is connected. */
static ncclResult_t agree(struct swl_rdma *r, const struct swl_rdma_config *c, ncclResult_t rc)
{
    uint32_t mine = (uint32_t)rc;
    uint32_t *all = calloc(r->nranks, sizeof(*all));
    ncclResult_t exchanged;

    if (all == NULL)
        return swl_fail(ncclSystemError, "rank %u rdma: no memory", r->rank);
    exchanged = c->allgather(c->context, &mine, all, sizeof(mine));
    if (exchanged != ncclSuccess && rc == ncclSuccess)
        rc = exchanged;
    for (uint32_t i = 0; exchanged == ncclSuccess && i < r->nranks; i++)
        rc = join(r, rc, i, all[i], "connecting its queue pairs");
    free(all);
    return rc;
}

static ncclResult_t establish(struct swl_rdma *r, const struct swl_rdma_config *c)
{
    struct rdma_hello *hellos = calloc(r->nranks, sizeof(*hellos));
    ncclResult_t rc;
    uint32_t most;

    if (hellos == NULL)
        return swl_fail(ncclSystemError, "rank %u rdma: no memory for %u ranks", r->rank,
                        r->nranks);
    rc = exchange_hellos(r, c, prepare(r, c), hellos, &most);
    if (rc == ncclSuccess && most > 0) {
        rc = connect_all(r, c, hellos, most);
        if (rc == ncclSuccess && r->nlinks > 0)
            rc = build_tables(r, c, hellos);
        rc = agree(r, c, rc);
    }
    free(hellos);
    return rc;
}

ncclResult_t swl_rdma_create(struct swl_rdma **rdma_p, const struct swl_rdma_config *config)
{
    struct swl_rdma *r = calloc(1, sizeof(*r));
    ncclResult_t rc;

    if (r != NULL)
        r->links = calloc(config->nlinks + 1u, sizeof(*r->links));
    if (r == NULL || r->links == NULL) {
        free(r);
        return swl_fail(ncclSystemError, "rank %u rdma: no memory for %u links", config->rank,
                        config->nlinks);
    }
    r->rank = config->rank;
    r->nranks = config->nranks;
    r->nlinks = config->nlinks;
    if (config->nlinks > 0)
        memcpy(r->links, config->links, config->nlinks * sizeof(*r->links));
    strcpy(r->name, "none");
    rc = establish(r, config);
    if (rc != ncclSuccess) {
        (void)swl_rdma_destroy(r);
        return rc;
    }
    swl_log(SWL_LEVEL_DEBUG, "rank %u rdma: %u links, nic %s", r->rank, r->nlinks, r->name);
    *rdma_p = r;
    return ncclSuccess;
}

ncclResult_t swl_rdma_destroy(struct swl_rdma *rdma)
{
    ncclResult_t rc = ncclSuccess;
    ncclResult_t next;

    if (rdma == NULL)
        return ncclSuccess;
    if (rdma->has_alarm) {
        next = rdma->nic->ops->dereg_mr(rdma->nic, &rdma->alarm);
        rc = rc != ncclSuccess ? rc : next;
    }
    if (rdma->has_payload) {
        next = rdma->nic->ops->dereg_mr(rdma->nic, &rdma->payload);
        rc = rc != ncclSuccess ? rc : next;
    }
    if (rdma->has_signal) {
        next = rdma->nic->ops->dereg_mr(rdma->nic, &rdma->signal);
        rc = rc != ncclSuccess ? rc : next;
    }
    if (rdma->nic) {
        next = rdma->nic->ops->destroy(rdma->nic);
        rc = rc != ncclSuccess ? rc : next;
    }
    free(rdma->links);
    free(rdma);
    return rc;
}

const struct swl_rdma_view *swl_rdma_view(const struct swl_rdma *rdma)
{
    return &rdma->view;
}

static const char *syndrome_text(uint32_t syndrome)
{
    switch (syndrome) {
#define SYNDROME_CASE(name, number, text)                                                          \
    case number:                                                                                   \
        return text;
        SWL_SYNDROMES(SYNDROME_CASE)
#undef SYNDROME_CASE
    default:
        return "unknown error";
    }
}

ncclResult_t swl_rdma_check(struct swl_rdma *rdma)
{
    for (uint32_t i = 0; i < rdma->nlinks; i++) {
        struct swl_nic_qp_status s;

        SWL_TRY(rdma->nic->ops->query(rdma->nic, i, &s));
        if (s.state == SWL_NIC_QP_ERROR)
            return swl_fail(ncclSystemError,
                            "rank %u rdma: queue pair 0x%06x to rank %u failed at entry %llu: %s "
                            "(syndrome 0x%02x)",
                            rdma->rank, s.qpn, rdma->links[i].peer, (unsigned long long)s.index,
                            syndrome_text(s.syndrome), s.syndrome);
    }
    return ncclSuccess;
}

uint64_t swl_rdma_device_bytes(const struct swl_rdma *rdma)
{
    struct swl_nic_caps caps = {0};

    if (rdma->nic)
        rdma->nic->ops->caps(rdma->nic, &caps);
    return caps.device_bytes;
}

const char *swl_rdma_name(const struct swl_rdma *rdma)
{
    return rdma->name;
}
