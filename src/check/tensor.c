/* tensor.c: tensor descriptors. Layer: src/check, below check and api.
 *
 * Memory: swl_tensor_alloc makes one block, descriptor and extents together, released by
 * swl_tensor_destroy. Payload is never touched. */
#include "src/check/tensor.h"

#include "src/base/error.h"
#include "src/base/memory.h"
#include "src/base/util.h"
#include "src/runtime/result.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY_MAGIC 0xBEEFBEEFu

/* A descriptor made by the library. */
struct library_tensor {
    ncclEpTensor_t tensor;
    size_t extent[SWL_TENSOR_MAX_DIMS];
};

static const struct {
    const char *name;
    uint32_t bytes;
} dtypes[] = {
    [ncclInt8] = {"int8", 1},
    [ncclUint8] = {"uint8", 1},
    [ncclInt32] = {"int32", 4},
    [ncclUint32] = {"uint32", 4},
    [ncclInt64] = {"int64", 8},
    [ncclUint64] = {"uint64", 8},
    [ncclFloat16] = {"float16", 2},
    [ncclFloat32] = {"float32", 4},
    [ncclFloat64] = {"float64", 8},
    [ncclBfloat16] = {"bfloat16", 2},
    [ncclFloat8e4m3] = {"float8e4m3", 1},
    [ncclFloat8e5m2] = {"float8e5m2", 1},
    [12] = {"float4x2", 1},
};

uint32_t swl_dtype_bytes(ncclDataType_t dtype)
{
    return (unsigned int)dtype < SWL_COUNT_OF(dtypes) ? dtypes[dtype].bytes : 0;
}

const char *swl_dtype_name(ncclDataType_t dtype)
{
    return (unsigned int)dtype < SWL_COUNT_OF(dtypes) ? dtypes[dtype].name : "an unknown type";
}

ncclResult_t swl_tensor_copy(struct swl_tensor *t, const ncclEpTensor_t *user, const char *field,
                             bool payload)
{
    memset(t, 0, sizeof(*t));
    t->field = field;
    t->payload = payload;
    if (!user)
        return ncclSuccess;
    SWL_ARG(user->size >= NCCL_EP_TENSOR_V1_SIZE, "%s: size is %u, a tensor has at least %u bytes",
            field, user->size, NCCL_EP_TENSOR_V1_SIZE);
    t->copy = *user;
    SWL_ARG(t->copy.magic == NCCL_EP_TENSOR_MAGIC || t->copy.magic == LIBRARY_MAGIC,
            "%s: magic is 0x%08x, not that of a tensor; start from NCCL_EP_TENSOR_INIT", field,
            t->copy.magic);
    t->given = true;
    /* Only the address is compared: a copy of a library-made descriptor has no array behind it. */
    t->own_sizes =
        t->copy.magic == NCCL_EP_TENSOR_MAGIC ||
        (const void *)t->copy.sizes == (const char *)user + offsetof(struct library_tensor, extent);
    if (t->copy.sizes && t->own_sizes && t->copy.ndim >= 1 && t->copy.ndim <= SWL_TENSOR_MAX_DIMS) {
        for (unsigned int i = 0; i < t->copy.ndim; i++) {
            t->extent[i] = t->copy.sizes[i];
            t->empty = t->empty || t->extent[i] == 0;
        }
    }
    return ncclSuccess;
}

ncclResult_t swl_tensor_capable(const struct swl_tensor *t, const struct swl_group_info *group)
{
    if (!t->given || t->copy.data || !t->copy.win_hdl || t->empty || group->window_pointer)
        return ncclSuccess;
    return swl_fail(ncclInvalidUsage,
                    "%s: a window without data needs NCCL 2.29.2 or newer, this is %d; set data",
                    t->field, group->nccl_version);
}

