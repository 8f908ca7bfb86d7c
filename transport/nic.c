/* nic.c: what every NIC driver asks of its caller. Layer: transport. */
#include "transport/nic.h"

#include "src/base/error.h"
#include "src/base/log.h"
#include "transport/wqe.h"

const char *swl_syndrome_text(uint32_t syndrome)
{
    switch (syndrome) {
#define SYNDROME_CASE(name, number, text)                                                          \
    case number:                                                                                   \
        return text;
        SWL_SYNDROMES(SYNDROME_CASE)
#undef SYNDROME_CASE
    default:
        return "unknown error";
    }
}

const struct swl_nic_ib *swl_nic_ib_of(const struct swl_nic_ib *ib)
{
    static const struct swl_nic_ib unset = {NULL, -1, -1, -1, 0, 0, -1};

    return ib ? ib : &unset;
}

ncclResult_t swl_nic_check_config(const struct swl_nic_config *config, uint32_t most_qps)
{
    if (config->max_qps > most_qps)
        return swl_fail(ncclInvalidUsage, "rank %u nic: %u queue pairs, at most %u", config->rank,
                        config->max_qps, most_qps);
    if (config->depth < 2 || config->depth > SWL_WQE_DEPTH_MAX ||
        (config->depth & (config->depth - 1)) != 0)
        return swl_fail(ncclInvalidArgument,
                        "rank %u nic: a queue of %u entries; a power of two from 2 to %u is needed",
                        config->rank, config->depth, SWL_WQE_DEPTH_MAX);
    return ncclSuccess;
}

uint32_t swl_nic_depth(uint32_t rank, const char *device, uint32_t depth, uint64_t most)
{
    uint32_t fits = depth;

    while (fits > most)
        fits /= 2;
    if (fits < 2) {
        (void)swl_fail(ncclInvalidUsage, "rank %u nic: %s has queues of at most %llu entries", rank,
                       device, (unsigned long long)most);
        return 0;
    }
    if (fits < depth)
        swl_log(SWL_LEVEL_INFO,
                "rank %u nic: send queues of %u entries, not %u: those of %s take %llu", rank, fits,
                depth, device, (unsigned long long)most);
    return fits;
}

ncclResult_t swl_nic_check_region(uint32_t rank, const void *ptr, uint64_t bytes, unsigned access)
{
    if (ptr == NULL || bytes == 0)
        return swl_fail(ncclInvalidArgument, "rank %u nic: cannot register %llu bytes at %p", rank,
                        (unsigned long long)bytes, ptr);
    if ((access & SWL_NIC_RELAXED) && (access & SWL_NIC_REMOTE_ADD))
        return swl_fail(ncclInvalidArgument, "rank %u nic: a relaxed region cannot take adds",
                        rank);
    return ncclSuccess;
}
