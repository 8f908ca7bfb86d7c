/* region.c: memory that the user registers with an mlx5 device.
 *
 * Layer: transport/mlx5, behind device.h. Regions stay where they are. One that is refused in one
 * piece (translation tables have their limits) is registered in pieces where the device takes
 * firmware commands, and an indirect key makes one region of them; that key orders writes strictly
 * whatever was asked for. */
#include "transport/mlx5/device.h"

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/runtime/runtime.h"
#include "transport/mlx5/commands.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE_BYTES (1ull << 30)
#define TEXT_BYTES  160

struct mlx5_region {
    struct mlx5_region *next;
    struct mlx5dv_devx_obj *mkey; /* of a region in pieces; NULL = the key is the one piece's */
    uint32_t lkey, rkey;
    uint32_t nmrs;
    struct verbs_mr *mrs[]; /* [nmrs] */
};

static uint64_t round_to(uint64_t value, uint64_t to)
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
static struct verbs_mr *register_address(struct mlx5_device *d, void *ptr, uint64_t bytes,
                                         int flags)
{
    if (d->verbs.ibv_reg_mr_iova2)
        return d->verbs.ibv_reg_mr_iova2(d->pd, ptr, bytes, (uintptr_t)ptr, (unsigned)flags);
    /* an older library does not know the order of writes, which is a permission only */
    return d->verbs.ibv_reg_mr(d->pd, ptr, bytes, flags & ~VERBS_ACCESS_RELAXED);
}

/* A dmabuf has whole pages; offset and address of the region agree within them. */
static struct verbs_mr *register_dmabuf(struct mlx5_device *d, void *ptr, uint64_t bytes, int flags,
                                        struct mlx5_reasons *why)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t at = (uintptr_t)ptr, start = at / page * page;
    struct verbs_mr *mr;
    int fd = -1;
    cudaError_t error =
        swl_gpu_dmabuf((const void *)(uintptr_t)start, round_to(at + bytes, page) - start, &fd);

    if (error != cudaSuccess) {
        swl_mlx5_reason(why, MLX5_WAY_DMABUF, swl_gpu_error_text(error));
        return NULL;
    }
    mr = d->verbs.ibv_reg_dmabuf_mr(d->pd, at - start, bytes, at, fd, flags);
    if (mr == NULL)
        swl_mlx5_reason(why, MLX5_WAY_DMABUF, swl_mlx5_error_text(errno));
    (void)close(fd); /* the registration keeps the memory */
    return mr;
}

static struct verbs_mr *register_any(struct mlx5_device *d, void *ptr, uint64_t bytes, int flags,
                                     struct mlx5_reasons *why)
{
    struct mlx5_reach reach = {.dmabuf_call = d->verbs.ibv_reg_dmabuf_mr != NULL};
    enum swl_gpu_memory_kind place = SWL_GPU_MEMORY_UNKNOWN;
    struct verbs_mr *mr = NULL;
    enum mlx5_way way;
    size_t around;
    void *base;

    if (swl_gpu_where(ptr, &place, &base, &around) != cudaSuccess)
        place = SWL_GPU_MEMORY_UNKNOWN;
    reach.device_memory = place == SWL_GPU_MEMORY_DEVICE;
    reach.host_memory = !reach.device_memory;
    while (mr == NULL && (way = mlx5_next_way(&reach)) != MLX5_WAY_NONE) {
        errno = 0;
        if (way == MLX5_WAY_DMABUF) {
            mr = register_dmabuf(d, ptr, bytes, flags, why);
        } else {
            mr = register_address(d, ptr, bytes, flags);
            if (mr == NULL)
                swl_mlx5_reason(why, way, swl_mlx5_error_text(errno));
        }
        reach.failed |= 1u << way;
    }
    return mr;
}

/* The objects of a region; the first failure. */
static ncclResult_t end_region(const struct mlx5_device *d, struct mlx5_region *r)
{
    int error = r->mkey ? d->verbs.mlx5dv_devx_obj_destroy(r->mkey) : 0;
    const uint32_t key = r->lkey;

    for (uint32_t i = 0; i < r->nmrs; i++) {
        const int next = d->verbs.ibv_dereg_mr(r->mrs[i]);

        error = error ? error : next;
    }
    free(r);
    return error == 0
               ? ncclSuccess
               : swl_fail(ncclSystemError, "rank %u nic: %s keeps the region with key 0x%08x: %s",
                          d->rank, d->port.name, key, strerror(error));
}

