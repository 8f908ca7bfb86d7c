/* tensor.h: tensor descriptors of the caller, copied and checked, and those the library makes.
 *
 * Layer: src/check, below check and api. A struct swl_tensor is a copy on the stack of the call;
 * the memory behind it stays the caller's. */
#ifndef SWL_TENSOR_H
#define SWL_TENSOR_H

#include "src/api/internal.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SWL_TENSOR_MAX_DIMS 4u

struct swl_tensor {
    const char *field; /* name in sentences, e.g. "outputs.tokens" */
    bool given;
    bool payload;   /* rows: 16-byte aligned; else aligned to the element */
    bool own_sizes; /* `sizes` is where its maker put it */
    bool empty;     /* an extent is 0 */
    ncclEpTensor_t copy;
    size_t extent[SWL_TENSOR_MAX_DIMS];
    struct swl_view view; /* filled by swl_tensor_check */
};

/* 0 if the code is not a known type. */
uint32_t swl_dtype_bytes(ncclDataType_t dtype);
const char *swl_dtype_name(ncclDataType_t dtype);

/* Copy a descriptor and check its size and magic. NULL: !given, success. */
ncclResult_t swl_tensor_copy(struct swl_tensor *t, const ncclEpTensor_t *user, const char *field,
                             bool payload);
/* InvalidUsage if this NCCL cannot tell where the tensor lies. */
ncclResult_t swl_tensor_capable(const struct swl_tensor *t, const struct swl_group_info *group);
/* Dimensions, type, storage, alignment; fills t->view. */
ncclResult_t swl_tensor_check(struct swl_tensor *t, const struct swl_group_info *group);
/* InvalidArgument if the memory of both is known to overlap. */
ncclResult_t swl_tensor_no_overlap(const struct swl_tensor *a, const struct swl_tensor *b);

ncclResult_t swl_tensor_alloc(ncclEpTensor_t **tensor_p, unsigned int ndim, ncclDataType_t datatype,
                              const size_t *sizes);
ncclResult_t swl_tensor_destroy(ncclEpTensor_t *tensor);

#ifdef __cplusplus
}
#endif
#endif
