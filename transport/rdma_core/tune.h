/* tune.h: the user's settings on an open port, for drivers of RDMA hardware. Layer:
 * transport/rdma_core. */
#ifndef SWL_VERBS_TUNE_H
#define SWL_VERBS_TUNE_H

#include "transport/rdma_core/path.h"
#include "transport/rdma_core/port.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Logs a remark, if there is one. A setting out of range is named with its port. */
ncclResult_t swl_rc_tune(struct rc_tuning *tuning, uint32_t rank, const struct swl_nic_ib *ib,
                         const struct swl_port *port);

#ifdef __cplusplus
}
#endif
#endif
