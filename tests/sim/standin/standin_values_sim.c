/* standin_values_sim.c: the values as the stand-in headers have them. */
#include "standin_values.h"

#include <nccl.h>
#include <stddef.h>

#define VALUE(v) {#v, (long long)(v)},
const struct standin_value standin_values[] = {STANDIN_VALUES(VALUE){NULL, 0}};
