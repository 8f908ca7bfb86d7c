/* net.cuh: remote addresses of the words and rings of layout.h, as links reach them. Layer: kernels.
 *
 * Link x < remote nodes * P is ring x = n * P + p of this source; its other end is the gateway of
 * remote node n. Link (remote nodes * P) + y is ring y = j * P + p of served source j. */
#pragma once

#include "kernels/common/args.h"
#include "kernels/device/wait.cuh"
#include "transport/qp.cuh"

SWL_DEV uint32_t out_rings(const struct swl_device_group *g)
{
    return swl_remote_nodes(&g->shape) * g->shape.nrings;
}

SWL_DEV uint32_t in_rings(const struct swl_device_group *g)
{
    return g->shape.nserved * g->shape.nrings;
}

/* The rank at the other end of a link. */
SWL_DEV uint32_t link_rank(const struct swl_device_group *g, uint32_t link)
{
    const uint32_t p = g->shape.nrings, out = out_rings(g);

    return link < out ? g->out[link / p].rank : g->in[(link - out) / p].rank;
}

/* What a ring needs to reach the rank at its other end. */
struct connection {
    const struct swl_device_group *g;
    const struct swl_rdma_remote *remote;
    struct swl_qp *qp;
    uint32_t rank; /* at the other end */
    uint32_t ring; /* index of this ring in that rank's arrays [served][P] or [remote node][P] */
};

/* Out ring x, to a gateway. */
SWL_DEV struct connection out_connection(const struct swl_device_group *g, uint32_t x)
{
    const uint32_t p = g->shape.nrings;

    return {g, g->net.remotes + x, (struct swl_qp *)g->net.qps + x, g->out[x / p].rank,
            g->out[x / p].served * p + x % p};
}

/* In ring y, to a served source. */
SWL_DEV struct connection in_connection(const struct swl_device_group *g, uint32_t y)
{
    const uint32_t p = g->shape.nrings, link = out_rings(g) + y;

    return {g, g->net.remotes + link, (struct swl_qp *)g->net.qps + link, g->in[y / p].rank,
            g->in[y / p].remote * p + y % p};
}

/* Look at the completions of the queue pair; false = it is in error (reported). For waits of the
 * lane that posts there: what an error took with it never arrives. */
SWL_DEV bool connection_poll(const struct connection &c, struct waiter w)
{
    w.peer = c.rank;
    return qp_poll(c.qp, w);
}

/* All queue pairs of the out (in) rings of channel `channel`. */
SWL_DEV bool out_poll_channel(const struct swl_device_group *g, uint32_t channel, struct waiter w)
{
    for (uint32_t x = channel; x < out_rings(g); x += g->shape.nchannels)
        if (!connection_poll(out_connection(g, x), w))
            return false;
    return true;
}

SWL_DEV bool in_poll_channel(const struct swl_device_group *g, uint32_t channel, struct waiter w)
{
    for (uint32_t y = channel; y < in_rings(g); y += g->shape.nchannels)
        if (!connection_poll(in_connection(g, y), w))
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
