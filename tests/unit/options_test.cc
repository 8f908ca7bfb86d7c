/* options_test.cc: environment variables: parsing, defaults, precedence, complaints. */
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/options.h"
#include "src/base/util.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <set>
#include <string>

class Options : public ::testing::Test
{
  protected:
    Options()
    {
        clear();
        swl_log_set(SWL_LEVEL_WARN);
    }
    ~Options() override
    {
        clear();
    }
    static void clear()
    {
        size_t nrows;
        const swl_option_row *rows = swl_option_rows(&nrows);
        for (size_t i = 0; i < nrows; i++) {
            unsetenv(rows[i].name);
            if (rows[i].fallback)
                unsetenv(rows[i].fallback);
        }
    }
    /* Reads with name=value; returns what was written to stderr. */
    std::string read(const char *name, const char *value)
    {
        setenv(name, value, 1);
        memset(&o, 0xa5, sizeof(o));
        testing::internal::CaptureStderr();
        swl_options_read(&o);
        unsetenv(name);
        return testing::internal::GetCapturedStderr();
    }
    struct swl_options o;
};

TEST_F(Options, UnsetAndEmptyAreTheDefaults)
{
    for (const char *value : {"", (const char *)nullptr}) {
        if (value)
            setenv("NCCL_EP_TIMEOUT_MS", value, 1);
        memset(&o, 0xa5, sizeof(o));
        swl_options_read(&o);
        EXPECT_EQ(o.timeout_ms, 0u);
        EXPECT_EQ(o.node, -1);
        EXPECT_EQ(o.ib_gid_index, -1);
        EXPECT_EQ(o.transports, 0u);
        EXPECT_STREQ(o.ib_hca, "");
        EXPECT_FALSE(o.env_verbose);
        EXPECT_FALSE(o.combine_fp32);
        EXPECT_EQ(o.soft_link.gbps, 0);
        EXPECT_EQ(o.start_position, 0u);
        unsetenv("NCCL_EP_TIMEOUT_MS");
    }
}

TEST_F(Options, NumbersAreTakenWithinTheirRange)
{
    EXPECT_EQ(read("NCCL_EP_TIMEOUT_MS", "250"), "");
    EXPECT_EQ(o.timeout_ms, 250u);
    EXPECT_EQ(read("NCCL_EP_TIMEOUT_MS", "0"), "") << "0 = not set";
    EXPECT_EQ(o.timeout_ms, 0u);
    EXPECT_EQ(read("SWIMLANE_NODE", "0"), "") << "0 is a node";
    EXPECT_EQ(o.node, 0);
    EXPECT_EQ(read("SWIMLANE_START_POSITION", "18446744073709551615"), "");
    EXPECT_EQ(o.start_position, UINT64_MAX);
    EXPECT_EQ(read("SWIMLANE_START_POSITION", "0x10000"), "");
    EXPECT_EQ(o.start_position, 65536u);
}

TEST_F(Options, MalformedNumbersWarnWithTheRangeAndUseTheDefault)
{
    for (const char *bad :
         {"3600001", "-1", "+5", "5 ", " 5", "5ms", "abc", "1e3", "99999999999999999999"}) {
        std::string said = read("NCCL_EP_TIMEOUT_MS", bad);
        EXPECT_NE(said.find("NCCL_EP_TIMEOUT_MS"), std::string::npos) << bad;
        EXPECT_NE(said.find("1 to 3600000"), std::string::npos) << bad;
        EXPECT_EQ(o.timeout_ms, 0u) << bad;
    }
    EXPECT_NE(read("SWIMLANE_NODE", "-1"), "");
    EXPECT_EQ(o.node, -1);
    EXPECT_NE(read("SWIMLANE_IB_SL", "16"), "");
    EXPECT_EQ(o.ib_sl, -1);
}

