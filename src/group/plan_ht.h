/* plan_ht.h: the steps of a plan that belong to high throughput, in the order in which plan.c takes
 * them.
 * Layer: src/group, private to plan.c and plan_ht.c. */
#ifndef SWL_PLAN_HT_H
#define SWL_PLAN_HT_H

#include "src/group/plan.h"

/* Rings, writers and gatherers of the shape, and the roles of warps: the same on all ranks. */
ncclResult_t swl_plan_ht_shape(struct swl_plan *plan, const struct swl_plan_config *config,
                               const struct swl_rank_capabilities *ranks, uint32_t least_sms);
/* Grids and shared memory of this rank's kernels, whose channels have `halves` blocks; no block may
 * take more than shared_bytes. */
ncclResult_t swl_plan_ht_kernels(struct swl_plan *plan, uint32_t halves, uint64_t shared_bytes);

/* Least hint that any rank gave, at this offset in its ranks; 0 if none did. */
uint32_t swl_plan_hint(const struct swl_rank_capabilities *ranks, uint32_t nranks, size_t offset);
/* Blocks of a channel on a rank with this many SMs. */
uint32_t swl_plan_halves(const struct swl_shape *s, uint32_t sms);

#endif
