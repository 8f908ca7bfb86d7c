/* pkey.h: which partition key of a port. Layer: transport/rdma_core. */
#ifndef SWL_VERBS_PKEY_H
#define SWL_VERBS_PKEY_H

#include "transport/rdma_core/port.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SWL_PKEYS_MAX 1024u

/* Place of the first key of a full member, else of the first valid one; -1: none is. */
int swl_pkey_choose(const uint16_t *keys, uint32_t n);

/* The table of a port as far as SWL_PKEYS_MAX; 0 where a key cannot be read. Returns their
 * number. */
uint32_t swl_pkey_read(const struct swl_verbs *verbs, struct ibv_context *context, uint8_t port,
                       uint32_t length, uint16_t keys[SWL_PKEYS_MAX]);
/* Note place and key in *port. wanted: place, or -1 = choose. false: `why` names the table, what
 * was asked for and what is there. */
bool swl_pkey_take(const uint16_t *keys, uint32_t n, int32_t wanted, struct swl_port *port,
                   char *why, size_t why_bytes);

#ifdef __cplusplus
}
#endif
#endif
