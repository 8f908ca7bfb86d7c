/* links.c: the links of a group to other nodes: which there are, with whom the hosts are connected for
 * their sake, and their repair after a failure.
 *
 * Layer: src/failure, implements part of group.h. The protocol of a repair is mend.h; here is what
 * it does to the queue pairs and to the positions of the rings. A queue pair in error has lost adds
 * that this rank counts as made. With both ends reset nothing is under way, so that the words at
 * the peer are what has come of them; this rank counts on from there, and the recovery of the next
 * kernel (resync.cuh) finds both ends agreed. */
#include "src/group/group.h"

#include "kernels/common/faults.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/memory.h"
#include "src/base/util.h"
#include "src/failure/mend.h"
#include "src/runtime/result.h"
#include "transport/nic.h"
#include "transport/rdma.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POLL_NS UINT64_C(50000)

static_assert(SWL_LINK_WORDS == SWL_MEND_WORDS, "the words of a link travel in one message");

/* ---- which links ---- */

uint32_t swl_group_nlinks(const struct ncclEpGroup *g)
{
    const struct swl_shape *s = &g->plan.shape;

    return (swl_remote_nodes(s) + s->nserved) * s->nrings;
}

/* Ring x = n * P + p toward remote node n, then ring y = j * P + p from served source j; both ends
 * name a link by its source and p. */
void swl_group_fill_links(const struct ncclEpGroup *g, struct swl_rdma_link *links)
{
    const struct swl_shape *s = &g->plan.shape;
    const struct swl_topology *t = &g->topology;
    uint32_t n = 0;

    for (uint32_t m = 0; m < s->nnodes; m++) {
        for (uint32_t p = 0; m != s->node && p < s->nrings; p++)
            links[n++] = (struct swl_rdma_link){
                .peer = swl_topology_gateway(t, s->rank, m),
                .key = (uint64_t)s->rank << 32 | p,
            };
    }
    for (uint32_t r = 0; r < s->nranks; r++) {
        const bool served =
            t->rank_node[r] != s->node && swl_topology_gateway(t, r, s->node) == s->rank;

        for (uint32_t p = 0; served && p < s->nrings; p++)
            links[n++] = (struct swl_rdma_link){.peer = r, .key = (uint64_t)r << 32 | p};
    }
}

/* ---- what a repair does ---- */

static ncclResult_t reset_link(void *context, uint32_t link, struct swl_nic_address *mine_p)
{
    const struct ncclEpGroup *g = context;

    return swl_rdma_reset(g->rdma, link, mine_p);
}

static ncclResult_t connect_link(void *context, uint32_t link, const struct swl_nic_address *theirs)
{
    const struct ncclEpGroup *g = context;

    return swl_rdma_reconnect(g->rdma, link, theirs);
}

/* Copies through the staging memory of the bootstrap, which nobody else uses now. */
static ncclResult_t wait_copies(struct ncclEpGroup *g)
{
    return SWL_CUDA(swl_gpu_stream_wait(g->boot.stream, g->timeout_ns));
}

static ncclResult_t read_words(void *context, uint32_t link, uint64_t words[SWL_MEND_WORDS])
{
    struct ncclEpGroup *g = context;
    uint64_t at[SWL_LINK_WORDS];

    swl_tables_link_words(&g->plan, link, at);
    for (uint32_t i = 0; i < SWL_LINK_WORDS; i++)
        SWL_TRY(SWL_CUDA(swl_gpu_copy(g->boot.host + 8ull * i, (char *)g->window.base + at[i], 8,
                                      g->boot.stream)));
    SWL_TRY(wait_copies(g));
    memcpy(words, g->boot.host, 8ull * SWL_LINK_WORDS);
    return ncclSuccess;
}

static ncclResult_t adopt_words(void *context, uint32_t link, const uint64_t words[SWL_MEND_WORDS])
{
    struct ncclEpGroup *g = context;
    uint64_t *counts[SWL_LINK_WORDS][2];

    swl_tables_link_counts(&g->tables, &g->plan, link, counts);
    memcpy(g->boot.host, words, 8ull * SWL_LINK_WORDS);
    for (uint32_t i = 0; i < SWL_LINK_WORDS; i++)
        for (uint32_t next = 0; next < 2; next++)
            SWL_TRY(SWL_CUDA(
                swl_gpu_copy(counts[i][next], g->boot.host + 8ull * i, 8, g->boot.stream)));
    return wait_copies(g);
}

