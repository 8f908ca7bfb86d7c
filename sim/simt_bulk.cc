/* simt_bulk.cc: the copy engines (cp.async.bulk) and the rules of the asynchronous proxy. Layer:
 * sim.
 *
 * A copy is queued by a lane and executed later by the scheduler, in random order under a seed. A
 * store reads its source at one time and writes its destination at another, so that "source free"
 * and "complete" differ. For TSan copies run in contexts of their own: a load knows what its lane
 * knew at the issue; a store knows only what lanes have passed to the proxy by the two fences.
 *
 * Two rules are checked in every build by time stamps of data stores: a bulk load reads no line
 * that was written after its lane's last order_before_bulk_load, and a bulk store reads no shared
 * bytes whose writer has not called order_before_bulk_store since. */
#include "sim/simt_core.h"

#include <stdlib.h>
#include <string.h>

namespace simt
{
namespace
{

constexpr size_t kLines = 1 << 20; /* direct mapped: forgets, never invents */
constexpr uint64_t kSeed0Ns = 400;

struct Line {
    uintptr_t at;
    uint64_t clock;
};
uint64_t clock_now = 1;
Line *lines;

Line *line_of(uintptr_t at)
{
    if (!lines)
        lines = static_cast<Line *>(arena_get(kLines * sizeof(Line)));
    /* The lines of a 4 KiB page side by side, so that a copy walks through the table in order. */
    return &lines[((at >> 12) * 0x9E3779B97F4A7C15ull >> 49) * 32 + (at >> 7) % 32];
}

/* First line that starts in [at, ..). Only the first 16 bytes of a line stand for it. */
uintptr_t line_up(const void *at)
{
    return (reinterpret_cast<uintptr_t>(at) + 127) & ~uintptr_t(127);
}

void lines_written(const void *at, size_t bytes)
{
    uintptr_t end = reinterpret_cast<uintptr_t>(at) + bytes;

    for (uintptr_t line = line_up(at); line < end; line += 128)
        *line_of(line) = {line, clock_now};
}

bool lines_newer(const void *at, size_t bytes, uint64_t fence)
{
    uintptr_t end = reinterpret_cast<uintptr_t>(at) + bytes;

    for (uintptr_t line = line_up(at); line < end; line += 128) {
        const Line *l = line_of(line);

        if (l->at == line && l->clock >= fence)
            return true;
    }
    return false;
}

bool in_shared(const Block *b, const void *at, size_t bytes)
{
    const char *p = static_cast<const char *>(at);

    return p >= b->shared->data && p + bytes <= b->shared->data + b->grid->start.shared_bytes;
}

size_t granule(const Block *b, const void *at)
{
    return static_cast<size_t>(static_cast<const char *>(at) - b->shared->data) / 16;
}

bool shared_unfenced(const Block *b, const void *at, size_t bytes)
{
    for (size_t i = granule(b, at), end = i + bytes / 16; i < end; i++) {
        uint64_t stamp = b->shared_stored[i];

        if (!stamp)
            continue;
        size_t thread = stamp & 0xffff;

        if (stamp >> 16 >= b->warp[thread / 32].lane[thread % 32].store_fence)
            return true;
    }
    return false;
}

void check(Lane *l, const BulkOp &op, const char *file, int line)
{
    const Block *b = op.block;
    const void *shared = op.barrier ? op.dst : op.src, *global = op.barrier ? op.src : op.dst;

    if (op.bytes % 16 || reinterpret_cast<uintptr_t>(op.dst) % 16 ||
        reinterpret_cast<uintptr_t>(op.src) % 16) {
        fault_note(fault_here("a bulk copy is not in units of 16 bytes", file, line));
        worker_fail("wrong bulk copy");
    }
    if (!in_shared(b, shared, op.bytes) || (op.barrier && !in_shared(b, op.barrier, 8)) ||
        in_shared(b, global, 1)) {
        fault_note(fault_here(
            "a bulk copy is not between global memory and the block's shared memory", file, line));
        worker_fail("wrong bulk copy");
    }
    if (config.threads > 1)
        return;
    if (op.barrier && lines_newer(op.src, op.bytes, l->load_fence)) {
        Fault f = fault_here(
            "bulk load of bytes written after the lane's last order_before_bulk_load", file, line);

        f.word = op.src;
        fault_note(f);
    }
    if (!op.barrier && shared_unfenced(b, op.src, op.bytes)) {
        Fault f = fault_here(
            "bulk store of shared bytes whose writer did not order_before_bulk_store", file, line);

        f.word = op.src;
        fault_note(f);
    }
}

/* What the copy may know of other stores, for TSan. */
void enter_context(BulkOp *op)
{
    Gpu &gpu = gpus[op->gpu];
    static unsigned turn;

    op->context = static_cast<int>(turn++ & 3);
    if (!__tsan_switch_to_fiber)
        return;
    if (!gpu.copy_context[op->context])
        gpu.copy_context[op->context] = context_create();
    if (op->barrier)
        order_release(&op->lane->bulk->issue_token);
    __tsan_switch_to_fiber(gpu.copy_context[op->context], 1);
    if (op->barrier) {
        order_acquire(&op->lane->bulk->issue_token);
    } else {
        order_acquire(&op->lane->proxy_token);
        order_acquire(&op->block->shared_proxy);
    }
    __tsan_switch_to_fiber(op->lane->fiber.tsan, 1);
}

uint64_t delay(Worker *k)
{
    return config.seed ? random_tail(k, 17) : kSeed0Ns;
}

void group_advance(LaneBulk *g)
{
    uint64_t top = g->committed;

    while (g->read_done < top && !g->reading[g->read_done % kBulkGroups])
        __atomic_store_n(&g->read_done, g->read_done + 1, __ATOMIC_RELEASE);
    while (g->done < top && !g->writing[g->done % kBulkGroups])
        __atomic_store_n(&g->done, g->done + 1, __ATOMIC_RELEASE);
}

void op_load(BulkOp *op)
{
    uint64_t seen = __atomic_load_n(op->barrier, __ATOMIC_RELAXED);

    memcpy(op->dst, op->src, op->bytes);
    for (size_t i = granule(op->block, op->dst), end = i + op->bytes / 16; i < end; i++)
        if (op->block->shared_stored[i])
            op->block->shared_stored[i] = 0;
    order_release(op->barrier);
    while (!__atomic_compare_exchange_n(op->barrier, &seen,
                                        simt_stage_next(seen, 0, 0u - op->bytes), false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
    }
    scope_hardware(op->barrier);
}

/* Bytes on their way. From malloc where TSan is to forget the context that had them before. */
char *copy_get(size_t bytes)
{
    return static_cast<char *>(fiber_sanitized() ? malloc(bytes) : arena_take(bytes, false));
}

void copy_put(char *copy, size_t bytes)
{
    if (fiber_sanitized())
        free(copy);
    else
        arena_put(copy, bytes);
}

void op_read(BulkOp *op)
{
    LaneBulk *g = op->group_of;

    op->copy = copy_get(op->bytes);
    memcpy(op->copy, op->src, op->bytes);
    order_release(&g->read_token);
    g->reading[op->group % kBulkGroups]--;
    group_advance(g);
}

void op_write(BulkOp *op)
{
    LaneBulk *g = op->group_of;

    memcpy(op->dst, op->copy, op->bytes);
    copy_put(op->copy, op->bytes);
    lines_written(op->dst, op->bytes);
    order_release(&g->done_token);
    order_release(&op->block->grid->end_token);
    g->writing[op->group % kBulkGroups]--;
    group_advance(g);
}

/* One step of a copy, in its TSan context. Returns whether the copy is over. */
bool op_step(Worker *k, BulkOp *op)
{
    void *back = op->lane && __tsan_get_current_fiber ? __tsan_get_current_fiber() : nullptr;
    bool over = true;

    if (back)
        __tsan_switch_to_fiber(gpus[op->gpu].copy_context[op->context], 1);
    if (op->barrier) {
        op_load(op);
    } else if (!op->copy) {
        op_read(op);
        over = false;
    } else {
        op_write(op);
    }
    if (back)
        __tsan_switch_to_fiber(back, 1);
    if (over)
        k->stats.bulk_copies++;
    k->stores++;
    return over;
}

void op_unlink(Worker *k, BulkOp **at)
{
    BulkOp *op = *at;

    *at = op->next;
    if (!*at)
        k->bulk_tail = at;
    arena_put(op, sizeof(*op));
}

LaneBulk *lane_bulk(Lane *l)
{
    if (!l->bulk)
        l->bulk = static_cast<LaneBulk *>(arena_get(sizeof(*l->bulk)));
    return l->bulk;
}

} // namespace

uint64_t data_clock(void)
{
    return ++clock_now;
}

bool bulk_run(Worker *k)
{
    bool moved = false;
    uint64_t now = virtual_time();

    if (k->next_bulk > now)
        return false;
    k->next_bulk = kNever;
    for (BulkOp **at = &k->bulk; *at;) {
        BulkOp *op = *at;
        uint64_t due = op->copy ? op->write_due : op->read_due;

        if (due <= now) {
            moved = true;
            if (op_step(k, op)) {
                op_unlink(k, at);
                continue;
            }
            due = op->write_due;
        }
        if (due < k->next_bulk)
            k->next_bulk = due;
        at = &op->next;
    }
    return moved;
}

void bulk_block_ended(Worker *k, Block *b)
{
    for (BulkOp **at = &k->bulk; *at;) {
        BulkOp *op = *at;

        if (op->block != b) {
            at = &op->next;
            continue;
        }
        if (!op->copy) {
            Fault f = {};

            f.text = "a block ended while a bulk copy used its shared memory";
            f.gpu = op->gpu;
            f.grid = b->grid->start.name;
            f.block = b->id;
            f.warp = op->lane->warp->id;
            f.lane = op->lane->id;
            f.other_gpu = -1;
            fault_note(f);
        }
        while (!op_step(k, op)) {
        }
        op_unlink(k, at);
    }
    for (int i = 0; i < b->warps; i++)
        for (Lane &l : b->warp[i].lane)
            if (l.bulk)
                arena_put(l.bulk, sizeof(*l.bulk));
}

void bulk_abandon(Worker *k)
{
    k->bulk = nullptr; /* blocks of these copies are gone, too */
    k->bulk_tail = &k->bulk;
    k->next_bulk = kNever;
}

} // namespace simt

using namespace simt;

void simt_dev_stored(const volatile void *at)
{
    Lane *l = static_cast<Lane *>(worker_self()->now);
    const void *p = const_cast<const void *>(at);

    l->ordered = -1;
    if (!l->warp)
        return;
    Block *b = l->warp->block;

    if (in_shared(b, p, 16))
        b->shared_stored[granule(b, p)] =
            clock_now << 16 | static_cast<unsigned>(l->warp->id * 32 + l->id);
    else if (!(reinterpret_cast<uintptr_t>(p) & 0x70))
        *line_of(reinterpret_cast<uintptr_t>(p)) = {reinterpret_cast<uintptr_t>(p), clock_now};
}

void simt_wrote(const void *ptr, size_t bytes)
{
    lines_written(ptr, bytes);
}

void simt_dev_bulk(void *dst, const void *src, uint32_t bytes, mbarrier *barrier, const char *file,
                   int line)
{
    Worker *k = worker_self();
    Lane *l = static_cast<Lane *>(k->now);
    BulkOp *op = static_cast<BulkOp *>(arena_get(sizeof(*op)));
    LaneBulk *g = lane_bulk(l);

    op->dst = static_cast<char *>(dst);
    op->src = static_cast<const char *>(src);
    op->bytes = bytes;
    op->barrier = barrier;
    op->block = l->warp->block;
    op->lane = l;
    op->gpu = l->gpu;
    op->read_due = simt_now_ns() + delay(k);
    op->write_due = op->read_due + delay(k);
    l->activity++;
    check(l, *op, file, line);
    enter_context(op);
    if (!barrier) {
        op->group_of = g;
        op->group = g->committed;
        g->reading[g->committed % kBulkGroups]++;
        g->writing[g->committed % kBulkGroups]++;
    }
    if (op->read_due < k->next_bulk)
        k->next_bulk = op->read_due;
    *k->bulk_tail = op;
    k->bulk_tail = &op->next;
}

/* Most lanes of a warp commit and wait in step with the few that store. A group without stores
 * behind groups that are all complete changes no answer, so it is not counted. */
void simt_dev_bulk_commit(void)
{
    Lane *l = static_cast<Lane *>(worker_self()->now);
    LaneBulk *g = l->bulk;

    if (!g || (g->committed == g->done && !g->writing[g->committed % kBulkGroups]))
        return;
    simt_dev_point();
    g->committed++;
    group_advance(g);
    /* a slot is used again 64 groups later */
    if (g->committed - g->done >= kBulkGroups - 1)
        simt_dev_bulk_wait(kBulkGroups / 2, false, __FILE__, __LINE__);
}

void simt_dev_bulk_wait(int left, bool reads_only, const char *file, int line)
{
    Lane *l = static_cast<Lane *>(worker_self()->now);
    LaneBulk *g = l->bulk;

    if (!g)
        return;
    const uint64_t *word = reads_only ? &g->read_done : &g->done;
    struct swl_pause why = {reads_only ? "bulk store has not read its source"
                                       : "bulk store is not complete",
                            left, static_cast<int>(g->committed), file, line};

    simt_dev_point();
    for (;;) {
        uint64_t done = __atomic_load_n(word, __ATOMIC_ACQUIRE);

        if (g->committed - done <= static_cast<uint64_t>(left))
            break;
        polls_note(l, word, done, 8, file, line);
        simt_dev_pause(&why, kNever);
    }
    order_acquire(reads_only ? &g->read_token : &g->done_token);
    if (!reads_only)
        order_release(&l->proxy_token); /* a complete store is ordered before later copies */
}

void simt_dev_bulk_fence(bool shared)
{
    Lane *l = static_cast<Lane *>(worker_self()->now);

    simt_dev_point();
    if (!l->warp)
        return;
    (shared ? l->store_fence : l->load_fence) = data_clock();
}
