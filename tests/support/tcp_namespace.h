/* tcp_namespace.h: ranks that are on hosts of their own as far as the network is concerned. C and
 * C++.
 * Layer: tests. */
#ifndef SWL_TCP_NAMESPACE_H
#define SWL_TCP_NAMESPACE_H

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The calling thread moves to the node-th network namespace of "NAME,NAME" ("-": it stays); sockets
 * that it makes from then on belong there. */
static inline int enter_host(const char *names, int node)
{
    const char *name = names;
    char path[256];
    int fd, rc;

    for (int i = 0; i < node && name; i++) {
        name = strchr(name, ',');
        name = name ? name + 1 : NULL;
    }
    if (strcmp(names, "-") == 0 || !name)
        return 0;
    snprintf(path, sizeof(path), "/run/netns/%.*s", (int)strcspn(name, ","), name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    rc = fd < 0 ? -1 : setns(fd, CLONE_NEWNET);
    if (rc)
        perror(path);
    if (fd >= 0)
        close(fd);
    return rc;
}

#endif
