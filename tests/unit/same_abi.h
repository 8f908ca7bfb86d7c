// same_abi.h: for the tests that compare our declarations of rdma-core with its headers: do two
// declarations of a function pass the same, does a field lie where theirs does?
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <type_traits>

// Two types that travel the same way: both pointers, or numbers of one size.
template <class A, class B> constexpr bool same_way()
{
    return std::is_pointer<A>::value == std::is_pointer<B>::value &&
           std::is_void<A>::value == std::is_void<B>::value &&
           (std::is_void<A>::value ||
            sizeof(std::conditional_t<std::is_void<A>::value, int, A>) ==
                sizeof(std::conditional_t<std::is_void<B>::value, int, B>));
}

template <class F, class G> struct calls;
template <class R, class... A, class S, class... B> struct calls<R (*)(A...), S (*)(B...)> {
    static constexpr bool same()
    {
        if constexpr (sizeof...(A) != sizeof...(B))
            return false;
        else
            return same_way<R, S>() && (same_way<A, B>() && ...);
    }
};

// noexcept is part of the type of some declarations.
template <class F> struct plain {
    using type = F;
};
template <class R, class... A> struct plain<R (*)(A...) noexcept> {
    using type = R (*)(A...);
};

#define EXPECT_SAME_FIELD(mine, field, real, its)                                                  \
    EXPECT_EQ(offsetof(struct mine, field), offsetof(struct real, its)) << #mine "." #field;       \
    EXPECT_EQ(sizeof(mine::field), sizeof(real::its)) << #mine "." #field

// All of these fields, which have the same names in both: up to sixteen.
#define EXPECT_SAME_FIELDS(mine, real, ...)                                                        \
    SAME_PICK(__VA_ARGS__, SAME_16, SAME_15, SAME_14, SAME_13, SAME_12, SAME_11, SAME_10, SAME_9,  \
              SAME_8, SAME_7, SAME_6, SAME_5, SAME_4, SAME_3, SAME_2, SAME_1, )                    \
    (mine, real, __VA_ARGS__)
#define SAME_PICK(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, pick, ...) pick
/* clang-format off */
#define SAME_1(m, r, f)                                                      EXPECT_SAME_FIELD(m, f, r, f);
#define SAME_2(m, r, f, ...)                                                 SAME_1(m, r, f) SAME_1(m, r, __VA_ARGS__)
#define SAME_3(m, r, f, ...)                                                 SAME_1(m, r, f) SAME_2(m, r, __VA_ARGS__)
#define SAME_4(m, r, f, ...)                                                 SAME_1(m, r, f) SAME_3(m, r, __VA_ARGS__)
#define SAME_5(m, r, f, ...)                                                 SAME_1(m, r, f) SAME_4(m, r, __VA_ARGS__)
#define SAME_6(m, r, f, ...)                                                 SAME_1(m, r, f) SAME_5(m, r, __VA_ARGS__)
#define SAME_7(m, r, f, ...)                                                 SAME_1(m, r, f) SAME_6(m, r, __VA_ARGS__)
#define SAME_8(m, r, f, ...)                                                 SAME_1(m, r, f) SAME_7(m, r, __VA_ARGS__)
#define SAME_9(m, r, f, ...)                                                 SAME_1(m, r, f) SAME_8(m, r, __VA_ARGS__)
#define SAME_10(m, r, f, ...)                                                SAME_1(m, r, f) SAME_9(m, r, __VA_ARGS__)
#define SAME_11(m, r, f, ...)                                                SAME_1(m, r, f) SAME_10(m, r, __VA_ARGS__)
#define SAME_12(m, r, f, ...)                                                SAME_1(m, r, f) SAME_11(m, r, __VA_ARGS__)
#define SAME_13(m, r, f, ...)                                                SAME_1(m, r, f) SAME_12(m, r, __VA_ARGS__)
#define SAME_14(m, r, f, ...)                                                SAME_1(m, r, f) SAME_13(m, r, __VA_ARGS__)
#define SAME_15(m, r, f, ...)                                                SAME_1(m, r, f) SAME_14(m, r, __VA_ARGS__)
#define SAME_16(m, r, f, ...)                                                SAME_1(m, r, f) SAME_15(m, r, __VA_ARGS__)
/* clang-format on */

#define EXPECT_SAME_SIZE(mine, real) EXPECT_EQ(sizeof(struct mine), sizeof(struct real)) << #mine
