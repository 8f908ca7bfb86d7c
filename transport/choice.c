/* choice.c: the table of NIC drivers and the choice among them; see choice.h. Layer: transport; no
 * state. */
#include "transport/choice.h"

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/util.h"
#include "src/runtime/runtime.h"
#include "transport/host/faults.h"
#include "transport/interface.h"
#include "transport/mlx5/mlx5.h"
#include "transport/proxy/tcp/tcp.h"
#include "transport/proxy/verbs/verbs.h"
#include "transport/soft/executor.h"
#include "transport/soft/soft.h"
#include "transport/sysfs.h"

#include <stdio.h>
#include <string.h>

static bool soft_usable(const struct swl_nic_config *config, char *why, size_t why_bytes)
{
    const char *missing = swl_soft_executor_missing(swl_soft_executor(config->settings.executor));

    if (missing)
        snprintf(why, why_bytes, "%s", missing);
    return missing == NULL;
}

static bool tcp_usable(const struct swl_nic_config *config, char *why, size_t why_bytes)
{
    struct tcp_endpoint place;
    struct tcp_why reason = {.error = 0};
    const bool ok = swl_tcp_choose(config->settings.socket_ifname, &place, &reason);

    if (!ok)
        snprintf(why, why_bytes, "%s", reason.text);
    return ok;
}

