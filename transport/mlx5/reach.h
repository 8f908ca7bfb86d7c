/* reach.h: by which way a NIC gets at memory; what to try next when a way has failed.
 *
 * Layer: transport/mlx5; pure. Memory of the GPU is best: the GPU posts without crossing PCIe. A
 * dmabuf needs a driver that exports one and a kernel that takes it; peer memory needs the module
 * nvidia-peermem; pinned host memory always works, and only rings may lie there instead. */
#ifndef SWL_MLX5_REACH_H
#define SWL_MLX5_REACH_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum mlx5_way { MLX5_WAY_DMABUF, MLX5_WAY_PEER, MLX5_WAY_HOST, MLX5_WAY_NONE };

struct mlx5_reach {
    bool device_memory; /* it lies in the GPU's memory, or may */
    bool host_memory;   /* it lies in the host's memory, or may */
    bool dmabuf_call;   /* rdma-core has the call that takes a dmabuf */
    unsigned failed;    /* 1 << enum mlx5_way of what was tried */
};

static inline enum mlx5_way mlx5_next_way(const struct mlx5_reach *r)
{
    if (r->device_memory && r->dmabuf_call && !(r->failed & 1u << MLX5_WAY_DMABUF))
        return MLX5_WAY_DMABUF;
    if (r->device_memory && !(r->failed & 1u << MLX5_WAY_PEER))
        return MLX5_WAY_PEER;
    if (r->host_memory && !(r->failed & 1u << MLX5_WAY_HOST))
        return MLX5_WAY_HOST;
    return MLX5_WAY_NONE;
}

static inline const char *mlx5_way_text(enum mlx5_way way)
{
    static const char *const texts[] = {"dmabuf", "peer memory (module nvidia-peermem)",
                                        "host memory", "no way"};

    return texts[way];
}

#ifdef __cplusplus
}
#endif
#endif
