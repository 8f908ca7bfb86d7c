/* comm.c: see comm.h. Layer: tools/support. */
#include "tools/support/comm.h"

#include <dlfcn.h>
#include <limits.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
