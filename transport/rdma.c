/* rdma.c: builds the network of a rank from the operations of one NIC driver.
 *
 * Layer: transport, below src/. Creation is collective and goes in four exchanges: what everybody
 * has (counts, window), whether everybody has addresses of its queue pairs, whom everybody wants
 * (connections with these addresses), whether everybody is connected. A rank that fails goes on
 * exchanging, with its failure in the record, so that all ranks end together. Owner of the NIC and
 * of its registrations. */
#include "transport/rdma.h"

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/memory.h"
#include "src/runtime/result.h"
#include "src/runtime/runtime.h"
#include "transport/choice.h"
#include "transport/nic.h"
#include "transport/wqe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RDMA_DEPTH 256u /* built-in entries of a send queue */

#define RDMA_NICS_MAX (SWL_DRIVERS * SWL_RDMA_NICS_MAX) /* so many of each driver */

/* One NIC with what is registered on it. */
struct rdma_nic {
    uint32_t driver, nth; /* the rank's nth NIC of this driver */
    uint32_t nqps;        /* connections that use it; 0: it is not opened */
    struct swl_nic *nic;
    struct swl_nic_region signal, payload, error_word;
    bool has_signal, has_payload, has_error_word;
};

/* The queue pair of a connection, and the memory at the connection's other end. */
struct rdma_end {
    uint32_t nic, qp;
    struct swl_rdma_remote remote;
};

struct swl_rdma {
    uint32_t rank, nranks, nconnections, nnics;
    struct rdma_nic nics[RDMA_NICS_MAX];
    struct swl_rdma_connection *connections; /* [nconnections] */
    struct rdma_end *ends;                   /* [nconnections] */
    struct swl_rdma_view view;
    uint64_t timeout_ns;
    char name[96];
};

/* First exchange. */
struct rdma_need {
    uint32_t failed; /* ncclResult_t of this rank so far */
    uint32_t nconnections;
};

/* Third exchange, one for each connection. */
struct rdma_export {
    uint32_t peer, pad;
    uint64_t key;
    struct swl_rdma_remote memory; /* of the offering rank, by the keys of the connection's NIC */
    struct swl_nic_address address;
};

uint64_t swl_rdma_table_bytes(uint32_t nconnections)
{
    return nconnections * (uint64_t)(sizeof(struct swl_qp) + sizeof(struct swl_rdma_remote));
}

uint32_t swl_rdma_blocks(const struct swl_nic_settings *settings, bool multi_process)
{
    uint32_t n, blocks = 0;
    const struct swl_nic_driver *drivers = swl_drivers(&n);

    for (uint32_t i = 0; i < n; i++)
        if (drivers[i].blocks)
            blocks += drivers[i].blocks(settings, multi_process);
    return blocks;
}

static ncclResult_t check_config(const struct swl_rdma_config *c)
{
    if (c->nconnections == 0)
        return ncclSuccess;
    if (c->nics > SWL_RDMA_NICS_MAX)
        return swl_fail(ncclInvalidArgument, "rank %u rdma: %u NICs, at most %u", c->rank, c->nics,
                        SWL_RDMA_NICS_MAX);
    if (c->tables == NULL)
        return swl_fail(ncclInvalidArgument,
                        "rank %u rdma: no device memory for the tables of %u connections", c->rank,
                        c->nconnections);
    if (c->window == NULL || c->window_bytes == 0 || c->signal_bytes > c->window_bytes)
        return swl_fail(ncclInvalidArgument,
                        "rank %u rdma: a window at %p of %llu bytes with %llu bytes of signals",
                        c->rank, c->window, (unsigned long long)c->window_bytes,
                        (unsigned long long)c->signal_bytes);
    for (uint32_t i = 0; i < c->nconnections; i++)
        if (c->connections[i].peer >= c->nranks)
            return swl_fail(ncclInvalidArgument,
                            "rank %u rdma: connection %u goes to rank %u of %u", c->rank, i,
                            c->connections[i].peer, c->nranks);
    return ncclSuccess;
}

/* The first NIC of a driver; as many as the rank has of each are listed when the first is asked
 * for. */
static uint32_t nics_of(struct swl_rdma *r, uint32_t driver, uint32_t each)
{
    uint32_t n = 0;

    while (n < r->nnics && r->nics[n].driver != driver)
        n++;
    for (uint32_t i = 0; n == r->nnics && i < each; i++)
        r->nics[n + i] = (struct rdma_nic){.driver = driver, .nth = i};
    if (n == r->nnics)
        r->nnics += each;
    return n;
}

