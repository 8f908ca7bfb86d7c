/* faults.h: text of SWIMLANE_SOFT_FAULTS and SWIMLANE_SOFT_LINK -> tables the software NIC asks.
 *
 * Layer: transport/soft; pure, no memory. docs/testing.md has the grammar. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SOFT_RULES_MAX 32
#define SOFT_ANY       0xffffffffu

enum soft_rule_kind { SOFT_RULE_ERROR, SOFT_RULE_DROP, SOFT_RULE_STALL, SOFT_RULE_DEAD };

struct soft_rule {
    uint32_t kind;  /* enum soft_rule_kind */
    uint32_t link;  /* queue pair of the NIC, SOFT_ANY = all */
    uint64_t first; /* entry or doorbell number; stall, dead: begin in ns */
    uint64_t last;  /* last number; stall: end in ns */
    uint32_t syndrome;
    uint32_t pad;
};

struct soft_faults {
    uint64_t seed; /* 0: the emulator's own random stream */
    uint64_t delay_ns, jitter_ns;
    uint64_t retry_ns; /* how long a request to a dead peer is retried */
    uint64_t begin_ns; /* time the rules count from */
    uint32_t reorder;
    uint32_t nrules;
    struct soft_rule rules[SOFT_RULES_MAX];
};

/* Rules of `text` that concern this rank. False: *at_p is the offset of the first bad clause. */
bool swl_soft_faults_parse(struct soft_faults *faults_p, const char *text, uint32_t rank,
                           size_t *at_p);

/* "gbps:us" -> time per MiB and latency. False: malformed. */
bool swl_soft_link_parse(const char *text, uint64_t *ns_per_mib_p, uint64_t *latency_ns_p);

/* The syndrome entry n of a link fails with, 0 = none. */
uint32_t swl_soft_faults_error(const struct soft_faults *faults, uint32_t link, uint64_t n);
/* Doorbell n of a link is ignored. */
bool swl_soft_faults_drop(const struct soft_faults *faults, uint32_t link, uint64_t n);
/* First moment at or after `now` at which the link moves. */
uint64_t swl_soft_faults_clear(const struct soft_faults *faults, uint32_t link, uint64_t now);
/* The NIC has stopped for good. */
bool swl_soft_faults_dead(const struct soft_faults *faults, uint64_t now);

#ifdef __cplusplus
}
#endif
