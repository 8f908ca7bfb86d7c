/* simt_warp.cc: what lanes do to each other: collectives of a warp, barriers of a block, pauses,
 * position. Layer: sim, the core's side of device.h; runs on lane fibers. */
#include "sim/simt_core.h"

#include <algorithm>

namespace simt
{
namespace
{

Lane *lane_self(void)
{
    return static_cast<Lane *>(worker_self()->now);
}

uint64_t result_of(const Warp *w, const Lane *l)
{
    int from = l->src & 31;

    switch (l->op) {
    case SIMT_OP_SHFL_UP:
        from = l->id - l->src;
        if (from < 0)
            from = l->id;
        break;
    case SIMT_OP_SHFL_XOR:
        from = l->id ^ (l->src & 31);
        break;
    default:
        break;
    }
    return w->lane[from].value;
}

bool same_place(const Lane &a, const Lane &b)
{
    return a.op == b.op && a.line == b.line &&
           (a.file == b.file || !__builtin_strcmp(a.file, b.file));
}

/* All lanes of the warp have come: answers for all. */
void collective_finish(Warp *w)
{
    uint64_t answer[32];
    uint32_t votes = 0;
    const Lane &first = w->lane[0];

    for (int i = 0; i < 32; i++) {
        if (!same_place(w->lane[i], first)) {
            Fault f =
                fault_here("lanes of a warp meet in different collectives", first.file, first.line);

            f.lane = 0;
            f.other_file = w->lane[i].file;
            f.other_line = w->lane[i].line;
            f.other_gpu = -1;
            fault_note(f);
            worker_fail("divergent collective");
        }
        votes |= static_cast<uint32_t>(w->lane[i].value != 0) << i;
    }
    for (int i = 0; i < 32; i++) {
        switch (first.op) {
        case SIMT_OP_BALLOT:
            answer[i] = votes;
            break;
        case SIMT_OP_ALL:
            answer[i] = votes == ~0u;
            break;
        case SIMT_OP_ANY:
            answer[i] = votes != 0;
            break;
        default:
            answer[i] = result_of(w, &w->lane[i]);
        }
    }
    for (int i = 0; i < 32; i++) {
        w->lane[i].value = answer[i];
        w->lane[i].op = SIMT_OP_NONE;
        w->lane[i].wakes = w->wakes;
    }
    w->run |= w->waiting;
    w->waiting = 0;
}

void barrier_finish(Block *b, int id)
{
    Worker *k = worker_self();

    b->barrier[id].arrived = 0;
    for (int i = 0; i < b->warps; i++) {
        Warp *w = &b->warp[i];

        for (uint32_t m = w->waiting; m; m &= m - 1) {
            Lane &l = w->lane[__builtin_ctz(m)];

            if ((l.op == SIMT_OP_BLOCK_SYNC || l.op == SIMT_OP_NAMED_SYNC) && l.src == id) {
                w->waiting &= ~(1u << l.id);
                w->run |= 1u << l.id;
                l.op = SIMT_OP_NONE;
            }
        }
        if (w->run)
            unit_ready(k, w);
    }
}

void wait_in(Lane *l, int op, const char *file, int line)
{
    Warp *w = l->warp;

    l->op = static_cast<uint8_t>(op);
    l->file = file;
    l->line = line;
    l->activity++;
    w->run &= ~(1u << l->id);
    w->waiting |= 1u << l->id;
}

} // namespace

void barrier_lane_exited(Block *b)
{
    Barrier &barrier = b->barrier[0];

    if (barrier.arrived && barrier.arrived + b->exited == b->lanes)
        barrier_finish(b, 0);
}

} // namespace simt

using namespace simt;

int simt_dev_lane(void)
{
    return lane_self()->id;
}
int simt_dev_warp(void)
{
    return lane_self()->warp->id;
}
int simt_dev_warps(void)
{
    return lane_self()->warp->block->warps;
}
int simt_dev_block(void)
{
    return lane_self()->warp->block->id;
}
int simt_dev_blocks(void)
{
    return lane_self()->warp->block->grid->start.blocks;
}
void *simt_dev_shared(void)
{
    return lane_self()->warp->block->shared->data;
}

uint64_t simt_dev_shared_bytes(void)
{
    return lane_self()->warp->block->grid->start.shared_bytes;
}
uint64_t simt_dev_clock(void)
{
    Lane *l = lane_self();

    if (worker_self()->background) /* time that passes by itself */
        return simt_now_ns();
    /* A loop on time alone gets somewhere: all of the run, which is quick, or this lane alone. */
    if (!config.timed)
        return ++virtual_ns;
    l->clock_ns = std::max(l->clock_ns + 1, simt_now_ns());
    return l->clock_ns;
}

uint64_t simt_dev_collective(int op, uint64_t value, int src, const char *file, int line)
{
    Lane *l = lane_self();
    Warp *w = l->warp;

    simt_dev_point();
    l->value = value;
    l->src = src;
    wait_in(l, op, file, line);
    if (w->waiting == w->all)
        collective_finish(w);
    else
        actor_leave(l);
    return l->value;
}

void simt_dev_block_sync(const char *file, int line)
{
    Lane *l = lane_self();
    Block *b = l->warp->block;

    simt_dev_point();
    l->src = 0;
    wait_in(l, SIMT_OP_BLOCK_SYNC, file, line);
    if (++b->barrier[0].arrived + b->exited == b->lanes)
        barrier_finish(b, 0);
    else
        actor_leave(l);
}

void simt_dev_named_sync(int id, int threads, const char *file, int line)
{
    Lane *l = lane_self();
    Block *b = l->warp->block;

    simt_dev_point();
    if (id < 1 || id >= kBarriers || threads < 32 || threads % 32 || threads > b->lanes) {
        fault_note(fault_here("named_sync with a wrong id or thread count", file, line));
        worker_fail("wrong named barrier");
    }
    Barrier &barrier = b->barrier[id];

    l->src = id;
    wait_in(l, SIMT_OP_NAMED_SYNC, file, line);
    if (barrier.arrived == 0) {
        barrier.threads = threads;
        barrier.first = l;
    } else if (barrier.threads != threads) {
        Fault f = fault_here("threads of a named barrier disagree about its size", file, line);

        f.other_file = barrier.first->file;
        f.other_line = barrier.first->line;
        f.other_gpu = -1;
        fault_note(f);
        worker_fail("named barrier of two sizes");
    }
    if (++barrier.arrived == threads)
        barrier_finish(b, id);
    else
        actor_leave(l);
}

void *simt_dev_token(int token)
{
    Actor *a = worker_self()->now;

    if (!a->warp)
        return a; /* engines: a token that nobody else has */
    switch (token) {
    case SIMT_TOKEN_WARP:
        return &a->warp->token;
    case SIMT_TOKEN_SHARED_PROXY:
        return &a->warp->block->shared_proxy;
    case SIMT_TOKEN_LANE_PROXY:
        return &static_cast<Lane *>(a)->proxy_token;
    default:
        return &a->warp->block->barrier[token - SIMT_TOKEN_BLOCK].token;
    }
}
