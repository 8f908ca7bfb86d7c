/* meeting.c: where the ranks of a launched job meet. See meeting.h. Layer: tools/support. */
#include "tools/support/meeting.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(sizeof(((struct swl_launch *)0)->job) == SWL_MEETING_JOB_BYTES,
               "a name is copied whole");

static bool set_port(struct swl_meeting *at, const char *text, int above)
{
    char *end;
    const long port = strtol(text, &end, 10);

    if (end == text || *end || port < 1 || port + above > 65535)
        return false;
    at->port = (uint16_t)(port + above);
    return true;
}

/* host:port, [address of IPv6]:port */
static bool choose_root(struct swl_meeting *at, const char *text, struct swl_why *why)
{
    const bool six = text[0] == '[';
    const char *colon = strrchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : 0;

    if (six && (length < 3 || text[length - 1] != ']'))
        length = 0;
    if (length == 0 || length >= sizeof(at->host) || (!six && memchr(text, ':', length)) ||
        !set_port(at, colon + 1, 0))
        return swl_why_set(why, "SWIMLANE_ROOT is '%.300s', it must be host:port or [IPv6]:port",
                           text);
    memcpy(at->host, six ? text + 1 : text, six ? length - 2 : length);
    return true;
}

/* torchrun's agent listens at MASTER_PORT as long as its job runs. */
static bool choose_master(struct swl_meeting *at, const char *host, const char *port,
                          struct swl_why *why)
{
    const char *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
    const bool taken = agent ? strcasecmp(agent, "true") == 0 : getenv("TORCHELASTIC_RUN_ID") != 0;

    if (strlen(host) >= sizeof(at->host) || !set_port(at, port, taken ? 1 : 0))
        return swl_why_set(why, "MASTER_ADDR is '%s' and MASTER_PORT '%s', which is no address%s",
                           host, port, taken ? " (the port above it is used)" : "");
    memcpy(at->host, host, strlen(host) + 1);
    return true;
}

/* In the name of the file, what is no letter and no digit becomes '_'. A job without a name is
 * called after the process that started its ranks. */
static void choose_file(struct swl_meeting *at)
{
    const char *folder = getenv("TMPDIR");
    char job[192];
    size_t n = 0;

    for (const char *text = at->job; *text && n + 1 < sizeof job; text++)
        job[n++] = isalnum((unsigned char)*text) ? *text : '_';
    job[n] = '\0';
    if (n == 0)
        snprintf(job, sizeof job, "parent%d", (int)getppid());
    snprintf(at->file, sizeof at->file, "%.*s/swimlane-id-%u-%s", 256,
             folder && *folder ? folder : "/tmp", (unsigned)geteuid(), job);
}

static bool set_text(char *to, size_t bytes, const char *name, struct swl_why *why)
{
    const char *text = getenv(name);
    const size_t length = text ? strlen(text) : 0;

    if (length >= bytes)
        return swl_why_set(why, "%s has %zu letters, %zu are possible", name, length, bytes - 1);
    memcpy(to, text ? text : "", length);
    return true;
}

/* Which job this is: its name, its secret. */
static bool choose_job(struct swl_meeting *at, struct swl_why *why)
{
    struct swl_launch launch;
    struct swl_why ignored = {""};

    if (!set_text(at->secret, sizeof at->secret, "SWIMLANE_JOB_SECRET", why) ||
        !set_text(at->job, sizeof at->job, "SWIMLANE_JOB", why))
        return false;
    if (!swl_launch_read(&launch, &ignored))
        return true;
    at->one_host = launch.nlocal == launch.nranks;
    if (at->job[0] == '\0')
        memcpy(at->job, launch.job, sizeof at->job);
    return true;
}

bool swl_meeting_choose(struct swl_meeting *at, struct swl_why *why)
{
    const char *root = getenv("SWIMLANE_ROOT");
    const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");

    memset(at, 0, sizeof *at);
    if (!choose_job(at, why))
        return false;
    if (root && *root)
        return choose_root(at, root, why);
    if (host && *host && port && *port)
        return choose_master(at, host, port, why);
    choose_file(at);
    return true;
}

bool swl_meeting_id(const struct swl_meeting *at, int rank, int nranks, uint64_t limit_ns,
                    char id[SWL_MEETING_ID_BYTES], struct swl_why *why)
{
    if (nranks == 1)
        return true;
    if (at->port == 0)
        return rank == 0 ? swl_meeting_write(at, nranks, id, why)
                         : swl_meeting_read(at, rank, nranks, limit_ns, id, why);
    return rank == 0 ? swl_meeting_serve(at, nranks, limit_ns, id, why)
                     : swl_meeting_fetch(at, rank, nranks, limit_ns, id, why);
}

void swl_meeting_end(const struct swl_meeting *at)
{
    if (at->port == 0)
        unlink(at->file);
}
