// fake_mlx5_verbs.cc: queue pairs of the fake device as libibverbs and libmlx5 make them: rings and
// records in memory of the user's allocator, doorbells in pages of the context. See fake_mlx5.h.
#include "tests/support/fake_mlx5.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace
{

const size_t page = 4096; // has 64 records

// What the library keeps for a context.
struct Context {
    struct mlx5_allocators allocators = {};
    std::map<uint8_t *, uint64_t> records; // page -> bits of the records in use
    std::vector<void *> uars;
    unsigned nqps = 0;
};
std::map<struct ibv_context *, Context> contexts;

struct Cq {
    struct verbs_cq base;
    struct ibv_context *context;
    uint8_t *ring;
    uint32_t *record;
    uint32_t number, completed, users;
};

struct Qp {
    struct verbs_qp base;
    struct ibv_context *context;
    Cq *cq;
    uint8_t *ring;
    uint32_t *record;
    void *doorbell;
    uint32_t entries;
};

template <class T> T *make(const char *kind)
{
    void *object = calloc(1, sizeof(T));

    fake.alive[object] = kind;
    return static_cast<T *>(object);
}

void *take(struct ibv_context *context, size_t bytes)
{
    const struct mlx5_allocators &a = contexts[context].allocators;

    if (a.alloc == nullptr) {
        ADD_FAILURE() << "rings in memory that no GPU reaches";
        return nullptr;
    }
    bytes = (bytes + page - 1) / page * page;
    void *memory = a.alloc(bytes, a.data);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % page, 0u);
    return memory;
}

void give(struct ibv_context *context, void *memory)
{
    const struct mlx5_allocators &a = contexts[context].allocators;

    if (memory)
        a.free(memory, a.data);
}

uint32_t *take_record(struct ibv_context *context)
{
    auto &records = contexts[context].records;
    auto at = records.begin();

    while (at != records.end() && at->second == ~0ull)
        ++at;
    if (at == records.end()) {
        auto *memory = static_cast<uint8_t *>(take(context, page));
        if (memory == nullptr)
            return nullptr;
        at = records.insert({memory, 0}).first;
    }
    const int slot = __builtin_ctzll(~at->second);
    at->second |= 1ull << slot;
    auto *record = reinterpret_cast<uint32_t *>(at->first + 64 * slot);
    record[0] = record[1] = 0;
    return record;
}

// The page of a record is found by its address, as the library does it.
void give_record(struct ibv_context *context, uint32_t *record)
{
    const auto address = reinterpret_cast<uintptr_t>(record);
    auto at = contexts[context].records.find(reinterpret_cast<uint8_t *>(address / page * page));

    if (record == nullptr)
        return;
    ASSERT_NE(at, contexts[context].records.end());
    at->second &= ~(1ull << (address % page / 64));
    if (at->second == 0) {
        give(context, at->first);
        contexts[context].records.erase(at);
    }
}

// Two registers a page, two pages.
void *doorbell_of(struct ibv_context *context)
{
    Context &c = contexts[context];
    const unsigned n = c.nqps++;

    if (c.uars.size() <= n / 2 % 2) {
        void *uar = aligned_alloc(page, page);
        memset(uar, 0, page);
        fake.alive[uar] = "uar";
        c.uars.push_back(uar);
    }
    return static_cast<uint8_t *>(c.uars[n / 2 % 2]) + (n % 2 ? 0xa00 : 0x800);
}

int set_context_attr(struct ibv_context *context, int attr, void *value)
{
    if (fake.fails("mlx5dv_set_context_attr"))
        return fake.fail_errno;
    EXPECT_EQ(attr, 1);
    contexts[context].allocators = *static_cast<struct mlx5_allocators *>(value);
    return 0;
}

int query_device(struct ibv_context *, struct verbs_device_attr *attr)
{
    if (fake.fails("ibv_query_device"))
        return fake.fail_errno;
    memset(attr, 0, sizeof(*attr));
    attr->max_qp_wr = fake.max_qp_wr;
    attr->max_qp_init_rd_atom = 1 << fake.reads_out;
    attr->max_qp_rd_atom = 1 << fake.reads_in;
    attr->atomic_cap = fake.atomic;
    return 0;
}

