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
