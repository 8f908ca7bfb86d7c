/* sum.cuh: fp32 sums of pieces of rows, in the fixed order of the API. Layer: kernels.
 *
 * Every level adds in fp32 into its own accumulator that starts at +0: a node's rows by ascending local
 * rank, then the nodes in order. A warp sums a piece of columns that fits a unit, at most SWL_SUM_VECTORS
 * vectors of 16 bytes for each lane: vector lane, lane + 32, … of the piece. The number of vectors is a
 * constant where these functions are used, so that sums stay in registers. */
#pragma once

#include "device.h"
#include "kernels/args.h"
#include "kernels/block.h"

#define SWL_SUM_VECTORS 4u
static_assert(SWL_SUM_VECTORS * 32 * 16 == SWL_UNIT_BYTES, "the lanes cover a unit");

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

/* Add a payload vector. A row passes an accumulator of its rank first, which starts at +0; that changes
 * no bit of the sum, because `a` starts at +0 and hence never is -0. */
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

/* Vector lane + 32 u of a piece of `vectors`: is there one? */
SWL_DEV bool piece_has(uint32_t u, uint32_t vectors)
{
    return lane_id() + 32 * u < vectors;
}

SWL_DEV void piece_clear(struct accumulator *sum, uint32_t n)
{
    for (uint32_t u = 0; u < n; u++)
        accumulator_clear(&sum[u]);
}

/* A whole unit of bf16: the common case, without a test in the loop. Gain: docs/benchmarks.md. */
SWL_DEV void piece_take_bf16(struct accumulator *sum, const char *unit)
{
    const struct vec16 *from = (const struct vec16 *)unit + lane_id();
    struct vec16 in[SWL_SUM_VECTORS];

    for (uint32_t u = 0; u < SWL_SUM_VECTORS; u++) /* all loads before the first use */
        in[u] = load_data(from + 32 * u);
    for (uint32_t u = 0; u < SWL_SUM_VECTORS; u++)
        accumulator_take(&sum[u], &in[u], SWL_BF16);
}

/* The first n vectors of a lane, those that a piece of `vectors` has. */
SWL_DEV void piece_take(struct accumulator *sum, uint32_t n, const char *unit, uint32_t vectors,
                        uint32_t dtype)
{
    const struct vec16 *from = (const struct vec16 *)unit + lane_id();

    for (uint32_t u = 0; u < n; u++)
        if (piece_has(u, vectors)) {
            const struct vec16 in = load_data(from + 32 * u);

            accumulator_take(&sum[u], &in, dtype);
        }
}

/* The same where the piece came as twice as many vectors of fp32. */
SWL_DEV void piece_take_fp32(struct accumulator *sum, uint32_t n, const char *unit,
                             uint32_t vectors)
{
    for (uint32_t u = 0; u < n; u++)
        if (piece_has(u, vectors)) {
            const struct vec16 *pair = (const struct vec16 *)unit + 2 * (lane_id() + 32 * u);
            const struct vec16 low = load_data(pair), high = load_data(pair + 1);

            accumulator_take_fp32(&sum[u], &low, &high);
        }
}

/* Store vector v: rounded, or as it is for a partial sum that travels as fp32. */
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

/* Vectors first, … of the row at `out`. */
SWL_DEV void piece_store(const struct accumulator *sum, uint32_t n, char *out, uint32_t first,
                         uint32_t vectors, uint32_t dtype, bool fp32)
{
    for (uint32_t u = 0; u < n; u++)
        if (piece_has(u, vectors))
            sum_store(out, first + lane_id() + 32 * u, &sum[u], dtype, fp32);
}
