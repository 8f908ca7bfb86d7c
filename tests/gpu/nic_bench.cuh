/* nic_bench.cuh: kernel of nic_bench.cu: posters, and blocks that run the software NIC beside them.
 * Layer: tests; owns nothing. */
#pragma once

#include "device.h"
#include "kernels/common/faults.h"

#include "src/runtime/runtime.h"
#include "transport/qp.cuh"
#include "transport/soft/blocks.cuh"

namespace
{

const uint32_t most_qps = 8, depth = 256, threads = 448, together = 16;
const uint32_t room_bytes = 200u << 10; /* about what the kernels have */
const uint64_t signal_bytes = 4096, payload_bytes = 64u << 20;
const uint64_t second_ns = 1000000000ull;

enum bench_mode { PUTS, SHARED, PING, PONG, POST, SERVE };

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
__device__ bool bench_puts(const struct bench_args *a, const struct swl_watch *watch,
                           struct swl_qp *qp, uint32_t q)
{
    const struct waiter w = {watch, SWL_FAULT_QUEUE, SWL_WARP_NONE, q, 0};
    const uint64_t base = signal_bytes + q * (payload_bytes / most_qps);

    for (uint32_t i = 0; i < a->messages; i++) {
        const uint64_t offset = base + static_cast<uint64_t>(i % a->slots) * a->bytes;

        if (!qp_write(qp, w, qp_local(a->window + offset, a->payload_lkey, a->bytes),
                      {reinterpret_cast<uint64_t>(a->far) + offset, a->payload_rkey}))
            return false;
        if (i % 8 != 7 && i + 1 != a->messages)
            continue;
        if (!qp_add(qp, w, reinterpret_cast<uint64_t>(a->far) + 8 * q, a->signal_rkey, 1))
            return false;
        qp_ring(qp);
    }
    return qp_flush(qp, w);
}

/* Every block posts to queue pair 0 with one lane. */
__device__ bool bench_shared(const struct bench_args *a, const struct swl_watch *watch,
                             uint32_t block)
{
    const struct waiter w = {watch, SWL_FAULT_QUEUE, SWL_WARP_NONE, block, 0};
    const uint64_t offset = signal_bytes + 64ull * block;
    struct swl_qp *qp = a->qps;
    uint64_t index;

    for (uint32_t i = 0; i < a->messages; i += a->together) {
        if (!qp_shared_reserve(qp, w, a->together, &index))
            return false;
        for (uint32_t k = 0; k < a->together; k++) {
            struct swl_wqe e;

            swl_wqe_move(
                &e, index + k, SWL_WQE_WRITE, qp->qpn,
                {reinterpret_cast<uint64_t>(a->window + offset), a->payload_lkey, a->bytes},
                {reinterpret_cast<uint64_t>(a->far) + offset, a->payload_rkey});
            qp_put(qp, index + k, &e);
        }
        if (!qp_shared_commit(qp, w, index, a->together))
            return false;
        if (i / together != (i + a->together) / together)
            qp_shared_ring(qp);
    }
    return qp_shared_flush(qp, w);
}

/* 16 bytes and a signal there, the same back; result[0]: ns of all rounds. */
__device__ bool bench_ping(const struct bench_args *a, const struct swl_watch *watch,
                           struct swl_qp *qp, bool first)
{
    const uint32_t words[4] = {1, 2, 3, 4};
    const struct waiter w = {watch, SWL_FAULT_ARRIVAL, SWL_WARP_NONE, 0, 0};
    const uint64_t *word = reinterpret_cast<const uint64_t *>(a->window);
    uint64_t begin = 0;

    for (uint32_t i = 0; i < a->messages; i++) {
        if (i == a->messages / 10)
            begin = clock_ns();
        for (const uint64_t want = a->first + i + (first ? 0 : 1);;) {
            const uint64_t poison =
                load_relaxed_from_peer(watch->poison); /* under way together with the word */

            if (read_from_nic(word) >= want)
                break;
            if (!wait_again_seen(w, want, 0, poison, SWL_PAUSE("bench: signal", 0, 0)))
                return false;
        }
        const uint64_t far = reinterpret_cast<uint64_t>(a->far) + signal_bytes;

        if (!(a->inlined
                  ? qp_write_inline(qp, w, words, sizeof(words), {far, a->payload_rkey})
                  : qp_write(qp, w, qp_local(a->window + signal_bytes, a->payload_lkey, a->bytes),
                             {far, a->payload_rkey})) ||
            !qp_add(qp, w, reinterpret_cast<uint64_t>(a->far), a->signal_rkey, 1))
            return false;
        qp_ring(qp);
    }
    a->state->result[0] = clock_ns() - begin;
    begin = clock_ns();
    if (!qp_flush(qp, w))
        return false;
    a->state->result[1] = clock_ns() - begin;
    return true;
}

/* What posting costs one lane: rounds of half a queue of WRITEs and one doorbell; result[0]: ns of
 * the entries, result[1]: of the doorbells. */
__device__ bool bench_post(const struct bench_args *a, const struct swl_watch *watch,
                           struct swl_qp *qp)
{
    const struct waiter w = {watch, SWL_FAULT_QUEUE, SWL_WARP_NONE, 0, 0};
    uint64_t posts = 0, rings = 0;

    for (uint32_t i = 0; i < a->messages; i += depth / 2) {
        const uint64_t begin = clock_ns();
        uint64_t posted;

        for (uint32_t k = 0; k < depth / 2; k++)
            if (!qp_write(qp, w, qp_local(a->window + signal_bytes, a->payload_lkey, a->bytes),
                          {reinterpret_cast<uint64_t>(a->far) + signal_bytes, a->payload_rkey}))
                return false;
        posted = clock_ns();
        qp_ring(qp);
        rings += clock_ns() - posted;
        posts += posted - begin;
        if (!qp_flush(qp, w))
            return false;
    }
    a->state->result[0] = posts;
    a->state->result[1] = rings;
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

        ok = a.mode == PUTS   ? bench_puts(&a, w, &qp, block)
             : a.mode == POST ? bench_post(&a, w, &qp)
                              : bench_ping(&a, w, &qp, a.mode == PING);
        a.qps[block] = qp;
    }
    if (!ok)
        a.state->failed = 1;
    if (add_in_gpu(&a.state->ticket, 1u) == work - 1 && a.nic_blocks)
        publish_in_gpu(&a.state->closing, 1u);
}

} // namespace
