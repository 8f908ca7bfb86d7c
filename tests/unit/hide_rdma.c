/* hide_rdma.c: preloaded into a program, the machine has no rdma-core: its libraries are not found.
 * Layer: tests. */
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

typedef void *(*open_fn)(const char *, int);

__attribute__((visibility("default"))) void *dlopen(const char *name, int flags);

void *dlopen(const char *name, int flags)
{
    static const char *const hidden[] = {"libibverbs", "libmlx5"};
    open_fn next = NULL;
    void *symbol = dlsym(RTLD_NEXT, "dlopen");

    memcpy(&next, &symbol, sizeof(next));
    for (size_t i = 0; name && i < sizeof(hidden) / sizeof(hidden[0]); i++)
        if (strncmp(name, hidden[i], strlen(hidden[i])) == 0)
            return next("/nonexistent/rdma-core.so", flags);
    return next(name, flags);
}
