/* swimlane.c: the extensions of swimlane.h: check, lock, call.
 *
 * Layer: src/api. Owns nothing; everything it knows about a group or a handle is in the info
 * structs of internal.h. */
#include "src/api/scope.h"
#include "src/api/version.h"

#include <swimlane.h>

SWL_EXPORT const char *swimlaneLastError(void)
{
    return swl_last_error();
}

SWL_EXPORT const char *swimlaneVersionString(void)
{
    return swl_version_text();
}

/* A rank whose call is refused still joins the agreement, so that no rank waits. */
static ncclResult_t mem_alloc(struct ncclEpGroup *group, size_t bytes, void **ptr)
{
    struct swl_scope scope;
    ncclResult_t rc, joined;
    void *made = NULL;

    if (ptr)
        *ptr = NULL;
    SWL_ARG(group, "ep_group is NULL");
    SWL_TRY(swl_known_group(group));
    rc = swl_scope_enter_anyway(&scope, group);
    if (rc == ncclSuccess && !ptr)
        rc = swl_fail(ncclInvalidArgument, "ptr is NULL");
    else if (rc == ncclSuccess && bytes == 0)
        rc = swl_fail(ncclInvalidArgument, "bytes is 0");
    else if (rc == ncclSuccess)
        rc = swl_refuse_capture(NULL);
    joined = swl_mem_alloc(group, rc == ncclSuccess ? bytes : 0, rc, &made);
    rc = swl_scope_leave(&scope, rc == ncclSuccess ? joined : rc);
    if (rc == ncclSuccess && ptr)
        *ptr = made;
    return rc;
}

SWL_EXPORT ncclResult_t swimlaneMemAlloc(ncclEpGroup_t ep_group, size_t bytes, void **ptr)
{
    swl_call_begin(__func__, -1);
    return swl_call_finish(mem_alloc(ep_group, bytes, ptr));
}

static ncclResult_t mem_free_locked(struct ncclEpGroup *group, void *ptr, ncclResult_t refused)
{
    const struct swl_group_info *info = swl_info_of_group(group);

    for (uint32_t i = 0; i < info->nregions; i++) {
        if (info->regions[i].base == ptr) {
            if (refused == ncclSuccess)
                refused = swl_refuse_capture(NULL);
            return swl_mem_free(group, ptr, refused);
        }
    }
    return swl_fail(ncclInvalidArgument, "ptr %p is not the start of an allocation of this group",
                    ptr);
}

static ncclResult_t mem_free(struct ncclEpGroup *group, void *ptr)
{
    struct swl_scope scope;
    ncclResult_t rc;

    SWL_ARG(group, "ep_group is NULL");
    if (!ptr)
        return ncclSuccess;
    SWL_TRY(swl_known_group(group));
    rc = swl_scope_enter_anyway(&scope, group);
    return swl_scope_leave(&scope, mem_free_locked(group, ptr, rc));
}

SWL_EXPORT ncclResult_t swimlaneMemFree(ncclEpGroup_t ep_group, void *ptr)
{
    swl_call_begin(__func__, -1);
    return swl_call_finish(mem_free(ep_group, ptr));
}

static ncclResult_t group_query(struct ncclEpGroup *group, int key, uint64_t *value)
{
    struct swl_scope scope;

    SWL_ARG(group, "ep_group is NULL");
    SWL_ARG(value, "value is NULL");
    SWL_ARG(key >= SWIMLANE_QUERY_DEVICE_BYTES && key <= SWIMLANE_QUERY_RING_SLOTS,
            "key is %d, not one of SWIMLANE_QUERY_...", key);
    SWL_TRY(swl_scope_enter(&scope, group));
    return swl_scope_leave(&scope, swl_group_query(group, key, value));
}

SWL_EXPORT ncclResult_t swimlaneGroupQuery(ncclEpGroup_t ep_group, int key, uint64_t *value)
{
    swl_call_begin(__func__, -1);
    return swl_call_finish(group_query(ep_group, key, value));
}

static ncclResult_t recv_count(const struct ncclEpHandle *handle, int64_t *rows)
{
    struct swl_scope scope;

    SWL_ARG(handle, "handle is NULL");
    SWL_ARG(rows, "rows is NULL");
    SWL_TRY(swl_scope_enter_handle(&scope, handle));
    *rows = swl_handle_recv_rows(handle);
    return swl_scope_leave(&scope, ncclSuccess);
}

SWL_EXPORT ncclResult_t swimlaneHandleRecvCount(ncclEpHandle_t handle, int64_t *rows)
{
    swl_call_begin(__func__, -1);
    return swl_call_finish(recv_count(handle, rows));
}
