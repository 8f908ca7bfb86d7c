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

SWL_DEV struct swl_qp *out_qp(const struct swl_device_group *g, uint32_t x)
{
    return (struct swl_qp *)g->net.qps + x;
}

SWL_DEV struct swl_qp *in_qp(const struct swl_device_group *g, uint32_t y)
{
    return (struct swl_qp *)g->net.qps + out_rings(g) + y;
}

SWL_DEV const struct swl_rdma_remote *out_remote(const struct swl_device_group *g, uint32_t x)
{
    return g->net.remotes + x;
}

SWL_DEV const struct swl_rdma_remote *in_remote(const struct swl_device_group *g, uint32_t y)
{
    return g->net.remotes + out_rings(g) + y;
}

/* The rank at the other end of a link. */
SWL_DEV uint32_t link_rank(const struct swl_device_group *g, uint32_t link)
{
    const uint32_t p = g->shape.nrings, out = out_rings(g);

    return link < out ? g->out[link / p].rank : g->in[(link - out) / p].rank;
}

/* Index of out ring x in the gateway's arrays [served][P], and of in ring y in the source's. */
SWL_DEV uint32_t out_index(const struct swl_device_group *g, uint32_t x)
{
    const uint32_t p = g->shape.nrings;

    return g->out[x / p].served * p + x % p;
}

SWL_DEV uint32_t in_index(const struct swl_device_group *g, uint32_t y)
{
    const uint32_t p = g->shape.nrings;

    return g->in[y / p].remote * p + y % p;
}

/* Look at the completions of a ring's queue pair; false = it is in error (reported). For waits of
 * the lane that posts there: what an error took with it never arrives. */
SWL_DEV bool out_poll(const struct swl_device_group *g, uint32_t x, const struct swl_watch *w,
                      struct wait_at at)
{
    at.peer = g->out[x / g->shape.nrings].rank;
    return qp_poll(out_qp(g, x), w, at);
}

SWL_DEV bool in_poll(const struct swl_device_group *g, uint32_t y, const struct swl_watch *w,
                     struct wait_at at)
{
    at.peer = g->in[y / g->shape.nrings].rank;
    return qp_poll(in_qp(g, y), w, at);
}

/* All queue pairs of the out (in) rings of channel `channel`. */
SWL_DEV bool out_poll_channel(const struct swl_device_group *g, uint32_t channel,
                              const struct swl_watch *w, struct wait_at at)
{
    for (uint32_t x = channel; x < out_rings(g); x += g->shape.nchannels)
        if (!out_poll(g, x, w, at))
            return false;
    return true;
}

SWL_DEV bool in_poll_channel(const struct swl_device_group *g, uint32_t channel,
                             const struct swl_watch *w, struct wait_at at)
{
    for (uint32_t y = channel; y < in_rings(g); y += g->shape.nchannels)
        if (!in_poll(g, y, w, at))
            return false;
    return true;
}

/* Add to the word of out ring x in array `words` at the gateway, after all earlier writes. */
SWL_DEV bool out_add(const struct swl_device_group *g, uint32_t x, uint64_t words, uint64_t value,
                     const struct swl_watch *w, struct wait_at at)
{
    const struct swl_rdma_remote *r = out_remote(g, x);

    at.peer = g->out[x / g->shape.nrings].rank;
    return qp_add(out_qp(g, x), w, at, r->base + words + 8ull * out_index(g, x), r->signal_rkey,
                  value);
}

/* Add to the word of in ring y in array `words` at the source. */
SWL_DEV bool in_add(const struct swl_device_group *g, uint32_t y, uint64_t words, uint64_t value,
                    const struct swl_watch *w, struct wait_at at)
{
    const struct swl_rdma_remote *r = in_remote(g, y);

    at.peer = g->in[y / g->shape.nrings].rank;
    return qp_add(in_qp(g, y), w, at, r->base + words + 8ull * in_index(g, y), r->signal_rkey,
                  value);
}

/* Bytes of the own window at offset `from` that go to offset `to` of a peer's. */
struct window_span {
    uint64_t from, to;
    uint32_t bytes;
};

SWL_DEV bool out_write(const struct swl_device_group *g, uint32_t x, struct window_span span,
                       const struct swl_watch *w, struct wait_at at)
{
    const struct swl_rdma_remote *r = out_remote(g, x);

    at.peer = g->out[x / g->shape.nrings].rank;
    return qp_write(out_qp(g, x), w, at,
                    qp_local(g->window + span.from, r->payload_lkey, span.bytes),
                    {r->base + span.to, r->payload_rkey});
}

SWL_DEV bool in_write(const struct swl_device_group *g, uint32_t y, struct window_span span,
                      const struct swl_watch *w, struct wait_at at)
{
    const struct swl_rdma_remote *r = in_remote(g, y);

    at.peer = g->in[y / g->shape.nrings].rank;
    return qp_write(in_qp(g, y), w, at,
                    qp_local(g->window + span.from, r->payload_lkey, span.bytes),
                    {r->base + span.to, r->payload_rkey});
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
