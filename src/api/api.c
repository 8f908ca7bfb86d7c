/* api.c: public functions of version, tensors and groups: check, lock, call.
 *
 * Layer: src/api. Owns nothing; everything it knows about a group or a handle is in the info
 * structs of internal.h. */
#include "src/api/scope.h"
#include "src/api/version.h"
#include "src/base/options.h"
#include "src/check/check.h"
#include "src/check/tensor.h"
#include "src/group/comm.h"
#include "src/runtime/result.h"

#include <nccl_ep.h>

#include <string.h>

/* ---- version and tensors ---- */

SWL_EXPORT ncclResult_t ncclEpGetVersion(int *version)
{
    swl_call_begin(__func__, -1);
    if (!version)
        return swl_call_finish(swl_fail(ncclInvalidArgument, "version is NULL"));
    *version = swl_version();
    return swl_call_finish(ncclSuccess);
}

static ncclResult_t tensor_alloc(ncclEpTensor_t **tensor, unsigned int ndim,
                                 ncclDataType_t datatype, const size_t *sizes,
                                 const ncclEpTensorAllocConfig_t *config)
{
    ncclEpTensorAllocConfig_t c;

    SWL_ARG(tensor, "tensor is NULL");
    *tensor = NULL;
    SWL_ARG(sizes, "sizes is NULL");
    if (config)
        SWL_TRY(swl_struct_copy(&c, sizeof(c), config, NCCL_EP_TENSOR_ALLOC_CONFIG_V1_SIZE, 4,
                                "config"));
    return swl_tensor_alloc(tensor, ndim, datatype, sizes);
}

SWL_EXPORT ncclResult_t ncclEpTensorAlloc(ncclEpTensor_t **tensor, unsigned int ndim,
                                          ncclDataType_t datatype, const size_t *sizes,
                                          const ncclEpTensorAllocConfig_t *config)
{
    swl_call_begin(__func__, -1);
    return swl_call_finish(tensor_alloc(tensor, ndim, datatype, sizes, config));
}

SWL_EXPORT ncclResult_t ncclEpTensorDestroy(ncclEpTensor_t *tensor)
{
    swl_call_begin(__func__, -1);
    return swl_call_finish(tensor ? swl_tensor_destroy(tensor) : ncclSuccess);
}

/* ---- group ---- */

/* Can this device do it? */
static ncclResult_t check_device(int device, uint32_t max_sms)
{
    struct swl_gpu_info info;
    int ndevices;

    SWL_TRY(SWL_CUDA(swl_gpu_count(&ndevices)));
    if (ndevices == 0)
        return swl_fail(ncclInvalidUsage, "this machine has no GPU, or no driver for it");
    SWL_TRY(SWL_CUDA(swl_gpu_info(device, &info)));
    if (info.cc_major < 9)
        return swl_fail(ncclInvalidUsage, "GPU %d has compute capability %d.%d, 9.0 is needed",
                        device, info.cc_major, info.cc_minor);
    if (max_sms > (uint32_t)info.nsms)
        return swl_fail(ncclInvalidUsage, "config.max_num_sms is %u, GPU %d has %d", max_sms,
                        device, info.nsms);
    return ncclSuccess;
}

struct create_args {
    ncclEpGroup_t *group_p;
    const ncclEpGroupConfig_t *user;
    uint32_t nranks;
    int rank, device;
};

static ncclResult_t check_create(const struct create_args *a, struct swl_group_config *config,
                                 struct swl_options *options)
{
    SWL_ARG(a->group_p, "ep_group is NULL");
    swl_options_read(options);
    if (options->env_verbose && a->rank == 0)
        swl_options_list();
    SWL_TRY(swl_check_group(a->user, a->nranks, config));
    SWL_TRY(swl_options_check(options));
    SWL_TRY(check_device(a->device, config->max_sms));
    SWL_TRY(swl_refuse_capture(NULL));
    return swl_context_sound();
}

