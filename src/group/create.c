/* create.c: make a group: agree with all ranks (agree.c), allocate, map, connect.
 *
 * Layer: src/group, implements swl_group_create of internal.h. Each step that can fail on one rank
 * alone ends in an exchange of result codes, so that all ranks go on or all undo; undoing is
 * swl_group_release, which takes a group in any state. */
#include "src/group/group.h"

#include "kernels/common/kernels.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/memory.h"
#include "src/base/util.h"
#include "src/group/comm.h"
#include "src/runtime/result.h"
#include "transport/nic.h"
#include "transport/rdma.h"

#include <assert.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- what can be known alone ---- */

static ncclResult_t read_comm(struct swl_group_info *info, ncclComm_t comm)
{
    int nranks = 0, rank = 0;

    info->comm = comm;
    SWL_TRY(swl_comm_ask(ncclCommCount, comm, &nranks, "rank count"));
    if (nranks < 1 || nranks > (int)SWL_MAX_RANKS)
        return swl_fail(ncclInvalidArgument, "comm has %d ranks, at most %u are possible", nranks,
                        SWL_MAX_RANKS);
    SWL_TRY(swl_comm_ask(ncclCommUserRank, comm, &rank, "rank number"));
    SWL_TRY(swl_comm_ask(ncclCommCuDevice, comm, &info->device, "device"));
    info->nranks = (uint32_t)nranks;
    info->rank = (uint32_t)rank;
    return ncclSuccess;
}

static ncclResult_t read_version(struct swl_group_info *info)
{
    const ncclResult_t rc = ncclGetVersion(&info->nccl_version);
    void *symbol;

    if (rc != ncclSuccess)
        return swl_fail(swl_nccl_code(rc), "ncclGetVersion: %s", ncclGetErrorString(rc));
    if (info->nccl_version < SWL_NCCL_WINDOW_POINTERS)
        return ncclSuccess;
    symbol = dlsym(RTLD_DEFAULT, "ncclWinGetUserPtr");
    memcpy(&info->window_pointer, &symbol, sizeof(info->window_pointer));
    return ncclSuccess;
}

static void copy_config(struct ncclEpGroup *g, const struct swl_group_config *c)
{
    struct swl_group_info *info = &g->info;

    assert(info->nranks > 0);
    if (c->options)
        g->options = *c->options;
    info->algorithm = c->algorithm;
    info->level = c->level;
    info->nexperts = c->nexperts;
    info->nlocal = (uint32_t)swl_div_up(c->nexperts, info->nranks);
    info->max_tokens = c->max_tokens;
    info->recv_rows = c->recv_rows;
    info->max_token_bytes = c->max_token_bytes;
    info->max_topk = c->max_topk;
    info->zero_copy = c->zero_copy;
    info->overflow = c->overflow;
    info->enable_mask = c->enable_mask;
    info->regions = g->regions;
    g->memory.alloc = c->alloc;
    g->timeout_ns = g->options.timeout_ms ? g->options.timeout_ms * UINT64_C(1000000)
                    : c->timeout_ns       ? swl_min_u64(c->timeout_ns, SWL_MOST_TIMEOUT_NS)
                                          : SWL_BUILTIN_TIMEOUT_NS;
    g->setup_ns = g->options.setup_timeout_ms ? g->options.setup_timeout_ms * UINT64_C(1000000)
                                              : SWL_BUILTIN_SETUP_NS;
}

/* ---- memory, mappings, network ---- */

static ncclResult_t allocate_group(struct ncclEpGroup *g)
{
    SWL_TRY(swl_window_open(&g->window, g->plan.at.bytes));
    SWL_TRY(swl_window_start(&g->window, &g->plan.shape, g->boot.stream, g->setup_ns));
    SWL_TRY(swl_tables_open(&g->tables, &g->plan));
    SWL_TRY(swl_pool_open(g));
    swl_error_page_open(&g->error_page, &g->topology, g->info.rank);
    return SWL_CUDA(swl_gpu_event_create(&g->last));
}

