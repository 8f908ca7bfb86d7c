/* simt.h: the emulator as its users see it: the device runtime (gpu_sim), the stand-in NCCL, NIC
 * engines and tests. C linkage, exported from libswl_sim.so. Device code sees sim/device.h instead.
 *
 * One scheduler per process. Deterministic mode: simt_run() executes everything on the calling
 * thread, host code of ranks on fibers; a run is a pure function of inputs and SIMT_SEED. Threaded
 * mode: calls come from ordinary OS threads; background scheduler threads run the grids. */
#ifndef SWL_SIMT_H
#define SWL_SIMT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Why somebody waits; printed in hang reports. Strings are literals. */
struct simt_why {
    const char *what;
    int a, b;
    const char *file;
    int line;
};
#ifdef __cplusplus /* lives to the end of the full expression */
#    define SIMT_WHY(what, a, b)                                                                   \
        (&static_cast<const struct simt_why &>(simt_why{(what), (a), (b), __FILE__, __LINE__}))
#else
#    define SIMT_WHY(what, a, b) (&(const struct simt_why){(what), (a), (b), __FILE__, __LINE__})
#endif

/* Virtual time in ns; never goes back, moves a little with each step and jumps when idle. */
uint64_t simt_now_ns(void);

/* Block the calling host fiber, engine or OS thread until ready(arg) is true or time reaches
 * deadline_ns (UINT64_MAX: never). ready runs on the scheduler between steps: it must be cheap,
 * must not block, and reads shared words with __atomic loads. Returns ready's last answer. A
 * deadline counts as a pending event: virtual time jumps to it when nothing else can move. */
bool simt_park(const struct simt_why *why, bool (*ready)(void *), void *arg, uint64_t deadline_ns);

/* A host fiber of virtual GPU `gpu` (its user code may block by simt_park only). Slot and node are
 * what swl_thread_slot/_node return there. */
void simt_fiber(const char *name, int gpu, int node, void (*fn)(void *), void *arg);

/* State of the calling host fiber, engine or OS thread. `device` is free for the device runtime and
 * starts as the fiber's gpu (OS threads: 0); `slot` and `runtime` (more state of the device
 * runtime) start as NULL and are released with free() at the thread's end. */
struct simt_thread {
    int device, node;
    void *slot, *runtime;
    bool fiber; /* host fiber or engine, not an OS thread */
};
struct simt_thread *simt_thread_self(void);

/* Run the scheduler on the calling thread until all host fibers have returned. 0, or 1 when nothing
 * could move (hang; a report was printed) or a check failed (scope, NIC word, divergence). */
int simt_run(void);

/* An engine: a fiber that serves hardware (NIC, bulk copies). May use the device.h word primitives;
 * its accesses count as those of scope sys outside any block. It ends when fn returns;
 * simt_stopping() tells it that no host fiber and no grid is left. An engine that waits in
 * simt_park with no deadline does not keep virtual time from jumping nor a hang from being seen. */
void simt_engine(const char *name, int gpu, void (*fn)(void *), void *arg);
bool simt_stopping(void);

/* Start a grid; done(arg) is called by the scheduler when its last lane has ended. body runs once
 * per lane. args are copied. */
struct simt_grid {
    const char *name;
    int gpu, blocks, threads;
    size_t shared_bytes;
    void (*body)(const void *args);
    const void *args;
    size_t args_bytes;
    void (*done)(void *);
    void *done_arg;
};
void simt_grid_start(const struct simt_grid *grid);

/* Data written by an engine with plain stores or memcpy (NIC payload): a bulk load of these bytes
 * needs a proxy fence later than this. */
void simt_wrote(const void *ptr, size_t bytes);

/* The NIC adds to this word: a store by a lane from now on is reported as a fault. */
void simt_nic_word(const void *word, size_t bytes);
void simt_forget_memory(const void *ptr,
                        size_t bytes); /* freed: drop flag, NIC-word and poll notes */

/* Settings, from SIMT_SEED, SIMT_PREEMPT (per 1000 primitives), SIMT_HANG=report, SIMT_SMS,
 * SIMT_SHARED_KIB, SIMT_THREADS at first use; tests may set them between runs. */
struct simt_config {
    uint64_t seed;
    unsigned preempt_per_1000;
    bool hang_report; /* stop with a report instead of letting deadlines expire */
    int nsms;
    int shared_kib;
    bool timed;  /* times are wanted: a look at the clock takes its lane time, nobody else */
    int threads; /* > 1: GPUs are dealt to scheduler threads, no replay */
};
struct simt_config simt_config_get(void);
void simt_config_set(const struct simt_config *config);

struct simt_stats {
    uint64_t switches, parks, bulk_copies, grids, fibers_peak, stack_high_bytes;
    uint64_t schedule_hash; /* equal seeds and inputs give equal hashes */
    uint64_t faults;        /* scope violations and the like, reported on stderr */
};
struct simt_stats simt_stats(void);
uint64_t simt_random(void); /* the run's own random stream: for engines and delays in tests */

#ifdef __cplusplus
}
#endif
#endif