/* A rank whose arguments are refused still joins the first exchange, so that no rank waits. */
static ncclResult_t create_group(ncclEpGroup_t *group_p, ncclComm_t comm,
                                 const ncclEpGroupConfig_t *user)
{
    struct create_args args = {.group_p = group_p, .user = user};
    struct swl_group_config config;
    struct swl_options options;
    struct ncclEpGroup *group = NULL;
    struct swl_scope scope = {0};
    int nranks;
    ncclResult_t rc;

    if (group_p)
        *group_p = NULL;
    SWL_ARG(comm, "comm is NULL");
    SWL_TRY(swl_comm_ask(ncclCommCount, comm, &nranks, "rank count"));
    SWL_TRY(swl_comm_ask(ncclCommUserRank, comm, &args.rank, "rank number"));
    SWL_TRY(swl_comm_ask(ncclCommCuDevice, comm, &args.device, "device"));
    swl_call_rank(args.rank);
    args.nranks = (uint32_t)nranks;
    memset(&config, 0, sizeof(config));
    memset(&options, 0, sizeof(options));
    config.options = &options;
    rc = swl_scope_device(&scope, args.device);
    if (rc == ncclSuccess)
        rc = check_create(&args, &config, &options);
    rc = swl_group_create(&group, comm, &config, rc);
    rc = swl_scope_leave(&scope, rc);
    if (rc == ncclSuccess && group_p)
        *group_p = group;
    return rc;
}

SWL_EXPORT ncclResult_t ncclEpCreateGroup(ncclEpGroup_t *ep_group, ncclComm_t comm,
                                          const ncclEpGroupConfig_t *config)
{
    swl_call_begin(__func__, -1);
    return swl_call_finish(create_group(ep_group, comm, config));
}

static ncclResult_t destroy_group(struct ncclEpGroup *group)
{
    struct swl_scope scope = {0};
    ncclResult_t rc, refused, next = ncclSuccess;

    if (!group)
        return ncclSuccess;
    SWL_TRY(swl_known_group(group));
    swl_call_rank((int)swl_info_of_group(group)->rank);
    rc = swl_scope_device(&scope, swl_info_of_group(group)->device);
    refused = swl_refuse_capture(NULL);
    if (refused != ncclInvalidUsage) /* whatever else fails, the group ends */
        next = swl_group_destroy(group);
    rc = swl_first_failure(rc, swl_first_failure(refused, next));
    return swl_scope_leave(&scope, rc);
}

SWL_EXPORT ncclResult_t ncclEpGroupDestroy(ncclEpGroup_t ep_group)
{
    swl_call_begin(__func__, -1);
    return swl_call_finish(destroy_group(ep_group));
}

static ncclResult_t get_async_error(struct ncclEpGroup *group, int *error_out)
{
    struct swl_scope scope;

    SWL_ARG(group, "ep_group is NULL");
    SWL_ARG(error_out, "error_out is NULL");
    SWL_TRY(swl_scope_enter(&scope, group));
    return swl_scope_leave(&scope, swl_group_async_bits(group, error_out));
}

SWL_EXPORT ncclResult_t ncclEpGetAsyncError(ncclEpGroup_t ep_group, int *error_out)
{
    swl_call_begin(__func__, -1);
    return swl_call_finish(get_async_error(ep_group, error_out));
}

static ncclResult_t clear_error(struct ncclEpGroup *group)
{
    struct swl_scope scope;

    SWL_ARG(group, "ep_group is NULL");
    SWL_TRY(swl_scope_enter(&scope, group));
    return swl_scope_leave(&scope, swl_group_clear(group));
}

SWL_EXPORT ncclResult_t ncclEpErrorClear(ncclEpGroup_t ep_group)
{
    swl_call_begin(__func__, -1);
    return swl_call_finish(clear_error(ep_group));
}

/* Groups with enable_mask cannot be created in this version, so that every mask call is refused. */
static ncclResult_t refuse_mask(const struct ncclEpGroup *group, const void *pointer,
                                const char *field)
{
    SWL_ARG(group, "ep_group is NULL");
    SWL_TRY(swl_known_group(group));
    swl_call_rank((int)swl_info_of_group(group)->rank);
    SWL_ARG(pointer, "%s is NULL", field);
    return swl_fail(ncclInvalidUsage, "the group was created without enable_mask");
}

SWL_EXPORT ncclResult_t ncclEpMaskQuery(ncclEpGroup_t ep_group, int *mask_status,
                                        cudaStream_t stream)
{
    (void)stream;
    swl_call_begin(__func__, -1);
    return swl_call_finish(refuse_mask(ep_group, mask_status, "mask_status"));
}

SWL_EXPORT ncclResult_t ncclEpMaskUpdate(ncclEpGroup_t ep_group, const int *mask,
                                         cudaStream_t stream)
{
    (void)stream;
    swl_call_begin(__func__, -1);
    return swl_call_finish(refuse_mask(ep_group, mask, "mask"));
}

SWL_EXPORT ncclResult_t ncclEpMaskClean(ncclEpGroup_t ep_group, cudaStream_t stream)
{
    (void)stream;
    swl_call_begin(__func__, -1);
    return swl_call_finish(refuse_mask(ep_group, ep_group, "ep_group"));
}
