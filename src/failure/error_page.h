/* error_page.h: how the host of a rank hears that another rank gave up a call, although its own
 * calls came through: one word for each rank of the node, in host memory that all of them read.
 *
 * Layer: src/failure, below group. A word is that of fault.h (swl_poison_word). Its writers are the
 * kernels of its rank when they give up, and the rank's NIC on behalf of other nodes. Owns the
 * page; it must outlive every kernel of this rank and the NIC. Where a node's ranks are no
 * processes of one host the page is the rank's own, with one word, and only what reaches that word
 * is heard. */
#ifndef SWL_ERROR_PAGE_H
#define SWL_ERROR_PAGE_H

#include "src/group/topology.h"
#include "src/runtime/runtime.h"

#include <nccl.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct swl_error_page {
    struct swl_gpu_page memory;
    struct swl_gpu_share
        share;     /* of the page, sent to all ranks; only the first of a node has one */
    uint64_t *own; /* word of this rank; NULL before join */
    uint32_t nwords;
    uint64_t heard; /* newest word that the host has seen; stays when an older one overwrites it */
    uint64_t floor; /* generation that the last ErrorClear has dealt with */
};

/* Local, before the shares are exchanged: the first rank of a node makes the page. */
void swl_error_page_open(struct swl_error_page *page, const struct swl_topology *topology,
                         uint32_t rank);
/* Local; shares[r] is the share of rank r. */
ncclResult_t swl_error_page_join(struct swl_error_page *page, const struct swl_topology *topology,
                                 uint32_t rank, const struct swl_gpu_share *shares);
ncclResult_t swl_error_page_close(struct swl_error_page *page);

/* The same word, heard on another way. */
void swl_error_page_note(struct swl_error_page *page, uint64_t word);
/* What this rank's own word says. */
uint64_t swl_error_page_own(const struct swl_error_page *page);
/* Is a call given up that nobody has cleared here? `clears` is the number of ErrorClear calls,
 * `settled` the word of swl_settled_word that the last kernel behind one of them has left. */
bool swl_error_page_is_set(struct swl_error_page *page, uint64_t clears, uint64_t settled);
/* ErrorClear: what has been heard so far does not count any more. */
void swl_error_page_clear(struct swl_error_page *page, uint64_t settled);

#ifdef __cplusplus
}
#endif
#endif
