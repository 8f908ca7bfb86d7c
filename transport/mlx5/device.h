/* device.h: an open mlx5 device, and what both ways to make queue pairs share.
 *
 * Layer: transport/mlx5. Owner of the device's context, its protection domain and the regions that
 * the user registers; they end in the order regions, domain, context. The table of rdma-core's
 * functions is a copy: who loaded it unloads it. */
#ifndef SWL_MLX5_DEVICE_H
#define SWL_MLX5_DEVICE_H

#include "transport/mlx5/reach.h"
#include "transport/nic.h"
#include "transport/rdma_core/path.h"
#include "transport/rdma_core/port.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MLX5_QPS_MAX 65536u

struct mlx5_region; /* region.c */

struct mlx5_device {
    struct swl_verbs verbs;
    uint32_t rank;
    bool devx; /* takes firmware commands */
    struct swl_port port;
    struct rc_tuning tuning;
    struct ibv_context *context;
    struct ibv_pd *pd;
    uint32_t pdn; /* of pd, with devx */
    struct mlx5_region *regions;
};

/* Address of a queue pair, the same whichever way has made it. */
#define MLX5_ADDRESS_ID 0x6d6c7835u /* changes with the struct */
struct mlx5_address {
    uint32_t id;
    struct rc_end end;
};
static_assert(sizeof(struct mlx5_address) <= sizeof(struct swl_nic_address),
              "the address travels inside the opaque one");

/* What failed, way by way, for one sentence. */
struct mlx5_reasons {
    char text[320];
};

/* device.c */
/* Numbers that no mlx5 NIC takes. */
ncclResult_t swl_mlx5_check_config(const struct swl_nic_config *config);
/* Context, port and domain; `d` is zeroed but for verbs, rank and devx. On failure close
 * follows. */
ncclResult_t swl_mlx5_device_open(struct mlx5_device *d, const struct swl_nic_config *config);
/* Behind the last region. */
ncclResult_t swl_mlx5_device_close(struct mlx5_device *d);
/* Doorbell registers for kernels; swl_gpu_registers_unmap ends it. */
ncclResult_t swl_mlx5_map_registers(const struct mlx5_device *d, void *registers, size_t bytes,
                                    void **mapped_p);
void swl_mlx5_reason(struct mlx5_reasons *r, enum mlx5_way way, const char *why);
/* An errno in words. */
const char *swl_mlx5_error_text(int error);

/* region.c */
ncclResult_t swl_mlx5_reg(struct mlx5_device *d, void *ptr, uint64_t bytes, unsigned access,
                          struct swl_nic_region *region_p);
ncclResult_t swl_mlx5_dereg(struct mlx5_device *d, const struct swl_nic_region *region);
ncclResult_t swl_mlx5_drop_regions(struct mlx5_device *d);

#ifdef __cplusplus
}
#endif
#endif
