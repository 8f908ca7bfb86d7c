/* meeting.h: rank 0 hands the NCCL unique id to ranks that a launcher started.
 *
 * Layer: tools/support. Sockets and files only. Functions that can fail put one sentence into
 * `why`. */
#ifndef SWL_MEETING_H
#define SWL_MEETING_H

#include "tools/support/launch.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SWL_MEETING_ID_BYTES = 128, SWL_MEETING_JOB_BYTES = 256, SWL_MEETING_SECRET_BYTES = 128 };

/* Where the ranks meet, and of which job they are: host and port, or a file (port 0). Text has
 * zeros behind it. */
struct swl_meeting {
    char host[256]; /* an address of IPv6 without its brackets */
    uint16_t port;
    bool one_host; /* the launcher says that all ranks are on one machine */
    char file[640];
    char job[SWL_MEETING_JOB_BYTES]; /* "": nobody has named it */
    char secret[SWL_MEETING_SECRET_BYTES];
};

/* The job is SWIMLANE_JOB, else what the launcher calls it; SWIMLANE_JOB_SECRET goes with it.
 * SWIMLANE_ROOT=host:port, else MASTER_ADDR and MASTER_PORT (one above it under torchrun, whose own
 * store has that port), else a file in TMPDIR with the name of the job, for ranks of one
 * machine. */
bool swl_meeting_choose(struct swl_meeting *at, struct swl_why *why);

/* Rank 0 gives `id` to nranks - 1 others; they get it. Each side ends within limit_ns, whoever is
 * missing and whatever else connects to the port; who is not of this job gets nothing. */
bool swl_meeting_id(const struct swl_meeting *at, int rank, int nranks, uint64_t limit_ns,
                    char id[SWL_MEETING_ID_BYTES], struct swl_why *why);

/* Rank 0, when all ranks have a communicator: remove the file. */
void swl_meeting_end(const struct swl_meeting *at);

/* The two ways (meeting_host.c and meeting_guest.c, meeting_file.c). */
bool swl_meeting_serve(const struct swl_meeting *at, int nranks, uint64_t limit_ns, const char *id,
                       struct swl_why *why);
bool swl_meeting_fetch(const struct swl_meeting *at, int rank, int nranks, uint64_t limit_ns,
                       char *id, struct swl_why *why);
bool swl_meeting_write(const struct swl_meeting *at, int nranks, const char *id,
                       struct swl_why *why);
bool swl_meeting_read(const struct swl_meeting *at, int rank, int nranks, uint64_t limit_ns,
                      char *id, struct swl_why *why);

#ifdef __cplusplus
}
#endif
#endif