/* Which NIC carries which connection. Those of one driver are taken in turn, by the connections'
 * keys: at both ends alike if both have as many. */
static ncclResult_t assign(struct swl_rdma *r, const struct swl_rdma_config *c)
{
    const uint32_t nics = c->nics ? c->nics : 1;

    for (uint32_t i = 0; i < r->nconnections; i++) {
        const uint32_t bit = r->connections[i].driver ? r->connections[i].driver : c->driver;
        const struct swl_nic_driver *driver = swl_driver_of(bit);
        uint32_t each;

        if (driver == NULL)
            return swl_fail(ncclInvalidArgument, "rank %u rdma: no NIC driver 0x%x", c->rank, bit);
        /* blocks of kernels run one NIC */
        each = driver->blocks && c->gpu_blocks ? 1 : nics;
        r->ends[i].nic =
            nics_of(r, bit, each) + (uint32_t)(r->connections[i].key & UINT32_MAX) % each;
        r->nics[r->ends[i].nic].nqps++;
    }
    return ncclSuccess;
}

static ncclResult_t open_nic(struct rdma_nic *n, const struct swl_rdma_config *c)
{
    char gpu[32] = "";
    struct swl_nic_proximity proximity = {NULL, NULL, 0, n->nth};
    struct swl_nic_config config = {
        .rank = c->rank,
        .device = c->device,
        .max_qps = n->nqps,
        .depth = c->queue_depth ? c->queue_depth : RDMA_DEPTH,
        .first_index = c->first_index,
        .timeout_ns = c->timeout_ns,
        .silence_ns = c->silence_ns,
        .settings = c->settings,
        .gpu_blocks = c->gpu_blocks,
        .proximity = &proximity,
    };

    if (swl_gpu_pci(c->device, gpu, sizeof(gpu)) == cudaSuccess) {
        proximity.gpu = gpu;
        proximity.turn = (uint32_t)c->device * (c->nics ? c->nics : 1);
    }
    return swl_driver_of(n->driver)->ops()->create(&n->nic, &config);
}

static ncclResult_t register_memory(struct rdma_nic *n, const struct swl_rdma_config *c)
{
    const struct swl_nic_ops *ops = n->nic->ops;
    unsigned all = SWL_NIC_LOCAL_WRITE | SWL_NIC_REMOTE_WRITE | SWL_NIC_REMOTE_READ;
    uint8_t *window = c->window;

    if (c->signal_bytes > 0) {
        SWL_TRY(ops->reg_mr(n->nic, window, c->signal_bytes, all | SWL_NIC_REMOTE_ADD, &n->signal));
        n->has_signal = true;
    }
    if (c->window_bytes > c->signal_bytes) {
        SWL_TRY(ops->reg_mr(n->nic, window + c->signal_bytes, c->window_bytes - c->signal_bytes,
                            all | SWL_NIC_RELAXED, &n->payload));
        n->has_payload = true;
    }
    if (c->error_word != NULL) {
        SWL_TRY(ops->reg_mr(n->nic, c->error_word, sizeof(*c->error_word),
                            SWL_NIC_LOCAL_WRITE | SWL_NIC_REMOTE_WRITE, &n->error_word));
        n->has_error_word = true;
    }
    return ncclSuccess;
}

/* "mlx5 on mlx5_0, mlx5_1; verbs on mlx5_0" */
static void add_name(struct swl_rdma *r, const struct rdma_nic *n, const struct swl_nic_caps *caps)
{
    const size_t at = strlen(r->name);
    char *to = r->name + at;

    if (n->nth == 0 || at == 0)
        snprintf(to, sizeof(r->name) - at, "%s%s%s%s", at ? "; " : "", caps->name,
                 caps->device ? " on " : "", caps->device ? caps->device : "");
    else if (caps->device)
        snprintf(to, sizeof(r->name) - at, ", %s", caps->device);
}

static ncclResult_t prepare_nic(struct swl_rdma *r, const struct swl_rdma_config *c,
                                struct rdma_nic *n)
{
    struct swl_nic_caps caps = {0};

    SWL_TRY(open_nic(n, c));
    n->nic->ops->caps(n->nic, &caps);
    add_name(r, n, &caps);
    if (caps.served) {
        r->view.nic_blocks = caps.gpu_blocks;
        r->view.nic = caps.served;
    }
    return register_memory(n, c);
}