static bool send_message(void *context, uint32_t rank, const struct swl_oob_message *message)
{
    struct ncclEpGroup *g = context;

    return swl_peers_send(&g->peers, rank, message);
}

static const struct swl_mend_ops link_ops = {
    .reset = reset_link,
    .connect = connect_link,
    .read = read_words,
    .adopt = adopt_words,
    .send = send_message,
};

/* ---- with whom the hosts are connected ---- */

static ncclResult_t open_mend(struct ncclEpGroup *g, const struct swl_rdma_link *links,
                              uint32_t nlinks)
{
    struct swl_mend_link *list = swl_calloc(nlinks, sizeof(*list), "%" PRIu32 " links", nlinks);
    ncclResult_t rc;

    if (!list)
        return ncclSystemError;
    for (uint32_t i = 0; i < nlinks; i++)
        list[i] = (struct swl_mend_link){.rank = links[i].peer, .key = links[i].key};
    rc = swl_mend_open(&g->links.mend, &link_ops, g, list, nlinks);
    free(list);
    g->peers.mend = g->links.mend;
    return rc;
}

/* ranks[] has room for all; their number. */
static uint32_t list_peers(const struct ncclEpGroup *g, const struct swl_rdma_link *links,
                           uint32_t nlinks, bool *known, uint32_t *ranks)
{
    uint32_t n = 0;

    for (uint32_t r = 0; r < g->info.nranks; r++)
        known[r] = g->topology.rank_node[r] == g->plan.shape.node;
    for (uint32_t i = 0; i < nlinks; i++)
        known[links[i].peer] = true;
    known[g->info.rank] = false;
    for (uint32_t r = 0; r < g->info.nranks; r++)
        if (known[r])
            ranks[n++] = r;
    return n;
}

static ncclResult_t connect_hosts(struct ncclEpGroup *g, struct swl_rdma_link *links,
                                  uint32_t nlinks, bool *known, uint32_t *ranks)
{
    if (nlinks)
        swl_group_fill_links(g, links);
    SWL_TRY(swl_peers_connect(&g->peers, ranks, list_peers(g, links, nlinks, known, ranks)));
    return nlinks ? open_mend(g, links, nlinks) : ncclSuccess;
}

static ncclResult_t meet(struct ncclEpGroup *g)
{
    const uint32_t nranks = g->info.nranks;
    const uint32_t nlinks = g->topology.nnodes > 1 ? swl_group_nlinks(g) : 0;
    struct swl_rdma_link *links = calloc(nlinks + 1u, sizeof(*links));
    uint32_t *ranks = calloc(nranks, sizeof(*ranks));
    bool *known = calloc(nranks, sizeof(*known));
    ncclResult_t rc;

    if (links && ranks && known)
        rc = connect_hosts(g, links, nlinks, known, ranks);
    else
        rc = swl_no_memory("%" PRIu32 " links", nlinks);
    free(links);
    free(ranks);
    free(known);
    return rc;
}

/* Where it fails, a rank waits in the exchange behind it for what the others have left of the limit, and the
 * limit of the exchange: twice the limit since this rank came, whether it waited for others or failed at once.
 * The others may wait for it that long, and a rank may come later than all by less than the limit; so nobody
 * takes a rank for missing that is still within its time. */
ncclResult_t swl_group_meet(struct ncclEpGroup *g)
{
    const uint64_t came = swl_gpu_now_ns();
    ncclResult_t rc;

    if (!g->peers.oob) /* on all ranks or on none */
        return ncclSuccess;
    rc = meet(g);
    if (rc != ncclSuccess)
        g->boot.grace_ns = g->setup_ns - swl_min_u64(swl_gpu_now_ns() - came, g->setup_ns);
    return swl_bootstrap_agree(&g->boot, rc, "making the control connections");
}

