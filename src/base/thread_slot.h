/* thread_slot.h: memory of a thread. Layer: src/base, implemented with the device runtime, since
 * the threads of the emulator are fibers. */
#ifndef SWL_BASE_THREAD_SLOT_H
#define SWL_BASE_THREAD_SLOT_H

#ifdef __cplusplus
extern "C" {
#endif

/* A pointer-sized slot of the calling thread (fiber), NULL at first; released with free() at its
 * end. NULL: there is no memory for it. */
void **swl_thread_slot(void);

#ifdef __cplusplus
}
#endif
#endif
