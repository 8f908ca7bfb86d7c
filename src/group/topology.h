/* topology.h: which rank is in which node, and who serves whom between nodes.
 *
 * Layer: src/group, below plan and group. Pure, apart from swl_topology_key. Owns its tables.
 * Nodes are ordered by their lowest rank, ranks of a node by rank. */
#ifndef SWL_TOPOLOGY_H
#define SWL_TOPOLOGY_H

#include <nccl.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct swl_topology {
    uint32_t nranks, nnodes;
    uint32_t max_local;   /* ranks of the largest node */
    uint32_t max_served;  /* most remote sources of one gateway */
    uint32_t *rank_node;  /* [nranks] */
    uint32_t *rank_local; /* [nranks] */
    uint32_t *node_start; /* [nnodes + 1], into node_rank */
    uint32_t *node_rank;  /* [nranks] ranks, node by node, ascending */
};

/* What tells this rank's node from others: equal for ranks of one node. *given_p: it comes from
 * the launcher or from SWIMLANE_NODE (`option`, -1 = unset), not from NCCL. */
ncclResult_t swl_topology_key(ncclComm_t comm, uint32_t rank, int32_t option, uint64_t *key_p,
                              bool *given_p);

/* From keys[nranks]. */
ncclResult_t swl_topology_make(struct swl_topology *topology, const uint64_t *keys,
                               uint32_t nranks);
/* An all-zero topology is a no-op. */
void swl_topology_free(struct swl_topology *topology);

static inline uint32_t swl_topology_nlocal(const struct swl_topology *t, uint32_t node)
{
    return t->node_start[node + 1] - t->node_start[node];
}

static inline uint32_t swl_topology_rank(const struct swl_topology *t, uint32_t node,
                                         uint32_t local)
{
    return t->node_rank[t->node_start[node] + local];
}

/* Rank of `node` that serves `source` there; node is not the source's own. */
static inline uint32_t swl_topology_gateway(const struct swl_topology *t, uint32_t source,
                                            uint32_t node)
{
    return swl_topology_rank(t, node, t->rank_local[source] % swl_topology_nlocal(t, node));
}

/* Index of `node` among the remote nodes of a rank of node `own`, and back. */
static inline uint32_t swl_topology_remote(uint32_t own, uint32_t node)
{
    return node < own ? node : node - 1;
}

static inline uint32_t swl_topology_remote_node(uint32_t own, uint32_t remote)
{
    return remote < own ? remote : remote + 1;
}

/* Remote sources that `gateway` serves, ascending; their number. `sources` may be NULL. */
uint32_t swl_topology_served(const struct swl_topology *t, uint32_t gateway, uint32_t *sources);
/* Index of `source` in that list of its gateway in `node`. */
uint32_t swl_topology_served_index(const struct swl_topology *t, uint32_t source, uint32_t node);

#ifdef __cplusplus
}
#endif
#endif
