/* result.c: see result.h. Layer: src/runtime; no state. */
#include "src/runtime/result.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

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

/* Memory that processes share needs one, which no error of the runtime says. */
static bool no_descriptor(void)
{
    const int fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool none = fd < 0 && (errno == EMFILE || errno == ENFILE);

    if (fd >= 0)
        (void)close(fd);
    return none;
}

ncclResult_t swl_cuda_result(cudaError_t error, const char *text)
{
    if (error == cudaSuccess)
        return ncclSuccess;
    if (error == cudaErrorNotReady)
        return swl_fail(swl_cuda_code(error), "%.*s: the device was not done within the time limit",
                        (int)strcspn(text, "("), text);
    return swl_fail(swl_cuda_code(error), "%.*s: %s%s", (int)strcspn(text, "("), text,
                    swl_gpu_error_text(error),
                    error == cudaErrorOperatingSystem && no_descriptor()
                        ? ": the process has no descriptor left (ulimit -Hn)"
                        : "");
}
