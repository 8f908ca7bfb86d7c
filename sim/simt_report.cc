/* simt_report.cc: texts: faults found by checks, and who waits for what when nobody can move.
 * Layer: sim, internal. Faults are noted on a lane's small stack and printed by the scheduler. */
#include "sim/simt_core.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

namespace simt
{
namespace
{

const char *const op_names[] = {"nothing",       "warp_sync",   "warp_shfl", "warp_shfl_up",
                                "warp_shfl_xor", "warp_ballot", "warp_all",  "warp_any",
                                "block_sync",    "named_sync"};
constexpr int kUnitsShown = 400, kWordsShown = 6;

const char *base_name(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : nullptr;

    return slash ? slash + 1 : path ? path : "?";
}

void print_words(const Polls &p)
{
    int total = p.n + (p.spill ? p.spill->n : 0);

    for (int i = 0; i < p.n && i < kWordsShown; i++)
        fprintf(stderr, " [%p]=%" PRIu64, const_cast<const void *>(p.word[i].at), p.word[i].value);
    if (total > kWordsShown)
        fprintf(stderr, " and %d more words", total - kWordsShown);
}

void print_why(const Actor *a)
{
    fprintf(stderr, "%s (%d, %d) at %s:%d", a->why.what, a->why.a, a->why.b, base_name(a->why.file),
            a->why.line);
    print_words(a->polls);
    if (a->deadline != kNever)
        fprintf(stderr, " until %" PRIu64 " ns", a->deadline);
    fputc('\n', stderr);
}

bool alike(const Warp *w, const Lane &a, const Lane &b)
{
    uint32_t parked = w->parked, waiting = w->waiting;
    bool pa = parked >> a.id & 1, pb = parked >> b.id & 1;

    if (pa != pb || (waiting >> a.id & 1) != (waiting >> b.id & 1))
        return false;
    if (!pa)
        return a.op == b.op && a.file == b.file && a.line == b.line;
    if (a.why.line != b.why.line || a.why.a != b.why.a || a.why.b != b.why.b ||
        strcmp(a.why.what, b.why.what) || a.polls.n != b.polls.n)
        return false;
    for (int i = 0; i < a.polls.n; i++)
        if (a.polls.word[i].at != b.polls.word[i].at)
            return false;
    return true;
}

void print_warp(const Warp *w)
{
    const Block *b = w->block;
    uint32_t left = w->all & ~w->done;

    while (left) {
        const Lane &l = w->lane[__builtin_ctz(left)];
        uint32_t same = 0;

        for (uint32_t m = left; m; m &= m - 1)
            if (alike(w, l, w->lane[__builtin_ctz(m)]))
                same |= 1u << __builtin_ctz(m);
        left &= ~same;
        fprintf(stderr, "  gpu %d %s block %d warp %2d lanes %08x: ", l.gpu, b->grid->start.name,
                b->id, w->id, same);
        if (w->parked >> l.id & 1)
            print_why(&l);
        else if (!(w->waiting >> l.id & 1))
            fprintf(stderr, "running\n");
        else if (l.op == SIMT_OP_NAMED_SYNC)
            fprintf(stderr, "named_sync %d (%d of %d threads) at %s:%d\n", l.src,
                    b->barrier[l.src].arrived, b->barrier[l.src].threads, base_name(l.file),
                    l.line);
        else if (l.op == SIMT_OP_BLOCK_SYNC)
            fprintf(stderr, "block_sync (%d of %d threads, %d ended) at %s:%d\n",
                    b->barrier[0].arrived, b->lanes, b->exited, base_name(l.file), l.line);
        else
            fprintf(stderr, "%s (%d lanes came, %d ended) at %s:%d\n", op_names[l.op],
                    __builtin_popcount(w->waiting), __builtin_popcount(w->done), base_name(l.file),
                    l.line);
    }
}

void print_task(const Task *t)
{
    fprintf(stderr, "  gpu %d %s %s: ", t->gpu, t->engine ? "engine" : "host", t->name);
    if (t->parked && t->why.what)
        print_why(t);
    else
        fprintf(stderr, "running\n");
}

} // namespace

Fault fault_here(const char *text, const char *file, int line)
{
    const Actor *a = worker_self()->now;
    Fault f = {};

    f.text = text;
    f.file = file;
    f.line = line;
    f.gpu = a->gpu;
    f.block = -1;
    f.other_gpu = -1;
    if (a->warp) {
        f.grid = a->warp->block->grid->start.name;
        f.block = a->warp->block->id;
        f.warp = a->warp->id;
        f.lane = static_cast<const Lane *>(a)->id;
    } else {
        f.grid = static_cast<const Task *>(a)->name;
    }
    return f;
}

void fault_note(const Fault &f)
{
    Worker *k = worker_self();

    k->stats.faults++;
    if (k->nfaults < kFaultsKept)
        k->fault[k->nfaults++] = f;
}

void faults_print(Worker *k)
{
    for (; k->faults_printed < k->nfaults; k->faults_printed++) {
        const Fault &f = k->fault[k->faults_printed];

        fprintf(stderr, "== simt: fault: %s: gpu %d %s", f.text, f.gpu, f.grid);
        if (f.block >= 0)
            fprintf(stderr, " block %d warp %d lane %d", f.block, f.warp, f.lane);
        if (f.file)
            fprintf(stderr, " at %s:%d", base_name(f.file), f.line);
        if (f.word)
            fprintf(stderr, ", address %p", f.word);
        if (f.other_file && f.other_gpu >= 0)
            fprintf(stderr, ", other side gpu %d %s block %d", f.other_gpu, f.other_grid,
                    f.other_block);
        if (f.other_file)
            fprintf(stderr, ", other place %s:%d", base_name(f.other_file), f.other_line);
        fprintf(stderr, " (seed %" PRIu64 ")\n", config.seed);
        if (f.text && k->faults_printed + 1 == kFaultsKept)
            fprintf(stderr, "== simt: further faults are only counted\n");
    }
}

void report_hang(Worker *k, const char *headline)
{
    int shown = 0;

    fprintf(stderr,
            "== simt: %s (seed %" PRIu64 ", schedule %016" PRIx64 ", time %" PRIu64 " ns)\n",
            headline, config.seed, k->hash, virtual_time());
    for (const Task *t : k->tasks)
        if (!t->ended)
            print_task(t);
    for (const Grid *g : k->grids)
        for (const Block *b : g->block)
            for (int i = 0; b && i < b->warps; i++)
                if (b->warp[i].done != b->warp[i].all && shown++ < kUnitsShown)
                    print_warp(&b->warp[i]);
    if (shown > kUnitsShown)
        fprintf(stderr, "  and %d more warps\n", shown - kUnitsShown);
    for (const Grid *g : k->waiting_grids)
        fprintf(stderr, "  gpu %d %s: %d blocks wait for multiprocessors: %d of %d are taken\n",
                g->start.gpu, g->start.name, g->start.blocks, gpus[g->start.gpu].resident,
                config.nsms);
    fprintf(stderr, "== simt: replay with SIMT_SEED=%" PRIu64 " SIMT_PREEMPT=%u\n", config.seed,
            config.preempt_per_1000);
}

} // namespace simt
