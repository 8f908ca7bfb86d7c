/* pair.c: a queue pair of the TCP wire: its life, and what it sends. Layer: transport/proxy/tcp.
 *
 * Answers go before requests. The receiver never stops reading because of what it has to send: it
 * owes at most TCP_ASKS answers, as the other end has no more questions under way. So two ends that
 * send as much as they can never wait for each other. An end that has nothing to send sends beats.
 * The kernel answers for a stopped process (keepalive, TCP_USER_TIMEOUT), a server's beats end with
 * it. */
#include "transport/proxy/tcp/tcp.h"

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/memory.h"
#include "src/runtime/result.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BEAT_NS 1000000000ull /* between beats, at most; else an eighth of the limit */

ncclResult_t swl_tcp_pair_open(struct tcp_wire *w, struct tcp_pair *p)
{
    void *in = NULL, *out = NULL;
    ncclResult_t rc;

    p->fd = -1;
    p->ring = swl_calloc(w->config.depth, sizeof(*p->ring), "a queue pair");
    if (!p->ring)
        return ncclSystemError;
    rc = SWL_CUDA(swl_gpu_host_malloc(&in, TCP_IN_BYTES));
    if (rc == ncclSuccess)
        rc = SWL_CUDA(swl_gpu_host_malloc(&out, TCP_OUT_BYTES));
    p->in = in;
    p->out = out;
    swl_tcp_pair_reset(w, p);
    return rc;
}

void swl_tcp_pair_hang_up(struct tcp_pair *p)
{
    if (p->fd < 0)
        return;
    (void)shutdown(p->fd, SHUT_RDWR); /* a child that was forked meanwhile has it, too */
    close(p->fd);
    p->fd = -1;
}

ncclResult_t swl_tcp_pair_close(struct tcp_pair *p)
{
    ncclResult_t rc = ncclSuccess, next = ncclSuccess;

    swl_tcp_pair_hang_up(p);
    free(p->ring);
    if (p->in)
        rc = SWL_CUDA(swl_gpu_host_free(p->in));
    if (p->out)
        next = SWL_CUDA(swl_gpu_host_free(p->out));
    return rc != ncclSuccess ? rc : next;
}

void swl_tcp_pair_reset(struct tcp_wire *w, struct tcp_pair *p)
{
    const uint64_t first = w->config.first_index;

    swl_tcp_pair_hang_up(p);
    p->generation++;
    p->state = TCP_IDLE;
    p->bound = p->gone = p->shut = false;
    p->answer = p->refusal = p->syndrome = p->nak = p->framed_bytes = 0;
    p->posted = p->framed = p->acked = p->reported = p->executed = p->told = first;
    p->fail_index = p->nak_index = UINT64_MAX;
    p->asked.begin = p->asked.end = p->owed.begin = p->owed.end = 0;
    p->in_bytes = p->out_begin = p->out_end = 0;
    p->in_number = p->out_number = p->beats = 0;
    snprintf(p->name, sizeof(p->name), "nobody yet");
}

void swl_tcp_pair_begin(struct tcp_pair *p, int fd, bool answered)
{
    p->fd = fd;
    p->state = TCP_CONNECTED;
    p->in_bytes = 0;
    p->in_number = p->answer = answered ? 1 : 0; /* frames 0 are hello and welcome */
    p->out_number = 1;
    p->moved_ns = p->heard_ns = p->said_ns = swl_gpu_now_ns();
}

void swl_tcp_pair_fail(struct tcp_wire *w, struct tcp_pair *p, uint32_t syndrome,
                       const char *sentence)
{
    const uint64_t at = swl_tcp_pair_limit(p);

    if (p->state == TCP_FAILED)
        return;
    swl_log(SWL_LEVEL_WARN, "rank %u nic: queue pair %u, connection with %s: %s", w->config.rank,
            p->qp, p->name, sentence);
    if (p->fail_index > at) {
        p->fail_index = at;
        p->syndrome = syndrome;
    }
    swl_tcp_pair_hang_up(p);
    p->state = TCP_FAILED;
    /* release: pairs with the acquire of the host that waits for a welcome */
    if (p->answer == 0)
        __atomic_store_n(&p->answer, 3, __ATOMIC_RELEASE);
}

