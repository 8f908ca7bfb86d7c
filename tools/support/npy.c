/* npy.c: see npy.h. The header is a Python dict literal with the keys descr, fortran_order,
 * shape. */
#include "tools/support/npy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_HEADER = 65536 };

/* The text after 'key': in the dict, or NULL. */
static const char *value_of(const char *dict, const char *key)
{
    char quoted[32];

    snprintf(quoted, sizeof quoted, "'%s'", key);
    const char *at = strstr(dict, quoted);

    if (!at)
        return NULL;
    at = strchr(at + strlen(quoted), ':');
    return at ? at + 1 + strspn(at + 1, " ") : NULL;
}

static const char *parse_element(const char *dict, struct swl_npy *npy)
{
    const char *at = value_of(dict, "descr");
    char order, kind, end;
    int bytes;

    if (!at || sscanf(at, "'%c%c%d%c", &order, &kind, &bytes, &end) != 4 || end != '\'')
        return "its header has no simple element type";
    if (kind == 'b')
        return "its elements are booleans, a mask perhaps, and no ids";
    if (!strchr("iu", kind) || (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8))
        return "its elements are not integers";
    if (order == '>' && bytes > 1)
        return "its elements are big-endian";
    npy->kind = kind;
    npy->element_bytes = bytes;
    return NULL;
}

static const char *parse_shape(const char *dict, struct swl_npy *npy)
{
    const char *order = value_of(dict, "fortran_order");
    const char *at = value_of(dict, "shape");

    if (!order || strncmp(order, "False", 5) != 0)
        return "it is not in C order";
    if (!at || *at++ != '(')
        return "its header has no shape";
    npy->ndim = 0;
    for (;;) {
        char *end;

        at += strspn(at, " ");
        if (*at == ')')
            return NULL;
        if (npy->ndim == 4)
            return "it has more than 4 dimensions";
        errno = 0;
        unsigned long long extent = strtoull(at, &end, 10);
        if (*at < '0' || *at > '9' || errno || extent > 1ull << 40)
            return "its shape is malformed";
        npy->shape[npy->ndim++] = (size_t)extent;
        end += *end == 'L'; /* as Python 2 wrote them */
        at = end + strspn(end, " ");
        if (*at == ',')
            at++;
        else if (*at != ')')
            return "its shape is malformed";
    }
}

static int64_t element_at(const unsigned char *at, const struct swl_npy *npy)
{
    uint64_t bits = 0;
    const int shift = 64 - 8 * npy->element_bytes;

    for (int i = 0; i < npy->element_bytes; i++)
        bits |= (uint64_t)at[i] << 8 * i;
    if (npy->kind == 'i' && shift)
        return (int64_t)(bits << shift) >> shift;
    return (int64_t)bits;
}

/* A file that says it holds more than it does costs no memory. Of a pipe nothing is known. */
static bool can_hold(FILE *file, size_t nelements, int element_bytes)
{
    struct stat what;
    const long at = ftell(file);

    if (at < 0 || fstat(fileno(file), &what) != 0 || !S_ISREG(what.st_mode))
        return true;
    return what.st_size >= at && nelements <= (size_t)(what.st_size - at) / (size_t)element_bytes;
}

static const char *read_data(FILE *file, struct swl_npy *npy)
{
    size_t n = 1;

    for (int i = 0; i < npy->ndim; i++)
        if (__builtin_mul_overflow(n, npy->shape[i], &n) || n > SIZE_MAX / 16)
            return "it is too large";
    if (!can_hold(file, n, npy->element_bytes))
        return "it ends before its last element";
    npy->data = malloc((n + 1) * sizeof *npy->data);
    if (!npy->data)
        return "it does not fit into memory";
    for (size_t i = 0; i < n; i++) {
        unsigned char bytes[8];

        if (fread(bytes, (size_t)npy->element_bytes, 1, file) != 1)
            return "it ends before its last element";
        npy->data[i] = element_at(bytes, npy);
        if (npy->kind == 'u' && npy->data[i] < 0)
            return "an element does not fit into int64";
    }
    return fgetc(file) == EOF ? NULL : "it goes on behind its last element";
}

static const char *read_file(FILE *file, struct swl_npy *npy)
{
    unsigned char head[12];

    if (fread(head, 10, 1, file) != 1)
        return ferror(file) ? strerror(errno) : "it is not a .npy file";
    if (memcmp(head, "PK\x03\x04", 4) == 0)
        return "it is an archive (.npz), save the array alone";
    if (memcmp(head, "\x93NUMPY", 6) != 0)
        return "it is not a .npy file";
    if (head[6] < 1 || head[6] > 3)
        return "its format version is not 1, 2 or 3";
    size_t bytes = head[8] | (size_t)head[9] << 8;

    if (head[6] >= 2) {
        if (fread(head + 10, 2, 1, file) != 1)
            return "its header is cut off";
        bytes |= (size_t)head[10] << 16 | (size_t)head[11] << 24;
    }
    if (bytes > MAX_HEADER)
        return "its header is too long";
    char *dict = calloc(1, bytes + 1);

    if (!dict)
        return "its header does not fit into memory";
    const char *error = fread(dict, 1, bytes, file) == bytes ? NULL : "its header is cut off";

    if (!error)
        error = parse_element(dict, npy);
    if (!error)
        error = parse_shape(dict, npy);
    free(dict);
    return error ? error : read_data(file, npy);
}

/* Opening a FIFO without a writer must not wait for one; it is empty. Pipes with a writer are read
 * as usual. */
static FILE *open_file(const char *path)
{
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    FILE *file = fd >= 0 && fcntl(fd, F_SETFL, 0) == 0 ? fdopen(fd, "rb") : NULL;

    if (!file && fd >= 0)
        close(fd);
    return file;
}

const char *swl_npy_read(const char *path, struct swl_npy *npy_p)
{
    struct swl_npy npy = {0};
    FILE *file = open_file(path);

    if (!file)
        return strerror(errno);
    const char *error = read_file(file, &npy);

    fclose(file);
    if (error)
        swl_npy_free(&npy);
    else
        *npy_p = npy;
    return error;
}

void swl_npy_free(struct swl_npy *npy)
{
    free(npy->data);
    *npy = (struct swl_npy){0};
}
