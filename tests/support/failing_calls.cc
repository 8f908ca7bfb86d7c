// failing_calls.cc: see failing_calls.h.
#include "tests/support/failing_calls.h"
#include "tests/support/folder.h"

#include "src/base/error.h"
#include "src/runtime/runtime.h"
#include "transport/nic.h"

#include <dlfcn.h>

#include <map>

FailingCalls failing;

namespace
{

void **victim; // its slot tells a rank from others; NULL: nobody is watched
std::map<void *, std::string> held;

void hold(void *object, const char *kind)
{
    held[object] = kind;
}

bool fails(const char *name)
{
    const std::string is = name;

    if (!victim || swl_thread_slot() != victim || is.compare(0, failing.only.size(), failing.only))
        return false;
    failing.calls++;
    if (failing.at == 0 || failing.calls < failing.at ||
        (failing.calls > failing.at && !(failing.on && is == failing.failed)))
        return false;
    failing.failed = name;
    return true;
}

template <class F> F next_of(F, const char *name)
{
    return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

} // namespace

void FailingCalls::watch()
{
    calls = 0;
    failed.clear();
    victim = swl_thread_slot();
}

void FailingCalls::stop()
{
    victim = nullptr;
}

std::string held_objects()
{
    std::map<std::string, int> kinds;
    std::string text;

    for (const auto &object : held)
        kinds[object.second]++;
    for (const auto &kind : kinds)
        text += kind.first + " " + std::to_string(kind.second) + " ";
    return text;
}

int held_descriptors()
{
    return open_files();
}

/* ---- the runtime ---- */

#define SWL_SEEN __attribute__((visibility("default")))

/* A call that takes nothing: it fails before it does anything. */
#define RUNTIME(name, params, args)                                                                \
    SWL_SEEN cudaError_t name params                                                               \
    {                                                                                              \
        static const auto real = next_of(&name, #name);                                            \
                                                                                                   \
        return fails(#name) ? cudaErrorUnknown : real args;                                        \
    }
/* A call that makes an object, and the one that gives it back. */
#define RUNTIME_MAKE(name, params, args, object)                                                   \
    SWL_SEEN cudaError_t name params                                                               \
    {                                                                                              \
        static const auto real = next_of(&name, #name);                                            \
        cudaError_t error = fails(#name) ? cudaErrorUnknown : real args;                           \
                                                                                                   \
        if (error == cudaSuccess)                                                                  \
            hold((void *)(object), #name);                                                         \
        return error;                                                                              \
    }
#define RUNTIME_DROP(name, params, args, object)                                                   \
    SWL_SEEN cudaError_t name params                                                               \
    {                                                                                              \
        static const auto real = next_of(&name, #name);                                            \
        const bool bad = fails(#name);                                                             \
                                                                                                   \
        held.erase((void *)(object));                                                              \
        const cudaError_t error = real args;                                                       \
        return bad ? cudaErrorUnknown : error;                                                     \
    }

extern "C" {

RUNTIME(swl_gpu_count, (int *n), (n))
RUNTIME(swl_gpu_current, (int *device), (device))
RUNTIME(swl_gpu_use, (int device), (device))
RUNTIME(swl_gpu_info, (int device, struct swl_gpu_info *info), (device, info))
RUNTIME(swl_gpu_pci, (int device, char *text, size_t bytes), (device, text, bytes))
RUNTIME(swl_gpu_pending_error, (void), ())
RUNTIME_MAKE(swl_gpu_malloc, (void **ptr, size_t bytes), (ptr, bytes), *ptr)
RUNTIME_DROP(swl_gpu_free, (void *ptr), (ptr), ptr)
RUNTIME_MAKE(swl_gpu_host_malloc, (void **ptr, size_t bytes), (ptr, bytes), *ptr)
RUNTIME_DROP(swl_gpu_host_free, (void *ptr), (ptr), ptr)
RUNTIME(swl_gpu_copy, (void *to, const void *from, size_t bytes, cudaStream_t s),
        (to, from, bytes, s))
RUNTIME(swl_gpu_fill, (void *to, int byte, size_t bytes, cudaStream_t s), (to, byte, bytes, s))
RUNTIME(swl_gpu_where,
        (const void *ptr, enum swl_gpu_memory_kind *place, void **base, size_t *bytes),
        (ptr, place, base, bytes))
RUNTIME_MAKE(swl_gpu_shared_malloc, (void **ptr, size_t bytes, struct swl_gpu_share *share),
             (ptr, bytes, share), *ptr)
RUNTIME_DROP(swl_gpu_shared_free, (void *ptr), (ptr), ptr)
RUNTIME(swl_gpu_shared_map, (const struct swl_gpu_share *share, void **ptr), (share, ptr))
RUNTIME(swl_gpu_shared_find, (const void *ptr, struct swl_gpu_share *share, uint64_t *offset),
        (ptr, share, offset))
RUNTIME(swl_gpu_peer_access, (int device, const void *ptr), (device, ptr))
RUNTIME_MAKE(swl_gpu_page_create,
             (struct swl_gpu_page * page, size_t bytes, struct swl_gpu_share *share),
             (page, bytes, share), page)
RUNTIME_MAKE(swl_gpu_page_join, (struct swl_gpu_page * page, const struct swl_gpu_share *share),
             (page, share), page)
RUNTIME_DROP(swl_gpu_page_close, (struct swl_gpu_page * page), (page), page)
RUNTIME_MAKE(swl_gpu_stream_create, (cudaStream_t * stream), (stream), *stream)
RUNTIME_DROP(swl_gpu_stream_destroy, (cudaStream_t stream), (stream), stream)
RUNTIME(swl_gpu_stream_wait, (cudaStream_t stream, uint64_t ns), (stream, ns))
RUNTIME(swl_gpu_stream_capturing, (cudaStream_t stream, bool *capturing), (stream, capturing))
RUNTIME_MAKE(swl_gpu_event_create, (cudaEvent_t * event), (event), *event)
RUNTIME_DROP(swl_gpu_event_destroy, (cudaEvent_t event), (event), event)
RUNTIME(swl_gpu_event_record, (cudaEvent_t event, cudaStream_t stream), (event, stream))
RUNTIME(swl_gpu_event_done, (cudaEvent_t event, bool *done), (event, done))
RUNTIME(swl_gpu_stream_wait_event, (cudaStream_t stream, cudaEvent_t event), (stream, event))
RUNTIME(swl_gpu_block_threads, (const struct swl_gpu_kernel *kernel, uint32_t *threads),
        (kernel, threads))
RUNTIME(swl_gpu_preload, (const struct swl_gpu_kernel *kernel, size_t bytes), (kernel, bytes))
RUNTIME_MAKE(swl_gpu_mutex_create, (struct swl_gpu_mutex * *mutex), (mutex), *mutex)

/* Mappings may have the address of the memory: they are counted by a name of their own. */
SWL_SEEN cudaError_t swl_gpu_shared_unmap(void *ptr)
{
    static const auto real = next_of(&swl_gpu_shared_unmap, "swl_gpu_shared_unmap");
    const bool bad = fails("swl_gpu_shared_unmap");
    const cudaError_t error = real(ptr);

    return bad ? cudaErrorUnknown : error;
}

SWL_SEEN void swl_gpu_mutex_destroy(struct swl_gpu_mutex *mutex)
{
    static const auto real = next_of(&swl_gpu_mutex_destroy, "swl_gpu_mutex_destroy");

    held.erase(mutex);
    real(mutex);
}

/* ---- NCCL ---- */

#define NCCL(name, params, args)                                                                   \
    SWL_SEEN ncclResult_t name params                                                              \
    {                                                                                              \
        static const auto real = next_of(&name, #name);                                            \
                                                                                                   \
        return fails(#name) ? ncclUnhandledCudaError : real args;                                  \
    }

NCCL(ncclCommCount, (const ncclComm_t comm, int *n), (comm, n))
NCCL(ncclCommUserRank, (const ncclComm_t comm, int *n), (comm, n))
NCCL(ncclCommCuDevice, (const ncclComm_t comm, int *n), (comm, n))
NCCL(ncclGetVersion, (int *n), (n))
NCCL(ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t *error), (comm, error))
NCCL(ncclAllGather,
     (const void *from, void *to, size_t n, ncclDataType_t type, ncclComm_t comm, cudaStream_t s),
     (from, to, n, type, comm, s))

/* ---- NICs ---- */

} // extern "C"

namespace
{

/* One table before each kind's own. */
template <int kind> struct Nic {
    static const struct swl_nic_ops *real;

    static ncclResult_t made_to_fail(const char *name)
    {
        return swl_fail(ncclSystemError, "%s was made to fail", name);
    }
    static ncclResult_t create(struct swl_nic **nic, const struct swl_nic_config *config)
    {
        const ncclResult_t rc =
            fails("nic create") ? made_to_fail("nic create") : real->create(nic, config);

        if (rc == ncclSuccess) {
            hold(*nic, "nic create");
            (*nic)->ops = table();
        }
        return rc;
    }
    static ncclResult_t destroy(struct swl_nic *nic)
    {
        const bool bad = fails("nic destroy");

        held.erase(nic);
        const ncclResult_t rc = real->destroy(nic);
        return bad ? made_to_fail("nic destroy") : rc;
    }
    static ncclResult_t reg_mr(struct swl_nic *nic, void *ptr, uint64_t bytes, unsigned access,
                               struct swl_nic_region *region)
    {
        return fails("nic reg_mr") ? made_to_fail("nic reg_mr")
                                   : real->reg_mr(nic, ptr, bytes, access, region);
    }
    static ncclResult_t dereg_mr(struct swl_nic *nic, const struct swl_nic_region *region)
    {
        const bool bad = fails("nic dereg_mr");
        const ncclResult_t rc = real->dereg_mr(nic, region);

        return bad ? made_to_fail("nic dereg_mr") : rc;
    }
    static ncclResult_t create_qp(struct swl_nic *nic, uint32_t *qp)
    {
        return fails("nic create_qp") ? made_to_fail("nic create_qp") : real->create_qp(nic, qp);
    }
    static ncclResult_t address(struct swl_nic *nic, uint32_t qp, struct swl_nic_address *address)
    {
        return fails("nic address") ? made_to_fail("nic address") : real->address(nic, qp, address);
    }
    static ncclResult_t connect(struct swl_nic *nic, uint32_t qp,
                                const struct swl_nic_address *peer)
    {
        return fails("nic connect") ? made_to_fail("nic connect") : real->connect(nic, qp, peer);
    }
    static ncclResult_t view(struct swl_nic *nic, uint32_t qp, struct swl_qp *view)
    {
        return fails("nic view") ? made_to_fail("nic view") : real->view(nic, qp, view);
    }
    static const struct swl_nic_ops *table()
    {
        static struct swl_nic_ops ops;

        ops = *real;
        ops.create = create;
        ops.destroy = destroy;
        ops.reg_mr = reg_mr;
        ops.dereg_mr = dereg_mr;
        ops.create_qp = create_qp;
        ops.address = address;
        ops.connect = connect;
        ops.view = view;
        return &ops;
    }
    static const struct swl_nic_ops *before(const struct swl_nic_ops *ops)
    {
        real = ops;
        return table();
    }
};
template <int kind> const struct swl_nic_ops *Nic<kind>::real;

} // namespace

extern "C" const struct swl_nic_ops *__real_swl_soft_ops(void);
extern "C" const struct swl_nic_ops *__real_swl_tcp_ops(void);
extern "C" const struct swl_nic_ops *__wrap_swl_soft_ops(void);
extern "C" const struct swl_nic_ops *__wrap_swl_tcp_ops(void);

extern "C" const struct swl_nic_ops *__wrap_swl_soft_ops(void)
{
    return Nic<0>::before(__real_swl_soft_ops());
}

extern "C" const struct swl_nic_ops *__wrap_swl_tcp_ops(void)
{
    return Nic<1>::before(__real_swl_tcp_ops());
}
