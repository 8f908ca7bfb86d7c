/* simt.cc: the scheduler: the loop that picks who runs next, wakes the parked and finds out that
 * nobody can move. Layer: sim. A worker owns the units of its GPUs. */
#include "sim/simt_core.h"

#include <algorithm>

namespace simt
{
namespace
{

constexpr unsigned kScanSteps = 32;
constexpr uint64_t kPasses = 16; /* of a warp in a row */
constexpr uint64_t kQuietSteps = 100000;
constexpr unsigned kEngineEvents = 1000; /* of engines alone, before they are told to stop */

bool task_can_move(Task *t)
{
    if (!t->parked)
        return true;
    if (virtual_time() >= t->deadline)
        return true;
    if (t->engine && worker_here->stopping)
        return true;
    if (t->polling)
        return polls_changed(&t->polls);
    if (!t->ready)
        return false;
    HostSide side(t->gpu);

    return t->ready(t->ready_arg);
}

bool scan_tasks(Worker *k)
{
    bool any = false;

    for (Task *t : k->tasks)
        if (!t->queued && !t->ended && task_can_move(t)) {
            t->parked = false;
            unit_ready(k, t);
            any = true;
        }
    return any;
}

void unlist(Worker *k, size_t i)
{
    k->parked[i]->listed = false;
    k->parked.remove_unordered(i);
}

/* Wake the warps of which a polled word changed or a deadline passed. */
void scan_warps(Worker *k, bool spurious)
{
    for (size_t i = 0; i < k->parked.size();) {
        Warp *w = k->parked[i];
        bool force = w->deadline <= virtual_time() || (spurious && !(random_next(k) & 15));

        if (!w->parked || w->queued) {
            unlist(k, i);
        } else if (w->run || warp_wake(k, w, force)) {
            unlist(k, i);
            unit_ready(k, w);
        } else {
            i++;
        }
    }
}

void scan_sleepers(Worker *k)
{
    for (size_t i = 0; i < k->sleeping.size();) {
        Unit *u = k->sleeping[i];

        if (u->asleep > k->step) {
            i++;
            continue;
        }
        k->sleeping.remove_unordered(i);
        k->ready.push_back(u);
    }
}

void find_next_deadline(Worker *k)
{
    k->next_deadline = kNever;
    for (Warp *w : k->parked)
        if (w->deadline < k->next_deadline)
            k->next_deadline = w->deadline;
    for (Task *t : k->tasks)
        if (t->parked && !t->queued && t->deadline < k->next_deadline)
            k->next_deadline = t->deadline;
}

void take_inbox(Worker *k)
{
    if (!__atomic_load_n(&k->inbox_full, __ATOMIC_ACQUIRE))
        return;
    Hold hold(k->inbox_lock);

    k->inbox_full = false;
    for (Task *t : k->inbox_tasks) {
        k->tasks.push_back(t);
        unit_ready(k, t);
    }
    k->inbox_tasks.clear();
    for (Grid *g : k->inbox_grids)
        k->waiting_grids.push_back(g);
    k->inbox_grids.clear();
}

/* Everything that can make a unit ready, except what running units do. */
void scan(Worker *k, bool idle)
{
    bool moved = bulk_run(k), due = k->next_deadline <= virtual_time();

    take_inbox(k);
    grids_admit(k);
    scan_sleepers(k);
    scan_tasks(k);
    if (idle || due || moved || k->scanned_stores != k->stores || k->background) {
        k->scanned_stores = k->stores;
        scan_warps(k, !idle && k->preempt && !k->quiet);
        if (due)
            find_next_deadline(k);
    }
    /* No word written for long: stop perturbing, so that a hang shows. */
    if (k->stores != k->quiet_stores) {
        k->quiet_stores = k->stores;
        k->quiet_since = k->step;
        k->quiet = false;
    } else if (k->step - k->quiet_since > kQuietSteps) {
        k->quiet = true;
    }
}

Unit *pick(Worker *k)
{
    size_t n = k->ready.size(), i;
    Unit *u;

    if (config.seed) {
        i = random_next(k) % n;
    } else {
        if (k->turn >= n)
            k->turn = 0;
        i = k->turn++;
    }
    u = k->ready[i];
    k->ready.remove_unordered(i);
    return u; /* counts as queued while it runs */
}

void run_task(Worker *k, Task *t)
{
    k->now = t;
    k->stats.switches++;
    k->hash = (k->hash ^ static_cast<uint64_t>(t->gpu + 1)) * 0x100000001B3ull;
    time_step(k, 1);
    fiber_switch(&k->fiber, &t->fiber);
    k->now = nullptr;
    t->queued = false;
    k->stores++; /* hosts and engines write with plain stores */
    if (t->ended) {
        for (size_t i = 0; i < k->tasks.size(); i++)
            if (k->tasks[i] == t)
                k->tasks.remove(i);
        if (!t->engine)
            k->hosts--;
        fiber_recycle(&t->fiber, true);
        order_acquire(&gpus[t->gpu].host_token); /* released at its end */
        delete t;
        return;
    }
    if (!t->parked)
        unit_ready(k, t);
}

void run_warp(Worker *k, Warp *w)
{
    /* Several passes at a stretch: lanes of a warp share cache lines, warps do not. */
    uint64_t passes = config.seed ? 1 + random_tail(k, 4) : kPasses;

    k->give_way = false;
    while (passes-- && w->run && !k->stop && !k->give_way)
        warp_run(k, w);
    w->queued = false;
    if (k->stop)
        return;
    if (w->done == w->all) {
        for (size_t i = 0; w->listed; i++)
            if (k->parked[i] == w)
                unlist(k, i);
        warp_ended(k, w);
        return;
    }
    if (w->run) {
        if (w->parked && !(k->step & 15))
            warp_wake(k, w, w->deadline <= virtual_time());
        unit_ready(k, w);
    } else if (w->parked && !w->listed) {
        w->listed = true;
        k->parked.push_back(w);
    }
}

/* Nobody is ready: to the next event. False: there is none. */
bool next_event(Worker *k)
{
    uint64_t at = k->next_bulk;

    if (!k->sleeping.empty()) {
        uint64_t step = kNever;

        for (Unit *u : k->sleeping)
            if (u->asleep < step)
                step = u->asleep;
        k->step = step;
        return true;
    }
    for (Task *t : k->tasks) /* with hang_report a host's limit is no event, its sleep is one */
        if (t->deadline < at && (!config.hang_report || t->engine || !t->ready))
            at = t->deadline;
    for (Warp *w :
         k->parked) /* of a lane what is due is an event, with hang_report its limit is none */
        at = std::min(at, config.hang_report ? w->due : w->deadline);
    if (at == kNever)
        return false;
    if (at > virtual_ns)
        virtual_ns = at;
    if (k->next_deadline > at)
        k->next_deadline = at;
    return true;
}

bool idle(Worker *k)
{
    scan(k, true);
    if (!k->ready.empty())
        return true;
    if (k->background) {
        if (k->sleeping.empty())
            background_idle(k);
        else
            next_event(k);
        return true;
    }
    if (!k->hosts && k->grids.empty() && k->waiting_grids.empty()) {
        if (k->tasks.empty())
            return false;
        if (!k->stopping && k->idle_engine_events++ < kEngineEvents && next_event(k))
            return true; /* an engine may still start a grid */
        k->stopping = true;
        return scan_tasks(k);
    }
    k->idle_engine_events = 0;
    if (next_event(k))
        return true;
    k->stop = true;
    report_hang(k, "no lane can make progress");
    return false;
}

} // namespace

__thread Worker *worker_here __attribute__((tls_model("initial-exec")));

void worker_enter(Worker *k)
{
    worker_here = k;
}

void worker_loop(Worker *k)
{
    unsigned since = 0;

    for (;;) {
        k->step++;
        if (++since >= kScanSteps) {
            scan(k, false);
            since = 0;
        }
        if (k->ready.empty()) {
            since = 0;
            if (!idle(k))
                return;
            continue;
        }
        Unit *u = pick(k);

        if (u->is_task)
            run_task(k, static_cast<Task *>(u));
        else
            run_warp(k, static_cast<Warp *>(u));
        if (k->nfaults != k->faults_printed)
            faults_print(k);
        if (k->stop) {
            report_hang(k, k->stop_text);
            return;
        }
    }
}

void unit_ready(Worker *k, Unit *unit)
{
    if (unit->queued)
        return;
    unit->queued = true;
    if (unit->asleep > k->step)
        k->sleeping.push_back(unit);
    else
        k->ready.push_back(unit);
}

/* Wakes all parked lanes of the warp: the loop of one may hold a collective of all. A lane that was
 * on its way to the pause meanwhile sees the changed count there and does not park. */
bool warp_wake(Worker *k, Warp *w, bool force)
{
    bool hit = force;

    for (uint32_t m = w->parked; m && !hit; m &= m - 1)
        hit = polls_changed(&w->lane[__builtin_ctz(m)].polls);
    if (!hit)
        return false;
    w->wakes++;
    for (uint32_t m = w->parked; m; m &= m - 1) {
        Lane *l = &w->lane[__builtin_ctz(m)];

        polls_clear(&l->polls);
        l->wakes = w->wakes;
    }
    w->run |= w->parked;
    w->parked = 0;
    w->deadline = w->due = kNever;
    (void)k;
    return true;
}

} // namespace simt
