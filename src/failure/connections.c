/* connections.c: the connections of a group to other nodes: which there are, with whom the hosts
 * are connected for their sake, and their repair after a failure.
 *
 * Layer: src/failure, implements part of group.h. The protocol of a repair is qp_recovery.h; here
 * is what it does to the queue pairs and to the positions of the rings. A queue pair in error has
 * lost adds that this rank counts as made. With both ends reset nothing is under way, so that the
 * words at the peer are what has come of them; this rank counts on from there, and the recovery of
 * the next kernel (resync.cuh) finds both ends agreed. */
#include "src/group/group.h"

#include "kernels/common/faults.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/memory.h"
#include "src/base/util.h"
#include "src/failure/qp_recovery.h"
#include "src/runtime/result.h"
#include "transport/nic.h"
#include "transport/rdma.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POLL_NS UINT64_C(50000)

static_assert(SWL_CONNECTION_WORDS == SWL_QP_RECOVERY_WORDS,
              "the words of a connection travel in one message");

/* ---- which connections ---- */

uint32_t swl_group_nconnections(const struct ncclEpGroup *g)
{
    const struct swl_shape *s = &g->plan.shape;

    return (swl_remote_nodes(s) + s->nserved) * s->nrings;
}

/* Ring x = n * P + p toward remote node n, then ring y = j * P + p from served source j; both ends
 * name a connection by its source and p. */
void swl_group_fill_connections(const struct ncclEpGroup *g,
                                struct swl_rdma_connection *connections)
{
    const struct swl_shape *s = &g->plan.shape;
    const struct swl_topology *t = &g->topology;
    uint32_t n = 0;

    for (uint32_t m = 0; m < s->nnodes; m++) {
        for (uint32_t p = 0; m != s->node && p < s->nrings; p++)
            connections[n++] = (struct swl_rdma_connection){
                .peer = swl_topology_gateway(t, s->rank, m),
                .key = (uint64_t)s->rank << 32 | p,
            };
    }
    for (uint32_t r = 0; r < s->nranks; r++) {
        const bool served =
            t->rank_node[r] != s->node && swl_topology_gateway(t, r, s->node) == s->rank;

        for (uint32_t p = 0; served && p < s->nrings; p++)
            connections[n++] =
                (struct swl_rdma_connection){.peer = r, .key = (uint64_t)r << 32 | p};
    }
}

/* ---- what a repair does ---- */

static ncclResult_t reset_queue_pair(void *context, uint32_t connection,
                                     struct swl_nic_address *mine_p)
{
    const struct ncclEpGroup *g = context;

    return swl_rdma_reset(g->rdma, connection, mine_p);
}

static ncclResult_t connect_queue_pair(void *context, uint32_t connection,
                                       const struct swl_nic_address *theirs)
{
    const struct ncclEpGroup *g = context;

    return swl_rdma_reconnect(g->rdma, connection, theirs);
}

/* Copies through the staging memory of the bootstrap, which nobody else uses now. */
static ncclResult_t wait_copies(struct ncclEpGroup *g)
{
    return SWL_CUDA(swl_gpu_stream_wait(g->boot.stream, g->timeout_ns));
}

static ncclResult_t read_words(void *context, uint32_t connection,
                               uint64_t words[SWL_QP_RECOVERY_WORDS])
{
    struct ncclEpGroup *g = context;
    uint64_t at[SWL_CONNECTION_WORDS];

    swl_tables_connection_words(&g->plan, connection, at);
    for (uint32_t i = 0; i < SWL_CONNECTION_WORDS; i++)
        SWL_TRY(SWL_CUDA(swl_gpu_copy(g->boot.host + 8ull * i, (char *)g->window.base + at[i], 8,
                                      g->boot.stream)));
    SWL_TRY(wait_copies(g));
    memcpy(words, g->boot.host, 8ull * SWL_CONNECTION_WORDS);
    return ncclSuccess;
}

static ncclResult_t adopt_words(void *context, uint32_t connection,
                                const uint64_t words[SWL_QP_RECOVERY_WORDS])
{
    struct ncclEpGroup *g = context;
    uint64_t *counts[SWL_CONNECTION_WORDS][2];

    swl_tables_connection_counts(&g->tables, &g->plan, connection, counts);
    memcpy(g->boot.host, words, 8ull * SWL_CONNECTION_WORDS);
    for (uint32_t i = 0; i < SWL_CONNECTION_WORDS; i++)
        for (uint32_t next = 0; next < 2; next++)
            SWL_TRY(SWL_CUDA(
                swl_gpu_copy(counts[i][next], g->boot.host + 8ull * i, 8, g->boot.stream)));
    return wait_copies(g);
}

