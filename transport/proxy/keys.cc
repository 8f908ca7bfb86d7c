/* keys.cc: see keys.h. Layer: transport/proxy. Owns the table and the dma. */
#include "transport/proxy/keys.h"

#include "src/base/error.h"
#include "src/base/memory.h"
#include "transport/host/core.cuh"
#include "transport/host/dma.h"
#include "transport/host/host.h"
#include "transport/host/words.h"

#include <stdlib.h>

struct swl_keys {
    struct soft_port port; /* its regions and users */
    struct swl_dma *dma;
    uint64_t nonce, timeout_ns;
};

namespace
{

struct inside {
    struct swl_keys *keys;

    explicit inside(struct swl_keys *k) : keys(k)
    {
        soft_enter(host_words(), &k->port);
    }
    ~inside()
    {
        soft_leave(host_words(), &keys->port);
    }
    inside(const inside &) = delete;
    inside &operator=(const inside &) = delete;
};

/* NULL: not allowed. Inside. */
uint8_t *reach(const struct swl_keys *keys, const struct swl_span *s, uint32_t access)
{
    uint8_t *memory = soft_reach(host_words(), &keys->port, s->key, s->address, s->total, access);

    if (memory == nullptr || s->offset > s->total || s->bytes > s->total - s->offset)
        return nullptr;
    return memory + s->offset;
}

uint32_t get(struct swl_keys *keys, const struct swl_span *from, void *to, uint32_t access,
             uint32_t refused)
{
    const inside guard(keys);
    const uint8_t *memory = reach(keys, from, access);

    if (memory == nullptr)
        return refused;
    return from->bytes == 0 || swl_dma_copy(keys->dma, to, memory, from->bytes)
               ? 0
               : static_cast<uint32_t>(SWL_SYNDROME_LOCAL_OPERATION);
}

uint32_t put(struct swl_keys *keys, const struct swl_span *to, const void *from, uint32_t access,
             uint32_t refused)
{
    const inside guard(keys);
    uint8_t *memory = reach(keys, to, access);

    if (memory == nullptr)
        return refused;
    return swl_dma_copy(keys->dma, memory, from, to->bytes)
               ? 0
               : static_cast<uint32_t>(SWL_SYNDROME_REMOTE_OPERATION);
}

} // namespace

ncclResult_t swl_keys_open(struct swl_keys **keys_p, const struct swl_wire_config *config,
                           uint64_t nonce)
{
    struct swl_keys *k = static_cast<struct swl_keys *>(calloc(1, sizeof(*k)));

    if (k == nullptr || !swl_dma_open(&k->dma, config->device, config->rank, config->timeout_ns)) {
        free(k);
        return swl_no_memory("the keys of a NIC");
    }
    k->port.rank = config->rank;
    k->timeout_ns = config->timeout_ns;
    k->nonce = nonce;
    *keys_p = k;
    return ncclSuccess;
}

void swl_keys_close(struct swl_keys *keys)
{
    if (keys)
        swl_dma_close(keys->dma);
    free(keys);
}

ncclResult_t swl_keys_register(struct swl_keys *keys, void *ptr, uint64_t bytes, unsigned access,
                               struct swl_nic_region *region_p)
{
    return swl_host_region_add(&keys->port, keys->nonce, ptr, bytes, access, region_p);
}

ncclResult_t swl_keys_drop(struct swl_keys *keys, const struct swl_nic_region *region)
{
    SWL_TRY(swl_host_region_drop(&keys->port, region));
    return swl_host_region_unused(&keys->port, keys->timeout_ns);
}

uint32_t swl_keys_check(struct swl_keys *keys, const struct swl_wire_request *r)
{
    const struct swl_span span = {r->local, r->bytes, 0, r->lkey, r->bytes};

    if (r->opcode == SWL_WQE_NOP || r->is_inline)
        return 0;
    const inside guard(keys);

    return reach(keys, &span, soft_local_access(r->opcode))
               ? 0
               : static_cast<uint32_t>(SWL_SYNDROME_LOCAL_PROTECTION);
}

uint32_t swl_keys_load(struct swl_keys *keys, const struct swl_span *from, void *to)
{
    return get(keys, from, to, 0, SWL_SYNDROME_LOCAL_PROTECTION);
}

uint32_t swl_keys_store(struct swl_keys *keys, const struct swl_span *to, const void *from)
{
    return put(keys, to, from, SWL_NIC_LOCAL_WRITE, SWL_SYNDROME_LOCAL_PROTECTION);
}

uint32_t swl_keys_write(struct swl_keys *keys, const struct swl_span *to, const void *from)
{
    return put(keys, to, from, SWL_NIC_REMOTE_WRITE, SWL_SYNDROME_REMOTE_ACCESS);
}

uint32_t swl_keys_read(struct swl_keys *keys, const struct swl_span *from, void *to)
{
    return get(keys, from, to, SWL_NIC_REMOTE_READ, SWL_SYNDROME_REMOTE_ACCESS);
}

uint32_t swl_keys_add(struct swl_keys *keys, uint32_t rkey, uint64_t address, uint64_t value,
                      uint64_t *old_p)
{
    const struct swl_span span = {address, 8, 0, rkey, 8};

    if (address % 8 != 0)
        return SWL_SYNDROME_REMOTE_REQUEST;
    const inside guard(keys);
    uint64_t *word = reinterpret_cast<uint64_t *>(reach(keys, &span, SWL_NIC_REMOTE_ADD));

    if (word == nullptr)
        return SWL_SYNDROME_REMOTE_ACCESS;
    return swl_dma_add(keys->dma, word, value, old_p)
               ? 0
               : static_cast<uint32_t>(SWL_SYNDROME_REMOTE_OPERATION);
}
