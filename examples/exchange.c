/* exchange.c: tokens to their experts and back, one thread for each rank.
 *
 * Every rank routes its tokens, receives the tokens of its experts, lets the experts work (expert e
 * multiplies by e + 1, on the host), sends the results back and checks what comes out: the sum over
 * a token's experts of weight x (e + 1) x token.
 *
 *   exchange [RANKS]        4 by default
 *
 * The ranks are dealt to the GPUs of this machine, emulated or real, in turn. NCCL takes one rank
 * on a GPU: where there are fewer GPUs than ranks, the program starts itself anew with Swimlane's
 * stand-in for NCCL (EXCHANGE_STANDIN, named by the build), which takes several. */
#include <cuda_runtime.h>
#include <math.h>
#include <nccl_ep.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <swimlane.h>
#include <unistd.h>

enum { TOKENS = 32, HIDDEN = 64, TOPK = 2, EXPERTS = 8, MAX_RANKS = 8 };

/* The result first, then what it means: arguments of a function may be evaluated in any order. */
#define EP(call)                                                                                   \
    do {                                                                                           \
        if ((call) != ncclSuccess)                                                                 \
            fail(#call, swimlaneLastError());                                                      \
    } while (0)
#define NCCL(call)                                                                                 \
    do {                                                                                           \
        const ncclResult_t result = (call);                                                        \
        if (result != ncclSuccess)                                                                 \
            fail(#call, ncclGetErrorString(result));                                               \
    } while (0)
#define CUDA(call)                                                                                 \
    do {                                                                                           \
        const cudaError_t result = (call);                                                         \
        if (result != cudaSuccess)                                                                 \
            fail(#call, cudaGetErrorString(result));                                               \
    } while (0)

struct rank {
    int rank, nranks, device, wrong;
    const ncclUniqueId *id;
};

/* The other ranks would wait for this one: end the program. Threads come here together, and the
 * first one ends it; without exit(), whose clean-up would meet calls of the others. */
static _Noreturn void fail(const char *call, const char *why)
{
    static atomic_flag failing = ATOMIC_FLAG_INIT;

    while (atomic_flag_test_and_set(&failing))
        sleep(1);
    fprintf(stderr, "exchange: %s: %s\n", call, why);
    fflush(NULL);
    _exit(1);
}

static void check(int ok, const char *call, const char *why)
{
    if (!ok)
        fail(call, why);
}

static void *device_memory(size_t bytes)
{
    void *ptr = NULL;

    CUDA(cudaMalloc(&ptr, bytes));
    return ptr;
}

/* A matrix on the device; `sizes` must live as long as the descriptor is used. */
static ncclEpTensor_t matrix(ncclDataType_t type, void *data, size_t sizes[2])
{
    ncclEpTensor_t t = NCCL_EP_TENSOR_INIT;

    t.ndim = 2;
    t.datatype = type;
    t.data = data;
    t.sizes = sizes;
    return t;
}

/* Tokens of this rank, and what comes back for them. */
struct tokens {
    int32_t ids[TOKENS][TOPK];
    float weights[TOKENS][TOPK];
    float tokens[TOKENS][HIDDEN];
    float combined[TOKENS][HIDDEN];
};

static void fill(struct tokens *in, int rank)
{
    memset(in, 0, sizeof *in);
    for (int t = 0; t < TOKENS; t++) {
        for (int k = 0; k < TOPK; k++) {
            in->ids[t][k] = (t * 3 + k * 5 + rank) % EXPERTS;
            in->weights[t][k] = k ? 0.25f : 0.75f;
        }
        for (int h = 0; h < HIDDEN; h++)
            in->tokens[t][h] = (float)(rank + 1) + (float)(t * HIDDEN + h) / 1024.0f;
    }
}

/* Rows of this rank's experts, in place. An id is the number of an expert on this rank, or -1. */
static void experts(const struct rank *r, float (*rows)[HIDDEN], float (*weights)[TOPK],
                    int32_t (*ids)[TOPK], size_t nrows)
{
    const int first = r->rank * (EXPERTS / r->nranks);

    for (size_t row = 0; row < nrows; row++) {
        float factor = 0;

        for (int k = 0; k < TOPK; k++)
            if (ids[row][k] >= 0)
                factor += weights[row][k] * (float)(first + ids[row][k] + 1);
        for (int h = 0; h < HIDDEN; h++)
            rows[row][h] *= factor;
    }
}

/* Let the experts work on the rows that came, which lie on the device. */
static void work(const struct rank *r, void *d_rows, const void *d_weights, const void *d_ids,
                 size_t nrows)
{
    float(*rows)[HIDDEN] = malloc(nrows * sizeof *rows + 1);
    float(*weights)[TOPK] = malloc(nrows * sizeof *weights + 1);
    int32_t(*ids)[TOPK] = malloc(nrows * sizeof *ids + 1);

    check(rows && weights && ids, "malloc", "no memory");
    CUDA(cudaMemcpy(rows, d_rows, nrows * sizeof *rows, cudaMemcpyDeviceToHost));
    CUDA(cudaMemcpy(weights, d_weights, nrows * sizeof *weights, cudaMemcpyDeviceToHost));
    CUDA(cudaMemcpy(ids, d_ids, nrows * sizeof *ids, cudaMemcpyDeviceToHost));
    experts(r, rows, weights, ids, nrows);
    CUDA(cudaMemcpy(d_rows, rows, nrows * sizeof *rows, cudaMemcpyHostToDevice));
    free(rows);
    free(weights);
    free(ids);
}

static int count_wrong(const struct tokens *in)
{
    int wrong = 0;

    for (int t = 0; t < TOKENS; t++) {
        float factor = 0;

        for (int k = 0; k < TOPK; k++)
            factor += in->weights[t][k] * (float)(in->ids[t][k] + 1);
        for (int h = 0; h < HIDDEN; h++)
            wrong += !(fabsf(in->combined[t][h] - factor * in->tokens[t][h]) < 1e-3f);
    }
    return wrong;
}

static void exchange(struct rank *r, ncclEpGroup_t group, cudaStream_t stream)
{
    const size_t most = (size_t)r->nranks * TOKENS; /* rows that can come */
    size_t ids_size[] = {TOKENS, TOPK}, tokens_size[] = {TOKENS, HIDDEN};
    size_t rows_size[] = {most, HIDDEN}, rows_ids_size[] = {most, TOPK};
    struct tokens *in = malloc(sizeof *in), *device = device_memory(sizeof *in);
    void *d_rows = device_memory(most * sizeof in->tokens[0]);
    void *d_weights = device_memory(most * sizeof in->weights[0]);
    void *d_ids = device_memory(most * sizeof in->ids[0]);
    ncclEpHandle_t handle;
    int64_t nrows = -1;

    check(in != NULL, "malloc", "no memory");
    fill(in, r->rank);
    CUDA(cudaMemcpy(device, in, sizeof *in, cudaMemcpyHostToDevice));

    ncclEpTensor_t topk = matrix(ncclInt32, device->ids, ids_size);
    ncclEpTensor_t topk_weights = matrix(ncclFloat32, device->weights, ids_size);
    ncclEpTensor_t tokens = matrix(ncclFloat32, device->tokens, tokens_size);
    ncclEpTensor_t row = matrix(ncclFloat32, d_rows, rows_size);
    ncclEpTensor_t row_weights = matrix(ncclFloat32, d_weights, rows_ids_size);
    ncclEpTensor_t row_ids = matrix(ncclInt32, d_ids, rows_ids_size);
    ncclEpTensor_t combined = matrix(ncclFloat32, device->combined, tokens_size);
    ncclEpDispatchInputs_t to_experts = NCCL_EP_DISPATCH_INPUTS_INIT;
    ncclEpDispatchOutputs_t received = NCCL_EP_DISPATCH_OUTPUTS_INIT;
    ncclEpCombineInputs_t results = NCCL_EP_COMBINE_INPUTS_INIT;
    ncclEpCombineOutputs_t home = NCCL_EP_COMBINE_OUTPUTS_INIT;

    to_experts.tokens = &tokens;
    to_experts.topk_weights = &topk_weights;
    received.tokens = &row;
    received.topk_weights = &row_weights;
    received.topk_idx = &row_ids;
    results.tokens = &row;
    home.tokens = &combined;

    EP(ncclEpInitHandle(&handle, group, NCCL_EP_LAYOUT_FLAT, NULL, TOPK, NULL));
    EP(ncclEpUpdateHandle(handle, &topk, NULL, stream));
    EP(ncclEpDispatch(handle, &to_experts, &received, NULL, NULL, stream));
    CUDA(cudaStreamSynchronize(stream));
    EP(swimlaneHandleRecvCount(handle, &nrows));
    check(nrows >= 0, "dispatch", "was given up"); /* ncclEpGetAsyncError has the reason */

    work(r, d_rows, d_weights, d_ids, (size_t)nrows);
    EP(ncclEpCombine(handle, &results, &home, NULL, stream));
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaMemcpy(in->combined, device->combined, sizeof in->combined, cudaMemcpyDeviceToHost));
    r->wrong = count_wrong(in);
    printf("rank %d: sent %d tokens, received %d rows, %d elements are wrong\n", r->rank, TOKENS,
           (int)nrows, r->wrong);

    EP(ncclEpHandleDestroy(handle));
    CUDA(cudaFree(device));
    CUDA(cudaFree(d_rows));
    CUDA(cudaFree(d_weights));
    CUDA(cudaFree(d_ids));
    free(in);
}

static void *run(void *arg)
{
    struct rank *r = arg;
    ncclEpGroupConfig_t config = NCCL_EP_GROUP_CONFIG_INIT;
    ncclEpGroup_t group;
    ncclComm_t comm;
    cudaStream_t stream;

    config.algorithm = NCCL_EP_ALGO_HIGH_THROUGHPUT;
    config.num_experts = EXPERTS;
    config.num_topk = TOPK;
    config.max_dispatch_tokens_per_rank = TOKENS;
    config.max_recv_tokens_per_rank = (unsigned)(r->nranks * TOKENS);
    config.max_token_bytes = HIDDEN * sizeof(float);
    config.max_num_sms = 4;

    CUDA(cudaSetDevice(r->device));
    NCCL(ncclCommInitRank(&comm, r->nranks, *r->id, r->rank));
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    EP(ncclEpCreateGroup(&group, comm, &config));
    exchange(r, group, stream);
    EP(ncclEpGroupDestroy(group));
    CUDA(cudaStreamDestroy(stream));
    NCCL(ncclCommDestroy(comm));
    return NULL;
}

#ifdef EXCHANGE_STANDIN
/* In front of what is there: the stand-in serves the calls of NCCL, the rest is the user's. */
static void preload_standin(void)
{
    const char *before = getenv("LD_PRELOAD");
    const size_t bytes = sizeof(EXCHANGE_STANDIN) + 1 + (before ? strlen(before) : 0);
    char *all = malloc(bytes);

    check(all != NULL, "malloc", "no memory");
    snprintf(all, bytes, "%s%s%s", EXCHANGE_STANDIN, before ? ":" : "", before ? before : "");
    setenv("LD_PRELOAD", all, 1);
    free(all);
}
#endif

/* GPUs for the ranks; does not return where they have to share and the stand-in is not there
 * yet. */
static int find_gpus(int nranks, char **argv)
{
    int ngpus = 0;

    CUDA(cudaGetDeviceCount(&ngpus));
    check(ngpus > 0, "cudaGetDeviceCount", "there is no GPU");
#ifdef EXCHANGE_STANDIN
    if (ngpus < nranks && !getenv("EXCHANGE_SHARED")) {
        printf("%d ranks on %d GPU%s: with the stand-in for NCCL\n", nranks, ngpus,
               ngpus > 1 ? "s" : "");
        fflush(NULL);
        setenv("EXCHANGE_SHARED", "1", 1);
        preload_standin();
        /* CUDA reads them at its first use: a queue for each rank's stream, and no code to be
         * loaded while kernels wait for each other */
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
        setenv("CUDA_MODULE_LOADING", "EAGER", 1);
        execv("/proc/self/exe", argv);
        fail("execv", "the program cannot start itself anew");
    }
#else
    (void)nranks;
    (void)argv;
#endif
    return ngpus;
}

int main(int argc, char **argv)
{
    const int nranks = argc > 1 ? atoi(argv[1]) : 4;
    struct rank ranks[MAX_RANKS];
    pthread_t threads[MAX_RANKS];
    ncclUniqueId id;
    int wrong = 0, ngpus;

    if (nranks < 1 || nranks > MAX_RANKS || EXPERTS % nranks != 0) {
        fprintf(stderr, "usage: exchange [1, 2, 4 or 8 ranks]\n");
        return 2;
    }
    ngpus = find_gpus(nranks, argv);
    NCCL(ncclGetUniqueId(&id));
    for (int i = 0; i < nranks; i++) {
        ranks[i] = (struct rank){.rank = i, .nranks = nranks, .device = i % ngpus, .id = &id};
        check(pthread_create(&threads[i], NULL, run, &ranks[i]) == 0, "pthread_create",
              "no thread");
    }
    for (int i = 0; i < nranks; i++) {
        pthread_join(threads[i], NULL);
        wrong += ranks[i].wrong;
    }
    puts(wrong ? "FAILED" : "all sums are right");
    return wrong != 0;
}
