/* blocks_team.cuh: what a team of a software NIC on blocks keeps in shared memory for the life of a
 * kernel: its queue, the regions it has looked up, its queue pairs. Layer: transport/soft, used by
 * blocks.cuh.
 *
 * Everything here is the leader's; helpers see the queue only. Regions and the fixed part of queue
 * pairs change between kernels only. A queue pair is written back after each service that changed
 * it, all but `peer_failed`, which the peer's executor sets in device memory and is always read
 * there. */
#pragma once

#include "device.h"
#include "kernels/device/wait.cuh"
#include "transport/soft/blocks_copy.cuh"

#define SOFT_FN SWL_DEV
#include "transport/host/core.cuh"

#define NIC_TEAMS      4u    /* of a block with enough warps and queue pairs */
#define NIC_TEAMS_FEW  2u    /* the same where there would be teams without queue pairs */
#define NIC_ROOM_BYTES 1408u /* least shared memory of a team */
#define NIC_KEPT       16u   /* queue pairs in shared memory, at most */
#define NIC_KNOWN      4u    /* regions of one peer and of the own NIC, power of two */
#define NIC_KNOWN_MOST 16u   /* where there is room */

/* A NIC's part of a kernel. */
struct nic_grid {
    uint32_t block, blocks;        /* this block and all of the NIC */
    const struct swl_watch *watch; /* without generation: nobody knows it when the kernel begins */
    const uint32_t
        *closing;        /* all other blocks of the kernel have ended: 1, or 2: it was given up */
    const uint64_t *gen; /* generation of the call, settled when `closing` is */
};

/* Shared memory of a NIC's block, for all of its teams; 128-byte aligned. */
struct nic_room {
    char *at;
    uint32_t bytes;
};

/* How a block's threads and its shared memory are divided, as each of its warps sees it. */
struct nic_part {
    uint32_t teams, mine;        /* this warp's; mine >= teams: none */
    uint32_t warps, warp;        /* of the team */
    uint32_t index, count, nown; /* of all teams of the grid; queue pairs of this team */
    uint32_t nkept;              /* of these, in shared memory */
    char *at;                    /* of the team: memory, queue pairs */
    uint32_t nknown;
    uint32_t kept_at;
};

#define NIC_UNORDERED (~0ull)

/* A region that was looked up. */
struct nic_known {
    const struct soft_port *port; /* whose; NULL = nothing yet */
    uint32_t key, pd;             /* asked for; of the port */
    struct soft_region region;
};

/* A team, for its leader; in shared memory, because registers are few. */
struct nic_team {
    struct soft_port *port;
    struct nic_known *known; /* [nknown] */
    struct soft_qp *kept;    /* [nkept]: the first of this team's queue pairs */
    struct nic_grid grid;
    uint64_t ns_per_mib, latency_ns; /* of the link */
    uint32_t nkept, nown;            /* queue pairs in shared memory, and all of the team */
    uint32_t index, count;           /* of all teams of the grid */
    uint32_t warps;                  /* of the team */
    int barrier;
    uint32_t nknown, pad;
    uint64_t ordered; /* the word to which an add needs no fence, 0 = any, NIC_UNORDERED = none */
};

/* The room of a team; where there is more of it, more regions and queue pairs lie behind. */
struct nic_team_memory {
    struct nic_team team;
    struct nic_copy_queue queue;
    struct nic_known known[NIC_KNOWN];
};
static_assert(sizeof(struct nic_team_memory) <= NIC_ROOM_BYTES &&
                  sizeof(struct nic_team_memory) % 16 == 0,
              "fits, and queue pairs behind it are aligned");
static_assert(offsetof(struct soft_qp, peer_failed) % 8 == 0 &&
                  offsetof(struct soft_qp, pad3) == offsetof(struct soft_qp, peer_failed) + 4,
              "written back in units of 8 bytes, without these");

SWL_DEV struct nic_part nic_part_of(const struct soft_port *port, const struct nic_grid *grid,
                                    struct nic_room room)
{
    const uint32_t all = static_cast<uint32_t>(warp_count()), nqps = port->nqps;
    struct nic_part p = {};
    uint32_t bytes;

    /* looking and fetching is waiting, which more teams do beside each other; few have more warps
     * each */
    p.teams = nqps > NIC_TEAMS_FEW * grid->blocks ? NIC_TEAMS : NIC_TEAMS_FEW;
    if (all < 2 * p.teams)
        p.teams = 1;
    p.warps = all / p.teams;
    p.mine = static_cast<uint32_t>(warp_id()) / p.warps;
    p.warp = static_cast<uint32_t>(warp_id()) % p.warps;
    p.index = grid->block + p.mine * grid->blocks;
    p.count = p.teams * grid->blocks;
    p.nown = nqps > p.index ? (nqps - p.index + p.count - 1) / p.count : 0;
    bytes = room.bytes / p.teams & ~127u;
    p.at = room.at + p.mine * bytes;
    p.nknown = bytes >= 8 * NIC_ROOM_BYTES ? NIC_KNOWN_MOST : NIC_KNOWN;
    p.kept_at = static_cast<uint32_t>(offsetof(struct nic_team_memory, known) +
                                      p.nknown * sizeof(struct nic_known));
    p.nkept = swl_min_u32(swl_min_u32(p.nown, NIC_KEPT),
                          (bytes - p.kept_at) / static_cast<uint32_t>(sizeof(struct soft_qp)));
    return p;
}

