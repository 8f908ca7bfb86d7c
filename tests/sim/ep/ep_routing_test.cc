// ep_routing_test.cc: swimlane-bench --routing FILE: the ids of a NumPy file travel, bad files are
// refused.
#include "tests/support/ep_bench.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <unistd.h>

namespace
{

constexpr int tokens = 6, experts = 8, hidden = 64, nranks = 4; // bf16: 128 bytes a row
constexpr char job[] = "--nodes 2 --ranks-per-node 2 --tokens 6 --topk 3 --experts 8 --hidden 64 "
                       "--sms 2 --iterations 2 --warmup 0 --timeout-ms 2000 ";

// A file that goes with the test.
struct File {
    std::string path = testing::TempDir() + "swl-routing-" + std::to_string(getpid()) + ".npy";

    File(const std::string &descr, const std::string &order, const std::string &shape,
         const std::string &data)
    {
        std::string dict =
            "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }";
        std::ofstream out(path, std::ios::binary);

        dict.append(63 - (10 + dict.size()) % 64 + 1, ' ').back() = '\n';
        out << std::string("\x93NUMPY\x01\x00", 8) << (char)(dict.size() & 0xff)
            << (char)(dict.size() >> 8) << dict << data;
    }
    ~File()
    {
        unlink(path.c_str());
    }
    File(const File &) = delete;
    File &operator=(const File &) = delete;
};

template <class T> std::string bytes_of(const std::vector<int64_t> &ids)
{
    std::string bytes;

    for (int64_t id : ids) {
        const T value = (T)id;

        bytes.append(reinterpret_cast<const char *>(&value), sizeof value);
    }
    return bytes;
}

// `row` for every token of every rank.
std::vector<int64_t> everywhere(const std::vector<int64_t> &row)
{
    std::vector<int64_t> ids;

    for (int i = 0; i < nranks * tokens; i++)
        ids.insert(ids.end(), row.begin(), row.end());
    return ids;
}

// Rows that the busiest rank received in a step, from the results of a run; -1 when it failed.
int busiest(const File &file, const std::string &more = "")
{
    const std::string results = file.path + ".json", key = "\"logical_bytes\":";
    const std::string line = job + ("--routing " + file.path) + " --json " + results + " " + more;

    if (!ep_bench(line)) {
        ADD_FAILURE() << "repeat with: swimlane-bench " << line;
        return -1;
    }
    std::ifstream in(results);
    const std::string text(std::istreambuf_iterator<char>(in), {});
    const size_t dispatch = text.find("\"dispatch\""), at = text.find(key, dispatch);

    unlink(results.c_str());
    if (dispatch == std::string::npos || at == std::string::npos)
        return -1;
    return (int)std::stod(text.substr(at + key.size())) / (2 * hidden);
}

// Refused before any rank runs, with a sentence that holds `words`.
void expect_refused(const File &file, const char *words, const std::string &more = "")
{
    testing::internal::CaptureStderr();
    EXPECT_FALSE(ep_bench(job + ("--routing " + file.path) + " " + more));
    const std::string said = testing::internal::GetCapturedStderr();

    EXPECT_NE(said.find(words), std::string::npos) << said;
}

TEST(RoutingFile, IdsOfBothSizesTravel)
{
    const std::vector<int64_t> ids = everywhere({1, 0, -1}); // both experts of rank 0
    const File narrow("<i4", "False", "(24, 3)", bytes_of<int32_t>(ids));

    EXPECT_EQ(busiest(narrow), nranks * tokens);
    EXPECT_EQ(busiest(narrow, "--ids int32"), nranks * tokens);
    const File wide("<i8", "False", "(24, 3)", bytes_of<int64_t>(ids));

    EXPECT_EQ(busiest(wide), nranks * tokens);
    EXPECT_EQ(busiest(wide, "--ids int32"), nranks * tokens);
}

TEST(RoutingFile, EachRankAndTokenHasItsOwnRow)
{
    std::vector<int64_t> ids;

    // Rank r's token t goes to the rank after r, and to rank 0 where t is 0 or 1.
    for (int r = 0; r < nranks; r++)
        for (int t = 0; t < tokens; t++)
            ids.insert(ids.end(), {(r + 1) % nranks * 2 + t % 2, t < 2 ? 0 : -1, -1});
    const File flat("<i4", "False", "(24, 3)", bytes_of<int32_t>(ids));
    const File by_rank("<i8", "False", "(4, 6, 3)", bytes_of<int64_t>(ids));
    const int expected = tokens + (nranks - 1) * 2; // rank 0: all of rank 3, two of each other

    EXPECT_EQ(busiest(flat), expected);
    EXPECT_EQ(busiest(by_rank), expected);
    EXPECT_EQ(busiest(by_rank, "--outputs library"), expected);
}

// What a run that passes says about its file.
std::string said_of(const File &file, const std::string &more = "")
{
    testing::internal::CaptureStderr();
    EXPECT_GE(busiest(file, more), 0);
    return testing::internal::GetCapturedStderr();
}

TEST(RoutingFile, F105ShortFilesRepeatAndSaySo)
{
    const File one("<i4", "False", "(1, 3)", bytes_of<int32_t>({2, 3, 4}));

    EXPECT_EQ(busiest(one), nranks * tokens); // each token goes to ranks 1 and 2
    EXPECT_NE(said_of(one).find("48 rows are wanted and 1 are there: each is taken 48 times"),
              std::string::npos);
    std::vector<int64_t> ids;

    for (int step = 0; step < 2; step++)
        for (int64_t id : everywhere({2, 3, 4}))
            ids.push_back(id);
    const File whole("<i4", "False", "(48, 3)", bytes_of<int32_t>(ids));

    EXPECT_EQ(said_of(whole), "");
    ids.resize(47 * 3);
    const File short_by_one("<i4", "False", "(47, 3)", bytes_of<int32_t>(ids));
    const std::string said = said_of(short_by_one);

    EXPECT_NE(said.find("48 rows are wanted and 47 are there: each is taken 1 time, the first 1 "
                        "once more (step after step, rank after rank)"),
              std::string::npos)
        << said;
    EXPECT_EQ(said_of(short_by_one, "--update-once").find("wanted"), std::string::npos);
}

TEST(RoutingFile, F105RecordingsOfLayersAreNoRanks)
{
    std::vector<int64_t> ids;

    // Token t, layer l: expert l, so that each layer's rows go to one rank.
    for (int t = 0; t < 48; t++)
        for (int layer = 0; layer < 5; layer++)
            ids.insert(ids.end(), {layer, -1, -1});
    const File file("|i1", "False", "(48, 5, 3)", bytes_of<int8_t>(ids));

    expect_refused(file, "[48][5][3], as [ranks][tokens][topk] it is not for 4 ranks");
    expect_refused(file, "its layers are 0 to 4: there is no 5", "--routing-layer 5");
    for (const char *layer : {"0", "4"})
        EXPECT_EQ(busiest(file, std::string("--routing-layer ") + layer), nranks * tokens);
    const std::string said = said_of(file, "--routing-layer 2");

    EXPECT_NE(said.find("96 of its 144 entries are negative and name no expert"), std::string::npos)
        << said;
    ids.resize(24 * 3);
    expect_refused({"|i1", "False", "(24, 3)", bytes_of<int8_t>(ids)}, "[tokens][layers][topk]",
                   "--routing-layer 0");
    EXPECT_FALSE(ep_bench(std::string(job) + "--routing-layer 0"));
}

TEST(RoutingFile, F104IdsOfEverySizeAreExactOrTold)
{
    std::vector<int64_t> ids;

    for (int i = 0; i < 48; i++)
        ids.insert(ids.end(), {i % 128, 100 + i % 27, 127 - i});
    const std::string bytes[] = {bytes_of<int8_t>(ids), bytes_of<int16_t>(ids),
                                 bytes_of<int32_t>(ids), bytes_of<int64_t>(ids)};
    int rows[8];

    for (int i = 0; i < 8; i++) {
        const std::string type = (i % 2 ? "<u" : "<i") + std::to_string(1 << i / 2);
        const File file(type, "False", "(48, 3)", bytes[i / 2]);

        rows[i] = busiest(file, "--experts 300");
        EXPECT_EQ(rows[i], rows[0]) << type;
        const std::string said = said_of(file, "--experts 300");
        const char *largest = i == 0 ? "no id above 127" : i == 1 ? "no id above 255" : nullptr;

        EXPECT_EQ(said.find("its type holds") != std::string::npos, largest != nullptr) << said;
        if (largest) {
            EXPECT_NE(said.find(largest), std::string::npos) << said;
        }
    }
    EXPECT_GT(rows[0], 0);
}

// An id that no expert has is a wrong file or a wrong number of experts; --beyond tries such ids.
TEST(RoutingFile, D_D2IdsBeyondTheExpertsAreRefused)
{
    const File file("<i4", "False", "(24, 3)",
                    bytes_of<int32_t>(everywhere({experts, 7, INT32_MAX})));

    expect_refused(file, "48 of 72 ids of the routing file name no expert, there are 8 and the "
                         "largest id is 2147483647");
    const File huge("<i8", "False", "(24, 3)", bytes_of<int64_t>(everywhere({-1, 7, INT64_MIN})));

    EXPECT_EQ(busiest(huge), nranks * tokens);
    expect_refused(huge, "does not fit into int32", "--ids int32");
}

TEST(RoutingFile, BadFilesAreRefusedWithTheReason)
{
    const std::string data = bytes_of<int32_t>(everywhere({0, 1, 2}));
    const std::string wide = bytes_of<int64_t>(everywhere({-1, 1, 2}));

    expect_refused({"<i4", "False", "(24, 3)", data.substr(0, data.size() - 1)},
                   "ends before its last element");
    expect_refused({"<i4", "False", "(24, 3)", ""}, "ends before its last element");
    expect_refused({"<f4", "False", "(24, 3)", data}, "not integers");
    expect_refused({">i4", "False", "(24, 3)", data}, "big-endian");
    expect_refused({"<u8", "False", "(24, 3)", wide}, "does not fit into int64");
    expect_refused({"<i4", "True", "(24, 3)", data}, "not in C order");
    expect_refused({"|b1", "False", "(24, 3)", std::string(72, '\1')}, "booleans");
    expect_refused({"<i4", "False", "(36, 2)", data}, "not top-k");
    expect_refused({"<i4", "False", "(72,)", data}, "[tokens][topk]");
    expect_refused({"<i4", "False", "(0, 3)", ""}, "no tokens");
    expect_refused({"<i4", "False", "(23, 3)", data}, "goes on behind its last element");
    expect_refused({"<i4", "False", "(24, x)", data}, "shape is malformed");
}

TEST(RoutingFile, AMissingFileIsNamed)
{
    testing::internal::CaptureStderr();
    EXPECT_FALSE(ep_bench(job + std::string("--routing /nonexistent/ids.npy")));
    EXPECT_NE(testing::internal::GetCapturedStderr().find("/nonexistent/ids.npy"),
              std::string::npos);
}

} // namespace
