/* fault.h: what a kernel gave up on, as one sentence.
 *
 * Layer: src/failure, below async. Pure. */
#ifndef SWL_FAULT_H
#define SWL_FAULT_H

#include "kernels/common/faults.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Operation, call number, waiting rank and role, missing peer, expected and seen, elapsed and
 * limit. Cut to fit text[text_bytes]; 400 bytes hold any. */
void swl_fault_text(const struct swl_fault_record *record, uint32_t rank, uint64_t limit_ns,
                    char *text, size_t text_bytes);

/* For a rank whose own calls came through: what a poison word of other ranks says. */
void swl_error_word_text(uint64_t word, uint32_t rank, char *text, size_t text_bytes);

/* Of a record or notice of kind COMPLETION: the queue pair to `peer`, its number and its
 * syndrome. */
void swl_completion_text(const char *peer, uint64_t expected, uint64_t seen, char *text,
                         size_t text_bytes);

#ifdef __cplusplus
}
#endif
#endif
