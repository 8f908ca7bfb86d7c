/* usable.c: would the verbs wire work here? Asked before a group chooses its driver.
 *
 * Layer: transport/proxy/verbs. Opens the device and closes it again; keeps nothing. */
#include "transport/proxy/verbs/verbs.h"

#include "src/runtime/runtime.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool say(char *why, size_t why_bytes, const char *name, const char *what, const char *reason)
{
    snprintf(why, why_bytes, "%s %s: %s", name, what, reason);
    return false;
}

static const char *text_of(int error)
{
    return error ? strerror(error) : "no reason given";
}

/* Does the device take memory of the GPU? Kernels may lack the means. */
static bool takes_memory(const struct swl_verbs *verbs, struct ibv_pd *pd,
                         const struct swl_port *port, char *why, size_t why_bytes)
{
    const size_t bytes = 65536;
    const char *name = port->name;
    struct verbs_mr *mr;
    void *memory = NULL;
    cudaError_t error = swl_gpu_malloc(&memory, bytes);
    int refused;

    if (error != cudaSuccess)
        return say(why, why_bytes, name, "cannot be tried with memory of the GPU",
                   swl_gpu_error_text(error));
    errno = 0;
    mr = verbs->ibv_reg_mr(pd, memory, bytes, VERBS_ACCESS_LOCAL_WRITE);
    refused = errno;
    if (mr)
        (void)verbs->ibv_dereg_mr(mr);
    (void)swl_gpu_free(memory);
    return mr || say(why, why_bytes, name,
                     "cannot register memory of the GPU (module nvidia-peermem, ulimit -l)",
                     text_of(refused));
}

static bool reaches_memory(const struct swl_verbs *verbs, struct ibv_context *context,
                           const struct swl_port *port, char *why, size_t why_bytes)
{
    struct ibv_pd *pd;
    bool ok;

    errno = 0;
    pd = verbs->ibv_alloc_pd(context);
    if (pd == NULL)
        return say(why, why_bytes, port->name, "gives no protection domain", text_of(errno));
    ok = takes_memory(verbs, pd, port, why, why_bytes);
    (void)verbs->ibv_dealloc_pd(pd);
    return ok;
}

bool swl_verbs_wire_usable(const struct swl_verbs *verbs, const struct swl_nic_config *config,
                           char *why, size_t why_bytes)
{
    const struct swl_nic_ib *ib = swl_nic_ib_of(config->settings.ib);
    const struct swl_port_want want = {ib->hca, ib->gid_index, SWL_PORT_ANY, config->proximity,
                                       ib->pkey};
    struct ibv_context *context = NULL;
    struct swl_port port;
    bool ok;

    ok = swl_port_open(verbs, &want, &context, &port, why, why_bytes);
    ok = ok && reaches_memory(verbs, context, &port, why, why_bytes);
    if (context)
        (void)verbs->ibv_close_device(context);
    return ok;
}

bool swl_proxy_verbs_usable(const struct swl_nic_config *config, char *why, size_t why_bytes)
{
    struct swl_verbs verbs;
    bool ok;

    if (!swl_verbs_load(&verbs, false, NULL, why, why_bytes))
        return false;
    ok = swl_verbs_wire_usable(&verbs, config, why, why_bytes);
    swl_verbs_unload(&verbs);
    return ok;
}
