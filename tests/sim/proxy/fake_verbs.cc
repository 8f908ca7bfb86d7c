// The fake of libibverbs; see fake_verbs.h.
#include "tests/sim/proxy/fake_verbs.h"

#include "transport/host/dma.h"

#include <gtest/gtest.h>

#include <errno.h>
#include <string.h>
#include <unistd.h>

FakeVerbs fake;

bool fake_fails(const char *name)
{
    if (++fake.calls != fake.fail_at)
        return false;
    fake.failed = name;
    errno = ENOMEM;
    return true;
}

namespace
{

struct verbs_device device;
struct ibv_device *list[2];
struct verbs_head context;

// Objects are given back even where the call says that it failed: what it leaves is the device's.
int drop(const char *kind, const char *call)
{
    const auto at = fake.alive.find(kind);

    EXPECT_NE(at, fake.alive.end()) << call;
    if (at != fake.alive.end())
        fake.alive.erase(at);
    return fake_fails(call) ? EBUSY : 0;
}

template <class T> T *made(T *object, const char *kind)
{
    fake.alive.insert(kind);
    return object;
}

FakeQueue *queue_of(struct verbs_qp *qp)
{
    return reinterpret_cast<FakeQueue *>(qp);
}

void complete(struct verbs_qp *qp, uint64_t id, uint32_t status, uint32_t bytes)
{
    struct verbs_wc wc = {};

    wc.wr_id = id;
    wc.status = status;
    wc.byte_len = bytes;
    wc.qp_num = qp->qp_num;
    static_cast<FakeCq *>(qp->send_cq)->entries.push_back(wc);
}

uint64_t *as_word(uint64_t address)
{
    return reinterpret_cast<uint64_t *>(static_cast<uintptr_t>(address));
}

void *as_memory(uint64_t address)
{
    return reinterpret_cast<void *>(static_cast<uintptr_t>(address));
}

bool of_gpu(uint64_t address)
{
    return swl_dma_overtakes_nic(as_memory(address));
}

void land()
{
    for (const auto &w : fake.on_their_way)
        memcpy(as_memory(w.first), w.second.data(), w.second.size());
    fake.on_their_way.clear();
}

void place(uint64_t address, const struct verbs_sge *s)
{
    const uint8_t *from = static_cast<const uint8_t *>(as_memory(s->addr));

    if (fake.late && of_gpu(address))
        fake.on_their_way.push_back({address, {from, from + s->length}});
    else
        memcpy(as_memory(address), from, s->length);
}

uint32_t receive(FakeQueue *p, const struct verbs_send_wr *wr)
{
    const struct verbs_sge *s = wr->sg_list;

    if (p->receives.empty()) {
        fake.dry++;
        return 13;
    }
    memcpy(as_memory(p->receive_sges.front().addr), as_memory(s->addr), s->length);
    complete(&p->qp, p->receives.front().wr_id, 0, s->length);
    fake.sends++;
    p->receives.pop_front();
    p->receive_sges.pop_front();
    return 0;
}

uint32_t execute(FakeQueue *q, const struct verbs_send_wr *wr)
{
    const struct verbs_sge *s = wr->sg_list;
    const auto peer = fake.queues.find(q->peer);

    if (peer == fake.queues.end() || peer->second->state < VERBS_STATE_RTR ||
        peer->second->state == VERBS_STATE_ERROR)
        return 12;
    if (wr->opcode == VERBS_WR_WRITE) {
        place(wr->wr.rdma.remote_addr, s);
    } else if (wr->opcode == VERBS_WR_READ) {
        if (of_gpu(wr->wr.rdma.remote_addr))
            land();
        fake.flushes += q->peer == q->qp.qp_num;
        memcpy(as_memory(s->addr), as_memory(wr->wr.rdma.remote_addr), s->length);
    } else if (wr->opcode == VERBS_WR_FETCH_ADD) {
        if (of_gpu(wr->wr.atomic.remote_addr))
            land();
        *as_word(s->addr) = *as_word(wr->wr.atomic.remote_addr);
        *as_word(wr->wr.atomic.remote_addr) += wr->wr.atomic.compare_add;
    }
    return wr->opcode == VERBS_WR_SEND ? receive(peer->second, wr) : 0;
}

int post_send(struct verbs_qp *qp, struct verbs_send_wr *wr, struct verbs_send_wr **)
{
    FakeQueue *q = queue_of(qp);
    size_t n = 0;

    EXPECT_EQ(q->state, static_cast<uint32_t>(VERBS_STATE_RTS));
    for (; wr; wr = wr->next, n++) {
        uint32_t status = q->state == VERBS_STATE_ERROR ? 5 : fake.next_status;

        fake.next_status = 0;
        status = status ? status : execute(q, wr);
        if (status)
            q->state = VERBS_STATE_ERROR;
        if (status || (wr->send_flags & VERBS_SEND_SIGNALLED))
            complete(qp, wr->wr_id, status, 0);
    }
    fake.posts.push_back(n);
    return 0;
}

int post_recv(struct verbs_qp *qp, struct verbs_recv_wr *wr, struct verbs_recv_wr **)
{
    if (fake_fails("post_recv"))
        return ENOMEM;
    EXPECT_NE(queue_of(qp)->state, static_cast<uint32_t>(VERBS_STATE_RESET));
    queue_of(qp)->receives.push_back(*wr);
    queue_of(qp)->receive_sges.push_back(*wr->sg_list);
    return 0;
}

int poll_cq(struct verbs_cq *cq, int n, struct verbs_wc *wc)
{
    FakeCq *c = reinterpret_cast<FakeCq *>(cq);
    int count = 0;

    for (; count < n && !c->entries.empty(); count++) {
        wc[count] = c->entries.front();
        c->entries.pop_front();
    }
    return count;
}

int modify_qp(struct verbs_qp *qp, struct verbs_qp_attr *a, int mask)
{
    FakeQueue *q = queue_of(qp);

    if (fake_fails("ibv_modify_qp"))
        return EINVAL;
    if (a->qp_state == VERBS_STATE_RTR && a->dest_qp_num == qp->qp_num && !fake.joins_itself)
        return EINVAL;
    EXPECT_TRUE(mask & VERBS_QP_STATE);
    if (a->qp_state == VERBS_STATE_INIT) {
        EXPECT_EQ(q->state, static_cast<uint32_t>(VERBS_STATE_RESET));
    } else if (a->qp_state == VERBS_STATE_RTR) {
        EXPECT_EQ(q->state, static_cast<uint32_t>(VERBS_STATE_INIT));
        EXPECT_EQ(mask, 0x1 | 1 << 7 | 1 << 8 | 1 << 20 | 1 << 12 | 1 << 17 | 1 << 15)
            << "all that a device demands, and no more";
        q->peer = a->dest_qp_num;
        q->rq_psn = a->rq_psn;
        q->rtr = *a;
    } else if (a->qp_state == VERBS_STATE_RTS) {
        EXPECT_EQ(q->state, static_cast<uint32_t>(VERBS_STATE_RTR));
        EXPECT_EQ(mask, 0x1 | 1 << 16 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 13);
        q->sq_psn = a->sq_psn;
    }
    q->state = a->qp_state;
    return 0;
}

struct verbs_qp *create_qp(struct ibv_pd *, struct verbs_qp_init_attr *attr)
{
    if (fake_fails("ibv_create_qp"))
        return nullptr;
    FakeQueue *q = new FakeQueue;

