// fake_mlx5_engine.cc: the data path of the fake device: work requests from the rings, by their
// bytes. Written apart from transport/wqe.h and from the software NIC. See fake_mlx5.h.
#include "tests/support/fake_mlx5.h"

#include <cstring>

namespace
{

uint32_t be32(const uint8_t *at)
{
    return static_cast<uint32_t>(at[0]) << 24 | static_cast<uint32_t>(at[1]) << 16 |
           static_cast<uint32_t>(at[2]) << 8 | at[3];
}

uint64_t be64(const uint8_t *at)
{
    return static_cast<uint64_t>(be32(at)) << 32 | be32(at + 4);
}

// Memory behind a key, if it allows the access; NULL otherwise.
uint8_t *reach(uint32_t key, bool remote, uint64_t address, uint64_t bytes, uint32_t access)
{
    for (const auto &object : fake.alive) {
        if (object.second != "mr")
            continue;
        const auto *mr = static_cast<const struct verbs_mr *>(object.first);
        const auto base = reinterpret_cast<uintptr_t>(mr->addr);

        if ((remote ? mr->rkey : mr->lkey) == key && (mr->handle & access) == access &&
            address >= base && address + bytes <= base + mr->length)
            return reinterpret_cast<uint8_t *>(address);
    }
    return nullptr;
}

// The syndrome, 0 = done.
uint8_t execute(const FakeQp &q, const uint8_t *w)
{
    const uint32_t opcode = w[3], index = static_cast<uint32_t>(w[1] << 8 | w[2]);
    const bool add = opcode == 0x12;
    const uint8_t *data = w + (add ? 48 : 32);
    auto peer = fake.qps.find(q.peer);

    if (index != (q.executed & 0xffff) || be32(w + 4) >> 8 != q.qpn || (opcode != 8 && !add))
        return 0x02;
    uint8_t *local = reach(be32(data + 4), false, be64(data + 8), be32(data), add ? 1 : 0);
    if (local == nullptr)
        return 0x04;
    if (peer == fake.qps.end() || (peer->second.state != 2 && peer->second.state != 3) ||
        peer->second.peer != q.qpn || peer->second.recv_psn != q.send_psn)
        return 0x15;
    uint8_t *remote = reach(be32(w + 24), true, be64(w + 16), be32(data), add ? 8 : 2);
    if (remote == nullptr) {
        peer->second.state = 6; // the responder fails too
        return 0x13;
    }
    if (!add) {
        memcpy(remote, local, be32(data));
        return 0;
    }
    uint64_t old;
    memcpy(&old, remote, 8);
    memcpy(local, &old, 8);
    old += be64(w + 32);
    memcpy(remote, &old, 8);
    return 0;
}

void complete(FakeQp &q, uint8_t syndrome)
{
    uint8_t cqe[64] = {};

    cqe[55] = syndrome;
    cqe[60] = static_cast<uint8_t>(q.executed >> 8);
    cqe[61] = static_cast<uint8_t>(q.executed);
    cqe[63] = syndrome ? 13 << 4 : 0;
    if (q.completed) { // a ring; the owner's bit tells its rounds apart
        const uint32_t n = (*q.completed)++;

        cqe[63] = static_cast<uint8_t>(cqe[63] | (n / q.completions & 1));
        memcpy(q.completion + 64ull * (n % q.completions), cqe, sizeof(cqe));
    } else {
        memcpy(q.completion, cqe, sizeof(cqe));
    }
    q.executed++;
}

} // namespace

void fake_run()
{
    for (auto &entry : fake.qps) {
        FakeQp &q = entry.second;

        // the send word of the record: one past the last entry
        while ((q.state == 3 || q.state == 6) &&
               (be32(q.record + 4) & 0xffff) != (q.executed & 0xffff)) {
            const uint8_t *w = q.sq + (q.executed & ((1u << q.depth_log2) - 1)) * 64;
            const uint8_t syndrome = q.state == 6 ? 0x05 : execute(q, w);

            complete(q, syndrome);
            if (syndrome)
                q.state = 6;
        }
    }
}