TEST_F(Options, FlagsTakeSixWords)
{
    for (const char *on : {"1", "on", "TRUE"}) {
        EXPECT_EQ(read("NCCL_EP_ENV_VERBOSE", on), "");
        EXPECT_TRUE(o.env_verbose);
    }
    for (const char *off : {"0", "Off", "false"}) {
        EXPECT_EQ(read("NCCL_EP_ENV_VERBOSE", off), "");
        EXPECT_FALSE(o.env_verbose);
    }
    EXPECT_NE(read("NCCL_EP_ENV_VERBOSE", "yes").find("on, true"), std::string::npos);
    EXPECT_FALSE(o.env_verbose);
}

TEST_F(Options, TransportsAreAListInAnyCase)
{
    const uint32_t peer = 1, soft = 8, tcp = 16; // the words behind auto, in order

    EXPECT_EQ(read("SWIMLANE_TRANSPORT", "Peer,SOFT"), "");
    EXPECT_EQ(o.transports, peer | soft);
    EXPECT_EQ(read("SWIMLANE_TRANSPORT", "tcp"), "");
    EXPECT_EQ(o.transports, tcp);
    EXPECT_EQ(read("SWIMLANE_TRANSPORT", "AUTO"), "");
    EXPECT_EQ(o.transports, 0u);
}

TEST_F(Options, OfAListWithAnUnknownWordTheRestCounts)
{
    const struct {
        const char *text, *said, *then;
        uint32_t bits;
    } rows[] = {{"peer,", "'' is none of auto, peer, ", "; the rest counts", 1},
                {",peer", "'' is none of auto, peer, ", "; the rest counts", 1},
                {"peers", "'peers' is none of auto, peer, ", "; ignored", 0},
                {",,", "'' is none of auto, peer, ", "; ignored", 0},
                {"auto,peer", "'auto' stands for itself only", "; the rest counts", 1},
                {"auto,auto", "'auto' stands for itself only", "; ignored", 0},
                {"peer;tcp", "'peer;tcp' is none of auto, peer, ", "; ignored", 0},
                {"peer,nvlink,tcp,x", "'nvlink' is none of auto, peer, ", "; the rest counts", 17}};

    for (const auto &row : rows) {
        const std::string said = read("SWIMLANE_TRANSPORT", row.text);

        EXPECT_NE(said.find(row.said), std::string::npos) << said;
        EXPECT_NE(said.find(row.then), std::string::npos) << said;
        EXPECT_EQ(o.transports, row.bits) << row.text;
    }
}

TEST_F(Options, OneWordIsNoList)
{
    EXPECT_NE(read("SWIMLANE_MLX5_RINGS", "gpu,host")
                  .find("'gpu,host' is none of auto, gpu, host; ignored"),
              std::string::npos);
    EXPECT_EQ(o.mlx5_rings, 0u);
}

TEST_F(Options, LinkIsRateAndDelay)
{
    EXPECT_EQ(read("SWIMLANE_SOFT_LINK", "400:3"), "");
    EXPECT_EQ(o.soft_link.gbps, 400);
    EXPECT_EQ(o.soft_link.us, 3);
    EXPECT_EQ(read("SWIMLANE_SOFT_LINK", "0.5:1.25"), "");
    EXPECT_EQ(o.soft_link.us, 1.25);
    for (const char *bad :
         {"400", "400:", ":3", "0:3", "-1:3", "400:3x", "inf:3", "400:nan", "1:-2", "1e-9:1"}) {
        EXPECT_NE(read("SWIMLANE_SOFT_LINK", bad), "") << bad;
        EXPECT_EQ(o.soft_link.gbps, 0) << bad;
    }
}

TEST_F(Options, RingSizesAreFourPowersOfTwo)
{
    EXPECT_EQ(read("SWIMLANE_RING_SIZES", "4:2:1:64"), "");
    EXPECT_EQ(o.ring_sizes.slots, 4u);
    EXPECT_EQ(o.ring_sizes.chunk, 2u);
    EXPECT_EQ(o.ring_sizes.landing, 1u);
    EXPECT_EQ(o.ring_sizes.link, 64u);
    for (const char *bad : {"4:2:1", "4:2:1:2:", "4:4:1:2", "3:1:1:2", "1:1:1:2", "128:1:1:2",
                            "4:2:0:2", "4:2:32:2", "4:2:1:1", "4:2:1:-2", " 4:2:1:2", "4:+2:1:2"}) {
        EXPECT_NE(read("SWIMLANE_RING_SIZES", bad), "") << bad;
        EXPECT_EQ(o.ring_sizes.slots, 0u) << bad;
    }
}