void swl_tcp_pair_unmet(struct tcp_pair *p)
{
    swl_tcp_pair_hang_up(p);
    p->state = TCP_FAILED;
    /* release: pairs with the acquire of the host that waits for a welcome */
    __atomic_store_n(&p->answer, 4, __ATOMIC_RELEASE);
}

bool swl_tcp_pair_alive(const struct tcp_pair *p)
{
    return p->state == TCP_CONNECTED && p->answer == 1 && p->bound && !p->gone && !p->shut;
}

uint64_t swl_tcp_pair_limit(const struct tcp_pair *p)
{
    const uint64_t oldest = p->asked.ring[p->asked.begin % TCP_ASKS].request.index;

    return p->asked.begin != p->asked.end && oldest < p->acked ? oldest : p->acked;
}

/* ---- what is sent ---- */

/* A head in the buffer, or NULL: no room for it and `bytes` behind it. */
static struct tcp_frame *begin_frame(struct tcp_pair *p, enum tcp_kind kind, uint32_t bytes)
{
    struct tcp_frame *f;

    if (TCP_OUT_BYTES - p->out_end < tcp_frame_bytes(bytes))
        return NULL;
    f = (struct tcp_frame *)(p->out + p->out_end);
    memset(f, 0, sizeof(*f));
    f->kind = (uint16_t)kind;
    f->bytes = bytes;
    return f;
}

static void end_frame(struct tcp_pair *p, struct tcp_frame *f)
{
    swl_tcp_seal(f, p->out_number++);
    p->out_end += tcp_frame_bytes(f->bytes);
}

static bool frame_short(struct tcp_pair *p, enum tcp_kind kind, uint64_t index, uint64_t value)
{
    struct tcp_frame *f = begin_frame(p, kind, 0);

    if (f == NULL)
        return false;
    f->index = index;
    f->value = value;
    end_frame(p, f);
    return true;
}

static uint32_t part_of(uint32_t total, uint32_t done)
{
    return total - done < TCP_PART_BYTES ? total - done : TCP_PART_BYTES;
}

/* The next part of an answer; false: no room. A READ that its keys no longer allow becomes a
 * NAK. */
static bool frame_owed(struct tcp_wire *w, struct tcp_pair *p, struct tcp_ask *a)
{
    const struct swl_wire_request *r = &a->request;
    const uint32_t part = r->opcode == SWL_WQE_READ ? part_of(r->bytes, a->done) : 0;
    struct tcp_frame *f = begin_frame(p, r->opcode == SWL_WQE_READ ? TCP_DATA : TCP_OLD, part);
    const struct swl_span from = {r->remote, r->bytes, a->done, r->rkey, part};
    uint32_t syndrome;

    if (f == NULL)
        return false;
    f->index = r->index;
    f->value = a->old;
    f->total = r->bytes;
    f->offset = a->done;
    syndrome = part ? swl_keys_read(w->keys, &from, f + 1) : 0;
    if (syndrome) { /* what is owed behind it is void */
        p->nak = syndrome;
        p->nak_index = r->index;
        p->owed.begin = p->owed.end;
        return true;
    }
    end_frame(p, f);
    a->done += part;
    if (part == 0 || a->done == r->bytes)
        p->owed.begin++;
    return true;
}

static bool frame_answers(struct tcp_wire *w, struct tcp_pair *p)
{
    while (p->owed.begin < p->owed.end)
        if (!frame_owed(w, p, &p->owed.ring[p->owed.begin % TCP_ASKS]))
            return false;
    if (p->nak && p->nak_index != UINT64_MAX) {
        if (!frame_short(p, TCP_NAK, p->nak_index, p->nak))
            return false;
        p->nak_index = UINT64_MAX;
    } else if (p->told != p->executed && p->nak == 0) {
        if (!frame_short(p, TCP_ACK, p->executed, 0))
            return false;
        p->told = p->executed;
    }
    return true;
}

static bool asks(const struct swl_wire_request *r)
{
    return r->opcode == SWL_WQE_READ || r->opcode == SWL_WQE_FETCH_ADD;
}

static enum tcp_kind kind_of(uint32_t opcode)
{
    return opcode == SWL_WQE_WRITE  ? TCP_WRITE
           : opcode == SWL_WQE_READ ? TCP_READ
           : opcode == SWL_WQE_NOP  ? TCP_NOP
                                    : TCP_ADD;
}

