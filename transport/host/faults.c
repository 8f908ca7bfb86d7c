/* faults.c: parser of faults, of the software NIC and of proxies.
 *
 * Layer: transport/host; pure. */
#include "transport/host/faults.h"

#include "transport/wqe.h"

#include <stdlib.h>
#include <string.h>

static bool skip_word(const char **at, const char *word)
{
    size_t n = strlen(word);

    if (strncmp(*at, word, n) != 0)
        return false;
    *at += n;
    return true;
}

static bool take_number(const char **at, uint64_t *value_p)
{
    char *end;

    if (**at < '0' || **at > '9')
        return false;
    *value_p = strtoull(*at, &end, 0);
    if (*value_p == UINT64_MAX) /* too large; errno belongs to all fibers of a thread */
        return false;
    *at = end;
    return true;
}

/* A number with ns, us, ms or s; plain is ns. */
static bool take_time(const char **at, uint64_t *ns_p)
{
    uint64_t value;
    uint64_t unit = 1;

    if (!take_number(at, &value))
        return false;
    if (skip_word(at, "ns"))
        unit = 1;
    else if (skip_word(at, "us"))
        unit = 1000;
    else if (skip_word(at, "ms"))
        unit = 1000000;
    else if (skip_word(at, "s"))
        unit = 1000000000;
    if (value > UINT64_MAX / 4 / unit)
        return false;
    *ns_p = value * unit;
    return true;
}

/* "N", "N+" or "N-M" */
static bool take_range(const char **at, uint64_t *first_p, uint64_t *last_p)
{
    if (!take_number(at, first_p))
        return false;
    *last_p = *first_p;
    if (skip_word(at, "+"))
        *last_p = UINT64_MAX;
    else if (skip_word(at, "-"))
        return take_number(at, last_p) && *last_p >= *first_p;
    return true;
}

static const struct {
    const char *name;
    uint32_t number;
} syndromes[] = {
    {"length", SWL_SYNDROME_LOCAL_LENGTH},
    {"operation", SWL_SYNDROME_LOCAL_OPERATION},
    {"protection", SWL_SYNDROME_LOCAL_PROTECTION},
    {"flushed", SWL_SYNDROME_FLUSHED},
    {"request", SWL_SYNDROME_REMOTE_REQUEST},
    {"access", SWL_SYNDROME_REMOTE_ACCESS},
    {"remote", SWL_SYNDROME_REMOTE_OPERATION},
    {"retry", SWL_SYNDROME_RETRY},
    {"rnr", SWL_SYNDROME_RNR_RETRY},
};

static bool take_syndrome(const char **at, uint32_t *syndrome_p)
{
    uint64_t number;

    for (size_t i = 0; i < sizeof(syndromes) / sizeof(syndromes[0]); i++)
        if (skip_word(at, syndromes[i].name)) {
            *syndrome_p = syndromes[i].number;
            return true;
        }
    if (!take_number(at, &number) || number == 0 || number > 0xff)
        return false;
    *syndrome_p = (uint32_t)number;
    return true;
}

static bool take_span(const char **at, struct soft_rule *rule)
{
    if (!take_time(at, &rule->first) || !skip_word(at, "+") || !take_time(at, &rule->last))
        return false;
    rule->last += rule->first;
    return true;
}

/* "error=", "drop=", "stall=", "dead=" or "restart="; false if it is none of them or malformed. */
static bool take_rule(const char **at, struct soft_rule *rule)
{
    if (skip_word(at, "error=")) {
        rule->kind = SOFT_RULE_ERROR;
        rule->syndrome = SWL_SYNDROME_RETRY;
        if (!take_range(at, &rule->first, &rule->last))
            return false;
        return !skip_word(at, "/") || take_syndrome(at, &rule->syndrome);
    }
    if (skip_word(at, "drop=")) {
        rule->kind = SOFT_RULE_DROP;
        return take_range(at, &rule->first, &rule->last);
    }
    if (skip_word(at, "stall=")) {
        rule->kind = SOFT_RULE_STALL;
        return take_span(at, rule);
    }
    if (skip_word(at, "restart=")) {
        rule->kind = SOFT_RULE_RESTART;
        return take_span(at, rule) && rule->last > rule->first;
    }
    if (skip_word(at, "dead=")) {
        rule->kind = SOFT_RULE_DEAD;
        return take_time(at, &rule->first);
    }
    return false;
}