static ncclResult_t check_shape(struct swl_tensor *t)
{
    struct swl_view *v = &t->view;
    uint64_t columns = 1, bytes;

    SWL_ARG(t->copy.ndim >= 1 && t->copy.ndim <= SWL_TENSOR_MAX_DIMS, "%s: ndim is %u, not 1 to %u",
            t->field, t->copy.ndim, SWL_TENSOR_MAX_DIMS);
    SWL_ARG(t->copy.sizes, "%s: sizes is NULL", t->field);
    SWL_ARG(t->own_sizes, "%s: sizes of a library-made tensor has been replaced", t->field);
    v->elem_bytes = swl_dtype_bytes(t->copy.datatype);
    SWL_ARG(v->elem_bytes, "%s: datatype %d is not known", t->field, (int)t->copy.datatype);
    for (unsigned int i = 1; i < t->copy.ndim; i++)
        SWL_ARG(swl_mul(columns, t->extent[i], &columns), "%s: the extents overflow", t->field);
    SWL_ARG(swl_mul(columns, v->elem_bytes, &v->row_bytes) &&
                swl_mul(v->row_bytes, t->extent[0], &bytes),
            "%s: the extents overflow", t->field);
    v->given = true;
    v->dtype = t->copy.datatype;
    v->rows = t->extent[0];
    v->columns = columns;
    return ncclSuccess;
}

static ncclResult_t nccl_result(const struct swl_tensor *t, ncclResult_t rc)
{
    if (rc == ncclSuccess)
        return rc;
    return swl_fail(swl_nccl_code(rc), "%s: NCCL does not know this window: %s", t->field,
                    ncclGetErrorString(rc));
}

/* The local address of a window tensor, and whether the allocation behind it covers it. */
static ncclResult_t check_window(struct swl_tensor *t, const struct swl_group_info *group,
                                 uint64_t bytes)
{
    enum swl_gpu_memory_kind place;
    void *base = NULL;
    size_t known = 0;

    if (group->window_pointer) {
        char *at;

        SWL_TRY(nccl_result(t, group->window_pointer(group->comm, t->copy.win_hdl, &base)));
        at = (char *)base + t->copy.win_offset;
        SWL_ARG(!t->copy.data || t->copy.data == (void *)at,
                "%s: data %p is not win_offset %" PRIu64 " of its window at %p", t->field,
                t->copy.data, t->copy.win_offset, base);
        t->view.data = at;
    } else {
        t->view.data = t->copy.data;
    }
    SWL_ARG(t->copy.win_offset % (t->payload ? 16 : t->view.elem_bytes) == 0,
            "%s: win_offset %" PRIu64 " is not a multiple of %u", t->field, t->copy.win_offset,
            t->payload ? 16u : t->view.elem_bytes);
    base = NULL;
    SWL_TRY(SWL_CUDA(swl_gpu_where(t->view.data, &place, &base, &known)));
    if (base && known)
        SWL_ARG((uintptr_t)t->view.data - (uintptr_t)base <= known &&
                    bytes <= known - ((uintptr_t)t->view.data - (uintptr_t)base),
                "%s: %" PRIu64 " bytes at win_offset %" PRIu64 " reach beyond the window's memory",
                t->field, bytes, t->copy.win_offset);
    t->view.window = true;
    return ncclSuccess;
}

/* Library memory: wholly inside one allocation of swimlaneMemAlloc, or outside of all. */
static ncclResult_t check_regions(struct swl_tensor *t, const struct swl_group_info *group,
                                  uint64_t bytes)
{
    for (uint32_t i = 0; i < group->nregions; i++) {
        const struct swl_region *r = &group->regions[i];
        uint64_t at = (uint64_t)((uintptr_t)t->view.data - (uintptr_t)r->base);

        if (!swl_ranges_overlap(t->view.data, bytes, r->base, r->bytes))
            continue;
        SWL_ARG(at < r->bytes && bytes <= r->bytes - at,
                "%s: %" PRIu64 " bytes at %p are not wholly inside one allocation of "
                "swimlaneMemAlloc (%" PRIu64 " bytes at %p)",
                t->field, bytes, t->view.data, r->bytes, r->base);
        t->view.shared = true;
        t->view.window = true;
        t->view.offset = r->offset + at;
        break;
    }
    return ncclSuccess;
}