int destroy_cq(struct verbs_cq *cq)
{
    Cq *c = reinterpret_cast<Cq *>(cq);

    EXPECT_EQ(c->users, 0u);
    give(c->context, c->ring);
    give_record(c->context, c->record);
    return fake_drop(c, "vcq", "ibv_destroy_cq");
}

struct verbs_cq *create_cq(struct ibv_context *context, struct verbs_cq_init_attr *attr,
                           struct mlx5_cq_init_attr *more)
{
    if (fake.fails("mlx5dv_create_cq"))
        return nullptr;
    EXPECT_EQ(attr->cqe, 1u);
    EXPECT_EQ(more->comp_mask, 4u);
    EXPECT_EQ(more->cqe_size, 64u);
    fake.cq_flags = attr->comp_mask & VERBS_CQ_FLAGS ? attr->flags : 0;
    Cq *c = make<Cq>("vcq");
    c->context = context;
    c->ring = static_cast<uint8_t *>(take(context, 64ull * fake.cqe_count));
    c->record = c->ring ? take_record(context) : nullptr;
    if (c->record == nullptr) {
        give(context, c->ring);
        (void)fake_drop(c, "vcq", "");
        errno = ENOMEM;
        return nullptr;
    }
    for (uint32_t i = 0; i < fake.cqe_count; i++)
        c->ring[64 * i + 63] = 0xf0;
    c->number = fake_number();
    return &c->base;
}

void register_qp(Qp *q)
{
    FakeQp f;

    f.qpn = q->base.qp_num = fake_number();
    f.cqn = q->cq->number;
    f.completion = q->cq->ring;
    f.completed = &q->cq->completed;
    f.completions = fake.cqe_count;
    f.record = reinterpret_cast<uint8_t *>(q->record);
    f.sq = q->ring;
    f.depth_log2 = static_cast<uint32_t>(__builtin_ctz(q->entries));
    fake.qps[f.qpn] = f;
}

struct verbs_qp *create_qp(struct ibv_pd *, struct verbs_qp_init_attr *attr)
{
    Cq *cq = reinterpret_cast<Cq *>(attr->send_cq);
    uint32_t entries = 1;

    if (fake.fails("ibv_create_qp"))
        return nullptr;
    EXPECT_EQ(attr->qp_type, uint32_t{VERBS_RC});
    EXPECT_EQ(attr->cap.max_recv_wr, 0u);
    fake.signal_all = attr->sq_sig_all;
    while (entries < attr->cap.max_send_wr * fake.wqe_blocks)
        entries *= 2;
    Qp *q = make<Qp>("vqp");
    q->context = cq->context;
    q->cq = cq;
    q->entries = entries;
    q->ring = static_cast<uint8_t *>(take(q->context, 64ull * entries));
    q->record = q->ring ? take_record(q->context) : nullptr;
    if (q->record == nullptr) {
        give(q->context, q->ring);
        (void)fake_drop(q, "vqp", "");
        errno = ENOMEM;
        return nullptr;
    }
    q->doorbell = doorbell_of(q->context);
    cq->users++;
    register_qp(q);
    return &q->base;
}

int destroy_qp(struct verbs_qp *qp)
{
    Qp *q = reinterpret_cast<Qp *>(qp);

    q->cq->users--;
    fake.qps.erase(q->base.qp_num);
    give(q->context, q->ring);
    give_record(q->context, q->record);
    return fake_drop(q, "vqp", "ibv_destroy_qp");
}

// Bits that ibv_modify_qp needs for this state, and the state it has to come from.
struct Step {
    uint32_t from;
    int mask;
};

