/* meeting_socket.c: the unique id over TCP. See meeting.h. Layer: tools/support.
 *
 * A rank connects and says which one it is; rank 0 answers with the id, or with what is wrong. Whoever
 * says anything else, or nothing for HELLO_NS, is hung up on. Numbers travel in host order: all ranks
 * run the same program. */
#include "tools/support/meeting.h"

#include "tools/support/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HELLO_NS UINT64_C(3000000000)
#define RETRY_NS UINT64_C(20000000)
enum { MAX_CALLERS = 64, POLL_MS = 50 };

struct hello {
    char magic[8];
    int32_t rank, nranks;
};
enum verdict { WELCOME = 1, WRONG_SIZE, TAKEN };
struct answer {
    char magic[8];
    int32_t verdict, nranks;
    char id[SWL_MEETING_ID_BYTES];
};
static const char magic[8] = {'s', 'w', 'l', 'm', 'e', 'e', 't', '1'};

/* ---- rank 0 ---- */

struct caller {
    int fd;
    uint64_t until_ns;
    size_t got;
    struct hello hello;
};

struct host {
    int listener, nranks, nserved;
    const char *id;
    bool *served; /* [nranks] */
    int ncallers;
    struct caller callers[MAX_CALLERS];
    struct swl_why *why;
};

/* IPv6 and IPv4 where there are both. */
static int listen_at(uint16_t port)
{
    const int on = 1, off = 0;
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};

    for (int family = 0; family < 2; family++) {
        const struct sockaddr *at =
            family == 0 ? (struct sockaddr *)&six : (struct sockaddr *)&four;
        const socklen_t bytes = family == 0 ? sizeof six : sizeof four;
        const int fd = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        if (fd < 0)
            continue;
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (family == 0)
            setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
        if (bind(fd, at, bytes) == 0 && listen(fd, 1024) == 0)
            return fd;
        const int error = errno;

        close(fd);
        errno = error;
        if (error == EADDRINUSE)
            return -1;
    }
    return -1;
}

static void hang_up(struct host *h, int i)
{
    close(h->callers[i].fd);
    h->callers[i] = h->callers[--h->ncallers];
}

static void take_caller(struct host *h)
{
    const int fd = accept4(h->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0)
        return;
    if (h->ncallers == MAX_CALLERS)
        hang_up(h, 0);
    h->callers[h->ncallers++] = (struct caller){.fd = fd, .until_ns = swl_real_ns() + HELLO_NS};
}

/* False: the job cannot work. */
static bool greet(struct host *h, const struct caller *c)
{
    const struct hello *said = &c->hello;
    struct answer answer = {.verdict = WELCOME, .nranks = h->nranks};

    memcpy(answer.magic, magic, sizeof magic);
    memcpy(answer.id, h->id, sizeof answer.id);
    if (said->nranks != h->nranks || said->rank < 1 || said->rank >= h->nranks)
        answer.verdict = WRONG_SIZE;
    else if (h->served[said->rank])
        answer.verdict = TAKEN;
    if (answer.verdict != WELCOME)
        memset(answer.id, 0, sizeof answer.id);
    const bool sent = send(c->fd, &answer, sizeof answer, MSG_NOSIGNAL) == (ssize_t)sizeof answer;

    if (answer.verdict == WRONG_SIZE)
        return swl_why_set(h->why, "rank %d was started as one of %d ranks, rank 0 as one of %d",
                           said->rank, said->nranks, h->nranks);
    if (answer.verdict == TAKEN)
        return swl_why_set(h->why, "two processes were started as rank %d", said->rank);
    if (sent) { /* else the rank has gone and may come again */
        h->served[said->rank] = true;
        h->nserved++;
    }
    return true;
}

/* What caller i has said so far. *over_p: it is served or no rank. */
static bool hear(struct host *h, int i, bool *over_p)
{
    struct caller *c = &h->callers[i];
    char *to = (char *)&c->hello + c->got;
    const ssize_t n = recv(c->fd, to, sizeof c->hello - c->got, 0);

    *over_p = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    if (n <= 0)
        return true;
    c->got += (size_t)n;
    const size_t known = c->got < sizeof magic ? c->got : sizeof magic;

    *over_p = memcmp(c->hello.magic, magic, known) != 0;
    if (*over_p || c->got < sizeof c->hello)
        return true;
    *over_p = true;
    return greet(h, c);
}