/* The next part of request `framed`; false: no room, or it fails here. */
static bool frame_request(struct tcp_wire *w, struct tcp_pair *p)
{
    const struct swl_wire_request *r = &p->ring[p->framed % w->config.depth];
    const uint32_t part = r->opcode == SWL_WQE_WRITE ? part_of(r->bytes, p->framed_bytes) : 0;
    const struct swl_span from = {r->local, r->bytes, p->framed_bytes, r->lkey, part};
    uint32_t syndrome = swl_keys_check(w->keys, r);
    struct tcp_frame *f;

    if (asks(r) && p->asked.end - p->asked.begin == TCP_ASKS)
        return false;
    f = begin_frame(p, kind_of(r->opcode), part);
    if (f == NULL)
        return false;
    f->index = r->index;
    f->remote = r->remote;
    f->value = r->value;
    f->rkey = r->rkey;
    f->total = r->bytes;
    f->offset = p->framed_bytes;
    if (part && r->is_inline)
        memcpy(f + 1, r->data, part);
    else if (part && syndrome == 0)
        syndrome = swl_keys_load(w->keys, &from, f + 1);
    if (syndrome) {
        p->fail_index = r->index;
        p->syndrome = syndrome;
        return false;
    }
    end_frame(p, f);
    p->framed_bytes += part;
    if (asks(r))
        p->asked.ring[p->asked.end++ % TCP_ASKS] = (struct tcp_ask){.request = *r};
    if (part == 0 || p->framed_bytes == r->bytes) {
        p->framed++;
        p->framed_bytes = 0;
    }
    return true;
}

/* Give the kernel what it takes. */
static bool flush(struct tcp_wire *w, struct tcp_pair *p)
{
    const size_t before = p->out_begin;

    while (p->out_begin < p->out_end) {
        const ssize_t n =
            send(p->fd, p->out + p->out_begin, p->out_end - p->out_begin, MSG_NOSIGNAL);

        if (n < 0 && swl_socket_later())
            break;
        if (n < 0 && !p->bound)
            break; /* whoever connects it will receive the reason */
        if (n < 0) {
            swl_tcp_pair_fail(w, p, SWL_SYNDROME_RETRY, strerror(swl_socket_error()));
            return true;
        }
        p->out_begin += (size_t)n;
    }
    if (p->out_begin != before)
        p->said_ns = swl_gpu_now_ns();
    if (p->out_begin == p->out_end)
        p->out_begin = p->out_end = 0;
    return p->out_begin != before;
}

/* Say that this end lives, if it has been silent for long; also before the host has connected, as
 * the peer may have. */
static void beat(struct tcp_wire *w, struct tcp_pair *p)
{
    const uint64_t part = w->config.silence_ns / 8;

    if (p->state != TCP_CONNECTED || p->gone || p->out_end > 0 ||
        swl_gpu_now_ns() - p->said_ns < (part < BEAT_NS ? part : BEAT_NS))
        return;
    if (frame_short(p, TCP_BEAT, 0, 0))
        (void)flush(w, p);
}

/* Is there a request to send now? Not to a peer that has said goodbye. */
static bool willing(const struct tcp_pair *p)
{
    return p->framed < p->posted && p->fail_index == UINT64_MAX && !p->gone;
}

bool swl_tcp_pair_send(struct tcp_wire *w, struct tcp_pair *p)
{
    bool moved = false, any;

    if (p->state != TCP_CONNECTED || p->answer != 1 || p->shut)
        return false;
    while (p->bound) {
        const uint64_t framed = p->framed + p->framed_bytes;

        /* everything that fits, then to the kernel: few calls, bounded memory */
        if (p->out_begin == 0 && frame_answers(w, p))
            while (willing(p) && frame_request(w, p))
                ;
        any = p->out_end > 0 && flush(w, p);
        moved = moved || any;
        if (!any || p->out_end > 0 || framed == p->framed + p->framed_bytes ||
            p->state != TCP_CONNECTED || !willing(p))
            break;
    }
    if (moved)
        p->moved_ns = swl_gpu_now_ns();
    beat(w, p);
    return moved;
}