/* core.cuh's way to memory. Regions change between kernels only, so nobody is counted inside. */
struct nic_memory {
    SWL_DEV uint32_t word(const uint32_t *p)
    {
        return load_relaxed_doorbell(p);
    }
    SWL_DEV void copy(void *to, const void *from, uint64_t bytes)
    {
        for (uint64_t i = 0; i < bytes / sizeof(struct vec16); i++)
            static_cast<struct vec16 *>(to)[i] =
                load_data(static_cast<const struct vec16 *>(from) + i);
    }
};

SWL_DEV struct nic_copy_queue *nic_copy_queue_of(struct nic_team *t)
{
    return &reinterpret_cast<struct nic_team_memory *>(t)->queue;
}

/* ---- queue pairs ---- */

/* Queue pair number `slot` of the team, as others see it. */
SWL_DEV struct soft_qp *nic_live_qp(const struct nic_team *t, uint32_t slot)
{
    return soft_qp_at(t->port, t->index + slot * t->count);
}

/* The same as the team works with it. */
SWL_DEV struct soft_qp *nic_qp(const struct nic_team *t, uint32_t slot)
{
    return slot < t->nkept ? t->kept + slot : nic_live_qp(t, slot);
}

/* All lanes of the leader. */
SWL_DEV void nic_words_copy(struct soft_qp *to, const struct soft_qp *from)
{
    const uint32_t skip = offsetof(struct soft_qp, peer_failed) / 8;
    const uint64_t *f = reinterpret_cast<const uint64_t *>(from);
    uint64_t *o = reinterpret_cast<uint64_t *>(to);

    for (uint32_t i = static_cast<uint32_t>(lane_id()); i < sizeof(*to) / 8; i += 32)
        if (i != skip)
            o[i] = f[i];
}

SWL_DEV void nic_keep_all(const struct nic_team *t)
{
    for (uint32_t i = 0; i < t->nkept; i++)
        nic_words_copy(t->kept + i, nic_live_qp(t, i));
    for (uint32_t i = static_cast<uint32_t>(lane_id()); i < t->nknown; i += 32)
        t->known[i].port = nullptr;
    warp_sync();
}

SWL_DEV void nic_write_back(const struct nic_team *t, uint32_t slot)
{
    if (slot < t->nkept)
        nic_words_copy(nic_live_qp(t, slot), t->kept + slot);
}

/* ---- regions; all lanes of the leader ---- */

/* One end of a work request. */
struct nic_want {
    const struct soft_port *port;
    uint32_t key, access;
    uint64_t address, bytes;
};

SWL_DEV struct nic_known *nic_known_at(const struct nic_team *t, const struct soft_port *port,
                                       uint32_t key)
{
    /* of the own NIC sinks and payload are asked for, of a peer signals and payload: not one
     * place */
    const uint32_t slot = soft_slot(key), peer = static_cast<uint32_t>((uint64_t)port >> 13);
    const uint32_t place = port == t->port ? slot >> 1 & 1 : 2 + (slot & 1) + 4 * peer;

    return &t->known[place & (t->nknown - 1)];
}

SWL_DEV bool nic_knows(const struct nic_known *k, const struct nic_want *want)
{
    return (k->port == want->port) & (k->key == want->key);
}

SWL_DEV uint8_t *nic_within(const struct nic_known *k, const struct nic_want *want)
{
    uint8_t *memory = soft_within(&k->region, k->pd, want->address, want->bytes, want->access);

    return ((want->key != 0) & (k->region.key == want->key)) ? memory : nullptr;
}

/* Memory that each lane which `asks` may touch, else NULL. */
SWL_DEV uint8_t *nic_reach(const struct nic_team *t, bool asks, const struct nic_want *want)
{
    const uint32_t lane = static_cast<uint32_t>(lane_id());
    struct nic_known *known = nic_known_at(t, want->port, want->key);
    uint8_t *memory = nullptr;
    uint32_t asking;

    if (asks) { /* all loads at once */
        const bool knows = nic_knows(known, want);

        memory = nic_within(known, want);
        memory = knows ? memory : nullptr;
        asks = !knows;
    }
    /* nobody has looked it up, or another took its place */
    while ((asking = warp_ballot(asks)) != 0) {
        const int turn = first_bit(asking);
        const struct soft_port *port = reinterpret_cast<const struct soft_port *>(
            warp_shfl(reinterpret_cast<uint64_t>(want->port), turn));
        const uint32_t key = warp_shfl(want->key, turn);
        struct nic_known *k = nic_known_at(t, port, key);
        const uint64_t *from = reinterpret_cast<const uint64_t *>(&port->regions[soft_slot(key)]);

        warp_sync(); /* all lanes have read what lay there */
        if (lane < sizeof(k->region) / 8)
            reinterpret_cast<uint64_t *>(&k->region)[lane] = from[lane];
        if (lane == 31) {
            k->port = port;
            k->key = key;
            k->pd = port->pd;
        }
        warp_sync();
        if (asks && nic_knows(k, want)) {
            memory = nic_within(k, want);
            asks = false;
        }
    }
    return memory;
}
