/* events.h: the future of one software NIC: a heap of events ordered by time, then by order of
 * entry.
 *
 * Layer: transport/soft, used by engine.cc. Owns its array. */
#pragma once

#include <stdint.h>
#include <stdlib.h>

enum soft_event_kind {
    SOFT_EVENT_PIECE,
    SOFT_EVENT_EXECUTE,
    SOFT_EVENT_COMPLETE,
    SOFT_EVENT_FLUSH
};

struct soft_event {
    uint64_t time_ns, order;
    uint64_t index; /* entry of the queue */
    uint32_t kind;  /* enum soft_event_kind */
    uint32_t qp, epoch;
    uint32_t from, bytes; /* of a piece */
};

struct soft_events {
    struct soft_event *heap;
    uint64_t count, room, order;
};

static inline bool soft_event_before(const struct soft_event *a, const struct soft_event *b)
{
    return a->time_ns != b->time_ns ? a->time_ns < b->time_ns : a->order < b->order;
}

/* False: no memory. */
static inline bool soft_events_push(struct soft_events *q, struct soft_event e)
{
    uint64_t at = q->count;

    if (q->count == q->room) {
        uint64_t room = q->room ? 2 * q->room : 256;
        void *heap = realloc(q->heap, room * sizeof(e));

        if (heap == nullptr)
            return false;
        q->heap = static_cast<struct soft_event *>(heap);
        q->room = room;
    }
    e.order = q->order++;
    q->count++;
    while (at > 0 && soft_event_before(&e, &q->heap[(at - 1) / 2])) {
        q->heap[at] = q->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    q->heap[at] = e;
    return true;
}

static inline struct soft_event soft_events_pop(struct soft_events *q)
{
    struct soft_event first = q->heap[0];
    struct soft_event last = q->heap[--q->count];
    uint64_t at = 0;

    for (uint64_t child; (child = 2 * at + 1) < q->count; at = child) {
        if (child + 1 < q->count && soft_event_before(&q->heap[child + 1], &q->heap[child]))
            child++;
        if (!soft_event_before(&q->heap[child], &last))
            break;
        q->heap[at] = q->heap[child];
    }
    if (q->count > 0)
        q->heap[at] = last;
    return first;
}
