/* pkey.c: see pkey.h. Layer: transport/rdma_core; no state. */
#include "transport/rdma_core/pkey.h"

#include <arpa/inet.h>
#include <stdio.h>

#define FULL_MEMBER 0x8000u

int swl_pkey_choose(const uint16_t *keys, uint32_t n)
{
    int limited = -1;

    for (uint32_t i = 0; i < n; i++) {
        if (keys[i] & FULL_MEMBER && keys[i] != FULL_MEMBER)
            return (int)i;
        if (keys[i] != 0 && keys[i] != FULL_MEMBER && limited < 0)
            limited = (int)i;
    }
    return limited;
}

static bool is_valid(uint16_t key)
{
    return (key & ~FULL_MEMBER) != 0;
}

/* "0 (0xffff), 3 (0x8003)", or "none". */
static void list_valid(const uint16_t *keys, uint32_t n, char *text, size_t bytes)
{
    size_t at = 0;

    snprintf(text, bytes, "none");
    for (uint32_t i = 0; i < n && at < bytes; i++)
        if (is_valid(keys[i]))
            at += (size_t)snprintf(text + at, bytes - at, "%s%u (0x%04x)", at ? ", " : "", i,
                                   keys[i]);
}

uint32_t swl_pkey_read(const struct swl_verbs *verbs, struct ibv_context *context, uint8_t port,
                       uint32_t length, uint16_t keys[SWL_PKEYS_MAX])
{
    const uint32_t n = length < SWL_PKEYS_MAX ? length : SWL_PKEYS_MAX;

    for (uint32_t i = 0; i < n; i++) {
        keys[i] = 0;
        if (verbs->ibv_query_pkey(context, port, (int)i, &keys[i]) != 0)
            keys[i] = 0;
        keys[i] = ntohs(keys[i]);
    }
    return n;
}

bool swl_pkey_take(const uint16_t *keys, uint32_t n, int32_t wanted, struct swl_port *port,
                   char *why, size_t why_bytes)
{
    char valid[80];
    int at;

    port->pkey_index = port->pkey = 0;
    if (n == 0 && wanted <= 0)
        return true; /* no table: the device does without keys */
    at = wanted < 0 ? swl_pkey_choose(keys, n) : wanted;
    if (at >= 0 && (uint32_t)at < n && is_valid(keys[at])) {
        port->pkey_index = (uint16_t)at;
        port->pkey = keys[at];
        return true;
    }
    list_valid(keys, n, valid, sizeof(valid));
    if (wanted < 0)
        snprintf(why, why_bytes,
                 "%s port %u has no valid partition key: its table of %u is empty, no subnet "
                 "manager has filled it",
                 port->name, port->number, n);
    else
        snprintf(why, why_bytes,
                 "%s port %u has no valid partition key at %s=%d; of its table of %u are valid: %s",
                 port->name, port->number, SWL_IB_VARIABLE("PKEY", ""), wanted, n, valid);
    return false;
}