static bool send_message(void *context, uint32_t rank, const struct swl_control_message *message)
{
    struct ncclEpGroup *g = context;

    return swl_host_news_send(&g->hosts, rank, message);
}

static const struct swl_qp_recovery_ops recovery_ops = {
    .reset = reset_queue_pair,
    .connect = connect_queue_pair,
    .read = read_words,
    .adopt = adopt_words,
    .send = send_message,
};

/* ---- with whom the hosts are connected ---- */

static ncclResult_t open_recovery(struct ncclEpGroup *g,
                                  const struct swl_rdma_connection *connections,
                                  uint32_t nconnections)
{
    struct swl_qp_recovery_connection *list =
        swl_calloc(nconnections, sizeof(*list), "%" PRIu32 " connections", nconnections);
    ncclResult_t rc;

    if (!list)
        return ncclSystemError;
    for (uint32_t i = 0; i < nconnections; i++)
        list[i] = (struct swl_qp_recovery_connection){.rank = connections[i].peer,
                                                      .key = connections[i].key};
    rc = swl_qp_recovery_open(&g->connections.recovery, &recovery_ops, g, list, nconnections);
    free(list);
    g->hosts.recovery = g->connections.recovery;
    return rc;
}

/* ranks[] has room for all; their number. */
static uint32_t list_hosts(const struct ncclEpGroup *g,
                           const struct swl_rdma_connection *connections, uint32_t nconnections,
                           bool *known, uint32_t *ranks)
{
    uint32_t n = 0;

    for (uint32_t r = 0; r < g->info.nranks; r++)
        known[r] = g->topology.rank_node[r] == g->plan.shape.node;
    for (uint32_t i = 0; i < nconnections; i++)
        known[connections[i].peer] = true;
    known[g->info.rank] = false;
    for (uint32_t r = 0; r < g->info.nranks; r++)
        if (known[r])
            ranks[n++] = r;
    return n;
}

static ncclResult_t connect_hosts(struct ncclEpGroup *g, struct swl_rdma_connection *connections,
                                  uint32_t nconnections, bool *known, uint32_t *ranks)
{
    if (nconnections)
        swl_group_fill_connections(g, connections);
    SWL_TRY(swl_host_news_connect(&g->hosts, ranks,
                                  list_hosts(g, connections, nconnections, known, ranks)));
    return nconnections ? open_recovery(g, connections, nconnections) : ncclSuccess;
}

static ncclResult_t meet(struct ncclEpGroup *g)
{
    const uint32_t nranks = g->info.nranks;
    const uint32_t nconnections = g->topology.nnodes > 1 ? swl_group_nconnections(g) : 0;
    struct swl_rdma_connection *connections = calloc(nconnections + 1u, sizeof(*connections));
    uint32_t *ranks = calloc(nranks, sizeof(*ranks));
    bool *known = calloc(nranks, sizeof(*known));
    ncclResult_t rc;

    if (connections && ranks && known)
        rc = connect_hosts(g, connections, nconnections, known, ranks);
    else
        rc = swl_no_memory("%" PRIu32 " connections", nconnections);
    free(connections);
    free(ranks);
    free(known);
    return rc;
}

/* Where it fails, a rank waits in the exchange behind it for what the others have left of the
 * limit, and the limit of the exchange: twice the limit since this rank came, whether it waited for
 * others or failed at once. The others may wait for it that long, and a rank may come later than
 * all by less than the limit; so nobody takes a rank for missing that is still within its time. */
ncclResult_t swl_group_meet(struct ncclEpGroup *g)
{
    const uint64_t came = swl_gpu_now_ns();
    ncclResult_t rc;

    if (!g->hosts.control) /* on all ranks or on none */
        return ncclSuccess;
    rc = meet(g);
    if (rc != ncclSuccess)
        g->boot.grace_ns = g->setup_ns - swl_min_u64(swl_gpu_now_ns() - came, g->setup_ns);
    return swl_bootstrap_agree(&g->boot, rc, "making the control connections");
}

/* ---- repair ---- */

static void tell_broken(struct ncclEpGroup *g, uint64_t gen, uint32_t connection,
                        const struct swl_nic_qp_status *s)
{
    const uint32_t peer = swl_qp_recovery_rank(g->connections.recovery, connection);
    const struct swl_notice notice = {
        .word = swl_poison_word(gen, peer),
        .kind = SWL_FAULT_COMPLETION,
        .peer = peer,
        .expected = s->index,
        .seen = (uint64_t)s->qpn << 8 | s->syndrome,
    };

    swl_host_news_broadcast(&g->hosts, &notice);
}