/* ---- repair ---- */

static void tell_broken(struct ncclEpGroup *g, uint64_t gen, uint32_t link,
                        const struct swl_nic_qp_status *s)
{
    const uint32_t peer = swl_mend_rank(g->links.mend, link);
    const struct swl_notice notice = {
        .word = swl_poison_word(gen, peer),
        .kind = SWL_FAULT_COMPLETION,
        .peer = peer,
        .expected = s->index,
        .seen = (uint64_t)s->qpn << 8 | s->syndrome,
    };

    swl_peers_tell(&g->peers, &notice);
}

/* broken[link], or NULL; the other ranks hear of the first one. */
static ncclResult_t find_broken(struct ncclEpGroup *g, uint64_t gen, bool *broken, bool *any_p)
{
    const uint32_t nlinks = swl_group_nlinks(g);

    *any_p = false;
    for (uint32_t i = 0; i < nlinks; i++) {
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

ncclResult_t swl_group_look_at_links(struct ncclEpGroup *g, uint64_t gen, bool again)
{
    struct swl_links *l = &g->links;
    bool done = !g->enqueued, any;

    if (!l->mend || !g->rdma || (gen <= l->looked && !again))
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
    g->links.unmended = false;
    g->links.suspect = true;
    g->links.gen = swl_max_u64(g->links.gen, gen);
}

static ncclResult_t rounds(struct ncclEpGroup *g)
{
    const uint64_t end = swl_gpu_now_ns() + g->timeout_ns;
    bool done = false;

    for (;;) {
        swl_peers_look(&g->peers);
        SWL_TRY(swl_mend_step(g->links.mend, &done));
        if (done)
            return ncclSuccess;
        if (swl_gpu_now_ns() >= end)
            return swl_mend_expire(g->links.mend, g->timeout_ns);
        swl_gpu_sleep_ns(POLL_NS);
    }
}

static ncclResult_t mend(struct ncclEpGroup *g, bool *broken)
{
    struct swl_links *l = &g->links;
    bool any;
    ncclResult_t rc;

    SWL_TRY(swl_group_drain(g));
    SWL_TRY(find_broken(g, l->gen, broken, &any));
    /* a peer may know of one that looks healthy here */
    if (!any && !swl_mend_asked(l->mend) && g->peers.broken <= l->mended) {
        l->suspect = false;
        return ncclSuccess;
    }
    swl_mend_begin(l->mend, broken, l->gen);
    /* who has a queue pair in error has told the ranks at the other ends of all of its */
    any = any || swl_peers_reports(&g->peers, g->info.rank, l->mended);
    for (uint32_t r = 0; r < g->info.nranks && !any; r++)
        if (!swl_peers_reports(&g->peers, r, l->mended))
            swl_mend_spare(l->mend, r);
    rc = rounds(g);
    l->suspect = rc != ncclSuccess;
    if (rc == ncclSuccess) {
        l->mended = swl_max_u64(l->gen, g->peers.broken);
        swl_log(SWL_LEVEL_WARN,
                "group: rank %" PRIu32 " has connected its queue pairs in error anew",
                g->info.rank);
    }
    return rc;
}

ncclResult_t swl_group_repair(struct ncclEpGroup *g, cudaStream_t stream)
{
    struct swl_links *l = &g->links;
    bool *broken, capturing = false;
    ncclResult_t rc;

    if (!l->suspect || !l->mend || !g->rdma)
        return ncclSuccess;
    SWL_TRY(SWL_CUDA(swl_gpu_stream_capturing(stream, &capturing)));
    if (capturing)
        return swl_fail(ncclInvalidUsage,
                        "the first call after ncclEpErrorClear looks at the queue pairs, which a "
                        "captured call cannot");
    broken = swl_calloc(swl_group_nlinks(g), sizeof(*broken), "the states of the links");
    if (!broken)
        return ncclSystemError;
    rc = mend(g, broken);
    free(broken);
    if (rc == ncclSuccess)
        return rc;
    l->unmended = true;
    snprintf(l->why, sizeof(l->why), "%s", swl_last_error());
    return rc;
}