/* Ordinary host memory would end in a fault on the device, which no group survives. */
static ncclResult_t check_known(const struct swl_tensor *t)
{
    enum swl_gpu_memory_kind place;
    void *base;
    size_t bytes;

    if (t->view.window)
        return ncclSuccess;
    SWL_TRY(SWL_CUDA(swl_gpu_where(t->view.data, &place, &base, &bytes)));
    SWL_ARG(place != SWL_GPU_MEMORY_UNKNOWN,
            "%s: %p is ordinary host memory, a device cannot reach it", t->field, t->view.data);
    return ncclSuccess;
}

ncclResult_t swl_tensor_check(struct swl_tensor *t, const struct swl_group_info *group)
{
    uint64_t bytes;
    uint32_t align;

    if (!t->given)
        return ncclSuccess;
    SWL_TRY(check_shape(t));
    align = t->payload ? 16 : t->view.elem_bytes;
    t->view.data = t->copy.data;
    if (t->empty)
        return ncclSuccess;
    bytes = t->view.rows * t->view.row_bytes;
    SWL_ARG(t->copy.data || t->copy.win_hdl, "%s: data and win_hdl are both NULL", t->field);
    if (t->copy.win_hdl)
        SWL_TRY(check_window(t, group, bytes));
    SWL_ARG((uintptr_t)t->view.data % align == 0, "%s: address %p is not aligned to %u bytes",
            t->field, t->view.data, align);
    SWL_TRY(check_regions(t, group, bytes));
    return check_known(t);
}

ncclResult_t swl_tensor_no_overlap(const struct swl_tensor *a, const struct swl_tensor *b)
{
    SWL_ARG(!swl_ranges_overlap(a->view.data, a->view.rows * a->view.row_bytes, b->view.data,
                                b->view.rows * b->view.row_bytes),
            "%s and %s overlap in memory", a->field, b->field);
    return ncclSuccess;
}

ncclResult_t swl_tensor_alloc(ncclEpTensor_t **tensor_p, unsigned int ndim, ncclDataType_t datatype,
                              const size_t *sizes)
{
    struct library_tensor *made;
    uint64_t bytes = swl_dtype_bytes(datatype);

    SWL_ARG(ndim >= 1 && ndim <= SWL_TENSOR_MAX_DIMS, "ndim is %u, not 1 to %u", ndim,
            SWL_TENSOR_MAX_DIMS);
    SWL_ARG(bytes, "datatype %d is not known", (int)datatype);
    for (unsigned int i = 0; i < ndim; i++)
        SWL_ARG(swl_mul(bytes, sizes[i], &bytes), "sizes: the extents overflow");
    made = swl_calloc(1, sizeof(*made), "a tensor descriptor");
    if (!made)
        return ncclSystemError;
    made->tensor.size = sizeof(made->tensor);
    made->tensor.magic = LIBRARY_MAGIC;
    made->tensor.ndim = ndim;
    made->tensor.datatype = datatype;
    made->tensor.sizes = made->extent;
    memcpy(made->extent, sizes, ndim * sizeof(*sizes));
    *tensor_p = &made->tensor;
    return ncclSuccess;
}

ncclResult_t swl_tensor_destroy(ncclEpTensor_t *tensor)
{
    struct library_tensor *made = (struct library_tensor *)tensor;

    SWL_ARG(tensor->size >= NCCL_EP_TENSOR_V1_SIZE && tensor->magic == LIBRARY_MAGIC,
            "tensor was not made by ncclEpTensorAlloc (size %u, magic 0x%08x)", tensor->size,
            tensor->size >= 2 * sizeof(unsigned int) ? tensor->magic : 0);
    SWL_ARG(tensor->sizes == made->extent, "tensor: sizes has been replaced");
    tensor->magic = 0; /* a second destroy is then refused as long as the memory is not reused */
    free(made);
    return ncclSuccess;
}
