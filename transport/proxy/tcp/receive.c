/* receive.c: a queue pair of the TCP wire: what it receives. Layer: transport/proxy/tcp. */
#include "transport/proxy/tcp/tcp.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void protocol_error(struct tcp_wire *w, struct tcp_pair *p, const struct tcp_frame *f)
{
    char text[160];

    snprintf(text, sizeof(text), "frame %llu of kind %u makes no sense there (request %llu)",
             (unsigned long long)f->number, f->kind, (unsigned long long)f->index);
    swl_tcp_pair_fail(w, p, SWL_SYNDROME_BAD_RESPONSE, text);
}

/* The peer asks for something that is done later: a READ's bytes are loaded when they are sent. */
static bool owe(struct tcp_pair *p, const struct tcp_frame *f, uint32_t opcode, uint64_t old)
{
    struct tcp_ask *a = &p->owed.ring[p->owed.end % TCP_ASKS];

    if (p->owed.end - p->owed.begin == TCP_ASKS)
        return false;
    memset(a, 0, sizeof(*a));
    a->request.index = f->index;
    a->request.opcode = opcode;
    a->request.bytes = f->total;
    a->request.remote = f->remote;
    a->request.rkey = f->rkey;
    a->old = old;
    p->owed.end++;
    return true;
}

/* A request of the peer; false: it breaks the protocol. */
static bool take_request(struct tcp_wire *w, struct tcp_pair *p, const struct tcp_frame *f,
                         const uint8_t *payload)
{
    const struct swl_span span = {f->remote, f->total, f->offset, f->rkey, f->bytes};
    uint32_t syndrome = 0;
    uint64_t old = 0;
    bool last = true, fits = true;

    if (p->nak)
        return true; /* behind a failed one nothing is executed */
    if (f->index != p->executed)
        return false;
    if (f->kind == TCP_WRITE) {
        syndrome = swl_keys_write(w->keys, &span, payload);
        last = (uint64_t)f->offset + f->bytes == f->total;
    } else if (f->kind == TCP_ADD) {
        syndrome = swl_keys_add(w->keys, f->rkey, f->remote, f->value, &old);
        fits = syndrome || owe(p, f, SWL_WQE_FETCH_ADD, old);
    } else if (f->kind == TCP_READ) {
        const struct swl_span none = {f->remote, f->total, 0, f->rkey, 0};

        syndrome = swl_keys_read(w->keys, &none, NULL);
        fits = syndrome || owe(p, f, SWL_WQE_READ, 0);
    }
    if (syndrome) {
        p->nak = syndrome;
        p->nak_index = f->index;
    } else if (last) {
        p->executed++;
    }
    return fits;
}

/* An answer to the oldest question without one. */
static bool take_answer(struct tcp_wire *w, struct tcp_pair *p, const struct tcp_frame *f,
                        const uint8_t *payload)
{
    struct tcp_ask *a = &p->asked.ring[p->asked.begin % TCP_ASKS];
    const struct swl_wire_request *r = &a->request;
    const bool read = f->kind == TCP_DATA;
    const struct swl_span to = {r->local, r->bytes, f->offset, r->lkey, read ? f->bytes : 8};
    uint32_t syndrome;

    if (p->asked.begin == p->asked.end || r->index != f->index ||
        (r->opcode == SWL_WQE_READ) != read || f->offset != a->old)
        return false;
    syndrome = swl_keys_store(w->keys, &to, read ? (const void *)payload : &f->value);
    if (syndrome && p->fail_index > r->index) {
        p->fail_index = r->index;
        p->syndrome = syndrome;
    }
    a->old += f->bytes; /* asked: bytes received */
    if (!read || a->old == r->bytes) {
        p->asked.begin++;
        if (p->acked <= r->index)
            p->acked = r->index + 1;
    }
    return true;
}

static bool take_ack(struct tcp_pair *p, const struct tcp_frame *f)
{
    if (f->index > p->framed)
        return false;
    if (f->index > p->acked)
        p->acked = f->index;
    if (f->kind == TCP_NAK && p->fail_index > f->index) {
        p->fail_index = f->index;
        p->syndrome = f->value && f->value < 256 ? (uint32_t)f->value : SWL_SYNDROME_BAD_RESPONSE;
    }
    return true;
}

