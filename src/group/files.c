/* files.c: descriptors that the sockets of a group need, and how many its processes may still open.
 *
 * Layer: src/group, part of swl_group_agree; no state. */
#include "src/group/group.h"

#include "src/base/error.h"
#include "src/base/util.h"
#include "transport/choice.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <sys/resource.h>

/* Descriptors of this process. */
static uint64_t open_files(void)
{
    DIR *all = opendir("/proc/self/fd");
    uint64_t n = 0;

    if (!all)
        return errno == EMFILE ? UINT64_MAX : 0;
    while (readdir(all))
        n++;
    closedir(all);
    return n > 3 ? n - 3 : 0; /* without ".", ".." and the folder's own */
}

/* The soft limit protects programs that use select; sockets of a group never go there. */
uint32_t swl_group_files_left(void)
{
    const uint64_t used = open_files();
    struct rlimit limit, raised;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return UINT32_MAX;
    raised = limit;
    raised.rlim_cur = limit.rlim_max;
    if (limit.rlim_cur != limit.rlim_max && setrlimit(RLIMIT_NOFILE, &raised) == 0)
        limit = raised;
    if (limit.rlim_cur == RLIM_INFINITY)
        return UINT32_MAX;
    return limit.rlim_cur > used ? (uint32_t)swl_min_u64(limit.rlim_cur - used, UINT32_MAX) : 0;
}

/* Descriptors for sockets, while the hosts meet and afterwards. */
struct sockets {
    uint64_t meeting, later;
};

/* Those of rank r are added. One for each rank that its host is connected with, and the poll of
 * them; two listeners until all have come. Later, over TCP, one for each link and one listener. */
static void add_sockets(const struct ncclEpGroup *g, const struct swl_driver_report *networks,
                        uint32_t r, struct sockets *sum)
{
    const struct swl_topology *t = &g->topology;
    const uint32_t node = t->rank_node[r];
    uint64_t peers = swl_topology_nlocal(t, node) - 1, links = 0;

    for (uint32_t p = 0; t->nnodes > 1 && p < t->nranks; p++) {
        const bool remote = t->rank_node[p] != node;
        const bool out = remote && swl_topology_gateway(t, r, t->rank_node[p]) == p;
        const bool in = remote && swl_topology_gateway(t, p, node) == r;

        peers += out || in;
        if ((out || in) &&
            swl_choice_of_connection(&networks[r], &networks[p], g->network) == SWL_TRANSPORT_TCP)
            links += (uint64_t)(out + in) * g->plan.shape.nrings;
    }
    sum->meeting += g->hosts.control ? peers + 1 + 2 : 0;
    sum->later += (g->hosts.control ? peers + 1 : 0) + (links ? links + 1 : 0);
}

static ncclResult_t too_few(const char *least, uint32_t rank, uint64_t need, uint64_t left)
{
    return swl_fail(ncclSystemError,
                    "the process of rank %" PRIu32 " needs %s%" PRIu64
                    " descriptors for the sockets of the group, and may open %" PRIu64
                    " more; raise its limit of open files (ulimit -Hn)",
                    rank, least, need, left);
}

/* What the process of a rank may open, and its ranks: counted with the first of them, 0 with the
 * others. Most by who looked first: the listeners of the others were there already when the rest
 * did. */
static uint32_t ranks_of_process(const struct swl_rank_capabilities *ranks, uint32_t first,
                                 uint32_t nranks, uint64_t *left_p)
{
    uint32_t n = 0;

    *left_p = 0;
    for (uint32_t r = 0; r < nranks; r++) {
        if (ranks[r].process != ranks[first].process)
            continue;
        if (r < first)
            return 0;
        *left_p = swl_max_u64(*left_p, ranks[r].files_left);
        n++;
    }
    return n;
}

ncclResult_t swl_group_check_few_files(const struct swl_rank_capabilities *ranks, uint32_t nranks)
{
    const uint64_t least = 3; /* two listeners, and one to look around */

    for (uint32_t first = 0; first < nranks && nranks > 1; first++) {
        uint64_t left;
        const uint64_t need = least * ranks_of_process(ranks, first, nranks, &left);

        if (need > left)
            return too_few("at least ", first, need, left);
    }
    return ncclSuccess;
}

ncclResult_t swl_group_check_files(const struct ncclEpGroup *g,
                                   const struct swl_rank_capabilities *ranks,
                                   const struct swl_driver_report *networks)
{
    for (uint32_t first = 0; first < g->info.nranks; first++) {
        struct sockets sum = {0, 0};
        uint64_t need, left;

        if (ranks_of_process(ranks, first, g->info.nranks, &left) == 0)
            continue;
        for (uint32_t r = first; r < g->info.nranks; r++)
            if (ranks[r].process == ranks[first].process)
                add_sockets(g, networks, r, &sum);
        need = swl_max_u64(sum.meeting, sum.later); /* all ranks have met before the first link */
        if (need > left)
            return too_few("", first, need, left);
    }
    return ncclSuccess;
}
