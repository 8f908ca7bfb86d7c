/* simt_core.h: data of the scheduler, shared by sim/simt*.cc. Layer: sim, internal. Grids, blocks
 * and tasks belong to the worker that runs them; a worker is an OS thread and the GPUs dealt to
 * it. */
#pragma once

#include "sim/simt.h"
#include "sim/simt_array.h"
#include "sim/simt_device.h"
#include "sim/simt_fiber.h"

namespace simt
{

constexpr int kMaxGpus = 256, kPollInline = 6, kPollSpill = 512, kBarriers = 16;
constexpr uint64_t kNever = UINT64_MAX;
constexpr uint64_t kRoundFs = 10000000; /* virtual time of one turn of everything that is ready */
constexpr uint32_t kBurst =
    4096; /* primitives a lane may run at a stretch: fairness without fuzz */

struct Worker;
struct Warp;
struct Block;
struct Grid;
struct LaneBulk;

struct PollWord {
    const volatile void *at;
    uint64_t value;
    uint32_t reads, activity; /* reads in a row while the lane did nothing else */
    uint32_t epoch;           /* spilled words: pause number of the lane, older entries are empty */
    uint8_t bytes;
};
struct PollSpill {
    uint16_t used[kPollSpill * 3 / 4];
    int n;
    PollWord word[kPollSpill];
};
/* Words read since the last pause. */
struct Polls {
    uint8_t n;
    bool changed; /* a word was seen with two values, or there are too many words */
    uint32_t epoch;
    PollSpill *spill;
    PollWord word[kPollInline];
};

/* Who executes: a lane, a host fiber or an engine. What every switch and collective touches comes
 * first, in two cache lines. */
struct alignas(64) Actor {
    Fiber fiber;
    Warp *warp; /* NULL: host fiber or engine */
    int gpu;
    uint32_t activity; /* primitives other than reads */
    uint32_t burst;    /* primitives since the lane last gave way */
    int8_t ordered;    /* scope of order_before_publish that still holds, -1: none */
    uint8_t id, op;    /* lane: its number, and the collective it waits in */
    int src;           /* lane: operand of shuffles; id of a named barrier */
    uint64_t value;    /* lane: of the collective */
    const char *file;
    int line;
    uint32_t wakes; /* lane: of the warp, as of its last collective and its last pause */
    Polls polls;
    struct swl_pause why;
    uint64_t deadline;
};

struct Lane : Actor {
    uint64_t load_fence, store_fence; /* data clock at its last proxy fences */
    uint64_t clock_ns;                /* what it last read as time, in a timed run */
    LaneBulk *bulk;
    char proxy_token;
};

/* Something in the ready list. */
struct Unit {
    bool is_task = false, queued = false;
    uint64_t asleep = 0; /* not before this step */
};

struct Warp : Unit {
    Block *block;
    int id;
    uint32_t all, run, parked, waiting, done; /* waiting: in a collective or barrier */
    uint32_t wakes;                           /* times that parked lanes were woken */
    bool listed;                              /* in the worker's parked list */
    uint64_t deadline;                        /* earliest of the parked lanes */
    uint64_t due;                             /* the same, of what happens by itself */
    char token;
    Lane lane[32];
};

struct Barrier {
    int arrived, threads;
    Lane *first;
    char token;
};
struct SharedMemory {
    char *data;
    char token; /* orders the blocks that use it one after the other */
};
struct Block {
    Grid *grid;
    int id, warps, lanes, exited, warps_left;
    Barrier barrier[kBarriers]; /* 0: block_sync */
    char shared_proxy;
    SharedMemory *shared;
    uint64_t *shared_stored; /* per 16 bytes: data clock << 16 | thread of the last store_data */
    Warp *warp;
};

struct Grid {
    struct simt_grid start; /* args point to own copy */
    Array<char> args;
    uint64_t serial;
    Array<Block *> block;
    int blocks_left;
    char start_token, end_token;
};

struct Task : Unit, Actor {
    const char *name;
    void (*fn)(void *);
    void *arg;
    bool engine, parked, ended, polling; /* polling: parked by pause_lane */
    bool (*ready)(void *);
    void *ready_arg;
    struct simt_thread thread;
    int parks_after_stop;
};

struct BulkOp {
    BulkOp *next;
    char *dst;
    const char *src;
    char *copy; /* store: bytes read, not yet written */
    uint32_t bytes;
    mbarrier *barrier;  /* load */
    LaneBulk *group_of; /* store */
    uint64_t group;
    Block *block;
    Lane *lane;
    int gpu, context;
    uint64_t read_due, write_due;
};
constexpr unsigned kBulkGroups = 64;
/* Bulk groups of a lane; lives as long as a copy of it is under way. */
struct LaneBulk {
    uint64_t committed;       /* groups closed; the open one has this number */
    uint64_t read_done, done; /* groups below are complete */
    uint32_t reading[kBulkGroups], writing[kBulkGroups];
    char read_token, done_token, issue_token;
};

struct Fault {
    const char *text;
    const void *word;
    int gpu, block, warp, lane;
    const char *grid, *file;
    int line;
    const char *other_file;
    int other_line, other_gpu, other_block;
    const char *other_grid;
};
constexpr int kFaultsKept = 32;

struct Worker {
    Fiber fiber;
    Actor *now = nullptr;
    bool background = false;
    Array<Unit *> ready, sleeping;
    Array<Warp *> parked;
    Array<Task *> tasks;
    Array<Grid *> grids, waiting_grids;
    Array<Grid *> inbox_grids;
    Array<Task *> inbox_tasks;
    Lock inbox_lock;
    bool inbox_full = false; /* atomic */
    size_t turn = 0;
    uint64_t rng = 1, step = 0, hash = 0;
    uint64_t elapsed_fs = 0;             /* part of a virtual nanosecond */
    uint64_t share_of = 0, share_fs = 0; /* of a round: one of so many */
    uint64_t next_deadline = kNever, next_bulk = kNever;
    uint64_t stores = 0, scanned_stores = 0, quiet_stores = 0, quiet_since = 0;
    uint32_t pass = 0;     /* lanes of the running warp that had their turn */
    bool give_way = false; /* the running warp stops after this pass */
    unsigned preempt = 0;
    bool quiet = false, stop = false, stopping = false;
    const char *stop_text = nullptr;
    int hosts = 0;
    unsigned idle_engine_events = 0; /* since the last host fiber and grid */
    uint64_t idle_stores = 0, idle_since = 0;
    BulkOp *bulk = nullptr, **bulk_tail = &bulk;
    struct simt_stats stats = {};
    Fault fault[kFaultsKept];
    int nfaults = 0, faults_printed = 0;
};

struct Gpu {
    Worker *worker;
    int resident;       /* blocks */
    void *host_context; /* TSan: what host fibers and callbacks of this GPU do in turn */
    char host_token;
    void *copy_context[4]; /* TSan: copy engines */
};

extern struct simt_config config;
extern uint64_t virtual_ns;

/* What is ready runs side by side on the hardware: a switch takes its share of a round. */
inline void time_step(Worker *k, uint64_t lanes)
{
    if (k->background)
        return;
    const uint64_t n = lanes * (k->ready.size() + 1);

    if (n != k->share_of) {
        k->share_of = n;
        k->share_fs = kRoundFs / n;
    }
    k->elapsed_fs += k->share_fs;
    if (k->elapsed_fs >= 1000000) {
        virtual_ns += k->elapsed_fs / 1000000;
        k->elapsed_fs %= 1000000;
    }
}
extern Gpu gpus[kMaxGpus];
extern __thread Worker *worker_here __attribute__((tls_model("initial-exec")));
/* Of the calling OS thread. A fiber never leaves its worker, so the answer outlives a switch. */
inline Worker *worker_self(void)
{
    return worker_here;
}
void worker_enter(Worker *k); /* the calling OS thread works for k from now on */
void worker_loop(Worker *k);  /* returns at the end of a run */
Worker *worker_of_gpu(int gpu);
uint64_t random_next(Worker *k);
uint64_t random_tail(Worker *k, unsigned bits); /* below 2^bits, mostly small */

uint64_t virtual_time(void);
void warp_run(Worker *k, Warp *w);
void worker_background(Worker *k); /* never returns */
void worker_submit(Grid *grid, Task *task);

/* simt.cc: units, actors */
void unit_ready(Worker *k, Unit *unit);
bool warp_wake(Worker *k, Warp *w, bool force);
void actor_leave(Actor *a);         /* to the scheduler; returns when resumed */
void worker_fail(const char *text); /* stop the run from a lane; does not return there */

/* simt_background.cc */
bool background_started(void);
void background_start(Worker *first);
void background_start_now(void); /* simt.cc: an OS thread waits */
void background_idle(Worker *k);
uint64_t background_time(void);
Worker *background_worker(int gpu);
uint64_t background_faults(struct simt_stats *sum);
bool os_thread_park(bool (*ready)(void *), void *arg, uint64_t deadline);

/* simt_warp.cc */
void barrier_lane_exited(Block *b);

/* simt_poll.cc */
void polls_note(Actor *a, const volatile void *word, uint64_t value, int bytes, const char *file,
                int line);
bool polls_changed(const Polls *p);
void polls_clear(Polls *p);

/* simt_grid.cc */
Grid *grid_create(const struct simt_grid *start);
void grids_admit(Worker *k);
void warp_ended(Worker *k, Warp *w);
void grids_abandon(Worker *k);

/* simt_scope.cc */
void scope_hardware(const volatile void *word); /* written by a copy engine for the block itself */

/* simt_bulk.cc */
bool bulk_run(Worker *k); /* do what is due; whether a copy moved */
void bulk_block_ended(Worker *k, Block *b);
void bulk_abandon(Worker *k);
uint64_t data_clock(void);

/* simt_report.cc */
void fault_note(const Fault &f);
Fault fault_here(const char *text, const char *file, int line);
void faults_print(Worker *k);
void report_hang(Worker *k, const char *headline);

/* Calls of user callbacks on the scheduler, in the TSan context of the GPU's host side. */
struct HostSide {
    int gpu;
    void *back;
    explicit HostSide(int gpu);
    ~HostSide();
};

} // namespace simt
