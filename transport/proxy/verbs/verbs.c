/* verbs.c: device and regions; see verbs.h. Layer: transport/proxy/verbs. */
#include "transport/proxy/verbs/verbs.h"

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/memory.h"
#include "transport/proxy/front.h"
#include "transport/rdma_core/tune.h"
#include "transport/sysfs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* errno of a call that may have left it alone. */
static const char *reason(int error)
{
    return error ? strerror(error) : "no reason given";
}

static ncclResult_t open_device(struct verbs_wire *w, const struct swl_wire_config *config)
{
    const struct swl_nic_ib *ib = swl_nic_ib_of(config->settings.ib);
    const struct swl_port_want want = {.hca = ib->hca,
                                       .gid_index = ib->gid_index,
                                       .kind = SWL_PORT_ANY,
                                       .proximity = config->proximity,
                                       .pkey = ib->pkey};
    char text[256];

    if (!swl_port_open(&w->verbs, &want, &w->context, &w->port, text, sizeof(text)))
        return swl_fail(ncclSystemError, "rank %u nic: %s", w->rank, text);
    SWL_TRY(swl_rc_tune(&w->tuning, w->rank, ib, &w->port));
    if (w->verbs.ibv_query_device(w->context, &w->attr) != 0)
        return swl_fail(ncclSystemError, "rank %u nic: %s does not tell its limits", w->rank,
                        w->port.name);
    return ncclSuccess;
}

/* The serving thread asks for events and must not wait for one. */
static ncclResult_t unblock_events(const struct verbs_wire *w)
{
    const int fd = ((struct verbs_head *)w->context)->async_fd;
    const int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
        return swl_fail(ncclSystemError, "rank %u nic: events of %s cannot be asked for: %s",
                        w->rank, w->port.name, reason(errno));
    return ncclSuccess;
}

static ncclResult_t open_all(struct verbs_wire *w, const struct swl_wire_config *config)
{
    SWL_TRY(open_device(w, config));
    SWL_TRY(unblock_events(w));
    if (w->attr.atomic_cap == VERBS_ATOMIC_NONE)
        w->adds = SWL_ADDS_MESSAGES;
    if (!swl_dma_open(&w->dma, config->device, w->rank, config->timeout_ns))
        return swl_no_memory("the adds of peers");
    errno = 0;
    w->pd = w->verbs.ibv_alloc_pd(w->context);
    if (w->pd == NULL)
        return swl_fail(ncclSystemError, "rank %u nic: %s gives no protection domain: %s", w->rank,
                        w->port.name, reason(errno));
    return ncclSuccess;
}

static ncclResult_t verbs_dereg(struct verbs_wire *w, struct verbs_mr *mr)
{
    const int error = w->verbs.ibv_dereg_mr(mr);

    if (error)
        return swl_fail(ncclSystemError, "rank %u nic: %s keeps a region: %s", w->rank,
                        w->port.name, reason(error));
    return ncclSuccess;
}

/* Everything goes, whatever fails; the first failure is the result. */
static ncclResult_t close_all(struct verbs_wire *w)
{
    ncclResult_t rc = ncclSuccess, next;

    for (uint32_t i = 0; i < w->nqps; i++) {
        next = swl_verbs_queue_close(w, &w->queues[i]);
        rc = rc != ncclSuccess ? rc : next;
        (void)pthread_mutex_destroy(&w->queues[i].lock);
    }
    next = swl_verbs_flush_close(w);
    rc = rc != ncclSuccess ? rc : next;
    for (uint32_t i = 0; i < w->nregions; i++) {
        next = verbs_dereg(w, w->regions[i].mr);
        rc = rc != ncclSuccess ? rc : next;
    }
    if (w->pd && w->verbs.ibv_dealloc_pd(w->pd) != 0 && rc == ncclSuccess)
        rc = swl_fail(ncclSystemError, "rank %u nic: %s keeps its protection domain", w->rank,
                      w->port.name);
    if (w->context && w->verbs.ibv_close_device(w->context) != 0 && rc == ncclSuccess)
        rc = swl_fail(ncclSystemError, "rank %u nic: %s does not close", w->rank, w->port.name);
    swl_dma_close(w->dma);
    (void)pthread_mutex_destroy(&w->lock);
    free(w->regions);
    free(w->queues);
    free(w);
    return rc;
}

