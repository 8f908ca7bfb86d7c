// fake_mlx5.cc: rdma-core and the device; see fake_mlx5.h.
#include "tests/support/fake_mlx5.h"
#include "tests/support/folder.h"

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <cerrno>
#include <cstdlib>
#include <cstring>

FakeMlx5 fake;

bool FakeMlx5::fails(const char *name)
{
    if (std::string(name).compare(0, fail_name.size(), fail_name) != 0)
        return false;
    if (++calls != fail_at)
        return false;
    failed = name;
    errno = fail_errno;
    return true;
}

int FakeMlx5::count(const std::string &kind) const
{
    int n = 0;

    for (const auto &object : alive)
        n += object.second == kind;
    return n;
}

const FakeCommand *FakeMlx5::last(uint32_t opcode) const
{
    for (size_t i = commands.size(); i-- > 0;)
        if (commands[i].opcode == opcode)
            return &commands[i];
    return nullptr;
}

std::string FakeMlx5::leaks() const
{
    std::string text;

    for (const auto &object : alive)
        text += object.second + " ";
    return text;
}

void FakeMlx5::break_qp(uint32_t qpn, uint32_t entry, uint8_t syndrome)
{
    FakeQp &q = qps.at(qpn);

    uint8_t *at = q.completion + 64ull * (entry % q.completions);

    q.state = 6;
    memset(at, 0, 64);
    at[55] = syndrome;
    at[60] = static_cast<uint8_t>(entry >> 8);
    at[61] = static_cast<uint8_t>(entry);
    at[63] = 13 << 4;
}

int open_fds()
{
    return open_files();
}

namespace
{

template <class T> T *make(const char *kind, size_t bytes = sizeof(void *))
{
    void *object = calloc(1, bytes);

    fake.alive[object] = kind;
    return static_cast<T *>(object);
}

} // namespace

int fake_drop(void *object, const char *kind, const char *call)
{
    auto at = fake.alive.find(object);

    if (at == fake.alive.end() || at->second != kind) {
        ADD_FAILURE() << call << " of something that is no " << kind;
        return EINVAL;
    }
    fake.alive.erase(at);
    free(object);
    return call[0] && fake.fails(call) ? fake.fail_errno : 0;
}

