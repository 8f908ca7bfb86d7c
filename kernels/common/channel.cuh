/* channel.cuh: the rings of one channel, how its warps share them out. Layer: kernels.
 *
 * Ring r of channel c is ring c + r * C of the rank. On either side warps claim positions, of any
 * ring that has something: what the gateway has room for at the source, what has arrived at the
 * gateway. No warp waits for one ring while another could go on: see docs/protocol.md on what that
 * would cost. */
#pragma once

#include "kernels/common/call.cuh"
#include "kernels/common/select.cuh"

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

/* What a lane found when it looked at its share of the rings. */
struct claim_look {
    uint64_t position;
    int ring;    /* r with something to take, or -1 */
    int waiting; /* r that is not finished but has nothing, or -1 */
};

/* A source of claims defines: claim_word(from, r) in shared memory; claim_end(from, r) of this
 * call; claim_limit(from, r), the first position that may not be taken yet; claim_idle(from), work
 * that must not wait, true if there was some; claim_await(from, r), one round of waiting. A
 * template, since the two users differ only in these. */
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

/* All lanes. Take one position without waiting: 1 = taken (*ring_p, *position_p), 0 = nothing is
 * left to take, 2 = nothing now. */
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

/* Words of a channel's rings in the block's shared memory, arrays of one for each ring. */
struct ring_words {
    uint32_t nrings;    /* of the arrays */
    uint64_t *filled;   /* source: mask of slots written, for its coordinator */
    uint64_t *claim;    /* source: first position that no warp has taken */
    uint64_t *limit;    /* source: first one that was not free when a lane last looked */
    uint64_t *end;      /* source: of this call */
    uint64_t *place;    /* source: what a position lacks to its place in the lists (modulo 2^64) */
    uint64_t *taken;    /* gateway: first position that no warp has taken */
    uint64_t *read;     /* gateway: mask of slots read, for its coordinator */
    uint64_t *answered; /* gateway, combine: mask of partial sums written, for its coordinator */
};
static_assert(5 <= SWL_RING_WORDS,
              "picture of block.h: five words for the source, three for the gateway");

SWL_DEV struct ring_words ring_words_of(uint64_t *out, uint64_t *in, uint32_t nrings)
{
    return {nrings,           out, out + nrings, out + 2 * nrings, out + 3 * nrings,
            out + 4 * nrings, in,  in + nrings,  in + 2 * nrings};
}

SWL_DEV uint32_t channel_ring(const struct swl_device_group *g, uint32_t channel, uint32_t r)
{
    return channel + r * g->shape.nchannels;
}

/* A warp: the words at the begin of a call, when the rings out of the rank are at position sent[],
 * those into it at received[]. A block barrier follows. */
SWL_DEV void ring_words_begin(const struct ring_words &words, const struct swl_device_group *g,
                              const struct handle_view *h, uint32_t channel, const uint64_t *sent,
                              const uint64_t *received)
{
    for (uint32_t r = lane_id(); r < words.nrings; r += 32) {
        const uint32_t i = channel_ring(g, channel, r);

        words.filled[r] = words.read[r] = words.answered[r] = 0;
        if (i < side_rings(g, RINGS_OUT)) {
            words.claim[r] = words.limit[r] = sent[i]; /* nothing is known to be free */
            words.end[r] = sent[i] + list_length(h, i);
            words.place[r] = h->list_start[i] - sent[i];
        }
        if (i < side_rings(g, RINGS_IN))
            words.taken[r] = received[i];
    }
}

/* Listed tokens that the gateways have room for, as claim_take sees them. */
struct ring_room {
    const struct swl_device_group *g;
    const uint32_t *list; /* tokens of all rings, in handle memory */
    struct ring_words words;
    uint64_t credit; /* offset of the words in the window that the gateways add to */
    struct waiter waiter;
};

SWL_DEV uint32_t room_ring(const struct ring_room &from, uint32_t r)
{
    return channel_ring(from.g, from.waiter.channel, r);
}

SWL_DEV uint64_t *claim_word(const struct ring_room &from, uint32_t r)
{
    return &from.words.claim[r];
}

SWL_DEV uint64_t claim_end(const struct ring_room &from, uint32_t r)
{
    return from.words.end[r];
}

/* Most takes find room that another lane of the block has seen: its acquire of the credit comes
 * before its release of the limit. */
SWL_DEV uint64_t claim_limit(const struct ring_room &from, uint32_t r)
{
    const struct swl_device_group *g = from.g;
    const uint64_t known = read_in_block(&from.words.limit[r]);
    uint64_t limit;

    if (read_in_block(claim_word(from, r)) < known)
        return known;
    /* acquire: pairs with the gateway's adds */
    limit = read_from_nic(own_word(g, from.credit, room_ring(from, r))) + g->shape.ring_slots;
    if (limit != known)
        cas_in_block(&from.words.limit[r], known,
                     limit); /* who comes second leaves the first one's */
    return limit;
}

SWL_DEV bool claim_idle(const struct ring_room &)
{
    return false; /* senders and requesters hold nothing back */
}

SWL_DEV bool claim_await(const struct ring_room &from, uint32_t r)
{
    const uint32_t rank = ring_end(from.g, RINGS_OUT, room_ring(from, r))->rank;

    return wait_again(wait_for(from.waiter, SWL_FAULT_SEND_CREDIT, rank), claim_end(from, r),
                      claim_limit(from, r),
                      SWL_PAUSE("free slots at rank", rank, from.waiter.channel));
}

/* All lanes: the next token to put into a ring: ring *x_p of the rank, *position_p in it. False:
 * nothing is left, or given up. *turn_p begins at the number of the warp; a rank starts with the
 * ring of its own number, so that they do not all send to one node first. */
SWL_DEV bool room_take(const struct ring_room &from, uint32_t *turn_p, uint32_t *x_p,
                       uint64_t *position_p, uint32_t *token_p)
{
    const uint32_t nrings =
        channel_rings(side_rings(from.g, RINGS_OUT), from.waiter.channel, from.g->shape.nchannels);
    uint32_t r;

    if (nrings == 0 ||
        claim_take(from, nrings, from.g->shape.rank + (*turn_p)++, &r, position_p) <= 0)
        return false;
    *x_p = room_ring(from, r);
    *token_p = from.list[from.words.place[r] + *position_p];
    return true;
}
