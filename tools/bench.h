/* bench.h: the parts of swimlane-bench.
 *
 * Layer: tools. bench_place.c says where the ranks are, bench_job.c starts them, bench_run.c is the
 * program of one rank, bench_data.c owns its buffers and expectations, bench_routing.c looks at
 * recorded routing, bench_quiet.c looks at the environment, bench_verify.c compares,
 * bench_traffic.c counts what moved, bench_report.c prints. */
#ifndef SWL_TOOLS_BENCH_H
#define SWL_TOOLS_BENCH_H

#include "src/runtime/runtime.h"
#include "tools/support/link_probe.h"
#include "tools/support/oracle.h"
#include "tools/support/routing.h"

#include <nccl_ep.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { BENCH_MAX_NODES = 64, BENCH_MAX_RANKS = 1024, BENCH_MAX_DEVICES = 64 };
enum { BENCH_MAX_COMPLAINTS = 8 }; /* of a rank, that are printed */

enum bench_outputs { BENCH_PLAIN, BENCH_LIBRARY, BENCH_MIXED };
enum bench_place {
    BENCH_FIBERS,
    BENCH_THREADS,
    BENCH_PROCESSES,
    BENCH_LAUNCHED,
    BENCH_PLACE_AUTO /* until the options are parsed */
};
enum bench_comm { BENCH_COMM_AUTO, BENCH_COMM_NCCL, BENCH_COMM_STANDIN };

struct bench_options {
    int nnodes, ranks_per_node; /* 0: not given */
    int nsizes;                 /* of node_size on the command line; 0: not given */
    int node_size[BENCH_MAX_NODES];
    bool interleaved; /* ranks are dealt to the nodes one by one */
    enum bench_place place;
    struct swl_routing_size size; /* tokens, top-k, experts; ranks once the nodes are known */
    int hidden;
    enum swl_oracle_type type;
    ncclEpAlgorithm_t algorithm;
    ncclEpLayout_t layout;
    int nsms, nchannels;
    int iterations, warmup;
    uint64_t seed;
    struct swl_routing routing;
    const char *routing_text;
    int routing_layer; /* of a file; -1: not given */
    const char *link;  /* gbps:us */
    double link_gbps;
    const char *json;
    bool verify, pipelined, poison, update_once;
    enum bench_outputs outputs;
    int id_bytes;
    bool global_ids;
    int64_t budget;
    bool drop;
    int delay_us;
    int timeout_ms;
    bool wire_fp32; /* SWIMLANE_COMBINE_WIRE */
    bool quiet;
    int64_t schedule_seed; /* of the emulator; 0: SIMT_SEED */
    int node_of[BENCH_MAX_RANKS];
    bool no_peer;                 /* SWIMLANE_TRANSPORT: the network also within a node */
    int team_of[BENCH_MAX_RANKS]; /* node_of, or with no_peer each rank for itself */
    enum bench_comm comm;
    int ranks_per_gpu;                  /* 0: as many as it takes */
    int ndevices;                       /* of device_list, 0: by ranks_per_gpu */
    int device_list[BENCH_MAX_DEVICES]; /* for the ranks in turn */
    int device_of[BENCH_MAX_RANKS];     /* launched: guessed for the others */
    /* What a launcher said of this process; -1, 0, 0 without one. Local: on its machine. */
    int launched_rank, launched_local, launched_nlocal;
    bool own_gpus;                     /* the launcher shows each rank one GPU, all different */
    struct swl_link_figures node_link; /* measured, or zero */
    struct swl_why wrong;              /* with a value: the cause, where the help does not say it */
};

enum bench_parsed {
    BENCH_RUN,
    BENCH_HELP, /* help was printed */
    BENCH_WRONG /* a complaint was printed */
};
enum bench_parsed bench_options_parse(struct bench_options *o, int argc, char **argv);
void bench_options_free(struct bench_options *o);

/* Leave the library's log to its errors, unless a variable of it is set. Malformed values of other
 * variables that it follows, NCCL's and CUDA's, are remarked here. */
void bench_quiet_library(const struct bench_options *o);

/* Take a wire model; false, and nothing changed, for a text that the library would not take. */
bool bench_link_take(struct bench_options *o, const char *text);

/* Of a recorded routing: refuse what cannot be meant, and say on stderr what becomes of its
 * rows. */
bool bench_routing_check(struct bench_options *o, struct swl_why *why);
void bench_routing_remarks(const struct bench_options *o);
/* Steps with a routing of their own. */
int bench_routing_steps(const struct bench_options *o);

/* ---- data of one rank ---- */

/* Device memory between guard bytes. */
struct bench_buffer {
    char *base;
    char *data;
    size_t bytes; /* of data */
    bool library; /* of swimlaneMemAlloc */
};

enum bench_what {
    BENCH_IDS, /* inputs of Update and Dispatch */
    BENCH_WEIGHTS,
    BENCH_TOKENS,
    BENCH_EXPERT_COUNTERS, /* outputs of Update */
    BENCH_TOTAL,
    BENCH_SOURCE_COUNTERS,
    BENCH_ROWS, /* outputs of Dispatch */
    BENCH_ROW_WEIGHTS,
    BENCH_ROW_IDS,
    BENCH_RESULTS,  /* input of Combine */
    BENCH_COMBINED, /* output of Combine */
    BENCH_NBUFFERS
};

