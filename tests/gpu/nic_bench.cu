// nic_bench.cu: the software NIC on blocks alone: no link model, queues in GPU memory, the peer on
// another GPU (or on the same one if there is no other). Every byte that must have arrived is compared.
//   gpu_nic_bench [--quick] [--blocks N]: N NIC blocks instead of 1, 2, 4 and 8
// Tables: GB/s of 7 KiB messages by queue pairs, work requests per second on a shared queue pair,
// time of a 16-byte put with signal. In brackets: work requests that a doorbell brings. `persistent`: the NIC is a kernel of its own, which exists only
// here. Exit code 0: all data was right, whatever the speed.
#include "device.h"

#include "src/base/error.h"
#include "src/gpu.h"
#include "transport/qp.cuh"
#include "transport/soft/blocks.cuh"
#include "transport/soft/soft.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace
{

const uint32_t most_qps = 8, depth = 256, threads = 448, together = 16;
const uint32_t room_bytes = 200u << 10; /* about what the kernels have */
const uint64_t signal_bytes = 4096, payload_bytes = 64u << 20;
const uint64_t second_ns = 1000000000ull;

enum bench_mode { PUTS, SHARED, PING, PONG, SERVE };

/* Words of a rank's device memory that waits and the end of a kernel use; zero at the start. */
struct bench_state {
    uint64_t poison, gen, stop, entry[2], result[2];
    uint32_t claimed, bits, ticket, closing, failed, pad;
    struct swl_fault_record record;
};

struct bench_args {
    struct soft_port *port;
    struct bench_state *state;
    const uint32_t *closing; /* of a persistent NIC, else NULL */
    struct swl_qp *qps;
    char *window, *far; /* far: address in requests */
    uint32_t signal_lkey, payload_lkey, signal_rkey, payload_rkey;
    uint32_t nic_blocks, mode, nqps, messages, bytes, slots;
    uint32_t together; /* SHARED: entries taken and published at once */
    uint32_t inlined;  /* PING: the bytes travel in the entry */
    uint64_t first;    /* value of the signals before */
};

__device__ void bench_watch(struct swl_watch *w, const struct bench_args *a)
{
    struct bench_state *s = a->state;

    *w = {};
    w->poison = &s->poison;
    w->gen = 1;
    w->host_stop = &s->stop;
    w->claimed = &s->claimed;
    w->async_bits = &s->bits;
    w->record = &s->record;
    w->entry = s->entry;
    w->started_ns = clock_ns();
    w->deadline_ns = w->started_ns + 5 * second_ns;
    w->rank = 1;
}

/* One lane, one queue pair: messages in chunks of 8 with a signal behind each chunk. */
__device__ bool bench_puts(const struct bench_args *a, const struct swl_watch *w, struct swl_qp *qp,
                           uint32_t q)
{
    const struct wait_at at = {SWL_FAULT_QUEUE, SWL_WARP_NONE, q, 0};
    const uint64_t base = signal_bytes + q * (payload_bytes / most_qps);

    for (uint32_t i = 0; i < a->messages; i++) {
        const uint64_t offset = base + static_cast<uint64_t>(i % a->slots) * a->bytes;

        if (!qp_write(qp, w, at, a->window + offset, a->payload_lkey,
                      reinterpret_cast<uint64_t>(a->far) + offset, a->payload_rkey, a->bytes))
            return false;
        if (i % 8 != 7 && i + 1 != a->messages)
            continue;
        if (!qp_add(qp, w, at, reinterpret_cast<uint64_t>(a->far) + 8 * q, a->signal_rkey, 1))
            return false;
        qp_ring(qp);
    }
    return qp_flush(qp, w, at);
}

/* Every block posts to queue pair 0 with one lane. */
__device__ bool bench_shared(const struct bench_args *a, const struct swl_watch *w, uint32_t block)
{
    const struct wait_at at = {SWL_FAULT_QUEUE, SWL_WARP_NONE, block, 0};
    const uint64_t offset = signal_bytes + 64ull * block;
    struct swl_qp *qp = a->qps;
    uint64_t index;

    for (uint32_t i = 0; i < a->messages; i += a->together) {
        if (!qp_shared_reserve(qp, w, at, a->together, &index))
            return false;
        for (uint32_t k = 0; k < a->together; k++) {
            struct swl_wqe e;

            swl_wqe_move(
                &e, index + k, SWL_WQE_WRITE, qp->qpn,
                {reinterpret_cast<uint64_t>(a->window + offset), a->payload_lkey, a->bytes},
                {reinterpret_cast<uint64_t>(a->far) + offset, a->payload_rkey});
            qp_put(qp, index + k, &e);
        }
        if (!qp_shared_commit(qp, w, at, index, a->together))
            return false;
        if (i / together != (i + a->together) / together)
            qp_shared_ring(qp);
    }
    return qp_shared_flush(qp, w, at);
}

/* 16 bytes and a signal there, the same back; result[0]: ns of all rounds. */
__device__ bool bench_ping(const struct bench_args *a, const struct swl_watch *w, struct swl_qp *qp,
                           bool first)
{
    const uint32_t words[4] = {1, 2, 3, 4};
    const struct wait_at at = {SWL_FAULT_ARRIVAL, SWL_WARP_NONE, 0, 0};
    const uint64_t *word = reinterpret_cast<const uint64_t *>(a->window);
    uint64_t begin = 0;

    for (uint32_t i = 0; i < a->messages; i++) {
        if (i == a->messages / 10)
            begin = clock_ns();
        for (const uint64_t want = a->first + i + (first ? 0 : 1);;) {
            const uint64_t poison =
                peek_from_peer(w->poison); /* under way together with the word */

            if (read_from_nic(word) >= want)
                break;
            if (!wait_again_seen(w, at, want, 0, poison, SWL_PAUSE("bench: signal", 0, 0)))
                return false;
        }
        const uint64_t far = reinterpret_cast<uint64_t>(a->far) + signal_bytes;

        if (!(a->inlined ? qp_write_inline(qp, w, at, words, sizeof(words), far, a->payload_rkey)
                         : qp_write(qp, w, at, a->window + signal_bytes, a->payload_lkey, far,
                                    a->payload_rkey, a->bytes)) ||
            !qp_add(qp, w, at, reinterpret_cast<uint64_t>(a->far), a->signal_rkey, 1))
            return false;
        qp_ring(qp);
    }
    a->state->result[0] = clock_ns() - begin;
    begin = clock_ns();
    if (!qp_flush(qp, w, at))
        return false;
    a->state->result[1] = clock_ns() - begin;
    return true;
}

extern "C" __global__ void nic_bench_kernel(struct bench_args a)
{
    char *shared = static_cast<char *>(block_shared());
    struct swl_watch *w = reinterpret_cast<struct swl_watch *>(shared);
    const uint32_t work = static_cast<uint32_t>(block_count()) - a.nic_blocks;
    const uint32_t block = static_cast<uint32_t>(block_id());
    const bool leader = threadIdx.x == 0;
    bool ok = true;

    if (leader)
        bench_watch(w, &a);
    block_sync();
    if (block >= work) {
        nic_serve(a.port,
                  {block - work, a.nic_blocks, w, a.closing ? a.closing : &a.state->closing,
                   &a.state->gen},
                  {shared + 512, room_bytes});
        return;
    }
    if (!leader)
        return;
    if (a.mode == SHARED) {
        ok = bench_shared(&a, w, block);
    } else { /* the warp that owns a queue pair has its view at hand */
        struct swl_qp qp = a.qps[block];

        ok =
            a.mode == PUTS ? bench_puts(&a, w, &qp, block) : bench_ping(&a, w, &qp, a.mode == PING);
        a.qps[block] = qp;
    }
    if (!ok)
        a.state->failed = 1;
    if (add_in_gpu(&a.state->ticket, 1u) == work - 1 && a.nic_blocks)
        publish_in_gpu(&a.state->closing, 1u);
}

/* ---- host ---- */

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
    config.soft_executor = SWL_SOFT_BLOCKS;
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

    a.port = k->caps.gpu_port;
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

/* Fill rank 0's payload with a pattern, rank 1's with zeros; compare `bytes` at `offset` afterwards. */
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

/* Work requests that the NIC of rank 0 has taken with a doorbell since the last call, on average: how
 * far the poster is ahead. */
double per_doorbell()
{
    static struct swl_soft_stats before;
    struct swl_soft_stats now;
    double entries;

    if (!swl_soft_stats_get(0, &now))
        return 0;
    if (now.entries < before.entries)
        before = {};
    entries = static_cast<double>(now.entries - before.entries) /
              static_cast<double>(now.doorbells - before.doorbells + 1);
    before = now;
    return entries;
}

void puts_table(uint32_t blocks, bool alone, uint32_t messages)
{
    for (uint32_t bytes : {7168u, 14336u}) {
        printf("  %-10s %2u NIC blocks, %5u bytes:", alone ? "persistent" : "in call", blocks,
               bytes);
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
               alone ? "persistent" : "in call", blocks, at_once);
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
        printf(
            "  in call    %2u NIC blocks, %4u-byte put%s + signal: %5.2f us one way, the last one "
            "complete after %5.2f us\n",
            blocks, bytes ? bytes : 16, bytes ? "" : " (inline)",
            static_cast<double>(s.result[0]) / 2e3 / (messages - messages / 10),
            static_cast<double>(s.result[1]) / 1e3);
    }
    *first += messages;
}

} // namespace

int main(int argc, char **argv)
{
    std::vector<uint32_t> sizes = {1, 2, 4, 8};
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
    printf("software NIC on blocks of %u threads, GPU 0 to GPU %d\n", threads, ngpus > 1 ? 1 : 0);
    for (uint32_t blocks : sizes) {
        open_rank(0, 0, blocks);
        open_rank(1, ngpus > 1 ? 1 : 0, blocks);
        connect_rank(0);
        connect_rank(1);
        puts_table(blocks, false, messages);
        shared_table(blocks, false, messages);
        ping_table(blocks, rounds, &first);
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