/* "N" of 1000 */
static bool take_share(const char **at, uint32_t *share_p)
{
    uint64_t number;

    if (!take_number(at, &number) || number > 1000)
        return false;
    *share_p = (uint32_t)number;
    return true;
}

/* Settings that hold for the whole NIC. */
static bool take_setting(const char **at, struct soft_faults *f, bool *known_p)
{
    *known_p = true;
    if (skip_word(at, "seed="))
        return take_number(at, &f->seed);
    if (skip_word(at, "delay="))
        return take_time(at, &f->delay_ns);
    if (skip_word(at, "jitter=")) {
        f->asked |= SOFT_CAN_JITTER;
        return take_time(at, &f->jitter_ns);
    }
    if (skip_word(at, "hold=")) {
        f->asked |= SOFT_CAN_HOLD;
        return take_time(at, &f->hold_ns);
    }
    if (skip_word(at, "loss=")) {
        f->asked |= SOFT_CAN_LOSE;
        return take_share(at, &f->loss);
    }
    if (skip_word(at, "retry="))
        return take_time(at, &f->retry_ns);
    if (skip_word(at, "reorder=")) {
        if (!skip_word(at, "on") && !skip_word(at, "off"))
            return false;
        f->reorder = (*at)[-1] == 'n';
        f->asked &= ~(uint32_t)SOFT_CAN_REORDER;
        f->asked |= f->reorder ? SOFT_CAN_REORDER : 0;
        return true;
    }
    *known_p = false;
    return true;
}

/* "rankN:" or "rankN.linkM:", if it is there; clauses of other ranks go to *other. */
static bool take_whom(const char **at, struct soft_faults *f, struct soft_faults *other,
                      uint32_t rank, struct soft_faults **to_p, uint32_t *link_p)
{
    uint64_t number;

    *to_p = f;
    *link_p = SOFT_ANY;
    if (!skip_word(at, "rank"))
        return true;
    if (!take_number(at, &number) || number >= SOFT_ANY)
        return false;
    if (number >= f->ranks)
        f->ranks = (uint32_t)number + 1;
    if (number != rank)
        *to_p = other;
    if (skip_word(at, ".link")) {
        if (!take_number(at, &number) || number >= SOFT_ANY)
            return false;
        *link_p = (uint32_t)number;
        if (*link_p >= (*to_p)->links)
            (*to_p)->links = *link_p + 1;
    }
    return skip_word(at, ":");
}

static bool take_clause(const char **at, struct soft_faults *f, uint32_t rank)
{
    struct soft_faults other = *f;
    struct soft_faults *to;
    struct soft_rule *rule;
    uint32_t link;
    bool known;

    if (!take_whom(at, f, &other, rank, &to, &link) || !take_setting(at, to, &known))
        return false;
    if (known)
        return link == SOFT_ANY;
    if (to->nrules == SOFT_RULES_MAX)
        return false;
    rule = &to->rules[to->nrules];
    memset(rule, 0, sizeof(*rule));
    rule->link = link;
    if (!take_rule(at, rule))
        return false;
    if (rule->kind == SOFT_RULE_RESTART)
        to->asked |= SOFT_CAN_RESTART;
    to->nrules++;
    return true;
}

const char *swl_faults_beyond(const struct soft_faults *faults, uint32_t can)
{
    static const char *const names[] = {"jitter", "reorder=on", "loss", "hold", "restart"};

    for (uint32_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (faults->asked & ~can & 1u << i)
            return names[i];
    return NULL;
}

bool swl_faults_parse(struct soft_faults *faults_p, const char *text, uint32_t rank, size_t *at_p)
{
    struct soft_faults f;
    const char *at = text;

    memset(&f, 0, sizeof(f));
    f.reorder = 1;
    f.retry_ns = 1000000;
    while (*at != '\0') {
        const char *begin = at;

        if (*at == ' ' || *at == ';') {
            at++;
            continue;
        }
        if (!take_clause(&at, &f, rank) || (*at != '\0' && *at != ';' && *at != ' ')) {
            *at_p = (size_t)(begin - text);
            return false;
        }
    }
    *faults_p = f;
    return true;
}
