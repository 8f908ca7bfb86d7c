/* rc.h: a reliable queue pair of libibverbs on its way through its states.
 *
 * Layer: transport/rdma_core, for drivers whose queue pairs are made by public calls. Every step
 * returns 0 or the errno of the call; the sentence is the caller's, who knows which rank and device
 * it is. */
#ifndef SWL_VERBS_RC_H
#define SWL_VERBS_RC_H

#include "transport/rdma_core/path.h"
#include "transport/rdma_core/port.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What this end says of itself. */
struct rc_end swl_rc_end(const struct swl_port *port, const struct verbs_device_attr *attr,
                         uint32_t qpn, uint32_t psn);
/* A packet number to begin with, so that late packets of an earlier connection are refused. */
uint32_t swl_rc_psn(uint32_t qpn);

/* Reset to init. adds: the device executes remote adds. */
int swl_rc_init(const struct swl_verbs *verbs, struct verbs_qp *qp, const struct swl_port *port,
                bool adds);
/* Init to ready to receive. */
int swl_rc_receive(const struct swl_verbs *verbs, struct verbs_qp *qp, const struct rc_path *path);
/* Ready to receive to ready to send. */
int swl_rc_send(const struct swl_verbs *verbs, struct verbs_qp *qp, const struct rc_path *path);
/* Any to VERBS_STATE_RESET or VERBS_STATE_ERROR. */
int swl_rc_leave(const struct swl_verbs *verbs, struct verbs_qp *qp, uint32_t state);

#ifdef __cplusplus
}
#endif
#endif