namespace
{

// ---- devices

struct ibv_device **get_device_list(int *n)
{
    if (fake.fails("ibv_get_device_list"))
        return nullptr;
    struct ibv_device **list = make<struct ibv_device *>("list", 8 * (fake.ports.size() + 1));
    for (size_t i = 0; i < fake.ports.size(); i++)
        list[i] = reinterpret_cast<struct ibv_device *>(i + 1);
    *n = static_cast<int>(fake.ports.size());
    return list;
}

const char *get_device_name(struct ibv_device *device)
{
    static const char *const names[] = {"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"};

    return names[reinterpret_cast<uintptr_t>(device) - 1];
}

struct ibv_context *open_named(struct ibv_device *device, const char *call)
{
    if (fake.fails(call))
        return nullptr;
    auto *context = make<uintptr_t>("context");
    *context = reinterpret_cast<uintptr_t>(device) - 1;
    return reinterpret_cast<struct ibv_context *>(context);
}

struct ibv_context *open_device(struct ibv_device *device, struct mlx5_context_attr *)
{
    return open_named(device, "mlx5dv_open_device");
}

struct ibv_context *open_plain(struct ibv_device *device)
{
    return open_named(device, "ibv_open_device");
}

const FakePort &port_of(struct ibv_context *context)
{
    return fake.ports[*reinterpret_cast<uintptr_t *>(context)];
}

int query_port(struct ibv_context *context, uint8_t port, struct verbs_port_attr *attr)
{
    if (port != 1)
        return EINVAL;
    if (fake.fails("ibv_query_port"))
        return fake.fail_errno;
    const FakePort &p = port_of(context);
    attr->state = VERBS_PORT_ACTIVE;
    attr->active_mtu = p.mtu;
    attr->gid_tbl_len = 4;
    attr->lid = p.lid;
    attr->link_layer = p.ethernet ? VERBS_LINK_ETHERNET : VERBS_LINK_INFINIBAND;
    attr->flags = p.flags;
    attr->pkey_tbl_len = 3;
    return 0;
}

int query_pkey(struct ibv_context *context, uint8_t port, int index, uint16_t *key_p)
{
    if (port != 1 || index > 2)
        return EINVAL;
    *key_p = htons(port_of(context).pkeys[index]);
    return 0;
}

int query_gid_ex(struct ibv_context *context, uint32_t, uint32_t index, struct verbs_gid_entry *e,
                 uint32_t, size_t)
{
    const bool ethernet = port_of(context).ethernet;

    if (index != (ethernet ? 3u : 0u))
        return ENODATA;
    if (fake.fails("_ibv_query_gid_ex"))
        return fake.fail_errno;
    memset(e, 0, sizeof(*e));
    e->gid_type = ethernet ? VERBS_GID_ROCE_V2 : VERBS_GID_IB;
    if (ethernet) {
        e->gid[10] = e->gid[11] = 0xff;
        e->gid[12] = 10;
    } else {
        e->gid[0] = 0xfe;
        e->gid[1] = 0x80;
    }
    e->gid[15] = static_cast<uint8_t>(1 + *reinterpret_cast<uintptr_t *>(context));
    return 0;
}

struct ibv_pd *alloc_pd(struct ibv_context *)
{
    return fake.fails("ibv_alloc_pd") ? nullptr : make<struct ibv_pd>("pd");
}

struct ibv_ah *create_ah(struct ibv_pd *, struct verbs_ah_attr *attr)
{
    if (fake.fails("ibv_create_ah"))
        return nullptr;
    fake.ah = *attr;
    return make<struct ibv_ah>("ah");
}

int init_obj(struct mlx5_obj *obj, uint64_t kind)
{
    static struct mlx5_av av;

    if (fake.fails("mlx5dv_init_obj"))
        return fake.fail_errno;
    if (kind == MLX5_OBJ_PD)
        static_cast<struct mlx5_pd_out *>(obj->pd.out)->pdn = 0x4711;
    if (kind & (MLX5_OBJ_QP | MLX5_OBJ_CQ))
        return fake_verbs_where(obj, kind);
    for (uint8_t i = 0; i < 6; i++)
        av.rmac[i] = static_cast<uint8_t>(0xb0 + i);
    if (kind == MLX5_OBJ_AH)
        static_cast<struct mlx5_ah_out *>(obj->ah.out)->av = &av;
    return 0;
}

// ---- memory

struct verbs_mr *make_mr(uint64_t address, size_t bytes, int access)
{
    auto *mr = make<struct verbs_mr>("mr", sizeof(struct verbs_mr));

    mr->addr = reinterpret_cast<void *>(address);
    mr->length = bytes;
    mr->handle = static_cast<uint32_t>(access);
    mr->lkey = fake_number() << 8 | 1;
    mr->rkey = mr->lkey ^ 0x80000000u;
    fake.accesses.push_back(access);
    return mr;
}

struct verbs_mr *reg_mr(struct ibv_pd *, void *ptr, size_t bytes, int access)
{
    if (fake.fails("ibv_reg_mr"))
        return nullptr;
    errno = ENOMEM;
    if (bytes > fake.max_mr_bytes)
        return nullptr;
    if (fake.count("gpu") && !fake.peer_memory && reinterpret_cast<uintptr_t>(ptr) != 0) {
        for (const auto &object : fake.alive)
            if (object.second == "gpu" && object.first <= ptr &&
                ptr < static_cast<char *>(object.first) + (1 << 26)) {
                errno = EFAULT;
                return nullptr;
            }
    }
    return make_mr(reinterpret_cast<uintptr_t>(ptr), bytes, access);
}

struct verbs_mr *reg_mr_iova2(struct ibv_pd *pd, void *ptr, size_t bytes, uint64_t iova,
                              unsigned access)
{
    EXPECT_EQ(iova, reinterpret_cast<uintptr_t>(ptr));
    return reg_mr(pd, ptr, bytes, static_cast<int>(access));
}

struct verbs_mr *reg_dmabuf_mr(struct ibv_pd *, uint64_t offset, size_t bytes, uint64_t iova,
                               int fd, int access)
{
    EXPECT_NE(fake_dmabuf_memory(fd), nullptr);
    if (fake.fails("ibv_reg_dmabuf_mr"))
        return nullptr;
    fake.dmabuf_offset = offset;
    fake.dmabuf_iova = iova;
    if (!fake.mr_dmabuf) {
        errno = EOPNOTSUPP;
        return nullptr;
    }
    return make_mr(iova, bytes, access);
}

struct mlx5_umem *make_umem(void *base, size_t bytes)
{
    auto *umem = make<struct mlx5_umem>("umem");

