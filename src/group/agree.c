/* agree.c: what all ranks of a new group tell each other, and what follows from it.
 *
 * Layer: src/group, first step of swl_group_create; memory: group.h. Afterwards every rank has
 * compared the same settings and has made the same topology and plan, or has refused with the same
 * code. */
#include "src/group/group.h"

#include "kernels/common/kernels.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/memory.h"
#include "src/base/util.h"
#include "src/runtime/result.h"
#include "transport/choice.h"
#include "transport/rdma.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NCCL_FLOOR 22800

/* Fields that must be equal on all ranks, in the order of agreement.agreed. */
static const char *const agreed_names[] = {
    "library version",
    "config.algorithm",
    "config.num_experts",
    "config.max_dispatch_tokens_per_rank",
    "config.max_recv_tokens_per_rank",
    "config.max_token_bytes",
    "config.zero_copy",
    "config.overflow_policy",
    "config.num_topk",
    "config.enable_mask",
    "config.rdma_buffer_size",
    "SWIMLANE_TRANSPORT",
    "SWIMLANE_COMBINE_WIRE (1 is fp32)",
    "SWIMLANE_START_POSITION",
    "SWIMLANE_RING_SIZES (two digits for each of slots, chunk, landing, link)",
};

/* What every rank tells all others first. */
struct agreement {
    uint64_t code; /* ncclResult_t of this rank so far; the rest counts only if it is 0 */
    uint64_t agreed[SWL_COUNT_OF(agreed_names)];
    uint64_t node_key, node_given;
    struct swl_rank_capabilities capabilities;
    struct swl_driver_report network;
    struct swl_control_address control;
    uint64_t process; /* also of a rank that refuses */
};

/* An SM cap from the environment; 0 if unset or above the device's number. */
static uint32_t sm_option(const char *name, uint32_t value, int nsms)
{
    if (value <= (uint32_t)nsms)
        return value;
    swl_log(SWL_LEVEL_WARN, "%s %" PRIu32 " is not 1 to %d, the SMs of the device; ignored", name,
            value, nsms);
    return 0;
}

const struct swl_gpu_kernel *const swl_kernels[SWL_KERNELS] = {
#define KERNEL(name) &swl_##name##_desc,
#include "kernels/common/kernels.def"
};

/* Most threads that a block of each kernel may have. */
static ncclResult_t read_block_threads(uint32_t *threads_p)
{
    *threads_p = UINT32_MAX;
    for (uint32_t k = 0; k < SWL_KERNELS; k++) {
        uint32_t threads = 0;

        SWL_TRY(SWL_CUDA(swl_gpu_block_threads(swl_kernels[k], &threads)));
        *threads_p = (uint32_t)swl_min_u64(*threads_p, threads);
    }
    return ncclSuccess;
}

static ncclResult_t read_device(struct agreement *mine, const struct ncclEpGroup *g,
                                const struct swl_group_config *c)
{
    struct swl_rank_capabilities *own = &mine->capabilities;
    const struct swl_options *o = &g->options;
    struct swl_nic_settings settings;
    struct swl_nic_ib ib;
    struct swl_gpu_info gpu;
    uint32_t cap;

    SWL_TRY(SWL_CUDA(swl_gpu_info(g->info.device, &gpu)));
    (void)sm_option("NCCL_EP_SHUFFLE_SMS", o->shuffle_sms, gpu.nsms); /* for its warning */
    cap = sm_option("NCCL_EP_COMM_SMS", o->comm_sms, gpu.nsms);
    if (cap == 0)
        cap = c->max_sms ? c->max_sms : SWL_BUILTIN_SMS;
    own->sm_cap = (uint32_t)swl_min_u64(cap, (uint64_t)gpu.nsms);
    own->route_cap = sm_option("NCCL_EP_PREPROCESS_NUM_SMS", o->preprocess_sms, gpu.nsms);
    own->nsms = (uint32_t)gpu.nsms;
    own->shared_bytes = gpu.shared_bytes;
    own->most_queues = gpu.most_queues;
    own->queues = o->cuda_queues ? o->cuda_queues : SWL_BUILTIN_QUEUES;
    own->queues = (uint32_t)swl_min_u64(own->queues, gpu.most_queues);
    own->process = gpu.process;
    memcpy(own->uuid, gpu.uuid, sizeof(own->uuid));
    own->channel_hint = c->nchannels;
    own->qp_hint = o->ib_qps ? o->ib_qps : c->nqps ? c->nqps : o->nccl_ib_qps;
    own->chunk_hint = (uint32_t)swl_round_up_u64(o->tokens_per_chunk, 32);
    settings = swl_nic_settings_of(o, &ib);
    own->nic_blocks = swl_rdma_blocks(&settings, false);
    own->nic_blocks_multi_process = swl_rdma_blocks(&settings, true);
    return read_block_threads(&own->block_threads);
}

