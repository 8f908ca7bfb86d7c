/* async.c: errors that show up after a call has returned: their bits, sentences and consequences.
 *
 * Layer: src/failure, implements internal.h. Reads the pinned words of struct swl_pinned, which
 * kernels write (ErrorClear alone writes them here), the error words of the node, and what other
 * hosts have said. Touches no device. */
#include "src/group/group.h"

#include "src/base/error.h"
#include "src/failure/fault.h"
#include "src/runtime/result.h"
#include "transport/rdma.h"

#include <inttypes.h>
#include <stdio.h>

/* After one of these the rings are out of step until ErrorClear. */
#define FAILED (SWL_ASYNC_TIMEOUT | SWL_ASYNC_BAD_HANDLE)

/* Data calls ask other hosts for news at most this often. */
#define LOOK_NS UINT64_C(1000000)

static uint64_t settled_of(const struct ncclEpGroup *group)
{
    /* pairs with the release of the last block of a kernel */
    return __atomic_load_n(&group->pinned->settled, __ATOMIC_ACQUIRE);
}

static bool error_page_is_set(struct ncclEpGroup *group)
{
    return swl_error_page_is_set(&group->error_page, group->pinned->clears, settled_of(group));
}

static bool has_record(const struct ncclEpGroup *group)
{
    /* pairs with the release in wait.cuh: a set word means a whole record */
    return __atomic_load_n(&group->pinned->record.valid, __ATOMIC_ACQUIRE) != 0;
}

/* What this rank's own kernel gave up. */
static void tell_own(struct ncclEpGroup *group, uint64_t word)
{
    const struct swl_fault_record *record = &group->pinned->record;
    struct swl_notice notice = {.word = word, .peer = SWL_NO_PEER};

    if (has_record(group)) {
        notice.kind = record->kind;
        notice.peer = record->peer;
        notice.expected = record->expected;
        notice.seen = record->seen;
    }
    swl_host_news_broadcast(&group->hosts, &notice);
}

/* News of other hosts, and for them. */
static void talk(struct ncclEpGroup *group)
{
    const uint64_t own = swl_error_page_own(&group->error_page);

    group->looked_ns = swl_gpu_now_ns();
    swl_host_news_poll(&group->hosts);
    swl_error_page_note(&group->error_page, group->hosts.heard);
    if (own)
        tell_own(group, own);
}

/* Of the own kernels; bit 0 also when error words and other hosts tell of a call that another rank
 * gave up, when a rank has gone, and when queue pairs could not be connected anew. */
static uint32_t bits_of(struct ncclEpGroup *group)
{
    /* pairs with the release of the last block of a kernel */
    const uint32_t own = __atomic_load_n(&group->pinned->bits, __ATOMIC_ACQUIRE);
    const bool told = error_page_is_set(group) || group->connections.unrepaired ||
                      group->hosts.ngone > group->gone_cleared;

    return told ? own | SWL_ASYNC_TIMEOUT : own;
}

static void gone_text(const struct ncclEpGroup *group, char *text, size_t text_bytes)
{
    const struct swl_host_news *p = &group->hosts;
    char more[48] = "";

    if (p->ngone > 1)
        snprintf(more, sizeof(more), ", and %" PRIu32 " more", p->ngone - 1);
    snprintf(text, text_bytes, "rank %" PRIu32 " %s%s", p->first_gone, p->gone_why, more);
}

/* What other hosts have said that the own sentence may lack: a queue pair in error, a rank that is
 * gone. */
static void news_text(const struct ncclEpGroup *group, char *text, size_t text_bytes)
{
    const struct swl_host_news *p = &group->hosts;
    const struct swl_notice *n = &p->newest;
    const bool own = n->from == p->rank && has_record(group) &&
                     group->pinned->record.kind == SWL_FAULT_COMPLETION;
    char peer[32], what[200], gone[224];
    int at = 0;

    text[0] = '\0';
    if (swl_host_news_queue_pair(p, swl_poison_gen(group->error_page.heard)) && !own) {
        snprintf(peer, sizeof(peer), "rank %" PRIu32, n->peer);
        swl_completion_text(peer, n->expected, n->seen, what, sizeof(what));
        at = snprintf(text, text_bytes, "; rank %" PRIu32 " reports: %s", n->from, what);
    }
    if (p->ngone > 0 && (size_t)at < text_bytes) {
        gone_text(group, gone, sizeof(gone));
        snprintf(text + at, text_bytes - (size_t)at, "; %s", gone);
    }
}

