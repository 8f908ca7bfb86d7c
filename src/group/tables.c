/* tables.c: build the device-side description of a rank. Layer: src/group; memory: tables.h. */
#include "src/group/tables.h"

#include "src/base/error.h"
#include "src/runtime/result.h"

#include <inttypes.h>
#include <string.h>

/* Byte offsets in the allocation. Up to `copied` the content comes from the host, the rest is
 * scratch of the route kernel and starts as zero. */
struct layout {
    uint64_t group, state;
#define ARRAY(type, name, count) uint64_t name;
#define HT_ARRAY(name, count)    uint64_t name;
#define POSITIONS(name, count)   uint64_t name;
#define COPIED_END               uint64_t copied;
#include "kernels/common/arrays.def"
    uint64_t bytes;
};

static struct layout layout_of(const struct swl_plan *plan)
{
    const struct swl_shape *s = &plan->shape;
    const uint64_t r = s->nranks, g = s->nlocal, n = swl_remote_nodes(s), j = s->nserved;
    const uint64_t np = n * s->nrings, jp = j * s->nrings;
    const uint64_t chunks = (uint64_t)plan->route.blocks * (plan->route.threads / 32);
    const uint64_t bins = swl_route_bins(s);
    struct layout l;
    uint64_t at = 0;

    l.group = swl_layout_reserve(&at, sizeof(struct swl_device_group));
    l.state = swl_layout_reserve(&at, sizeof(struct swl_state));
#define ARRAY(type, name, count) l.name = swl_layout_reserve(&at, (count) * sizeof(type));
#define HT_ARRAY(name, count)    POSITIONS(name, count)
#define POSITIONS(name, count)   l.name = swl_layout_reserve(&at, (count) * sizeof(uint64_t));
#define COPIED_END               l.copied = swl_layout_reserve(&at, 0);
#include "kernels/common/arrays.def"
    l.bytes = swl_layout_reserve(&at, 0);
    return l;
}

ncclResult_t swl_tables_open(struct swl_tables *tables, const struct swl_plan *plan)
{
    const struct layout l = layout_of(plan);
    void *device = NULL;

    SWL_TRY(swl_device_malloc(tables->memory, &device, l.bytes));
    tables->device = device;
    tables->bytes = l.bytes;
    tables->group = (const void *)(tables->device + l.group);
    tables->clears = (void *)(tables->device + l.state + offsetof(struct swl_state, clears));
    tables->shared = (void *)(tables->device + l.memory);
    return ncclSuccess;
}

ncclResult_t swl_tables_close(struct swl_tables *tables)
{
    ncclResult_t rc = swl_device_free(tables->memory, tables->device, tables->bytes);

    tables->device = NULL;
    return rc;
}

static struct swl_positions positions_at(char *out, char *in, const struct swl_shape *s)
{
    const uint64_t np = (uint64_t)swl_remote_nodes(s) * s->nrings;
    const uint64_t jp = (uint64_t)s->nserved * s->nrings;
    uint64_t *o = (void *)out, *i = (void *)in;

    return (struct swl_positions){
        .sent = o,
        .request_sent = o + np,
        .partial_recv = o + 2 * np,
        .partial_credited = o + 3 * np,
        .recv = i,
        .recv_credited = i + jp,
        .request_recv = i + 2 * jp,
        .request_credited = i + 3 * jp,
        .partial_sent = i + 4 * jp,
    };
}

void swl_tables_connection_words(const struct swl_plan *plan, uint32_t connection,
                                 uint64_t at[SWL_CONNECTION_WORDS])
{
    const struct swl_window *w = &plan->at;
    const uint32_t out = swl_remote_nodes(&plan->shape) * plan->shape.nrings;
    const uint64_t source[] = {w->ht.send_credit, w->ht.request_credit, w->ht.partial_tail,
                               w->ht.back_mark};
    const uint64_t gateway[] = {w->ht.recv_tail, w->ht.request_tail, w->ht.partial_credit,
                                w->ht.forth_mark};

    for (uint32_t i = 0; i < SWL_CONNECTION_WORDS; i++)
        at[i] = connection < out ? source[i] + 8ull * connection
                                 : gateway[i] + 8ull * (connection - out);
}

void swl_tables_connection_counts(const struct swl_tables *tables, const struct swl_plan *plan,
                                  uint32_t connection, uint64_t *counts[SWL_CONNECTION_WORDS][2])
{
    const struct layout l = layout_of(plan);
    const uint32_t out = swl_remote_nodes(&plan->shape) * plan->shape.nrings;
    const bool source = connection < out;
    const uint32_t i = source ? connection : connection - out;
    char *d = tables->device;

    for (uint32_t next = 0; next < 2; next++) {
        const struct swl_positions p = positions_at(
            d + (next ? l.out_next : l.out_now), d + (next ? l.in_next : l.in_now), &plan->shape);

        counts[0][next] = (source ? p.sent : p.recv_credited) + i;
        counts[1][next] = (source ? p.request_sent : p.request_credited) + i;
        counts[2][next] = (source ? p.partial_credited : p.partial_sent) + i;
        counts[3][next] = (uint64_t *)(void *)(d + (source ? l.forth_sent : l.back_sent)) + i;
    }
}

