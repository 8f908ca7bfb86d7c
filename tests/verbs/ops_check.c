/* ops_check.c: what Swimlane needs of a verbs device, asked of the device itself with plain
 * libibverbs: RDMA write, read, inline send, fetch-and-add where the device has it, and that what
 * signals a write is never seen before the write. Both ends are in this process.
 *
 * Layer: tests/verbs, no part of the library. Runs inside the virtual machine of rxe-vm.
 *
 *   ops_check DEVICE GID_INDEX [DEVICE GID_INDEX] */
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SIZE = 1 << 20, ROUNDS = 64, PIECE = 4096 };

struct end {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    struct ibv_qp *qp;
    union ibv_gid gid;
    int gid_index;
    bool atomics;
    unsigned char *buffer;
};

struct far {
    uint64_t address;
    uint32_t rkey, pad;
};

static struct end server, client;
static int failed;

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void report(const char *what, bool good)
{
    printf("%s %s\n", good ? "ok  " : "FAIL", what);
    failed += !good;
}

/* ---- memory and queue pair ---- */

static void make_memory(struct end *e)
{
    struct ibv_device_attr device;
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

    if (ibv_query_device(e->context, &device))
        die("ibv_query_device");
    e->atomics = device.atomic_cap != IBV_ATOMIC_NONE;
    if (e->atomics)
        access |= IBV_ACCESS_REMOTE_ATOMIC;
    e->pd = ibv_alloc_pd(e->context);
    e->cq = e->pd ? ibv_create_cq(e->context, 512, NULL, NULL, 0) : NULL;
    if (!e->cq || posix_memalign((void **)&e->buffer, 4096, SIZE))
        die("protection domain, completion queue or buffer");
    memset(e->buffer, 0, SIZE);
    e->mr = ibv_reg_mr(e->pd, e->buffer, SIZE, access);
    if (!e->mr)
        die("ibv_reg_mr");
}

static struct ibv_qp_init_attr qp_attr(const struct end *e)
{
    struct ibv_qp_init_attr attr = {
        .cap = {.max_send_wr = 64,
                .max_recv_wr = 64,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = 32},
        .qp_type = IBV_QPT_RC,
    };

    attr.send_cq = attr.recv_cq = e->cq;
    return attr;
}