/* The same number only for the same sizes; in decimal it reads as they are written: 2:1:1:2 is
 * 2010102. */
static uint64_t ring_sizes_word(const struct swl_ring_sizes *s)
{
    return ((s->slots * UINT64_C(100) + s->chunk) * 100 + s->landing) * 100 + s->link;
}

static ncclResult_t make_agreement(struct agreement *mine, struct ncclEpGroup *g,
                                   const struct swl_group_config *c)
{
    const uint64_t agreed[] = {
        NCCL_EP_VERSION_CODE,
        (uint64_t)c->algorithm,
        c->nexperts,
        c->max_tokens,
        c->recv_rows,
        c->max_token_bytes,
        (uint64_t)c->zero_copy,
        (uint64_t)c->overflow,
        c->max_topk,
        c->enable_mask,
        c->rdma_bytes,
        g->options.transports,
        g->options.combine_fp32,
        g->options.start_position,
        ring_sizes_word(&g->options.ring_sizes),
    };
    bool given = false;

    static_assert(sizeof(agreed) == sizeof(mine->agreed), "one value for each name");
    memcpy(mine->agreed, agreed, sizeof(agreed));
    if (g->info.nccl_version < NCCL_FLOOR)
        return swl_fail(ncclInvalidUsage, "NCCL has version %d, at least %d is needed",
                        g->info.nccl_version, NCCL_FLOOR);
    SWL_TRY(swl_topology_key(g->info.comm, g->info.rank, g->options.node, &mine->node_key, &given));
    mine->node_given = given;
    /* without peer, nobody is within reach of load and store */
    if (g->options.transports && !(g->options.transports & SWL_TRANSPORT_PEER))
        mine->node_key = g->info.rank;
    mine->capabilities.files_left =
        swl_group_files_left(); /* raises the limit that what follows needs */
    swl_group_ask_networks(g, &mine->network);
    SWL_TRY(read_device(mine, g, c));
    return swl_host_news_open(&g->hosts, mine->capabilities.process, g->options.socket_ifname,
                              &mine->control);
}

/* ---- agreement ---- */

static ncclResult_t differs(size_t i, uint64_t first, uint64_t other, uint32_t rank)
{
    char a[64], b[64];

    if (strcmp(agreed_names[i], "SWIMLANE_TRANSPORT") == 0) {
        swl_transports_text((uint32_t)first, a, sizeof(a));
        swl_transports_text((uint32_t)other, b, sizeof(b));
    } else {
        snprintf(a, sizeof(a), "%" PRIu64, first);
        snprintf(b, sizeof(b), "%" PRIu64, other);
    }
    return swl_fail(ncclInvalidArgument,
                    "%s is %s on rank 0 and %s on rank %" PRIu32 "; all ranks need the same value",
                    agreed_names[i], a, b, rank);
}

static ncclResult_t compare_codes(const struct ncclEpGroup *g, const struct agreement *all)
{
    for (uint32_t r = 0; r < g->info.nranks; r++) {
        const ncclResult_t theirs = swl_peer_result(all[r].code);

        if (theirs == ncclSuccess)
            continue;
        swl_call_quiet(!swl_bootstrap_speaks(&g->boot, r));
        return swl_fail(theirs, "rank %" PRIu32 " refused the group (%s); its log has the reason",
                        r, swl_result_text(theirs));
    }
    return ncclSuccess;
}

static ncclResult_t compare_settings(const struct agreement *all, uint32_t nranks)
{
    for (uint32_t r = 1; r < nranks; r++) {
        for (size_t i = 0; i < SWL_COUNT_OF(agreed_names); i++) {
            if (all[r].agreed[i] != all[0].agreed[i])
                return differs(i, all[0].agreed[i], all[r].agreed[i], r);
        }
        if (all[r].node_given != all[0].node_given)
            return swl_fail(ncclInvalidArgument,
                            "SWIMLANE_NODE is set on rank %" PRIu32 " and not on rank %" PRIu32
                            "; set it on all ranks or on none",
                            all[0].node_given ? 0 : r, all[0].node_given ? r : 0);
    }
    return ncclSuccess;
}

/* What topology, network and plan need, column by column; the arrays are [nranks]. */
static ncclResult_t plan_columns(struct ncclEpGroup *g, const struct agreement *all, uint64_t *keys,
                                 struct swl_rank_capabilities *ranks,
                                 struct swl_driver_report *networks)
{
    const struct swl_group_info *info = &g->info;
    const struct swl_plan_config config = {
        .nexperts = info->nexperts,
        .max_tokens = info->max_tokens,
        .recv_rows = info->recv_rows,
        .max_token_bytes = info->max_token_bytes,
        .max_topk =
            info->max_topk ? info->max_topk : (uint32_t)swl_min_u64(info->nexperts, SWL_MAX_TOPK),
        .wire_fp32 = g->options.combine_fp32,
        .start_low = (uint32_t)g->options.start_position,
        .ring_sizes = g->options.ring_sizes,
    };
    bool multi_process = false;

