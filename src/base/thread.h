/* thread.h: threads of the library inside somebody else's process.
 *
 * Layer: src/base. No state, no memory. */
#ifndef SWL_BASE_THREAD_H
#define SWL_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

/* pthread_create of a thread that takes no signal meant for the process: handlers of the
 * application run on its own threads. What a thread does to itself (a fault, abort) still reaches
 * it. */
static inline int swl_thread_create(pthread_t *thread_p, void *(*main)(void *), void *arg)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
    sigset_t process, before;
    int error;

    (void)sigfillset(&process);
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        (void)sigdelset(&process, own[i]);
    error = pthread_sigmask(SIG_SETMASK, &process, &before); /* the new thread inherits it */
    if (error != 0)
        return error;
    error = pthread_create(thread_p, NULL, main, arg);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

#endif
