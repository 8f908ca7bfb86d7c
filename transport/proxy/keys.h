/* keys.h: registered memory of a wire without hardware: the keys, their checks, and copies through
 * them.
 *
 * Layer: transport/proxy, for wires. The checks are those of the software NIC (core.cuh). Functions
 * that touch memory are the serving thread's and return a syndrome, 0 = done. `total` is the length
 * of the whole request: it must fit, whatever part of it is moved. */
#ifndef SWL_PROXY_KEYS_H
#define SWL_PROXY_KEYS_H

#include "transport/proxy/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

struct swl_keys;

struct swl_span {
    uint64_t address;
    uint64_t total;  /* bytes of the request */
    uint64_t offset; /* of the part in it */
    uint32_t key;
    uint32_t bytes; /* of the part; 0: only ask whether the request would be allowed */
};

/* `nonce`: keys of different numbers differ. */
ncclResult_t swl_keys_open(struct swl_keys **keys_p, const struct swl_wire_config *config,
                           uint64_t nonce);
void swl_keys_close(struct swl_keys *keys);
ncclResult_t swl_keys_register(struct swl_keys *keys, void *ptr, uint64_t bytes, unsigned access,
                               struct swl_nic_region *region_p);
/* Returns when nobody copies through the key any more. */
ncclResult_t swl_keys_drop(struct swl_keys *keys, const struct swl_nic_region *region);

/* Would the local end of a request be allowed? Inline WRITEs and NOPs have none. */
uint32_t swl_keys_check(struct swl_keys *keys, const struct swl_wire_request *request);
/* This end's memory: source of a WRITE, target of a READ and of an old value. */
uint32_t swl_keys_load(struct swl_keys *keys, const struct swl_span *from, void *to);
uint32_t swl_keys_store(struct swl_keys *keys, const struct swl_span *to, const void *from);
/* What a peer asks for. */
uint32_t swl_keys_write(struct swl_keys *keys, const struct swl_span *to, const void *from);
uint32_t swl_keys_read(struct swl_keys *keys, const struct swl_span *from, void *to);
uint32_t swl_keys_add(struct swl_keys *keys, uint32_t rkey, uint64_t address, uint64_t value,
                      uint64_t *old_p);

#ifdef __cplusplus
}
#endif
#endif