/* broken[connection], or NULL; the other ranks hear of the first one. */
static ncclResult_t find_broken(struct ncclEpGroup *g, uint64_t gen, bool *broken, bool *any_p)
{
    const uint32_t nconnections = swl_group_nconnections(g);

    *any_p = false;
    for (uint32_t i = 0; i < nconnections; i++) {
        struct swl_nic_qp_status status;

        SWL_TRY(swl_rdma_query(g->rdma, i, &status));
        if (broken)
            broken[i] = status.state == SWL_NIC_QP_ERROR;
        if (status.state == SWL_NIC_QP_ERROR && !*any_p)
            tell_broken(g, gen, i, &status);
        *any_p = *any_p || status.state == SWL_NIC_QP_ERROR;
    }
    return ncclSuccess;
}

ncclResult_t swl_group_check_connections(struct ncclEpGroup *g, uint64_t gen, bool again)
{
    struct swl_connections *l = &g->connections;
    bool done = !g->enqueued, any;

    if (!l->recovery || !g->rdma || (gen <= l->looked && !again))
        return ncclSuccess;
    if (!done)
        SWL_TRY(SWL_CUDA(swl_gpu_event_done(g->last, &done)));
    if (!done)
        return ncclSuccess;
    l->looked = gen;
    return find_broken(g, gen, NULL, &any);
}

void swl_group_suspect(struct ncclEpGroup *g, uint64_t gen)
{
    g->connections.unrepaired = false;
    g->connections.suspect = true;
    g->connections.gen = swl_max_u64(g->connections.gen, gen);
}

static ncclResult_t rounds(struct ncclEpGroup *g)
{
    const uint64_t end = swl_gpu_now_ns() + g->timeout_ns;
    bool done = false;

    for (;;) {
        swl_host_news_poll(&g->hosts);
        SWL_TRY(swl_qp_recovery_step(g->connections.recovery, &done));
        if (done)
            return ncclSuccess;
        if (swl_gpu_now_ns() >= end)
            return swl_qp_recovery_expire(g->connections.recovery, g->timeout_ns);
        swl_gpu_sleep_ns(POLL_NS);
    }
}

static ncclResult_t recover_queue_pairs(struct ncclEpGroup *g, bool *broken)
{
    struct swl_connections *l = &g->connections;
    bool any;
    ncclResult_t rc;

    SWL_TRY(swl_group_drain(g));
    SWL_TRY(find_broken(g, l->gen, broken, &any));
    /* a peer may know of one that looks healthy here */
    if (!any && !swl_qp_recovery_asked(l->recovery) && g->hosts.broken <= l->repaired) {
        l->suspect = false;
        return ncclSuccess;
    }
    swl_qp_recovery_begin(l->recovery, broken, l->gen);
    /* who has a queue pair in error has told the ranks at the other ends of all of its */
    any = any || swl_host_news_reports(&g->hosts, g->info.rank, l->repaired);
    for (uint32_t r = 0; r < g->info.nranks && !any; r++)
        if (!swl_host_news_reports(&g->hosts, r, l->repaired))
            swl_qp_recovery_skip(l->recovery, r);
    rc = rounds(g);
    l->suspect = rc != ncclSuccess;
    if (rc == ncclSuccess) {
        l->repaired = swl_max_u64(l->gen, g->hosts.broken);
        swl_log(SWL_LEVEL_WARN,
                "group: rank %" PRIu32 " has connected its queue pairs in error anew",
                g->info.rank);
    }
    return rc;
}

ncclResult_t swl_group_repair(struct ncclEpGroup *g, cudaStream_t stream)
{
    struct swl_connections *l = &g->connections;
    bool *broken, capturing = false;
    ncclResult_t rc;

    if (!l->suspect || !l->recovery || !g->rdma)
        return ncclSuccess;
    SWL_TRY(SWL_CUDA(swl_gpu_stream_capturing(stream, &capturing)));
    if (capturing)
        return swl_fail(ncclInvalidUsage,
                        "the first call after ncclEpErrorClear looks at the queue pairs, which a "
                        "captured call cannot");
    broken =
        swl_calloc(swl_group_nconnections(g), sizeof(*broken), "the states of the connections");
    if (!broken)
        return ncclSystemError;
    rc = recover_queue_pairs(g, broken);
    free(broken);
    if (rc == ncclSuccess)
        return rc;
    l->unrepaired = true;
    snprintf(l->why, sizeof(l->why), "%s", swl_last_error());
    return rc;
}
