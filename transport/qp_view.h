/* qp_view.h: a queue pair as device code sees it. C and CUDA.
 *
 * Layer: transport. A NIC's view() fills it on the host; it lies in device memory afterwards and
 * belongs to the group. One warp drives it (qp_write …, one lane at a time) or many (qp_shared_…),
 * never both at once. */
#pragma once

#include <assert.h>
#include <stdint.h>

/* Values of scope: enum swl_scope of device.h, which C does not see. */
#define SWL_QP_SCOPE_GPU 1u
#define SWL_QP_SCOPE_SYS 2u

struct swl_qp {
    uint8_t *sq;   /* [depth] blocks of 64 bytes */
    uint32_t *dbr; /* doorbell record, two words */
    uint64_t *doorbell;
    const uint32_t *cq; /* [cq_mask + 1] completions; newer ones overwrite them */
    uint64_t sink;      /* 8 bytes of registered memory for old values of adds */
    uint32_t sink_lkey;
    uint32_t qpn;
    uint32_t depth_log2;
    uint32_t scope; /* enum swl_scope at which the NIC sees our stores */
    /* 64-bit indices of entries, never reset: done <= rung <= ready <= reserved <= done + depth */
    uint64_t reserved; /* first entry that nobody has taken */
    uint64_t ready;    /* all entries before it are written */
    uint64_t rung;     /* last value told to the NIC */
    uint64_t done;     /* all entries before it are known to be complete */
    uint32_t ringing;  /* shared: 1 = somebody rings, 2 = it has to ring again */
    uint32_t cq_mask; /* completion of entry i: cq[i & cq_mask]; 0, or 1 of a NIC's ordinary ring */
    uint32_t pad[8];
};
static_assert(sizeof(struct swl_qp) == 128, "tables of views are indexed on host and device");
