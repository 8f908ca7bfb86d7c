/* group_broken.h: which call of which rank fails in a group's life, and what the ranks see of
 * it. */
#ifndef SWL_GROUP_BROKEN_H
#define SWL_GROUP_BROKEN_H

#include "tests/support/failing_calls.h"
#include "tests/support/group_fixture.h"

#include "src/runtime/runtime.h"

constexpr uint64_t limit_ns = 2000000000;

/* What one rank saw. */
struct Seen {
    ncclResult_t rc = ncclSuccess;
    uint64_t took_ns = 0;
    std::string sentence;
};

struct Case {
    std::vector<int> nodes;
    int victim = 0;
    const char *transports = "";
};

inline std::string text_of(const Case &c, int n)
{
    std::string text =
        "call " + std::to_string(n) + " of rank " + std::to_string(c.victim) + " of nodes";

    for (int size : c.nodes)
        text += " " + std::to_string(size);
    return text + " over '" + c.transports + "'";
}

inline int ranks_of(const Case &c)
{
    return std::accumulate(c.nodes.begin(), c.nodes.end(), 0);
}

#endif
