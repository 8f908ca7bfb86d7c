/* nccl_hub.cc: see nccl_hub.h. */
#include "sim/nccl_hub.h"

#include <sys/random.h>

#include <utility>

namespace swl_sim
{

namespace
{

struct registry {
    std::mutex lock;
    std::map<uint64_t, std::shared_ptr<hub>> hubs;
};

registry *all_hubs()
{
    static registry *all = new registry; /* threads of strangers may outlive static destructors */

    return all;
}

/* Under the hub's lock. */
void settle(hub *h, uint64_t number, const std::shared_ptr<call> &c)
{
    uint64_t state = call_open;

    if (c->arrived == h->nranks)
        state = call_complete;
    for (int r = 0; r < h->nranks && state == call_open; r++)
        if (h->gone[(size_t)r] && !c->here[(size_t)r])
            state = call_peer_gone;
    uint64_t open = call_open;
    /* release: all parts, before whoever waits for the state reads them */
    if (state != call_open &&
        !c->state.compare_exchange_strong(open, state, std::memory_order_release))
        state = open; /* a mismatch was noted before */
    /* A failed call stays for the ranks still to come. */
    if (c->arrived == h->nranks)
        h->calls.erase(number);
}

struct local_link : hub_link {
    std::shared_ptr<hub> to;
    int rank = 0;

    std::shared_ptr<call> arrive(uint64_t number, const call_shape &shape, bytes part) override
    {
        return hub_arrive(to.get(), rank, number, shape, std::move(part));
    }
    void leave() override
    {
        hub_leave(to.get(), rank, false);
    }
    std::unique_ptr<hub_link> child(uint64_t key, int child_rank, int nranks) override
    {
        return link_local(hub_child(key), child_rank, nranks);
    }
    bool remote() const override
    {
        return false;
    }
    int serves() const override
    {
        return hub_remote(to.get());
    }
};

} // namespace

std::shared_ptr<hub> hub_make()
{
    uint64_t key = 0;

    if (getrandom(&key, sizeof(key), 0) != (ssize_t)sizeof(key))
        return nullptr;
    return hub_child(key);
}

std::shared_ptr<hub> hub_find(uint64_t key)
{
    registry *all = all_hubs();
    std::lock_guard<std::mutex> hold(all->lock);
    auto found = all->hubs.find(key);

    return found == all->hubs.end() ? nullptr : found->second;
}

std::shared_ptr<hub> hub_child(uint64_t key)
{
    registry *all = all_hubs();
    std::lock_guard<std::mutex> hold(all->lock);
    std::shared_ptr<hub> &place = all->hubs[key];

    if (!place)
        place = std::make_shared<hub>(key);
    return place;
}

bool hub_attach(hub *h, int rank, int nranks, bool remote)
{
    std::lock_guard<std::mutex> hold(h->lock);

    if (h->nranks == 0) {
        h->nranks = nranks;
        h->attached.resize((size_t)nranks);
        h->gone.resize((size_t)nranks);
    }
    if (h->nranks != nranks || rank < 0 || rank >= nranks || h->attached[(size_t)rank])
        return false;
    h->attached[(size_t)rank] = true;
    h->remote += remote;
    return true;
}

std::shared_ptr<call> hub_arrive(hub *h, int rank, uint64_t number, const call_shape &shape,
                                 bytes part)
{
    std::lock_guard<std::mutex> hold(h->lock);
    std::shared_ptr<call> &place = h->calls[number];

    if (!place) {
        place = std::make_shared<call>();
        place->shape = shape;
        place->parts.resize((size_t)h->nranks);
        place->here.resize((size_t)h->nranks);
    }
    std::shared_ptr<call> c = place;
    if (!(c->shape == shape)) {
        uint64_t open = call_open;
        c->state.compare_exchange_strong(open, call_mismatch, std::memory_order_release);
    }
    if (!c->here[(size_t)rank]) {
        c->here[(size_t)rank] = true;
        c->parts[(size_t)rank] = std::move(part);
        c->arrived++;
    }
    settle(h, number, c);
    return c;
}

int hub_remote(hub *h)
{
    std::lock_guard<std::mutex> hold(h->lock);

    return h->remote;
}

void hub_leave(hub *h, int rank, bool remote)
{
    bool last;

    {
        std::lock_guard<std::mutex> hold(h->lock);
        if (h->gone[(size_t)rank])
            return;
        h->gone[(size_t)rank] = true;
        h->remote -= remote;
        last = ++h->left == h->nranks;
        std::map<uint64_t, std::shared_ptr<call>> open = h->calls;
        for (const auto &entry : open)
            settle(h, entry.first, entry.second);
    }
    if (!last)
        return;
    registry *all = all_hubs();
    std::lock_guard<std::mutex> hold(all->lock);
    all->hubs.erase(h->key);
}

std::unique_ptr<hub_link> link_local(const std::shared_ptr<hub> &h, int rank, int nranks)
{
    if (!h || !hub_attach(h.get(), rank, nranks, false))
        return nullptr;
    auto made = std::make_unique<local_link>();
    made->to = h;
    made->rank = rank;
    return made;
}

} // namespace swl_sim
