/* info_choice.c: swimlane-info: which transports work here, and what a layout would use. Layer:
 * tools. */
#include "tools/info.h"

#include "src/base/util.h"
#include "src/runtime/runtime.h"

#include <string.h>

static const struct {
    uint32_t bit;
    const char *needs;
} transports[] = {
    {SWL_TRANSPORT_PEER, "GPUs of one node that reach each other's memory"},
    {SWL_TRANSPORT_MLX5, "ConnectX NIC, rdma-core with libmlx5, /dev/infiniband, locked memory, "
                         "dmabuf or nvidia_peermem, PeerMappingOverride=1 or root"},
    {SWL_TRANSPORT_VERBS, "any RDMA NIC, rdma-core, /dev/infiniband, locked memory"},
    {SWL_TRANSPORT_SOFT, "ranks of one process, or with blocks of kernels of one host"},
    {SWL_TRANSPORT_TCP, "a network interface that is up"},
};

static void ask_driver(const struct info_options *o, uint32_t bits,
                       struct swl_driver_report *report_p)
{
    const struct swl_options *options = o->options;
    struct swl_nic_ib ib;
    char gpu[32];
    struct swl_nic_proximity proximity = {o->root, NULL, 0, options->nics ? options->nics - 1 : 0};
    const struct swl_nic_config config = {.timeout_ns = 1000000000,
                                          .settings = swl_nic_settings_of(options, &ib),
                                          .proximity = &proximity};

    if (o->gpu)
        proximity.gpu = o->gpu;
    else if (swl_gpu_pci(0, gpu, sizeof(gpu)) == cudaSuccess)
        proximity.gpu = gpu;
    swl_driver_report_make(bits, &config, report_p);
}

/* Ranks like this one, node by node. */
static void say_choice(struct info_out *out, const struct info_options *o, uint32_t allowed,
                       const struct swl_driver_report *report)
{
    const bool peer = allowed == 0 || (allowed & SWL_TRANSPORT_PEER) != 0;
    const uint32_t between = swl_choice_of_pair(report, report);
    char network[64];

    if (between)
        swl_transports_text(between, network, sizeof(network));
    else
        snprintf(network, sizeof(network), "none: a group would be refused");
    info_open(out, "choice", '{');
    info_integer(out, "nodes", o->nodes);
    info_integer(out, "ranks_per_node", o->ranks_per_node);
    info_text(out, "note", "for ranks like this one, on this host; rank 0 to every other");
    info_open(out, "peers_of_rank_0", '{');
    for (int r = 1; r < o->nodes * o->ranks_per_node && r < 4096; r++) {
        char key[32];

        snprintf(key, sizeof(key), "rank_%d", r);
        info_text(out, key, "%s", peer && r < o->ranks_per_node ? "peer" : network);
    }
    info_close(out, '}');
    info_close(out, '}');
}

void info_transports(struct info_out *out, const struct info_options *o)
{
    struct swl_driver_report report;

    ask_driver(o, o->options->transports, &report);
    info_open(out, "transports", '{');
    for (size_t i = 0; i < SWL_COUNT_OF(transports); i++) {
        const uint32_t bit = transports[i].bit;
        const bool auto_peer = bit == SWL_TRANSPORT_PEER;
        struct swl_driver_report alone = {0};
        char name[64];

        swl_transports_text(bit, name, sizeof(name));
        info_open(out, name, '{');
        info_flag(out, "allowed", (report.allowed & bit) != 0);
        if (!auto_peer) {
            ask_driver(o, bit, &alone);
            info_flag(out, "works_here", (alone.usable & bit) != 0);
            if (alone.why[0])
                info_text(out, "why_not", "%s", alone.why);
        }
        info_text(out, "needs", "%s", transports[i].needs);
        info_close(out, '}');
    }
    info_close(out, '}');
    say_choice(out, o, o->options->transports, &report);
}