static bool host_round(struct host *h)
{
    struct pollfd wait_for[MAX_CALLERS + 1] = {{.fd = h->listener, .events = POLLIN}};
    const int n = h->ncallers;

    for (int i = 0; i < n; i++)
        wait_for[i + 1] = (struct pollfd){.fd = h->callers[i].fd, .events = POLLIN};
    if (poll(wait_for, (nfds_t)n + 1, POLL_MS) < 0)
        return true;
    for (int i = n - 1; i >= 0; i--) { /* hang_up moves the last one */
        bool over = false;

        if (wait_for[i + 1].revents && !hear(h, i, &over))
            return false;
        if (over || swl_real_ns() > h->callers[i].until_ns)
            hang_up(h, i);
    }
    if (wait_for[0].revents)
        take_caller(h);
    return true;
}

/* "1, 4, 5" and so on. */
static void list_missing(const struct host *h, char *text, size_t bytes)
{
    size_t n = 0;

    text[0] = '\0';
    for (int r = 1; r < h->nranks && n + 24 < bytes; r++)
        if (!h->served[r])
            n += (size_t)snprintf(text + n, bytes - n, "%s%d", n ? ", " : "", r);
}

static bool serve_all(struct host *h, const struct swl_meeting *at, uint64_t limit_ns)
{
    const uint64_t end = swl_real_ns() + limit_ns;
    char missing[128];

    while (h->nserved < h->nranks - 1) {
        if (!host_round(h))
            return false;
        if (swl_real_ns() < end)
            continue;
        list_missing(h, missing, sizeof missing);
        return swl_why_set(h->why,
                           "%d of %d ranks have not asked for the unique id at port %u within "
                           "%" PRIu64 " ms: rank %s",
                           h->nranks - 1 - h->nserved, h->nranks, at->port, limit_ns / 1000000,
                           missing);
    }
    return true;
}

bool swl_meeting_serve(const struct swl_meeting *at, int nranks, uint64_t limit_ns, const char *id,
                       struct swl_why *why)
{
    struct host *h = calloc(1, sizeof *h);
    bool ok = false;

    if (h)
        *h = (struct host){.nranks = nranks, .id = id, .why = why, .listener = listen_at(at->port)};
    if (h)
        h->served = calloc((size_t)nranks, sizeof *h->served);
    if (!h || !h->served)
        swl_why_set(why, "rank 0 has no host memory for %d ranks", nranks);
    else if (h->listener < 0)
        swl_why_set(why, "rank 0 cannot listen at port %u: %s; choose another by SWIMLANE_ROOT",
                    at->port, strerror(errno));
    else
        ok = serve_all(h, at, limit_ns);
    while (h && h->ncallers > 0)
        hang_up(h, 0);
    if (h && h->listener >= 0)
        close(h->listener);
    if (h)
        free(h->served);
    free(h);
    return ok;
}

/* ---- the others ---- */

/* Wait until the socket can be read or written; false: not before end_ns. */
static bool ready(int fd, short event, uint64_t end_ns)
{
    struct pollfd p = {.fd = fd, .events = event};

    for (;;) {
        const uint64_t now = swl_real_ns();

        if (now >= end_ns)
            return false;
        const uint64_t ms = (end_ns - now) / 1000000 + 1;

        if (poll(&p, 1, ms > 1000 ? 1000 : (int)ms) > 0)
            return true;
    }
}

/* A connection to rank 0; -1 with errno. */
static int connect_to(const struct addrinfo *where, uint64_t end_ns)
{
    const int fd = socket(where->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int error = 0;
    socklen_t bytes = sizeof error;

    if (fd < 0)
        return -1;
    if (connect(fd, where->ai_addr, where->ai_addrlen) != 0)
        error = errno;
    if (error == EINPROGRESS) {
        error = 0;
        if (!ready(fd, POLLOUT, end_ns))
            error = ETIMEDOUT;
        else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0)
            error = errno;
    }
    if (error == 0)
        return fd;
    close(fd);
    errno = error;
    return -1;
}

