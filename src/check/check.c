/* check.c: checks of group and handle arguments. Layer: src/check, see check.h; owns no memory. */
#include "src/check/check.h"

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/util.h"
#include "src/check/tensor.h"

#include <inttypes.h>
#include <string.h>

ncclResult_t swl_struct_copy(void *to, size_t to_bytes, const void *from, size_t v1_bytes,
                             size_t unit, const char *name)
{
    unsigned int head[2]; /* size, magic */
    size_t covered;

    memset(to, 0, to_bytes);
    memcpy(&head[0], from, sizeof(head[0]));
    SWL_ARG(head[0] >= v1_bytes,
            "%s: size is %u, at least %zu bytes are needed; start from its "
            "NCCL_EP_..._INIT macro",
            name, head[0], v1_bytes);
    memcpy(head, from, sizeof(head));
    SWL_ARG(head[1] == NCCL_EP_MAGIC,
            "%s: magic is 0x%08x, not 0x%08x; start from its "
            "NCCL_EP_..._INIT macro",
            name, head[1], NCCL_EP_MAGIC);
    covered = swl_min_u64(head[0], to_bytes);
    memcpy(to, from, v1_bytes + (covered - v1_bytes) / unit * unit);
    return ncclSuccess;
}

/* ---- group ---- */

static ncclResult_t check_group_enums(const ncclEpGroupConfig_t *c)
{
    SWL_ARG((unsigned int)c->algorithm <= NCCL_EP_ALGO_HIGH_THROUGHPUT,
            "config.algorithm is %d, not one of ncclEpAlgorithm_t", (int)c->algorithm);
    SWL_ARG((unsigned int)c->zero_copy <= NCCL_EP_ZERO_COPY_ON,
            "config.zero_copy is %d, not one of ncclEpZeroCopyMode_t", (int)c->zero_copy);
    SWL_ARG((unsigned int)c->overflow_policy <= NCCL_EP_OVERFLOW_DROP,
            "config.overflow_policy is %d, not one of ncclEpOverflowPolicy_t",
            (int)c->overflow_policy);
    return ncclSuccess;
}

static ncclResult_t check_group_numbers(const ncclEpGroupConfig_t *c, uint32_t nranks)
{
    bool ht = c->algorithm == NCCL_EP_ALGO_HIGH_THROUGHPUT;
    uint64_t topk = swl_max_u64(c->num_topk, 1), bound;

    SWL_ARG(nranks <= SWL_MAX_RANKS, "comm has %u ranks, at most %u are possible", nranks,
            SWL_MAX_RANKS);
    SWL_ARG(c->num_experts >= 1 && c->num_experts <= SWL_MAX_EXPERTS,
            "config.num_experts is %u, not 1 to %u", c->num_experts, SWL_MAX_EXPERTS);
    SWL_ARG(c->max_dispatch_tokens_per_rank >= 1,
            "config.max_dispatch_tokens_per_rank is 0, at least 1 is needed");
    SWL_ARG(c->max_token_bytes >= 1 && c->max_token_bytes <= SWL_MAX_TOKEN_BYTES,
            "config.max_token_bytes is %u, not 1 to %u", c->max_token_bytes, SWL_MAX_TOKEN_BYTES);
    SWL_ARG(!ht || c->max_token_bytes % 16 == 0,
            "config.max_token_bytes is %u, not a multiple of 16", c->max_token_bytes);
    SWL_ARG(!ht || c->max_recv_tokens_per_rank == 0 ||
                c->max_recv_tokens_per_rank >= c->max_dispatch_tokens_per_rank,
            "config.max_recv_tokens_per_rank is %u, less than max_dispatch_tokens_per_rank %u",
            c->max_recv_tokens_per_rank, c->max_dispatch_tokens_per_rank);
    SWL_ARG(!ht || c->max_recv_tokens_per_rank <= INT32_MAX,
            "config.max_recv_tokens_per_rank is %u, at most 2^31 - 1 is possible",
            c->max_recv_tokens_per_rank);
    SWL_ARG(c->num_topk <= swl_min_u64(c->num_experts, SWL_MAX_TOPK),
            "config.num_topk is %u, at most %" PRIu64 " is possible with %u experts", c->num_topk,
            swl_min_u64(c->num_experts, SWL_MAX_TOPK), c->num_experts);
    bound = (uint64_t)nranks * c->max_dispatch_tokens_per_rank;
    SWL_ARG(swl_mul(bound, topk, &bound) && bound <= INT32_MAX,
            "%u ranks with max_dispatch_tokens_per_rank %u and num_topk %" PRIu64
            " are 2^31 selections or more",
            nranks, c->max_dispatch_tokens_per_rank, topk);
    return ncclSuccess;
}

