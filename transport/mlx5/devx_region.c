/* devx_region.c: memory that the user registers with the mlx5 NIC.
 *
 * Layer: transport/mlx5, behind nic.h. Regions stay where they are. One that is refused in one piece
 * (translation tables have their limits) is registered in pieces, and an indirect key makes one region
 * of them; that key orders writes strictly whatever was asked for. */
#include "transport/mlx5/devx.h"

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/gpu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE_BYTES (1ull << 30)
#define TEXT_BYTES  160

struct devx_region {
    struct devx_region *next;
    struct mlx5dv_devx_obj *mkey; /* of a region in pieces; NULL = the key is the one piece's */
    uint32_t lkey, rkey;
    uint32_t nmrs;
    struct verbs_mr *mrs[]; /* [nmrs] */
};

static uint64_t up(uint64_t value, uint64_t to)
{
    return (value + to - 1) / to * to;
}

static int verbs_access(unsigned access)
{
    static const struct {
        unsigned ours;
        int theirs;
    } table[] = {
        {SWL_NIC_LOCAL_WRITE, VERBS_ACCESS_LOCAL_WRITE},
        {SWL_NIC_REMOTE_WRITE, VERBS_ACCESS_REMOTE_WRITE},
        {SWL_NIC_REMOTE_READ, VERBS_ACCESS_REMOTE_READ},
        {SWL_NIC_REMOTE_ADD, VERBS_ACCESS_REMOTE_ATOMIC},
        {SWL_NIC_RELAXED, VERBS_ACCESS_RELAXED},
    };
    int flags = 0;

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (access & table[i].ours)
            flags |= table[i].theirs;
    return flags;
}

/* By the address, of whatever memory the kernel can pin. */
static struct verbs_mr *register_address(struct devx_nic *nic, void *ptr, uint64_t bytes, int flags)
{
    if (nic->verbs.ibv_reg_mr_iova2)
        return nic->verbs.ibv_reg_mr_iova2(nic->pd, ptr, bytes, (uintptr_t)ptr, (unsigned)flags);
    /* an older library does not know the order of writes, which is a permission only */
    return nic->verbs.ibv_reg_mr(nic->pd, ptr, bytes, flags & ~VERBS_ACCESS_RELAXED);
}

/* A dmabuf has whole pages; offset and address of the region agree within them. */
static struct verbs_mr *register_dmabuf(struct devx_nic *nic, void *ptr, uint64_t bytes, int flags,
                                        struct devx_reasons *why)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t at = (uintptr_t)ptr, start = at / page * page;
    struct verbs_mr *mr;
    int fd = -1;
    cudaError_t error =
        swl_gpu_dmabuf((const void *)(uintptr_t)start, up(at + bytes, page) - start, &fd);

    if (error != cudaSuccess) {
        swl_devx_reason(why, MLX5_WAY_DMABUF, swl_gpu_error_text(error));
        return NULL;
    }
    mr = nic->verbs.ibv_reg_dmabuf_mr(nic->pd, at - start, bytes, at, fd, flags);
    if (mr == NULL)
        swl_devx_reason(why, MLX5_WAY_DMABUF, swl_devx_errno());
    (void)close(fd); /* the registration keeps the memory */
    return mr;
}

static struct verbs_mr *register_any(struct devx_nic *nic, void *ptr, uint64_t bytes, int flags,
                                     struct devx_reasons *why)
{
    struct mlx5_reach reach = {.dmabuf_call = nic->verbs.ibv_reg_dmabuf_mr != NULL};
    enum swl_gpu_place place = SWL_GPU_PLACE_UNKNOWN;
    struct verbs_mr *mr = NULL;
    enum mlx5_way way;
    size_t around;
    void *base;

    if (swl_gpu_where(ptr, &place, &base, &around) != cudaSuccess)
        place = SWL_GPU_PLACE_UNKNOWN;
    reach.device_memory = place == SWL_GPU_PLACE_DEVICE;
    reach.host_memory = !reach.device_memory;
    while (mr == NULL && (way = mlx5_next_way(&reach)) != MLX5_WAY_NONE) {
        errno = 0;
        if (way == MLX5_WAY_DMABUF) {
            mr = register_dmabuf(nic, ptr, bytes, flags, why);
        } else {
            mr = register_address(nic, ptr, bytes, flags);
            if (mr == NULL)
                swl_devx_reason(why, way, swl_devx_errno());
        }
        reach.failed |= 1u << way;
    }
    return mr;
}

/* The objects of a region; the first failure. */
static ncclResult_t end_region(const struct devx_nic *nic, struct devx_region *r)
{
    int error = r->mkey ? nic->verbs.mlx5dv_devx_obj_destroy(r->mkey) : 0;
    const uint32_t key = r->lkey;

    for (uint32_t i = 0; i < r->nmrs; i++) {
        const int next = nic->verbs.ibv_dereg_mr(r->mrs[i]);

        error = error ? error : next;
    }
    free(r);
    return error == 0
               ? ncclSuccess
               : swl_fail(ncclSystemError, "rank %u nic: %s keeps the region with key 0x%08x: %s",
                          nic->rank, nic->port.name, key, strerror(error));
}

