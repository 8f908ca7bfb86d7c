/* simt_grid.cc: life of grids and blocks: start, residency, shared memory, end. Layer: sim,
 * internal; runs on the scheduler. A grid's blocks start only when all of them fit on the GPU
 * (cooperative), then one by one. */
#include "sim/simt_core.h"

#include <new>

namespace simt
{
namespace
{

constexpr size_t kSharedTail = 4096; /* poisoned for ASan */
Lock shared_lock;
Array<SharedMemory *> &shared_free = *new Array<SharedMemory *>; /* never destroyed */
int shared_free_kib;
uint64_t grid_serials;

size_t shared_bytes_max(void)
{
    return static_cast<size_t>(config.shared_kib) * 1024;
}

SharedMemory *shared_take(size_t bytes)
{
    SharedMemory *s = nullptr;

    {
        Hold hold(shared_lock);

        if (shared_free_kib != config.shared_kib) {
            shared_free.clear();
            shared_free_kib = config.shared_kib;
        }
        if (!shared_free.empty()) {
            s = shared_free.pop_back();
        }
    }
    if (!s) {
        s = static_cast<SharedMemory *>(arena_get(sizeof(*s)));
        s->data = static_cast<char *>(arena_get(shared_bytes_max() + kSharedTail));
    }
    if (__asan_unpoison_memory_region) {
        __asan_unpoison_memory_region(s->data, bytes);
        __asan_poison_memory_region(s->data + bytes, shared_bytes_max() + kSharedTail - bytes);
    }
    fill_unseen(s->data, 0xA5, bytes);
    return s;
}

void lane_main(void)
{
    fiber_arrived();
    Lane *l = static_cast<Lane *>(worker_self()->now);
    Block *b = l->warp->block;
    Grid *g = b->grid;

    order_acquire(&g->start_token);
    order_acquire(&b->shared->token);
    g->start.body(g->start.args);
    order_release(&b->shared->token);
    order_release(&g->end_token);

    Warp *w = l->warp;

    w->run &= ~(1u << l->id);
    w->done |= 1u << l->id;
    b->exited++;
    barrier_lane_exited(b);
    for (;;)
        actor_leave(l);
}

void lane_create(Warp *w, int id)
{
    Lane *l = &w->lane[id];

    l->warp = w;
    l->id = static_cast<uint8_t>(id);
    l->gpu = w->block->grid->start.gpu;
    l->ordered = -1;
    l->load_fence = l->store_fence = data_clock();
    fiber_create(&l->fiber, false, lane_main);
}

Block *block_create(Grid *g, int id)
{
    Block *b = static_cast<Block *>(arena_get(sizeof(*b)));

    b->grid = g;
    b->id = id;
    b->lanes = g->start.threads;
    b->warps = b->warps_left = b->lanes / 32;
    b->shared = shared_take(g->start.shared_bytes);
    b->shared_stored =
        static_cast<uint64_t *>(arena_get(g->start.shared_bytes / 16 * sizeof(uint64_t) + 8));
    b->warp = static_cast<Warp *>(arena_get(b->warps * sizeof(Warp)));
    for (int i = 0; i < b->warps; i++) {
        Warp *w = new (&b->warp[i]) Warp();

        w->block = b;
        w->id = i;
        w->all = w->run = ~0u;
        w->deadline = w->due = kNever;
        for (int lane = 0; lane < 32; lane++)
            lane_create(w, lane);
    }
    return b;
}

void lane_free(Worker *k, Lane *l)
{
    if (fiber_overflowed(&l->fiber)) {
        Fault f = {};

        f.text = "a lane used more than its stack";
        f.gpu = l->gpu;
        f.grid = l->warp->block->grid->start.name;
        f.block = l->warp->block->id;
        f.warp = l->warp->id;
        f.lane = l->id;
        fault_note(f);
    }
    if (l->id == 0) {
        size_t high = fiber_high_water(&l->fiber);

        if (high > k->stats.stack_high_bytes)
            k->stats.stack_high_bytes = high;
    }
    if (l->polls.spill)
        arena_put(l->polls.spill, sizeof(*l->polls.spill));
    fiber_recycle(&l->fiber, false);
}

void block_free(Worker *k, Block *b)
{
    bulk_block_ended(k, b);
    for (int i = 0; i < b->warps; i++)
        for (Lane &l : b->warp[i].lane)
            lane_free(k, &l);
    {
        Hold hold(shared_lock);

        shared_free.push_back(b->shared);
    }
    arena_put(b->shared_stored, b->grid->start.shared_bytes / 16 * sizeof(uint64_t) + 8);
    arena_put(b->warp, b->warps * sizeof(Warp));
    arena_put(b, sizeof(*b));
}

void grid_ended(Worker *k, Grid *g)
{
    gpus[g->start.gpu].resident -= g->start.blocks;
    for (size_t i = 0; i < k->grids.size(); i++)
        if (k->grids[i] == g) {
            k->grids.remove(i);
            break;
        }
    if (g->start.done) {
        HostSide side(g->start.gpu);

        order_acquire(&g->end_token);
        g->start.done(g->start.done_arg);
    }
    order_acquire(&g->end_token); /* lanes have read the arguments */
    delete g;
    k->stores++; /* something moved: look at parked units again */
}

void grid_begin(Worker *k, Grid *g)
{
    Gpu &gpu = gpus[g->start.gpu];

    gpu.resident += g->start.blocks;
    g->blocks_left = g->start.blocks;
    k->grids.push_back(g);
    for (int i = 0; i < g->start.blocks; i++) {
        Block *b = block_create(g, i);
        /* a fuzzed run starts blocks late, some very late */
        uint64_t late = config.seed ? random_tail(k, 12) : 0;

        g->block.push_back(b);
        for (int w = 0; w < b->warps; w++) {
            if (late)
                b->warp[w].asleep = k->step + late;
            unit_ready(k, &b->warp[w]);
        }
    }
    uint64_t fibers = k->tasks.size();

    for (Grid *other : k->grids)
        fibers += static_cast<uint64_t>(other->start.blocks) * other->start.threads;
    if (fibers > k->stats.fibers_peak)
        k->stats.fibers_peak = fibers;
    k->stats.grids++;
}

} // namespace

Grid *grid_create(const struct simt_grid *start)
{
    Grid *g = new Grid();
    const char *args = static_cast<const char *>(start->args);

    g->start = *start;
    for (size_t i = 0; i < start->args_bytes; i++)
        g->args.push_back(args[i]);
    g->start.args = g->args.begin();
    g->serial = __atomic_add_fetch(&grid_serials, 1, __ATOMIC_RELAXED);
    order_release(&g->start_token);
    return g;
}

void grids_admit(Worker *k)
{
    for (size_t i = 0; i < k->waiting_grids.size();) {
        Grid *g = k->waiting_grids[i];

        if (gpus[g->start.gpu].resident + g->start.blocks > config.nsms) {
            i++;
            continue;
        }
        k->waiting_grids.remove(i);
        grid_begin(k, g);
    }
}

void warp_ended(Worker *k, Warp *w)
{
    Block *b = w->block;
    Grid *g = b->grid;

    if (--b->warps_left)
        return;
    g->block[static_cast<size_t>(b->id)] = nullptr;
    block_free(k, b);
    if (--g->blocks_left == 0)
        grid_ended(k, g);
}

/* After a failed run: nothing of it is ever resumed. Memory of blocks is not given back: engines
 * and tables may know it. */
void grids_abandon(Worker *k)
{
    for (Grid *g : k->grids) {
        gpus[g->start.gpu].resident -= g->start.blocks;
        for (Block *b : g->block)
            for (int i = 0; b && i < b->warps; i++)
                for (Lane &l : b->warp[i].lane)
                    fiber_abandon(&l.fiber);
        delete g;
    }
    k->grids.clear();
    for (Grid *g : k->waiting_grids)
        delete g;
    k->waiting_grids.clear();
}

} // namespace simt
