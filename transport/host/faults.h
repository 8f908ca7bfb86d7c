/* faults.h: text of SWIMLANE_SOFT_FAULTS -> tables that the software NIC and proxies ask. C and
 * CUDA; only the host parses.
 *
 * Layer: transport/host; pure, no memory. docs/testing.md has the grammar. */
#pragma once

#include "kernels/device/hd.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SOFT_RULES_MAX 32
#define SOFT_ANY       0xffffffffu
#define SOFT_SENDS     8u /* of a message, until its retries are exceeded */

enum soft_rule_kind {
    SOFT_RULE_ERROR,
    SOFT_RULE_DROP,
    SOFT_RULE_STALL,
    SOFT_RULE_DEAD,
    SOFT_RULE_RESTART
};

/* What not everybody can do; the rest everybody can. */
enum soft_ability {
    SOFT_CAN_JITTER = 1,
    SOFT_CAN_REORDER = 2,
    SOFT_CAN_LOSE = 4,
    SOFT_CAN_HOLD = 8, /* completions */
    SOFT_CAN_RESTART = 16,
    SOFT_CAN_ALL = 31
};

struct soft_rule {
    uint32_t kind;  /* enum soft_rule_kind */
    uint32_t link;  /* queue pair of the NIC, SOFT_ANY = all */
    uint64_t first; /* entry or doorbell number; stall, dead, restart: begin in ns */
    uint64_t last;  /* last number; stall, restart: end in ns */
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
    uint64_t hold_ns; /* added to every completion */
    uint32_t loss;    /* of 1000 messages, each time that one is sent */
    uint32_t asked;   /* enum soft_ability: what the text needs */
    uint32_t ranks;   /* more than the highest rank that the text names, 0 = names none */
    uint32_t links;   /* likewise of links, in the clauses of this rank */
};

/* The first rule of this kind for a link whose range holds n, or NULL. */
SWL_HD const struct soft_rule *swl_faults_find(const struct soft_faults *f, uint32_t kind,
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
SWL_HD uint32_t swl_faults_error(const struct soft_faults *faults, uint32_t link, uint64_t n)
{
    const struct soft_rule *r = swl_faults_find(faults, SOFT_RULE_ERROR, link, n);

    return r ? r->syndrome : 0;
}

/* Doorbell n of a link is ignored. */
SWL_HD bool swl_faults_drop(const struct soft_faults *faults, uint32_t link, uint64_t n)
{
    return swl_faults_find(faults, SOFT_RULE_DROP, link, n) != NULL;
}

/* First moment at or after `now` at which the link moves; the rules count from begin_ns. */
SWL_HD uint64_t swl_faults_clear(const struct soft_faults *faults, uint64_t begin_ns, uint32_t link,
                                 uint64_t now)
{
    const struct soft_rule *r;

    if (now < begin_ns)
        return now;
    while ((r = swl_faults_find(faults, SOFT_RULE_STALL, link, now - begin_ns)) != NULL)
        now = begin_ns + r->last + 1;
    return now;
}

/* The NIC has stopped for good. */
SWL_HD bool swl_faults_dead(const struct soft_faults *faults, uint64_t begin_ns, uint64_t now)
{
    for (uint32_t i = 0; i < faults->nrules; i++)
        if (faults->rules[i].kind == SOFT_RULE_DEAD && now >= begin_ns + faults->rules[i].first)
            return true;
    return false;
}

/* The NIC does nothing and answers nobody: it has stopped for good, or restarts. */
SWL_HD bool swl_faults_down(const struct soft_faults *f, uint64_t now)
{
    for (uint32_t i = 0; i < f->nrules; i++) {
        const struct soft_rule *r = &f->rules[i];

        if (r->kind == SOFT_RULE_RESTART && now >= f->begin_ns + r->first &&
            now < f->begin_ns + r->last)
            return true;
    }
    return swl_faults_dead(f, f->begin_ns, now);
}

/* The first restart that ends after `after`, or UINT64_MAX. */
SWL_HD uint64_t swl_faults_back(const struct soft_faults *f, uint64_t after)
{
    uint64_t back = UINT64_MAX;

    for (uint32_t i = 0; i < f->nrules; i++) {
        const uint64_t end = f->begin_ns + f->rules[i].last;

        if (f->rules[i].kind == SOFT_RULE_RESTART && end > after && end < back)
            back = end;
    }
    return back;
}

/* When the NIC stops answering, as of now: a moment behind it if it is down, UINT64_MAX = never. */
SWL_HD uint64_t swl_faults_falls(const struct soft_faults *f, uint64_t now)
{
    uint64_t falls = UINT64_MAX;

    for (uint32_t i = 0; i < f->nrules; i++) {
        const struct soft_rule *r = &f->rules[i];
        const uint64_t at = f->begin_ns + r->first;

        if ((r->kind == SOFT_RULE_DEAD ||
             (r->kind == SOFT_RULE_RESTART && f->begin_ns + r->last > now)) &&
            at < falls)
            falls = at;
    }
    return falls;
}

#ifdef __cplusplus
extern "C" {
#endif

/* Rules of `text` that concern this rank. False: *at_p is the offset of the first bad clause. */
bool swl_faults_parse(struct soft_faults *faults_p, const char *text, uint32_t rank, size_t *at_p);
/* The first word of the text that needs more than `can` (enum soft_ability), or NULL. */
const char *swl_faults_beyond(const struct soft_faults *faults, uint32_t can);

#ifdef __cplusplus
}
#endif
