/* meeting_file.c: the unique id in a file. See meeting.h. Layer: tools/support.
 *
 * The file is complete when it appears (rename). It names the process that wrote it, so that what a
 * job of the same name left behind when it was killed is not taken for this job's. */
#include "tools/support/meeting.h"

#include "src/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOOK_NS 5000000u

struct record {
    char magic[8];
    int32_t nranks;
    int32_t writer;   /* process */
    uint64_t started; /* of the writer, as the kernel has it */
    char id[SWL_MEETING_ID_BYTES];
};
static const char magic[8] = {'s', 'w', 'l', 'f', 'i', 'l', 'e', '1'};

/* Start time of a process in clock ticks since boot; 0: there is none. */
static uint64_t started(int process)
{
    char path[64], text[1024];
    uint64_t ticks = 0;

    snprintf(path, sizeof path, "/proc/%d/stat", process);
    FILE *file = fopen(path, "r");

    if (!file)
        return 0;
    const size_t n = fread(text, 1, sizeof text - 1, file);

    fclose(file);
    text[n] = '\0';
    /* field 22; the second one is a name in brackets that may hold anything */
    const char *at = strrchr(text, ')');

    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    if (!at || sscanf(at, "%" SCNu64, &ticks) != 1)
        return 0;
    return ticks;
}

bool swl_meeting_write(const struct swl_meeting *at, int nranks, const char *id,
                       struct swl_why *why)
{
    struct record record = {.nranks = nranks, .writer = (int32_t)getpid()};
    char draft[sizeof at->file + 16]; /* a name that nobody can have taken before */

    memcpy(record.magic, magic, sizeof magic);
    memcpy(record.id, id, sizeof record.id);
    record.started = started(getpid());
    snprintf(draft, sizeof draft, "%s.XXXXXX", at->file);
    const int fd = mkostemp(draft, O_CLOEXEC);

    if (fd < 0)
        return swl_why_set(why, "rank 0 cannot write %s: %s", draft, strerror(errno));
    bool ok = write(fd, &record, sizeof record) == (ssize_t)sizeof record;

    ok = close(fd) == 0 && ok;
    ok = ok && rename(draft, at->file) == 0;
    if (!ok) {
        swl_why_set(why, "rank 0 cannot write %s: %s%s", at->file, strerror(errno),
                    errno == EPERM || errno == EISDIR
                        ? "; another user has taken the name: set TMPDIR or SWIMLANE_ROOT"
                        : "");
        unlink(draft);
    }
    return ok;
}

/* What is wrong with a file under the name, which anybody can make in TMPDIR; NULL: nothing. */
static const char *refusal_of(const struct stat *status)
{
    if (!S_ISREG(status->st_mode))
        return "it is no regular file";
    if (status->st_uid != geteuid())
        return "it is another user's";
    if (status->st_mode & (S_IWGRP | S_IWOTH))
        return "others may write it";
    return NULL;
}

/* Written by a process of this user that still runs. O_NONBLOCK: a FIFO would wait for its
 * writer. */
static bool read_record(const char *file, struct record *record, const char **refused_p)
{
    const int fd = open(file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat status;

    *refused_p = fd < 0 && errno == ELOOP ? "it is a link" : NULL;
    if (fd < 0)
        return false;
    bool ok = fstat(fd, &status) == 0;

    *refused_p = ok ? refusal_of(&status) : NULL;
    ok = ok && !*refused_p && read(fd, record, sizeof *record) == (ssize_t)sizeof *record;
    close(fd);
    return ok && memcmp(record->magic, magic, sizeof magic) == 0 && record->started != 0 &&
           started(record->writer) == record->started;
}

bool swl_meeting_read(const struct swl_meeting *at, int rank, int nranks, uint64_t limit_ns,
                      char *id, struct swl_why *why)
{
    const uint64_t end = swl_real_ns() + limit_ns;
    struct record record;
    const char *refused;

    while (!read_record(at->file, &record, &refused)) {
        if (swl_real_ns() >= end)
            return swl_why_set(why,
                               "rank %d: rank 0 has not written %s within %" PRIu64
                               " ms%s%s; ranks on several machines need SWIMLANE_ROOT=host:port",
                               rank, at->file, limit_ns / 1000000,
                               refused ? ", what is there is not read as " : "",
                               refused ? refused : "");
        swl_real_sleep_ns(LOOK_NS);
    }
    if (record.nranks != nranks)
        return swl_why_set(why, "rank %d was started as one of %d ranks, rank 0 as one of %d", rank,
                           nranks, record.nranks);
    memcpy(id, record.id, sizeof record.id);
    return true;
}
