/* topology.c: nodes, local ranks and gateways. Layer: src/group; memory: topology.h. */
#include "src/group/topology.h"

#include "src/base/error.h"
#include "src/base/memory.h"
#include "src/runtime/runtime.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* NCCL's load/store team. nccl_device.h is not C, so the one function is declared here; a CUDA
 * translation unit of the tests compares the struct with NCCL's. */
struct team {
    int nranks, rank, stride;
};
typedef struct team (*team_fn)(ncclComm_t);

ncclResult_t swl_topology_key(ncclComm_t comm, uint32_t rank, int32_t option, uint64_t *key_p,
                              bool *given_p)
{
    const int launcher = swl_gpu_thread_node();
    void *symbol;
    team_fn team_of;
    struct team team;

    *given_p = launcher >= 0 || option >= 0;
    if (*given_p) {
        *key_p = (uint64_t)(launcher >= 0 ? launcher : option);
        return ncclSuccess;
    }
    *key_p = 0;
    symbol = dlsym(RTLD_DEFAULT, "ncclTeamLsa");
    if (!symbol)
        return swl_fail(ncclInvalidUsage, "this NCCL has no ncclTeamLsa (2.28 or later has); set "
                                          "SWIMLANE_NODE on all ranks");
    memcpy(&team_of, &symbol, sizeof(team_of)); /* the POSIX way from object to function pointer */
    team = team_of(comm);
    if (team.nranks < 1 || team.rank < 0 || team.rank >= team.nranks ||
        (int64_t)team.rank * team.stride > (int64_t)rank)
        return swl_fail(ncclInternalError,
                        "NCCL's load/store team of rank %" PRIu32
                        " has %d ranks, own index %d and stride %d",
                        rank, team.nranks, team.rank, team.stride);
    *key_p = (uint64_t)((int64_t)rank - (int64_t)team.rank * team.stride);
    return ncclSuccess;
}

static bool allocate_topology(struct swl_topology *t, uint32_t nranks)
{
    t->rank_node = calloc(nranks, sizeof(uint32_t));
    t->rank_local = calloc(nranks, sizeof(uint32_t));
    t->node_start = calloc((size_t)nranks + 1, sizeof(uint32_t));
    t->node_rank = calloc(nranks, sizeof(uint32_t));
    return t->rank_node && t->rank_local && t->node_start && t->node_rank;
}

ncclResult_t swl_topology_make(struct swl_topology *topology, const uint64_t *keys, uint32_t nranks)
{
    struct swl_topology t = {.nranks = nranks};

    if (!allocate_topology(&t, nranks)) {
        swl_topology_free(&t);
        return swl_no_memory("the tables of %" PRIu32 " ranks", nranks);
    }
    for (uint32_t r = 0; r < nranks; r++) {
        uint32_t first = 0;

        while (keys[first] != keys[r])
            first++;
        t.rank_node[r] = first == r ? t.nnodes++ : t.rank_node[first];
        t.rank_local[r] = t.node_start[t.rank_node[r]]++; /* sizes, until they are summed up */
    }
    for (uint32_t m = 0, start = 0; m <= t.nnodes; m++) {
        uint32_t size = m < t.nnodes ? t.node_start[m] : 0;

        t.max_local = size > t.max_local ? size : t.max_local;
        t.node_start[m] = start;
        start += size;
    }
    for (uint32_t r = 0; r < nranks; r++)
        t.node_rank[t.node_start[t.rank_node[r]] + t.rank_local[r]] = r;
    for (uint32_t r = 0; r < nranks; r++) {
        uint32_t served = swl_topology_served(&t, r, NULL);

        t.max_served = served > t.max_served ? served : t.max_served;
    }
    *topology = t;
    return ncclSuccess;
}

void swl_topology_free(struct swl_topology *topology)
{
    free(topology->rank_node);
    free(topology->rank_local);
    free(topology->node_start);
    free(topology->node_rank);
    memset(topology, 0, sizeof(*topology));
}

uint32_t swl_topology_served(const struct swl_topology *t, uint32_t gateway, uint32_t *sources)
{
    const uint32_t node = t->rank_node[gateway], nlocal = swl_topology_nlocal(t, node);
    uint32_t n = 0;

    for (uint32_t s = 0; s < t->nranks; s++) {
        if (t->rank_node[s] == node || t->rank_local[s] % nlocal != t->rank_local[gateway])
            continue;
        if (sources)
            sources[n] = s;
        n++;
    }
    return n;
}

uint32_t swl_topology_served_index(const struct swl_topology *t, uint32_t source, uint32_t node)
{
    const uint32_t nlocal = swl_topology_nlocal(t, node), local = t->rank_local[source] % nlocal;
    uint32_t n = 0;

    for (uint32_t s = 0; s < source; s++)
        n += t->rank_node[s] != node && t->rank_local[s] % nlocal == local;
    return n;
}