/* One step in flight: device buffers, their host images and what must come out. */
struct bench_slot {
    struct bench_buffer device[BENCH_NBUFFERS];
    char *host[BENCH_NBUFFERS]; /* inputs: what is sent; outputs: what was found */
    int step;
    int ntokens;
    int64_t *ids; /* [nranks][tokens][topk] */
    float *weights;
    struct swl_oracle_source *sources;
    struct swl_oracle *oracle;
};

/* Bytes moved in one step by the busiest rank. */
struct bench_traffic {
    double network_dispatch, network_combine; /* on the wire, the larger of sent and received */
    double nvlink;                            /* rows stored by another GPU of the node */
    double shared_gpu;                        /* rows stored by another rank of the same GPU */
    double logical;                           /* rows received */
    double ring_slots;                        /* slots of the fullest ring between nodes */
};

/* What a step's traffic is counted from. */
struct bench_work {
    const struct bench_options *o;
    const struct swl_oracle *oracle;
    const struct swl_oracle_source *sources; /* [nranks], ids of 8 bytes */
    const int *gpu_of;                       /* [nranks], equal: the same GPU */
    size_t nrings;                           /* of a source toward a node */
};

struct bench_rank {
    const struct bench_options *o;
    int rank;
    ncclComm_t comm;
    ncclEpGroup_t group;
    ncclEpHandle_t handle;
    cudaStream_t stream;
    cudaEvent_t begin, end; /* around a timed call */
    void *word;             /* of the barrier */
    int gate;               /* not 0: open */
    int nbarriers;          /* of this step so far */
    bool comm_failed;       /* the communicator is of no use any more */
    int nslots;
    struct bench_slot *slots;
    int complaints; /* failed comparisons */
};

/* Byte that fills each buffer between calls. */
int bench_poison(enum bench_what what);
size_t bench_row_bytes(const struct bench_options *o);
int bench_nlocal(const struct bench_options *o);

bool bench_slots_create(struct bench_rank *r);
void bench_slots_destroy(struct bench_rank *r);
/* Make inputs and expectations of a step; false when memory is short. */
bool bench_slot_prepare(struct bench_rank *r, struct bench_slot *slot, int step);
void bench_payload(const struct bench_options *o, int step, int src, int token, void *row);
void bench_result(const struct bench_options *o, int step, int dst, int64_t row, void *out);
struct bench_traffic bench_traffic_of(const struct bench_work *work);

/* Rows of BENCH_ROWS that are read back: those in use and some behind them. */
int64_t bench_rows_checked(const struct bench_options *o, const struct bench_slot *slot, int rank);

/* Compare what the slot's calls left behind; counts and prints complaints. */
void bench_verify_slot(struct bench_rank *r, const struct bench_slot *slot);
void bench_verify_guards(struct bench_rank *r);
/* What is wrong; printed unless another rank of this process has said the same. */
void bench_complain(struct bench_rank *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* After the ranks have ended: how many said the same. */
void bench_complaints_end(void);

/* Nodes and ranks of each where neither options nor a launcher say: on one GPU two nodes of two
 * ranks, since a single rank moves nothing, else a node of a rank for each GPU. */
void bench_default_nodes(int ngpus, int *nnodes_p, int *ranks_per_node_p);
/* Place and nodes of the ranks, from options and launcher; false after a complaint. */
bool bench_place_nodes(struct bench_options *o);
/* Deal the ranks to the GPUs and choose the communicator; may start the program anew with argv.
 * False after a complaint. */
bool bench_job_place(struct bench_options *o, char **argv);
/* Measure the link between two GPUs of rank 0's node, if there are two, on GPUs. Before the ranks
 * start. */
void bench_link_measure(struct bench_options *o);
/* Start the ranks and let them run; true when all of them were content. */
bool bench_job_run(struct bench_options *o);
/* The program of one rank; true when everything was as it must be. */
bool bench_run(const struct bench_options *o, int rank, ncclComm_t comm);

/* ---- results ---- */

enum bench_operation { BENCH_UPDATE, BENCH_DISPATCH, BENCH_COMBINE, BENCH_NOPERATIONS };

/* What one rank measured in one step. */
struct bench_sample {
    double device_us[BENCH_NOPERATIONS]; /* between stream events; emulator: virtual time */
    double call_us[BENCH_NOPERATIONS];   /* wall clock of the library's call alone */
    double wall_us[BENCH_NOPERATIONS];   /* with the barrier, and what was enqueued before it */
};

struct bench_summary {
    int complaints; /* of all ranks */
    uint64_t device_bytes, window_bytes, nsms, nic_sms, dropped;
    uint64_t nrings, ring_slots; /* of a rank toward a node, and of one of them */
    int ngpus;                   /* different ones */
    struct bench_traffic traffic;
    double wall_s;
};

/* Before a run: the JSON file can be written. False after a complaint. */
bool bench_report_possible(const struct bench_options *o);
/* samples: [nranks][iterations]. Print the table and write the JSON file; false when that
 * failed. */
bool bench_report(const struct bench_options *o, const struct bench_sample *samples,
                  const struct bench_summary *summary);

#ifdef __cplusplus
}
#endif
#endif
