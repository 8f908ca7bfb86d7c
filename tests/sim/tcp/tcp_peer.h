// tcp_peer.h: a peer of the TCP wire that is the test's, byte by byte. Layer: tests.
#ifndef SWL_TCP_PEER_H
#define SWL_TCP_PEER_H

#include "tests/support/nic_fixture.h"
#include "transport/interface.h"
#include "transport/proxy/tcp/tcp.h"

#include <sys/socket.h>
#include <unistd.h>

namespace
{

const uint8_t first_nonce = 0x00, last_nonce = 0xff; // of the test's peer: it connects, it listens

// The test's end of a connection.
struct peer {
    struct tcp_address mine = {}, nic = {};
    int listener = -1, fd = -1;
    uint64_t out = 0, in = 0, beats = 0;
    std::vector<uint8_t> bytes;

    ~peer()
    {
        hang_up();
        if (listener >= 0)
            close(listener);
    }
    void hang_up()
    {
        if (fd >= 0)
            close(fd);
        fd = -1;
        out = in = 0;
        bytes.clear();
    }
    void listen_as(uint8_t nonce)
    {
        struct tcp_why why;

        ASSERT_TRUE(swl_tcp_choose("lo", &mine.place, &why)) << why.text;
        listener = swl_tcp_listen(&mine.place, &why);
        ASSERT_GE(listener, 0) << why.text;
        memset(mine.nonce, nonce, sizeof(mine.nonce));
        memset(mine.proof, 0x77, sizeof(mine.proof));
        mine.qp = 5;
        mine.generation = 9;
    }
    // What connect of the NIC is given.
    struct swl_nic_address address_like(const struct swl_nic_address &of_nic)
    {
        struct swl_nic_address a = of_nic;

        memcpy(&nic, a.bytes + 24, sizeof(nic));
        memcpy(a.bytes + 24, &mine, sizeof(mine));
        return a;
    }
    void dial()
    {
        struct tcp_why why;

        fd = swl_tcp_connect(&nic.place, 60000000000ull, &why);
        ASSERT_GE(fd, 0) << why.text;
    }
    std::vector<uint8_t> frame(uint16_t kind, struct tcp_frame head, const void *payload)
    {
        std::vector<uint8_t> v(tcp_frame_bytes(head.bytes));
        struct tcp_frame *f = reinterpret_cast<struct tcp_frame *>(v.data());

        *f = head;
        f->kind = kind;
        if (head.bytes)
            memcpy(f + 1, payload, head.bytes);
        swl_tcp_seal(f, out++);
        return v;
    }
    void put(const std::vector<uint8_t> &v)
    {
        ASSERT_EQ(::send(fd, v.data(), v.size(), MSG_NOSIGNAL), static_cast<ssize_t>(v.size()));
    }
    void hello()
    {
        struct tcp_hello h = {};
        struct tcp_frame head = {};

        memcpy(h.to, nic.nonce, sizeof(h.to));
        memcpy(h.from, mine.nonce, sizeof(h.from));
        h.to_qp = nic.qp;
        h.to_generation = nic.generation;
        h.from_qp = mine.qp;
        h.from_generation = mine.generation;
        head.bytes = sizeof(h);
        put(frame(TCP_HELLO, head, &h));
    }
    void welcome(uint8_t proof)
    {
        struct tcp_hello h = {};
        struct tcp_frame head = {};

        memset(h.from, proof, sizeof(h.from));
        head.bytes = sizeof(h);
        put(frame(TCP_WELCOME, head, &h));
    }
    void beat()
    {
        put(frame(TCP_BEAT, {}, ""));
    }
    // The next frame that is no beat, or kind 0 after 100 ms or at the end of the connection.
    struct tcp_frame get()
    {
        struct tcp_frame f = {};

        for (int i = 0; i < 1000; i++) {
            uint8_t part[4096];
            const ssize_t n = recv(fd, part, sizeof(part), 0);

            if (n > 0)
                bytes.insert(bytes.end(), part, part + n);
            if (swl_tcp_look(bytes.data(), bytes.size(), in, &f) == TCP_LOOK_FRAME) {
                bytes.erase(bytes.begin(),
                            bytes.begin() + static_cast<long>(tcp_frame_bytes(f.bytes)));
                in++;
                if (f.kind != TCP_BEAT)
                    return f;
                beats++;
            }
            if (n == 0)
                break;
            nic_sleep(100000);
        }
        return {};
    }
};

inline nic_options over_tcp()
{
    nic_options o;

    o.ops = swl_tcp_ops();
    o.executor = SWL_SOFT_ENGINE;
    return o;
}

// Queue pair 1 of rank 0 is the test's: the fixture's partner gets none.
struct scene {
    nic_rank *me;
    peer p;

    scene(nic_world &w, uint8_t nonce) : me(&w.rank[0])
    {
        struct swl_nic_address a;

        EXPECT_EQ(me->nic->ops->reset(me->nic, 0), ncclSuccess);
        EXPECT_EQ(me->nic->ops->address(me->nic, 0, &a), ncclSuccess);
        p.listen_as(nonce);
        given = p.address_like(a);
    }
    ncclResult_t connect()
    {
        const ncclResult_t rc = me->nic->ops->connect(me->nic, 0, &given);

        if (rc == ncclSuccess) {
            EXPECT_EQ(me->nic->ops->view(me->nic, 0, &me->qps[0]), ncclSuccess);
        }
        return rc;
    }
    void meet() // the test connects
    {
        ASSERT_EQ(connect(), ncclSuccess) << swl_last_error();
        p.dial();
        p.hello();
        ASSERT_EQ(p.get().kind, TCP_WELCOME);
    }
    std::vector<uint8_t> write(uint64_t index, uint64_t value)
    {
        struct tcp_frame f = {};

        f.bytes = f.total = 8;
        f.index = index;
        f.remote = me->data_at(64);
        f.rkey = me->payload.rkey;
        return p.frame(TCP_WRITE, f, &value);
    }
    void expect_failed(uint32_t syndrome)
    {
        for (int i = 0; i < 100 && nic_status(*me).state != SWL_NIC_QP_ERROR; i++)
            nic_sleep(1000000);
        EXPECT_EQ(nic_status(*me).state, SWL_NIC_QP_ERROR);
        EXPECT_EQ(nic_status(*me).syndrome, syndrome);
        EXPECT_EQ(connect(), ncclInvalidUsage) << "before a reset";
    }
    struct swl_nic_address given;
};

inline uint64_t word_at(const nic_rank &k, uint64_t at)
{
    uint64_t v;

    memcpy(&v, k.data(at), sizeof(v));
    return v;
}

} // namespace

#endif