    q->qp.context = &context;
    q->qp.send_cq = attr->send_cq;
    q->qp.qp_num = fake.next_number++;
    fake.queues[q->qp.qp_num] = q;
    return &made(q, "queue pair")->qp;
}

int destroy_qp(struct verbs_qp *qp)
{
    fake.queues.erase(qp->qp_num);
    delete queue_of(qp);
    return drop("queue pair", "ibv_destroy_qp");
}

struct verbs_cq *create_cq(struct ibv_context *, int, void *, void *, int)
{
    return fake_fails("ibv_create_cq") ? nullptr : &made(new FakeCq, "completion queue")->cq;
}

int destroy_cq(struct verbs_cq *cq)
{
    delete reinterpret_cast<FakeCq *>(cq);
    return drop("completion queue", "ibv_destroy_cq");
}

struct verbs_mr *reg_mr(struct ibv_pd *, void *addr, size_t bytes, int)
{
    if (fake_fails("ibv_reg_mr"))
        return nullptr;
    struct verbs_mr *mr = new verbs_mr();

    mr->addr = addr;
    mr->length = bytes;
    mr->lkey = mr->rkey = fake.next_number++;
    return made(mr, "region");
}

int query_device(struct ibv_context *, struct verbs_device_attr *a)
{
    memset(a, 0, sizeof(*a));
    a->max_qp = 100;
    a->max_qp_wr = 1000;
    a->max_cqe = 4000;
    a->max_mr_size = 1ull << 40;
    a->max_qp_rd_atom = a->max_qp_init_rd_atom = 16;
    a->atomic_cap = fake.atomic_cap;
    return fake_fails("ibv_query_device") ? EINVAL : 0;
}

int query_port(struct ibv_context *, uint8_t number, struct verbs_port_attr *a)
{
    if (number != 1 || fake_fails("ibv_query_port"))
        return EINVAL;
    a->state = VERBS_PORT_ACTIVE;
    a->link_layer = VERBS_LINK_ETHERNET;
    a->active_mtu = 3;
    a->gid_tbl_len = 2;
    a->pkey_tbl_len = 1;
    return 0;
}

int query_pkey(struct ibv_context *, uint8_t, int, uint16_t *key_p)
{
    *key_p = 0xffff;
    return fake_fails("ibv_query_pkey") ? EINVAL : 0;
}

int query_gid(struct ibv_context *, uint32_t, uint32_t i, struct verbs_gid_entry *e, uint32_t,
              size_t)
{
    const uint8_t gid[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 1};

    if (i != 1)
        return ENODATA;
    memcpy(e->gid, gid, sizeof(gid));
    e->gid_type = VERBS_GID_ROCE_V2;
    return 0;
}

int get_event(struct ibv_context *, struct verbs_async_event *event)
{
    if (fake.events.empty())
        return -1;
    *event = fake.events.front();
    fake.events.pop_front();
    fake.alive.insert("event");
    return 0;
}

} // namespace

