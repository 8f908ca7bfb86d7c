/* sum.cuh: fp32 sums of rows, in the fixed order of the API. Layer: kernels.
 *
 * Every level adds in fp32 into its own accumulator that starts at +0: a node's rows by ascending
 * local rank, then the nodes in order. The lanes of a warp take a row's vectors of 16 bytes in
 * turn; a lane sums V of them at a time, lane, lane + 32, … of a *piece*. It loads them straight
 * into registers, those of two contributions together: that many loads on their way in 16 warps of
 * a block reach the limit of NVLink (docs/benchmarks.md). V is a constant where these functions are
 * used, so that sums stay in registers. */
#pragma once

#include "device.h"
#include "kernels/common/args.h"
#include "kernels/common/block.h"

/* Element i of a 16-byte vector, as fp32. */
SWL_DEV float element_of(const struct vec16 *v, uint32_t i, uint32_t dtype)
{
    const uint16_t half = (uint16_t)(v->x[i / 2] >> (i % 2 * 16));

    if (dtype == SWL_FP32) {
        union {
            uint32_t bits;
            float value;
        } u = {v->x[i % 4]};

        return u.value;
    }
    return dtype == SWL_BF16 ? bf16_to_float(half) : half_to_float(half);
}

struct accumulator {
    float x[8];
};

SWL_DEV void accumulator_clear(struct accumulator *a)
{
    for (uint32_t i = 0; i < 8; i++)
        a->x[i] = 0.0f;
}

SWL_DEV void accumulator_add(struct accumulator *a, const struct accumulator *b)
{
    for (uint32_t i = 0; i < 8; i++)
        a->x[i] = add_rn(a->x[i], b->x[i]);
}

/* Add a payload vector. A row passes an accumulator of its rank first, which starts at +0; that
 * changes no bit of the sum, because `a` starts at +0 and hence never is -0. */
SWL_DEV void accumulator_take(struct accumulator *a, const struct vec16 *v, uint32_t dtype)
{
    if (dtype == SWL_FP32) {
        for (uint32_t i = 0; i < 4; i++)
            a->x[i] = add_rn(a->x[i], element_of(v, i, SWL_FP32));
    } else {
        for (uint32_t i = 0; i < 8; i++)
            a->x[i] = add_rn(a->x[i], element_of(v, i, dtype));
    }
}

/* Add eight elements of a partial sum that travelled as two vectors of fp32. */
SWL_DEV void accumulator_take_fp32(struct accumulator *a, const struct vec16 *low,
                                   const struct vec16 *high)
{
    for (uint32_t i = 0; i < 8; i++)
        a->x[i] = add_rn(a->x[i], element_of(i < 4 ? low : high, i, SWL_FP32));
}

SWL_DEV uint32_t float_word(float f)
{
    union {
        float value;
        uint32_t bits;
    } u = {f};

    return u.bits;
}

SWL_DEV struct vec16 round_vector(const struct accumulator *a, uint32_t dtype)
{
    struct vec16 v;

    for (uint32_t i = 0; i < 4; i++) {
        if (dtype == SWL_FP32)
            v.x[i] = float_word(a->x[i]);
        else if (dtype == SWL_BF16)
            v.x[i] = float_to_bf16(a->x[2 * i]) | (uint32_t)float_to_bf16(a->x[2 * i + 1]) << 16;
        else
            v.x[i] = float_to_half(a->x[2 * i]) | (uint32_t)float_to_half(a->x[2 * i + 1]) << 16;
    }
    return v;
}

/* All lanes: the vectors lane, lane + 32, … of a piece that begins at `from` and has `left` of
 * them; of a whole piece each lane has V. */
template <bool WHOLE, uint32_t V>
SWL_DEV void vectors_load(struct vec16 (&to)[V], const char *from, uint32_t left)
{
    const struct vec16 *at = (const struct vec16 *)from + lane_id();

    for (uint32_t u = 0; u < V; u++) {
        if (WHOLE || lane_id() + 32 * u < left)
            to[u] = load_row(at + 32 * u);
        else
            to[u] = {{0, 0, 0, 0}};
    }
}

template <uint32_t DTYPE, uint32_t V>
SWL_DEV void vectors_add(struct accumulator (&sum)[V], const struct vec16 (&in)[V])
{
    for (uint32_t u = 0; u < V; u++)
        accumulator_take(&sum[u], &in[u], DTYPE);
}

/* Load and add vectors of a partial sum that came as twice as many of fp32. */
template <uint32_t V>
SWL_DEV void vectors_add_wide(struct accumulator (&sum)[V], const char *from, uint32_t left)
{
    const struct vec16 *at = (const struct vec16 *)from + 2 * lane_id();

    for (uint32_t u = 0; u < V; u++)
        if (lane_id() + 32 * u < left) {
            const struct vec16 low = load_row(at + 64 * u), high = load_row(at + 64 * u + 1);

            accumulator_take_fp32(&sum[u], &low, &high);
        }
}

template <uint32_t V> SWL_DEV void vectors_clear(struct accumulator (&sum)[V])
{
    for (uint32_t u = 0; u < V; u++)
        accumulator_clear(&sum[u]);
}

/* Store vector v of a row: rounded, or as it is for a partial sum that travels as fp32. */
SWL_DEV void sum_store(char *out, uint32_t v, const struct accumulator *total, uint32_t dtype,
                       bool fp32)
{
    struct vec16 *to = (struct vec16 *)out;

    if (fp32 && dtype != SWL_FP32) {
        const struct vec16 low = {{float_word(total->x[0]), float_word(total->x[1]),
                                   float_word(total->x[2]), float_word(total->x[3])}};
        const struct vec16 high = {{float_word(total->x[4]), float_word(total->x[5]),
                                    float_word(total->x[6]), float_word(total->x[7])}};

        store_data(to + 2 * v, low);
        store_data(to + 2 * v + 1, high);
    } else {
        store_data(to + v, round_vector(total, dtype));
    }
}

/* The sums of a piece that begins with vector `first` of the row at `out`. */
template <bool WHOLE, uint32_t DTYPE, uint32_t V>
SWL_DEV void vectors_store(const struct accumulator (&sum)[V], char *out, uint32_t first,
                           uint32_t left, bool fp32)
{
    for (uint32_t u = 0; u < V; u++)
        if (WHOLE || lane_id() + 32 * u < left)
            sum_store(out, first + lane_id() + 32 * u, &sum[u], DTYPE, fp32);
}
