/* network.c: what a rank says of its networks, and which of them the group uses.
 *
 * Layer: src/group, part of swl_group_agree; memory: group.h. The choice itself is
 * transport/choice.c. */
#include "src/group/group.h"

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/memory.h"
#include "src/base/util.h"
#include "src/runtime/runtime.h"
#include "transport/choice.h"
#include "transport/rdma.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define BY_VERBS (SWL_TRANSPORT_MLX5 | SWL_TRANSPORT_VERBS)

void swl_group_ask_networks(const struct ncclEpGroup *g, struct swl_driver_report *report_p)
{
    struct swl_nic_ib ib;
    char gpu[32] = "";
    const uint32_t nics = g->options.nics ? g->options.nics : 1;
    /* the last one that the rank will open */
    const struct swl_nic_proximity proximity = {NULL, gpu, (uint32_t)g->info.device * nics,
                                                nics - 1};
    struct swl_nic_config config = {
        .rank = g->info.rank,
        .device = g->info.device,
        .timeout_ns = g->setup_ns,
        .settings = swl_nic_settings_of(&g->options, &ib),
    };

    if (swl_gpu_pci(g->info.device, gpu, sizeof(gpu)) == cudaSuccess)
        config.proximity = &proximity;
    swl_driver_report_make(g->options.transports, &config, report_p);
}

/* Settings that only some networks have. */
static const struct {
    const char *name;
    uint32_t of; /* enum swl_transport_bit */
} settings[] = {
    {"SWIMLANE_IB_HCA", BY_VERBS},
    {"SWIMLANE_IB_GID_INDEX", BY_VERBS},
    {"SWIMLANE_IB_SL", BY_VERBS},
    {"SWIMLANE_IB_TC", BY_VERBS},
    {"SWIMLANE_IB_TIMEOUT", BY_VERBS},
    {"SWIMLANE_IB_RETRY_CNT", BY_VERBS},
    {"SWIMLANE_IB_PKEY", BY_VERBS},
    {"SWIMLANE_MLX5_RINGS", SWL_TRANSPORT_MLX5},
    {"SWIMLANE_VERBS_ADDS", SWL_TRANSPORT_VERBS},
    {"SWIMLANE_SOFT_LINK", SWL_TRANSPORT_SOFT | SWL_TRANSPORT_VERBS | SWL_TRANSPORT_TCP},
    {"SWIMLANE_SOFT_EXECUTOR", SWL_TRANSPORT_SOFT},
    {"SWIMLANE_SOFT_BLOCKS", SWL_TRANSPORT_SOFT},
};

/* One line for those that are set and that no network of this rank has. NCCL's, which an image may
 * set for NCCL, and any where there is no network, are no reason to warn. */
static void say_unused(uint32_t networks)
{
    char text[512] = "", name[64] = "no network between nodes";
    enum swl_level level = SWL_LEVEL_INFO;
    size_t at = 0;

    for (size_t i = 0; i < SWL_COUNT_OF(settings) && at < sizeof(text); i++) {
        const char *variable = swl_option_variable(settings[i].name);

        if ((settings[i].of & networks) || swl_env(variable) == NULL)
            continue;
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s", at > 0 ? ", " : "", variable);
        if (networks && variable == settings[i].name)
            level = SWL_LEVEL_WARN;
    }
    if (networks)
        swl_transports_text(networks, name, sizeof(name));
    if (at > 0)
        swl_log(level, "group: %s does not use %s", name, text);
}

ncclResult_t swl_group_choose_network(struct ncclEpGroup *g,
                                      const struct swl_driver_report *reports)
{
    uint32_t mine = 0;
    char text[1024];

    g->network = 0;
    if (g->topology.nnodes == 1) {
        swl_log(SWL_LEVEL_DEBUG, "group: one node, no network");
        if (g->info.rank == 0)
            say_unused(0);
        return swl_choice_check_faults(g->options.soft_faults, g->info.rank, g->info.nranks,
                                       g->network);
    }
    g->network = swl_choice_of_group(reports, g->info.nranks, text, sizeof(text));
    if (g->network == 0)
        return swl_fail(ncclInvalidUsage, "%s", text);
    g->rank_drivers =
        swl_calloc(g->info.nranks, sizeof(*g->rank_drivers), "%" PRIu32 " ranks", g->info.nranks);
    if (!g->rank_drivers)
        return ncclSystemError;
    for (uint32_t r = 0; r < g->info.nranks; r++) {
        g->rank_drivers[r] =
            swl_choice_of_connection(&reports[g->info.rank], &reports[r], g->network);
        if (g->topology.rank_node[r] != g->topology.rank_node[g->info.rank])
            mine |= g->rank_drivers[r];
    }
    swl_transports_text(mine, text, sizeof(text));
    if (g->info.rank == 0)
        say_unused(mine);
    if (g->info.rank == 0)
        swl_log(SWL_LEVEL_INFO, "group: network %s between %" PRIu32 " nodes%s%.*s%s", text,
                g->topology.nnodes, reports[0].why[0] ? " (not " : "", SWL_REPORT_WHY,
                reports[0].why, reports[0].why[0] ? ")" : "");
    return swl_choice_check_faults(g->options.soft_faults, g->info.rank, g->info.nranks,
                                   g->network);
}