TEST_F(Options, WireIsPayloadOrFp32)
{
    EXPECT_EQ(read("SWIMLANE_COMBINE_WIRE", "FP32"), "");
    EXPECT_TRUE(o.combine_fp32);
    EXPECT_EQ(read("SWIMLANE_COMBINE_WIRE", "payload"), "");
    EXPECT_FALSE(o.combine_fp32);
    EXPECT_NE(read("SWIMLANE_COMBINE_WIRE", "fp16").find("'fp16' is none of payload, fp32"),
              std::string::npos);
    EXPECT_FALSE(o.combine_fp32);
}

TEST_F(Options, NcclsVariableIsAskedWhenOursIsUnset)
{
    EXPECT_EQ(read("NCCL_IB_HCA", "=mlx5_0:1"), "");
    EXPECT_STREQ(o.ib_hca, "=mlx5_0:1");
    setenv("NCCL_IB_GID_INDEX", "3", 1);
    EXPECT_EQ(read("SWIMLANE_IB_GID_INDEX", "0"), "");
    EXPECT_EQ(o.ib_gid_index, 0);
    EXPECT_EQ(read("SWIMLANE_IB_GID_INDEX", ""), "");
    EXPECT_EQ(o.ib_gid_index, 3);
    EXPECT_NE(read("SWIMLANE_IB_HCA", std::string(256, 'x').c_str()), "") << "too long";
    EXPECT_STREQ(o.ib_hca, "");
}

TEST_F(Options, F110_MinusOneIsNcclsWordForNotSet)
{
    for (const char *name : {"GID_INDEX", "SL", "TC"})
        for (const char *whose : {"NCCL_IB_", "SWIMLANE_IB_"})
            EXPECT_EQ(read((whose + std::string(name)).c_str(), "-1"), "") << whose << name;
    EXPECT_EQ(o.ib_gid_index, -1);
    EXPECT_EQ(o.ib_sl, -1);
    EXPECT_EQ(o.ib_tc, -1);
    EXPECT_NE(read("NCCL_IB_GID_INDEX", "-2"), "");
    EXPECT_EQ(o.ib_gid_index, -1);
    // the own variable keeps NCCL's from being asked
    setenv("NCCL_IB_GID_INDEX", "3", 1);
    EXPECT_EQ(read("SWIMLANE_IB_GID_INDEX", "-1"), "");
    EXPECT_EQ(o.ib_gid_index, -1);
}

TEST_F(Options, F110_ValuesThatMeanNotSetAreListedAsSuch)
{
    const struct {
        const char *name, *value, *line;
    } rows[] = {{"NCCL_EP_TIMEOUT_MS", "0", "env NCCL_EP_TIMEOUT_MS 0 (not set)\n"},
                {"NCCL_EP_TIMEOUT_MS", "5", "env NCCL_EP_TIMEOUT_MS 5\n"},
                {"NCCL_IB_TC", "-1", "env SWIMLANE_IB_TC unset, NCCL_IB_TC -1 (not set)\n"},
                {"NCCL_IB_TC", "0", "env SWIMLANE_IB_TC unset, NCCL_IB_TC 0\n"}};

    for (const auto &row : rows) {
        setenv(row.name, row.value, 1);
        testing::internal::CaptureStderr();
        swl_options_list();
        const std::string said = testing::internal::GetCapturedStderr();
        unsetenv(row.name);
        EXPECT_NE(said.find(row.line), std::string::npos) << row.line;
    }
}

