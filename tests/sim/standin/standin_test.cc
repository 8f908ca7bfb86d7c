/* The stand-in headers agree with the real ones, where those are installed. */
extern "C" {
#include "standin_values.h"
}

#include <gtest/gtest.h>

#include <string.h>

namespace
{

long long value_of(const struct standin_value *values, const char *name)
{
    while (values->name && strcmp(values->name, name) != 0)
        values++;
    return values->value;
}

void compare(const char *prefix, int at_least)
{
    int n = 0;

    for (int i = 0; standin_values[i].name; i++) {
        if (!strstr(standin_values[i].name, prefix))
            continue;
        EXPECT_STREQ(standin_values[i].name, real_values[i].name);
        EXPECT_EQ(standin_values[i].value, real_values[i].value) << standin_values[i].name;
        n++;
    }
    EXPECT_GE(n, at_least);
}

} // namespace

TEST(StandIn, HasTheValuesOfCuda)
{
    compare("cuda", 60);
}

TEST(StandIn, HasTheValuesOfNccl)
{
    long long real = value_of(real_values, "NCCL_VERSION_CODE");

    if (real != value_of(standin_values, "NCCL_VERSION_CODE"))
        GTEST_SKIP() << "the installed nccl.h is of release " << real;
    compare("nccl", 35);
    compare("NCCL", 10);
}