static void post_recv(struct end *e)
{
    struct ibv_sge sge = {(uintptr_t)e->buffer + SIZE / 2, PIECE, e->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;

    if (ibv_post_recv(e->qp, &wr, &bad))
        die("ibv_post_recv");
}

/* ---- connection ---- */

static void open_by_name(struct end *e, const char *name, const char *gid_index)
{
    int n;
    struct ibv_device **list = ibv_get_device_list(&n);

    for (int i = 0; list && i < n; i++)
        if (strcmp(ibv_get_device_name(list[i]), name) == 0)
            e->context = ibv_open_device(list[i]);
    if (!e->context)
        die(name);
    ibv_free_device_list(list);
    e->gid_index = atoi(gid_index);
    if (ibv_query_gid(e->context, 1, e->gid_index, &e->gid))
        die("ibv_query_gid");
    make_memory(e);
    struct ibv_qp_init_attr attr = qp_attr(e);
    e->qp = ibv_create_qp(e->pd, &attr);
    if (!e->qp)
        die("ibv_create_qp");
}

static void connect_to(struct end *e, const struct end *peer)
{
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT,
                               .port_num = 1,
                               .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                                  (e->atomics ? IBV_ACCESS_REMOTE_ATOMIC : 0)};
    struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR,
                              .path_mtu = IBV_MTU_1024,
                              .dest_qp_num = peer->qp->qp_num,
                              .rq_psn = 7,
                              .max_dest_rd_atomic = 1,
                              .min_rnr_timer = 12,
                              .ah_attr = {.is_global = 1, .port_num = 1}};
    struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS,
                              .sq_psn = 7,
                              .timeout = 14,
                              .retry_cnt = 7,
                              .rnr_retry = 7,
                              .max_rd_atomic = 1};

    rtr.ah_attr.grh.dgid = peer->gid;
    rtr.ah_attr.grh.sgid_index = (uint8_t)e->gid_index;
    rtr.ah_attr.grh.hop_limit = 64;
    if (ibv_modify_qp(e->qp, &init,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
        die("to INIT");
    if (ibv_modify_qp(e->qp, &rtr,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
        die("to RTR");
    if (ibv_modify_qp(e->qp, &rts,
                      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                          IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
        die("to RTS");
}

/* ---- operations ---- */

/* The next completion's status; -1 after 20 s without one. */
static int wait_completion(struct end *e, struct ibv_wc *wc)
{
    const time_t end = time(NULL) + 20;

    while (time(NULL) < end) {
        int n = ibv_poll_cq(e->cq, 1, wc);

        if (n < 0)
            die("ibv_poll_cq");
        if (n)
            return (int)wc->status;
    }
    return -1;
}

/* Post the requests, the last of which is signalled; true when that one has completed. */
static bool done(struct ibv_send_wr *wr)
{
    struct ibv_send_wr *bad;
    struct ibv_wc wc;
    int error = ibv_post_send(client.qp, wr, &bad), status;

    if (error) {
        printf("     ibv_post_send: %s\n", strerror(error));
        return false;
    }
    status = wait_completion(&client, &wc);
    if (status)
        printf("     completion: %s\n", status < 0 ? "none" : ibv_wc_status_str(wc.status));
    return status == 0;
}

static struct ibv_send_wr request(enum ibv_wr_opcode opcode, struct ibv_sge *sge, uint32_t at,
                                  uint32_t bytes)
{
    struct ibv_send_wr wr = {.sg_list = sge, .num_sge = 1, .opcode = opcode};

    *sge = (struct ibv_sge){(uintptr_t)client.buffer, bytes, client.mr->lkey};
    wr.send_flags = IBV_SEND_SIGNALED;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = (uintptr_t)server.buffer + at;
        wr.wr.atomic.rkey = server.mr->rkey;
    } else if (opcode != IBV_WR_SEND) {
        wr.wr.rdma.remote_addr = (uintptr_t)server.buffer + at;
        wr.wr.rdma.rkey = server.mr->rkey;
    }
    return wr;
}

static void check_moves(void)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge, 0, SIZE / 2);

    for (size_t i = 0; i < SIZE / 2; i++)
        client.buffer[i] = (unsigned char)(i * 31 + (i >> 9));
    report("write, 512 KiB", done(&wr) && !memcmp(client.buffer, server.buffer, SIZE / 2));
    memset(client.buffer, 0, 65536);
    wr = request(IBV_WR_RDMA_READ, &sge, 0, 65536);
    report("read, 64 KiB", done(&wr) && !memcmp(client.buffer, server.buffer, 65536));
}

static void check_send(void)
{
    struct far far = {0x123456789abcdef0, 42, 0};
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(IBV_WR_SEND, &sge, 0, sizeof(far));
    struct ibv_wc wc;

    post_recv(&server);
    sge.addr = (uintptr_t)&far; /* not registered: the bytes travel in the request */
    wr.send_flags |= IBV_SEND_INLINE;
    report("inline send", done(&wr) && wait_completion(&server, &wc) == 0 &&
                              wc.opcode == IBV_WC_RECV && wc.byte_len == sizeof(far) &&
                              !memcmp(server.buffer + SIZE / 2, &far, sizeof(far)));
}

/* Writes, each followed in the same post by a fetch-and-add: who sees the sum must see the
 * write. */
static void check_add(void)
{
    uint64_t *word = (uint64_t *)(server.buffer + SIZE - 64), *old = (uint64_t *)client.buffer;
    uint32_t late = 0;
    bool good = true;
    struct ibv_sge from, sink;
    struct ibv_send_wr add = request(IBV_WR_ATOMIC_FETCH_AND_ADD, &sink, SIZE - 64, 8), write;

    *word = 40;
    add.wr.atomic.compare_add = 2;
    report("fetch-and-add", done(&add) && *word == 42 && *old == 40);
    for (uint32_t i = 1; i <= ROUNDS && good; i++) {
        struct ibv_wc wc;
        struct ibv_send_wr *bad;

        memset(client.buffer + PIECE, (int)i, PIECE);
        write = request(IBV_WR_RDMA_WRITE, &from, 0, PIECE);
        from.addr += PIECE;
        write.send_flags = 0;
        write.next = &add;
        good = ibv_post_send(client.qp, &write, &bad) == 0;
        for (time_t end = time(NULL) + 20; good && time(NULL) < end;)
            if (__atomic_load_n(word, __ATOMIC_ACQUIRE) == 42 + 2 * (uint64_t)i)
                break;
        for (uint32_t k = 0; k < PIECE; k++)
            late += server.buffer[k] != (unsigned char)i;
        good = good && wait_completion(&client, &wc) == 0;
    }
    report("fetch-and-add behind writes", good && late == 0);
}

/* The same with a completion of the receiver as the signal. */
static void check_send_behind(void)
{
    uint32_t late = 0;
    bool good = true;
    struct ibv_sge from, none;

    for (uint32_t i = 1; i <= ROUNDS && good; i++) {
        struct ibv_send_wr write = request(IBV_WR_RDMA_WRITE, &from, 0, PIECE);
        struct ibv_send_wr signal = request(IBV_WR_SEND, &none, 0, 0);
        struct ibv_wc wc;

        post_recv(&server);
        memset(client.buffer + PIECE, (int)(i + 100), PIECE);
        from.addr += PIECE;
        signal.num_sge = 0;
        write.send_flags = 0;
        write.next = &signal;
        good = done(&write) && wait_completion(&server, &wc) == 0;
        for (uint32_t k = 0; k < PIECE; k++)
            late += server.buffer[k] != (unsigned char)(i + 100);
    }
    report("send behind writes", good && late == 0);
}

int main(int argc, char **argv)
{
    if (argc != 3 && argc != 5) {
        fprintf(stderr, "usage: %s DEVICE GID_INDEX [DEVICE GID_INDEX]\n", argv[0]);
        return 2;
    }
    open_by_name(&server, argv[1], argv[2]);
    open_by_name(&client, argv[argc - 2], argv[argc - 1]);
    connect_to(&server, &client);
    connect_to(&client, &server);
    printf("%s to %s\n", ibv_get_device_name(client.context->device),
           ibv_get_device_name(server.context->device));
    check_moves();
    check_send();
    check_send_behind();
    if (server.atomics)
        check_add();
    else
        printf("none fetch-and-add: the device has no atomics\n");
    return failed ? 1 : 0;
}
