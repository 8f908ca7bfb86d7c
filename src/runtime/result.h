/* result.h: errors of the device runtime as result codes with a sentence. Layer: src/runtime. */
#ifndef SWL_RUNTIME_RESULT_H
#define SWL_RUNTIME_RESULT_H

#include "src/base/error.h"
#include "src/runtime/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Code of an error of the device runtime: UnhandledCudaError, but SystemError for
 * cudaErrorNotReady, which only bounded waits return, and InvalidUsage for what a capture does not
 * allow. */
ncclResult_t swl_cuda_code(cudaError_t error);

/* The same with a sentence; `text` is the call as written. */
ncclResult_t swl_cuda_result(cudaError_t error, const char *text);

/* An expression: the result code of a swl_gpu_… or CUDA call. A code that is at hand already goes
 * to swl_cuda_result with words of its own. */
#define SWL_CUDA(call) swl_cuda_result((call), #call)

#ifdef __cplusplus
}
#endif
#endif