/* One key for the pieces of r, [start, start + bytes). false: text says why not. */
static bool join_pieces(struct devx_nic *nic, struct devx_region *r, uint64_t start, uint64_t bytes,
                        unsigned access, char text[TEXT_BYTES])
{
    struct mlx5_piece pieces[MLX5_PIECES_MAX];
    const struct mlx5_mkey_plan plan = {start, bytes, nic->pdn, access, pieces, r->nmrs};
    struct mlx5_command c;

    for (uint32_t i = 0; i < r->nmrs; i++) {
        const uint64_t at = i * PIECE_BYTES, left = bytes - at;

        pieces[i].address = start + at;
        pieces[i].bytes = left < PIECE_BYTES ? left : PIECE_BYTES;
        pieces[i].key = r->mrs[i]->lkey;
    }
    swl_mlx5_create_mkey(&c, &plan);
    errno = 0;
    r->mkey = nic->verbs.mlx5dv_devx_obj_create(nic->context, c.in, c.in_bytes, c.out, c.out_bytes);
    if (r->mkey == NULL)
        return swl_mlx5_check(&c, errno ? errno : EIO, text, TEXT_BYTES);
    r->lkey = r->rkey = swl_mlx5_key(&c);
    return true;
}

static struct devx_region *in_pieces(struct devx_nic *nic, uint8_t *ptr, uint64_t bytes,
                                     unsigned access, struct devx_reasons *why)
{
    const uint64_t n = up(bytes, PIECE_BYTES) / PIECE_BYTES;
    struct devx_region *r = calloc(1, sizeof(*r) + n * sizeof(struct verbs_mr *));
    char text[TEXT_BYTES] = "no memory";

    why->text[0] = '\0';
    for (uint64_t at = 0; r && at < bytes; at += PIECE_BYTES) {
        const uint64_t left = bytes - at;

        r->mrs[r->nmrs] = register_any(nic, ptr + at, left < PIECE_BYTES ? left : PIECE_BYTES,
                                       verbs_access(access), why);
        if (r->mrs[r->nmrs] == NULL)
            break;
        r->nmrs++;
    }
    if (r && r->nmrs == n && join_pieces(nic, r, (uintptr_t)ptr, bytes, access, text))
        return r;
    if (r == NULL || r->nmrs == n)
        snprintf(why->text, sizeof(why->text), "in pieces of 1 GiB: %s", text);
    if (r)
        (void)end_region(nic, r);
    return NULL;
}

static struct devx_region *in_one(struct devx_nic *nic, void *ptr, uint64_t bytes, unsigned access,
                                  struct devx_reasons *why)
{
    struct devx_region *r = calloc(1, sizeof(*r) + sizeof(struct verbs_mr *));

    if (r == NULL) {
        snprintf(why->text, sizeof(why->text), "no memory");
        return NULL;
    }
    r->mrs[0] = register_any(nic, ptr, bytes, verbs_access(access), why);
    if (r->mrs[0] == NULL) {
        free(r);
        return NULL;
    }
    r->nmrs = 1;
    r->lkey = r->mrs[0]->lkey;
    r->rkey = r->mrs[0]->rkey;
    return r;
}

ncclResult_t swl_devx_reg_mr(struct swl_nic *base, void *ptr, uint64_t bytes, unsigned access,
                             struct swl_nic_region *region_p)
{
    struct devx_nic *nic = devx_of(base);
    struct devx_reasons why = {""};
    struct devx_region *r;

    SWL_TRY(swl_nic_check_region(nic->rank, ptr, bytes, access));
    r = in_one(nic, ptr, bytes, access, &why);
    if (r == NULL && bytes > PIECE_BYTES && bytes <= MLX5_PIECES_MAX * PIECE_BYTES) {
        swl_log(SWL_LEVEL_INFO, "rank %u nic: %s takes %llu bytes in pieces of 1 GiB (%s)",
                nic->rank, nic->port.name, (unsigned long long)bytes, why.text);
        r = in_pieces(nic, ptr, bytes, access, &why);
    }
    if (r == NULL)
        return swl_fail(ncclSystemError, "rank %u nic: %s cannot register %llu bytes at %p: %s",
                        nic->rank, nic->port.name, (unsigned long long)bytes, ptr, why.text);
    r->next = nic->regions;
    nic->regions = r;
    region_p->lkey = r->lkey;
    region_p->rkey = r->rkey;
    region_p->address = (uintptr_t)ptr;
    return ncclSuccess;
}

static ncclResult_t drop(struct devx_nic *nic, struct devx_region **at)
{
    struct devx_region *r = *at;

    *at = r->next;
    return end_region(nic, r);
}

ncclResult_t swl_devx_dereg_mr(struct swl_nic *base, const struct swl_nic_region *region)
{
    struct devx_nic *nic = devx_of(base);

    for (struct devx_region **at = &nic->regions; *at; at = &(*at)->next)
        if ((*at)->lkey == region->lkey && (*at)->rkey == region->rkey)
            return drop(nic, at);
    return swl_fail(ncclInvalidArgument, "rank %u nic: key 0x%08x is not registered", nic->rank,
                    region->lkey);
}

ncclResult_t swl_devx_drop_regions(struct devx_nic *nic)
{
    ncclResult_t rc = ncclSuccess;

    while (nic->regions) {
        const ncclResult_t next = drop(nic, &nic->regions);

        rc = rc != ncclSuccess ? rc : next;
    }
    return rc;
}
