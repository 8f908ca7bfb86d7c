// loop_wire.cc: see loop_wire.h.
#include "tests/support/loop_wire.h"

#include "src/base/error.h"
#include "src/runtime/runtime.h"
#include "transport/proxy/keys.h"

#include <deque>
#include <string.h>
#include <vector>

loop_behaviour loop_next;
loop_counts loop_count;

namespace
{

struct loop_qp {
    std::deque<swl_wire_request> queue;
    struct loop_wire *peer = nullptr;
    uint32_t peer_qp = 0;
    uint64_t executed = 0;
    bool failed = false;
};

struct loop_wire : swl_wire {
    swl_wire_config config;
    loop_behaviour how;
    struct swl_keys *keys = nullptr;
    std::vector<loop_qp> qps;
    std::deque<swl_wire_done> done;
    uint32_t nqps = 0;
};

struct loop_address {
    struct loop_wire *wire;
    uint32_t qp;
};

std::vector<loop_wire *> living;

// Wires reach into each other: one lock for all.
struct hold {
    static struct swl_gpu_mutex *lock()
    {
        static struct swl_gpu_mutex *made = nullptr;

        if (made == nullptr)
            (void)swl_gpu_mutex_create(&made);
        return made;
    }
    hold()
    {
        swl_gpu_mutex_lock(lock());
    }
    ~hold()
    {
        swl_gpu_mutex_unlock(lock());
    }
    hold(const hold &) = delete;
    hold &operator=(const hold &) = delete;
};

bool alive(const loop_wire *w)
{
    for (const loop_wire *l : living)
        if (l == w)
            return true;
    return false;
}

loop_wire *of(struct swl_wire *w)
{
    return static_cast<loop_wire *>(w);
}

const struct swl_wire_ops *loop_wire_ops();

ncclResult_t loop_open(struct swl_wire **wire_p, const struct swl_wire_config *config)
{
    const hold guard;
    static uint64_t serial = 77;
    loop_wire *w = new loop_wire();

    w->ops = loop_wire_ops();
    w->config = *config;
    w->how = loop_next;
    w->qps.resize(config->max_qps);
    SWL_TRY(swl_keys_open(&w->keys, config, serial++));
    living.push_back(w);
    *wire_p = w;
    return ncclSuccess;
}

ncclResult_t loop_close(struct swl_wire *base)
{
    const hold guard;
    for (size_t i = 0; i < living.size(); i++)
        if (living[i] == base)
            living.erase(living.begin() + static_cast<long>(i));
    swl_keys_close(of(base)->keys);
    delete of(base);
    return ncclSuccess;
}

void loop_caps(const struct swl_wire *, struct swl_wire_caps *caps_p)
{
    memset(caps_p, 0, sizeof(*caps_p));
    caps_p->max_depth = SWL_WQE_DEPTH_MAX;
    caps_p->max_qps = 1000;
    caps_p->answers_alone = true; // requests reach into the peer
    caps_p->max_region_bytes = UINT64_MAX;
}

ncclResult_t loop_reg(struct swl_wire *w, void *ptr, uint64_t bytes, unsigned access,
                      struct swl_nic_region *region_p)
{
    return swl_keys_register(of(w)->keys, ptr, bytes, access, region_p);
}

ncclResult_t loop_dereg(struct swl_wire *w, const struct swl_nic_region *region)
{
    return swl_keys_drop(of(w)->keys, region);
}

ncclResult_t loop_create_qp(struct swl_wire *w, uint32_t *qp_p)
{
    const hold guard;
    *qp_p = of(w)->nqps++;
    return ncclSuccess;
}

ncclResult_t loop_address_of(struct swl_wire *w, uint32_t qp, struct swl_wire_address *address_p)
{
    const loop_address a = {of(w), qp};

    memset(address_p, 0, sizeof(*address_p));
    memcpy(address_p->bytes, &a, sizeof(a));
    return ncclSuccess;
}

ncclResult_t loop_connect(struct swl_wire *w, uint32_t qp, const struct swl_wire_address *peer)
{
    const hold guard;
    loop_address a;

    memcpy(&a, peer->bytes, sizeof(a));
    of(w)->qps[qp].peer = a.wire;
    of(w)->qps[qp].peer_qp = a.qp;
    return ncclSuccess;
}

ncclResult_t loop_to_error(struct swl_wire *w, uint32_t qp)
{
    const hold guard;
    of(w)->qps[qp].queue.clear();
    of(w)->qps[qp].failed = true;
    return ncclSuccess;
}

ncclResult_t loop_reset(struct swl_wire *w, uint32_t qp)
{
    const hold guard;
    of(w)->qps[qp] = loop_qp();
    return ncclSuccess;
}

uint32_t loop_post(struct swl_wire *w, uint32_t qp, const struct swl_wire_request *requests,
                   uint32_t n)
{
    const hold guard;
    loop_qp &q = of(w)->qps[qp];
    uint32_t taken = 0;

    for (; taken < n && q.queue.size() < of(w)->how.room; taken++)
        q.queue.push_back(requests[taken]);
    loop_count.posts++;
    if (taken > loop_count.most)
        loop_count.most = taken;
    return taken;
}

uint32_t at_peer(loop_wire *me, loop_wire *peer, const swl_wire_request &r)
{
    const swl_span far = {r.remote, r.bytes, 0, r.rkey, r.bytes};
    const swl_span near = {r.local, r.bytes, 0, r.lkey, r.bytes};
    std::vector<uint8_t> bytes(r.bytes + 1u);
    uint64_t old = 0;
    uint32_t syndrome = 0;

    if (r.opcode == SWL_WQE_WRITE && r.is_inline)
        return swl_keys_write(peer->keys, &far, r.data);
    if (r.opcode == SWL_WQE_WRITE) {
        syndrome = swl_keys_load(me->keys, &near, bytes.data());
        return syndrome ? syndrome : swl_keys_write(peer->keys, &far, bytes.data());
    }
    if (r.opcode == SWL_WQE_READ) {
        syndrome = swl_keys_read(peer->keys, &far, bytes.data());
        return syndrome ? syndrome : swl_keys_store(me->keys, &near, bytes.data());
    }
    if (r.opcode == SWL_WQE_FETCH_ADD) {
        syndrome = swl_keys_add(peer->keys, r.rkey, r.remote, r.value, &old);
        return syndrome ? syndrome : swl_keys_store(me->keys, &near, &old);
    }
    return 0;
}

uint32_t execute(loop_wire *me, loop_qp *q, const swl_wire_request &r)
{
    const uint32_t syndrome = swl_keys_check(me->keys, &r);

    if (syndrome)
        return syndrome;
    if (q->executed == me->how.fail_at)
        return me->how.syndrome;
    if (!alive(q->peer) || q->peer->qps[q->peer_qp].failed)
        return SWL_SYNDROME_RETRY;
    return at_peer(me, q->peer, r);
}

uint32_t loop_poll(struct swl_wire *w, struct swl_wire_done *done, uint32_t n)
{
    const hold guard;
    loop_wire *me = of(w);
    uint32_t i = 0;

    for (; i < n && !me->done.empty(); i++) {
        done[i] = me->done.front();
        me->done.pop_front();
    }
    return i;
}

bool loop_progress(struct swl_wire *w)
{
    const hold guard;
    loop_wire *me = of(w);
    bool moved = false;

    for (uint32_t i = 0; i < me->nqps; i++) {
        loop_qp *q = &me->qps[i];

        for (uint32_t k = 0; k < me->how.turn && !q->queue.empty() && !q->failed; k++) {
            const swl_wire_request r = q->queue.front();
            const uint32_t syndrome = execute(me, q, r);

            q->queue.pop_front();
            q->executed++;
            q->failed = syndrome != 0;
            me->done.push_back({r.index, i, syndrome});
            moved = true;
        }
    }
    return moved;
}

const struct swl_wire_ops *loop_wire_ops()
{
    static const struct swl_wire_ops ops = {
        "loop",     loop_open,      loop_close,      loop_caps,    loop_reg,
        loop_dereg, loop_create_qp, loop_address_of, loop_connect, loop_to_error,
        loop_reset, loop_post,      loop_poll,       loop_progress};

    return &ops;
}

ncclResult_t loop_create(struct swl_nic **nic_p, const struct swl_nic_config *config)
{
    return swl_proxy_create(nic_p, config, loop_ops(), loop_wire_ops());
}

} // namespace

const struct swl_nic_ops *loop_ops()
{
    static const struct swl_nic_ops ops = SWL_PROXY_OPS("loop", loop_create);

    return &ops;
}
