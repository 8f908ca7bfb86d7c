/* wire_model.h: how long a message takes by the wire model and the faults, for executors on a CPU:
 * the software NIC's and the server of a proxy. C++ only.
 *
 * Layer: transport/host; pure but for the random stream. Times are those of swl_gpu_now_ns. */
#pragma once

#include "transport/host/executor.h"
#include "transport/host/port.h"

#include <stdint.h>

namespace
{

const uint32_t header_bytes = 64; /* of a message on the wire */

inline uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* 0 … bound, from the stream *state_p, or if that is 0 from the run's. */
inline uint64_t random_below(uint64_t *state_p, uint64_t bound)
{
    uint64_t v = *state_p;

    if (bound == 0)
        return 0;
    if (v == 0) {
        v = swl_host_random();
    } else {
        v ^= v << 13;
        v ^= v >> 7;
        v ^= v << 17;
        *state_p = v;
        v *= 0x2545f4914f6cdd1dull;
    }
    return (v >> 11) % (bound + 1);
}

inline uint64_t wire_ns(const struct soft_wire_model *link, uint64_t bytes)
{
    return (bytes + header_bytes) * link->ns_per_mib >> 20;
}

/* When the first bit of a message that is ready at `ready` leaves. Takes the wire, free from
 * *egress_p on, for as long as its bytes need. */
inline uint64_t departure(const struct soft_wire_model *link, const struct soft_faults *faults,
                          uint32_t number, uint64_t ready, uint64_t bytes, uint64_t *egress_p)
{
    uint64_t begin = swl_faults_clear(faults, faults->begin_ns, number, ready + faults->delay_ns);

    if (link->ns_per_mib) {
        begin = swl_faults_clear(faults, faults->begin_ns, number, later(begin, *egress_p));
        *egress_p = begin + wire_ns(link, bytes);
    }
    return begin;
}

/* Sends of a message that get lost, SOFT_SENDS: all of them. Each costs its part of
 * faults->retry_ns. */
inline uint32_t losses(const struct soft_faults *faults, uint64_t *state_p)
{
    uint32_t n = 0;

    while (faults->loss && n < SOFT_SENDS && random_below(state_p, 999) < faults->loss)
        n++;
    return n;
}

inline uint64_t loss_ns(const struct soft_faults *faults, uint32_t n)
{
    return faults->retry_ns / SOFT_SENDS * n;
}

} // namespace
