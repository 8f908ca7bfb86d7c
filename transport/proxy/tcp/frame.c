/* frame.c: see frame.h. Layer: transport/proxy/tcp; pure. */
#include "transport/proxy/tcp/frame.h"

#include <string.h>

#define CRC32C_POLYNOMIAL 0x82f63b78u /* reflected */

static uint32_t crc_portable(uint32_t crc, const uint8_t *p, size_t n)
{
    for (; n > 0; n--, p++) {
        crc ^= *p;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? CRC32C_POLYNOMIAL : 0);
    }
    return crc;
}

#ifdef __x86_64__
__attribute__((target("sse4.2"))) static uint32_t crc_sse(uint32_t crc, const uint8_t *p, size_t n)
{
    uint64_t wide = crc, word;

    for (; n >= sizeof(word); n -= sizeof(word), p += sizeof(word)) {
        memcpy(&word, p, sizeof(word));
        wide = __builtin_ia32_crc32di(wide, word);
    }
    crc = (uint32_t)wide;
    for (; n > 0; n--, p++)
        crc = __builtin_ia32_crc32qi(crc, *p);
    return crc;
}

static uint32_t crc_run(uint32_t crc, const uint8_t *p, size_t n)
{
    return __builtin_cpu_supports("sse4.2") ? crc_sse(crc, p, n) : crc_portable(crc, p, n);
}
#else
static uint32_t crc_run(uint32_t crc, const uint8_t *p, size_t n)
{
    return crc_portable(crc, p, n);
}
#endif

uint32_t swl_crc32c(uint32_t crc, const void *bytes, size_t n)
{
    return ~crc_run(~crc, bytes, n);
}

static uint32_t checksum_of(const struct tcp_frame *head, const void *payload)
{
    struct tcp_frame h = *head;

    h.checksum = 0;
    return swl_crc32c(swl_crc32c(0, &h, sizeof(h)), payload, tcp_frame_bytes(h.bytes) - sizeof(h));
}

void swl_tcp_seal(struct tcp_frame *frame, uint64_t number)
{
    const size_t end = tcp_frame_bytes(frame->bytes) - sizeof(*frame);

    memset((uint8_t *)(frame + 1) + frame->bytes, 0, end - frame->bytes);
    frame->magic = TCP_MAGIC;
    frame->version = TCP_VERSION;
    frame->number = number;
    frame->checksum = checksum_of(frame, frame + 1);
}

enum tcp_look swl_tcp_look(const uint8_t *bytes, size_t n, uint64_t number,
                           struct tcp_frame *frame_p)
{
    if (n < sizeof(*frame_p))
        return TCP_LOOK_MORE;
    memcpy(frame_p, bytes, sizeof(*frame_p));
    if (frame_p->magic != TCP_MAGIC || frame_p->version != TCP_VERSION ||
        frame_p->bytes > TCP_PART_BYTES)
        return TCP_LOOK_ALIEN;
    if (n < tcp_frame_bytes(frame_p->bytes))
        return TCP_LOOK_MORE;
    if (frame_p->number != number ||
        checksum_of(frame_p, bytes + sizeof(*frame_p)) != frame_p->checksum)
        return TCP_LOOK_DAMAGED;
    return TCP_LOOK_FRAME;
}