/* Everything that needs no peer. */
static ncclResult_t prepare(struct swl_rdma *r, const struct swl_rdma_config *c)
{
    SWL_TRY(check_config(c));
    if (c->nconnections == 0)
        return ncclSuccess;
    SWL_TRY(assign(r, c));
    r->name[0] = '\0';
    for (uint32_t n = 0; n < r->nnics; n++)
        if (r->nics[n].nqps > 0)
            SWL_TRY(prepare_nic(r, c, &r->nics[n]));
    for (uint32_t i = 0; i < c->nconnections; i++) {
        struct swl_nic *nic = r->nics[r->ends[i].nic].nic;

        SWL_TRY(nic->ops->create_qp(nic, &r->ends[i].qp));
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
                    swl_result_text(theirs));
}

/* The window of this rank as peers of the NIC reach it. */
static struct swl_rdma_remote memory_of(const struct rdma_nic *n, const struct swl_rdma_config *c)
{
    const struct swl_rdma_remote memory = {
        /* one address space: the payload region begins where the signal region ends */
        .base = n->has_signal ? n->signal.address : n->payload.address - c->signal_bytes,
        .signal_rkey = n->signal.rkey,
        .payload_rkey = n->payload.rkey,
        .error_word = n->has_error_word ? n->error_word.address : 0,
        .error_word_rkey = n->error_word.rkey,
    };

    return memory;
}

static ncclResult_t make_exports(struct swl_rdma *r, const struct swl_rdma_config *c,
                                 struct rdma_export *exports)
{
    ncclResult_t rc = ncclSuccess;

    for (uint32_t i = 0; i < r->nconnections; i++) {
        const struct rdma_nic *n = &r->nics[r->ends[i].nic];

        exports[i].peer = r->connections[i].peer;
        exports[i].key = r->connections[i].key;
        exports[i].memory = memory_of(n, c);
        if (rc == ncclSuccess)
            rc = n->nic->ops->address(n->nic, r->ends[i].qp, &exports[i].address);
    }
    return rc;
}

static ncclResult_t connect_queue_pair(struct swl_rdma *r, uint32_t i,
                                       const struct rdma_export *theirs, uint32_t ntheirs)
{
    const struct swl_rdma_connection *connection = &r->connections[i];
    struct rdma_end *end = &r->ends[i];
    struct swl_nic *nic = r->nics[end->nic].nic;

    for (uint32_t k = 0; k < ntheirs; k++) {
        if (theirs[k].peer != r->rank || theirs[k].key != connection->key)
            continue;
        end->remote = theirs[k].memory;
        return nic->ops->connect(nic, end->qp, &theirs[k].address);
    }
    return swl_fail(ncclInvalidUsage,
                    "rank %u rdma: rank %u has no connection with key 0x%llx for connection %u",
                    r->rank, connection->peer, (unsigned long long)connection->key, i);
}

/* All ranks are as remote; `mine`: how this one is. Without memory for the answers it still takes
 * part. */
static ncclResult_t agree_step(struct swl_rdma *r, const struct swl_rdma_config *c,
                               ncclResult_t mine, const char *doing)
{
    uint32_t *all = calloc(r->nranks, sizeof(*all));
    const uint32_t code = all || mine != ncclSuccess ? (uint32_t)mine : ncclSystemError;
    const ncclResult_t exchanged = c->allgather(c->context, &code, all, sizeof(code));

    if (mine == ncclSuccess)
        mine = exchanged;
    if (all == NULL && mine == ncclSuccess)
        mine = swl_no_memory("the codes of %u ranks", r->nranks);
    for (uint32_t i = 0; all && exchanged == ncclSuccess && i < r->nranks; i++)
        mine = join(r, mine, i, all[i], doing);
    free(all);
    return mine;
}

/* Second exchange, and third: exports of all ranks, as many each as the rank with most connections
 * has. */
static ncclResult_t connect_all(struct swl_rdma *r, const struct swl_rdma_config *c,
                                const struct rdma_need *needs, uint32_t most)
{
    size_t each = most * sizeof(struct rdma_export);
    struct rdma_export *all = calloc((size_t)r->nranks + 1, each);
    struct rdma_export *mine = all ? all + (size_t)r->nranks * most : NULL;
    ncclResult_t rc;

    if (mine)
        rc = make_exports(r, c, mine);
    else
        rc = swl_no_memory("%zu bytes of addresses", (r->nranks + 1) * each);
    /* before the exports: whoever finds none at its peer would say that it failed itself */
    rc = agree_step(r, c, rc, "naming its queue pairs");
    if (rc == ncclSuccess)
        rc = c->allgather(c->context, mine, all, each);
    for (uint32_t i = 0; rc == ncclSuccess && all && i < r->nconnections; i++)
        rc = connect_queue_pair(r, i, all + (size_t)r->connections[i].peer * most,
                                needs[r->connections[i].peer].nconnections);
    free(all);
    return rc;
}

