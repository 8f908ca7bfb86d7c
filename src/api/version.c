/* version.c: version number and banner. Layer: src/api; no memory.
 *
 * Bindings find the banner by scanning the bytes of the library file; the build gives the toolkit's
 * version (0.0 in the emulator). */
#include "src/api/version.h"

#include "src/base/log.h"
#include "src/base/options.h"

#include <nccl_ep.h>

#include <stdio.h>

#ifndef SWL_TOOLKIT
#    error "SWL_TOOLKIT is <major>.<minor> of the CUDA toolkit, given by src/CMakeLists.txt"
#endif

#define TEXT_(x)  #x
#define TEXT(x)   TEXT_(x)
#define VERSION   TEXT(NCCL_EP_MAJOR) "." TEXT(NCCL_EP_MINOR) "." TEXT(NCCL_EP_PATCH)
#define CUDA_PART "+cuda" TEXT(SWL_TOOLKIT)

static const char banner[] = "NCCL EP version " VERSION CUDA_PART;
static const char name[] = "Swimlane " VERSION CUDA_PART;

__attribute__((constructor)) static void print_banner(void)
{
    if (swl_log_debug_flag())
        fprintf(stderr, "%s\n", banner);
}

int swl_version(void)
{
    static int reported; /* 0 = not yet read; all threads store the same value */
    int version = __atomic_load_n(&reported, __ATOMIC_RELAXED);
    struct swl_options options;

    if (version == 0) {
        swl_option_read(&options, "SWIMLANE_REPORT_VERSION");
        version = options.report_version ? (int)options.report_version : NCCL_EP_VERSION_CODE;
        __atomic_store_n(&reported, version, __ATOMIC_RELAXED);
    }
    return version;
}

const char *swl_version_text(void)
{
    return name;
}
