/* meeting.h: rank 0 hands the NCCL unique id to ranks that a launcher started.
 *
 * Layer: tools/support. Sockets and files only. Functions that can fail put one sentence into `why`. */
#ifndef SWL_MEETING_H
#define SWL_MEETING_H

#include "tools/support/launch.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SWL_MEETING_ID_BYTES = 128 };

/* Where the ranks meet: host and port, or a file (port 0). */
struct swl_meeting {
    char host[256];
    uint16_t port;
    char file[512];
};

/* SWIMLANE_ROOT=host:port, else MASTER_ADDR and MASTER_PORT (one above it under torchrun, whose own
 * store has that port), else a file in TMPDIR with the name of the job, for ranks of one machine. */
bool swl_meeting_choose(struct swl_meeting *at, struct swl_why *why);

/* Rank 0 gives `id` to nranks - 1 others; they get it. Each side ends within limit_ns, whoever is
 * missing and whatever else connects to the port. */
bool swl_meeting_id(const struct swl_meeting *at, int rank, int nranks, uint64_t limit_ns,
                    char id[SWL_MEETING_ID_BYTES], struct swl_why *why);

/* Rank 0, when all ranks have a communicator: remove the file. */
void swl_meeting_end(const struct swl_meeting *at);

/* The two ways (meeting_socket.c, meeting_file.c). */
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
