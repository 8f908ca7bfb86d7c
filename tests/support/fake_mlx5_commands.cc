// fake_mlx5_commands.cc: the firmware of the fake device: capabilities, completion queues, queue
// pairs and their states. See fake_mlx5.h.
#include "tests/support/fake_mlx5.h"

#include "tests/support/mlx5_wire.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace
{

struct Ring {
    uint8_t *base;
    size_t bytes;
};
std::map<uint32_t, Ring> umems;       // by number
std::map<uint32_t, uint8_t *> cqs;    // number -> first entry
std::map<void *, uint32_t> number_of; // object -> queue pair or 0

// Answer with a status; returns what the call returns.
int answer(uint8_t *out, uint8_t status)
{
    wire::put(out, wire::status, status);
    wire::put(out, wire::syndrome, status ? 0xabc123 : 0);
    return status ? EREMOTEIO : 0;
}

// Record; >= 0: end with this error now.
int begin(const char *name, const void *in, size_t bytes, void *out, size_t out_bytes)
{
    const auto *at = static_cast<const uint8_t *>(in);
    const auto opcode = static_cast<uint32_t>(wire::get(at, wire::opcode));
    char text[64];

    snprintf(text, sizeof(text), "%s 0x%03x", name, opcode);
    fake.commands.push_back({opcode, std::vector<uint8_t>(at, at + bytes)});
    memset(out, 0, out_bytes);
    if (!fake.fails(text))
        return -1;
    if (fake.fail_status == 0)
        return fake.fail_errno;
    return answer(static_cast<uint8_t *>(out), fake.fail_status);
}

int general_cmd(struct ibv_context *, const void *in, size_t bytes, void *out, size_t out_bytes)
{
    const int failed = begin("general_cmd", in, bytes, out, out_bytes);
    auto *at = static_cast<uint8_t *>(out);

    if (failed >= 0)
        return failed;
    wire::put(at, wire::log_max_qp_sz, fake.log_max_qp);
    wire::put(at, wire::log_max_ra_req_qp, fake.reads_out);
    wire::put(at, wire::log_max_ra_res_qp, fake.reads_in);
    wire::put(at, wire::cqe_version, fake.cqe_version);
    wire::put(at, wire::atomic, fake.atomic);
    wire::put(at, wire::ece_support, fake.ece);
    wire::put(at, wire::sq_ts_format, fake.ts_format);
    wire::put(at, wire::log_bf_reg_size, 9);
    return 0;
}

// [offset, offset + bytes) of a registered piece of memory, or NULL.
uint8_t *inside(uint64_t umem, uint64_t offset, uint64_t bytes)
{
    auto at = umems.find(static_cast<uint32_t>(umem));

    return at == umems.end() || offset + bytes > at->second.bytes ? nullptr
                                                                  : at->second.base + offset;
}

bool create_cq(const uint8_t *in, uint32_t number)
{
    const uint64_t bytes = 64ull << wire::get(in, wire::log_cq_size);
    uint8_t *ring =
        inside(wire::get(in, wire::cq_umem_id), wire::get(in, wire::cq_umem_offset), bytes);

    cqs[number] = ring;
    return ring &&
           inside(wire::get(in, wire::cqc_dbr_umem_id), wire::get(in, wire::cqc_dbr_addr), 8);
}

bool create_qp(const uint8_t *in, uint32_t number)
{
    const uint64_t bytes = 64ull << wire::get(in, wire::log_sq_size);
    const auto cqn = static_cast<uint32_t>(wire::get(in, wire::cqn_snd));
    FakeQp q;

    q.qpn = number;
    q.cqn = cqn;
    q.completion = cqs.count(cqn) ? cqs[cqn] : nullptr;
    q.record = inside(wire::get(in, wire::dbr_umem_id), wire::get(in, wire::dbr_addr), 8);
    q.sq = inside(wire::get(in, wire::wq_umem_id), wire::get(in, wire::wq_umem_offset), bytes);
    q.depth_log2 = static_cast<uint32_t>(wire::get(in, wire::log_sq_size));
    fake.qps[number] = q;
    return q.completion && q.record && q.sq && wire::get(in, wire::pd) == 0x4711;
}

struct mlx5dv_devx_obj *obj_create(struct ibv_context *, const void *in, size_t bytes, void *out,
                                   size_t out_bytes)
{
    const int failed = begin("obj_create", in, bytes, out, out_bytes);
    const auto *at = static_cast<const uint8_t *>(in);
    const uint64_t opcode = wire::get(at, wire::opcode);
    const bool is_qp = opcode == 0x500;
    const uint32_t number = fake_number();

    if (failed >= 0) {
        errno = failed;
        return nullptr;
    }
    if ((is_qp && !create_qp(at, number)) || (opcode == 0x400 && !create_cq(at, number))) {
        errno = answer(static_cast<uint8_t *>(out), 3);
        return nullptr;
    }
    wire::put(static_cast<uint8_t *>(out), wire::number, number);
    wire::put(static_cast<uint8_t *>(out), wire::out_ece, 0x70000000u | number);
    auto *object = static_cast<struct mlx5dv_devx_obj *>(calloc(1, 8));
    fake.alive[object] = is_qp ? "qp" : opcode == 0x400 ? "cq" : "mkey";
    number_of[object] = is_qp ? number : 0;
    return object;
}

// State after the command in this state, or -1: refused.
int next_state(uint32_t opcode, uint32_t state)
{
    switch (opcode) {
    case 0x502:
        return state == 0 ? 1 : -1;
    case 0x503:
        return state == 1 ? 2 : -1;
    case 0x504:
        return state == 2 ? 3 : -1;
    case 0x507:
        return state == 0 ? -1 : 6;
    case 0x50a:
        return 0;
    default:
        return -1;
    }
}

int obj_modify(struct mlx5dv_devx_obj *object, const void *in, size_t bytes, void *out,
               size_t out_bytes)
{
    const auto *at = static_cast<const uint8_t *>(in);
    const int failed = begin("obj_modify", in, bytes, out, out_bytes);
    FakeQp &q = fake.qps.at(number_of.at(object));
    const int next = next_state(fake.commands.back().opcode, q.state);

    EXPECT_EQ(wire::get(at, wire::number), q.qpn);
    if (failed >= 0)
        return failed;
    if (next < 0)
        return answer(static_cast<uint8_t *>(out), 0x10);
    q.state = static_cast<uint32_t>(next);
    if (next == 0)
        q.executed = q.peer = 0;
    if (next == 2) {
        q.peer = static_cast<uint32_t>(wire::get(at, wire::remote_qpn));
        q.recv_psn = static_cast<uint32_t>(wire::get(at, wire::next_rcv_psn));
    }
    if (next == 3)
        q.send_psn = static_cast<uint32_t>(wire::get(at, wire::next_send_psn));
    return 0;
}

int obj_query(struct mlx5dv_devx_obj *object, const void *in, size_t bytes, void *out,
              size_t out_bytes)
{
    const int failed = begin("obj_query", in, bytes, out, out_bytes);

    if (failed >= 0)
        return failed;
    wire::put(static_cast<uint8_t *>(out), wire::state, fake.qps.at(number_of.at(object)).state);
    return 0;
}

int obj_destroy(struct mlx5dv_devx_obj *object)
{
    const std::string kind = fake.alive.count(object) ? fake.alive[object] : "object";

    fake.qps.erase(number_of[object]);
    number_of.erase(object);
    return fake_drop(object, kind.c_str(), "mlx5dv_devx_obj_destroy");
}

int query_eqn(struct ibv_context *, uint32_t vector, uint32_t *eqn)
{
    EXPECT_EQ(vector, 0u);
    *eqn = 7;
    return fake.fails("mlx5dv_devx_query_eqn") ? fake.fail_errno : 0;
}

} // namespace

uint32_t fake_number()
{
    static uint32_t last = 0x100;

    return ++last;
}

void fake_umem_add(uint32_t number, void *base, size_t bytes)
{
    umems[number] = {static_cast<uint8_t *>(base), bytes};
}

void fake_command_calls(struct swl_verbs *verbs)
{
    verbs->mlx5dv_devx_general_cmd = general_cmd;
    verbs->mlx5dv_devx_obj_create = obj_create;
    verbs->mlx5dv_devx_obj_query = obj_query;
    verbs->mlx5dv_devx_obj_modify = obj_modify;
    verbs->mlx5dv_devx_obj_destroy = obj_destroy;
    verbs->mlx5dv_devx_query_eqn = query_eqn;
}