/* What is well-formed but not possible. */
static ncclResult_t check_group_usage(const ncclEpGroupConfig_t *c)
{
    if (!c->alloc.alloc_fn != !c->alloc.free_fn)
        return swl_fail(ncclInvalidUsage, "config.alloc has %s only; give both callbacks or none",
                        c->alloc.alloc_fn ? "alloc_fn" : "free_fn");
    if (c->algorithm == NCCL_EP_ALGO_LOW_LATENCY)
        return swl_fail(ncclInvalidUsage, "config.algorithm: low latency is missing in this "
                                          "version; use NCCL_EP_ALGO_HIGH_THROUGHPUT");
    if (c->max_recv_tokens_per_rank == 0 && c->overflow_policy == NCCL_EP_OVERFLOW_DROP)
        return swl_fail(ncclInvalidUsage, "config.overflow_policy DROP needs a receive budget, but "
                                          "max_recv_tokens_per_rank is 0");
    if (c->max_recv_tokens_per_rank == 0)
        return swl_fail(ncclInvalidUsage, "config.max_recv_tokens_per_rank is 0: eager mode is "
                                          "missing in this version; give a receive budget");
    if (c->enable_mask)
        return swl_fail(ncclInvalidUsage, "config.enable_mask: masks are missing in this version");
    return ncclSuccess;
}

ncclResult_t swl_check_group(const ncclEpGroupConfig_t *user, uint32_t nranks,
                             struct swl_group_config *config)
{
    ncclEpGroupConfig_t c;

    SWL_ARG(user, "config is NULL");
    SWL_TRY(swl_struct_copy(&c, sizeof(c), user, NCCL_EP_GROUP_CONFIG_V1_SIZE, 4, "config"));
    SWL_TRY(check_group_enums(&c));
    SWL_TRY(check_group_numbers(&c, nranks));
    if (c.version > NCCL_EP_API_VERSION)
        swl_log(SWL_LEVEL_INFO,
                "config.version %u is newer than %d; what this version knows is "
                "used",
                c.version, NCCL_EP_API_VERSION);
    config->algorithm = c.algorithm;
    config->level = c.version <= 1 ? 1 : 2;
    config->nexperts = c.num_experts;
    config->max_tokens = c.max_dispatch_tokens_per_rank;
    config->recv_rows = c.max_recv_tokens_per_rank;
    config->max_token_bytes = c.max_token_bytes;
    config->max_topk = c.num_topk;
    config->zero_copy = c.zero_copy;
    config->overflow =
        c.overflow_policy == NCCL_EP_OVERFLOW_DROP ? NCCL_EP_OVERFLOW_DROP : NCCL_EP_OVERFLOW_TRAP;
    config->enable_mask = c.enable_mask != 0;
    config->rdma_bytes = c.rdma_buffer_size;
    config->nqps = c.num_qp_per_rank;
    config->nchannels = c.num_channels;
    config->max_sms = c.max_num_sms;
    config->timeout_ns = c.timeout_ns;
    if (c.alloc.alloc_fn && c.alloc.free_fn) /* a refused rank allocates for the exchange */
        config->alloc = c.alloc;
    return check_group_usage(&c);
}

/* ---- handle ---- */

static const char *layout_name(ncclEpLayout_t layout)
{
    static const char *const names[] = {"UNSET", "EXPERT_MAJOR", "RANK_MAJOR", "FLAT"};

    return names[layout];
}

static ncclResult_t check_handle_topk(const struct swl_group_info *group, int num_topk)
{
    uint64_t limit = swl_min_u64(group->nexperts, SWL_MAX_TOPK), bound;

    SWL_ARG(num_topk >= 1 || group->algorithm == NCCL_EP_ALGO_HIGH_THROUGHPUT,
            "num_topk is %d, at least 1 is needed", num_topk);
    SWL_ARG(num_topk <= (int)limit,
            "num_topk is %d, at most %" PRIu64 " is possible with %u experts", num_topk, limit,
            group->nexperts);
    bound = (uint64_t)group->nranks * group->max_tokens *
            swl_max_u64((uint64_t)(num_topk < 1 ? 1 : num_topk), 1);
    SWL_ARG(bound <= INT32_MAX,
            "num_topk %d with %u ranks of %u tokens are 2^31 selections or more", num_topk,
            group->nranks, group->max_tokens);
    return ncclSuccess;
}

