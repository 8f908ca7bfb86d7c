// The librdmacm of the fake machine; see fake_verbs.h. Connections are made in the process, one event for
// each step; an id that goes takes its events along and disconnects the other end.
#include "tests/sim/fake_verbs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

namespace
{

struct FakeChannel {
    struct cm_channel channel = {}; // first: the library's object
    std::deque<struct cm_event *> events;
};

struct FakeId {
    struct cm_id id = {}; // first
    FakeId *other = nullptr;
    uint16_t port = 0; // of a listener; else where it connects to
    uint32_t qp_num = 0;
    bool established = false;
};

std::set<FakeId *> ids;
uint16_t next_port = 4000;

FakeId *of(struct cm_id *id)
{
    return reinterpret_cast<FakeId *>(id);
}

FakeChannel *channel_of(FakeId *id)
{
    return reinterpret_cast<FakeChannel *>(id->id.channel);
}

void tell(FakeId *id, uint32_t event, const struct cm_param *param = nullptr)
{
    struct cm_event *e = new cm_event();

    e->id = &id->id;
    e->event = event;
    if (param) {
        uint8_t *data = new uint8_t[param->private_data_len];

        memcpy(data, param->private_data, param->private_data_len);
        e->conn = *param;
        e->conn.private_data = data;
    }
    channel_of(id)->events.push_back(e);
}

void drop_event(struct cm_event *e)
{
    delete[] static_cast<const uint8_t *>(e->conn.private_data);
    delete e;
}

FakeId *make_id(struct cm_channel *channel)
{
    FakeId *id = new FakeId;

    id->id.channel = channel;
    fake.alive.insert("id");
    ids.insert(id);
    return id;
}

int create_id(struct cm_channel *channel, struct cm_id **id, void *, int space)
{
    EXPECT_EQ(space, CM_PORT_SPACE_TCP + 0);
    if (fake_fails("rdma_create_id"))
        return -1;
    *id = &make_id(channel)->id;
    return 0;
}

int destroy_id(struct cm_id *base)
{
    FakeId *id = of(base);
    std::deque<struct cm_event *> kept;

    EXPECT_EQ(ids.erase(id), 1u);
    for (struct cm_event *e : channel_of(id)->events)
        if (e->id == base)
            drop_event(e);
        else
            kept.push_back(e);
    channel_of(id)->events = kept;
    if (ids.count(id->other)) {
        if (id->established)
            tell(id->other, CM_DISCONNECTED);
        id->other->other = nullptr;
    }
    fake.alive.erase(fake.alive.find("id"));
    delete id;
    return 0;
}

int bind_addr(struct cm_id *id, struct sockaddr *)
{
    if (fake_fails("rdma_bind_addr") || !fake.has_ip)
        return -1;
    id->verbs = fake_context();
    return 0;
}

int listen(struct cm_id *id, int backlog)
{
    EXPECT_GE(backlog, 2);
    of(id)->port = ++next_port;
    return fake_fails("rdma_listen") ? -1 : 0;
}

int resolve_addr(struct cm_id *id, struct sockaddr *, struct sockaddr *to, int ms)
{
    EXPECT_GT(ms, 0);
    if (fake_fails("rdma_resolve_addr"))
        return -1;
    of(id)->port = reinterpret_cast<struct sockaddr_in *>(to)->sin_port;
    tell(of(id), CM_ADDR_RESOLVED);
    return 0;
}

int resolve_route(struct cm_id *id, int)
{
    if (fake_fails("rdma_resolve_route"))
        return -1;
    tell(of(id), CM_ROUTE_RESOLVED);
    return 0;
}

int connect(struct cm_id *id, struct cm_param *param)
{
    if (fake_fails("rdma_connect"))
        return -1;
    of(id)->qp_num = param->qp_num;
    for (FakeId *l : ids)
        if (l != of(id) && l->port == of(id)->port && l->other == nullptr && !l->established) {
            FakeId *asked = make_id(l->id.channel);

            asked->other = of(id);
            of(id)->other = asked;
            tell(asked, CM_CONNECT_REQUEST, param);
            return 0;
        }
    tell(of(id), CM_UNREACHABLE);
    return 0;
}

int accept(struct cm_id *id, struct cm_param *param)
{
    FakeId *mine = of(id), *other = mine->other;

    if (fake_fails("rdma_accept"))
        return -1;
    EXPECT_GT(param->responder_resources, 0);
    EXPECT_GT(param->initiator_depth, 0);
    mine->qp_num = param->qp_num;
    for (FakeId *end : {mine, other}) {
        FakeQueue *q = fake.queues.at(end->qp_num);

        EXPECT_EQ(q->state, static_cast<uint32_t>(VERBS_STATE_INIT));
        q->state = VERBS_STATE_RTS;
        q->peer = end->other->qp_num;
        end->established = true;
        tell(end, CM_ESTABLISHED);
    }
    return 0;
}

int reject(struct cm_id *id, const void *, uint8_t)
{
    fake.rejected++;
    if (ids.count(of(id)->other))
        tell(of(id)->other, CM_REJECTED);
    return 0;
}

int get_event(struct cm_channel *channel, struct cm_event **event)
{
    FakeChannel *c = reinterpret_cast<FakeChannel *>(channel);

    if (c->events.empty()) {
        errno = EAGAIN;
        return -1;
    }
    *event = c->events.front();
    c->events.pop_front();
    fake.alive.insert("connection event");
    return 0;
}

} // namespace

struct swl_cm fake_manager()
{
    struct swl_cm c = {};

    c.rdma_create_event_channel = []() -> struct cm_channel *
    {
        if (fake_fails("rdma_create_event_channel"))
            return nullptr;
        FakeChannel *made = new FakeChannel;

        made->channel.fd = fake.pipe[1];
        fake.alive.insert("channel");
        return &made->channel;
    };
    c.rdma_destroy_event_channel = [](struct cm_channel *channel) {
        FakeChannel *one = reinterpret_cast<FakeChannel *>(channel);

        EXPECT_TRUE(one->events.empty());
        fake.alive.erase(fake.alive.find("channel"));
        delete one;
    };
    c.rdma_create_id = create_id;
    c.rdma_destroy_id = destroy_id;
    c.rdma_bind_addr = bind_addr;
    c.rdma_listen = listen;
    c.rdma_get_src_port = [](struct cm_id *id) { return of(id)->port; };
    c.rdma_resolve_addr = resolve_addr;
    c.rdma_resolve_route = resolve_route;
    c.rdma_connect = connect;
    c.rdma_accept = accept;
    c.rdma_reject = reject;
    c.rdma_get_cm_event = get_event;
    c.rdma_ack_cm_event = [](struct cm_event *e) {
        fake.alive.erase(fake.alive.find("connection event"));
        drop_event(e);
        return 0;
    };
    return c;
}
