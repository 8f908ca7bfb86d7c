/* blocks_move.cuh: payload of a software NIC on blocks: a board of moves that the warps of a team share.
 *
 * Layer: transport/soft, used by blocks.cuh. Owns nothing. Plain loads and stores: they are ordered by
 * the barriers around them. */
#pragma once

#include "device.h"
#include "kernels/layout.h"

#define NIC_BOARD_BYTES 1024u /* of shared memory for each team */
#define NIC_PIECE_BYTES 4096u /* of a WRITE that a warp places at once */
#define NIC_END         0xffffffffu

struct nic_move {
    uint8_t *to;
    const uint8_t *from;
    uint64_t bytes;
};

/* What a leader tells its team. Written before the team's barrier, read behind it. */
struct nic_board {
    uint32_t moves; /* or NIC_END */
    uint32_t pad[3];
    struct nic_move move[32];
};
static_assert(sizeof(struct nic_board) <= NIC_BOARD_BYTES, "boards of teams lie behind each other");

SWL_DEV void nic_copy_units(struct vec16 *to, const struct vec16 *from, uint32_t n)
{
    const uint32_t lane = static_cast<uint32_t>(lane_id());
    uint32_t i = lane;

    for (; i + 7 * 32 < n; i += 8 * 32) {
        struct vec16 v[8];

        for (uint32_t k = 0; k < 8; k++)
            v[k] = load_data(from + i + 32 * k);
        for (uint32_t k = 0; k < 8; k++)
            store_data(to + i + 32 * k, v[k]);
    }
    for (; i < n; i += 32)
        store_data(to + i, load_data(from + i));
}

/* All lanes of a warp. */
SWL_DEV void nic_copy(uint8_t *to, const uint8_t *from, uint32_t bytes)
{
    const uint64_t mix = reinterpret_cast<uint64_t>(to) | reinterpret_cast<uint64_t>(from) | bytes;
    const uint32_t lane = static_cast<uint32_t>(lane_id());

    if (mix % 16 == 0) {
        nic_copy_units(reinterpret_cast<struct vec16 *>(to),
                       reinterpret_cast<const struct vec16 *>(from), bytes / 16);
    } else if (bytes == 8 && mix % 4 == 0 && reinterpret_cast<uint64_t>(to) % 8 == 0) {
        /* an aligned word lands whole, as in hardware: the poison words of kernels are WRITEs */
        const uint32_t *words = reinterpret_cast<const uint32_t *>(from);

        if (lane == 0)
            publish_to_peer(reinterpret_cast<uint64_t *>(to),
                            words[0] | static_cast<uint64_t>(words[1]) << 32);
    } else if (mix % 4 == 0) {
        for (uint32_t i = lane; i < bytes / 4; i += 32)
            reinterpret_cast<uint32_t *>(to)[i] = reinterpret_cast<const uint32_t *>(from)[i];
    } else {
        for (uint32_t i = lane; i < bytes; i += 32)
            to[i] = from[i];
    }
}

/* This warp's share of the board: pieces are dealt to the warps in turn. */
SWL_DEV void nic_place(const struct nic_board *board, uint32_t warp, uint32_t warps)
{
    const uint32_t moves = board->moves;
    uint32_t mine = warp; /* pieces until the next of this warp */

    for (uint32_t m = 0; m < moves; m++) {
        const uint32_t bytes = static_cast<uint32_t>(board->move[m].bytes);
        const uint32_t pieces = (bytes + NIC_PIECE_BYTES - 1) / NIC_PIECE_BYTES;

        for (; mine < pieces; mine += warps) {
            const uint32_t at = mine * NIC_PIECE_BYTES;

            nic_copy(board->move[m].to + at, board->move[m].from + at,
                     swl_min_u32(bytes - at, NIC_PIECE_BYTES));
        }
        mine -= pieces;
    }
}