/* struct swl_device_group with addresses of the device. */
static void fill_group(struct swl_device_group *g, char *d, const struct layout *l,
                       const struct swl_tables_config *c)
{
    const struct swl_plan *plan = c->plan;

    g->shape = plan->shape;
    g->at = plan->at;
    g->window = c->window;
#define ARRAY(type, name, count) g->name = (void *)(d + l->name);
#define HT_ARRAY(name, count)    g->ht.name = (void *)(d + l->name);
#define POSITIONS(name, count)
#define COPIED_END
#include "kernels/common/arrays.def"
    g->net = c->net;
    g->state = (void *)(d + l->state);
    g->ht.now = positions_at(d + l->out_now, d + l->in_now, &plan->shape);
    g->ht.next = positions_at(d + l->out_next, d + l->in_next, &plan->shape);
    g->route_blocks = plan->route.blocks;
    g->route_warps = plan->route.threads / 32;
    g->record = &c->pinned->record;
    g->host_bits = &c->pinned->bits;
    g->host_dropped = &c->pinned->dropped;
    g->host_stop = &c->pinned->stop;
    g->host_settled = &c->pinned->settled;
    g->error_word = c->error_word;
    g->timeout_ns = c->timeout_ns;
    g->per_expert = ((1ull << 40) + plan->shape.nlocal_experts - 1) / plan->shape.nlocal_experts;
    g->trap = c->trap;
}

/* Who is where, and who serves whom. */
static void fill_places(char *h, const struct layout *l, const struct swl_tables_config *c)
{
    const struct swl_shape *s = &c->plan->shape;
    const struct swl_topology *t = c->topology;
    uint32_t *local_rank = (void *)(h + l->local_rank);
    uint32_t *gateway_local = (void *)(h + l->gateway_local);
    uint32_t *node_rank = (void *)(h + l->node_rank);
    uint32_t *rank_location = (void *)(h + l->rank_location);
    struct swl_ring_end *out = (void *)(h + l->out);
    struct swl_ring_end *in = (void *)(h + l->in);
    uint32_t j = 0;

    for (uint32_t i = 0; i < s->nlocal; i++)
        local_rank[i] = swl_topology_rank(t, s->node, i);
    for (uint32_t i = 0; i < s->nnodes * s->max_local; i++)
        node_rank[i] = SWL_NO_PEER;
    for (uint32_t r = 0; r < s->nranks; r++) {
        node_rank[t->rank_node[r] * s->max_local + t->rank_local[r]] = r;
        rank_location[r] = t->rank_node[r] << 16 | t->rank_local[r];
    }
    memcpy(h + l->rank_node, t->rank_node, sizeof(uint32_t) * s->nranks);
    for (uint32_t r = 0; r < s->nranks; r++) {
        const bool same_node = t->rank_node[r] == s->node;

        gateway_local[r] = t->rank_local[same_node ? r : swl_topology_gateway(t, r, s->node)];
        if (same_node || gateway_local[r] != s->local)
            continue;
        in[j++] = (struct swl_ring_end){
            .rank = r,
            .node = t->rank_node[r],
            .index = swl_topology_remote(t->rank_node[r], s->node),
            .local = t->rank_local[r],
        };
    }
    for (uint32_t n = 0; n < swl_remote_nodes(s); n++) {
        const uint32_t node = swl_topology_remote_node(s->node, n);
        const uint32_t rank = swl_topology_gateway(t, s->rank, node);

        out[n] = (struct swl_ring_end){
            .rank = rank,
            .node = node,
            .index = swl_topology_served_index(t, s->rank, node),
            .local = t->rank_local[rank],
        };
    }
}

static void fill_words(char *h, uint64_t at, uint64_t end, uint64_t value)
{
    for (; at + 8 <= end; at += 8)
        memcpy(h + at, &value, sizeof(value));
}

static void fill_state(char *h, const struct layout *l, const struct swl_shape *s)
{
    struct swl_state *state = (void *)(h + l->state);

    state->gen = SWL_FIRST_GENERATION;
    state->call = state->epoch = s->start_low;
    fill_words(h, l->out_now, l->forth_sent, s->start_low);
    fill_words(h, l->local_sent, l->partial_used, s->start_low);
}

ncclResult_t swl_tables_fill(struct swl_tables *tables, const struct swl_tables_config *config,
                             cudaStream_t stream)
{
    const struct layout l = layout_of(config->plan);
    void *mirror = NULL;
    ncclResult_t rc;
    char *h;

    SWL_TRY(SWL_CUDA(swl_gpu_host_malloc(&mirror, l.copied)));
    h = mirror;
    fill_group((void *)(h + l.group), tables->device, &l, config);
    memcpy(h + l.peer_window, config->peer_window,
           sizeof(*config->peer_window) * config->plan->shape.nlocal);
    fill_places(h, &l, config);
    fill_state(h, &l, &config->plan->shape);
    rc = SWL_CUDA(swl_gpu_copy(tables->device, h, l.copied, stream));
    if (rc == ncclSuccess)
        rc = SWL_CUDA(swl_gpu_fill(tables->device + l.copied, 0, l.bytes - l.copied, stream));
    if (rc == ncclSuccess)
        rc = SWL_CUDA(swl_gpu_stream_wait(stream, config->setup_ns));
    return swl_first_failure(rc, SWL_CUDA(swl_gpu_host_free(mirror)));
}
