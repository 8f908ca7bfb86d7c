/* nccl_reduce.h: element types and reductions of the stand-in NCCL. No state. */
#ifndef SWL_SIM_NCCL_REDUCE_H
#define SWL_SIM_NCCL_REDUCE_H

#include <nccl.h>

namespace swl_sim
{

/* 0: not a known type. */
size_t type_bytes(ncclDataType_t type);
bool can_reduce(ncclDataType_t type, ncclRedOp_t op);
/* acc = acc op in, element by element. ncclAvg adds; reduce_end divides. */
void reduce(void *acc, const void *in, size_t count, ncclDataType_t type, ncclRedOp_t op);
void reduce_end(void *acc, size_t count, ncclDataType_t type, ncclRedOp_t op, int nranks);

} // namespace swl_sim

#endif