/* Ends agreed. */
static ncclResult_t share_error_page(struct ncclEpGroup *g, struct swl_gpu_share *shares)
{
    ncclResult_t rc;

    g->boot.phase = "sharing host memory";
    rc = swl_bootstrap_allgather(&g->boot, &g->error_page.share, shares, sizeof(*shares));
    if (rc == ncclSuccess)
        rc = swl_error_page_join(&g->error_page, &g->topology, g->info.rank, shares);
    return swl_bootstrap_agree(&g->boot, rc, "sharing host memory");
}

/* Allocate, tell all ranks, map the peers of the node. Ends agreed. */
static ncclResult_t share_window(struct ncclEpGroup *g)
{
    struct swl_gpu_share *shares = calloc(g->info.nranks, sizeof(*shares));
    ncclResult_t rc = shares ? allocate_group(g) : swl_no_memory("the shares");

    rc = swl_bootstrap_agree(&g->boot, rc, "allocating");
    g->boot.phase = "sharing memory";
    if (rc == ncclSuccess)
        rc = swl_bootstrap_allgather(&g->boot, &g->window.share, shares, sizeof(*shares));
    if (rc == ncclSuccess && shares) {
        rc = swl_window_peers(&g->window, &g->topology, g->info.rank, shares);
        rc = swl_bootstrap_agree(&g->boot, rc, "mapping its peers");
        if (rc == ncclSuccess)
            rc = share_error_page(g, shares);
    }
    free(shares);
    return rc;
}

/* Collective if there are several nodes. */
static ncclResult_t connect_nodes(struct ncclEpGroup *g)
{
    const struct swl_shape *s = &g->plan.shape;
    const uint32_t nconnections = swl_group_nconnections(g);
    struct swl_rdma_connection *connections = calloc(nconnections, sizeof(*connections));
    void *tables = NULL;
    struct swl_nic_ib ib;
    struct swl_rdma_config config = {
        .rank = s->rank,
        .nranks = s->nranks,
        .device = g->info.device,
        .connections = connections,
        .nconnections = nconnections,
        .nics = g->options.nics,
        .window = g->window.base,
        .signal_bytes = g->plan.at.signal_bytes,
        .window_bytes = g->plan.at.bytes,
        .error_word = g->error_page.own,
        .timeout_ns = g->setup_ns,
        .silence_ns = g->timeout_ns,
        .driver = g->network,
        .settings = swl_nic_settings_of(&g->options, &ib),
        .gpu_blocks = g->plan.nic_blocks,
        .first_index = s->start_low,
        .allgather = swl_bootstrap_allgather,
        .context = &g->boot,
    };
    ncclResult_t rc = ncclSuccess;

    g->rdma_table_bytes = swl_rdma_table_bytes(nconnections);
    if (connections)
        rc = swl_device_malloc(&g->memory, &tables, g->rdma_table_bytes);
    else
        rc = swl_no_memory("%" PRIu32 " connections", nconnections);
    g->rdma_tables = tables;
    rc = swl_bootstrap_agree(&g->boot, rc, "listing its connections");
    if (rc == ncclSuccess && connections) {
        swl_group_fill_connections(g, connections);
        for (uint32_t i = 0; i < nconnections; i++)
            connections[i].driver = g->rank_drivers[connections[i].peer];
        config.tables = tables;
        g->boot.phase = "connecting";
        rc = swl_rdma_create(&g->rdma, &config);
    }
    free(connections);
    free(g->rank_drivers);
    g->rank_drivers = NULL;
    return rc;
}

/* Local: all that is left before the first kernel. */
static ncclResult_t start_group(struct ncclEpGroup *g)
{
    const struct swl_plan *plan = &g->plan;
    struct swl_tables_config config = {
        .plan = plan,
        .topology = &g->topology,
        .window = g->window.base,
        .peer_window = g->window.peer,
        .pinned = g->pinned,
        .error_word = g->error_page.own,
        .timeout_ns = g->timeout_ns,
        .setup_ns = g->setup_ns,
        .trap = g->info.overflow == NCCL_EP_OVERFLOW_TRAP,
    };

    if (g->rdma)
        config.net = *swl_rdma_view(g->rdma);
    SWL_TRY(swl_tables_fill(&g->tables, &config, g->boot.stream));
    for (uint32_t k = 0; k < SWL_KERNELS; k++)
        SWL_TRY(SWL_CUDA(swl_gpu_preload(swl_kernels[k], plan->shared_bytes[k])));
    return ncclSuccess;
}