static ncclResult_t copy_tables(struct swl_rdma *r, void *device, const void *host, uint64_t bytes)
{
    cudaStream_t stream;
    ncclResult_t rc;

    SWL_TRY(SWL_CUDA(swl_gpu_stream_create(&stream)));
    rc = SWL_CUDA(swl_gpu_copy(device, host, bytes, stream));
    if (rc == ncclSuccess)
        rc = SWL_CUDA(swl_gpu_stream_wait(stream, r->timeout_ns));
    (void)swl_gpu_stream_destroy(stream);
    return rc;
}

/* Device tables: views of the queue pairs, then windows of their peers. */
static ncclResult_t build_tables(struct swl_rdma *r, const struct swl_rdma_config *c)
{
    uint8_t *tables = calloc(1, swl_rdma_table_bytes(r->nconnections));
    struct swl_qp *qps = (struct swl_qp *)tables;
    struct swl_rdma_remote *remotes;
    ncclResult_t rc = ncclSuccess;

    if (tables == NULL)
        return swl_no_memory("%u connections", r->nconnections);
    remotes = (struct swl_rdma_remote *)(qps + r->nconnections);
    for (uint32_t i = 0; rc == ncclSuccess && i < r->nconnections; i++) {
        const struct rdma_end *end = &r->ends[i];
        const struct rdma_nic *n = &r->nics[end->nic];

        remotes[i] = end->remote;
        remotes[i].payload_lkey = n->payload.lkey;
        rc = n->nic->ops->view(n->nic, end->qp, &qps[i]);
    }
    if (rc == ncclSuccess) {
        r->view.qps = c->tables;
        r->view.remotes = (const struct swl_rdma_remote *)(r->view.qps + r->nconnections);
        r->view.nconnections = r->nconnections;
        rc = copy_tables(r, r->view.qps, tables, swl_rdma_table_bytes(r->nconnections));
    }
    free(tables);
    return rc;
}

/* First exchange; *most_p is the largest number of connections, 0 = nobody needs a network. */
static ncclResult_t exchange_needs(struct swl_rdma *r, const struct swl_rdma_config *c,
                                   ncclResult_t rc, struct rdma_need *needs, uint32_t *most_p)
{
    const struct rdma_need mine = {(uint32_t)rc, r->nconnections};
    ncclResult_t exchanged;

    exchanged = c->allgather(c->context, &mine, needs, sizeof(mine));
    *most_p = 0;
    if (exchanged != ncclSuccess)
        return rc != ncclSuccess ? rc : exchanged;
    for (uint32_t i = 0; i < r->nranks; i++) {
        rc = join(r, rc, i, needs[i].failed, "preparing its network");
        if (needs[i].nconnections > *most_p)
            *most_p = needs[i].nconnections;
    }
    return rc;
}

/* Of a rank that cannot take part: it tells the others in the first exchange. */
static ncclResult_t stay_out(const struct swl_rdma_config *c, ncclResult_t rc)
{
    const struct rdma_need mine = {(uint32_t)rc, 0};

    (void)c->allgather(c->context, &mine, NULL, sizeof(mine));
    return rc;
}

static ncclResult_t establish(struct swl_rdma *r, const struct swl_rdma_config *c)
{
    struct rdma_need *needs = calloc(r->nranks, sizeof(*needs));
    ncclResult_t rc;
    uint32_t most;

    if (needs == NULL)
        return stay_out(c, swl_no_memory("%u ranks", r->nranks));
    rc = exchange_needs(r, c, prepare(r, c), needs, &most);
    if (rc == ncclSuccess && most > 0) {
        rc = connect_all(r, c, needs, most);
        if (rc == ncclSuccess && r->nconnections > 0)
            rc = build_tables(r, c);
        /* nobody posts before everybody is connected */
        rc = agree_step(r, c, rc, "connecting its queue pairs");
    }
    free(needs);
    return rc;
}