static ncclResult_t check_alignment(const struct swl_group_info *group, ncclEpLayout_t layout,
                                    size_t alignment, uint32_t *alignment_p)
{
    *alignment_p = 1;
    if (group->algorithm != NCCL_EP_ALGO_HIGH_THROUGHPUT || layout != NCCL_EP_LAYOUT_EXPERT_MAJOR ||
        alignment <= 1)
        return ncclSuccess;
    SWL_ARG(swl_is_pow2(alignment) && alignment <= 65536,
            "config.dispatch_output_per_expert_alignment is %zu, not 0 or a power of two up to "
            "65536",
            alignment);
    *alignment_p = (uint32_t)alignment;
    return ncclSuccess;
}

static ncclResult_t check_memory_tensor(const struct swl_group_info *group,
                                        const ncclEpTensor_t *user,
                                        struct swl_handle_config *config)
{
    struct swl_tensor t;

    SWL_TRY(swl_tensor_copy(&t, user, "handle_mem", true));
    SWL_TRY(swl_tensor_capable(&t, group));
    SWL_TRY(swl_tensor_check(&t, group));
    if (!t.given)
        return ncclSuccess;
    SWL_ARG(t.copy.ndim == 1 && t.view.dtype == ncclUint8,
            "handle_mem is a %uD tensor of %s, not a 1D tensor of uint8", t.copy.ndim,
            swl_dtype_name(t.view.dtype));
    SWL_ARG(!t.empty, "handle_mem is empty");
    config->memory = t.view.data;
    config->memory_bytes = t.view.rows;
    return ncclSuccess;
}

static ncclResult_t check_layout_usage(const struct swl_group_info *group, ncclEpLayout_t layout)
{
    bool ht = group->algorithm == NCCL_EP_ALGO_HIGH_THROUGHPUT;

    if (ht ? layout == NCCL_EP_LAYOUT_RANK_MAJOR : layout == NCCL_EP_LAYOUT_FLAT)
        return swl_fail(ncclInvalidUsage, "layout %s is not one of a %s group", layout_name(layout),
                        ht ? "high throughput" : "low latency");
    if (ht && layout == NCCL_EP_LAYOUT_EXPERT_MAJOR)
        return swl_fail(ncclInvalidUsage, "layout EXPERT_MAJOR is missing in this version; use "
                                          "NCCL_EP_LAYOUT_FLAT");
    return ncclSuccess;
}

ncclResult_t swl_check_handle(const struct swl_group_info *group,
                              const struct swl_handle_args *args, struct swl_handle_config *config)
{
    ncclEpHandleConfig_t c = NCCL_EP_HANDLE_CONFIG_INIT;

    memset(config, 0, sizeof(*config));
    if (args->config)
        SWL_TRY(swl_struct_copy(&c, sizeof(c), args->config, NCCL_EP_HANDLE_CONFIG_V1_SIZE, 8,
                                "config"));
    SWL_ARG((unsigned int)args->layout <= NCCL_EP_LAYOUT_FLAT,
            "layout is %d, not one of ncclEpLayout_t", (int)args->layout);
    SWL_ARG(args->layout != NCCL_EP_LAYOUT_UNSET, "layout is UNSET");
    SWL_TRY(check_memory_tensor(group, args->memory, config));
    SWL_TRY(check_handle_topk(group, args->num_topk));
    SWL_TRY(check_alignment(group, args->layout, c.dispatch_output_per_expert_alignment,
                            &config->alignment));
    SWL_TRY(check_layout_usage(group, args->layout));
    if (group->max_topk && args->num_topk > (int)group->max_topk)
        return swl_fail(ncclInvalidUsage, "num_topk is %d, the group was created for at most %u",
                        args->num_topk, group->max_topk);
    config->layout = args->layout;
    config->topk = args->num_topk > 0 ? (uint32_t)args->num_topk : group->max_topk;
    return ncclSuccess;
}

ncclResult_t swl_check_handle_memory(const struct swl_handle_config *config, uint64_t need_bytes)
{
    SWL_ARG(!config->memory || config->memory_bytes >= need_bytes,
            "handle_mem has %" PRIu64 " bytes, ncclEpHandleMemSize asks for %" PRIu64,
            config->memory_bytes, need_bytes);
    return ncclSuccess;
}

ncclResult_t swl_check_complete(const ncclEpCompleteConfig_t *user)
{
    ncclEpCompleteConfig_t c;

    if (!user)
        return ncclSuccess;
    return swl_struct_copy(&c, sizeof(c), user, NCCL_EP_COMPLETE_CONFIG_V1_SIZE, 4, "config");
}