static ncclResult_t build(struct ncclEpGroup *g, const struct swl_group_config *config,
                          ncclResult_t refused)
{
    bool agreed = false;
    ncclResult_t rc = swl_group_agree(g, config, refused, &agreed);

    if (!agreed)
        return rc;
    SWL_TRY(swl_bootstrap_agree(&g->boot, rc, "planning the group"));
    g->boot.grace_ns = g->boot.timeout_ns; /* the steps from here on wait themselves */
    SWL_TRY(swl_group_meet(g));
    SWL_TRY(share_window(g));
    if (g->topology.nnodes > 1)
        rc = connect_nodes(g);
    if (rc == ncclSuccess)
        rc = start_group(g);
    return swl_bootstrap_agree(&g->boot, rc, "connecting");
}

static ncclResult_t open_pinned(struct ncclEpGroup *g)
{
    void *pinned = NULL;

    SWL_TRY(SWL_CUDA(swl_gpu_mutex_create(&g->info.lock)));
    SWL_TRY(SWL_CUDA(swl_gpu_host_malloc(&pinned, sizeof(*g->pinned))));
    g->pinned = pinned;
    g->pinned->settled = swl_settled_word(0, SWL_FIRST_GENERATION);
    return read_version(&g->info);
}

/* Local: what the exchange itself needs, last and in any case, so that a failure can be told. */
static ncclResult_t open_group(struct ncclEpGroup *g)
{
    ncclResult_t rc;

    g->boot.comm = g->info.comm;
    g->boot.nranks = g->info.nranks;
    g->boot.rank = g->info.rank;
    g->boot.timeout_ns = g->setup_ns;
    g->boot.hosts = &g->hosts;
    g->hosts.rank = g->info.rank;
    g->hosts.nranks = g->info.nranks;
    g->hosts.timeout_ns = g->setup_ns;
    g->hosts.silence_ns = g->timeout_ns;
    g->boot.memory = g->tables.memory = &g->memory;
    g->hosts.quiet = true;
    rc = open_pinned(g);
    return swl_first_failure(rc, swl_bootstrap_open(&g->boot));
}

ncclResult_t swl_group_create(struct ncclEpGroup **group_p, ncclComm_t comm,
                              const struct swl_group_config *config, ncclResult_t refused)
{
    struct swl_group_info info = {0};
    struct ncclEpGroup *g;
    ncclResult_t rc = read_comm(&info, comm);

    if (rc != ncclSuccess)
        return swl_first_failure(refused, rc);
    g = swl_object_new(SWL_OBJECT_GROUP, sizeof(*g), "a group");
    if (!g)
        return ncclSystemError;
    g->info = info;
    g->next_offset = SWL_SHARED_GRANULE;
    copy_config(g, config);
    rc = open_group(g);
    if (g->boot.host) /* a rank that failed here tells the others */
        rc = build(g, config, swl_first_failure(refused, rc));
    if (rc != ncclSuccess) {
        (void)swl_group_release(g);
        return rc;
    }
    g->boot.grace_ns = 0;
    g->hosts.quiet = false;
    g->info.alive = SWL_GROUP_ALIVE;
    swl_log(SWL_LEVEL_INFO,
            "group: %" PRIu32 " ranks on %" PRIu32 " nodes, %" PRIu32 " channels, %" PRIu32
            " rings of %" PRIu32 " slots per node, %" PRIu32 " SMs and %" PRIu32
            " of the NIC, window of %" PRIu64 " bytes, shared by %s",
            info.nranks, g->topology.nnodes, g->plan.shape.nchannels, g->plan.shape.nrings,
            g->plan.shape.ring_slots, g->plan.nsms, g->plan.nic_blocks, g->plan.at.bytes,
            swl_gpu_shared_how(&g->window.share));
    *group_p = g;
    return ncclSuccess;
}
