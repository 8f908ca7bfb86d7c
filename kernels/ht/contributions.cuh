/* contributions.cuh: where the contributions of a token's sum lie, and when they are there. Layer:
 * kernels.
 *
 * A *gatherer* (a warp: summer at the source, gateway elsewhere) keeps the lists of a few tokens in
 * shared memory. A row at a rank of this node is read where it is if it is this rank's own or the
 * rank's tensor is peer-addressable, else asked for: request ring at the rank, landing slot here.
 * The request is the credit, since the gatherer owns the landing slot, so that servers never block;
 * no more tokens are listed than there are slots, so that a slot is free when a token asks for it.
 *
 * A request is one word {generation:16, 1, position:15, row:32}: it is its own signal, so that no
 * other store must arrive before it. What lay in its slot before differs in position or
 * generation. */
#pragma once

#include "kernels/common/call.cuh"
#include "kernels/common/open_record.cuh"
#include "kernels/common/select.cuh"

enum sum_kind { SUM_HERE, SUM_FETCHED, SUM_PARTIAL };

struct contribution {
    const char *at;    /* 16-byte vectors */
    uint32_t position; /* FETCHED, PARTIAL: low word of the position in its ring */
    uint32_t row;      /* FETCHED: at the rank */
    uint32_t ring;     /* FETCHED: local rank; PARTIAL: ring of partial sums */
    uint8_t kind;
    uint8_t first; /* of its node, but not of the token */
    uint8_t wide;  /* a partial sum that travels as fp32, twice as long as the payload */
    uint8_t pad;
};
static_assert(sizeof(struct contribution) == SWL_CONTRIBUTION_BYTES, "picture of block.h");

/* of a token; followed by contribution[ncontributions], sorted by (node, local rank) */
struct sum_list {
    char *out; /* where the sum goes */
    uint64_t position;
    uint32_t ring; /* gateway: of the request, with the position of the partial sum */
    uint32_t ncontributions;
    uint32_t waits; /* some contribution may not have arrived */
    uint32_t mixed; /* some contribution is `first` or wide */
};
static_assert(sizeof(struct sum_list) == SWL_LIST_HEAD_BYTES, "picture of block.h");

SWL_DEV struct contribution *list_contributions(struct sum_list *list)
{
    return (struct contribution *)(list + 1);
}

struct gatherer {
    const struct swl_device_group *g;
    struct warp_scratch *scratch;
    const char *tokens; /* this rank's input rows */
    uint64_t gen_call;
    uint32_t number; /* of this gatherer in its rank */
    uint32_t row_bytes;
    uint32_t dtype;
    uint32_t own; /* of this lane: rows of this rank's plain tensor that need no server */
    struct waiter waiter;
};

SWL_DEV uint64_t fetch_word(uint64_t gen, uint64_t position, uint32_t row)
{
    return gen << 48 | (0x8000 | (position & 0x7fff)) << 32 | row;
}

/* Of rank `local`: rows that this gatherer has asked it for. */
SWL_DEV uint64_t *fetch_asked_of(const struct gatherer *ga, uint32_t local)
{
    return &ga->g->ht.fetch_asked[(uint64_t)local * ga->g->shape.ngatherers + ga->number];
}

/* One lane: ask for the row of a contribution, as number `position` from that rank. Its fence came
 * before. */
SWL_DEV void fetch_ask(const struct gatherer *ga, struct contribution *contribution,
                       uint64_t position)
{
    const struct swl_device_group *g = ga->g;
    const uint64_t mine = (uint64_t)g->shape.local * g->shape.ngatherers + ga->number;
    const uint64_t theirs = (uint64_t)contribution->ring * g->shape.ngatherers + ga->number;
    const uint32_t slots = g->shape.fetch_slots;
    const uint64_t slot = position & (slots - 1);

    post_to_peer(peer_word(g, contribution->ring, g->at.ht.fetch_request, mine * slots + slot),
                 fetch_word(ga->waiter.watch->gen, position, contribution->row));
    contribution->position = (uint32_t)position;
    contribution->at =
        g->window + g->at.ht.fetch_row + (theirs * slots + slot) * g->shape.row_bytes;
}

/* All lanes: does any rank of the node need to be asked for its rows? */
SWL_DEV bool fetch_needed(const struct gatherer *ga)
{
    bool plain = false;

    for (uint32_t i = lane_id(); i < ga->g->shape.nlocal; i += 32)
        plain = plain || (i != ga->g->shape.local &&
                          !open_record_of(ga->g, i, ga->waiter.watch->call)->direct);
    return warp_any(plain);
}

