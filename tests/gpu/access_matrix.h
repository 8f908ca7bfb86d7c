/* access_matrix.h: make pairs of ranks unable to map each other's memory.
 *
 * Layer: tests. The test program is linked with --wrap for swl_gpu_shared_malloc and
 * swl_gpu_shared_map: these note whose memory a share is and refuse blocked pairs, as a driver does
 * for GPUs without peer access. */
#ifndef SWL_TESTS_GPU_ACCESS_MATRIX_H
#define SWL_TESTS_GPU_ACCESS_MATRIX_H

#include <utility>
#include <vector>

/* From now on this rank (its thread and device, or fiber) cannot map ranks that a pair names
 * together with it, nor they it. */
void access_block(int rank, const std::vector<std::pair<int, int>> &pairs);

#endif
