// fake_verbs.h: a libibverbs with one device of the test. Queue pairs obey the state machine and
// execute what is posted at once, in the process; every object is counted until it is given back,
// and any one call can be made to fail.
#ifndef SWL_TESTS_FAKE_VERBS_H
#define SWL_TESTS_FAKE_VERBS_H

#include "transport/rdma_core/verbs.h"

#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

struct FakeQueue {
    struct verbs_qp qp = {}; // first: the library's object
    uint32_t state = VERBS_STATE_RESET, peer = 0, rq_psn = 0, sq_psn = 0;
    struct verbs_qp_attr rtr = {};
    std::deque<struct verbs_recv_wr> receives;
    std::deque<struct verbs_sge> receive_sges;
};

struct FakeCq {
    struct verbs_cq cq = {};
    std::deque<struct verbs_wc> entries;
};

struct FakeVerbs {
    int atomic_cap = 1, transport = 0;
    bool joins_itself = true; // a queue pair may be its own peer
    int fail_at = 0;          // this call, counted from 1, fails
    // what happened
    int calls = 0;
    std::string failed;
    std::multiset<std::string> alive;
    std::map<uint32_t, FakeQueue *> queues; // by number
    std::vector<size_t> posts;              // requests of each call
    uint32_t dry = 0;                       // messages that found no receive
    uint32_t sends = 0;                     // messages that found one
    // the next request that is executed completes with this status
    uint32_t next_status = 0;
    std::deque<struct verbs_async_event> events;
    uint32_t next_number = 17;
    // WRITEs to memory of a GPU are complete, and not there before a READ or atomic of such memory
    bool late = false;
    std::deque<std::pair<uint64_t, std::vector<uint8_t>>> on_their_way;
    uint32_t flushes = 0;
    int pipe[2] = {-1, -1};
};
extern FakeVerbs fake;

// A new machine; call before each use.
struct swl_verbs fake_machine();
void fake_end();
// Counts a call; true: it is to fail.
bool fake_fails(const char *name);

#endif
