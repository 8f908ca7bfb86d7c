/* link_probe.h: what the link between two GPUs of this machine carries.
 *
 * Layer: tools/support. Blocks for some tens of milliseconds; uses the GPUs alone, before ranks
 * do. */
#ifndef SWL_LINK_PROBE_H
#define SWL_LINK_PROBE_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct swl_link_figures {
    double copy_gbs;  /* each way, both ways at once, by the copy engines */
    double push_gbs;  /* the same by `push_sms` SMs of each GPU that store into the other one */
    double clock_mhz; /* of an SM meanwhile */
    int push_sms, nsms;
    char gpu[64];
};

/* False: no such link (no peer access, no device, or the emulator). */
bool swl_link_probe(int first, int second, int push_sms, struct swl_link_figures *figures);

#ifdef __cplusplus
}
#endif
#endif
