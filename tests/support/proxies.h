// proxies.h: the proxy NICs that the tests of all NICs run with: a wire of the test and TCP, or in
// the virtual machine with RDMA devices (RXE_VM=1) those over verbs and no others.
#ifndef SWL_TESTS_PROXIES_H
#define SWL_TESTS_PROXIES_H

#include "transport/nic.h"

#include <vector>

bool nic_on_verbs();
// Its adds return no old value.
bool nic_by_message(const struct swl_nic *nic);
std::vector<const struct swl_nic_ops *> nic_proxies();

#endif