    for (uint32_t r = 0; r < info->nranks; r++) {
        keys[r] = all[r].node_key;
        ranks[r] = all[r].capabilities;
        networks[r] = all[r].network;
        multi_process = multi_process || ranks[r].process != ranks[0].process;
    }
    for (uint32_t r = 0; multi_process && r < info->nranks; r++)
        ranks[r].nic_blocks = ranks[r].nic_blocks_multi_process;
    SWL_TRY(swl_group_check_few_files(ranks, info->nranks));
    SWL_TRY(swl_topology_make(&g->topology, keys, info->nranks));
    SWL_TRY(swl_group_choose_network(g, networks));
    for (uint32_t r = 0; r < info->nranks && g->network != SWL_TRANSPORT_SOFT; r++)
        ranks[r].nic_blocks = 0;
    SWL_TRY(swl_plan_make(&g->plan, &config, &g->topology, ranks, info->rank));
    return swl_group_check_files(g, ranks, networks);
}

/* Topology and plan from what all ranks said: the same outcome everywhere. */
static ncclResult_t plan_group(struct ncclEpGroup *g, const struct agreement *all)
{
    uint64_t *keys = calloc(g->info.nranks, sizeof(*keys));
    struct swl_rank_capabilities *ranks = calloc(g->info.nranks, sizeof(*ranks));
    struct swl_driver_report *networks = calloc(g->info.nranks, sizeof(*networks));
    ncclResult_t rc;

    if (keys && ranks && networks)
        rc = plan_columns(g, all, keys, ranks, networks);
    else
        rc = swl_no_memory("the capabilities of %" PRIu32 " ranks", g->info.nranks);
    free(keys);
    free(ranks);
    free(networks);
    return rc;
}

static ncclResult_t know_hosts(struct ncclEpGroup *g, const struct agreement *all)
{
    struct swl_control_address *addresses = calloc(g->info.nranks, sizeof(*addresses));
    ncclResult_t rc;

    for (uint32_t r = 0; addresses && r < g->info.nranks; r++)
        addresses[r] = all[r].control;
    if (addresses)
        rc = swl_host_news_set_addresses(&g->hosts, addresses);
    else
        rc = swl_no_memory("the addresses of %" PRIu32 " ranks", g->info.nranks);
    free(addresses);
    return rc;
}

/* Which ranks share a process, for the log. Without memory for it every rank speaks for itself. */
static void know_processes(struct ncclEpGroup *g, const struct agreement *all)
{
    g->boot.processes = calloc(g->info.nranks, sizeof(*g->boot.processes));
    for (uint32_t r = 0; g->boot.processes && r < g->info.nranks; r++)
        g->boot.processes[r] = all[r].process;
}

/* What all ranks find alike is logged once in each process. */
static ncclResult_t judge_answers(struct ncclEpGroup *g, const struct agreement *all,
                                  bool *agreed_p)
{
    ncclResult_t rc;

    know_processes(g, all);
    rc = compare_codes(g, all);
    swl_call_quiet(!swl_bootstrap_speaks(&g->boot, UINT32_MAX));
    if (rc == ncclSuccess)
        rc = compare_settings(all, g->info.nranks);
    *agreed_p = rc == ncclSuccess;
    if (rc == ncclSuccess)
        rc = know_hosts(g, all);
    if (rc == ncclSuccess)
        rc = plan_group(g, all);
    swl_call_quiet(false);
    return rc;
}

ncclResult_t swl_group_agree(struct ncclEpGroup *g, const struct swl_group_config *config,
                             ncclResult_t refused, bool *agreed_p)
{
    struct agreement mine, *all = calloc(g->info.nranks, sizeof(*all));
    struct swl_gpu_info gpu = {0};
    ncclResult_t rc = refused, exchanged;

    *agreed_p = false;
    if (!all && rc == ncclSuccess)
        rc = swl_no_memory("the exchange of %" PRIu32 " ranks", g->info.nranks);
    memset(&mine, 0, sizeof(mine));
    if (rc == ncclSuccess)
        rc = make_agreement(&mine, g, config);
    mine.code = (uint64_t)rc;
    if (rc == ncclSuccess || swl_gpu_info(g->info.device, &gpu) == cudaSuccess)
        mine.process = rc == ncclSuccess ? mine.capabilities.process : gpu.process;
    g->boot.phase = "comparing settings";
    exchanged = swl_bootstrap_allgather(&g->boot, &mine, all, sizeof(mine));
    rc = swl_first_failure(rc, exchanged);
    if (rc == ncclSuccess)
        rc = judge_answers(g, all, agreed_p);
    free(all);
    return rc;
}