/* One key for the pieces of r, [start, start + bytes). false: text says why not. */
static bool join_pieces(struct mlx5_device *d, struct mlx5_region *r, uint64_t start,
                        uint64_t bytes, unsigned access, char text[TEXT_BYTES])
{
    struct mlx5_piece pieces[MLX5_PIECES_MAX];
    const struct mlx5_mkey_plan plan = {start, bytes, d->pdn, access, pieces, r->nmrs};
    struct mlx5_command c;

    for (uint32_t i = 0; i < r->nmrs; i++) {
        const uint64_t at = i * PIECE_BYTES, left = bytes - at;

        pieces[i].address = start + at;
        pieces[i].bytes = left < PIECE_BYTES ? left : PIECE_BYTES;
        pieces[i].key = r->mrs[i]->lkey;
    }
    swl_mlx5_create_mkey(&c, &plan);
    errno = 0;
    r->mkey = d->verbs.mlx5dv_devx_obj_create(d->context, c.in, c.in_bytes, c.out, c.out_bytes);
    if (r->mkey == NULL)
        return swl_mlx5_check(&c, errno ? errno : EIO, text, TEXT_BYTES);
    r->lkey = r->rkey = swl_mlx5_key(&c);
    return true;
}

static struct mlx5_region *in_pieces(struct mlx5_device *d, uint8_t *ptr, uint64_t bytes,
                                     unsigned access, struct mlx5_reasons *why)
{
    const uint64_t n = round_to(bytes, PIECE_BYTES) / PIECE_BYTES;
    struct mlx5_region *r = calloc(1, sizeof(*r) + n * sizeof(struct verbs_mr *));
    char text[TEXT_BYTES] = "no memory";

    why->text[0] = '\0';
    for (uint64_t at = 0; r && at < bytes; at += PIECE_BYTES) {
        const uint64_t left = bytes - at;

        r->mrs[r->nmrs] = register_any(d, ptr + at, left < PIECE_BYTES ? left : PIECE_BYTES,
                                       verbs_access(access), why);
        if (r->mrs[r->nmrs] == NULL)
            break;
        r->nmrs++;
    }
    if (r && r->nmrs == n && join_pieces(d, r, (uintptr_t)ptr, bytes, access, text))
        return r;
    if (r == NULL || r->nmrs == n)
        snprintf(why->text, sizeof(why->text), "in pieces of 1 GiB: %s", text);
    if (r)
        (void)end_region(d, r);
    return NULL;
}

static struct mlx5_region *in_one(struct mlx5_device *d, void *ptr, uint64_t bytes, unsigned access,
                                  struct mlx5_reasons *why)
{
    struct mlx5_region *r = calloc(1, sizeof(*r) + sizeof(struct verbs_mr *));

    if (r == NULL) {
        snprintf(why->text, sizeof(why->text), "no memory");
        return NULL;
    }
    r->mrs[0] = register_any(d, ptr, bytes, verbs_access(access), why);
    if (r->mrs[0] == NULL) {
        free(r);
        return NULL;
    }
    r->nmrs = 1;
    r->lkey = r->mrs[0]->lkey;
    r->rkey = r->mrs[0]->rkey;
    return r;
}

ncclResult_t swl_mlx5_reg(struct mlx5_device *d, void *ptr, uint64_t bytes, unsigned access,
                          struct swl_nic_region *region_p)
{
    struct mlx5_reasons why = {""};
    struct mlx5_region *r;

    SWL_TRY(swl_nic_check_region(d->rank, ptr, bytes, access));
    r = in_one(d, ptr, bytes, access, &why);
    if (r == NULL && d->devx && bytes > PIECE_BYTES && bytes <= MLX5_PIECES_MAX * PIECE_BYTES) {
        swl_log(SWL_LEVEL_INFO, "rank %u nic: %s takes %llu bytes in pieces of 1 GiB (%s)", d->rank,
                d->port.name, (unsigned long long)bytes, why.text);
        r = in_pieces(d, ptr, bytes, access, &why);
    }
    if (r == NULL)
        return swl_fail(ncclSystemError, "rank %u nic: %s cannot register %llu bytes at %p: %s",
                        d->rank, d->port.name, (unsigned long long)bytes, ptr, why.text);
    r->next = d->regions;
    d->regions = r;
    region_p->lkey = r->lkey;
    region_p->rkey = r->rkey;
    region_p->address = (uintptr_t)ptr;
    return ncclSuccess;
}

static ncclResult_t drop_key(struct mlx5_device *d, struct mlx5_region **at)
{
    struct mlx5_region *r = *at;

    *at = r->next;
    return end_region(d, r);
}

ncclResult_t swl_mlx5_dereg(struct mlx5_device *d, const struct swl_nic_region *region)
{

    for (struct mlx5_region **at = &d->regions; *at; at = &(*at)->next)
        if ((*at)->lkey == region->lkey && (*at)->rkey == region->rkey)
            return drop_key(d, at);
    return swl_fail(ncclInvalidArgument, "rank %u nic: key 0x%08x is not registered", d->rank,
                    region->lkey);
}

ncclResult_t swl_mlx5_drop_regions(struct mlx5_device *d)
{
    ncclResult_t rc = ncclSuccess;

    while (d->regions) {
        const ncclResult_t next = drop_key(d, &d->regions);

        rc = rc != ncclSuccess ? rc : next;
    }
    return rc;
}
