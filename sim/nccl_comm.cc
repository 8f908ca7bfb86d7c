/* nccl_comm.cc: life of communicators of the stand-in NCCL. See nccl_comm.h. */
#include "sim/nccl_comm.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

using namespace swl_sim;

namespace
{

const int linger_ms = 10000;

/* Whatever header this is compiled with: later releases promise calls that are not here. */
const int standin_version = NCCL_VERSION(2, 28, 9);

/* The unique id on the wire. */
struct id_text {
    char magic[8];
    uint64_t process, key;
    uint32_t host; /* always 127.0.0.1 */
    uint16_t port; /* 0: this process only */
};
static_assert(sizeof(id_text) <= NCCL_UNIQUE_ID_BYTES, "the id fits");
const char id_magic[8] = {'s', 'w', 'l', 'n', 'c', 'c', 'l', '1'};

template <class T> T part_of(const call &c, int rank)
{
    T value;

    memcpy(&value, c.parts[(size_t)rank].data(), sizeof(value));
    return value;
}

/* First exchange of a new communicator; the handle appears when all ranks have joined. */
void start_comm(group_calls *group, const std::shared_ptr<comm_core> &core, ncclComm_t *out)
{
    int node = place_node();
    std::shared_ptr<call> c = exchange(core.get(), &node, sizeof(node));

    group->steps.push_back([core, c, out](group_calls *) {
        ncclResult_t rc = wait_call(core.get(), *c, host_limit_ns);
        if (rc != ncclSuccess) {
            core->link->leave();
            return rc;
        }
        for (int r = 0; r < core->nranks; r++)
            core->nodes.push_back(part_of<int>(*c, r));
        *out = new ncclComm{core};
        return ncclSuccess;
    });
}

std::shared_ptr<comm_core> make_core(std::unique_ptr<hub_link> link, uint64_t key, int rank,
                                     int nranks)
{
    auto core = std::make_shared<comm_core>();

    core->rank = rank;
    core->nranks = nranks;
    core->device = place_device();
    core->key = key;
    core->link = std::move(link);
    return core;
}

std::unique_ptr<hub_link> link_of(const id_text &id, int rank, int nranks)
{
    if (id.process == place_process())
        return link_local(hub_find(id.key), rank, nranks);
    return id.port ? link_remote(id.port, id.key, 0, rank, nranks) : nullptr;
}

uint64_t child_key(uint64_t parent, uint64_t number, int color)
{
    uint64_t k = parent ^ 0x9e3779b97f4a7c15ull * (number + 1) ^
                 0xc2b2ae3d27d4eb4full * (uint64_t)(color + 1);

    k ^= k >> 29;
    k *= 0xbf58476d1ce4e5b9ull;
    return k ^ k >> 32;
}

struct split_part {
    int color, key;
};

/* All ranks have said their color: join those of the same one, ordered by key, then by rank. */
ncclResult_t split_join(group_calls *group, comm_core *parent, const call &c, uint64_t number,
                        ncclComm_t *out)
{
    split_part mine = part_of<split_part>(c, parent->rank);
    std::vector<std::pair<int, int>> order;
    int rank = 0;

    if (mine.color == NCCL_SPLIT_NOCOLOR)
        return ncclSuccess;
    for (int r = 0; r < parent->nranks; r++) {
        split_part p = part_of<split_part>(c, r);
        if (p.color == mine.color)
            order.emplace_back(p.key, r);
    }
    std::sort(order.begin(), order.end());
    while (order[(size_t)rank].second != parent->rank)
        rank++;
    uint64_t key = child_key(parent->key, number, mine.color);
    int nranks = (int)order.size();
    std::unique_ptr<hub_link> link = parent->link->child(key, rank, nranks);
    if (!link)
        return comm_fail(parent, ncclSystemError, "cannot reach the ranks of the same color");
    std::shared_ptr<comm_core> core = make_core(std::move(link), key, rank, nranks);
    core->device = parent->device;
    start_comm(group, core, out);
    return ncclSuccess;
}

} // namespace

ncclResult_t swl_sim::wait_call(comm_core *core, const call &c, uint64_t limit_ns)
{
    (void)place_wait(core, c, limit_ns); /* too late: the call is still open */
    return call_result(core, c);
}

ncclResult_t swl_sim::run_steps(group_calls *group)
{
    ncclResult_t first = ncclSuccess;

    while (!group->steps.empty()) {
        auto step = std::move(group->steps.front());
        group->steps.pop_front();
        ncclResult_t rc = step(group);
        if (first == ncclSuccess)
            first = rc;
    }
    return first;
}

ncclResult_t swl_sim::run_or_hold(std::function<ncclResult_t(group_calls *)> step)
{
    group_state *state = place_group();
    group_calls now;

    if (state->depth > 0) {
        state->group->steps.push_back(std::move(step));
        return ncclSuccess;
    }
    now.steps.push_back(std::move(step));
    return run_steps(&now);
}

std::shared_ptr<call> swl_sim::exchange(comm_core *core, const void *data, size_t n)
{
    const unsigned char *from = static_cast<const unsigned char *>(data);
    call_shape shape = {call_exchange, 0, 0, 0, n};
    uint64_t number = core->next.fetch_add(1, std::memory_order_relaxed);

    return core->link->arrive(number, shape, bytes(from, from + n));
}

/* Tells programs that this is not NCCL. */
extern "C" const char ncclStandinName[];
const char ncclStandinName[] = "swimlane";