static const struct swl_wire_ops wire_ops;

ncclResult_t swl_verbs_wire_open(struct swl_wire **wire_p, const struct swl_wire_config *config,
                                 const struct swl_verbs *verbs)
{
    struct verbs_wire *w = calloc(1, sizeof(*w));
    ncclResult_t rc;

    if (w != NULL)
        w->queues = calloc(config->max_qps, sizeof(*w->queues));
    if (w == NULL || w->queues == NULL) {
        free(w);
        return swl_no_memory("%u queue pairs", config->max_qps);
    }
    w->base.ops = &wire_ops;
    w->verbs = *verbs;
    w->rank = config->rank;
    w->max_qps = config->max_qps;
    w->depth = config->depth;
    w->first_index = config->first_index;
    w->adds = config->settings.adds;
    (void)pthread_mutex_init(&w->lock, NULL);
    (void)pthread_mutex_init(&w->flush.lock, NULL);
    rc = open_all(w, config);
    if (rc != ncclSuccess) {
        (void)close_all(w);
        return rc;
    }
    swl_sysfs_cpus(config->proximity ? config->proximity->root : NULL, w->port.name, w->cpus,
                   sizeof(w->cpus));
    *wire_p = &w->base;
    return ncclSuccess;
}

static ncclResult_t open_any(struct swl_wire **wire_p, const struct swl_wire_config *config)
{
    struct swl_verbs verbs;
    char why[256];
    ncclResult_t rc;

    if (!swl_verbs_load(&verbs, false, NULL, why, sizeof(why)))
        return swl_fail(ncclSystemError, "rank %u nic: %s", config->rank, why);
    rc = swl_verbs_wire_open(wire_p, config, &verbs);
    if (rc != ncclSuccess)
        swl_verbs_unload(&verbs);
    return rc;
}

static ncclResult_t verbs_close(struct swl_wire *wire)
{
    struct swl_verbs verbs;
    ncclResult_t rc;

    if (wire == NULL)
        return ncclSuccess;
    verbs = verbs_of(wire)->verbs;
    rc = close_all(verbs_of(wire));
    swl_verbs_unload(&verbs);
    return rc;
}

static void verbs_caps(const struct swl_wire *wire, struct swl_wire_caps *caps_p)
{
    const struct verbs_wire *w = (const struct verbs_wire *)wire;
    /* a request each and the count that we write back; a completion for each of them and each
     * receive */
    const int sends = w->attr.max_qp_wr - 1;
    const int entries = w->attr.max_cqe / 2 - 2;
    const int depth = sends < entries ? sends : entries;

    memset(caps_p, 0, sizeof(*caps_p));
    caps_p->max_depth = depth > 0 ? (uint32_t)depth : 0;
    caps_p->max_qps = w->attr.max_qp > 1 ? (uint32_t)w->attr.max_qp - 1 : 0; /* one to flush */
    caps_p->max_region_bytes = w->attr.max_mr_size;
    caps_p->answers_alone = true;
    memcpy(caps_p->cpus, w->cpus, sizeof(caps_p->cpus));
}

/* ---- regions ---- */

static unsigned flags_of(unsigned access)
{
    unsigned flags = 0;

    if (access & (SWL_NIC_LOCAL_WRITE | SWL_NIC_REMOTE_WRITE | SWL_NIC_REMOTE_ADD))
        flags |= VERBS_ACCESS_LOCAL_WRITE;
    if (access & SWL_NIC_REMOTE_WRITE)
        flags |= VERBS_ACCESS_REMOTE_WRITE;
    if (access & SWL_NIC_REMOTE_READ)
        flags |= VERBS_ACCESS_REMOTE_READ;
    return flags;
}

