/* path.h: how two reliable queue pairs reach each other, from what both ends say of themselves.
 *
 * Layer: transport/rdma_core; pure. struct rc_end travels in the queue pair's address, so its
 * values are a stranger's: whatever is out of range is refused here, with a sentence. */
#ifndef SWL_VERBS_PATH_H
#define SWL_VERBS_PATH_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct swl_nic_ib; /* transport/nic.h */

/* One end. */
struct rc_end {
    uint32_t qpn;
    uint32_t psn; /* of the first packet it sends; new after every reset */
    uint32_t ece; /* options its firmware offers, 0 = none */
    uint16_t lid;
    uint8_t mtu;           /* 1 = 256 … 5 = 4096 bytes */
    uint8_t ethernet;      /* link layer */
    uint8_t grh_required;  /* the port takes no packets without a global header */
    uint8_t log_reads_out; /* log2 of the reads and adds it may have under way */
    uint8_t log_reads_in;  /* log2 of those it can serve */
    uint8_t pad;
    uint8_t gid[16];
    uint16_t pkey; /* with the bit of full members; 0 = the device has none */
    uint8_t pad2[2];
};
static_assert(sizeof(struct rc_end) == 40, "travels between processes");

/* What the user's settings come to on a port. */
struct rc_tuning {
    uint8_t port, gid_index;
    uint8_t sl;      /* service level; priority on Ethernet */
    uint8_t tclass;  /* Ethernet only */
    uint8_t timeout; /* 4.096 us * 2^timeout until a packet is sent again */
    uint8_t retries;
};

/* Everything that INIT2RTR and RTR2RTS need. */
struct rc_path {
    uint32_t remote_qpn, send_psn, recv_psn, ece;
    uint8_t mtu, log_sra, log_rra;
    uint8_t timeout, retries;
    bool ethernet, global; /* global: with a global header (InfiniBand; Ethernet always has one) */
    uint8_t port, gid_index, hop_limit, tclass, sl;
    uint16_t rlid, udp_sport;
    uint8_t rgid[16];
    uint8_t rmac[6]; /* Ethernet: the caller resolves it */
};

/* false: `why` names the variable that is out of range. note_p: a remark for the log, or NULL. */
bool swl_rc_tuning(struct rc_tuning *tuning, const struct swl_nic_ib *ib, bool ethernet,
                   const char **note_p, const char **why_p);
/* false: *why_p says why the ends cannot be connected. */
bool swl_rc_path(struct rc_path *path, const struct rc_end *mine, const struct rc_end *theirs,
                 const struct rc_tuning *tuning, const char **why_p);

#ifdef __cplusplus
}
#endif
#endif