ncclResult_t ncclGetVersion(int *version)
{
    if (!version)
        return ncclInvalidArgument;
    *version = standin_version;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const text[ncclNumResults] = {
        "no error",
        "unhandled cuda error",
        "unhandled system error",
        "internal error",
        "invalid argument",
        "invalid usage",
        "remote process error",
        "operation in progress",
    };

    return result >= 0 && result < ncclNumResults ? text[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    return comm ? comm->core->text : "";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *unique_id)
{
    id_text id = {};

    if (!unique_id)
        return ncclInvalidArgument;
    std::shared_ptr<hub> h = hub_make();
    if (!h)
        return ncclSystemError;
    memcpy(id.magic, id_magic, sizeof(id.magic));
    id.process = place_process();
    id.key = h->key;
    id.host = 0x7f000001;
    id.port = place_alone() ? 0 : wire_port();
    memset(unique_id, 0, sizeof(*unique_id));
    memcpy(unique_id->internal, &id, sizeof(id));
    return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId unique_id, int rank)
{
    id_text id;

    if (!comm)
        return ncclInvalidArgument;
    *comm = nullptr;
    memcpy(&id, unique_id.internal, sizeof(id));
    if (nranks < 1 || rank < 0 || rank >= nranks ||
        memcmp(id.magic, id_magic, sizeof(id.magic)) != 0)
        return ncclInvalidArgument;
    std::unique_ptr<hub_link> link = link_of(id, rank, nranks);
    if (!link)
        return id.process == place_process() ? ncclInvalidUsage : ncclSystemError;
    std::shared_ptr<comm_core> core = make_core(std::move(link), id.key, rank, nranks);
    return run_or_hold([core, comm](group_calls *group) {
        start_comm(group, core, comm);
        return ncclSuccess;
    });
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    if (config && config->magic != 0xcafebeef)
        return ncclInvalidArgument;
    if (config && config->blocking == 0)
        return ncclInvalidUsage; /* the stand-in only knows blocking communicators */
    return ncclCommInitRank(comm, nranks, id, rank);
}

ncclResult_t ncclCommInitAll(ncclComm_t *comms, int ndev, const int *devices)
{
    ncclUniqueId id;
    int before = place_device();

    if (!comms || ndev < 1)
        return ncclInvalidArgument;
    for (int i = 0; i < ndev; i++)
        if (!place_device_ok(devices ? devices[i] : i))
            return ncclInvalidArgument;
    ncclResult_t rc = ncclGetUniqueId(&id);
    if (rc == ncclSuccess)
        rc = ncclGroupStart();
    for (int i = 0; i < ndev && rc == ncclSuccess; i++) {
        place_use(devices ? devices[i] : i);
        rc = ncclCommInitRank(&comms[i], ndev, id, i);
    }
    place_use(before);
    ncclResult_t end = ncclGroupEnd();
    return rc != ncclSuccess ? rc : end;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
                           ncclConfig_t *config)
{
    if (!comm || !newcomm || (config && config->magic != 0xcafebeef))
        return ncclInvalidArgument;
    if (color < 0 && color != NCCL_SPLIT_NOCOLOR)
        return comm_fail(comm->core.get(), ncclInvalidArgument, "color is negative");
    *newcomm = nullptr;
    std::shared_ptr<comm_core> core = comm->core;
    return run_or_hold([core, color, key, newcomm](group_calls *group) {
        split_part mine = {color, key};
        uint64_t number = core->next.load(std::memory_order_relaxed);
        std::shared_ptr<call> c = exchange(core.get(), &mine, sizeof(mine));
        group->steps.push_back([core, c, number, newcomm](group_calls *later) {
            ncclResult_t rc = wait_call(core.get(), *c, host_limit_ns);
            return rc != ncclSuccess ? rc : split_join(later, core.get(), *c, number, newcomm);
        });
        return ncclSuccess;
    });
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    if (!comm)
        return ncclInvalidArgument;
    place_drain(comm->core.get());
    return ncclSuccess;
}

/* Answers for other processes go out from this one, which may end after this call. */
ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (!comm)
        return ncclSuccess;
    place_drain(comm->core.get());
    comm->core->link->leave();
    for (int waited_ms = 0; comm->core->link->serves() > 0 && waited_ms < linger_ms; waited_ms++)
        usleep(1000);
    delete comm;
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    if (!comm)
        return ncclSuccess;
    comm->core->aborted.store(1, std::memory_order_release);
    comm->core->link->leave();
    place_drain(comm->core.get());
    delete comm;
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    if (!comm || !error)
        return ncclInvalidArgument;
    *error = (ncclResult_t)comm->core->error.load(std::memory_order_acquire);
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    if (!comm || !count)
        return ncclInvalidArgument;
    *count = comm->core->nranks;
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    if (!comm || !rank)
        return ncclInvalidArgument;
    *rank = comm->core->rank;
    return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device)
{
    if (!comm || !device)
        return ncclInvalidArgument;
    *device = comm->core->device;
    return ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
    group_state *state = place_group();

    if (state->depth++ == 0)
        state->group = new group_calls;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    group_state *state = place_group();

    if (state->depth == 0)
        return ncclInvalidUsage;
    if (--state->depth > 0)
        return ncclSuccess;
    std::unique_ptr<group_calls> group(state->group);
    state->group = nullptr;
    return run_steps(group.get());
}
