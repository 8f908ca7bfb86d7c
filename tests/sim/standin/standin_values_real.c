/* standin_values_real.c: the values as the real headers have them. */
#include "standin_values.h"

#include <nccl.h>
#include <stddef.h>

#define VALUE(v) {#v, (long long)(v)},
const struct standin_value real_values[] = {STANDIN_VALUES(VALUE){NULL, 0}};