static const struct swl_nic_driver drivers[] = {
#define DRIVER(NAME, word, by_gpu, one_host, can_fail, ops, usable, blocks)                        \
    {SWL_TRANSPORT_##NAME, by_gpu, one_host, can_fail, word, ops, usable, blocks},
#include "transport/drivers.def"
};

const struct swl_nic_driver *swl_drivers(uint32_t *n_p)
{
    *n_p = SWL_COUNT_OF(drivers);
    return drivers;
}

const struct swl_nic_driver *swl_driver_of(uint32_t bit)
{
    for (size_t i = 0; i < SWL_COUNT_OF(drivers); i++)
        if (drivers[i].bit == bit)
            return &drivers[i];
    return NULL;
}

void swl_transports_text(uint32_t mask, char *text, size_t bytes)
{
    size_t at = (size_t)snprintf(text, bytes, "%s", mask & SWL_TRANSPORT_PEER ? "peer" : "");

    for (size_t i = 0; i < SWL_COUNT_OF(drivers) && at < bytes; i++)
        if (mask & drivers[i].bit)
            at += (size_t)snprintf(text + at, bytes - at, "%s%s", at ? "," : "", drivers[i].name);
    if (mask == 0)
        snprintf(text, bytes, "auto");
}

struct swl_nic_settings swl_nic_settings_of(const struct swl_options *o, struct swl_nic_ib *ib_p)
{
    const struct swl_nic_settings settings = {
        .ib = ib_p,
        .socket_ifname = o->socket_ifname,
        .link = o->soft_link,
        .faults = o->soft_faults,
        .executor = o->soft_executor,
        .soft_blocks = o->soft_blocks,
        .adds = o->verbs_adds,
        .rings = o->mlx5_rings,
    };

    *ib_p = (struct swl_nic_ib){
        .hca = o->ib_hca,
        .gid_index = o->ib_gid_index,
        .sl = o->ib_sl,
        .tc = o->ib_tc,
        .timeout = o->ib_timeout,
        .retry_cnt = o->ib_retry_cnt,
        .pkey = o->ib_pkey,
    };
    return settings;
}

/* ---- a rank of itself ---- */

static bool emulated(void)
{
    return swl_soft_executor(SWL_SOFT_AUTO) == SWL_SOFT_ENGINE;
}

/* Blocks of kernels reach other processes of the host; threads and engines stay in their own. */
static uint64_t soft_host(const struct swl_nic_config *config)
{
    struct swl_gpu_info info = {0};

    if (config->settings.executor == SWL_SOFT_AUTO ||
        swl_soft_executor(config->settings.executor) == SWL_SOFT_BLOCKS)
        return swl_sysfs_host(config->proximity ? config->proximity->root : NULL);
    return swl_gpu_info(config->device, &info) == cudaSuccess ? info.process : 0;
}

/* What auto stands for: hardware has no virtual time, so the emulator stays with its own NIC. */
static uint32_t allowed_here(uint32_t transports)
{
    uint32_t all = SWL_TRANSPORT_PEER;

    if (transports)
        return transports;
    for (size_t i = 0; i < SWL_COUNT_OF(drivers); i++)
        all |= drivers[i].bit;
    return emulated() ? SWL_TRANSPORT_PEER | SWL_TRANSPORT_SOFT : all;
}

void swl_driver_report_add(struct swl_driver_report *report, size_t *last, const char *name,
                           const char *why)
{
    const size_t end = strlen(report->why);
    const char *names = report->why + *last, *colon = strstr(names, ": ");

    if (colon && strcmp(colon + 2, why) == 0) {
        const int n = (int)(colon - names);
        char both[64];

        snprintf(both, sizeof(both), "%.*s, %s", n, names, name);
        snprintf(report->why + *last, sizeof(report->why) - *last, "%s: %s", both, why);
        return;
    }
    *last = end ? end + 2 : 0;
    snprintf(report->why + end, sizeof(report->why) - end, "%s%s: %s", end ? "; " : "", name, why);
    if (*last >= sizeof(report->why))
        *last = sizeof(report->why) - 1;
}

void swl_driver_report_make(uint32_t transports, const struct swl_nic_config *config,
                            struct swl_driver_report *report_p)
{
    struct tcp_why reason;
    size_t last = 0;

    memset(report_p, 0, sizeof(*report_p));
    report_p->host = soft_host(config);
    report_p->allowed = allowed_here(transports);
    report_p->listed = transports != 0;
    for (size_t i = 0; i < SWL_COUNT_OF(drivers); i++) {
        const struct swl_nic_driver *d = &drivers[i];
        char why[SWL_REPORT_WHY] = "";

        if (!(report_p->allowed & d->bit))
            continue;
        if (d->by_gpu && emulated())
            swl_driver_report_add(report_p, &last, d->name, "no NIC reaches emulated memory");
        else if (d->usable(config, why, sizeof(why)))
            report_p->usable |= d->bit;
        else
            swl_driver_report_add(report_p, &last, d->name, why);
    }
    if (report_p->usable & SWL_TRANSPORT_TCP)
        (void)swl_tcp_choose(config->settings.socket_ifname, &report_p->tcp, &reason);
}

/* ---- the choice ---- */

static uint32_t common_to(const struct swl_driver_report *a, const struct swl_driver_report *b)
{
    uint32_t common = a->usable & b->usable;

    for (size_t i = 0; i < SWL_COUNT_OF(drivers); i++)
        if (drivers[i].one_host && a->host != b->host)
            common &= ~drivers[i].bit;
    if (!swl_tcp_reaches(&a->tcp, &b->tcp))
        common &= ~(uint32_t)SWL_TRANSPORT_TCP;
    return common;
}

static uint32_t best_of(uint32_t bits)
{
    for (size_t i = 0; i < SWL_COUNT_OF(drivers); i++)
        if (bits & drivers[i].bit)
            return drivers[i].bit;
    return 0;
}

uint32_t swl_choice_of_pair(const struct swl_driver_report *a, const struct swl_driver_report *b)
{
    return best_of(common_to(a, b));
}

/* Drivers that may serve some pairs while others use another: the software NIC is of all or none,
 * as kernels of all ranks have its blocks. */
static uint32_t own_ways(const struct swl_driver_report *a, const struct swl_driver_report *b)
{
    return common_to(a, b) & ~(uint32_t)SWL_TRANSPORT_SOFT;
}

uint32_t swl_choice_of_connection(const struct swl_driver_report *a,
                                  const struct swl_driver_report *b, uint32_t group)
{
    return group == SWL_TRANSPORT_SOFT ? group : best_of(own_ways(a, b));
}

/* The worst driver of the links of all pairs; 0: some have none, and *a_p and *b_p are such a pair,
 * if possible one that the software NIC would not connect either. */
static uint32_t worst_link(const struct swl_driver_report *reports, uint32_t nranks, uint32_t *a_p,
                           uint32_t *b_p)
{
    uint32_t worst = 0; /* bits are in the order of quality */
    bool none = false, unreachable = false;

    for (uint32_t a = 0; a < nranks; a++)
        for (uint32_t b = a + 1; b < nranks && !unreachable; b++) {
            const uint32_t bit = best_of(own_ways(&reports[a], &reports[b]));

            worst = bit > worst ? bit : worst;
            if (bit)
                continue;
            unreachable = common_to(&reports[a], &reports[b]) == 0;
            if (!none || unreachable) {
                *a_p = a;
                *b_p = b;
            }
            none = true;
        }
    return none ? 0 : worst;
}

static void name_rank(const struct swl_driver_report *report, uint32_t rank, char *text,
                      size_t bytes)
{
    const uint32_t networks = report->allowed & ~(uint32_t)SWL_TRANSPORT_PEER;
    const char *by = report->listed ? " by SWIMLANE_TRANSPORT" : "";
    char allowed[64], usable[64];

    if (networks == 0) {
        snprintf(text, bytes, "SWIMLANE_TRANSPORT of rank %u is peer, which allows none", rank);
        return;
    }
    swl_transports_text(networks, allowed, sizeof(allowed));
    swl_transports_text(report->usable, usable, sizeof(usable));
    snprintf(text, bytes, "rank %u may use %s%s and can use %s%s%.*s%s", rank, allowed, by,
             report->usable ? usable : "none", report->why[0] ? " (" : "", SWL_REPORT_WHY - 1,
             report->why, report->why[0] ? ")" : "");
}

/* Each pair on its own: what rank 0 reaches need not reach each other. */
static bool tcp_reaches_all(const struct swl_driver_report *reports, uint32_t nranks)
{
    for (uint32_t a = 0; a < nranks; a++)
        for (uint32_t b = a + 1; b < nranks; b++)
            if (!swl_tcp_reaches(&reports[a].tcp, &reports[b].tcp))
                return false;
    return true;
}

/* Two ranks share no network: what is known beyond what each of them says. */
static void explain_no_network(const struct swl_driver_report *reports, uint32_t a, uint32_t b,
                               char *text, size_t bytes)
{
    char one[80], other[80];
    size_t at = 0;

    text[0] = '\0';
    if (reports[a].host != reports[b].host)
        at = (size_t)snprintf(text, bytes,
                              "; soft: they are not on one host, or not in one process, which "
                              "thread and engine (SWIMLANE_SOFT_EXECUTOR) do not leave");
    if (swl_tcp_reaches(&reports[a].tcp, &reports[b].tcp))
        return;
    swl_tcp_text(&reports[a].tcp, one, sizeof(one));
    swl_tcp_text(&reports[b].tcp, other, sizeof(other));
    snprintf(text + at, bytes - at,
             "; tcp: rank %u has the address %s and rank %u, on another host, %s: neither reaches "
             "the other",
             a, one, b, other);
}

uint32_t swl_choice_of_group(const struct swl_driver_report *reports, uint32_t nranks, char *why,
                             size_t why_bytes)
{
    const size_t text_bytes = SWL_REPORT_WHY + 192;
    char one[SWL_REPORT_WHY + 192], other[SWL_REPORT_WHY + 192], why_not[384];
    uint32_t common = reports[0].usable, r = 0, a = 0, b = 0;

    /* all of one host, or none: equality with rank 0 is enough */
    while (common && ++r < nranks)
        common &= common_to(&reports[0], &reports[r]);
    if (best_of(common) == SWL_TRANSPORT_TCP && !tcp_reaches_all(reports, nranks))
        common = 0;
    if (common)
        return best_of(common);
    for (uint32_t i = 0; i < nranks; i++)
        if (reports[i].usable == 0) {
            name_rank(&reports[i], i, one, text_bytes);
            snprintf(why, why_bytes, "no network between nodes: %s", one);
            return 0;
        }
    common = worst_link(reports, nranks, &a, &b);
    if (common)
        return common;
    name_rank(&reports[a], a, one, text_bytes);
    name_rank(&reports[b], b, other, text_bytes);
    explain_no_network(reports, a, b, why_not, sizeof(why_not));
    snprintf(why, why_bytes, "no network that two ranks can both use: %s; %s%s", one, other,
             why_not);
    return 0;
}

ncclResult_t swl_choice_check_faults(const char *text, uint32_t rank, uint32_t nranks,
                                     uint32_t network)
{
    struct soft_faults faults;
    uint32_t able = 0;
    char names[64];
    size_t at = 0;

    for (size_t i = 0; i < SWL_COUNT_OF(drivers); i++)
        able |= drivers[i].can_fail ? drivers[i].bit : 0;
    swl_transports_text(able, names, sizeof(names));
    if (text == NULL || text[0] == '\0' || !swl_faults_parse(&faults, text, rank, &at))
        return ncclSuccess; /* a NIC says what is malformed */
    if (network && !(network & able))
        return swl_fail(ncclInvalidUsage,
                        "SWIMLANE_SOFT_FAULTS is set, and the network of the group cannot fail on "
                        "purpose; %s can (SWIMLANE_TRANSPORT)",
                        names);
    if (rank == 0 && network == 0)
        swl_log(SWL_LEVEL_WARN,
                "group: one node has no network: SWIMLANE_SOFT_FAULTS does nothing");
    else if (rank == 0 && faults.ranks > nranks)
        swl_log(SWL_LEVEL_WARN,
                "group: SWIMLANE_SOFT_FAULTS names rank %u, and there are ranks 0 to %u",
                faults.ranks - 1, nranks - 1);
    return ncclSuccess;
}
