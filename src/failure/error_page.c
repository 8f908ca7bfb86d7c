/* error_page.c: the error page of a node as one rank sees it. Layer: src/failure; memory:
 * error_page.h. */
#include "src/failure/error_page.h"

#include "kernels/common/faults.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/runtime/result.h"

#include <inttypes.h>
#include <string.h>

void swl_error_page_open(struct swl_error_page *page, const struct swl_topology *topology,
                         uint32_t rank)
{
    const uint32_t node = topology->rank_node[rank];
    const size_t bytes = sizeof(uint64_t) * swl_topology_nlocal(topology, node);
    cudaError_t error;

    if (topology->rank_local[rank] != 0)
        return;
    error = swl_gpu_page_create(&page->memory, bytes, &page->share);
    if (error != cudaSuccess)
        swl_log(SWL_LEVEL_WARN, "error page: rank %" PRIu32 " cannot share host memory: %s", rank,
                swl_gpu_error_text(error));
}

ncclResult_t swl_error_page_join(struct swl_error_page *page, const struct swl_topology *topology,
                                 uint32_t rank, const struct swl_gpu_share *shares)
{
    const uint32_t node = topology->rank_node[rank], local = topology->rank_local[rank];
    cudaError_t error = cudaSuccess;

    if (!page->memory.ptr)
        error = swl_gpu_page_join(&page->memory, &shares[swl_topology_rank(topology, node, 0)]);
    if (error == cudaSuccess) {
        page->nwords = swl_topology_nlocal(topology, node);
        page->own = (uint64_t *)page->memory.ptr + local;
        return ncclSuccess;
    }
    swl_log(SWL_LEVEL_INFO, "error page: rank %" PRIu32 " reads its own word only: %s", rank,
            swl_gpu_error_text(error));
    SWL_TRY(SWL_CUDA(swl_gpu_page_create(&page->memory, sizeof(uint64_t), &page->share)));
    page->nwords = 1;
    page->own = page->memory.ptr;
    return ncclSuccess;
}

ncclResult_t swl_error_page_close(struct swl_error_page *page)
{
    page->own = NULL;
    page->nwords = 0;
    return SWL_CUDA(swl_gpu_page_close(&page->memory));
}

void swl_error_page_note(struct swl_error_page *page, uint64_t word)
{
    if (swl_poison_gen(word) > swl_poison_gen(page->heard))
        page->heard = word;
}

uint64_t swl_error_page_own(const struct swl_error_page *page)
{
    /* pairs with the release of tell_everybody in call.cuh: of a failure of this rank's own the
     * record is complete */
    return page->own ? __atomic_load_n(page->own, __ATOMIC_ACQUIRE) : 0;
}

static void read_words(struct swl_error_page *page)
{
    const uint64_t *words = page->memory.ptr;

    for (uint32_t i = 0; i < page->nwords; i++)
        /* pairs with the release of tell_everybody in call.cuh; nothing else is read */
        swl_error_page_note(page, __atomic_load_n(&words[i], __ATOMIC_ACQUIRE));
}

/* Behind the first kernel after ErrorClear the generation of the kernels decides. Before it only
 * what is newer than everything that this rank knew at the clear: peers may be ahead already, and
 * error words of the old generation may still be on their way. */
bool swl_error_page_is_set(struct swl_error_page *page, uint64_t clears, uint64_t settled)
{
    read_words(page);
    if (settled >> 32 == (clears & UINT32_MAX))
        return swl_poison_gen(page->heard) >= (settled & UINT32_MAX);
    return swl_poison_gen(page->heard) > page->floor;
}

void swl_error_page_clear(struct swl_error_page *page, uint64_t settled)
{
    const uint64_t gen = settled & UINT32_MAX;

    read_words(page);
    page->floor = swl_poison_gen(page->heard);
    if (page->floor < gen)
        page->floor = gen;
}
