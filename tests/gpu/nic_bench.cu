// nic_bench.cu: the software NIC on blocks alone: no wire model, queues in GPU memory, the peer on
// another GPU (or on the same one if there is no other). Every byte that must have arrived is
// compared.
//   gpu_nic_bench [--quick] [--blocks N]: N NIC blocks instead of 1, 2, 4, 8, and of a thread (0)
// Tables: GB/s of 7 KiB messages by queue pairs, work requests per second on a shared queue pair,
// time of a 16-byte put with signal, what an entry and a doorbell cost the poster. In brackets:
// work requests that a doorbell brings. `persistent`: the NIC is a kernel of its own, which exists
// only here; `on host`: a thread of the host, with queues in pinned memory of the host. Exit code
// 0: all data was right, whatever the speed.
#include "tests/gpu/nic_bench.cuh"

#include "src/base/error.h"
#include "src/runtime/runtime.h"
#include "transport/host/probe.h"
#include "transport/soft/soft.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace
{

#define CHECK(call)                                                                                \
    do {                                                                                           \
        const int code_ = static_cast<int>(call);                                                  \
        if (code_ != 0) {                                                                          \
            fprintf(stderr, "nic_bench: %s: %d %s\n", #call, code_, swl_last_error());             \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

struct bench_rank {
    int device;
    struct swl_nic *nic;
    struct swl_nic_caps caps;
    struct swl_nic_region signal, payload;
    char *window;
    struct swl_qp *qps;
    struct bench_state *state;
    cudaStream_t stream;
};

struct bench_rank ranks[2];
const struct swl_gpu_kernel kernel = {"nic bench", reinterpret_cast<void (*)()>(nic_bench_kernel),
                                      nullptr, sizeof(struct bench_args)};
int failures;

void open_rank(int r, int device, uint32_t blocks)
{
    struct bench_rank *k = &ranks[r];
    const unsigned all = SWL_NIC_LOCAL_WRITE | SWL_NIC_REMOTE_WRITE;
    struct swl_nic_config config = {};
    struct swl_gpu_share share;

    k->device = device;
    config.rank = static_cast<uint32_t>(r);
    config.device = device;
    config.max_qps = most_qps;
    config.depth = depth;
    config.timeout_ns = 5 * second_ns;
    config.settings.executor = blocks ? SWL_SOFT_BLOCKS : SWL_SOFT_THREAD;
    config.gpu_blocks = blocks;
    CHECK(swl_gpu_use(device));
    CHECK(swl_gpu_stream_create(&k->stream));
    CHECK(swl_soft_ops()->create(&k->nic, &config));
    k->nic->ops->caps(k->nic, &k->caps);
    CHECK(swl_gpu_shared_malloc(reinterpret_cast<void **>(&k->window), signal_bytes + payload_bytes,
                                &share));
    CHECK(
        k->nic->ops->reg_mr(k->nic, k->window, signal_bytes, all | SWL_NIC_REMOTE_ADD, &k->signal));
    CHECK(k->nic->ops->reg_mr(k->nic, k->window + signal_bytes, payload_bytes,
                              all | SWL_NIC_RELAXED, &k->payload));
    CHECK(swl_gpu_malloc(reinterpret_cast<void **>(&k->qps), most_qps * sizeof(struct swl_qp)));
    CHECK(swl_gpu_malloc(reinterpret_cast<void **>(&k->state), sizeof(*k->state)));
    for (uint32_t i = 0; i < most_qps; i++) {
        uint32_t qp;

        CHECK(k->nic->ops->create_qp(k->nic, &qp));
    }
    CHECK(swl_gpu_preload(&kernel, 512 + room_bytes));
}

void connect_rank(int r)
{
    struct bench_rank *k = &ranks[r], *peer = &ranks[1 - r];
    std::vector<struct swl_qp> views(most_qps);

    CHECK(swl_gpu_use(k->device));
    for (uint32_t i = 0; i < most_qps; i++) {
        struct swl_nic_address a;

        CHECK(peer->nic->ops->address(peer->nic, i, &a));
        CHECK(k->nic->ops->connect(k->nic, i, &a));
        CHECK(k->nic->ops->view(k->nic, i, &views[i]));
    }
    CHECK(swl_gpu_copy(k->qps, views.data(), most_qps * sizeof(struct swl_qp), k->stream));
    CHECK(swl_gpu_stream_wait(k->stream, second_ns));
}

void close_rank(int r)
{
    struct bench_rank *k = &ranks[r];

    CHECK(swl_gpu_use(k->device));
    CHECK(k->nic->ops->destroy(k->nic));
    CHECK(swl_gpu_free(k->qps));
    CHECK(swl_gpu_free(k->state));
    CHECK(swl_gpu_shared_free(k->window));
    CHECK(swl_gpu_stream_destroy(k->stream));
}

struct bench_args args_of(int r, uint32_t mode, uint32_t blocks)
{
    const struct bench_rank *k = &ranks[r], *peer = &ranks[1 - r];
    struct bench_args a = {};

    a.port = static_cast<struct soft_port *>(k->caps.served);
    a.state = k->state;
    a.qps = k->qps;
    a.window = k->window;
    a.far = reinterpret_cast<char *>(peer->signal.address);
    a.signal_lkey = k->signal.lkey;
    a.payload_lkey = k->payload.lkey;
    a.signal_rkey = peer->signal.rkey;
    a.payload_rkey = peer->payload.rkey;
    a.nic_blocks = blocks;
    a.mode = mode;
    return a;
}

void launch(int r, const struct bench_args *a, uint32_t work)
{
    const struct bench_rank *k = &ranks[r];
    const struct swl_gpu_grid grid = {static_cast<int>(work + a->nic_blocks), threads,
                                      512 + room_bytes};

    CHECK(swl_gpu_use(k->device));
    CHECK(swl_gpu_launch(&kernel, &grid, a, k->stream));
}

void clear(int r)
{
    CHECK(swl_gpu_use(ranks[r].device));
    CHECK(swl_gpu_fill(ranks[r].state, 0, sizeof(struct bench_state), ranks[r].stream));
    CHECK(swl_gpu_stream_wait(ranks[r].stream, second_ns));
}

struct bench_state finish(int r)
{
    struct bench_state s;

    CHECK(swl_gpu_use(ranks[r].device));
    if (swl_gpu_stream_wait(ranks[r].stream, 20 * second_ns) != cudaSuccess) {
        fprintf(stderr, "nic_bench: the kernel of rank %d does not end\n", r);
        exit(1);
    }
    CHECK(swl_gpu_copy(&s, ranks[r].state, sizeof(s), ranks[r].stream));
    CHECK(swl_gpu_stream_wait(ranks[r].stream, second_ns));
    if (s.failed || s.bits) {
        fprintf(stderr, "nic_bench: rank %d gave up: kind %u channel %u expected %llu seen %llu\n",
                r, s.record.kind, s.record.channel,
                static_cast<unsigned long long>(s.record.expected),
                static_cast<unsigned long long>(s.record.seen));
        failures++;
    }
    return s;
}

/* A NIC of its own on rank 0, until its word says stop. */
struct persistent {
    uint32_t *closing = nullptr;
    cudaStream_t stream = nullptr;

    explicit persistent(uint32_t blocks)
    {
        struct bench_args a = args_of(0, SERVE, blocks);
        const struct swl_gpu_grid grid = {static_cast<int>(blocks), threads, 512 + room_bytes};

        CHECK(swl_gpu_use(ranks[0].device));
        CHECK(swl_gpu_host_malloc(reinterpret_cast<void **>(&closing), sizeof(*closing)));
        CHECK(swl_gpu_stream_create(&stream));
        a.closing = closing;
        CHECK(swl_gpu_launch(&kernel, &grid, &a, stream));
    }
    ~persistent()
    {
        __atomic_store_n(closing, 1, __ATOMIC_RELEASE);
        CHECK(swl_gpu_use(ranks[0].device));
        CHECK(swl_gpu_stream_wait(stream, 20 * second_ns));
        CHECK(swl_gpu_stream_destroy(stream));
        CHECK(swl_gpu_host_free(closing));
    }
};

float timed(const struct bench_args *a, uint32_t work)
{
    cudaEvent_t begin, end;
    float ms = 0;

    CHECK(swl_gpu_use(ranks[0].device));
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    CHECK(cudaEventRecord(begin, ranks[0].stream));
    launch(0, a, work);
    CHECK(cudaEventRecord(end, ranks[0].stream));
    finish(0);
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    CHECK(cudaEventDestroy(begin));
    CHECK(cudaEventDestroy(end));
    return ms;
}

/* Fill rank 0's payload with a pattern, rank 1's with zeros; compare `bytes` at `offset`
 * afterwards. */
void pattern(uint32_t seed)
{
    std::vector<uint32_t> v(payload_bytes / 4);

    for (size_t i = 0; i < v.size(); i++)
        v[i] = static_cast<uint32_t>(i) * 2654435761u + seed;
    CHECK(swl_gpu_copy(ranks[0].window + signal_bytes, v.data(), payload_bytes, ranks[0].stream));
    CHECK(swl_gpu_stream_wait(ranks[0].stream, 20 * second_ns));
    CHECK(swl_gpu_fill(ranks[1].window + signal_bytes, 0, payload_bytes, ranks[1].stream));
    CHECK(swl_gpu_stream_wait(ranks[1].stream, 20 * second_ns));
}

void compare(uint64_t offset, uint64_t bytes)
{
    std::vector<char> mine(bytes), theirs(bytes);

    CHECK(
        swl_gpu_copy(mine.data(), ranks[0].window + signal_bytes + offset, bytes, ranks[0].stream));
    CHECK(swl_gpu_stream_wait(ranks[0].stream, 20 * second_ns));
    CHECK(swl_gpu_copy(theirs.data(), ranks[1].window + signal_bytes + offset, bytes,
                       ranks[1].stream));
    CHECK(swl_gpu_stream_wait(ranks[1].stream, 20 * second_ns));
    if (memcmp(mine.data(), theirs.data(), bytes) != 0) {
        fprintf(stderr, "nic_bench: bytes at %llu differ\n",
                static_cast<unsigned long long>(offset));
        failures++;
    }
}

/* Work requests that the NIC of rank 0 has taken with a doorbell since the last call, on average:
 * how far the poster is ahead. */
double per_doorbell()
{
    static struct swl_soft_stats before;
    struct swl_soft_stats now;
    double entries;

    if (!swl_host_get_stats(0, &now))
        return 0;
    if (now.entries < before.entries)
        before = {};
    entries = static_cast<double>(now.entries - before.entries) /
              static_cast<double>(now.doorbells - before.doorbells + 1);
    before = now;
    return entries;
}

const char *place_of(uint32_t blocks, bool alone)
{
    return alone ? "persistent" : blocks ? "in call" : "on host";
}

void puts_table(uint32_t blocks, bool alone, uint32_t messages)
{
    for (uint32_t bytes : {7168u, 14336u}) {
        printf("  %-10s %2u NIC blocks, %5u bytes:", place_of(blocks, alone), blocks, bytes);
        for (uint32_t nqps : {1u, 2u, 4u, 8u}) {
            struct bench_args a = args_of(0, PUTS, alone ? 0 : blocks);
            float ms = 0;

            a.bytes = bytes;
            a.slots = 128;
            a.messages = messages;
            pattern(nqps + bytes);
            for (int i = 0; i < 2; i++) {
                clear(0);
                ms = timed(&a, nqps);
            }
            for (uint32_t q = 0; q < nqps; q++)
                compare(q * (payload_bytes / most_qps),
                        static_cast<uint64_t>(a.slots < messages ? a.slots : messages) * bytes);
            printf("  %u QPs %6.1f GB/s (%.0f)", nqps,
                   static_cast<double>(nqps) * messages * bytes / 1e6 / static_cast<double>(ms),
                   per_doorbell());
        }
        printf("\n");
    }
}

void shared_table(uint32_t blocks, bool alone, uint32_t messages)
{
    for (uint32_t at_once : {1u, together}) {
        printf("  %-10s %2u NIC blocks, shared queue pair, 64 bytes, %2u at once:",
               place_of(blocks, alone), blocks, at_once);
        for (uint32_t posters : {1u, 4u, 8u, 16u}) {
            struct bench_args a = args_of(0, SHARED, alone ? 0 : blocks);
            float ms = 0;

            a.bytes = 64;
            a.messages = messages;
            a.together = at_once;
            pattern(posters);
            for (int i = 0; i < 2; i++) {
                clear(0);
                ms = timed(&a, posters);
            }
            compare(0, 64ull * posters);
            printf("  %u posters %5.2f M/s (%.0f)", posters,
                   static_cast<double>(posters) * messages / 1e3 / static_cast<double>(ms),
                   per_doorbell());
        }
        printf("\n");
    }
}

void ping_table(uint32_t blocks, uint32_t messages, uint64_t *first)
{
    for (uint32_t bytes : {0u, 16u, 4096u}) { /* 0: 16 bytes in the entry */
        struct bench_args a = args_of(0, PING, blocks), b = args_of(1, PONG, blocks);
        uint64_t begins[2];
        struct bench_state s;

        /* the signals go on counting from what earlier runs left */
        for (int r = 0; r < 2; r++) {
            CHECK(swl_gpu_fill(ranks[r].window, 0, 8, ranks[r].stream));
            CHECK(swl_gpu_stream_wait(ranks[r].stream, second_ns));
            begins[r] = 0;
            clear(r);
        }
        a.first = begins[0];
        b.first = begins[1];
        a.bytes = b.bytes = bytes;
        a.inlined = b.inlined = bytes == 0;
        a.messages = b.messages = messages;
        launch(0, &a, 1);
        launch(1, &b, 1);
        s = finish(0);
        (void)finish(1);
        printf("  %-10s %2u NIC blocks, %4u-byte put%s + signal: %5.2f us one way, the last one "
               "complete after %5.2f us\n",
               place_of(blocks, false), blocks, bytes ? bytes : 16, bytes ? "" : " (inline)",
               static_cast<double>(s.result[0]) / 2e3 / (messages - messages / 10),
               static_cast<double>(s.result[1]) / 1e3);
    }
    *first += messages;
}

void post_table(uint32_t blocks, uint32_t messages)
{
    struct bench_args a = args_of(0, POST, blocks);
    struct bench_state s;

    a.bytes = 64;
    a.messages = messages;
    clear(0);
    launch(0, &a, 1);
    s = finish(0);
    printf("  %-10s %2u NIC blocks, one poster: %5.0f ns an entry, %5.0f ns a doorbell\n",
           place_of(blocks, false), blocks, static_cast<double>(s.result[0]) / messages,
           static_cast<double>(s.result[1]) / (messages / (depth / 2)));
}

} // namespace

int main(int argc, char **argv)
{
    std::vector<uint32_t> sizes = {1, 2, 4, 8, 0};
    uint32_t messages = 4096, rounds = 2000;
    uint64_t first = 0;
    int ngpus = 0;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            messages = 64;
            rounds = 20;
        } else if (strcmp(argv[i], "--blocks") == 0 && i + 1 < argc) {
            sizes = {static_cast<uint32_t>(atoi(argv[++i]))};
        }
    }

    CHECK(swl_gpu_count(&ngpus));
    if (ngpus == 0) {
        printf("nic_bench: no GPU on this machine\n");
        return 0;
    }
    printf("software NIC (blocks of %u threads, or a thread of the host), GPU 0 to GPU %d\n",
           threads, ngpus > 1 ? 1 : 0);
    for (uint32_t blocks : sizes) {
        open_rank(0, 0, blocks);
        open_rank(1, ngpus > 1 ? 1 : 0, blocks);
        connect_rank(0);
        connect_rank(1);
        const uint32_t some = blocks ? messages : messages / 8 < 64 ? 64 : messages / 8;

        puts_table(blocks, false, some);
        shared_table(blocks, false, some);
        ping_table(blocks, rounds, &first);
        post_table(blocks, 4 * depth);
        if (blocks == 4) {
            persistent nic(blocks);

            puts_table(blocks, true, messages);
            shared_table(blocks, true, messages);
        }
        close_rank(0);
        close_rank(1);
    }
    printf("%s\n", failures ? "FAILED" : "all bytes arrived");
    return failures != 0;
}
