/* nic.c: what every NIC driver asks of its caller. Layer: transport. */
#include "transport/nic.h"

#include "src/base/error.h"
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
    static const struct swl_nic_ib unset = {NULL, -1, -1, -1, 0, 0};

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
