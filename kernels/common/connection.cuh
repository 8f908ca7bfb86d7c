/* connection.cuh: how a ring reaches the rank at its other end. Layer: kernels. */
#pragma once

#include "kernels/common/args.h"
#include "kernels/device/wait.cuh"
#include "transport/qp.cuh"

/* The rings of a rank: out of it to the gateways of other nodes, n * P + p, or into it from served
 * sources, j * P + p. */
enum ring_side { RINGS_OUT, RINGS_IN };

SWL_DEV uint32_t side_rings(const struct swl_device_group *g, enum ring_side side)
{
    return (side == RINGS_OUT ? swl_remote_nodes(&g->shape) : g->shape.nserved) * g->shape.nrings;
}

SWL_DEV const struct swl_ring_end *ring_end(const struct swl_device_group *g, enum ring_side side,
                                            uint32_t ring)
{
    return (side == RINGS_OUT ? g->out : g->in) + ring / g->shape.nrings;
}

/* What a ring needs to reach the rank at its other end. */
struct connection {
    const struct swl_device_group *g;
    const struct swl_rdma_remote *remote;
    struct swl_qp *qp;
    uint32_t rank; /* at the other end */
    uint32_t ring; /* index of this ring in that rank's arrays [served][P] or [remote node][P] */
};

SWL_DEV struct connection connection_of(const struct swl_device_group *g, enum ring_side side,
                                        uint32_t ring)
{
    const struct swl_ring_end *end = ring_end(g, side, ring);
    const uint32_t p = g->shape.nrings;
    const uint32_t number = side == RINGS_OUT ? ring : side_rings(g, RINGS_OUT) + ring;

    return {g, g->net.remotes + number, (struct swl_qp *)g->net.qps + number, end->rank,
            end->index * p + ring % p};
}

/* Connection `number` of the rank: those of the rings out, then those of the rings in. */
SWL_DEV struct connection connection_at(const struct swl_device_group *g, uint32_t number)
{
    const uint32_t out = side_rings(g, RINGS_OUT);

    return number < out ? connection_of(g, RINGS_OUT, number)
                        : connection_of(g, RINGS_IN, number - out);
}

/* Look at the completions of the queue pair; false = it is in error (reported). For waits of the
 * lane that posts there: what an error took with it never arrives. */
SWL_DEV bool connection_poll(const struct connection &c, struct waiter w)
{
    w.peer = c.rank;
    return qp_poll(c.qp, w);
}

/* All queue pairs of the rings of channel `channel` on one side. */
SWL_DEV bool side_poll(const struct swl_device_group *g, enum ring_side side, uint32_t channel,
                       struct waiter w)
{
    for (uint32_t i = channel; i < side_rings(g, side); i += g->shape.nchannels)
        if (!connection_poll(connection_of(g, side, i), w))
            return false;
    return true;
}

/* Add to this ring's word of array `words` at the other end, after all earlier writes. */
SWL_DEV bool connection_add(const struct connection &c, uint64_t words, uint64_t value,
                            struct waiter w)
{
    w.peer = c.rank;
    return qp_add(c.qp, w, c.remote->base + words + 8ull * c.ring, c.remote->signal_rkey, value);
}

/* The same, and the NIC is told of all that was posted here. */
SWL_DEV bool connection_tell(const struct connection &c, uint64_t words, uint64_t value,
                             struct waiter w)
{
    if (!connection_add(c, words, value, w))
        return false;
    qp_ring(c.qp);
    return true;
}

/* Bytes of the own window at offset `from` that go to offset `to` of the other end's. */
struct window_span {
    uint64_t from, to;
    uint32_t bytes;
};

SWL_DEV bool connection_write(const struct connection &c, struct window_span span, struct waiter w)
{
    w.peer = c.rank;
    return qp_write(c.qp, w, qp_local(c.g->window + span.from, c.remote->payload_lkey, span.bytes),
                    {c.remote->base + span.to, c.remote->payload_rkey});
}

SWL_DEV uint64_t *own_word(const struct swl_device_group *g, uint64_t words, uint64_t index)
{
    return (uint64_t *)(g->window + words) + index;
}

SWL_DEV uint64_t *peer_word(const struct swl_device_group *g, uint32_t local, uint64_t words,
                            uint64_t index)
{
    return (uint64_t *)(g->peer_window[local] + words) + index;
}