/* One lane: has local rank `local` row `row`? A missing row adds nothing and is reported. */
SWL_DEV bool contribution_exists(const struct gatherer *ga, uint32_t local, uint32_t row)
{
    if (row < open_record_of(ga->g, local, ga->waiter.watch->call)->rows)
        return true;
    or_in_gpu(ga->waiter.watch->async_bits, SWL_ASYNC_OVERFLOW);
    return false;
}

/* One lane: row `row` of local rank `local`, which exists, is a contribution. */
SWL_DEV void contribution_of_local(struct gatherer *ga, uint32_t local, uint32_t row,
                                   struct contribution *contribution)
{
    const struct swl_device_group *g = ga->g;
    const struct swl_open_record *e = open_record_of(g, local, ga->waiter.watch->call);

    contribution->kind = SUM_HERE;
    contribution->wide = 0;
    if (local == g->shape.local) {
        ga->own += !e->direct;
        contribution->at = ga->tokens + (uint64_t)row * ga->row_bytes;
    } else if (e->direct) {
        contribution->at = g->memory[e->memory * g->shape.nlocal + local] + e->offset +
                           (uint64_t)row * ga->row_bytes;
    } else {
        contribution->kind = SUM_FETCHED;
        contribution->ring = local;
        contribution->row = row;
    }
}

SWL_DEV bool contribution_waits(const struct contribution *contribution)
{
    return contribution->kind != SUM_HERE;
}

/* How far the ring of a contribution that has to arrive is. */
SWL_DEV uint64_t contribution_seen(const struct gatherer *ga,
                                   const struct contribution *contribution)
{
    const struct swl_device_group *g = ga->g;
    const uint64_t *word;

    if (contribution->kind == SUM_PARTIAL) /* acquire: pairs with the gateway's add */
        return read_from_nic(own_word(g, g->at.ht.partial_tail, contribution->ring));
    word = own_word(g, g->at.ht.fetch_done,
                    (uint64_t)contribution->ring * g->shape.ngatherers + ga->number);
    /* acquire: pairs with serve_tell */
    return word_position(read_from_peer(word), ga->waiter.watch->gen, g->shape.start_low);
}

/* How much further than the contribution the ring has come; not above 0: it has not arrived. */
SWL_DEV int contribution_lead(const struct contribution *contribution, uint64_t seen)
{
    return (int)((uint32_t)seen - contribution->position);
}

SWL_DEV bool await_contribution(const struct gatherer *ga, const struct contribution *contribution)
{
    const bool partial = contribution->kind == SUM_PARTIAL;
    const uint32_t rank = partial ? ring_end(ga->g, RINGS_OUT, contribution->ring)->rank
                                  : ga->g->local_rank[contribution->ring];
    const struct waiter w =
        wait_for(ga->waiter, partial ? SWL_FAULT_PARTIAL : SWL_FAULT_FETCH, rank);

    for (;;) {
        const uint64_t seen = contribution_seen(ga, contribution);
        const int lead = contribution_lead(contribution, seen);

        if (lead > 0)
            return true;
        if (!wait_again(w, seen + 1 - (int64_t)lead, seen,
                        SWL_PAUSE(partial ? "partial sum of rank" : "fetched row of rank", rank,
                                  ga->number)))
            return false;
    }
}

/* All lanes: wait until all contributions of the list have arrived. Then every lane may load them.
 * False = given up. */
SWL_DEV bool list_await(const struct gatherer *ga, struct sum_list *list)
{
    const struct contribution *contribution = list_contributions(list);
    bool ok = true;

    if (!list->waits)
        return true;
    for (uint32_t i = lane_id(); ok && i < list->ncontributions; i += 32)
        ok = !contribution_waits(&contribution[i]) || await_contribution(ga, &contribution[i]);
    ok = warp_all(ok);
    warp_sync(); /* what the contribution lanes acquired is every lane's */
    return ok;
}

/* All lanes: this gatherer, of `all` of the rank, reads no peer's memory any more. The last one
 * tells the local peers. Chain: loads, warp_sync, acq_rel.gpu of the count, release.sys of the exit
 * words; pairs with await_exits in ht_combine_serve.cuh. */
SWL_DEV void gatherer_exit(const struct gatherer *ga, uint32_t all)
{
    const struct swl_device_group *g = ga->g;
    uint32_t before = 0;

    if (ga->own) /* pairs with the servers' look at the count */
        add_in_gpu(&g->state->served, ga->own);
    warp_sync();
    if (lane_id() == 0)
        before = add_in_gpu(&g->state->gathered, 1u);
    if (warp_shfl(before, 0) != all - 1)
        return;
    warp_sync();
    for (uint32_t i = lane_id(); i < g->shape.nlocal; i += 32)
        publish_to_peer(peer_word(g, i, g->at.exit, g->shape.local),
                        gen_word(ga->waiter.watch->gen, ga->waiter.watch->call));
}
