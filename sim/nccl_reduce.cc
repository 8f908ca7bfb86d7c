/* nccl_reduce.cc: see nccl_reduce.h. 16-bit floats are added in float and rounded after each
 * step. */
#include "sim/nccl_reduce.h"

#include <stdint.h>
#include <string.h>

namespace swl_sim
{

namespace
{

float float_of_bits(uint32_t bits)
{
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f;
}

uint32_t bits_of_float(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

struct bf16 {
    uint16_t bits;

    explicit operator float() const
    {
        return float_of_bits((uint32_t)bits << 16);
    }
    static bf16 of(float f)
    {
        uint32_t b = bits_of_float(f);

        if (f != f)
            return {0x7fff};
        return {(uint16_t)((b + 0x7fff + (b >> 16 & 1)) >> 16)};
    }
};

struct half {
    uint16_t bits;

    explicit operator float() const
    {
        uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
        uint32_t exponent = bits >> 10 & 31, fraction = bits & 1023;

        if (exponent == 31)
            return float_of_bits(sign | 0x7f800000 | fraction << 13);
        if (exponent == 0) /* fraction * 2^-24 */
            return (sign ? -1.0f : 1.0f) * (float)fraction * float_of_bits(103u << 23);
        return float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
    }
    static half of(float f)
    {
        uint32_t b = bits_of_float(f), magnitude = b & 0x7fffffff;
        uint16_t sign = (uint16_t)(b >> 16 & 0x8000);

        if (magnitude > 0x7f800000)
            return {0x7fff};
        if (magnitude >= 0x477ff000) /* rounds to 65536 or more */
            return {(uint16_t)(sign | 0x7c00)};
        if (magnitude < 0x38800000) { /* subnormal: let float addition round at 2^-24 */
            float shifted = float_of_bits(magnitude) + 0.5f;
            return {(uint16_t)(sign | (bits_of_float(shifted) - bits_of_float(0.5f)))};
        }
        uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
        return {(uint16_t)(sign | (rounded - (112u << 23)) >> 13)};
    }
};

template <class T, class Wide> struct plain {
    static Wide load(const T *at)
    {
        return (Wide)*at;
    }
    static void store(T *at, Wide v)
    {
        *at = (T)v;
    }
};
template <class T> struct narrow {
    static float load(const T *at)
    {
        return (float)*at;
    }
    static void store(T *at, float v)
    {
        *at = T::of(v);
    }
};

template <class T, class Wide, class Access>
void reduce_as(void *acc, const void *in, size_t count, ncclRedOp_t op)
{
    T *a = static_cast<T *>(acc);
    const T *b = static_cast<const T *>(in);

    for (size_t i = 0; i < count; i++) {
        Wide x = Access::load(&a[i]), y = Access::load(&b[i]);
        switch (op) {
        case ncclProd:
            Access::store(&a[i], (Wide)(x * y));
            break;
        case ncclMax:
            Access::store(&a[i], x > y ? x : y);
            break;
        case ncclMin:
            Access::store(&a[i], x < y ? x : y);
            break;
        default:
            Access::store(&a[i], (Wide)(x + y));
            break;
        }
    }
}

template <class T, class Wide, class Access> void divide_as(void *acc, size_t count, int by)
{
    T *a = static_cast<T *>(acc);

    for (size_t i = 0; i < count; i++)
        Access::store(&a[i], (Wide)(Access::load(&a[i]) / (Wide)by));
}

} // namespace

/* type, C++ type, type to calculate in (unsigned for sums that may wrap), access */
#define SWL_SIM_NCCL_TYPES(X)                                                                      \
    X(ncclInt8, int8_t, int32_t, plain)                                                            \
    X(ncclUint8, uint8_t, uint32_t, plain)                                                         \
    X(ncclInt32, int32_t, int64_t, plain)                                                          \
    X(ncclUint32, uint32_t, uint64_t, plain)                                                       \
    X(ncclFloat32, float, float, plain)                                                            \
    X(ncclFloat64, double, double, plain)

size_t type_bytes(ncclDataType_t type)
{
    switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
        return 1;
    case ncclFloat16:
    case ncclBfloat16:
        return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
        return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
        return 8;
    default:
        return 0;
    }
}

bool can_reduce(ncclDataType_t type, ncclRedOp_t op)
{
    return type_bytes(type) > 0 && type != ncclFloat8e4m3 && type != ncclFloat8e5m2 &&
           op >= ncclSum && op < ncclNumOps;
}

void reduce(void *acc, const void *in, size_t count, ncclDataType_t type, ncclRedOp_t op)
{
    switch (type) {
#define SWL_SIM_NCCL_REDUCE(name, T, Wide, access)                                                 \
    case name:                                                                                     \
        return reduce_as<T, Wide, access<T, Wide>>(acc, in, count, op);
        SWL_SIM_NCCL_TYPES(SWL_SIM_NCCL_REDUCE)
#undef SWL_SIM_NCCL_REDUCE
    case ncclInt64: /* sums and products wrap in the unsigned type, order needs the signed one */
        if (op == ncclMax || op == ncclMin)
            return reduce_as<int64_t, int64_t, plain<int64_t, int64_t>>(acc, in, count, op);
        return reduce_as<uint64_t, uint64_t, plain<uint64_t, uint64_t>>(acc, in, count, op);
    case ncclUint64:
        return reduce_as<uint64_t, uint64_t, plain<uint64_t, uint64_t>>(acc, in, count, op);
    case ncclFloat16:
        return reduce_as<half, float, narrow<half>>(acc, in, count, op);
    case ncclBfloat16:
        return reduce_as<bf16, float, narrow<bf16>>(acc, in, count, op);
    default:
        return;
    }
}

void reduce_end(void *acc, size_t count, ncclDataType_t type, ncclRedOp_t op, int nranks)
{
    if (op != ncclAvg)
        return;
    switch (type) {
#define SWL_SIM_NCCL_DIVIDE(name, T, Wide, access)                                                 \
    case name:                                                                                     \
        return divide_as<T, Wide, access<T, Wide>>(acc, count, nranks);
        SWL_SIM_NCCL_TYPES(SWL_SIM_NCCL_DIVIDE)
#undef SWL_SIM_NCCL_DIVIDE
    case ncclInt64:
        return divide_as<int64_t, int64_t, plain<int64_t, int64_t>>(acc, count, nranks);
    case ncclUint64:
        return divide_as<uint64_t, uint64_t, plain<uint64_t, uint64_t>>(acc, count, nranks);
    case ncclFloat16:
        return divide_as<half, float, narrow<half>>(acc, count, nranks);
    case ncclBfloat16:
        return divide_as<bf16, float, narrow<bf16>>(acc, count, nranks);
    default:
        return;
    }
}

} // namespace swl_sim
