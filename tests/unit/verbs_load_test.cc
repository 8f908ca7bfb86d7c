// rdma-core at run time: found, absent, too old.
#include "transport/rdma_core/verbs.h"

#include <gtest/gtest.h>

#include <dlfcn.h>

#include <cstring>
#include <string>

namespace
{

// Any library that every machine has and that has none of the symbols.
const char *const unrelated = "libm.so.6";

struct Loaded {
    struct swl_verbs verbs;
    char why[256] = "";
    bool ok;

    Loaded(bool with_mlx5, const char *ibverbs, const char *mlx5)
    {
        const struct swl_verbs_files files = {ibverbs, mlx5};

        memset(&verbs, 0xee, sizeof(verbs));
        ok = swl_verbs_load(&verbs, with_mlx5, ibverbs ? &files : nullptr, why, sizeof(why));
    }
    ~Loaded()
    {
        swl_verbs_unload(&verbs);
    }
    bool says(const char *words) const
    {
        return std::string(why).find(words) != std::string::npos;
    }
    bool empty() const
    {
        struct swl_verbs nothing;

        memset(&nothing, 0, sizeof(nothing));
        return memcmp(&verbs, &nothing, sizeof(nothing)) == 0;
    }
};

TEST(VerbsLoad, F61_MissingLibraryIsNamedWithItsPackage)
{
    Loaded l(true, "libibverbs-nowhere.so.1", "libmlx5-nowhere.so.1");

    EXPECT_FALSE(l.ok);
    EXPECT_TRUE(l.says("libibverbs-nowhere.so.1")) << l.why;
    EXPECT_TRUE(l.says("libibverbs1")) << l.why;
    EXPECT_TRUE(l.empty());
}

TEST(VerbsLoad, MissingSymbolIsNamedWithItsLibrary)
{
    Loaded l(false, unrelated, unrelated);

    EXPECT_FALSE(l.ok);
    EXPECT_TRUE(l.says("libm.so.6 has no ibv_get_device_list")) << l.why;
    EXPECT_TRUE(l.empty());
}

TEST(VerbsLoad, SentenceIsCutToTheCallersBytes)
{
    const struct swl_verbs_files files = {"libibverbs-nowhere.so.1", ""};
    struct swl_verbs verbs;
    char why[8];

    memset(why, 'x', sizeof(why));
    EXPECT_FALSE(swl_verbs_load(&verbs, false, &files, why, sizeof(why)));
    EXPECT_EQ(strlen(why), sizeof(why) - 1);
}

TEST(VerbsLoad, UnloadOfAnEmptyTableDoesNothing)
{
    struct swl_verbs verbs = {};

    swl_verbs_unload(&verbs);
    swl_verbs_unload(&verbs);
}

TEST(VerbsLoad, WhatIsInstalledIsFoundAndAMissingProviderIsNamed)
{
    Loaded real(true, nullptr, nullptr);
    int n = -1;

    if (!real.ok && real.says("cannot be loaded"))
        GTEST_SKIP() << real.why;
    ASSERT_TRUE(real.ok) << real.why;
    // NULL with n = 0 where the kernel has no RDMA
    struct ibv_device **list = real.verbs.ibv_get_device_list(&n);
    EXPECT_GE(n, 0);
    if (list)
        real.verbs.ibv_free_device_list(list);
    Loaded half(true, "libibverbs.so.1", "libmlx5-nowhere.so.1");
    EXPECT_FALSE(half.ok);
    EXPECT_TRUE(half.says("libmlx5-nowhere.so.1 cannot be loaded")) << half.why;
    EXPECT_TRUE(half.empty());
    Loaded without(false, "libibverbs.so.1", "libmlx5-nowhere.so.1");
    EXPECT_TRUE(without.ok) << without.why;
    EXPECT_EQ(without.verbs.mlx5dv_devx_obj_create, nullptr);
}

} // namespace
