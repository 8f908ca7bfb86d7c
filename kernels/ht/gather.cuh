/* gather.cuh: a gatherer's tokens, from their lists to their sums. Layer: kernels.
 *
 * Tokens are listed some ahead, in batches; rows that a peer must be asked for are asked for when
 * their token is listed, so that they come while older tokens are summed. Tokens are summed in
 * order: the warp waits until all contributions of the oldest one have arrived, and gives their
 * slots back when it is stored.
 *
 * Rows are loaded straight into registers, where they are: in a tensor that peers opened by their
 * open records, in a landing slot, in a partial ring. Whoever acquired the word that says so is a
 * lane of the warp, which has met the others since. */
#pragma once

#include "kernels/common/sum.cuh"
#include "kernels/ht/contributions.cuh"

#define PAIR_VECTORS 7u /* of a lane at a time, of one or two contributions */
#define SUM_VECTORS  4u /* the same of more contributions, two of them on their way together */
#define MIXED_VECTORS                                                                              \
    2u /* the same for contributions of several nodes, whose sums take twice the registers */

struct gather_pipe { /* equal in all lanes, but for ga.own */
    struct gatherer ga;
    char *lists;                 /* shared: [nlists] of list_bytes */
    uint32_t list_bytes, nlists; /* nlists: a power of two */
    uint32_t prepared, done;     /* tokens: listed; summed */
    uint32_t vectors;            /* of a row */
    bool out_fp32;               /* sums leave as fp32 */
};

SWL_DEV struct sum_list *gather_list(const struct gather_pipe *p, uint32_t token)
{
    return (struct sum_list *)(p->lists + (token & (p->nlists - 1)) * p->list_bytes);
}

/* All lanes: a piece of the sum of n contributions of one node, from vector `first` on. */
template <bool WHOLE, uint32_t DTYPE>
SWL_DEV void gather_piece(const struct gather_pipe *p, const struct contribution *contribution,
                          uint32_t n, char *out, uint32_t first, uint32_t left)
{
    const uint64_t at = (uint64_t)first * sizeof(struct vec16);
    struct accumulator sum[SUM_VECTORS];
    uint32_t i = 0;

    vectors_clear(sum);
    for (; i + 1 < n; i += 2) {
        struct vec16 one[SUM_VECTORS], two[SUM_VECTORS];

        vectors_load<WHOLE>(one, contribution[i].at + at, left);
        vectors_load<WHOLE>(two, contribution[i + 1].at + at, left); /* before the first is used */
        vectors_add<DTYPE>(sum, one);
        vectors_add<DTYPE>(sum, two);
    }
    if (i < n) {
        struct vec16 one[SUM_VECTORS];

        vectors_load<WHOLE>(one, contribution[i].at + at, left);
        vectors_add<DTYPE>(sum, one);
    }
    vectors_store<WHOLE, DTYPE>(sum, out, first, left, p->out_fp32);
}

/* The same for contributions of several nodes, or that came as fp32. */
template <uint32_t DTYPE>
SWL_DEV void gather_mixed(const struct gather_pipe *p, const struct contribution *contribution,
                          uint32_t n, char *out, uint32_t first, uint32_t left)
{
    const uint64_t at = (uint64_t)first * sizeof(struct vec16);
    struct accumulator node[MIXED_VECTORS], total[MIXED_VECTORS];

    vectors_clear(node);
    vectors_clear(total);
    for (uint32_t i = 0; i <= n; i++) {
        if (i == n || contribution[i].first)
            for (uint32_t u = 0; u < MIXED_VECTORS; u++) {
                accumulator_add(&total[u], &node[u]);
                accumulator_clear(&node[u]);
            }
        if (i == n)
            break;
        if (contribution[i].wide) {
            vectors_add_wide(node, contribution[i].at + 2 * at, left);
        } else {
            struct vec16 in[MIXED_VECTORS];

            vectors_load<false>(in, contribution[i].at + at, left);
            vectors_add<DTYPE>(node, in);
        }
    }
    vectors_store<false, DTYPE>(total, out, first, left, p->out_fp32);
}

/* The same for whole pieces of one or two contributions, also of two nodes: with two, the order of
 * levels does not matter. As many loads are on their way as registers allow. */
template <bool TWO, uint32_t DTYPE>
SWL_DEV void gather_few(const struct gather_pipe *p, const struct contribution *contribution,
                        char *out, uint32_t first)
{
    const uint64_t at = (uint64_t)first * sizeof(struct vec16);
    struct vec16 one[PAIR_VECTORS], two[PAIR_VECTORS];

    vectors_load<true>(one, contribution[0].at + at, 0);
    if (TWO)
        vectors_load<true>(two, contribution[1].at + at, 0);
    for (uint32_t u = 0; u < PAIR_VECTORS; u++) {
        struct accumulator sum;

        accumulator_clear(&sum);
        accumulator_take(&sum, &one[u], DTYPE);
        if (TWO)
            accumulator_take(&sum, &two[u], DTYPE);
        sum_store(out, first + lane_id() + 32 * u, &sum, DTYPE, p->out_fp32);
    }
}

