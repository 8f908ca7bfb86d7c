/* result.c: see result.h. Layer: src/runtime; no state. */
#include "src/runtime/result.h"

#include <string.h>

ncclResult_t swl_cuda_code(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return ncclSuccess;
    case cudaErrorNotReady:
        return ncclSystemError;
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureImplicit:
        return ncclInvalidUsage;
    default:
        return ncclUnhandledCudaError;
    }
}

ncclResult_t swl_cuda_result(cudaError_t error, const char *text)
{
    if (error == cudaSuccess)
        return ncclSuccess;
    if (error == cudaErrorNotReady)
        return swl_fail(swl_cuda_code(error), "%.*s: the device was not done within the time limit",
                        (int)strcspn(text, "("), text);
    return swl_fail(swl_cuda_code(error), "%.*s: %s", (int)strcspn(text, "("), text,
                    swl_gpu_error_text(error));
}
