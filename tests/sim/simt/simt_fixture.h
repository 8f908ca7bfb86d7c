/* simt_fixture.h: run lambdas as kernels of the emulator: every lane calls the lambda. Layer:
 * tests. */
#ifndef SWL_SIMT_FIXTURE_H
#define SWL_SIMT_FIXTURE_H

#include "device.h"
#include "simt.h"

#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <vector>

struct simt_launch {
    int gpu, blocks, threads;
    std::function<void()> body;
    const char *name = "kernel";
    size_t shared_bytes = 4096;
};

/* Sets and restores the settings; runs launches from one host fiber each. */
class SimtTest : public testing::Test
{
  protected:
    struct simt_config before = simt_config_get(), config = before;

    SimtTest()
    {
        config.seed = 0;
        config.preempt_per_1000 = 0;
        config.hang_report = false;
        config.nsms = 24;
        config.threads = 1;
    }
    ~SimtTest() override
    {
        simt_config_set(&before);
    }
    void fuzz(uint64_t seed, unsigned preempt = 100)
    {
        config.seed = seed;
        config.preempt_per_1000 = preempt;
    }

    int run(const std::vector<simt_launch> &launches)
    {
        std::vector<Host> hosts;

        simt_config_set(&config);
        for (const simt_launch &launch : launches)
            hosts.push_back({&launch, false});
        for (Host &host : hosts)
            simt_fiber(host.launch->name, host.launch->gpu, 0, host_main, &host);
        return simt_run();
    }
    int run(int blocks, int threads, std::function<void()> body)
    {
        return run({{0, blocks, threads, body}});
    }
    /* Runs and returns what was printed; *rc_p: result. */
    std::string report(const std::vector<simt_launch> &launches, int *rc_p)
    {
        testing::internal::CaptureStderr();
        *rc_p = run(launches);
        return testing::internal::GetCapturedStderr();
    }
    std::string report(int blocks, int threads, std::function<void()> body, int *rc_p)
    {
        return report({{0, blocks, threads, body}}, rc_p);
    }

  private:
    struct Host {
        const simt_launch *launch;
        bool done;
    };
    static void lane(const void *args)
    {
        (*static_cast<std::function<void()> *const *>(args))[0]();
    }
    static void grid_done(void *arg)
    {
        __atomic_store_n(&static_cast<Host *>(arg)->done, true, __ATOMIC_RELEASE);
    }
    static bool is_done(void *arg)
    {
        return __atomic_load_n(&static_cast<Host *>(arg)->done, __ATOMIC_ACQUIRE);
    }
    static void host_main(void *arg)
    {
        Host *host = static_cast<Host *>(arg);
        const simt_launch &l = *host->launch;
        const std::function<void()> *body = &l.body;
        struct simt_grid grid = {l.name, l.gpu, l.blocks,     l.threads, l.shared_bytes,
                                 lane,   &body, sizeof(body), grid_done, host};

        simt_grid_start(&grid);
        simt_park(SIMT_WHY("host: grid", l.gpu, 0), is_done, host, UINT64_MAX);
    }
};

/* Waits in tests have no limit unless they say so. */
#define WAIT_UNTIL(condition, what)                                                                \
    while (!(condition))                                                                           \
    pause_lane(SWL_PAUSE(what, block_id(), warp_id()), UINT64_MAX)

/* Kernels that are wrong on purpose; simt_race_test shows what TSan says to such. */
#ifdef SIMT_TSAN
#    define SKIP_RACE_UNDER_TSAN GTEST_SKIP() << "a data race on purpose"
#else
#    define SKIP_RACE_UNDER_TSAN (void)0
#endif

#endif
