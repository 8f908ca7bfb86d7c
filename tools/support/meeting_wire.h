/* meeting_wire.h: what ranks say to each other at a port, and where they find it. Private to
 * meeting_host.c, meeting_guest.c and meeting_lookup.c; see meeting.h. Layer: tools/support.
 *
 * A rank connects and says who it is and of which job; rank 0 answers with the id, or with what is
 * wrong. Numbers travel in host order: all ranks run the same program. */
#ifndef SWL_MEETING_WIRE_H
#define SWL_MEETING_WIRE_H

#include "tools/support/meeting.h"

#include <netdb.h>

struct meeting_hello {
    char magic[8];
    int32_t rank, nranks;
    char job[SWL_MEETING_JOB_BYTES]; /* zeros behind the text */
    char secret[SWL_MEETING_SECRET_BYTES];
};

enum meeting_verdict { MEETING_WELCOME = 1, MEETING_WRONG_JOB, MEETING_WRONG_SIZE, MEETING_TAKEN };

struct meeting_answer {
    char magic[8];
    int32_t verdict, nranks; /* nranks: WRONG_SIZE */
    char id[SWL_MEETING_ID_BYTES];
};

/* Different, so that an echo is no answer. */
static const char meeting_hello_magic[8] = {'s', 'w', 'l', 'm', 'e', 'e', 't', '2'};
static const char meeting_answer_magic[8] = {'s', 'w', 'l', 'a', 'n', 's', 'w', '2'};

/* "host:port", "[::1]:port" */
void swl_meeting_place(const struct swl_meeting *at, char *text, size_t bytes);

/* All addresses of the meeting; the caller frees them. NULL: none, or not before end_ns; `why` says
 * which. */
struct addrinfo *swl_meeting_lookup(const struct swl_meeting *at, uint64_t end_ns,
                                    struct swl_why *why);

#endif
