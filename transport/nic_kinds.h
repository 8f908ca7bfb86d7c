/* nic_kinds.h: numbers that NIC drivers share with device code. C and CUDA.
 *
 * Layer: transport. */
#pragma once

/* Who may do what with a region. Signals are strict; payload is relaxed and takes no adds. */
enum swl_nic_access {
    SWL_NIC_LOCAL_WRITE = 1,
    SWL_NIC_REMOTE_WRITE = 2,
    SWL_NIC_REMOTE_READ = 4,
    SWL_NIC_REMOTE_ADD = 8,
    SWL_NIC_RELAXED = 16, /* writes may be ordered freely; excludes REMOTE_ADD */
};

enum swl_nic_qp_state { SWL_NIC_QP_INIT, SWL_NIC_QP_READY, SWL_NIC_QP_ERROR };