int modify_qp(struct verbs_qp *qp, struct verbs_qp_attr *attr, int mask)
{
    static const std::map<uint32_t, Step> steps = {
        {VERBS_STATE_RESET, {~0u, VERBS_QP_STATE}},
        {VERBS_STATE_INIT, {0, VERBS_QP_STATE | VERBS_QP_PKEY | VERBS_QP_PORT | VERBS_QP_ACCESS}},
        {VERBS_STATE_RTR,
         {1, VERBS_QP_STATE | VERBS_QP_AV | VERBS_QP_MTU | VERBS_QP_PEER | VERBS_QP_RQ_PSN |
                 VERBS_QP_READS_IN | VERBS_QP_RNR_TIMER}},
        {VERBS_STATE_RTS,
         {2, VERBS_QP_STATE | VERBS_QP_SQ_PSN | VERBS_QP_TIMEOUT | VERBS_QP_RETRY |
                 VERBS_QP_RNR_RETRY | VERBS_QP_READS_OUT}},
        {VERBS_STATE_ERROR, {~0u, VERBS_QP_STATE}}};
    const std::string name = "ibv_modify_qp " + std::to_string(attr->qp_state);
    const Step &step = steps.at(attr->qp_state);
    FakeQp &q = fake.qps.at(qp->qp_num);

    if (fake.fails(name.c_str()))
        return fake.fail_errno;
    if (mask != step.mask || (step.from != ~0u && step.from != q.state))
        return EINVAL;
    if (attr->qp_state == VERBS_STATE_INIT) {
        EXPECT_EQ(attr->pkey_index, 2); // D-C.9: where the fake has its key of a full member
    }
    fake.modified[attr->qp_state] = *attr;
    q.state = attr->qp_state;
    if (q.state == VERBS_STATE_RESET)
        q.executed = q.peer = 0;
    if (q.state == VERBS_STATE_RTR) {
        q.peer = attr->dest_qp_num;
        q.recv_psn = attr->rq_psn;
    }
    if (q.state == VERBS_STATE_RTS)
        q.send_psn = attr->sq_psn;
    return 0;
}

int query_qp(struct verbs_qp *qp, struct verbs_qp_attr *attr, int mask, struct verbs_qp_init_attr *)
{
    EXPECT_EQ(mask, int{VERBS_QP_STATE});
    if (fake.fails("ibv_query_qp"))
        return fake.fail_errno;
    attr->qp_state = fake.qps.at(qp->qp_num).state;
    return 0;
}

} // namespace

int fake_verbs_where(struct mlx5_obj *obj, uint64_t kinds)
{
    static uint32_t elsewhere[16];

    if (kinds & MLX5_OBJ_CQ) {
        const Cq *c = static_cast<const Cq *>(obj->cq.in);
        auto *out = static_cast<struct mlx5_cq_out *>(obj->cq.out);

        out->buf = c->ring;
        out->dbrec = c->record;
        out->cqe_cnt = fake.cqe_count;
        out->cqe_size = fake.cqe_size;
        out->cqn = c->number;
        if (fake.foreign_ring == 2)
            out->buf = elsewhere;
    }
    if (kinds & MLX5_OBJ_QP) {
        const Qp *q = static_cast<const Qp *>(obj->qp.in);
        auto *out = static_cast<struct mlx5_qp_out *>(obj->qp.out);

        EXPECT_EQ(out->comp_mask, 0u);
        out->dbrec = q->record;
        out->sq = {q->ring, q->entries, fake.wqe_stride};
        out->bf = {q->doorbell, 256};
        if (fake.foreign_ring == 1)
            out->sq.buf = elsewhere;
        if (fake.foreign_ring == 3)
            out->dbrec = elsewhere;
    }
    return 0;
}

void fake_close_context(struct ibv_context *context)
{
    for (void *uar : contexts[context].uars)
        (void)fake_drop(uar, "uar", "");
    EXPECT_TRUE(contexts[context].records.empty());
    contexts.erase(context);
}

void fake_verbs_calls(struct swl_verbs *verbs)
{
    verbs->ibv_query_device = query_device;
    verbs->ibv_destroy_cq = destroy_cq;
    verbs->ibv_create_qp = create_qp;
    verbs->ibv_destroy_qp = destroy_qp;
    verbs->ibv_modify_qp = modify_qp;
    verbs->ibv_query_qp = query_qp;
    verbs->mlx5dv_create_cq = create_cq;
    verbs->mlx5dv_set_context_attr = set_context_attr;
}
