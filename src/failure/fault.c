/* fault.c: the sentence of a fault record. Layer: src/failure; owns nothing. */
#include "src/failure/fault.h"

#include "src/base/util.h"
#include "transport/nic.h"

#include <inttypes.h>
#include <stdio.h>

#define POSITION_BITS 48
#define POSITION_MASK ((UINT64_C(1) << POSITION_BITS) - 1)

static void peer_text(uint32_t peer, uint32_t rank, char *text, size_t text_bytes)
{
    if (peer == SWL_NO_PEER)
        snprintf(text, text_bytes, "a peer");
    else if (peer == rank)
        snprintf(text, text_bytes, "this rank");
    else
        snprintf(text, text_bytes, "rank %" PRIu32, peer);
}

/* Sentences that have a subject of their own and need no rank before them. */
static bool has_subject(uint32_t kind)
{
    return kind == SWL_FAULT_STAGE || kind == SWL_FAULT_GRID || kind == SWL_FAULT_QUEUE ||
           kind == SWL_FAULT_HANDLE || kind == SWL_FAULT_ABORT;
}

/* What was seen. Words of {generation, position} are shown as positions; that of an older
 * generation may equal the expected one. */
static void seen_text(const struct swl_fault_record *record, char *text, size_t text_bytes)
{
    const bool word = record->expected > POSITION_MASK;

    if (word && record->seen >> POSITION_BITS < record->expected >> POSITION_BITS)
        snprintf(text, text_bytes, "nothing since the %s",
                 record->expected >> POSITION_BITS > 1 ? "last failure" : "start");
    else
        snprintf(text, text_bytes, "%" PRIu64, record->seen & (word ? POSITION_MASK : UINT64_MAX));
}

/* `seen` is number << 8 | syndrome (qp_fault in transport/qp.cuh). */
void swl_completion_text(const char *peer, uint64_t expected, uint64_t seen, char *text,
                         size_t text_bytes)
{
    const uint32_t syndrome = (uint32_t)seen & 0xff;

    snprintf(text, text_bytes,
             "a queue pair to %s ended with an error completion, queue pair 0x%06" PRIx64
             ", %s (syndrome 0x%02" PRIx32 "), at or after entry %" PRIu64,
             peer, seen >> 8, swl_syndrome_text(syndrome), syndrome, expected);
}

/* Who is missing, and what from it. */
static void fault_what(const struct swl_fault_record *record, uint32_t rank, const char *kind,
                       char *text, size_t text_bytes)
{
    const uint64_t mask = record->expected > POSITION_MASK ? POSITION_MASK : UINT64_MAX;
    const bool other = record->peer != rank && record->peer != SWL_NO_PEER;
    char peer[32], seen[40];

    peer_text(record->peer, rank, peer, sizeof(peer));
    seen_text(record, seen, sizeof(seen));
    if (record->kind == SWL_FAULT_POISON)
        snprintf(text, text_bytes, "another rank gave up before, missing %s", peer);
    else if (record->kind == SWL_FAULT_COMPLETION)
        swl_completion_text(peer, record->expected, record->seen, text, text_bytes);
    else
        snprintf(text, text_bytes, "%s%s%s%s%s, expected %" PRIu64 ", seen %s",
                 has_subject(record->kind) ? "" : peer, has_subject(record->kind) ? "" : " ", kind,
                 has_subject(record->kind) && other ? " toward " : "",
                 has_subject(record->kind) && other ? peer : "", record->expected & mask, seen);
}

void swl_fault_text(const struct swl_fault_record *record, uint32_t rank, uint64_t limit_ns,
                    char *text, size_t text_bytes)
{
    static const char *const kinds[] = {
#define KIND_TEXT(name, tier, sentence) sentence,
        SWL_DEVICE_FAULTS(KIND_TEXT) SWL_CALL_FAULTS(KIND_TEXT)
#undef KIND_TEXT
    };
    static const char *const roles[] = {
#define ROLE_TEXT(name, role) role,
        SWL_WARP_ROLES(ROLE_TEXT)
#undef ROLE_TEXT
    };
    static const char *const ops[] = {"operation", "update", "dispatch", "combine"};
    const uint32_t op = record->op <= SWL_OP_COMBINE ? record->op : 0;
    const uint32_t place = swl_fault_place(record->kind);
    const char *kind = place < SWL_FAULT_KINDS ? kinds[place] : "unknown fault";
    const char *role = record->role < SWL_WARP_ROLE_KINDS ? roles[record->role] : "unknown";
    char waited[32], limit[32], what[240], entry[96] = "";

    fault_what(record, rank, kind, what, sizeof(what));
    /* updates have numbers of their own, and no entry */
    if (record->peer_entry != 0 && record->peer != rank)
        snprintf(entry, sizeof(entry), "; that rank was last seen entering %s %" PRIu64,
                 op == SWL_OP_UPDATE ? "dispatch or combine call" : "call",
                 record->peer_entry & POSITION_MASK);
    swl_time_text(record->waited_ns, waited, sizeof(waited));
    swl_time_text(limit_ns, limit, sizeof(limit));
    snprintf(text, text_bytes,
             "%s call %" PRIu64 ": rank %" PRIu32 " (%s, channel %" PRIu32
             ") gave up after %s (limit %s): %s%s",
             ops[op], record->call, rank, role, record->channel, waited, limit, what, entry);
}

void swl_error_word_text(uint64_t word, uint32_t rank, char *text, size_t text_bytes)
{
    char peer[32];

    peer_text(swl_poison_missing(word), rank, peer, sizeof(peer));
    snprintf(text, text_bytes,
             "rank %" PRIu32 " was told of a failed call: another rank gave up before, missing %s",
             rank, peer);
}
