/* load.c: finds rdma-core at run time; see verbs.h. Layer: transport/rdma_core; no state. */
#include "transport/rdma_core/verbs.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* Names a library in sentences, with the package of Debian's family that has it. */
struct library {
    const char *file, *package;
    void *handle;
    char *why;
    size_t why_bytes;
};

static bool open_library(struct library *lib)
{
    const char *text;

    /* nodelete: the library loads its providers by itself and keeps them and their threads' exits;
     * our close must not pull it from under them */
    lib->handle = dlopen(lib->file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (lib->handle)
        return true;
    text = dlerror();
    snprintf(lib->why, lib->why_bytes, "%s cannot be loaded (package %s): %s", lib->file,
             lib->package, text ? text : "no reason given");
    return false;
}

/* A pointer to an object holds the address of a function: POSIX demands that this works. */
static bool find_symbol(const struct library *lib, const char *symbol, bool needed,
                        void *function_p)
{
    void *address = dlsym(lib->handle, symbol);

    memcpy(function_p, &address, sizeof(address));
    if (address || !needed)
        return true;
    snprintf(lib->why, lib->why_bytes, "%s has no %s: its version is too old (package %s)",
             lib->file, symbol, lib->package);
    return false;
}

#define FIND_NEEDED(result, symbol, arguments)                                                     \
    found = found && find_symbol(lib, #symbol, true, &verbs->symbol);
#define FIND_LATER(result, symbol, arguments)                                                      \
    found = found && find_symbol(lib, #symbol, false, &verbs->symbol);

static bool find_ibverbs(struct swl_verbs *verbs, const struct library *lib)
{
    bool found = true;

    VERBS_CALLS(FIND_NEEDED)
    VERBS_LATER_CALLS(FIND_LATER)
    return found;
}

static bool find_mlx5(struct swl_verbs *verbs, const struct library *lib)
{
    bool found = true;

    MLX5_CALLS(FIND_NEEDED)
    MLX5_LATER_CALLS(FIND_LATER)
    return found;
}

bool swl_verbs_load(struct swl_verbs *verbs, bool with_mlx5, const struct swl_verbs_files *files,
                    char *why, size_t why_bytes)
{
    static const struct swl_verbs_files sonames = {"libibverbs.so.1", "libmlx5.so.1"};
    const struct swl_verbs_files *from = files ? files : &sonames;
    struct library ibverbs = {from->ibverbs, "libibverbs1", NULL, why, why_bytes};
    struct library mlx5 = {from->mlx5, "ibverbs-providers", NULL, why, why_bytes};
    bool found;

    memset(verbs, 0, sizeof(*verbs));
    if (!open_library(&ibverbs))
        return false;
    verbs->ibverbs_library = ibverbs.handle;
    found = find_ibverbs(verbs, &ibverbs);
    if (found && with_mlx5) {
        found = open_library(&mlx5);
        verbs->mlx5_library = mlx5.handle;
        found = found && find_mlx5(verbs, &mlx5);
    }
    if (!found)
        swl_verbs_unload(verbs);
    return found;
}

void swl_verbs_unload(struct swl_verbs *verbs)
{
    if (verbs->mlx5_library)
        (void)dlclose(verbs->mlx5_library);
    if (verbs->ibverbs_library)
        (void)dlclose(verbs->ibverbs_library);
    memset(verbs, 0, sizeof(*verbs));
}
