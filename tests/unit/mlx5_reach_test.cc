// By which way a NIC gets at memory: every branch of the decision.
#include "transport/mlx5/reach.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace
{

// All ways in the order in which they are tried when each fails.
std::vector<enum mlx5_way> order(bool device, bool host, bool call)
{
    struct mlx5_reach r = {device, host, call, 0};
    std::vector<enum mlx5_way> ways;

    for (enum mlx5_way way; (way = mlx5_next_way(&r)) != MLX5_WAY_NONE;) {
        ways.push_back(way);
        r.failed |= 1u << way;
    }
    return ways;
}

using Ways = std::vector<enum mlx5_way>;

TEST(Mlx5Reach, RingsGoFromDmabufOverPeerMemoryToTheHost)
{
    EXPECT_EQ(order(true, true, true), (Ways{MLX5_WAY_DMABUF, MLX5_WAY_PEER, MLX5_WAY_HOST}));
}

TEST(Mlx5Reach, WithoutTheCallDmabufIsLeftOut)
{
    EXPECT_EQ(order(true, true, false), (Ways{MLX5_WAY_PEER, MLX5_WAY_HOST}));
}

TEST(Mlx5Reach, MemoryOfTheGpuIsNeverReplacedByTheHosts)
{
    EXPECT_EQ(order(true, false, true), (Ways{MLX5_WAY_DMABUF, MLX5_WAY_PEER}));
    EXPECT_EQ(order(true, false, false), (Ways{MLX5_WAY_PEER}));
}

TEST(Mlx5Reach, MemoryOfTheHostHasOneWay)
{
    EXPECT_EQ(order(false, true, true), (Ways{MLX5_WAY_HOST}));
    EXPECT_EQ(order(false, true, false), (Ways{MLX5_WAY_HOST}));
}

TEST(Mlx5Reach, NothingLeftIsNone)
{
    EXPECT_TRUE(order(false, false, true).empty());
    EXPECT_EQ(std::string(mlx5_way_text(MLX5_WAY_NONE)), "no way");
}

} // namespace
