/* frame.h: what travels on a TCP connection of two queue pairs: frames, each with a checksum. Pure.
 *
 * Layer: transport/proxy/tcp. A frame is a head of 64 bytes and at most TCP_PART_BYTES of payload,
 * in the byte order of the hosts (little-endian, as everywhere in this library), filled up with
 * zeros to a multiple of 8. Its number counts the frames of one direction from 0; the checksum is
 * CRC32C over head (checksum taken as 0), payload and filling. */
#ifndef SWL_TCP_FRAME_H
#define SWL_TCP_FRAME_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TCP_MAGIC      0x4c575354u
#define TCP_VERSION    3u
#define TCP_PART_BYTES 32768u /* payload of a frame, at most */

enum tcp_kind {
    TCP_HELLO = 1, /* first frame of who has connected: struct tcp_hello */
    TCP_WELCOME,   /* the answer, with the same struct: from = proof of the NIC */
    TCP_REFUSE,    /* the answer: value = enum tcp_refusal */
    TCP_NOP,
    TCP_WRITE, /* bytes [offset, offset + bytes) of a WRITE of total bytes */
    TCP_READ,
    TCP_ADD,
    TCP_DATA, /* answer to a READ, in parts */
    TCP_OLD,  /* answer to an ADD */
    TCP_ACK,  /* all requests before index are executed */
    TCP_NAK,  /* so are they, and request index has failed: value = syndrome */
    TCP_BYE,  /* the sender's NIC is being destroyed */
    TCP_BEAT, /* the sender's server runs; nothing else */
};

struct tcp_frame {
    uint32_t magic;
    uint16_t version, kind; /* enum tcp_kind */
    uint32_t bytes;         /* of the payload behind */
    uint32_t checksum;
    uint64_t number;
    uint64_t index; /* of the request, as its queue pair counts */
    uint64_t remote;
    uint64_t value;
    uint32_t rkey, total, offset, pad;
};
static_assert(sizeof(struct tcp_frame) == 64, "hosts of both ends read this head");

/* Whom a connection is for, and from whom. */
struct tcp_hello {
    uint8_t to[16]; /* nonce of the NIC that listens */
    uint8_t from[16];
    uint32_t to_qp, to_generation, from_qp, from_generation;
};

/* reason, sentence */
#define TCP_REFUSALS(X)                                                                            \
    X(NONCE, "the secret number is another NIC's")                                                 \
    X(QP, "there is no such queue pair")                                                           \
    X(TAKEN, "its queue pair is connected or has failed, and has to be reset first")               \
    X(OLD, "its queue pair has been reset since the address was given")

enum tcp_refusal {
    TCP_REFUSAL_NONE,
#define TCP_REFUSAL_ENUM(name, text) TCP_REFUSAL_##name,
    TCP_REFUSALS(TCP_REFUSAL_ENUM)
#undef TCP_REFUSAL_ENUM
};

/* Bytes of a frame with this payload. */
static inline size_t tcp_frame_bytes(uint32_t payload)
{
    return sizeof(struct tcp_frame) + ((payload + 7u) & ~7u);
}

/* CRC32C of more bytes; crc of none is 0. */
uint32_t swl_crc32c(uint32_t crc, const void *bytes, size_t n);

/* Complete a frame whose payload lies behind it; writes the filling. */
void swl_tcp_seal(struct tcp_frame *frame, uint64_t number);

enum tcp_look {
    TCP_LOOK_MORE,   /* no whole frame yet */
    TCP_LOOK_FRAME,  /* *frame_p, its payload behind it in `bytes` */
    TCP_LOOK_ALIEN,  /* not a frame of this version */
    TCP_LOOK_DAMAGED /* checksum or number do not fit; *frame_p holds the head */
};
/* The frame at the begin of n received bytes. */
enum tcp_look swl_tcp_look(const uint8_t *bytes, size_t n, uint64_t number,
                           struct tcp_frame *frame_p);

#ifdef __cplusplus
}
#endif
#endif
