/* failing_calls.h: calls of the device runtime, of NCCL and of the NIC that fail when a test wants
 * it.
 *
 * Layer: tests of the emulator. The program puts itself before the runtime (runtime.h) and NCCL,
 * and links with --wrap for the tables of the NICs. Calls of one rank, the victim, are numbered;
 * one of them fails, or all of its name from there on. A call that gives something back does so all
 * the same. What is held is counted for all ranks. */
#ifndef SWL_FAILING_CALLS_H
#define SWL_FAILING_CALLS_H

#include <string>

struct FailingCalls {
    int at = 0;         /* number of the call that fails, from 1; 0: none */
    bool on = false;    /* and every later one of its name */
    std::string only;   /* calls whose name begins so are numbered, others are not; "" = all */
    int calls = 0;      /* numbered so far */
    std::string failed; /* name of the call that failed; "" = none yet */

    void watch(); /* the calling rank is the victim from here on, and is numbered from 1 */
    void stop();  /* no call fails or is numbered from here on */
};
extern FailingCalls failing;

/* Kinds and numbers of what all ranks hold of the runtime and of NICs; "" = nothing. */
std::string held_objects();
/* Descriptors of this process. */
int held_descriptors();

#endif
