/* meeting_guest.c: the other ranks fetch the unique id over TCP. See meeting_wire.h. Layer:
 * tools/support.
 *
 * What is not there yet, or hangs up, is called again until the time is over. What answers as
 * anybody but rank 0 of this job ends it at once, and so does what takes three calls and says
 * nothing. */
#include "tools/support/meeting_wire.h"

#include "src/base/clock.h"
#include "src/base/socket.h"

#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define RETRY_NS  UINT64_C(20000000)
#define SILENT_NS UINT64_C(10000000000) /* of one call; less where the limit is short */
enum { MAX_SILENT = 3 };

struct guest {
    const struct swl_meeting *at;
    uint64_t silent_ns, end_ns;
    int nsilent;
    struct meeting_hello hello;
    struct meeting_answer answer;
    char place[300];
};

/* Wait until there is something to read; false: not before end_ns. */
static bool ready(int fd, uint64_t end_ns)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    for (;;) {
        const uint64_t now = swl_real_ns();

        if (now >= end_ns)
            return false;
        const uint64_t ms = (end_ns - now) / 1000000 + 1;

        if (poll(&p, 1, ms > 1000 ? 1000 : (int)ms) > 0)
            return true;
    }
}

/* A connection to rank 0, or a negative number of errno. */
static int connect_to(const struct addrinfo *where, uint64_t end_ns)
{
    const uint64_t now = swl_real_ns();
    union swl_address to;

    if (where->ai_addrlen > sizeof to)
        return -EAFNOSUPPORT;
    memcpy(&to, where->ai_addr, where->ai_addrlen);
    return swl_socket_connect(&to, now < end_ns ? end_ns - now : 0);
}

enum heard { HEARD_NOTHING, HEARD_END, HEARD_PART, HEARD_ALL };

static enum heard ask_host(struct guest *g, int fd, size_t *got_p)
{
    uint64_t end_ns = swl_real_ns() + g->silent_ns;
    size_t got = 0;

    *got_p = 0;
    if (end_ns > g->end_ns)
        end_ns = g->end_ns;
    if (send(fd, &g->hello, sizeof g->hello, MSG_NOSIGNAL) != (ssize_t)sizeof g->hello)
        return HEARD_END;
    while (got < sizeof g->answer && ready(fd, end_ns)) {
        const ssize_t n = recv(fd, (char *)&g->answer + got, sizeof g->answer - got, 0);

        if (swl_socket_ended(n))
            return got > 0 ? HEARD_PART : HEARD_END;
        got += n > 0 ? (size_t)n : 0;
        *got_p = got;
    }
    return got == sizeof g->answer ? HEARD_ALL : got > 0 ? HEARD_PART : HEARD_NOTHING;
}

enum tried { MEET_LATER, MEET_DONE, MEET_NEVER };

static enum tried answered(const struct guest *g, struct swl_why *why)
{
    const struct meeting_hello *h = &g->hello;

    switch ((enum meeting_verdict)g->answer.verdict) {
    case MEETING_WELCOME:
        return MEET_DONE;
    case MEETING_TAKEN:
        swl_why_set(why, "two processes were started as rank %d", h->rank);
        break;
    case MEETING_WRONG_SIZE:
        swl_why_set(why, "rank %d was started as one of %d ranks, rank 0 as one of %d", h->rank,
                    h->nranks, g->answer.nranks);
        break;
    case MEETING_WRONG_JOB:
    default:
        swl_why_set(why,
                    "rank %d: rank 0 of another job is at %s (this one's name is '%s'; "
                    "SWIMLANE_JOB and SWIMLANE_JOB_SECRET must be the same on all ranks)",
                    h->rank, g->place, h->job);
    }
    return MEET_NEVER;
}

/* One call, on a connection that stands. */
static enum tried call_host(struct guest *g, int fd, struct swl_why *why)
{
    const size_t known = sizeof g->answer.magic;
    size_t got;
    const enum heard heard = ask_host(g, fd, &got);

    g->nsilent = heard == HEARD_NOTHING ? g->nsilent + 1 : 0;
    if (memcmp(g->answer.magic, meeting_answer_magic, got < known ? got : known) != 0) {
        swl_why_set(why, "rank %d: what answers at %s is not rank 0 of this job", g->hello.rank,
                    g->place);
        return MEET_NEVER;
    }
    if (heard == HEARD_ALL)
        return answered(g, why);
    swl_why_set(why, heard == HEARD_NOTHING ? "what listens there says nothing"
                                            : "what listens there hangs up");
    if (g->nsilent < MAX_SILENT)
        return MEET_LATER;
    swl_why_set(why,
                "rank %d: what listens at %s has taken %d calls and says nothing, so it is "
                "not rank 0 of this job",
                g->hello.rank, g->place, g->nsilent);
    return MEET_NEVER;
}

/* One attempt at every address of the host. */
static enum tried fetch_once(struct guest *g, struct swl_why *why)
{
    struct addrinfo *list = swl_meeting_lookup(g->at, g->end_ns, why);
    enum tried tried = MEET_LATER;

    for (const struct addrinfo *a = list; a && tried == MEET_LATER; a = a->ai_next) {
        const int fd = connect_to(a, g->end_ns);

        if (fd < 0) {
            /* the end of the time says less than what an earlier attempt met */
            if (fd != -ETIMEDOUT || why->text[0] == '\0')
                swl_why_set(why, "%s", strerror(-fd));
            continue;
        }
        memset(&g->answer, 0, sizeof g->answer);
        tried = call_host(g, fd, why);
        close(fd);
    }
    if (list)
        freeaddrinfo(list);
    return tried;
}

bool swl_meeting_fetch(const struct swl_meeting *at, int rank, int nranks, uint64_t limit_ns,
                       char *id, struct swl_why *why)
{
    struct guest g = {.at = at, .end_ns = swl_real_ns() + limit_ns};
    struct swl_why last = {""};

    g.silent_ns = limit_ns / 4 < SILENT_NS ? limit_ns / 4 : SILENT_NS;
    g.hello.rank = rank;
    g.hello.nranks = nranks;
    memcpy(g.hello.magic, meeting_hello_magic, sizeof g.hello.magic);
    memcpy(g.hello.job, at->job, sizeof g.hello.job);
    memcpy(g.hello.secret, at->secret, sizeof g.hello.secret);
    swl_meeting_place(at, g.place, sizeof g.place);
    for (;;) {
        const enum tried tried = fetch_once(&g, &last);

        if (tried == MEET_DONE)
            break;
        if (tried == MEET_NEVER)
            return swl_why_set(why, "%s", last.text);
        if (swl_real_ns() + RETRY_NS >= g.end_ns)
            return swl_why_set(why, "rank %d: no rank 0 at %s within %" PRIu64 " ms: %.200s", rank,
                               g.place, limit_ns / 1000000, last.text);
        swl_real_sleep_ns(RETRY_NS);
    }
    memcpy(id, g.answer.id, sizeof g.answer.id);
    return true;
}
