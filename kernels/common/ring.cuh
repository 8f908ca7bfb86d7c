/* ring.cuh: positions in rings. Layer: kernels.
 *
 * A ring has one producer and one consumer *end*; both count 64-bit positions that never go back.
 * Position p lies in slot p % slots. Inside a rank several warps fill (or empty) the slots of one
 * end out of order: each sets bit p % 64 of the end's completion mask when it has finished slot p,
 * and the one coordinator of the end (coordinator.cuh) advances over the contiguous bits and clears
 * them. No mask can overflow: slots <= 64, and slot p is taken only after the slot p - slots was
 * freed, hence its bit cleared.
 *
 * Words between GPUs of a node carry {generation:16, position:48}; a word of another generation
 * stands for the start position. Words that a NIC adds to are bare counts. Model:
 * tests/model/ring.pml. */
#pragma once

#include "device.h"
#include "kernels/common/layout.h"

#define SWL_POSITION_MASK 0x0000ffffffffffffull

SWL_DEV uint64_t gen_word(uint64_t gen, uint64_t position)
{
    return gen << 48 | (position & SWL_POSITION_MASK);
}

/* Position a peer's word stands for; `start` if it is of another generation. */
SWL_DEV uint64_t word_position(uint64_t word, uint64_t gen, uint64_t start)
{
    return word >> 48 == (gen & 0xffff) ? word & SWL_POSITION_MASK : start;
}

SWL_DEV uint64_t mask_bit(uint64_t position)
{
    return 1ull << (position & 63);
}

/* Slot `position` is finished. Releases the warp's accesses to the slot (one lane, after
 * warp_sync); pairs with read_in_block of the mask by the coordinator. */
SWL_DEV void mask_finish_in_block(uint64_t *mask, uint64_t position)
{
    or_in_block(mask, mask_bit(position));
}

SWL_DEV void mask_finish_in_gpu(uint64_t *mask, uint64_t position)
{
    or_in_gpu(mask, mask_bit(position));
}

/* How many slots from `from` on are finished, without a gap. */
SWL_DEV uint32_t mask_run(uint64_t mask, uint64_t from)
{
    const uint32_t shift = from & 63;
    const uint64_t turned = shift ? mask >> shift | mask << (64 - shift) : mask;

    return turned == ~0ull ? 64 : (uint32_t)first_bit(~turned);
}

/* Bits of `n` slots from `from` on. n <= 64. */
SWL_DEV uint64_t mask_bits(uint64_t from, uint32_t n)
{
    const uint32_t shift = from & 63;
    const uint64_t low = n >= 64 ? ~0ull : (1ull << n) - 1;

    return shift ? low << shift | low >> (64 - shift) : low;
}

/* Number of the slot of a position, counted over the rings of a side that lie behind each other. A
 * ring has a power of two. */
SWL_DEV uint64_t slot_number(const struct swl_shape *s, uint32_t ring, uint64_t position)
{
    return (uint64_t)ring * s->ring_slots + (position & (s->ring_slots - 1));
}

/* Slots that fit before the ring's end: one RDMA WRITE never wraps. */
SWL_DEV uint32_t slots_before_wrap(uint64_t position, uint32_t slots)
{
    return slots - (uint32_t)(position % slots);
}

/* How many of `ready` finished slots from `sent` on to post now, 0 = none. A chunk, or all that is
 * left until the ring's end or `end`, the end of the call. Behind `begin`, where a call of at least
 * a chunk began, as many as have been posted before: the first slot at once, so that whoever waits
 * for it begins early. */
SWL_DEV uint32_t slots_to_post(const struct swl_shape *s, uint32_t ready, uint64_t begin,
                               uint64_t sent, uint64_t end)
{
    const uint32_t room = slots_before_wrap(sent, s->ring_slots);
    const uint32_t n = swl_min_u32(ready, swl_min_u32(room, s->chunk_slots));
    const uint64_t before = sent - begin;
    const bool early = before < s->chunk_slots && end - begin >= s->chunk_slots;
    const uint32_t least = !early ? s->chunk_slots : before ? (uint32_t)before : 1;

    return n >= least || n == room || sent + n == end ? n : 0;
}

/* How many of `ready` slots from `from` on to give back now, 0 = none: at least a chunk, or all
 * that is left until `end`, the end of the call. */
SWL_DEV uint32_t slots_to_credit(const struct swl_shape *s, uint32_t ready, uint64_t from,
                                 uint64_t end)
{
    return ready >= s->chunk_slots || from + ready == end ? ready : 0;
}