static ncclResult_t refuse_failed(struct ncclEpGroup *group)
{
    char text[512], news[480];

    news_text(group, news, sizeof(news));
    if (has_record(group))
        swl_fault_text(&group->pinned->record, group->info.rank, group->timeout_ns, text,
                       sizeof(text));
    else if (error_page_is_set(group))
        swl_error_word_text(group->error_page.heard, group->info.rank, text, sizeof(text));
    else if (group->connections.unrepaired)
        snprintf(text, sizeof(text), "%s", group->connections.why);
    else
        snprintf(text, sizeof(text), "no further operation can come through");
    return swl_fail(ncclSystemError, "%s%s%s%s; the group refuses work until ncclEpErrorClear",
                    text, news, group->rdma ? "; network " : "",
                    group->rdma ? swl_rdma_name(group->rdma) : "");
}

/* Masks will let the others go on; until then nothing can. */
static ncclResult_t refuse_gone(const struct ncclEpGroup *group)
{
    char text[224];

    gone_text(group, text, sizeof(text));
    return swl_fail(ncclSystemError, "%s; the group can do nothing without it", text);
}

ncclResult_t swl_async_gate(struct ncclEpGroup *group)
{
    uint32_t bits = bits_of(group);

    /* a look costs a call of the kernel */
    if (bits || group->connections.suspect || swl_gpu_now_ns() - group->looked_ns >= LOOK_NS) {
        talk(group);
        bits = bits_of(group);
    }
    if (bits & FAILED) {
        SWL_TRY(swl_group_check_connections(group, swl_poison_gen(group->error_page.heard), false));
        return refuse_failed(group);
    }
    if (group->hosts.ngone > 0)
        return refuse_gone(group);
    if ((bits & SWL_ASYNC_OVERFLOW) && group->info.overflow == NCCL_EP_OVERFLOW_TRAP)
        return swl_fail(ncclInvalidUsage,
                        "an earlier operation had more rows than there was room for: %" PRIu64
                        " rows dropped since creation, max_recv_tokens_per_rank is %" PRIu32
                        "; the group refuses work until ncclEpErrorClear",
                        __atomic_load_n(&group->pinned->dropped, __ATOMIC_ACQUIRE),
                        group->info.recv_rows);
    return ncclSuccess;
}

ncclResult_t swl_group_async_bits(struct ncclEpGroup *group, int *bits_p)
{
    talk(group);
    *bits_p = (int)bits_of(group);
    return ncclSuccess;
}

/* Every clear is told to the device, also if nothing failed here: another rank may have failed in a
 * call that this one came through, and the kernels find out by the poison word, and by the
 * generation that the host has heard of, whether there is anything to recover. The pinned words may
 * change before the copy runs; then the copy takes the later ones, which is what it is for. */
ncclResult_t swl_group_clear(struct ncclEpGroup *group)
{
    struct swl_pinned *pinned = group->pinned;
    const cudaStream_t stream = group->boot.stream;
    ncclResult_t looked = ncclSuccess;
    bool capturing = false, failed;

    talk(group);
    failed = (bits_of(group) & FAILED) != 0;
    group->gone_cleared = group->hosts.ngone;
    __atomic_store_n(&pinned->record.valid, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&pinned->bits, 0, __ATOMIC_RELEASE);
    swl_error_page_clear(&group->error_page, settled_of(group));
    if (failed) {
        swl_group_suspect(group, group->error_page.floor);
        looked = swl_group_check_connections(group, group->error_page.floor, true);
    }
    __atomic_store_n(&pinned->heard, swl_poison_gen(group->error_page.heard), __ATOMIC_RELEASE);
    __atomic_store_n(&pinned->clears, pinned->clears + 1, __ATOMIC_RELEASE);
    SWL_TRY(swl_group_enter(group, stream, &capturing));
    SWL_TRY(SWL_CUDA(swl_gpu_copy(group->tables.clears, &pinned->clears, SWL_CLEAR_BYTES, stream)));
    SWL_TRY(swl_group_leave(group, stream, capturing));
    return looked;
}
