/* options_table.h: every environment variable, one row each. Layer: src/base.
 *
 * Expanded for struct swl_options, its parser, the start-up listing and the table in
 * docs/tuning.md. No include guard: the includer defines the macros it needs.
 * OPT(field, name, fallback, type, default, min, max, unit, help): a member of struct swl_options.
 *   `fallback` is NCCL's variable, asked when ours is unset, or NULL. The default 0 of a number
 *   means "not set": the configuration field is asked, then the built-in value, which stands where
 *   the group resolves its options. Where 0 is a value the default is -1. `unit` of a word or of
 *   words lists those that are possible, the default first.
 * NOTE(name, help): read elsewhere or accepted without effect; listed and documented only. */
#ifndef OPT
#    define OPT(field, name, fallback, type, def, min, max, unit, help)
#endif
#ifndef NOTE
#    define NOTE(name, help)
#endif
/* clang-format off */
NOTE("NCCL_EP_DEBUG", "Flag (any other text counts as on): DEBUG log, banner at load. Read at first use.")
NOTE("SWIMLANE_LOG", "none, error, warn (default), info, debug or trace; wins over NCCL_EP_DEBUG. Read at first use.")
OPT(env_verbose, "NCCL_EP_ENV_VERBOSE", NULL, flag, 0, 0, 1, "", "Rank 0 lists all variables when a group is created.")
OPT(report_version, "SWIMLANE_REPORT_VERSION", NULL, u32, 0, 1, 999999, "", "Number that ncclEpGetVersion returns instead of the library's own, e.g. 100. Read at first use.")
OPT(timeout_ms, "NCCL_EP_TIMEOUT_MS", NULL, u32, 0, 1, 3600000, "ms", "Limit of a wait of a data call: the call then ends with an error that names the missing rank. Unset: timeout_ns of the group, else 100 s.")
OPT(setup_timeout_ms, "SWIMLANE_SETUP_TIMEOUT_MS", NULL, u32, 0, 1, 3600000, "ms", "Limit of each step in which hosts create, extend or destroy a group. Unset: 60 s. Work that still runs when its group is destroyed has the limit NCCL_EP_TIMEOUT_MS.")
OPT(comm_sms, "NCCL_EP_COMM_SMS", NULL, u32, 0, 1, 65535, "SMs", "SMs of dispatch and combine; above the device's number it is ignored.")
OPT(shuffle_sms, "NCCL_EP_SHUFFLE_SMS", NULL, u32, 0, 1, 65535, "SMs", "Accepted; no kernel of this version uses it.")
OPT(preprocess_sms, "NCCL_EP_PREPROCESS_NUM_SMS", NULL, u32, 0, 1, 65535, "SMs", "SMs of the route kernel; above the device's number it is ignored.")
OPT(cuda_queues, "CUDA_DEVICE_MAX_CONNECTIONS", NULL, u32, 0, 1, 32, "queues", "Read by CUDA at its first use: queues of work of a process on each GPU, 8 by default. Ranks of a process that share a GPU need one each. With fewer the group is refused.")
OPT(tokens_per_chunk, "NCCL_EP_TOKENS_PER_CHUNK", NULL, u32, 0, 1, 65536, "tokens", "Hint: slots sent together, rounded up to a multiple of 32.")
OPT(em_local_dup, "NCCL_EP_HT_EM_LOCAL_DUP", NULL, flag, 0, 0, 1, "", "Accepted; refused together with NCCL_EP_HT_EM_NVLINK_DUP.")
OPT(em_nvlink_dup, "NCCL_EP_HT_EM_NVLINK_DUP", NULL, flag, 0, 0, 1, "", "Accepted; refused together with NCCL_EP_HT_EM_LOCAL_DUP.")
NOTE("NCCL_EP_DISABLE_GUARD", "Accepted and ignored.")
NOTE("NCCL_EP_DISPATCH_NUM_STAGES", "Accepted and ignored.")
NOTE("NCCL_EP_DISPATCH_NUM_PIPELINES", "Accepted and ignored.")
NOTE("NCCL_EP_COMBINE_NUM_STAGES_G2S", "Accepted and ignored.")
NOTE("NCCL_EP_COMBINE_NUM_STAGES_S2G", "Accepted and ignored.")
NOTE("NCCL_EP_COMBINE_NUM_PIPELINES", "Accepted and ignored.")
OPT(node, "SWIMLANE_NODE", NULL, i32, -1, 0, 2147483647, "", "Node of this rank; on all ranks or on none. Unset: NCCL's load/store team.")
OPT(transports, "SWIMLANE_TRANSPORT", NULL, words, 0, 0, 0, "auto,peer,mlx5,verbs,soft,tcp", "auto, or a comma list of the others: what a pair of ranks may use. Equal on all ranks. mlx5: a ConnectX NIC driven by the GPU. verbs: any RDMA NIC, through the host. Between nodes each pair uses the first of this order that works for both. All pairs use soft or none (auto: in the emulator, soft). Without peer every rank is a node of its own. peer alone switches the network off.")
OPT(mlx5_rings, "SWIMLANE_MLX5_RINGS", NULL, word, 0, 0, 0, "auto,gpu,host", "Where mlx5 has its queue pairs. gpu: in memory of the GPU, by firmware commands (DevX). host: in pinned host memory, without such commands. auto: gpu where it works. Ranks may differ.")
OPT(socket_ifname, "SWIMLANE_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", text, 0, 0, 0, "", "Network interfaces for the connections between hosts, in the syntax of NCCL_SOCKET_IFNAME. Of several the best is used (below).")
OPT(ib_hca, "SWIMLANE_IB_HCA", "NCCL_IB_HCA", text, 0, 0, 0, "", "NICs that may be used, in the syntax of NCCL_IB_HCA. This and the next six are for mlx5 and verbs.")
OPT(ib_gid_index, "SWIMLANE_IB_GID_INDEX", "NCCL_IB_GID_INDEX", i32, -1, 0, 255, "", "Index of the port's address; unset: a routable RoCE v2 address, IPv4 first.")
OPT(ib_sl, "SWIMLANE_IB_SL", "NCCL_IB_SL", i32, -1, 0, 15, "", "Service level; priority on Ethernet, at most 7.")
OPT(ib_tc, "SWIMLANE_IB_TC", "NCCL_IB_TC", i32, -1, 0, 255, "", "Traffic class; Ethernet only.")
OPT(ib_timeout, "SWIMLANE_IB_TIMEOUT", "NCCL_IB_TIMEOUT", u32, 0, 1, 31, "", "Acknowledge time-out, 4.096 us * 2^value.")
OPT(ib_retry_cnt, "SWIMLANE_IB_RETRY_CNT", "NCCL_IB_RETRY_CNT", u32, 0, 1, 7, "", "Retries of the NIC.")
OPT(ib_pkey, "SWIMLANE_IB_PKEY", "NCCL_IB_PKEY", i32, -1, 0, 32767, "", "Index of the partition key in the port's table; unset: the first of a full member, else the first valid one.")
OPT(nics, "SWIMLANE_NICS", NULL, u32, 0, 1, 8, "", "NICs of a rank, the nearest to its GPU; its queue pairs take them in turn. Unset: 1. The software NIC on blocks is always one.")
OPT(ib_qps, "SWIMLANE_IB_QPS", NULL, u32, 0, 1, 1024, "", "Queue pairs per peer; then num_qp_per_rank, then NCCL_IB_QPS_PER_CONNECTION.")
OPT(nccl_ib_qps, "NCCL_IB_QPS_PER_CONNECTION", NULL, u32, 0, 1, 1024, "", "Asked after SWIMLANE_IB_QPS and num_qp_per_rank.")
OPT(verbs_adds, "SWIMLANE_VERBS_ADDS", NULL, word, 0, 0, 0, "atomics,messages", "How verbs adds to a word of another rank. atomics: the device does it. messages: the receiver's host does it, also where either NIC has no atomics or is set to them.")
OPT(net, "SWIMLANE_NET", NULL, flag, 0, 0, 1, "", "Accepted; for the net plugin, which is missing in this version.")
OPT(soft_link, "SWIMLANE_SOFT_LINK", NULL, link, 0, 0, 0, "Gb/s:us", "Rate and delay of each NIC of soft, verbs and tcp, e.g. 400:3. Unset: no wire model.")
OPT(soft_faults, "SWIMLANE_SOFT_FAULTS", NULL, text, 0, 0, 0, "", "Seeded faults of soft, verbs and tcp. docs/testing.md has the grammar.")
OPT(soft_executor, "SWIMLANE_SOFT_EXECUTOR", NULL, word, 0, 0, 0, "auto,blocks,thread,engine", "What runs the software NIC: blocks of the calling kernels, a thread of the process, or an engine of the emulator. auto: engine in the emulator when all ranks are in one process, else blocks.")
OPT(soft_blocks, "SWIMLANE_SOFT_BLOCKS", NULL, u32, 0, 1, 64, "SMs", "Blocks that run the software NIC, added to every kernel of a group of several nodes. Unset: 4, in the emulator 1.")
OPT(combine_fp32, "SWIMLANE_COMBINE_WIRE", NULL, word, 0, 0, 0, "payload,fp32", "Type of partial sums between nodes. Equal on all ranks.")
OPT(trace, "SWIMLANE_TRACE", NULL, text, 0, 0, 0, "", "Accepted; for a timeline of the warp roles, which is missing in this version.")
OPT(start_position, "SWIMLANE_START_POSITION", NULL, u64, 0, 0, 18446744073709551615ull, "", "Tests only: first ring position and epoch of a group. Equal on all ranks.")
OPT(ring_sizes, "SWIMLANE_RING_SIZES", NULL, rings, 0, 0, 0, "slots:chunk:landing:link", "Tests only: sizes of all rings, powers of two, e.g. 2:1:1:2. Slots of rings between nodes (2 to 64), of these sent together (at most half), landing slots of a peer (1 to 16), slots of rings inside a node (2 to 64). Equal on all ranks.")
NOTE("SWIMLANE_ROOT", "host:port or [IPv6]:port, an address of rank 0's machine, where rank 0 serves the NCCL unique id; read by the launcher of the tools. Unset: MASTER_ADDR and MASTER_PORT (under torchrun the port above it), else a file in TMPDIR.")
NOTE("SWIMLANE_JOB", "Name of the job, at most 255 letters, equal on all ranks. Rank 0 gives the unique id to ranks of its job only. Unset: the launcher's name of the job. Read by the launcher of the tools.")
NOTE("SWIMLANE_JOB_SECRET", "Secret of the job, at most 127 letters, equal on all ranks. Rank 0 asks for it with the name of the job. It travels in clear, and is in no list and no log.")
NOTE("SWIMLANE_STANDIN_TIMEOUT_MS", "Read by the stand-in for NCCL over CUDA: how long a collective waits for a late rank, 120000 by default.")
NOTE("SIMT_SEED", "Emulator: seed of the schedule.")
NOTE("SIMT_PREEMPT", "Emulator: preemptions per 1000 primitives.")
NOTE("SIMT_HANG", "Emulator: report = stop with a report where nothing can move, instead of jumping to the next deadline.")
NOTE("SIMT_SMS", "Emulator: SMs of a device, 24 by default.")
NOTE("SIMT_THREADS", "Emulator: scheduler threads, 1 by default; with more a run cannot be replayed.")
NOTE("SIMT_SHARED_KIB", "Emulator: shared memory of a block in KiB, 227 by default.")
NOTE("NCCL_EP_JIT_*, NCCL_EP_HOME, NCCL_HOME, NVCC, NVCC_*_FLAGS", "Ignored: nothing is compiled at run time.")
/* clang-format on */
#undef OPT
#undef NOTE