struct swl_verbs fake_machine()
{
    struct swl_verbs v = {};

    fake = FakeVerbs();
    EXPECT_EQ(pipe(fake.pipe), 0);
    context.device = &device;
    context.async_fd = fake.pipe[0];
    context.poll_cq = poll_cq;
    context.post_send = post_send;
    context.post_recv = post_recv;
    list[0] = reinterpret_cast<struct ibv_device *>(&device);
    v.ibv_get_device_list = [](int *n) { return *n = 1, list; };
    v.ibv_free_device_list = [](struct ibv_device **) {};
    v.ibv_get_device_name = [](struct ibv_device *) { return "fake0"; };
    v.ibv_open_device = [](struct ibv_device *) {
        device.transport_type = fake.transport;
        return reinterpret_cast<struct ibv_context *>(
            fake_fails("ibv_open_device") ? nullptr : made(&context, "device"));
    };
    v.ibv_close_device = [](struct ibv_context *) { return drop("device", "ibv_close_device"); };
    v.ibv_query_port = query_port;
    v.ibv_query_pkey = query_pkey;
    v._ibv_query_gid_ex = query_gid;
    v.ibv_alloc_pd = [](struct ibv_context *) {
        return reinterpret_cast<struct ibv_pd *>(
            fake_fails("ibv_alloc_pd") ? nullptr : made(&context, "domain"));
    };
    v.ibv_dealloc_pd = [](struct ibv_pd *) { return drop("domain", "ibv_dealloc_pd"); };
    v.ibv_reg_mr = reg_mr;
    v.ibv_dereg_mr = [](struct verbs_mr *mr) {
        delete mr;
        return drop("region", "ibv_dereg_mr");
    };
    v.ibv_query_device = query_device;
    v.ibv_create_cq = create_cq;
    v.ibv_destroy_cq = destroy_cq;
    v.ibv_create_qp = create_qp;
    v.ibv_destroy_qp = destroy_qp;
    v.ibv_modify_qp = modify_qp;
    v.ibv_get_async_event = get_event;
    v.ibv_ack_async_event = [](struct verbs_async_event *) { (void)drop("event", "ack"); };
    v.ibv_wc_status_str = [](int) { return "status in words"; };
    return v;
}

void fake_end()
{
    EXPECT_TRUE(fake.alive.empty())
        << fake.alive.size() << " left, one is a " << *fake.alive.begin();
    close(fake.pipe[0]);
    close(fake.pipe[1]);
}
