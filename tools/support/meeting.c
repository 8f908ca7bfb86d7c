/* meeting.c: where the ranks of a launched job meet. See meeting.h. Layer: tools/support. */
#include "tools/support/meeting.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool set_port(struct swl_meeting *at, const char *text, int above)
{
    char *end;
    const long port = strtol(text, &end, 10);

    if (end == text || *end || port < 1 || port + above > 65535)
        return false;
    at->port = (uint16_t)(port + above);
    return true;
}

static bool choose_root(struct swl_meeting *at, const char *text, struct swl_why *why)
{
    const char *colon = strrchr(text, ':');
    const size_t length = colon ? (size_t)(colon - text) : 0;

    if (length == 0 || length >= sizeof(at->host) || !set_port(at, colon + 1, 0))
        return swl_why_set(why, "SWIMLANE_ROOT is '%s', it must be host:port", text);
    memcpy(at->host, text, length);
    at->host[length] = '\0';
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

/* What the launcher calls the job, else the process that started its ranks. */
static void choose_file(struct swl_meeting *at)
{
    static const char *const names[] = {"SLURM_JOB_ID", "SLURM_STEP_ID", "PMIX_NAMESPACE",
                                        "OMPI_MCA_ess_base_jobid"};
    const char *folder = getenv("TMPDIR");
    char job[192];
    size_t n = 0;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = getenv(names[i]);

        for (; text && *text && n + 2 < sizeof job; text++)
            job[n++] = isalnum((unsigned char)*text) ? *text : '_';
    }
    job[n] = '\0';
    if (n == 0)
        snprintf(job, sizeof job, "parent%d", (int)getppid());
    snprintf(at->file, sizeof at->file, "%.*s/swimlane-id-%u-%s", 256,
             folder && *folder ? folder : "/tmp", (unsigned)geteuid(), job);
}

bool swl_meeting_choose(struct swl_meeting *at, struct swl_why *why)
{
    const char *root = getenv("SWIMLANE_ROOT");
    const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");

    memset(at, 0, sizeof *at);
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
