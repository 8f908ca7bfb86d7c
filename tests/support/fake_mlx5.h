// fake_mlx5.h: rdma-core, an mlx5 device and the device runtime that only record, for tests of the
// mlx5 NIC without hardware. Every call that may fail is counted and can be made to fail; every
// object is counted until it is given back; firmware commands are kept with their bytes, and queue
// pairs obey the device's state machine.
#pragma once

#include "transport/rdma_core/verbs.h"

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

// A command as the device saw it.
struct FakeCommand {
    uint32_t opcode;
    std::vector<uint8_t> in;
};

// A queue pair as the device has it. States as in the firmware's table.
struct FakeQp {
    uint32_t qpn = 0, cqn = 0, state = 0;
    uint8_t *completion = nullptr; /* first entry of its completion queue */
    uint32_t *completed = nullptr; /* completions of that since its creation; NULL: collapsed */
    uint32_t completions = 1;      /* entries of it */
    uint8_t *record = nullptr;
    uint8_t *sq = nullptr;
    uint32_t depth_log2 = 0;
    uint32_t peer = 0, send_psn = 0, recv_psn = 0; /* as connected */
    uint32_t executed = 0;                         /* entries since the last reset */
};

struct FakePort {
    bool ethernet = true;
    uint8_t mtu = 5, flags = 0;
    uint16_t lid = 0;
    uint16_t pkeys[3] = {0, 0x7fff, 0x8123};
};

struct FakeMlx5 {
    // ---- the machine; changed by tests before use
    std::vector<FakePort> ports; // one device mlx5_<i> for each
    bool gpu_dmabuf = true;      // the driver exports dmabufs
    bool umem_dmabuf = true;     // the kernel takes them for rings
    bool mr_dmabuf = true;       // the kernel takes them for regions
    bool peer_memory = true;     // nvidia-peermem is loaded
    uint32_t uar_kinds = 7;      // bit 0: dedicated, 1: uncached, 2: write-combining
    cudaError_t map_error = cudaSuccess;
    uint32_t log_max_qp = 15, reads_out = 4, reads_in = 4, cqe_version = 1, ts_format = 0;
    bool atomic = true, ece = false;
    size_t max_mr_bytes = SIZE_MAX;                                         // of a region
    uint32_t wqe_blocks = 3, wqe_stride = 64, cqe_size = 64, cqe_count = 2; // as verbs make queues
    int max_qp_wr = 32768;
    int foreign_ring =
        0; // in memory of the library's own: 1 the send queue, 2 completions, 3 record

    // ---- failures: the call number fail_at (from 1) among all, or among those whose name begins
    // with fail_name, fails with fail_errno; commands then with fail_status if that is not 0
    int fail_at = 0;
    std::string fail_name;
    int fail_errno = 12;
    uint8_t fail_status = 0;
    void fail(const std::string &name, int at = 1)
    {
        fail_name = name;
        fail_at = at;
        calls = 0;
    }

    // ---- what happened
    int calls = 0;
    std::string failed; // name of the call that was made to fail
    std::vector<FakeCommand> commands;
    std::map<void *, std::string> alive; // object -> kind
    std::map<uint32_t, FakeQp> qps;      // by number
    struct mlx5_umem_in umem_in = {};    // of the last mlx5dv_devx_umem_reg_ex
    std::vector<uint32_t> uar_asked;
    struct verbs_ah_attr ah = {};
    std::vector<int> accesses; // of registered regions
    uint64_t dmabuf_offset = 0, dmabuf_iova = 0;
    int pinned_bytes = 0;
    struct verbs_qp_attr modified[7] = {}; // the last for each state
    uint32_t cq_flags = 0;                 // of the last mlx5dv_create_cq
    int signal_all = -1;                   // of the last ibv_create_qp

    // true: this call is to fail
    bool fails(const char *name);
    int count(const std::string &kind) const; // alive objects
    const FakeCommand *last(uint32_t opcode) const;
    // Move the queue pair to the error state, with a completion for this entry.
    void break_qp(uint32_t qpn, uint32_t entry, uint8_t syndrome);
    std::string leaks() const; // "" = everything was given back
};
extern FakeMlx5 fake;

struct swl_verbs fake_verbs();
int open_fds();

// Execute what was posted to all queue pairs, as the device would: keys, bounds, states and packet
// numbers are checked. The device does so by itself; the fake when it is asked.
void fake_run();

// Between the files of the fake.
void fake_command_calls(struct swl_verbs *verbs); // the part of the table in fake_mlx5_commands.cc
void fake_verbs_calls(struct swl_verbs *verbs);   // the part in fake_mlx5_verbs.cc
int fake_verbs_where(struct mlx5_obj *obj, uint64_t kinds); // queue pairs and completion queues
void fake_close_context(struct ibv_context *context);
uint32_t fake_number(); // of a new object
void fake_umem_add(uint32_t number, void *base, size_t bytes);
// Give back; a stranger or a second time is a failure of the test. Returns what the call returns.
int fake_drop(void *object, const char *kind, const char *call);
// The memory behind a dmabuf that is still open.
void *fake_dmabuf_memory(int fd);
