/* access_matrix.cc: the wrapped functions of access_matrix.h. */
#include "tests/gpu/access_matrix.h"

#include "src/runtime/runtime.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <thread>

namespace
{

/* Who calls: ranks share a GPU where there are few, and emulated ones, on devices of their own, a
 * thread. */
using caller = std::pair<int, std::thread::id>;

std::mutex alone;
std::map<caller, std::vector<std::pair<int, int>>> blocked_for;
std::map<caller, int> rank_of;
std::map<std::string, int> owner_of; /* by the bytes of a share */

std::string key_of(const struct swl_gpu_share *share)
{
    return {reinterpret_cast<const char *>(share->bytes), sizeof(share->bytes)};
}

caller caller_now()
{
    int device = -1;

    swl_gpu_current(&device);
    return {device, std::this_thread::get_id()};
}

} // namespace

void access_block(int rank, const std::vector<std::pair<int, int>> &pairs)
{
    const std::lock_guard<std::mutex> lock(alone);

    rank_of[caller_now()] = rank;
    blocked_for[caller_now()] = pairs;
}

extern "C" {
cudaError_t __real_swl_gpu_shared_malloc(void **ptr_p, size_t bytes, struct swl_gpu_share *share_p);
cudaError_t __real_swl_gpu_shared_map(const struct swl_gpu_share *share, void **ptr_p);

cudaError_t __wrap_swl_gpu_shared_malloc(void **ptr_p, size_t bytes, struct swl_gpu_share *share_p)
{
    const cudaError_t error = __real_swl_gpu_shared_malloc(ptr_p, bytes, share_p);
    const std::lock_guard<std::mutex> lock(alone);

    if (error == cudaSuccess)
        owner_of[key_of(share_p)] = rank_of[caller_now()];
    return error;
}

cudaError_t __wrap_swl_gpu_shared_map(const struct swl_gpu_share *share, void **ptr_p)
{
    {
        const std::lock_guard<std::mutex> lock(alone);
        const caller self = caller_now();
        const int rank = rank_of[self], owner = owner_of[key_of(share)];
        const auto &pairs = blocked_for[self];
        const auto is = [&](const std::pair<int, int> &p) {
            return p == std::make_pair(rank, owner) || p == std::make_pair(owner, rank);
        };

        if (std::any_of(pairs.begin(), pairs.end(), is))
            return cudaErrorNotSupported;
    }
    return __real_swl_gpu_shared_map(share, ptr_p);
}
}