/* False: it is not from the NIC that was called. */
static bool take_first(struct tcp_wire *w, struct tcp_pair *p, const struct tcp_frame *f,
                       const uint8_t *payload)
{
    const size_t at = offsetof(struct tcp_hello, from);
    char text[160];

    if (f->kind == TCP_WELCOME) {
        if (f->bytes != sizeof(struct tcp_hello) ||
            memcmp(payload + at, p->proof, sizeof(p->proof)) != 0)
            return false;
        __atomic_store_n(&p->answer, 1, __ATOMIC_RELEASE);
        return true;
    }
    p->refusal = (uint32_t)f->value;
    snprintf(text, sizeof(text), "refused: %s", swl_tcp_refusal_text(f->value));
    __atomic_store_n(&p->answer, 2, __ATOMIC_RELEASE);
    swl_tcp_pair_fail(w, p, SWL_SYNDROME_RETRY, text);
    return true;
}

static void take_frame(struct tcp_wire *w, struct tcp_pair *p, const struct tcp_frame *f,
                       const uint8_t *payload)
{
    bool ok = p->answer == 1;

    switch (f->kind) {
    case TCP_WELCOME:
    case TCP_REFUSE:
        ok = p->answer == 0 && take_first(w, p, f, payload);
        break;
    case TCP_NOP:
    case TCP_WRITE:
    case TCP_READ:
    case TCP_ADD:
        ok = ok && take_request(w, p, f, payload);
        break;
    case TCP_DATA:
    case TCP_OLD:
        ok = ok && take_answer(w, p, f, payload);
        break;
    case TCP_ACK:
    case TCP_NAK:
        ok = ok && take_ack(p, f);
        break;
    case TCP_BYE:
        p->gone = true;
        break;
    case TCP_BEAT:
        p->beats++;
        break;
    default:
        ok = false;
    }
    if (!ok)
        protocol_error(w, p, f);
}

static void damaged(struct tcp_wire *w, struct tcp_pair *p, enum tcp_look look,
                    const struct tcp_frame *f)
{
    char text[200];

    if (look == TCP_LOOK_ALIEN)
        snprintf(text, sizeof(text), "what arrived is no frame of this version (0x%08x, %u)",
                 f->magic, f->version);
    else if (f->number != p->in_number)
        snprintf(text, sizeof(text), "frame %llu came instead of frame %llu",
                 (unsigned long long)f->number, (unsigned long long)p->in_number);
    else
        snprintf(text, sizeof(text), "frame %llu (%u bytes): the checksum 0x%08x does not fit",
                 (unsigned long long)f->number, f->bytes, f->checksum);
    swl_tcp_pair_fail(w, p, SWL_SYNDROME_BAD_RESPONSE, text);
}

/* All whole frames; what is left of the next one moves to the begin. */
static void take_frames(struct tcp_wire *w, struct tcp_pair *p)
{
    size_t at = 0;

    while (p->state == TCP_CONNECTED) {
        struct tcp_frame f;
        const enum tcp_look look = swl_tcp_look(p->in + at, p->in_bytes - at, p->in_number, &f);

        if (look == TCP_LOOK_MORE)
            break;
        if (look != TCP_LOOK_FRAME) {
            damaged(w, p, look, &f);
            return;
        }
        p->in_number++;
        take_frame(w, p, &f, p->in + at + sizeof(f));
        at += tcp_frame_bytes(f.bytes);
    }
    if (p->state != TCP_CONNECTED)
        return;
    memmove(p->in, p->in + at, p->in_bytes - at);
    p->in_bytes -= at;
}

static void ended(struct tcp_wire *w, struct tcp_pair *p, const char *why)
{
    if (p->answer == 0) {
        swl_tcp_pair_unmet(p);
        return;
    }
    if (!p->gone || p->in_bytes > 0) {
        swl_tcp_pair_fail(w, p, SWL_SYNDROME_RETRY, why);
        return;
    }
    /* an orderly end: an error only for who still wants something */
    p->shut = true;
    swl_tcp_pair_hang_up(p);
}

bool swl_tcp_pair_receive(struct tcp_wire *w, struct tcp_pair *p)
{
    const uint64_t frames = p->in_number - p->beats;
    const size_t part = p->in_bytes;
    bool moved = false;

    while (p->state == TCP_CONNECTED && p->bound && !p->shut) {
        const ssize_t n = recv(p->fd, p->in + p->in_bytes, TCP_IN_BYTES - p->in_bytes, 0);

        if (n < 0 && swl_socket_later())
            break;
        moved = true;
        if (n <= 0) {
            ended(w, p,
                  n < 0         ? strerror(swl_socket_error())
                  : p->in_bytes ? "it was closed inside a frame"
                                : "it was closed by the other end");
            break;
        }
        p->in_bytes += (size_t)n;
        take_frames(w, p);
        if ((size_t)n < TCP_IN_BYTES / 2)
            break; /* very likely nothing is left: the next turn will see */
    }
    if (moved)
        p->heard_ns = swl_gpu_now_ns();
    if (p->in_number - p->beats != frames || p->in_bytes != part)
        p->moved_ns = p->heard_ns;
    return moved;
}
