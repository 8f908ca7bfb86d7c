/* coordinator.cuh: the lane that looks after the rings of a channel on one side. Layer: kernels.
 *
 * Several warps finish the slots of a ring end out of order and set bits of its completion mask.
 * The coordinator advances over the contiguous bits, clears them, and tells the other end: it posts
 * slots that were written, or gives credit for slots that were read. What it does is data: a duty
 * for each mask.
 *
 * Order: the mask is acquired before the NIC is told, hence slots are written, or read, before; on
 * one queue pair the WRITEs of slots come before the add to their tail.
 * Progress: it waits for the warps of its own block only, for all rings at once
 * Ends: all that the handle promises for the rings is posted, and credited */
#pragma once

#include "kernels/common/channel.cuh"

enum duty_kind { DUTY_NONE, DUTY_POST, DUTY_CREDIT };

/* Slots to be posted. */
struct duty_slots {
    uint64_t from, to;     /* offsets of the rings here and there */
    uint32_t stride, used; /* bytes from slot to slot, and those that are in use */
};

/* For all rings of a side. Arrays are of these rings, masks in a block of those of the channel. */
struct duty {
    enum duty_kind kind;
    bool in_gpu;    /* bits are set by other blocks, too: the masks lie in memory of the GPU */
    uint64_t *mask; /* of finished slots */
    const uint64_t *now;
    uint64_t *next;
    uint64_t words;          /* offset at the other end: tails, or words of credit */
    uint64_t *credited;      /* credit: counted here too */
    struct duty_slots slots; /* post */
};

/* `now`: positions at the begin of the call, `next`: as far as they have come. */
SWL_DEV struct duty duty_of(enum duty_kind kind, uint64_t *mask, const uint64_t *now,
                            uint64_t *next, uint64_t words)
{
    return {kind, false, mask, now, next, words, 0, {0, 0, 0, 0}};
}

struct coordinator {
    const struct swl_device_group *g;
    const struct handle_view *h;
    enum ring_side side;
    struct waiter waiter;
    const char *what;          /* it waits for */
    struct duty first, second; /* in this order for each ring */
};

/* Slots that ring i has in this call. */
SWL_DEV uint32_t coordinator_slots(const struct coordinator &c, uint32_t i)
{
    return c.side == RINGS_OUT ? list_length(c.h, i) : c.h->recv_n[i];
}

/* Post n slots of ring i from position `at` on, which do not wrap. */
SWL_DEV bool duty_post(const struct connection &conn, const struct duty_slots &d, uint32_t i,
                       uint64_t at, uint32_t n, struct waiter w)
{
    const struct swl_shape *s = &conn.g->shape;
    const uint64_t from = d.from + slot_number(s, i, at) * d.stride;
    const uint64_t to = d.to + slot_number(s, conn.ring, at) * d.stride;
    bool ok = true;

    if (d.used >= d.stride - d.stride / 8) /* one write for the chunk: little between the slots */
        return connection_write(conn, {from, to, (n - 1) * d.stride + d.used}, w);
    for (uint64_t k = 0; ok && k < n; k++)
        ok = connection_write(conn, {from + k * d.stride, to + k * d.stride, d.used}, w);
    return ok;
}

/* The duty for ring i: 1 something was told, 0 nothing, -1 failed; *open_p: anything is left. */
SWL_DEV int duty_turn(const struct coordinator &c, const struct duty &d, uint32_t i, bool *open_p)
{
    const struct swl_shape *s = &c.g->shape;
    const uint64_t begin = d.now[i], at = d.next[i], end = begin + coordinator_slots(c, i);
    uint64_t *mask = d.mask + (d.in_gpu ? i : i / s->nchannels);
    /* acquire: pairs with mask_finish_in_block, or _in_gpu, of the warps that finished the slots */
    const uint32_t ready = mask_run(d.in_gpu ? read_in_gpu(mask) : read_in_block(mask), at);
    const uint32_t n = d.kind == DUTY_CREDIT ? slots_to_credit(s, ready, at, end)
                                             : slots_to_post(s, ready, begin, at, end);
    struct connection conn;

    *open_p = *open_p || at + n != end;
    if (n == 0)
        return 0;
    conn = connection_of(c.g, c.side, i);
    if (d.in_gpu) /* before the other end is told: after that the slots may be finished again */
        and_in_gpu(mask, ~mask_bits(at, n));
    else
        and_in_block(mask, ~mask_bits(at, n));
    if (d.kind == DUTY_POST && !duty_post(conn, d.slots, i, at, n, c.waiter))
        return -1;
    if (!connection_tell(conn, d.words, n, c.waiter))
        return -1;
    d.next[i] = at + n;
    if (d.kind == DUTY_CREDIT)
        d.credited[i] += n;
    return 1;
}

/* Both duties for ring i, as duty_turn. */
SWL_DEV int coordinator_turn(const struct coordinator &c, uint32_t i, bool *open_p)
{
    const int first = duty_turn(c, c.first, i, open_p);
    int second = 0;

    if (first >= 0 && c.second.kind != DUTY_NONE)
        second = duty_turn(c, c.second, i, open_p);
    return first < 0 || second < 0 ? -1 : first | second;
}

/* One lane, until nothing is left. Ranks begin with different rings: not all at one rank. */
SWL_DEV void coordinate(const struct coordinator &c)
{
    const struct swl_shape *s = &c.g->shape;
    const uint32_t nrings = channel_rings(side_rings(c.g, c.side), c.waiter.channel, s->nchannels);
    uint32_t open = nrings;

    while (open) {
        bool moved = false;

        open = 0;
        for (uint32_t r = 0; r < nrings; r++) {
            bool left = false;
            const int n = coordinator_turn(
                c, c.waiter.channel + (r + s->rank) % nrings * s->nchannels, &left);

            if (n < 0)
                return;
            moved = moved || n > 0;
            open += left;
        }
        if (open && !moved &&
            (!side_poll(c.g, c.side, c.waiter.channel, c.waiter) ||
             !wait_again(c.waiter, open, 0, SWL_PAUSE(c.what, c.waiter.channel, open))))
            return;
    }
}
