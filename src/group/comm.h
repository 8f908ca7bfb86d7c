/* comm.h: what NCCL knows of a communicator. Layer: src/group, used by api and group. */
#ifndef SWL_COMM_H
#define SWL_COMM_H

#include <nccl.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A number that NCCL knows of a communicator. Asked once more if the question fails: a rank that
 * does not know its place among the others cannot tell them of a failure. `text` completes "comm:
 * no ...". */
ncclResult_t swl_comm_ask(ncclResult_t (*question)(const ncclComm_t, int *), ncclComm_t comm,
                          int *value_p, const char *text);

#ifdef __cplusplus
}
#endif
#endif
