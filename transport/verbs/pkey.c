/* pkey.c: see pkey.h. Layer: transport/verbs; no state. */
#include "transport/verbs/pkey.h"

#include <arpa/inet.h>
#include <stdio.h>

#define PKEYS_MAX   1024
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

bool swl_pkey_take(const struct swl_verbs *verbs, struct ibv_context *context, uint32_t length,
                   int32_t wanted, struct swl_port *port, char *why, size_t why_bytes)
{
    uint16_t keys[PKEYS_MAX] = {0};
    const uint32_t n = length < PKEYS_MAX ? length : PKEYS_MAX;
    char valid[80];
    int at;

    port->pkey_index = port->pkey = 0;
    if (n == 0 && wanted <= 0)
        return true; /* no table: the device does without keys */
    for (uint32_t i = 0; i < n; i++)
        if (verbs->ibv_query_pkey(context, port->number, (int)i, &keys[i]) != 0)
            keys[i] = 0;
        else
            keys[i] = ntohs(keys[i]);
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
                 port->name, port->number, length);
    else
        snprintf(why, why_bytes,
                 "%s port %u has no valid partition key at %s=%d; of its table of %u are valid: %s",
                 port->name, port->number, SWL_IB_VARIABLE("PKEY", ""), wanted, length, valid);
    return false;
}
