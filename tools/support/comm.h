/* comm.h: which NCCL the ranks of a tool use: the real one, or the stand-in of sim/nccl_*.
 *
 * Layer: tools/support. NCCL 2.28 has one rank of a node on a GPU, and takes the threads of a
 * process for one node; the stand-in has no such limits. Both export the same names, so the choice
 * is made by the loader: a program that is to use the stand-in starts itself anew with
 * libswl_nccl.so preloaded. In the emulator there is the stand-in only. */
#ifndef SWL_COMM_H
#define SWL_COMM_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whether ncclCommInitRank of this process is the stand-in's. */
bool swl_comm_is_standin(void);

/* Call before any use of a device. With the stand-in active: true. Else start /proc/self/exe anew
 * with argv and the library of the program's own folder preloaded; returns (false, after a line on
 * stderr) only when that fails. */
bool swl_comm_use_standin(char **argv);

/* Whether ranks of several processes can make a communicator: those of the stand-in meet on the
 * loopback interface. A line on stderr if not. */
bool swl_comm_reaches_processes(void);

/* "NCCL 2.28.9" or "stand-in for NCCL". */
void swl_comm_name(char *text, int bytes);

#ifdef __cplusplus
}
#endif
#endif
