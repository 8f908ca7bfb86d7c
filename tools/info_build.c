/* info_build.c: swimlane-info: what this build can do, whatever the machine that made it had.
 * Layer: tools. */
#include "tools/info.h"

#include <nccl_ep.h>

/* Given by tools/CMakeLists.txt. */
#if !defined SWL_TOOLKIT || !defined SWL_TARGETS
#    error "SWL_TOOLKIT and SWL_TARGETS are what the kernels were made with"
#endif

void info_build(struct info_out *out)
{
    uint32_t n, every = SWL_TRANSPORT_PEER;
    const struct swl_nic_driver *drivers = swl_drivers(&n);
    char transports[96];

    for (uint32_t i = 0; i < n; i++)
        every |= drivers[i].bit;
    swl_transports_text(every, transports, sizeof(transports));
    info_open(out, "build", '{');
    info_text(out, "library", "%d.%d.%d", NCCL_EP_MAJOR, NCCL_EP_MINOR, NCCL_EP_PATCH);
    info_text(out, "ranks", INFO_RANKS);
    info_text(out, "cuda_toolkit", SWL_TOOLKIT);
    info_text(out, "gpu_targets", SWL_TARGETS);
    info_text(out, "transports", "%s", transports);
    info_text(out, "rdma_core", "looked for at run time; nothing of it was needed to build");
    info_close(out, '}');
}