ncclResult_t swl_rdma_create(struct swl_rdma **rdma_p, const struct swl_rdma_config *config)
{
    struct swl_rdma *r = calloc(1, sizeof(*r));

    *rdma_p = NULL;
    if (r != NULL) {
        r->connections = calloc(config->nconnections + 1u, sizeof(*r->connections));
        r->ends = calloc(config->nconnections + 1u, sizeof(*r->ends));
    }
    if (r == NULL || r->connections == NULL || r->ends == NULL) {
        if (r)
            free(r->connections);
        free(r);
        return stay_out(config, swl_no_memory("%u connections", config->nconnections));
    }
    r->rank = config->rank;
    r->nranks = config->nranks;
    r->nconnections = config->nconnections;
    r->timeout_ns = config->timeout_ns;
    if (config->nconnections > 0)
        memcpy(r->connections, config->connections, config->nconnections * sizeof(*r->connections));
    strcpy(r->name, "none");
    *rdma_p = r;
    SWL_TRY(establish(r, config));
    swl_log(SWL_LEVEL_DEBUG, "rank %u rdma: %u connections, nic %s", r->rank, r->nconnections,
            r->name);
    return ncclSuccess;
}

static ncclResult_t drop_region(struct rdma_nic *n, bool has, const struct swl_nic_region *region)
{
    return has ? n->nic->ops->dereg_mr(n->nic, region) : ncclSuccess;
}

/* The NIC and what is registered on it; the first failure. */
static ncclResult_t close_nic(struct rdma_nic *n)
{
    ncclResult_t rc = drop_region(n, n->has_error_word, &n->error_word), next;

    next = drop_region(n, n->has_payload, &n->payload);
    rc = rc != ncclSuccess ? rc : next;
    next = drop_region(n, n->has_signal, &n->signal);
    rc = rc != ncclSuccess ? rc : next;
    next = n->nic ? n->nic->ops->destroy(n->nic) : ncclSuccess;
    return rc != ncclSuccess ? rc : next;
}

ncclResult_t swl_rdma_destroy(struct swl_rdma *rdma)
{
    ncclResult_t rc = ncclSuccess;

    if (rdma == NULL)
        return ncclSuccess;
    for (uint32_t i = rdma->nnics; i-- > 0;) {
        const ncclResult_t next = close_nic(&rdma->nics[i]);

        rc = rc != ncclSuccess ? rc : next;
    }
    free(rdma->ends);
    free(rdma->connections);
    free(rdma);
    return rc;
}

const struct swl_rdma_view *swl_rdma_view(const struct swl_rdma *rdma)
{
    return &rdma->view;
}

static struct swl_nic *nic_of(const struct swl_rdma *rdma, uint32_t connection)
{
    return rdma->nics[rdma->ends[connection].nic].nic;
}

ncclResult_t swl_rdma_query(struct swl_rdma *rdma, uint32_t connection,
                            struct swl_nic_qp_status *status_p)
{
    struct swl_nic *nic = nic_of(rdma, connection);

    return nic->ops->query(nic, rdma->ends[connection].qp, status_p);
}

ncclResult_t swl_rdma_reset(struct swl_rdma *rdma, uint32_t connection,
                            struct swl_nic_address *mine_p)
{
    struct swl_nic *nic = nic_of(rdma, connection);

    SWL_TRY(nic->ops->reset(nic, rdma->ends[connection].qp));
    return nic->ops->address(nic, rdma->ends[connection].qp, mine_p);
}

ncclResult_t swl_rdma_reconnect(struct swl_rdma *rdma, uint32_t connection,
                                const struct swl_nic_address *theirs)
{
    struct swl_nic *nic = nic_of(rdma, connection);
    struct swl_qp view;

    SWL_TRY(nic->ops->connect(nic, rdma->ends[connection].qp, theirs));
    SWL_TRY(nic->ops->view(nic, rdma->ends[connection].qp, &view));
    return copy_tables(rdma, rdma->view.qps + connection, &view, sizeof(view));
}

uint64_t swl_rdma_device_bytes(const struct swl_rdma *rdma)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < rdma->nnics; i++) {
        struct swl_nic_caps caps = {0};

        if (rdma->nics[i].nic)
            rdma->nics[i].nic->ops->caps(rdma->nics[i].nic, &caps);
        bytes += caps.device_bytes;
    }
    return bytes;
}

const char *swl_rdma_name(const struct swl_rdma *rdma)
{
    return rdma->name;
}