static struct verbs_mr *register_memory(const struct verbs_wire *w, void *ptr, uint64_t bytes,
                                        unsigned access)
{
    unsigned flags = flags_of(access);
    struct verbs_mr *mr;

    if ((access & SWL_NIC_REMOTE_ADD) && w->attr.atomic_cap != VERBS_ATOMIC_NONE)
        flags |= VERBS_ACCESS_REMOTE_ATOMIC;
    errno = 0;
    /* old libraries have no call for optional flags, devices may refuse them: strict is as
     * correct */
    if ((access & SWL_NIC_RELAXED) && w->verbs.ibv_reg_mr_iova2) {
        mr = w->verbs.ibv_reg_mr_iova2(w->pd, ptr, bytes, (uintptr_t)ptr,
                                       flags | VERBS_ACCESS_RELAXED);
        if (mr)
            return mr;
    }
    return w->verbs.ibv_reg_mr(w->pd, ptr, bytes, (int)flags);
}

static ncclResult_t verbs_reg_mr(struct swl_wire *wire, void *ptr, uint64_t bytes, unsigned access,
                                 struct swl_nic_region *region_p)
{
    struct verbs_wire *w = verbs_of(wire);
    const bool on_gpu = swl_dma_overtakes_nic(ptr);
    struct verbs_region *regions;
    struct verbs_mr *mr;

    SWL_TRY(swl_verbs_flush_open(w, false, on_gpu));
    mr = register_memory(w, ptr, bytes, access);
    if (mr == NULL)
        return swl_fail(ncclSystemError, "rank %u nic: %s cannot register %llu bytes: %s", w->rank,
                        w->port.name, (unsigned long long)bytes, reason(errno));
    (void)pthread_mutex_lock(&w->lock);
    regions = realloc(w->regions, (w->nregions + 1) * sizeof(*regions));
    if (regions) {
        w->regions = regions;
        regions[w->nregions++] = (struct verbs_region){mr, (uintptr_t)ptr, bytes, access, on_gpu};
    }
    (void)pthread_mutex_unlock(&w->lock);
    if (regions == NULL) {
        (void)verbs_dereg(w, mr);
        return swl_no_memory("a region");
    }
    region_p->lkey = mr->lkey;
    region_p->rkey = mr->rkey;
    region_p->address = (uintptr_t)ptr;
    return ncclSuccess;
}

static ncclResult_t verbs_dereg_mr(struct swl_wire *wire, const struct swl_nic_region *region)
{
    struct verbs_wire *w = verbs_of(wire);
    struct verbs_mr *mr = NULL;

    (void)pthread_mutex_lock(&w->lock);
    for (uint32_t i = 0; i < w->nregions && mr == NULL; i++) {
        if (w->regions[i].mr->lkey != region->lkey)
            continue;
        mr = w->regions[i].mr;
        w->regions[i] = w->regions[--w->nregions];
    }
    (void)pthread_mutex_unlock(&w->lock);
    if (mr == NULL)
        return swl_fail(ncclInvalidArgument, "rank %u nic: no region has the key 0x%x", w->rank,
                        region->lkey);
    return verbs_dereg(w, mr);
}

/* ---- tables ---- */

static const struct swl_wire_ops wire_ops = {
    .name = "verbs",
    .open = open_any,
    .close = verbs_close,
    .caps = verbs_caps,
    .reg_mr = verbs_reg_mr,
    .dereg_mr = verbs_dereg_mr,
    .create_qp = swl_verbs_create_qp,
    .address = swl_verbs_address,
    .connect = swl_verbs_connect,
    .to_error = swl_verbs_to_error,
    .reset = swl_verbs_reset,
    .post = swl_verbs_post,
    .poll = swl_verbs_poll,
    .progress = swl_verbs_progress,
};

const struct swl_wire_ops *swl_verbs_wire_ops(void)
{
    return &wire_ops;
}

static const struct swl_nic_ops nic_ops;

static ncclResult_t create_nic(struct swl_nic **nic_p, const struct swl_nic_config *config)
{
    return swl_proxy_create(nic_p, config, &nic_ops, &wire_ops);
}

static const struct swl_nic_ops nic_ops = SWL_PROXY_OPS("verbs", create_nic);

const struct swl_nic_ops *swl_proxy_verbs_ops(void)
{
    return &nic_ops;
}
