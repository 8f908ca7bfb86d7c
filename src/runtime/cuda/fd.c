/* fd.c: hand file descriptors to other processes of this host.
 *
 * Layer: device runtime, private to share.c. A process that exports descriptors listens on
 * an abstract Unix socket named after its process number; a request is the 8-byte id, the answer
 * one byte with the descriptor (SCM_RIGHTS), or nothing. Only processes of the same user are
 * served, and asked. One service thread, alive from the first offer to the last withdrawal.
 * Owns: the table of exports (not the descriptors), the socket and the thread. */
#include "src/runtime/cuda/driver.h"

#include "src/base/socket.h"
#include "src/base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define FETCH_SECONDS 10
#define SERVE_SECONDS 1
#define NAME_BYTES    32

struct export
{
    struct export *next;
    uint64_t id;
    int fd;
};

static pthread_mutex_t lifetime_lock = PTHREAD_MUTEX_INITIALIZER; /* start and end of the service */
static pthread_mutex_t exports_lock = PTHREAD_MUTEX_INITIALIZER;  /* the list */
static struct export *exports;
static pthread_t service;
static int listener = -1;
static int stop_pipe[2];

static void name_of(uint64_t process, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "swimlane-%016llx", (unsigned long long)process);
}

static void limit_time(int fd, int seconds)
{
    const struct timeval t = {.tv_sec = seconds};

    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t));
}

/* ---- the message with a descriptor ---- */

union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int))];
};

static bool send_fd(int to, int fd)
{
    union control control;
    char byte = 1;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *header;

    memset(&control, 0, sizeof(control));
    header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    return sendmsg(to, &message, MSG_NOSIGNAL) == 1;
}

static bool receive_fd(int from, int *fd_p)
{
    union control control;
    char byte;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *header;

    if (recvmsg(from, &message, MSG_CMSG_CLOEXEC) != 1)
        return false;
    header = CMSG_FIRSTHDR(&message);
    if (!header || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS ||
        header->cmsg_len != CMSG_LEN(sizeof(int)))
        return false;
    memcpy(fd_p, CMSG_DATA(header), sizeof(*fd_p));
    return true;
}

/* ---- service ---- */

static void serve(int client)
{
    uint64_t id;

    limit_time(client, SERVE_SECONDS);
    if (!swl_socket_of_user(client))
        return;
    if (recv(client, &id, sizeof(id), MSG_WAITALL) != (ssize_t)sizeof(id))
        return;
    /* the lock is held while the descriptor is sent: swl_fd_withdraw lets the owner close it */
    pthread_mutex_lock(&exports_lock);
    for (const struct export *o = exports; o; o = o->next)
        if (o->id == id) {
            (void)send_fd(client, o->fd);
            break;
        }
    pthread_mutex_unlock(&exports_lock);
}

static void *service_main(void *unused)
{
    struct pollfd wait_for[2] = {{.fd = listener, .events = POLLIN},
                                 {.fd = stop_pipe[0], .events = POLLIN}};

    (void)unused;
    while (wait_for[1].revents == 0) {
        if (poll(wait_for, 2, -1) < 0) {
            if (errno != EINTR)
                break;
            continue; /* the answers are those of the time before */
        }
        if (wait_for[0].revents & POLLIN) {
            const int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

            if (client >= 0) {
                serve(client);
                close(client);
            }
        }
    }
    return NULL;
}

static cudaError_t service_start(void)
{
    char name[NAME_BYTES];

    name_of(swl_gpu_process_id(), name);
    /* it does not block: a client that has gone before it is accepted must not stop the service */
    listener = swl_socket_listen_local(name, 128);
    if (listener < 0)
        return cudaErrorOperatingSystem;
    if (pipe2(stop_pipe, O_CLOEXEC))
        goto undo_socket;
    if (swl_thread_create(&service, service_main, NULL))
        goto undo_pipe;
    return cudaSuccess;
undo_pipe:
    close(stop_pipe[0]);
    close(stop_pipe[1]);
undo_socket:
    close(listener);
    listener = -1;
    return cudaErrorOperatingSystem;
}

static void service_stop(void)
{
    const char byte = 0;

    while (write(stop_pipe[1], &byte, 1) < 0 && errno == EINTR)
        continue;
    pthread_join(service, NULL);
    close(stop_pipe[0]);
    close(stop_pipe[1]);
    close(listener);
    listener = -1;
}

cudaError_t swl_fd_export(uint64_t id, int fd)
{
    struct export *o = malloc(sizeof(*o));
    cudaError_t error = cudaSuccess;

    if (!o)
        return cudaErrorMemoryAllocation;
    o->id = id;
    o->fd = fd;
    pthread_mutex_lock(&lifetime_lock);
    if (listener < 0)
        error = service_start();
    if (error == cudaSuccess) {
        pthread_mutex_lock(&exports_lock);
        o->next = exports;
        exports = o;
        pthread_mutex_unlock(&exports_lock);
    } else {
        free(o);
    }
    pthread_mutex_unlock(&lifetime_lock);
    return error;
}

void swl_fd_withdraw(uint64_t id)
{
    struct export **link, *gone = NULL;
    bool empty;

    pthread_mutex_lock(&lifetime_lock);
    pthread_mutex_lock(&exports_lock);
    for (link = &exports; *link; link = &(*link)->next)
        if ((*link)->id == id) {
            gone = *link;
            *link = gone->next;
            break;
        }
    empty = !exports;
    pthread_mutex_unlock(&exports_lock);
    free(gone);
    if (gone && empty)
        service_stop();
    pthread_mutex_unlock(&lifetime_lock);
}

cudaError_t swl_fd_fetch(uint64_t process, uint64_t id, int *fd_p)
{
    char name[NAME_BYTES];
    struct sockaddr_un address;
    socklen_t bytes;
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cudaError_t error = cudaErrorOperatingSystem;

    if (fd < 0)
        return error;
    name_of(process, name);
    bytes = swl_socket_local(name, &address);
    limit_time(fd, FETCH_SECONDS);
    if (connect(fd, (struct sockaddr *)&address, bytes) == 0 && swl_socket_of_user(fd) &&
        send(fd, &id, sizeof(id), MSG_NOSIGNAL) == (ssize_t)sizeof(id) && receive_fd(fd, fd_p))
        error = cudaSuccess;
    close(fd);
    return error;
}
