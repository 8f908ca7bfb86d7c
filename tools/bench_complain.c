/* bench_complain.c: complaints of the ranks, each sentence once.
 *
 * Ranks of one process share the list of what was said; processes have one each. */
#include "tools/bench.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_SENTENCES = 32 };

struct sentence {
    char text[512];
    int nranks;
    bool by[BENCH_MAX_RANKS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sentence said[MAX_SENTENCES]; /* under the lock */
static int nsaid;

/* True when nobody has said it; a full list forgets. */
static bool is_new(int rank, const char *text)
{
    int i = 0;

    while (i < nsaid && strcmp(said[i].text, text) != 0)
        i++;
    if (i == MAX_SENTENCES)
        return true;
    if (i == nsaid) {
        snprintf(said[i].text, sizeof said[i].text, "%s", text);
        nsaid++;
    }
    said[i].nranks += !said[i].by[rank];
    said[i].by[rank] = true;
    return said[i].nranks == 1;
}

void bench_complain(struct bench_rank *r, const char *format, ...)
{
    char text[sizeof said[0].text];
    va_list list;

    if (++r->complaints > BENCH_MAX_COMPLAINTS)
        return;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    pthread_mutex_lock(&lock);
    bool alone = is_new(r->rank, text);

    pthread_mutex_unlock(&lock);
    if (alone)
        fprintf(stderr, "swimlane-bench: rank %d: %s\n", r->rank, text);
    if (r->complaints == BENCH_MAX_COMPLAINTS)
        fprintf(stderr, "swimlane-bench: rank %d: further complaints are left out\n", r->rank);
}

void bench_complaints_end(void)
{
    for (int i = 0; i < nsaid; i++) {
        const int more = said[i].nranks - 1;

        if (more > 0)
            fprintf(stderr, "swimlane-bench: and on %d more rank%s%s%s\n", more,
                    more == 1 ? "" : "s", nsaid > 1 ? ": " : "", nsaid > 1 ? said[i].text : "");
    }
    memset(said, 0, sizeof said);
    nsaid = 0;
}
