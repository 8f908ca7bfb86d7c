/* nccl_hub.h: where the ranks of a stand-in communicator meet.
 *
 * Every collective is a *call*: each rank hands in its part, and when the last one has, every
 * rank reads all parts. A hub lives in the process that made the unique id; ranks of that process
 * use it directly, ranks of other processes through a TCP connection (nccl_wire.cc) behind which
 * a thread of the hub's process hands in their parts. Nothing here parks: who waits, waits for
 * call::state. Memory: hubs are shared by the registry and their ranks, calls by the hub and who
 * waits. */
#ifndef SWL_SIM_NCCL_HUB_H
#define SWL_SIM_NCCL_HUB_H

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace swl_sim
{

enum call_kind : uint32_t { call_exchange, call_all_gather, call_broadcast, call_all_reduce };

/* Must be equal on all ranks of a call. */
struct call_shape {
    uint32_t kind, datatype, op, root;
    uint64_t bytes;

    bool operator==(const call_shape &o) const
    {
        return kind == o.kind && datatype == o.datatype && op == o.op && root == o.root &&
               bytes == o.bytes;
    }
};

enum call_state : uint64_t { call_open, call_complete, call_mismatch, call_peer_gone };

using bytes = std::vector<unsigned char>;

struct call {
    call_shape shape;
    std::vector<bytes> parts; /* [rank]; complete before state leaves call_open */
    std::vector<bool> here;
    int arrived = 0;
    std::atomic<uint64_t> state{call_open};
};

struct hub {
    explicit hub(uint64_t k) : key(k)
    {
    }
    const uint64_t key;
    std::mutex lock;
    int nranks = 0; /* set by the first rank */
    int left = 0;
    int remote = 0; /* ranks of other processes that have not left */
    std::vector<bool> attached, gone;
    std::map<uint64_t, std::shared_ptr<call>> calls; /* open ones, by number */
};

/* A new hub with a random key, and the hub with a given key (NULL: none). */
std::shared_ptr<hub> hub_make();
std::shared_ptr<hub> hub_find(uint64_t key);
/* The hub of a split: whoever comes first makes it. */
std::shared_ptr<hub> hub_child(uint64_t key);

/* False: wrong number of ranks, or the rank is taken. */
bool hub_attach(hub *h, int rank, int nranks, bool remote);
std::shared_ptr<call> hub_arrive(hub *h, int rank, uint64_t number, const call_shape &shape,
                                 bytes part);
/* The rank is gone: calls that miss its part fail. */
void hub_leave(hub *h, int rank, bool remote);
/* Ranks of other processes that still need this one to answer them. */
int hub_remote(hub *h);

/* A rank's end: straight to the hub, or over TCP. */
struct hub_link {
    virtual ~hub_link() = default;
    virtual std::shared_ptr<call> arrive(uint64_t number, const call_shape &shape, bytes part) = 0;
    virtual void leave() = 0;
    /* The same rank's end at the hub of a split; NULL on failure. */
    virtual std::unique_ptr<hub_link> child(uint64_t key, int rank, int nranks) = 0;
    virtual bool remote() const = 0;
    /* How many other processes need this one. */
    virtual int serves() const = 0;
};
std::unique_ptr<hub_link> link_local(const std::shared_ptr<hub> &h, int rank, int nranks);
std::unique_ptr<hub_link> link_remote(uint16_t port, uint64_t key, uint64_t parent, int rank,
                                      int nranks);

/* Port of this process's listener on 127.0.0.1, started at first use; 0 when that fails. */
uint16_t wire_port();

} // namespace swl_sim

#endif
