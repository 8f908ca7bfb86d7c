/* device_test.cu: the primitives of device/cuda/device.h, alone on one GPU. Every loop that waits
 * for another lane ends by the clock, so that a broken primitive fails and does not hang. */
#include "device.h"

#include "tests/gpu/gpu_fixture.h"

#include <cmath>

namespace
{

const uint64_t LIMIT_NS = 5 * SECOND_NS;

/* Spin until read(p) == want; false after LIMIT_NS. */
template <typename Read> SWL_DEV bool until(Read read, uint64_t want)
{
    const uint64_t start = clock_ns();

    while (read() != want) {
        if (clock_ns() - start > LIMIT_NS)
            return false;
        pause_lane(SWL_PAUSE("test", 0, 0), start + LIMIT_NS);
    }
    return true;
}

/* ---- position and warps ---- */

struct place_args {
    uint32_t *out; /* [blocks * threads][10] */
};

SWL_KERNEL void place_kernel(struct place_args a)
{
    const int lane = lane_id(), threads = warp_count() * 32;
    uint32_t *out = a.out + 10 * (block_id() * threads + warp_id() * 32 + lane);
    const uint64_t wide = (1ull << 40) + static_cast<uint64_t>(lane);

    out[0] = static_cast<uint32_t>(lane);
    out[1] = static_cast<uint32_t>(warp_id());
    out[2] = static_cast<uint32_t>(warp_count());
    out[3] = static_cast<uint32_t>(block_count());
    out[4] = reinterpret_cast<uintptr_t>(block_shared()) % 128 == 0;
    out[5] = warp_shfl(static_cast<uint32_t>(lane) * 3, 7);
    out[6] = static_cast<uint32_t>(warp_shfl_up(lane, 2));
    out[7] = warp_shfl_xor(wide, 5) == (1ull << 40) + static_cast<uint64_t>(lane ^ 5);
    out[8] = warp_ballot(lane % 3 == 0);
    out[9] = (warp_any(lane == 31) ? 1 : 0) | (warp_all(lane < 31) ? 2 : 0) |
             (warp_any(lane > 31) ? 4 : 0) | (warp_all(lane < 32) ? 8 : 0);
}

TEST_F(OnGpu, LanesKnowTheirPlaceAndTheirNeighbours)
{
    const int blocks = 3, threads = 96;
    uint32_t *out = zeroed<uint32_t>(blocks * threads * 10), thirds = 0;

    for (int lane = 0; lane < 32; lane += 3)
        thirds |= 1u << lane;
    run(place_kernel, place_args{out}, blocks, threads, 256);
    const auto v = download(out, blocks * threads * 10);
    for (int i = 0; i < blocks * threads; i++) {
        const uint32_t *o = &v[10 * i], lane = i % 32;

        EXPECT_EQ(o[0], lane);
        EXPECT_EQ(o[1], static_cast<uint32_t>(i % threads / 32));
        EXPECT_EQ(o[2], 3u);
        EXPECT_EQ(o[3], 3u);
        EXPECT_EQ(o[4], 1u);
        EXPECT_EQ(o[5], 21u);
        EXPECT_EQ(o[6], lane < 2 ? lane : lane - 2);
        EXPECT_EQ(o[7], 1u);
        EXPECT_EQ(o[8], thirds);
        EXPECT_EQ(o[9], 1u | 8u);
    }
}

/* ---- words ---- */

struct word_args {
    uint32_t *narrow; /* [12] */
    uint64_t *wide;   /* [12] */
    uint64_t *old;    /* [32] */
};

template <typename T> SWL_DEV void every_atomic(T *w, uint64_t *old)
{
    old[0] = add_in_block(w + 0, T(5));
    old[1] = or_in_block(w + 1, T(6));
    old[2] = and_in_block(w + 2, T(7));
    old[3] = cas_in_block(w + 3, T(3), T(33));
    old[4] = cas_in_block(w + 4, T(99), T(33));
    old[5] = add_in_gpu(w + 5, T(5));
    old[6] = or_in_gpu(w + 6, T(8));
    old[7] = and_in_gpu(w + 7, T(6));
    old[8] = cas_in_gpu(w + 8, T(8), T(88));
    old[9] = cas_in_gpu(w + 9, T(99), T(88));
    old[10] = add_to_peer(w + 10, T(7));
    old[11] = nic_add(w + 11, T(9));
    old[12] = add_relaxed_in_gpu(w + 12, T(3)) + load_relaxed_in_gpu(w + 12) - 15;
}

SWL_KERNEL void word_kernel(struct word_args a)
{
    if (lane_id() == 0) {
        every_atomic(a.narrow, a.old);
        every_atomic(a.wide, a.old + 13);
    }
}

TEST_F(OnGpu, AtomicsReturnTheOldValueAndStoreTheNew)
{
    std::vector<uint32_t> narrow(13);
    std::vector<uint64_t> wide(13);

    for (uint32_t i = 0; i < 13; i++)
        narrow[i] = static_cast<uint32_t>(wide[i] = i);
    const word_args a = {upload(narrow), upload(wide), zeroed<uint64_t>(26)};
    run(word_kernel, a, 1, 32);
    const auto old = download(a.old, 26);
    const auto n = download(a.narrow, 13);
    const auto w = download(a.wide, 13);
    const uint64_t after[13] = {5, 7, 2, 33, 4, 10, 14, 6, 88, 9, 17, 20, 15};
    for (uint32_t i = 0; i < 13; i++) {
        EXPECT_EQ(old[i], i);
        EXPECT_EQ(old[13 + i], i);
        EXPECT_EQ(n[i], after[i]);
        EXPECT_EQ(w[i], after[i]);
    }
}

/* Data then word, between blocks, again and again: stale data would be seen. */
struct pass_args {
    struct vec16 *data; /* [32] */
    uint64_t *there;    /* [1] */
    uint64_t *back;     /* [1] */
    uint32_t *bad;
    uint32_t rounds;
    int how; /* 0 gpu, 1 sys, 2 fence and relaxed sys, 3 atomics of the GPU */
};

SWL_DEV void pass_tell(uint64_t *w, uint64_t v, int how)
{
    if (how == 0)
        publish_in_gpu(w, v);
    else if (how == 1)
        publish_to_peer(w, v);
    else if (how == 3)
        add_in_gpu(w, uint64_t(1));
    else {
        order_before_publish(SWL_SCOPE_SYS);
        post_to_peer(w, v);
    }
}

SWL_DEV bool pass_await(uint64_t *w, uint64_t v, int how)
{
    return until([=] { return how == 0 ? read_in_gpu(w) : read_from_peer(w); }, v);
}

SWL_KERNEL void pass_kernel(struct pass_args a)
{
    const uint32_t lane = static_cast<uint32_t>(lane_id());
    bool ok = true;

    for (uint32_t round = 1; round <= a.rounds && ok; round++) {
        if (block_id() == 0) {
            store_data(a.data + lane, vec16{{round, lane, round ^ lane, round + lane}});
            warp_sync();
            if (lane == 0) {
                pass_tell(a.there, round, a.how);
                ok = pass_await(a.back, round, a.how);
            }
        } else {
            if (lane == 0)
                ok = pass_await(a.there, round, a.how);
            warp_sync();
            const struct vec16 v = load_data(a.data + (lane + 5) % 32);
            if (v.x[0] != round || v.x[1] != (lane + 5) % 32)
                add_in_gpu(a.bad, 1u);
            warp_sync();
            if (lane == 0)
                pass_tell(a.back, round, a.how);
        }
        ok = warp_all(ok);
    }
    if (!ok && lane == 0)
        add_in_gpu(a.bad, 1u << 20);
}

TEST_F(OnGpu, DataPublishedBeforeAWordIsSeenAfterIt)
{
    for (int how = 0; how < 4; how++) {
        const pass_args a = {zeroed<vec16>(32),
                             zeroed<uint64_t>(16),
                             zeroed<uint64_t>(16),
                             zeroed<uint32_t>(1),
                             20000,
                             how};

        run(pass_kernel, a, 2, 32);
        EXPECT_EQ(download(a.bad, 1)[0], 0u) << "way " << how;
    }
}

struct block_args {
    uint64_t *out; /* [5] */
};

/* Warp 0 publishes in shared memory, warp 1 reads; warps 2 and 3 meet at a named barrier; then the
 * lanes of warp 1 each arrive at a stage that the others wait for. */
SWL_KERNEL void block_kernel(struct block_args a)
{
    uint64_t *word = static_cast<uint64_t *>(block_shared()), *data = word + 1;
    mbarrier *stage = word + 40;

    if (warp_id() == 0 && lane_id() == 0)
        word[0] = word[1] = word[2] = 0;
    block_sync();
    if (warp_id() == 0 && lane_id() == 0) {
        data[0] = 77;
        publish_in_block(word, uint64_t(1));
    } else if (warp_id() == 1 && lane_id() == 0) {
        a.out[0] = until([=] { return read_in_block(word); }, 1);
        a.out[1] = data[0];
    } else if (warp_id() >= 2) {
        if (warp_id() == 2 && lane_id() == 0)
            data[1] = 55;
        named_sync(3, 64);
        if (warp_id() == 3 && lane_id() == 0)
            a.out[2] = data[1];
    }
    block_sync();
    add_in_block(data, uint64_t(1));
    block_sync();
    if (warp_id() == 0 && lane_id() == 0) {
        a.out[3] = data[0];
        stage_init(stage, 32);
        stage_init_done();
    }
    block_sync();
    if (warp_id() == 1) {
        data[2 + lane_id()] = static_cast<uint64_t>(lane_id()) + 1;
        stage_arrive(stage);
    } else if (until([=] { return stage_test(stage, 0); }, 1) && warp_id() == 2) {
        if (lane_id() == 0)
            a.out[4] = 0;
        warp_sync();
        add_relaxed_in_gpu(&a.out[4], data[2 + 31 - lane_id()]);
    }
}

TEST_F(OnGpu, WarpsOfABlockMeetAndTalkThroughSharedMemory)
{
    const block_args a = {zeroed<uint64_t>(5)};

    run(block_kernel, a, 1, 128, 512);
    EXPECT_EQ(download(a.out, 5), (std::vector<uint64_t>{1, 77, 55, 77 + 128, 33 * 16}));
}

/* ---- bulk copies ---- */

struct bulk_args {
    const struct vec16 *in;
    struct vec16 *middle, *out;
    uint64_t *word;
    uint32_t *bad;
    uint32_t row_bytes, rows;
};

#define STAGES 3

/* Rows in[] -> shared -> middle[] by block 0; middle[] -> shared (edited) -> out[] by block 1,
 * which follows the word: the path of a token through a ring. */
SWL_KERNEL void bulk_kernel(struct bulk_args a)
{
    mbarrier *stage = static_cast<mbarrier *>(block_shared());
    char *buffer = static_cast<char *>(block_shared()) + 128;
    const uint32_t units = a.row_bytes / 16, lane = static_cast<uint32_t>(lane_id());

    if (lane == 0) {
        for (int i = 0; i < STAGES; i++)
            stage_init(stage + i, 1);
        stage_init_done();
    }
    block_sync();
    for (uint32_t row = 0; row < a.rows; row++) {
        const uint32_t s = row % STAGES, parity = row / STAGES & 1;
        struct vec16 *here = reinterpret_cast<struct vec16 *>(buffer + s * a.row_bytes);

        if (lane == 0) {
            bulk_wait_read<STAGES - 1>();
            if (block_id() == 1) {
                if (!until([&] { return read_from_peer(a.word) > row; }, 1))
                    add_in_gpu(a.bad, 1u);
                order_before_bulk_load();
            }
            stage_expect(stage + s, a.row_bytes);
            bulk_load(here, (block_id() ? a.middle : a.in) + row * units, a.row_bytes, stage + s);
        }
        if (!until([&] { return stage_test(stage + s, parity); }, 1))
            add_in_gpu(a.bad, 1u);
        if (block_id() == 1) {
            for (uint32_t i = lane; i < units; i += 32)
                here[i].x[0] += row;
            order_before_bulk_store();
        }
        warp_sync();
        if (lane == 0) {
            bulk_store((block_id() ? a.out : a.middle) + row * units, here, a.row_bytes);
            bulk_commit();
            if (block_id() == 0) {
                bulk_wait<0>();
                publish_to_peer(a.word, uint64_t(row + 1));
            }
        }
        warp_sync();
    }
    if (lane == 0)
        bulk_wait<0>();
}

TEST_F(OnGpu, BulkCopiesCarryRowsThroughStagesAndRings)
{
    for (uint32_t row_bytes : {16u, 7168u * 2}) {
        const uint32_t rows = 257, units = row_bytes / 16;
        std::vector<vec16> in(rows * units);

        for (uint32_t i = 0; i < rows * units; i++)
            in[i] = vec16{{i, i * 3, i ^ 77, ~i}};
        const bulk_args a = {upload(in),
                             zeroed<vec16>(rows * units),
                             zeroed<vec16>(rows * units),
                             zeroed<uint64_t>(1),
                             zeroed<uint32_t>(1),
                             row_bytes,
                             rows};
        run(bulk_kernel, a, 2, 32, 128 + STAGES * row_bytes);
        EXPECT_EQ(download(a.bad, 1)[0], 0u);
        const auto out = download(a.out, rows * units);
        for (uint32_t i = 0; i < rows * units; i++) {
            ASSERT_EQ(out[i].x[0], in[i].x[0] + i / units) << "unit " << i;
            ASSERT_EQ(memcmp(&out[i].x[1], &in[i].x[1], 12), 0) << "unit " << i;
        }
    }
}

struct input_args {
    const struct vec16 *in;
    struct vec16 *out;
};

SWL_KERNEL void input_kernel(struct input_args a)
{
    store_data(a.out + lane_id(), load_input(a.in + lane_id()));
}

TEST_F(OnGpu, InputIsLoadedWhole)
{
    std::vector<vec16> in(32);

    for (uint32_t i = 0; i < 32; i++)
        in[i] = vec16{{i, i + 100, i + 200, i + 300}};
    const input_args a = {upload(in), zeroed<vec16>(32)};
    run(input_kernel, a, 1, 32);
    const auto out = download(a.out, 32);
    EXPECT_EQ(memcmp(out.data(), in.data(), 32 * 16), 0);
}

/* ---- numbers ---- */

struct number_args {
    const float *in; /* [n] */
    uint16_t *half, *bf16;
    float *from_half, *from_bf16; /* of all 65536 patterns */
    uint32_t n;
};

SWL_KERNEL void number_kernel(struct number_args a)
{
    const uint32_t threads = static_cast<uint32_t>(block_count() * warp_count() * 32);
    const uint32_t first =
        static_cast<uint32_t>((block_id() * warp_count() + warp_id()) * 32 + lane_id());

    for (uint32_t i = first; i < a.n; i += threads) {
        a.half[i] = float_to_half(a.in[i]);
        a.bf16[i] = float_to_bf16(a.in[i]);
    }
    for (uint32_t i = first; i < 65536; i += threads) {
        a.from_half[i] = half_to_float(static_cast<uint16_t>(i));
        a.from_bf16[i] = bf16_to_float(static_cast<uint16_t>(i));
    }
}

/* Round to nearest even to a format with `mantissa` bits and exponents from `least` to `most`. */
double rounded(double x, int mantissa, int least, int most)
{
    int e;

    if (x == 0 || std::isinf(x))
        return x;
    std::frexp(x, &e);
    const int unit = std::max(e - 1, least) - mantissa;
    const double r = std::ldexp(std::nearbyint(std::ldexp(x, -unit)), unit);
    return std::fabs(r) >= std::ldexp(1.0, most + 1) ? std::copysign(INFINITY, x) : r;
}

float float_of(uint32_t bits)
{
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f;
}

TEST_F(OnGpu, ConversionsRoundToNearestEven)
{
    std::vector<float> in;
    uint32_t x = 1;

    for (int i = 0; i < 1 << 20; i++) {
        x = x * 1664525u + 1013904223u;
        /* every exponent, NaN and infinity among them */
        in.push_back(float_of(x));
        in.push_back(float_of((x & 0x8fffe000u) | 0x38000000u | (x >> 31) << 12)); /* ties */
    }
    const uint32_t n = static_cast<uint32_t>(in.size());
    const number_args a = {upload(in),           zeroed<uint16_t>(n),  zeroed<uint16_t>(n),
                           zeroed<float>(65536), zeroed<float>(65536), n};
    run(number_kernel, a, 32, 256);
    const auto half = download(a.half, n), bf16 = download(a.bf16, n);
    const auto from_half = download(a.from_half, 65536), from_bf16 = download(a.from_bf16, 65536);
    for (uint32_t i = 0; i < n; i++) {
        if (std::isnan(in[i])) {
            ASSERT_EQ(half[i], 0x7fff);
            ASSERT_EQ(bf16[i], 0x7fff);
            continue;
        }
        ASSERT_EQ(from_half[half[i]], rounded(in[i], 10, -14, 15)) << in[i];
        ASSERT_EQ(from_bf16[bf16[i]], rounded(in[i], 7, -126, 127)) << in[i];
        ASSERT_EQ(std::signbit(from_half[half[i]]), std::signbit(in[i]));
        ASSERT_EQ(std::signbit(from_bf16[bf16[i]]), std::signbit(in[i]));
    }
    for (uint32_t i = 0; i < 65536; i++) {
        const float wide = float_of(i << 16);

        ASSERT_EQ(std::isnan(from_half[i]), (i & 0x7fff) > 0x7c00);
        ASSERT_EQ(memcmp(&from_bf16[i], &wide, 4), 0);
    }
}

struct sum_args {
    float *out;
    float a, b, c;
    int *bits;
};

SWL_KERNEL void sum_kernel(struct sum_args a)
{
    if (lane_id() != 0)
        return;
    a.out[0] = add_rn(a.a * a.b, a.c); /* two roundings */
    a.out[1] = fma_rn(a.a, a.b, a.c);  /* one */
    a.bits[0] = first_bit(0u);
    a.bits[1] = first_bit(0x80000000u);
    a.bits[2] = first_bit(uint64_t(0));
    a.bits[3] = first_bit(uint64_t(1) << 45 | uint64_t(1) << 60);
    a.bits[4] = count_bits(0xf0f0u);
    a.bits[5] = count_bits(~uint64_t(0));
}

TEST_F(OnGpu, SumsAreNeitherContractedNorReordered)
{
    const float x = 1.0f + 0x1p-12f;
    const sum_args a = {zeroed<float>(2), x, x, -1.0f, zeroed<int>(6)};

    run(sum_kernel, a, 1, 32);
    const volatile float product = x * x;
    const auto out = download(a.out, 2);
    EXPECT_EQ(out[0], product - 1.0f);
    EXPECT_EQ(out[1], std::fma(x, x, -1.0f));
    EXPECT_NE(out[0], out[1]);
    EXPECT_EQ(download(a.bits, 6), (std::vector<int>{-1, 31, -1, 45, 8, 64}));
}

/* ---- host and NIC ---- */

struct host_args {
    uint64_t *to_host;      /* pinned [4] */
    const uint64_t *to_gpu; /* pinned [1] */
    uint32_t *record;       /* pinned [2] */
    uint64_t *word;         /* device [4] */
};

SWL_KERNEL void host_kernel(struct host_args a)
{
    if (lane_id() != 0)
        return;
    const uint64_t before = clock_ns();

    a.to_host[1] = 4711;
    publish_to_host(a.to_host, uint64_t(1));
    a.word[0] = until([=] { return read_from_host(a.to_gpu); }, 9);
    pause_lane(SWL_PAUSE("test", 0, 0), 0);
    a.word[1] = clock_ns() - before;
    order_before_doorbell(SWL_SCOPE_SYS);
    store_doorbell_record(a.record, 5u);
    order_before_doorbell(SWL_SCOPE_SYS);
    ring_doorbell(a.to_host + 2, 6);
    nic_publish(a.record + 1, 8u);
    a.word[2] = read_completion(a.record + 1) + read_doorbell(a.to_host + 2);
    a.word[3] = read_from_nic(a.word);
}

TEST_F(OnGpu, WordsTravelToTheHostAndBackWhileAKernelRuns)
{
    void *pinned = nullptr;

    ASSERT_EQ(swl_gpu_host_malloc(&pinned, 256), cudaSuccess);
    volatile uint64_t *w = static_cast<uint64_t *>(pinned);
    const host_args a = {static_cast<uint64_t *>(pinned), static_cast<uint64_t *>(pinned) + 16,
                         static_cast<uint32_t *>(pinned) + 48, zeroed<uint64_t>(4)};
    start(host_kernel, a, 1, 32, 0);
    const uint64_t begin = swl_gpu_now_ns();
    while (__atomic_load_n(&w[0], __ATOMIC_ACQUIRE) != 1 &&
           swl_gpu_now_ns() - begin < 4 * SECOND_NS)
        swl_gpu_sleep_ns(1000);
    EXPECT_EQ(w[1], 4711u);
    EXPECT_EQ(swl_gpu_stream_wait(stream, 1000000), cudaErrorNotReady); /* it waits for the host */
    __atomic_store_n(&w[16], uint64_t(9), __ATOMIC_RELEASE);
    wait();
    const auto word = download(a.word, 4);
    EXPECT_EQ(word[0], 1u);
    EXPECT_GT(word[1], 0u);
    EXPECT_LT(word[1], 10 * SECOND_NS);
    EXPECT_EQ(word[2], 14u);
    EXPECT_EQ(word[3], 1u);
    EXPECT_EQ(w[2], 6u);
    EXPECT_EQ(static_cast<uint32_t *>(pinned)[48], 5u);
    EXPECT_EQ(swl_gpu_host_free(pinned), cudaSuccess);
}

} // namespace
