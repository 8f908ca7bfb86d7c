/* abi_load.c: loads the library named by its argument and prints what GetVersion says. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
    int (*get_version)(int *) = NULL;
    int version = 0;

    if (!library) {
        fprintf(stderr, "abi_load: %s\n", argc == 2 ? dlerror() : "usage: abi_load LIBRARY");
        return 1;
    }
    *(void **)&get_version = dlsym(library, "ncclEpGetVersion");
    if (!get_version || get_version(&version) != 0)
        return 1;
    printf("%d\n", version);
    return 0;
}
