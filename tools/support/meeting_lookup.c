/* meeting_lookup.c: addresses of a name, within a limit. See meeting_wire.h. Layer: tools/support.
 *
 * The resolver of the C library waits as long as it likes. So it is asked by a thread, which is
 * left alone when the time is over, and then frees what it was given. */
#include "tools/support/meeting_wire.h"

#include "src/base/thread.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct lookup {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool ended; /* rc and list are there */
    bool left;  /* nobody waits any more */
    int rc;
    struct addrinfo hints, *list;
    char host[sizeof(((struct swl_meeting *)0)->host)], port[8];
};

void swl_meeting_place(const struct swl_meeting *at, char *text, size_t bytes)
{
    const bool six = strchr(at->host, ':') != NULL;

    snprintf(text, bytes, "%s%s%s:%u", six ? "[" : "", at->host, six ? "]" : "", at->port);
}

static void discard_lookup(struct lookup *l)
{
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

static void *look_up(void *arg)
{
    struct lookup *l = arg;
    struct addrinfo *list = NULL;
    const int rc = getaddrinfo(l->host, l->port, &l->hints, &list);
    bool left;

    pthread_mutex_lock(&l->lock);
    l->rc = rc;
    l->list = rc == 0 ? list : NULL;
    l->ended = true;
    left = l->left;
    pthread_cond_signal(&l->changed);
    pthread_mutex_unlock(&l->lock);
    if (left) {
        if (rc == 0)
            freeaddrinfo(list);
        discard_lookup(l);
    }
    return NULL;
}

static struct lookup *begin_lookup(const struct swl_meeting *at, const struct addrinfo *hints)
{
    struct lookup *l = calloc(1, sizeof *l);
    pthread_condattr_t monotonic;
    pthread_t thread;

    if (!l)
        return NULL;
    l->hints = *hints;
    memcpy(l->host, at->host, sizeof l->host);
    snprintf(l->port, sizeof l->port, "%u", at->port);
    pthread_mutex_init(&l->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&l->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (swl_thread_create(&thread, look_up, l) != 0) {
        discard_lookup(l);
        return NULL;
    }
    pthread_detach(thread);
    return l;
}

/* False: not before end_ns; the thread has it all then. */
static bool finish(struct lookup *l, uint64_t end_ns, int *rc_p, struct addrinfo **list_p)
{
    const struct timespec end = {(time_t)(end_ns / 1000000000u), (long)(end_ns % 1000000000u)};
    int waited = 0;
    bool ended;

    pthread_mutex_lock(&l->lock);
    while (!l->ended && waited == 0)
        waited = pthread_cond_timedwait(&l->changed, &l->lock, &end);
    ended = l->ended;
    l->left = !ended;
    *rc_p = l->rc;
    *list_p = l->list;
    pthread_mutex_unlock(&l->lock);
    if (ended)
        discard_lookup(l);
    return ended;
}

struct addrinfo *swl_meeting_lookup(const struct swl_meeting *at, uint64_t end_ns,
                                    struct swl_why *why)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *list = NULL;
    struct lookup *l;
    char port[8];
    int rc;

    hints.ai_flags = AI_NUMERICHOST;
    snprintf(port, sizeof port, "%u", at->port);
    if (getaddrinfo(at->host, port, &hints, &list) == 0)
        return list;
    hints.ai_flags = 0;
    l = begin_lookup(at, &hints);
    if (!l) {
        swl_why_set(why, "no thread to look up '%s'", at->host);
        return NULL;
    }
    if (!finish(l, end_ns, &rc, &list)) {
        swl_why_set(why, "the name '%s' has not been resolved in that time", at->host);
        return NULL;
    }
    if (rc == 0)
        return list;
    swl_why_set(why, "%s", gai_strerror(rc));
    return NULL;
}
