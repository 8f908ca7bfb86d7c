/* access_matrix.cc: the wrapped functions of access_matrix.h. */
#include "tests/gpu/access_matrix.h"

#include "src/gpu.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <string>

namespace
{

std::mutex alone;
std::map<int, std::vector<std::pair<int, int>>> blocked_for; /* by device */
std::map<int, int> rank_on;                                  /* by device */
std::map<std::string, int> owner_of;                         /* by the bytes of a share */

std::string key_of(const struct swl_gpu_share *share)
{
    return {reinterpret_cast<const char *>(share->bytes), sizeof(share->bytes)};
}

int device_now()
{
    int device = -1;

    swl_gpu_current(&device);
    return device;
}

} // namespace

void access_block(int rank, const std::vector<std::pair<int, int>> &pairs)
{
    const std::lock_guard<std::mutex> lock(alone);

    rank_on[device_now()] = rank;
    blocked_for[device_now()] = pairs;
}

extern "C" {
cudaError_t __real_swl_gpu_shared_malloc(void **ptr_p, size_t bytes, struct swl_gpu_share *share_p);
cudaError_t __real_swl_gpu_shared_map(const struct swl_gpu_share *share, void **ptr_p);

cudaError_t __wrap_swl_gpu_shared_malloc(void **ptr_p, size_t bytes, struct swl_gpu_share *share_p)
{
    const cudaError_t error = __real_swl_gpu_shared_malloc(ptr_p, bytes, share_p);
    const std::lock_guard<std::mutex> lock(alone);

    if (error == cudaSuccess)
        owner_of[key_of(share_p)] = rank_on[device_now()];
    return error;
}

cudaError_t __wrap_swl_gpu_shared_map(const struct swl_gpu_share *share, void **ptr_p)
{
    {
        const std::lock_guard<std::mutex> lock(alone);
        const int device = device_now(), rank = rank_on[device], owner = owner_of[key_of(share)];
        const auto &pairs = blocked_for[device];
        const auto is = [&](const std::pair<int, int> &p) {
            return p == std::make_pair(rank, owner) || p == std::make_pair(owner, rank);
        };

        if (std::any_of(pairs.begin(), pairs.end(), is))
            return cudaErrorNotSupported;
    }
    return __real_swl_gpu_shared_map(share, ptr_p);
}
}