TEST_F(Options, OneVariableCanBeReadAlone)
{
    setenv("SWIMLANE_REPORT_VERSION", "100", 1);
    setenv("NCCL_EP_TIMEOUT_MS", "7", 1);
    memset(&o, 0, sizeof(o));
    swl_option_read(&o, "SWIMLANE_REPORT_VERSION");
    EXPECT_EQ(o.report_version, 100u);
    EXPECT_EQ(o.timeout_ms, 0u);
}

TEST_F(Options, ContradictingPairIsRefused)
{
    read("NCCL_EP_HT_EM_LOCAL_DUP", "1");
    EXPECT_EQ(swl_options_check(&o), ncclSuccess);
    setenv("NCCL_EP_HT_EM_LOCAL_DUP", "1", 1);
    read("NCCL_EP_HT_EM_NVLINK_DUP", "on");
    testing::internal::CaptureStderr();
    EXPECT_EQ(swl_options_check(&o), ncclInvalidUsage);
    testing::internal::GetCapturedStderr();
}

TEST_F(Options, ListingNamesEveryVariableOnce)
{
    setenv("SWIMLANE_TRACE", "/tmp/x", 1);
    testing::internal::CaptureStderr();
    swl_options_list();
    std::string said = testing::internal::GetCapturedStderr();
    size_t nrows;
    const swl_option_row *rows = swl_option_rows(&nrows);
    for (size_t i = 0; i < nrows; i++)
        EXPECT_NE(said.find(std::string("env ") + rows[i].name + " "), std::string::npos);
    EXPECT_NE(said.find("SWIMLANE_TRACE /tmp/x\n"), std::string::npos);
}

TEST_F(Options, D_C4NoListShowsASecret)
{
    setenv("SWIMLANE_JOB_SECRET", "open sesame", 1);
    testing::internal::CaptureStderr();
    swl_options_list();
    const std::string said = testing::internal::GetCapturedStderr();
    unsetenv("SWIMLANE_JOB_SECRET");
    EXPECT_EQ(said.find("sesame"), std::string::npos);
    EXPECT_NE(said.find("env SWIMLANE_JOB_SECRET (set, not shown)"), std::string::npos);
}

TEST_F(Options, RowsHaveNamesOfTheirOwnAndHelp)
{
    size_t nrows;
    const swl_option_row *rows = swl_option_rows(&nrows);
    std::set<std::string> names;
    for (size_t i = 0; i < nrows; i++) {
        EXPECT_TRUE(names.insert(rows[i].name).second) << rows[i].name;
        EXPECT_GT(strlen(rows[i].help), 5u) << rows[i].name;
        EXPECT_EQ(strchr(rows[i].help, '|'), nullptr) << rows[i].name;
    }
}

TEST(Util, ArithmeticKeepsItsPromises)
{
    uint64_t product = 7;
    EXPECT_TRUE(swl_mul(UINT64_MAX, 1, &product));
    EXPECT_EQ(product, UINT64_MAX);
    EXPECT_FALSE(swl_mul(UINT64_MAX / 2 + 1, 2, &product));
    EXPECT_EQ(product, UINT64_MAX) << "nothing stored";
    EXPECT_EQ(swl_div_up(7, 3), 3u);
    EXPECT_EQ(swl_round_up_u64(8, 4), 8u);
    EXPECT_EQ(swl_round_up_u64(9, 6), 12u);
    EXPECT_TRUE(swl_is_pow2(64));
    EXPECT_FALSE(swl_is_pow2(0));
    EXPECT_TRUE(swl_ranges_overlap((void *)100, 10, (void *)109, 1));
    EXPECT_FALSE(swl_ranges_overlap((void *)100, 10, (void *)110, 5));
    EXPECT_FALSE(swl_ranges_overlap((void *)110, 5, (void *)100, 10));
    EXPECT_FALSE(swl_ranges_overlap((void *)100, 10, (void *)105, 0));
    EXPECT_NE(swl_hash(SWL_HASH_START, "ab", 2), swl_hash(SWL_HASH_START, "ba", 2));
}