/* All lanes: the sum of a token whose contributions have arrived. */
template <uint32_t DTYPE>
SWL_DEV void gather_row(const struct gather_pipe *p, struct sum_list *list)
{
    const struct contribution *contribution = list_contributions(list);
    const uint32_t n = list->ncontributions, vectors = p->vectors;
    const uint32_t step = 32 * (list->mixed ? MIXED_VECTORS : SUM_VECTORS);
    char *out = list->out;
    const bool few = (n == 1 || n == 2) && !contribution[0].wide && !contribution[n - 1].wide;
    uint32_t first = 0;

    if (few && n == 2)
        for (; vectors - first >= 32 * PAIR_VECTORS; first += 32 * PAIR_VECTORS)
            gather_few<true, DTYPE>(p, contribution, out, first);
    if (few && n == 1)
        for (; vectors - first >= 32 * PAIR_VECTORS; first += 32 * PAIR_VECTORS)
            gather_few<false, DTYPE>(p, contribution, out, first);
    for (; first < vectors; first += step) {
        const uint32_t left = vectors - first;

        if (list->mixed)
            gather_mixed<DTYPE>(p, contribution, n, out, first, left);
        else if (left >= step)
            gather_piece<true, DTYPE>(p, contribution, n, out, first, left);
        else
            gather_piece<false, DTYPE>(p, contribution, n, out, first, left);
    }
}

SWL_DEV void gather_token(const struct gather_pipe *p, struct sum_list *list)
{
    switch (p->ga.dtype) {
    case SWL_BF16:
        gather_row<SWL_BF16>(p, list);
        break;
    case SWL_FP16:
        gather_row<SWL_FP16>(p, list);
        break;
    default:
        gather_row<SWL_FP32>(p, list);
        break;
    }
}

/* All lanes: ask for rows of tokens `from` and later; a lane asks a rank for its rows of all of
 * them. One fence for all requests: this warp's reads of the landing slots come before their reuse;
 * pairs with serve_request. */
SWL_DEV void gather_ask(struct gather_pipe *p, uint32_t from)
{
    const struct swl_shape *shape = &p->ga.g->shape;

    warp_sync();
    order_before_publish(SWL_SCOPE_SYS);
    for (uint32_t local = lane_id(); local < shape->nlocal; local += 32) {
        uint64_t *asked = fetch_asked_of(&p->ga, local), position = *asked;

        for (uint32_t token = from; token != p->prepared; token++) {
            struct sum_list *list = gather_list(p, token);

            for (uint32_t i = 0; i < list->ncontributions; i++) {
                struct contribution *contribution = &list_contributions(list)[i];

                if (contribution->kind == SUM_FETCHED && contribution->ring == local)
                    fetch_ask(&p->ga, contribution, position++);
            }
        }
        *asked = position;
    }
    warp_sync(); /* every lane sees where the rows will be */
}

/* List tokens ahead, in batches: what a list needs is fetched for several tokens at once, and rows
 * that have to be asked for are told under one release. False = given up. */
template <class Source>
SWL_DEV bool gather_prepare(struct gather_pipe *p, Source *source, bool asks)
{
    const uint32_t lists = swl_min_u32(p->nlists, source_ahead(source));
    const uint32_t ahead = asks ? swl_min_u32(lists, p->ga.g->shape.fetch_slots) : lists;
    const uint32_t before = p->prepared;
    int got = 1;

    if (p->prepared != p->done && p->prepared - p->done + ahead / 2 > ahead)
        return true;
    while (got > 0 && p->prepared - p->done < ahead) {
        const bool idle = p->prepared == p->done;

        got = source_prepare(source, p, ahead - (p->prepared - p->done), idle);
        if (got > 0)
            p->prepared += (uint32_t)got;
        if (idle && !asks) /* the first rows may be loaded */
            break;
    }
    if (asks && p->prepared != before)
        gather_ask(p, before);
    return got >= 0;
}

/* A source of tokens defines: source_ahead(s): how many may be listed at a time; source_prepare(s,
 * p, most, idle): write the lists of the next tokens, at most `most`: how many, 0 = none now, or no
 * more at all (if `idle`, only the latter: then it waits), -1 = given up; source_finish(s, list):
 * the sum is stored and all contributions are read. All lanes call them, the last one after a
 * warp_sync. A template, since the two users differ only in these. */
template <class Source> SWL_DEV bool gather_run(struct gather_pipe *p, Source *source)
{
    const bool asks = fetch_needed(&p->ga);

    for (;;) {
        struct sum_list *list;

        if (!gather_prepare(p, source, asks))
            return false;
        if (p->prepared == p->done)
            return true;
        list = gather_list(p, p->done);
        if (!list_await(&p->ga, list))
            return false;
        gather_token(p, list);
        warp_sync(); /* the sum is written, the contributions are read by all lanes */
        source_finish(source, list);
        warp_sync(); /* the list is no longer read */
        p->done++;
    }
}
