/* standin_values.h: values and sizes that the stand-in headers share with the real ones. */
#ifndef SWL_STANDIN_VALUES_H
#define SWL_STANDIN_VALUES_H

struct standin_value {
    const char *name;
    long long value;
};
extern const struct standin_value standin_values[], real_values[]; /* end: name NULL */

/* clang-format off */
#define STANDIN_VALUES(X) \
    X(cudaDevAttrComputeCapabilityMajor) \
    X(cudaDevAttrComputeCapabilityMinor) \
    X(cudaDevAttrMaxSharedMemoryPerBlockOptin) \
    X(cudaDevAttrMultiProcessorCount) \
    X(cudaErrorCapturedEvent) \
    X(cudaErrorCooperativeLaunchTooLarge) \
    X(cudaErrorIllegalAddress) \
    X(cudaErrorIllegalState) \
    X(cudaErrorInitializationError) \
    X(cudaErrorInsufficientDriver) \
    X(cudaErrorInvalidConfiguration) \
    X(cudaErrorInvalidDevice) \
    X(cudaErrorInvalidDeviceFunction) \
    X(cudaErrorInvalidDevicePointer) \
    X(cudaErrorInvalidMemcpyDirection) \
    X(cudaErrorInvalidResourceHandle) \
    X(cudaErrorInvalidValue) \
    X(cudaErrorLaunchFailure) \
    X(cudaErrorLaunchOutOfResources) \
    X(cudaErrorMemoryAllocation) \
    X(cudaErrorNoDevice) \
    X(cudaErrorNotPermitted) \
    X(cudaErrorNotReady) \
    X(cudaErrorNotSupported) \
    X(cudaErrorOperatingSystem) \
    X(cudaErrorStreamCaptureImplicit) \
    X(cudaErrorStreamCaptureInvalidated) \
    X(cudaErrorStreamCaptureIsolation) \
    X(cudaErrorStreamCaptureMerge) \
    X(cudaErrorStreamCaptureUnjoined) \
    X(cudaErrorStreamCaptureUnmatched) \
    X(cudaErrorStreamCaptureUnsupported) \
    X(cudaErrorTimeout) \
    X(cudaErrorUnknown) \
    X(cudaEventBlockingSync) \
    X(cudaEventDefault) \
    X(cudaEventDisableTiming) \
    X(cudaHostAllocDefault) \
    X(cudaHostAllocMapped) \
    X(cudaHostAllocPortable) \
    X(cudaHostAllocWriteCombined) \
    X(cudaMemcpyDefault) \
    X(cudaMemcpyDeviceToDevice) \
    X(cudaMemcpyDeviceToHost) \
    X(cudaMemcpyHostToDevice) \
    X(cudaMemcpyHostToHost) \
    X(cudaMemoryTypeDevice) \
    X(cudaMemoryTypeHost) \
    X(cudaMemoryTypeManaged) \
    X(cudaMemoryTypeUnregistered) \
    X(cudaStreamCaptureModeGlobal) \
    X(cudaStreamCaptureModeRelaxed) \
    X(cudaStreamCaptureModeThreadLocal) \
    X(cudaStreamCaptureStatusActive) \
    X(cudaStreamCaptureStatusInvalidated) \
    X(cudaStreamCaptureStatusNone) \
    X(cudaStreamDefault) \
    X(cudaStreamLegacy) \
    X(cudaStreamNonBlocking) \
    X(cudaStreamPerThread) \
    X(cudaSuccess) \
    X(NCCL_CONFIG_UNDEF_INT) \
    X(NCCL_MAJOR) \
    X(NCCL_MINOR) \
    X(NCCL_PATCH) \
    X(NCCL_SPLIT_NOCOLOR) \
    X(NCCL_UNIQUE_ID_BYTES) \
    X(NCCL_VERSION_CODE) \
    X(NCCL_WIN_COLL_SYMMETRIC) \
    X(NCCL_WIN_DEFAULT) \
    X(NCCL_WIN_REQUIRED_ALIGNMENT) \
    X(ncclAvg) \
    X(ncclBfloat16) \
    X(ncclChar) \
    X(ncclDouble) \
    X(ncclFloat) \
    X(ncclFloat16) \
    X(ncclFloat32) \
    X(ncclFloat64) \
    X(ncclFloat8e4m3) \
    X(ncclFloat8e5m2) \
    X(ncclHalf) \
    X(ncclInProgress) \
    X(ncclInt) \
    X(ncclInt32) \
    X(ncclInt64) \
    X(ncclInt8) \
    X(ncclInternalError) \
    X(ncclInvalidArgument) \
    X(ncclInvalidUsage) \
    X(ncclMax) \
    X(ncclMaxRedOp) \
    X(ncclMin) \
    X(ncclNumOps) \
    X(ncclNumResults) \
    X(ncclNumTypes) \
    X(ncclProd) \
    X(ncclRemoteError) \
    X(ncclSuccess) \
    X(ncclSum) \
    X(ncclSystemError) \
    X(ncclUint32) \
    X(ncclUint64) \
    X(ncclUint8) \
    X(ncclUnhandledCudaError) \
    X(sizeof(ncclConfig_t)) \
    X(sizeof(ncclUniqueId)) \
    X(offsetof(struct cudaPointerAttributes, hostPointer)) \
    X(offsetof(ncclConfig_t, magic)) \
    X(offsetof(ncclConfig_t, commName)) \
    X(offsetof(ncclConfig_t, nvlinkCentricSched)) \
    X(NCCL_VERSION(2, 28, 9)) \
    X(NCCL_VERSION(2, 7, 8))
/* clang-format on */

#endif