    umem->umem_id = fake_number();
    fake_umem_add(umem->umem_id, base, bytes);
    return umem;
}

struct mlx5_umem *umem_reg_ex(struct ibv_context *, struct mlx5_umem_in *in)
{
    void *memory = fake_dmabuf_memory(in->dmabuf_fd);

    EXPECT_NE(memory, nullptr);
    if (fake.fails("mlx5dv_devx_umem_reg_ex"))
        return nullptr;
    fake.umem_in = *in;
    if (fake.umem_dmabuf)
        return make_umem(memory, in->size);
    errno = EFAULT;
    return nullptr;
}

struct mlx5_umem *umem_reg(struct ibv_context *, void *ptr, size_t bytes, uint32_t access)
{
    EXPECT_EQ(access, 1u);
    if (fake.fails("mlx5dv_devx_umem_reg"))
        return nullptr;
    if (fake.count("gpu") && !fake.peer_memory) {
        errno = EFAULT;
        return nullptr;
    }
    return make_umem(ptr, bytes);
}

struct mlx5_uar *alloc_uar(struct ibv_context *, uint32_t kind)
{
    const uint32_t bit = kind == MLX5_UAR_NC_DEDICATED ? 1u : kind == MLX5_UAR_NC ? 2u : 4u;

    fake.uar_asked.push_back(kind);
    if (fake.fails("mlx5dv_devx_alloc_uar"))
        return nullptr;
    errno = EOPNOTSUPP;
    if (!(fake.uar_kinds & bit))
        return nullptr;
    auto *uar = make<struct mlx5_uar>("uar", sizeof(struct mlx5_uar));
    uar->reg_addr = uar;
    uar->page_id = 0x321;
    return uar;
}

} // namespace

struct swl_verbs fake_verbs()
{
    struct swl_verbs v;

    memset(&v, 0, sizeof(v));
    v.ibv_get_device_list = get_device_list;
    v.ibv_free_device_list = [](struct ibv_device **l) { (void)fake_drop(l, "list", ""); };
    v.ibv_get_device_name = get_device_name;
    v.ibv_open_device = open_plain;
    v.ibv_close_device = [](struct ibv_context *c) {
        fake_close_context(c);
        return fake_drop(c, "context", "ibv_close_device");
    };
    v.ibv_query_port = query_port;
    v.ibv_query_pkey = query_pkey;
    v._ibv_query_gid_ex = query_gid_ex;
    v.ibv_alloc_pd = alloc_pd;
    v.ibv_dealloc_pd = [](struct ibv_pd *p) { return fake_drop(p, "pd", "ibv_dealloc_pd"); };
    v.ibv_reg_mr = reg_mr;
    v.ibv_reg_mr_iova2 = reg_mr_iova2;
    v.ibv_reg_dmabuf_mr = reg_dmabuf_mr;
    v.ibv_dereg_mr = [](struct verbs_mr *m) { return fake_drop(m, "mr", "ibv_dereg_mr"); };
    v.ibv_create_ah = create_ah;
    v.ibv_destroy_ah = [](struct ibv_ah *a) { return fake_drop(a, "ah", "ibv_destroy_ah"); };
    v.mlx5dv_is_supported = [](struct ibv_device *) { return true; };
    v.mlx5dv_open_device = open_device;
    v.mlx5dv_init_obj = init_obj;
    v.mlx5dv_devx_umem_reg = umem_reg;
    v.mlx5dv_devx_umem_reg_ex = umem_reg_ex;
    v.mlx5dv_devx_umem_dereg = [](struct mlx5_umem *u) {
        return fake_drop(u, "umem", "mlx5dv_devx_umem_dereg");
    };
    v.mlx5dv_devx_alloc_uar = alloc_uar;
    v.mlx5dv_devx_free_uar = [](struct mlx5_uar *u) { (void)fake_drop(u, "uar", ""); };
    fake_command_calls(&v);
    fake_verbs_calls(&v);
    return v;
}
