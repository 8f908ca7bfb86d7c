/* choice.h: which NIC driver the ranks of a group use.
 *
 * Layer: transport, used by src/ when a group is created and by swimlane-info. Every rank says
 * which drivers would work on it and why the others would not; the records go to all ranks, and the
 * choice is a pure function of them, so that all ranks choose alike: for each pair of ranks the
 * best driver that both can use. Only the software NIC is the choice of the whole group. */
#ifndef SWL_CHOICE_H
#define SWL_CHOICE_H

#include "transport/nic.h"
#include "transport/tcp_endpoint.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One NIC driver: a row of drivers.def. */
struct swl_nic_driver {
    uint32_t bit;  /* enum swl_transport_bit */
    bool by_gpu;   /* the GPU drives hardware: not in the emulator */
    bool one_host; /* reaches ranks of one host only (swl_driver_report.host) */
    bool can_fail; /* on purpose: SWIMLANE_SOFT_FAULTS */
    const char *name;
    const struct swl_nic_ops *(*ops)(void);
    /* Would create work here? Cheap, leaves nothing open. false: `why` is half a sentence. */
    bool (*usable)(const struct swl_nic_config *config, char *why, size_t why_bytes);
    /* Blocks that every kernel of a group needs for it; NULL: it needs none. Such a driver is of
     * all ranks. */
    uint32_t (*blocks)(const struct swl_nic_settings *settings, bool why_not);
};

const struct swl_nic_driver *swl_drivers(uint32_t *n_p);
/* NULL: this version has none for the bit. */
const struct swl_nic_driver *swl_driver_of(uint32_t bit);

#define SWL_REPORT_WHY 240

/* What a rank says of itself; sent by value. */
struct swl_driver_report {
    uint32_t allowed;         /* as SWIMLANE_TRANSPORT says; of auto: what auto stands for here */
    uint32_t usable;          /* of the allowed drivers, those that work here */
    uint64_t host;            /* equal for ranks whose software NICs reach each other */
    char why[SWL_REPORT_WHY]; /* the allowed drivers that do not work: "mlx5: no device; tcp: …" */
    struct tcp_endpoint tcp;  /* where tcp would listen, if it is usable */
    bool listed;              /* SWIMLANE_TRANSPORT is set and not auto */
};

/* Ask the drivers that `transports` (SWIMLANE_TRANSPORT) allows. Local, may open devices. */
void swl_driver_report_make(uint32_t transports, const struct swl_nic_config *config,
                            struct swl_driver_report *report_p);
/* For swl_driver_report_make: one more driver that does not work. Drivers one behind the other with
 * the same reason, as a library that is missing, say it once; *last is where the newest reason
 * begins, 0 at first. */
void swl_driver_report_add(struct swl_driver_report *report, size_t *last, const char *name,
                           const char *why);
/* Bit of the best driver for two ranks; 0 = none. Symmetric. */
uint32_t swl_choice_of_pair(const struct swl_driver_report *a, const struct swl_driver_report *b);
/* What the links of the group are at worst: the best driver that all ranks can use, else the worst
 * that a pair has to use; 0: a pair has none, `why` is a sentence that names a rank. */
uint32_t swl_choice_of_group(const struct swl_driver_report *reports, uint32_t nranks, char *why,
                             size_t why_bytes);
/* Would anybody make the faults of this text (SWIMLANE_SOFT_FAULTS)? network: the group's, 0 =
 * none. Refuses those of hardware, and rank 0 warns of what has no effect. */
ncclResult_t swl_choice_check_faults(const char *text, uint32_t rank, uint32_t nranks,
                                     uint32_t network);

/* Driver of the links between two ranks of a group for which swl_choice_of_group said `group`. */
uint32_t swl_choice_of_connection(const struct swl_driver_report *a,
                                  const struct swl_driver_report *b, uint32_t group);

#ifdef __cplusplus
}
#endif
#endif
