// loop_wire.h: a wire inside the process, for tests of the proxy's front end: everything it is
// given is executed a little later, a few requests at a time, in order.
#ifndef SWL_TESTS_LOOP_WIRE_H
#define SWL_TESTS_LOOP_WIRE_H

#include "transport/proxy/front.h"

const struct swl_nic_ops *loop_ops();

// What the next NICs do: how many requests of a queue they take at most, how many they execute in
// one turn, and the request that fails with this syndrome (counted from 0 for each queue pair).
struct loop_behaviour {
    uint32_t room = 5, turn = 3;
    uint64_t fail_at = UINT64_MAX;
    uint32_t syndrome = 0;
};
extern loop_behaviour loop_next;

// Calls of post so far, and the most requests that one of them took.
struct loop_counts {
    uint64_t posts, most;
};
extern loop_counts loop_count;

#endif
