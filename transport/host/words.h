/* words.h: how executors on a CPU touch shared words, of the software NIC and of proxies. C++ only.
 * Layer: transport/host. */
#pragma once

#include "transport/host/port.h"

#include <stdint.h>

namespace
{

/* The part of core.cuh's way to memory that is the same for all that run on a CPU. */
struct host_words {
    static uint32_t word(const uint32_t *p)
    {
        return __atomic_load_n(p, __ATOMIC_RELAXED);
    }
    static uint32_t key(const uint32_t *p)
    {
        return __atomic_load_n(p, __ATOMIC_SEQ_CST);
    }
    static void enter(uint32_t *p)
    {
        __atomic_fetch_add(p, 1, __ATOMIC_SEQ_CST);
    }
    static void leave(uint32_t *p)
    {
        __atomic_fetch_sub(p, 1, __ATOMIC_SEQ_CST);
    }
};

/* The same of a thread of the process; of a fiber the emulator keeps the order. */
struct thread_words : host_words {
    static uint64_t doorbell(const uint64_t *p)
    {
        return __atomic_load_n(p, __ATOMIC_ACQUIRE);
    }
    static void publish(uint32_t *p, uint32_t v)
    {
        __atomic_store_n(p, v, __ATOMIC_RELEASE); /* pairs with read_completion */
    }
};

/* A queue pair and its words as at the start, not connected; *looked_p: its doorbell at the last
 * look. */
template <class Mem> void restart_queue(Mem mem, struct soft_qp *qp, uint64_t *looked_p)
{
    soft_qp_start(qp);
    __atomic_store_n(qp->dbr + SWL_DBR_SEND, swl_dbr_value(qp->first_index), __ATOMIC_RELAXED);
    *looked_p = qp->seen;
    __atomic_store_n(qp->doorbell, qp->seen, __ATOMIC_RELEASE);
    mem.publish(qp->cq + SWL_CQE_LAST_WORD, UINT32_MAX);
    __atomic_store_n(&qp->state, SWL_NIC_QP_INIT, __ATOMIC_RELEASE);
}

/* Has a doorbell moved since its last look, or the host asked for something? Nic: the software
 * NIC's or a proxy's. */
template <class Nic> bool words_moved(const Nic *nic, const uint32_t *nqps_p)
{
    const uint32_t nqps = __atomic_load_n(nqps_p, __ATOMIC_ACQUIRE);

    if (__atomic_load_n(&nic->kick, __ATOMIC_ACQUIRE) != nic->kicked)
        return true;
    for (uint32_t i = 0; i < nqps; i++)
        if (__atomic_load_n(&nic->doorbells[i], __ATOMIC_RELAXED) != nic->looked[i])
            return true;
    return false;
}

} // namespace
