/* verbs_usable.c: would the verbs wire work here? Asked before a group chooses its driver.
 *
 * Layer: transport/proxy. Opens the device and closes it again; keeps nothing. */
#include "transport/proxy/verbs_wire.h"

#include "src/gpu.h"

#include <stdio.h>
#include <string.h>

/* Can the device reach memory of the GPU? Kernels may lack the means. */
static bool reaches_memory(const struct swl_verbs *verbs, struct ibv_context *context,
                           const char *name, char *why, size_t why_bytes)
{
    const size_t bytes = 65536;
    struct ibv_pd *pd = verbs->ibv_alloc_pd(context);
    struct verbs_mr *mr = NULL;
    void *memory = NULL;

    if (pd && swl_gpu_malloc(&memory, bytes) == cudaSuccess) {
        mr = verbs->ibv_reg_mr(pd, memory, bytes, VERBS_ACCESS_LOCAL_WRITE);
        if (mr)
            (void)verbs->ibv_dereg_mr(mr);
        (void)swl_gpu_free(memory);
    }
    if (pd)
        (void)verbs->ibv_dealloc_pd(pd);
    if (mr == NULL)
        snprintf(why, why_bytes, "%s cannot register memory of the GPU", name);
    return mr != NULL;
}

bool swl_proxy_verbs_usable(const struct swl_nic_config *config, char *why, size_t why_bytes)
{
    const struct swl_nic_ib *ib = swl_nic_ib_of(config->ib);
    const struct swl_port_want want = {ib->hca, ib->gid_index, SWL_PORT_IWARP, config->near};
    struct ibv_context *context = NULL;
    struct swl_verbs verbs;
    struct swl_port port;
    bool ok;

    if (!swl_verbs_load(&verbs, false, NULL, why, why_bytes))
        return false;
    ok = swl_port_open(&verbs, &want, &context, &port, why, why_bytes);
    if (ok && port.iwarp)
        ok = swl_verbs_cm_usable(&verbs, port.name, why, why_bytes);
    ok = ok && reaches_memory(&verbs, context, port.name, why, why_bytes);
    if (context)
        (void)verbs.ibv_close_device(context);
    swl_verbs_unload(&verbs);
    return ok;
}
