/* npy.h: read an integer array of a NumPy .npy file.
 *
 * Layer: tools/support. The caller owns the array and frees it with swl_npy_free. */
#ifndef SWL_NPY_H
#define SWL_NPY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct swl_npy {
    int ndim;
    size_t shape[4];
    char kind;         /* of the file's elements: i or u */
    int element_bytes; /* likewise */
    int64_t *data;     /* row-major, converted from the file's integer type */
};

/* NULL on success, else one sentence (static or of the calling thread). Accepts format versions 1
 * to 3, little-endian integers of 1 to 8 bytes, C order, up to 4 dimensions, one array in the
 * file. */
const char *swl_npy_read(const char *path, struct swl_npy *npy_p);
void swl_npy_free(struct swl_npy *npy);

#ifdef __cplusplus
}
#endif
#endif
