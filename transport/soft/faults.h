/* faults.h: text of SWIMLANE_SOFT_FAULTS -> tables the software NIC asks. C
 * and CUDA; only the host parses.
 *
 * Layer: transport/soft; pure, no memory. docs/testing.md has the grammar. */
#pragma once

#include "kernels/layout.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
    uint64_t begin_ns; /* time the rules count from; blocks keep their own */
    uint32_t reorder;
    uint32_t nrules;
    struct soft_rule rules[SOFT_RULES_MAX];
};

/* The first rule of this kind for a link whose range holds n, or NULL. */
SWL_HD const struct soft_rule *swl_soft_faults_find(const struct soft_faults *f, uint32_t kind,
                                                    uint32_t link, uint64_t n)
{
    for (uint32_t i = 0; i < f->nrules; i++) {
        const struct soft_rule *r = &f->rules[i];

        if (r->kind == kind && (r->link == SOFT_ANY || r->link == link) && n >= r->first &&
            n <= r->last)
            return r;
    }
    return NULL;
}

/* The syndrome entry n of a link fails with, 0 = none. */
SWL_HD uint32_t swl_soft_faults_error(const struct soft_faults *faults, uint32_t link, uint64_t n)
{
    const struct soft_rule *r = swl_soft_faults_find(faults, SOFT_RULE_ERROR, link, n);

    return r ? r->syndrome : 0;
}

/* Doorbell n of a link is ignored. */
SWL_HD bool swl_soft_faults_drop(const struct soft_faults *faults, uint32_t link, uint64_t n)
{
    return swl_soft_faults_find(faults, SOFT_RULE_DROP, link, n) != NULL;
}

/* First moment at or after `now` at which the link moves; the rules count from begin_ns. */
SWL_HD uint64_t swl_soft_faults_clear(const struct soft_faults *faults, uint64_t begin_ns,
                                      uint32_t link, uint64_t now)
{
    const struct soft_rule *r;

    if (now < begin_ns)
        return now;
    while ((r = swl_soft_faults_find(faults, SOFT_RULE_STALL, link, now - begin_ns)) != NULL)
        now = begin_ns + r->last + 1;
    return now;
}

/* The NIC has stopped for good. */
SWL_HD bool swl_soft_faults_dead(const struct soft_faults *faults, uint64_t begin_ns, uint64_t now)
{
    for (uint32_t i = 0; i < faults->nrules; i++)
        if (faults->rules[i].kind == SOFT_RULE_DEAD && now >= begin_ns + faults->rules[i].first)
            return true;
    return false;
}

#ifdef __cplusplus
extern "C" {
#endif

/* Rules of `text` that concern this rank. False: *at_p is the offset of the first bad clause. */
bool swl_soft_faults_parse(struct soft_faults *faults_p, const char *text, uint32_t rank,
                           size_t *at_p);

#ifdef __cplusplus
}
#endif
