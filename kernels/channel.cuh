/* channel.cuh: the rings of one channel, how its warps share them out. Layer: kernels.
 *
 * Ring r of channel c is ring c + r * C of the rank. On the source side the channel's items have one
 * fixed order, round by round over its rings; on the gateway side warps claim what has arrived. */
#pragma once

#include "kernels/call.cuh"
#include "kernels/select.cuh"

SWL_DEV uint32_t channel_rings(uint32_t all, uint32_t channel, uint32_t nchannels)
{
    return all > channel ? (all - channel + nchannels - 1) / nchannels : 0;
}

SWL_DEV uint32_t role_warps(const struct swl_roles *r, uint32_t role)
{
    return (uint32_t)r->count[role][0] + r->count[role][1];
}

SWL_DEV uint32_t list_length(const struct handle_view *h, uint32_t list)
{
    return h->list_start[list + 1] - h->list_start[list];
}

/* Items of a channel: all tokens listed for its rings toward other nodes. */
struct channel_items {
    const struct handle_view *h;
    uint32_t channel, nchannels, nrings, rounds, turn;
};

SWL_DEV struct channel_items channel_items_of(const struct swl_device_group *g,
                                              const struct handle_view *h, uint32_t channel)
{
    struct channel_items c = {h, channel, g->shape.nchannels, 0, 0, g->shape.rank};

    c.nrings = channel_rings(out_rings(g), channel, c.nchannels);
    for (uint32_t r = 0; r < c.nrings; r++) {
        const uint32_t n = list_length(h, channel + r * c.nchannels);

        c.rounds = n > c.rounds ? n : c.rounds;
    }
    return c;
}

SWL_DEV uint32_t channel_item_count(const struct channel_items *c)
{
    return c->rounds * c->nrings;
}

/* Item number `item`: ring x and place i in its list. False: that ring's list is shorter. Every rank
 * starts with another ring, so that they do not all send to one node first. */
SWL_DEV bool channel_item(const struct channel_items *c, uint32_t item, uint32_t *x_p,
                          uint32_t *i_p)
{
    *x_p = c->channel + (item % c->nrings + c->turn) % c->nrings * c->nchannels;
    *i_p = item / c->nrings;
    return *i_p < list_length(c->h, *x_p);
}

/* What a lane found when it looked at its share of the rings. */
struct claim_look {
    uint64_t position;
    int ring;    /* r with something to take, or -1 */
    int waiting; /* r that is not finished but has nothing, or -1 */
};

/* A source of claims defines: claim_word(from, r) in shared memory; claim_end(from, r) of this call;
 * claim_limit(from, r), the first position that may not be taken yet; claim_idle(from), work that must
 * not wait, true if there was some; claim_await(from, r), one round of waiting. A template, since the two
 * users differ only in these. */
template <class Source>
SWL_DEV struct claim_look claim_look_at(const Source &from, uint32_t nrings, uint32_t turn)
{
    struct claim_look look = {0, -1, -1};

    for (uint32_t i = lane_id(); i < nrings && look.ring < 0; i += 32) {
        const uint32_t r = (i + turn) % nrings;

        look.position = read_in_block(claim_word(from, r));
        if (look.position == claim_end(from, r))
            continue;
        if (look.position < claim_limit(from, r))
            look.ring = (int)r;
        else
            look.waiting = (int)r;
    }
    return look;
}

/* All lanes. Take one position without waiting: 1 = taken (*ring_p, *position_p), 0 = nothing is left
 * to take, 2 = nothing now. */
template <class Source>
SWL_DEV int claim_try(const Source &from, const struct claim_look &look, uint32_t *ring_p,
                      uint64_t *position_p)
{
    const uint32_t ready = warp_ballot(look.ring >= 0);
    const int lane = first_bit(ready);
    bool mine = false;

    if (!ready)
        return warp_any(look.waiting >= 0) ? 2 : 0;
    if (lane_id() == lane) /* bounded: never past what may be taken */
        mine = cas_in_block(claim_word(from, (uint32_t)look.ring), look.position,
                            look.position + 1) == look.position;
    if (!warp_any(mine))
        return 2;
    *ring_p = (uint32_t)warp_shfl(look.ring, lane);
    *position_p = warp_shfl(look.position, lane);
    warp_sync(); /* what that lane acquired is every lane's */
    return 1;
}

/* All lanes. Take one position: 1 = taken (*ring_p, *position_p), 0 = nothing is left to take,
 * -1 = given up. Holds nothing while it looks. */
template <class Source>
SWL_DEV int claim_take(const Source &from, uint32_t nrings, uint32_t turn, uint32_t *ring_p,
                       uint64_t *position_p)
{
    for (;;) {
        const struct claim_look look = claim_look_at(from, nrings, turn);
        const int got = claim_try(from, look, ring_p, position_p);
        bool ok = true;

        if (got != 2)
            return got;
        if (warp_any(look.ring >= 0)) /* another warp was faster */
            continue;
        if (claim_idle(from))
            continue; /* that took a while: look again */
        if (look.waiting >= 0)
            ok = claim_await(from, (uint32_t)look.waiting);
        if (!warp_all(ok))
            return -1;
    }
}
