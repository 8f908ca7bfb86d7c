/* scope.h: lock, device and refusals that all public functions share.
 *
 * Layer: src/api, used by this folder only. A scope lives on the stack of one call. */
#ifndef SWL_API_SCOPE_H
#define SWL_API_SCOPE_H

#include "src/api/internal.h"
#include "src/base/error.h"
#include "src/runtime/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SWL_EXPORT __attribute__((visibility("default")))

struct swl_scope {
    struct swl_gpu_mutex *lock; /* NULL: none taken */
    int before;                 /* device to restore */
    int device;
};

/* InvalidArgument for what is no group (no handle), or was destroyed; not NULL. */
ncclResult_t swl_known_group(const struct ncclEpGroup *group);
ncclResult_t swl_known_handle(const struct ncclEpHandle *handle);

/* Make `device` current. After a failure whoever has to go on may do so, and leaves the scope. */
ncclResult_t swl_scope_device(struct swl_scope *s, int device);
/* Take the group's lock and make its device current; nothing is held after a failure. */
ncclResult_t swl_scope_enter(struct swl_scope *s, const struct ncclEpGroup *group);
/* The same for calls that are collective: after a failure the scope is held all the same, for the
 * agreement that tells the other ranks. */
ncclResult_t swl_scope_enter_anyway(struct swl_scope *s, const struct ncclEpGroup *group);
/* As swl_scope_enter for the handle's group; refused if that is gone. */
ncclResult_t swl_scope_enter_handle(struct swl_scope *s, const struct ncclEpHandle *handle);
/* Undo; returns rc, or the failure to restore the device. */
ncclResult_t swl_scope_leave(const struct swl_scope *s, ncclResult_t rc);

/* End of a public function. */
ncclResult_t swl_call_finish(ncclResult_t rc);

/* InvalidUsage while `stream` captures. */
ncclResult_t swl_refuse_capture(cudaStream_t stream);
/* An error that an earlier call left in the CUDA context is reported, not cleared. */
ncclResult_t swl_context_sound(void);

#ifdef __cplusplus
}
#endif
#endif
