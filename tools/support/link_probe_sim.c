/* link_probe_sim.c: the emulator's links take no time. Layer: tools/support. */
#include "tools/support/link_probe.h"

bool swl_link_probe(int first, int second, int push_sms, struct swl_link_figures *figures)
{
    (void)first;
    (void)second;
    (void)push_sms;
    (void)figures;
    return false;
}
