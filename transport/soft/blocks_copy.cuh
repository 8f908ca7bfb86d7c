/* blocks_copy.cuh: payload of a software NIC on blocks: a queue of moves that the warps of a team
 * share.
 *
 * Layer: transport/soft, used by blocks.cuh. Owns nothing. Plain loads and stores: they are ordered
 * by the barriers around them. What a lane loads is on its way before it stores the first of it. */
#pragma once

#include "device.h"
#include "kernels/device/hd.h"
#include "transport/wqe.h"

#define NIC_LANE_BYTES  128u  /* writes up to this size are placed by the lane that fetched them */
#define NIC_PIECE_BYTES 4096u /* of a WRITE that a warp places at once, at most */
#define NIC_END         0xffffffffu

/* A WRITE, cut into equal pieces (the last one may be shorter). */
struct nic_move {
    uint8_t *to;
    const uint8_t *from;
    uint32_t bytes, piece;
    uint32_t end; /* pieces of the queue up to and with this move's */
    uint32_t pad;
};

/* What a leader tells its team. Written before the team's barrier, read behind it. */
struct nic_copy_queue {
    uint32_t moves;  /* or NIC_END */
    uint32_t pieces; /* of all moves */
    uint32_t pad[2];
    struct nic_move move[32];
};

/* A word lands whole, as in hardware: the poison words of kernels are WRITEs. One lane. */
SWL_DEV void nic_copy_word(uint8_t *to, const uint8_t *from)
{
    const uint32_t *words = reinterpret_cast<const uint32_t *>(from);

    publish_to_peer(reinterpret_cast<uint64_t *>(to), words[0] | static_cast<uint64_t>(words[1])
                                                                     << 32);
}

/* Units of 16 bytes first, first + step, … of n. */
SWL_DEV void nic_copy_units(struct vec16 *to, const struct vec16 *from, uint32_t n, uint32_t first,
                            uint32_t step)
{
    for (uint32_t i = first; i < n; i += 8 * step) {
        struct vec16 v[8] = {};

        for (uint32_t k = 0; k < 8; k++)
            if (i + step * k < n)
                v[k] = load_data(from + i + step * k);
        for (uint32_t k = 0; k < 8; k++)
            if (i + step * k < n)
                store_data(to + i + step * k, v[k]);
    }
}

/* The same for words and bytes. */
template <typename T>
SWL_DEV void nic_copy_few(T *to, const T *from, uint32_t n, uint32_t first, uint32_t step)
{
    for (uint32_t i = first; i < n; i += 4 * step) {
        T v[4] = {};

        for (uint32_t k = 0; k < 4; k++)
            if (i + step * k < n)
                v[k] = from[i + step * k];
        for (uint32_t k = 0; k < 4; k++)
            if (i + step * k < n)
                to[i + step * k] = v[k];
    }
}

/* The part of lane `first` of `step` lanes. */
SWL_DEV void nic_copy(uint8_t *to, const uint8_t *from, uint32_t bytes, uint32_t first,
                      uint32_t step)
{
    const uint64_t mix = reinterpret_cast<uint64_t>(to) | reinterpret_cast<uint64_t>(from) | bytes;

    if (mix % 16 == 0) {
        nic_copy_units(reinterpret_cast<struct vec16 *>(to),
                       reinterpret_cast<const struct vec16 *>(from), bytes / 16, first, step);
    } else if (bytes == 8 && mix % 4 == 0 && reinterpret_cast<uint64_t>(to) % 8 == 0) {
        if (first == 0)
            nic_copy_word(to, from);
    } else if (mix % 4 == 0) {
        nic_copy_few(reinterpret_cast<uint32_t *>(to), reinterpret_cast<const uint32_t *>(from),
                     bytes / 4, first, step);
    } else {
        nic_copy_few(to, from, bytes, first, step);
    }
}

/* Up to 28 bytes that a lane has in registers, else like nic_copy. `from`: where they also are. */
SWL_DEV void nic_copy_held(uint8_t *to, const uint8_t *from, uint32_t bytes, const uint32_t *held)
{
    const uint64_t mix = reinterpret_cast<uint64_t>(to) | bytes;

    if (mix % 16 == 0) { /* 16 bytes */
        store_data(reinterpret_cast<struct vec16 *>(to),
                   vec16{{held[0], held[1], held[2], held[3]}});
    } else if (mix % 4 == 0 && bytes != 8) {
        for (uint32_t i = 0; i < SWL_WQE_INLINE_MAX / 4; i++)
            if (4 * i < bytes)
                reinterpret_cast<uint32_t *>(to)[i] = held[i];
    } else {
        nic_copy(to, from, bytes, 0, 1);
    }
}

/* The move of `bytes` bytes from `from` to `to`, without its end. One lane; the divisions are made
 * here, once. */
SWL_DEV struct nic_move nic_move_of(uint8_t *to, const uint8_t *from, uint32_t bytes,
                                    uint32_t *pieces_p)
{
    const uint32_t few = (bytes + NIC_PIECE_BYTES - 1) / NIC_PIECE_BYTES;
    const uint32_t piece = swl_round_up((bytes + few - 1) / few, 16);

    *pieces_p = (bytes + piece - 1) / piece;
    return {to, from, bytes, piece, 0, 0};
}

/* All of a queue with little on it, by one warp: loads and stores are the shorter way then. */
SWL_DEV void nic_place_alone(const struct nic_copy_queue *queue)
{
    for (uint32_t i = 0; i < queue->moves; i++) {
        const struct nic_move move = queue->move[i];

        nic_copy(move.to, move.from, move.bytes, static_cast<uint32_t>(lane_id()), 32);
    }
}

/* This warp's share of the queue: its pieces are distributed to the warps in turn. */
SWL_DEV void nic_place(const struct nic_copy_queue *queue, uint32_t warp, uint32_t warps)
{
    const uint32_t pieces = queue->pieces;
    const struct nic_move *move = queue->move;
    uint32_t begin = 0; /* piece of the queue that is the move's first */

    for (uint32_t p = warp; p < pieces; p += warps) {
        uint32_t at;

        for (; p >= move->end; move++)
            begin = move->end;
        at = (p - begin) * move->piece;
        nic_copy(move->to + at, move->from + at, swl_min_u32(move->bytes - at, move->piece),
                 static_cast<uint32_t>(lane_id()), 32);
    }
}