/* All bytes of rank 0's answer; fewer when it hangs up or the time is over. */
static size_t ask(int fd, const struct hello *hello, struct answer *answer, uint64_t end_ns)
{
    size_t got = 0;

    if (send(fd, hello, sizeof *hello, MSG_NOSIGNAL) != (ssize_t)sizeof *hello)
        return 0;
    while (got < sizeof *answer && ready(fd, POLLIN, end_ns)) {
        const ssize_t n = recv(fd, (char *)answer + got, sizeof *answer - got, 0);

        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            break;
        got += n > 0 ? (size_t)n : 0;
    }
    return got;
}

enum tried { MEET_LATER, MEET_DONE, MEET_NEVER };

static enum tried judge(const struct swl_meeting *at, const struct hello *hello,
                        const struct answer *answer, size_t got, struct swl_why *why)
{
    if (memcmp(answer->magic, magic, got < sizeof magic ? got : sizeof magic) != 0) {
        swl_why_set(why, "rank %d: what answers at %s:%u is not rank 0 of this job", hello->rank,
                    at->host, at->port);
        return MEET_NEVER;
    }
    if (got < sizeof *answer) {
        swl_why_set(why, "rank 0 hung up");
        return MEET_LATER;
    }
    if (answer->verdict == WELCOME)
        return MEET_DONE;
    if (answer->verdict == TAKEN)
        swl_why_set(why, "two processes were started as rank %d", hello->rank);
    else
        swl_why_set(why, "rank %d was started as one of %d ranks, rank 0 as one of %d", hello->rank,
                    hello->nranks, answer->nranks);
    return MEET_NEVER;
}

/* One attempt at every address of the host. */
static enum tried fetch_once(const struct swl_meeting *at, const struct hello *hello,
                             struct answer *answer, uint64_t end_ns, struct swl_why *why)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    enum tried tried = MEET_LATER;
    char port[8];

    snprintf(port, sizeof port, "%u", at->port);
    const int rc = getaddrinfo(at->host, port, &hints, &list);

    if (rc != 0)
        swl_why_set(why, "%s", gai_strerror(rc));
    for (const struct addrinfo *a = rc == 0 ? list : NULL; a && tried == MEET_LATER;
         a = a->ai_next) {
        const int fd = connect_to(a, end_ns);

        if (fd < 0) {
            /* the end of the time says less than what an earlier attempt met */
            if (errno != ETIMEDOUT || why->text[0] == '\0')
                swl_why_set(why, "%s", strerror(errno));
            continue;
        }
        memset(answer, 0, sizeof *answer);
        tried = judge(at, hello, answer, ask(fd, hello, answer, end_ns), why);
        close(fd);
    }
    if (rc == 0)
        freeaddrinfo(list);
    return tried;
}

bool swl_meeting_fetch(const struct swl_meeting *at, int rank, int nranks, uint64_t limit_ns,
                       char *id, struct swl_why *why)
{
    const uint64_t end_ns = swl_real_ns() + limit_ns;
    struct hello hello = {.rank = rank, .nranks = nranks};
    struct swl_why last = {""};
    struct answer answer;

    memcpy(hello.magic, magic, sizeof magic);
    for (;;) {
        const enum tried tried = fetch_once(at, &hello, &answer, end_ns, &last);

        if (tried == MEET_DONE)
            break;
        if (tried == MEET_NEVER)
            return swl_why_set(why, "%s", last.text);
        if (swl_real_ns() + RETRY_NS >= end_ns)
            return swl_why_set(why, "rank %d: no rank 0 at %s:%u within %" PRIu64 " ms: %s", rank,
                               at->host, at->port, limit_ns / 1000000, last.text);
        swl_real_sleep_ns(RETRY_NS);
    }
    memcpy(id, answer.id, sizeof answer.id);
    return true;
}
