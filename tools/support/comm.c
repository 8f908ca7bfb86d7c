/* comm.c: see comm.h. Layer: tools/support. */
#include "tools/support/comm.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <nccl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LIBRARY "libswl_nccl.so"

bool swl_comm_is_standin(void)
{
    return dlsym(RTLD_DEFAULT, "ncclStandinName") != NULL;
}

/* The library beside the program. */
static bool library_path(char *path, size_t bytes)
{
    ssize_t n = readlink("/proc/self/exe", path, bytes - sizeof(LIBRARY));
    char *name;

    if (n <= 0)
        return false;
    path[n] = '\0';
    name = strrchr(path, '/');
    if (!name)
        return false;
    memcpy(name + 1, LIBRARY, sizeof(LIBRARY));
    return true;
}

bool swl_comm_use_standin(char **argv)
{
    const char *before = getenv("LD_PRELOAD");
    char path[PATH_MAX], all[2 * PATH_MAX];

    if (swl_comm_is_standin())
        return true;
    if (before && strstr(before, LIBRARY)) {
        fprintf(stderr, "comm: LD_PRELOAD names " LIBRARY ", but it was not loaded\n");
        return false;
    }
    if (!library_path(path, sizeof(path)) ||
        snprintf(all, sizeof(all), "%s%s%s", path, before ? ":" : "", before ? before : "") >=
            (int)sizeof(all)) {
        fprintf(stderr, "comm: cannot name " LIBRARY " beside this program\n");
        return false;
    }
    if (access(path, R_OK) != 0) {
        fprintf(stderr, "comm: %s is missing\n", path);
        return false;
    }
    setenv("LD_PRELOAD", all, 1);
    fflush(NULL);
    execv("/proc/self/exe", argv);
    perror("comm: cannot start this program anew");
    return false;
}

/* A connection of this process with itself. */
static bool loopback_works(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(at);
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int caller = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool works =
        listener >= 0 && caller >= 0 && bind(listener, (struct sockaddr *)&at, bytes) == 0 &&
        listen(listener, 1) == 0 && getsockname(listener, (struct sockaddr *)&at, &bytes) == 0 &&
        connect(caller, (struct sockaddr *)&at, bytes) == 0;
    const int error = errno;

    if (caller >= 0)
        close(caller);
    if (listener >= 0)
        close(listener);
    errno = error;
    return works;
}

bool swl_comm_reaches_processes(void)
{
    if (!swl_comm_is_standin() || loopback_works())
        return true;
    fprintf(
        stderr,
        "comm: the stand-in for NCCL joins processes over 127.0.0.1, which cannot be reached: %s "
        "(is the interface lo up?)\n",
        strerror(errno));
    return false;
}

void swl_comm_name(char *text, int bytes)
{
    int version = 0;

    (void)ncclGetVersion(&version);
    if (swl_comm_is_standin())
        snprintf(text, (size_t)bytes, "stand-in for NCCL %d.%d", version / 10000,
                 version / 100 % 100);
    else
        snprintf(text, (size_t)bytes, "NCCL %d.%d.%d", version / 10000, version / 100 % 100,
                 version % 100);
}
