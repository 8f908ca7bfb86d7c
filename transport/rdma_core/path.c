/* path.c: see path.h. Layer: transport/rdma_core; pure. */
#include "transport/rdma_core/path.h"

#include "transport/nic.h"

#include <string.h>

#define TIMEOUT_BUILT_IN 20 /* 4.3 s */
#define RETRIES_BUILT_IN 7
#define LOG_READS_MAX    7 /* width of the field in the queue pair's context */
#define HOPS_MAX         255

bool swl_rc_tuning(struct rc_tuning *tuning, const struct swl_nic_ib *ib, bool ethernet,
                   const char **note_p, const char **why_p)
{
    *note_p = NULL;
    *why_p = NULL;
    if (ib->sl > (ethernet ? 7 : 15))
        *why_p = ethernet ? SWL_IB_VARIABLE("SL", " is above 7, the highest priority of Ethernet")
                          : SWL_IB_VARIABLE("SL", " is above 15");
    else if (ib->tc > 255)
        *why_p = SWL_IB_VARIABLE("TC", " is above 255");
    else if (ib->timeout > 31)
        *why_p = SWL_IB_VARIABLE("TIMEOUT", " is above 31");
    else if (ib->retry_cnt > 7)
        *why_p = SWL_IB_VARIABLE("RETRY_CNT", " is above 7");
    if (*why_p)
        return false;
    if (ib->tc >= 0 && !ethernet)
        *note_p = SWL_IB_VARIABLE("TC", " is ignored on InfiniBand, which has service levels");
    memset(tuning, 0, sizeof(*tuning));
    tuning->sl = ib->sl >= 0 ? (uint8_t)ib->sl : 0;
    tuning->tclass = ethernet && ib->tc >= 0 ? (uint8_t)ib->tc : 0;
    tuning->timeout = ib->timeout ? (uint8_t)ib->timeout : TIMEOUT_BUILT_IN;
    tuning->retries = ib->retry_cnt ? (uint8_t)ib->retry_cnt : RETRIES_BUILT_IN;
    return true;
}

static uint8_t least(uint8_t a, uint8_t b)
{
    return a < b ? a : b;
}

static bool known_mtu(uint8_t mtu)
{
    return mtu >= 1 && mtu <= 5;
}

/* Where the fabric's routers expect packets for this GID, 0 = the GID does not say (no FLID). */
static uint16_t routed_lid(const uint8_t *gid)
{
    return (uint16_t)(gid[4] << 8 | gid[5]);
}

static bool infiniband(struct rc_path *path, const struct rc_end *mine, const struct rc_end *theirs,
                       const char **why_p)
{
    const bool other_subnet = memcmp(mine->gid, theirs->gid, 8) != 0; /* another subnet */

    path->global = other_subnet || mine->grh_required || theirs->grh_required;
    path->rlid = theirs->lid;
    if (other_subnet && routed_lid(theirs->gid))
        path->rlid = routed_lid(theirs->gid);
    if (path->rlid == 0 && !path->global) {
        *why_p = "the peer's port has no LID: no subnet manager has configured it";
        return false;
    }
    return true;
}

/* Both queue pair numbers spread connections over the equal paths of the fabric. */
static uint16_t source_port(uint32_t mine, uint32_t theirs)
{
    const uint32_t mixed = (mine * 0x9e3779b1u) ^ (theirs * 0x85ebca6bu);

    return (uint16_t)(0xc000u | (mixed >> 18));
}

/* 0: a device without keys. */
static const char *partition_fault(uint16_t mine, uint16_t theirs)
{
    const uint16_t full = 0x8000;

    if (mine == 0 || theirs == 0)
        return NULL;
    if ((mine ^ theirs) & ~full)
        return "the ends are in different partitions (SWIMLANE_IB_PKEY)";
    return (mine | theirs) & full ? NULL
                                  : "both ends are limited members of their partition, which do "
                                    "not reach each other (SWIMLANE_IB_PKEY)";
}

bool swl_rc_path(struct rc_path *path, const struct rc_end *mine, const struct rc_end *theirs,
                 const struct rc_tuning *tuning, const char **why_p)
{
    static const uint8_t no_gid[16];

    memset(path, 0, sizeof(*path));
    *why_p = NULL;
    if ((mine->ethernet != 0) != (theirs->ethernet != 0))
        *why_p = "one end is on InfiniBand, the other on Ethernet";
    else if (!known_mtu(mine->mtu) || !known_mtu(theirs->mtu))
        *why_p = "a port has no valid MTU";
    else if (theirs->qpn == 0 || theirs->qpn > 0xffffffu || theirs->psn > 0xffffffu)
        *why_p = "the peer's address names no queue pair";
    else
        *why_p = partition_fault(mine->pkey, theirs->pkey);
    if (*why_p)
        return false;
    path->remote_qpn = theirs->qpn;
    path->send_psn = mine->psn;
    path->recv_psn = theirs->psn;
    path->ece = mine->ece & theirs->ece;
    path->mtu = least(mine->mtu, theirs->mtu);
    path->log_sra = least(least(mine->log_reads_out, theirs->log_reads_in), LOG_READS_MAX);
    path->log_rra = least(least(mine->log_reads_in, theirs->log_reads_out), LOG_READS_MAX);
    path->timeout = tuning->timeout;
    path->retries = tuning->retries;
    path->port = tuning->port;
    path->gid_index = tuning->gid_index;
    path->sl = tuning->sl;
    path->tclass = tuning->tclass;
    path->ethernet = mine->ethernet != 0;
    memcpy(path->rgid, theirs->gid, sizeof(path->rgid));
    if (!path->ethernet && !infiniband(path, mine, theirs, why_p))
        return false;
    if ((path->ethernet || path->global) && memcmp(theirs->gid, no_gid, sizeof(no_gid)) == 0) {
        *why_p = "the peer's port has no GID";
        return false;
    }
    path->hop_limit = path->ethernet || path->global ? HOPS_MAX : 0;
    if (path->ethernet)
        path->udp_sport = source_port(mine->qpn, theirs->qpn);
    return true;
}
