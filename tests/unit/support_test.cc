// Helpers of the tools: .npy files, routing shapes, tables, JSON.
#include "tools/support/json.h"
#include "tools/support/npy.h"
#include "tools/support/payload.h"
#include "tools/support/routing.h"
#include "tools/support/table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace
{

std::string npy_bytes(const std::string &dict, const std::string &data)
{
    std::string head("\x93NUMPY\x01\x00", 8);

    head.push_back((char)(dict.size() & 0xff));
    head.push_back((char)(dict.size() >> 8));
    return head + dict + data;
}

const char *read_npy(const std::string &bytes, swl_npy *npy)
{
    char path[] = "/tmp/swl-npy-XXXXXX";
    int fd = mkstemp(path);

    EXPECT_GE(fd, 0);
    EXPECT_EQ(write(fd, bytes.data(), bytes.size()), (ssize_t)bytes.size());
    close(fd);
    const char *error = swl_npy_read(path, npy);
    unlink(path);
    return error;
}

std::string text_of(FILE *file)
{
    std::string text;
    int c;

    rewind(file);
    while ((c = fgetc(file)) != EOF)
        text.push_back((char)c);
    fclose(file);
    return text;
}

} // namespace

TEST(Npy, ReadsSignedIntegersOfFourBytes)
{
    swl_npy npy{};
    const std::string data("\x01\0\0\0\xff\xff\xff\xff\x00\x01\0\0\x05\0\0\0", 16);

    ASSERT_EQ(
        read_npy(npy_bytes("{'descr': '<i4', 'fortran_order': False, 'shape': (2, 2), }\n", data),
                 &npy),
        nullptr);
    EXPECT_EQ(npy.ndim, 2);
    EXPECT_EQ(npy.shape[0], 2u);
    EXPECT_EQ(npy.data[0], 1);
    EXPECT_EQ(npy.data[1], -1);
    EXPECT_EQ(npy.data[2], 256);
    swl_npy_free(&npy);
}

TEST(Npy, RefusesWhatItCannotRead)
{
    swl_npy npy{};
    const char *good = "{'descr': '<i8', 'fortran_order': False, 'shape': (1, 2), }";

    EXPECT_NE(read_npy(npy_bytes(good, std::string(15, 'x')), &npy), nullptr);
    EXPECT_NE(read_npy(npy_bytes("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }",
                                 std::string(4, 'x')),
                       &npy),
              nullptr);
    EXPECT_NE(read_npy(npy_bytes("{'descr': '<i4', 'fortran_order': True, 'shape': (1,), }",
                                 std::string(4, 'x')),
                       &npy),
              nullptr);
    EXPECT_NE(read_npy(npy_bytes("{'descr': '<i8', 'fortran_order': False, "
                                 "'shape': (1000000000000, 1000000000000), }",
                                 ""),
                       &npy),
              nullptr);
    EXPECT_NE(read_npy("not a file of numbers", &npy), nullptr);
    EXPECT_NE(swl_npy_read("/nonexistent/file.npy", &npy), nullptr);
    EXPECT_EQ(npy.data, nullptr);
}

// Read, or refused with the reason, which says what is wrong and nothing else.
TEST(Npy, AFifoWithoutAWriterIsEmpty)
{
    const std::string path = testing::TempDir() + "swl-fifo-" + std::to_string(getpid()) + ".npy";
    swl_npy npy{};

    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    EXPECT_NE(swl_npy_read(path.c_str(), &npy), nullptr);
    unlink(path.c_str());
}

TEST(Npy, F106FiftyMalformedOrUnusualFiles)
{
    const std::string head("\x93NUMPY\x01\x00", 8), row(8, '\1');
    const auto dict = [](const std::string &descr, const std::string &order,
                         const std::string &shape) {
        return npy_bytes("{'descr': " + descr + ", 'fortran_order': " + order +
                             ", 'shape': " + shape + ", }",
                         "");
    };
    const auto typed = [&dict](const std::string &descr) { return dict(descr, "False", "(1, 2)"); };
    const auto shaped = [&dict](const std::string &shape) { return dict("'<i4'", "False", shape); };
    const auto version = [&](char major, const std::string &length) {
        const std::string good = shaped("(1, 2)");

        return std::string("\x93NUMPY", 6) + major + '\0' + length + good.substr(10) + row;
    };
    const size_t dict_bytes = shaped("(1, 2)").size() - 10;
    const std::string short_length{(char)dict_bytes, '\0'}, long_length{(char)dict_bytes, 0, 0, 0};
    const char *none = nullptr;
    const struct {
        std::string bytes;
        const char *reason; // null: it is read
    } files[] = {
        {"", "not a .npy file"},
        {"\x93", "not a .npy file"},
        {"not a file of numbers", "not a .npy file"},
        {"0 1 2 3\n4 5 6 7\n", "not a .npy file"},
        {"PK\x03\x04 and what follows", ".npz"},
        {"\x1f\x8b\x08 a compressed file", "not a .npy file"},
        {head, "not a .npy file"},
        {head + std::string("\x40\x00", 2), "cut off"},
        {head + std::string("\x10\x00{'descr': '<i4'", 17), "cut off"},
        {head + std::string("\x00\x00", 2), "no simple element type"},
        {version(0, short_length), "format version"},
        {version(1, short_length), none},
        {version(2, long_length), none},
        {version(3, long_length), none},
        {version(4, long_length), "format version"},
        {version(2, std::string("\1\0\1\0", 4)), "header is too long"},
        {version(2, "\xff\xff\xff\xff"), "header is too long"},
        {npy_bytes("{}", row), "no simple element type"},
        {npy_bytes("{'descr': '<i4'}", row), "not in C order"},
        {npy_bytes("{'descr': '<i4', 'fortran_order': False}", row), "no shape"},
        {npy_bytes("{'shape': (1, 2), 'fortran_order': False, 'descr': '<i4'}", row), none},
        {typed("'<i1'") + std::string(2, '\1'), none},
        {typed("'|u1'") + std::string(2, '\xff'), none},
        {typed("'<u2'") + std::string(4, '\xff'), none},
        {typed("'<u4'") + std::string(8, '\xff'), none},
        {typed("'<u8'") + std::string(16, '\x7f'), none},
        {typed("'<u8'") + std::string(16, '\xff'), "does not fit into int64"},
        {typed("'>i4'") + row, "big-endian"},
        {typed("'>i1'") + std::string(2, '\1'), none},
        {typed("'<i3'") + row, "not integers"},
        {typed("'<i16'") + row, "not integers"},
        {typed("'<i-4'") + row, "not integers"},
        {typed("'<i4extra'") + row, "no simple element type"},
        {typed("'<f4'") + row, "not integers"},
        {typed("'<c8'") + row, "not integers"},
        {typed("'<M8[ns]'") + row, "no simple element type"},
        {typed("'<U2'") + row, "not integers"},
        {typed("'|S4'") + row, "not integers"},
        {typed("'|V4'") + row, "not integers"},
        {typed("'|O'") + row, "no simple element type"},
        {typed("'|b1'") + std::string(2, '\1'), "booleans"},
        {typed("[('a', '<i4')]") + row, "no simple element type"},
        {dict("'<i4'", "True", "(1, 2)") + row, "not in C order"},
        {shaped("()") + row.substr(4), none},
        {shaped("(2,)") + row, none},
        {shaped("(1L, 2L)") + row, none},
        {shaped("(1,2,1,1)") + row, none},
        {shaped("(1, 2, 1, 1, 1)") + row, "more than 4 dimensions"},
        {shaped("(0, 2)"), none},
        {shaped("(1 2)") + row, "malformed"},
        {shaped("(,)") + row, "malformed"},
        {shaped("(1,, 2)") + row, "malformed"},
        {shaped("(-1, 2)") + row, "malformed"},
        {shaped("(1.0, 2)") + row, "malformed"},
        {shaped("(99999999999999999999, 2)") + row, "malformed"},
        {shaped("(1, 2") + row, "malformed"},
        {shaped("None") + row, "no shape"},
        {shaped("(1099511627776, 2)") + row, "ends before its last element"},
        {shaped("(1099511627776, 1099511627776)") + row, "too large"},
        {shaped("(2, 2)") + row, "ends before its last element"},
        {shaped("(1, 2)") + row.substr(1), "ends before its last element"},
        {shaped("(1, 1)") + row, "goes on behind its last element"},
    };

    EXPECT_GE(std::size(files), 50u);
    for (size_t i = 0; i < std::size(files); i++) {
        swl_npy npy{};
        const char *error = read_npy(files[i].bytes, &npy);

        if (files[i].reason) {
            EXPECT_NE(std::string(error ? error : "").find(files[i].reason), std::string::npos)
                << i << ": " << (error ? error : "was read") << ", not: " << files[i].reason;
        } else {
            EXPECT_EQ(error, nullptr) << i;
        }
        EXPECT_EQ(npy.data == nullptr, files[i].reason != nullptr) << i;
        swl_npy_free(&npy);
    }
}

TEST(Routing, ChoicesOfATokenDiffer)
{
    const swl_routing_size size{4, 50, 8, 12};

    for (swl_routing_kind kind : {SWL_ROUTING_UNIFORM, SWL_ROUTING_ZIPF, SWL_ROUTING_HOT,
                                  SWL_ROUTING_BLOCKS, SWL_ROUTING_SILENT}) {
        swl_routing routing{};
        std::vector<int64_t> ids(50 * 8);
        std::vector<float> weights(50 * 8);

        routing.kind = kind;
        routing.skew = kind == SWL_ROUTING_HOT ? 0.5 : 1.2;
        swl_why why{};

        ASSERT_TRUE(swl_routing_check(&routing, &size, &why)) << why.text;
        ASSERT_TRUE(swl_routing_make(&routing, &size, 1, 0, ids.data(), weights.data()));
        for (int t = 0; t < 50; t++) {
            std::set<int64_t> row(ids.begin() + 8 * t, ids.begin() + 8 * t + 8);

            EXPECT_EQ(row.size(), 8u);
            EXPECT_GE(*row.begin(), 0);
            EXPECT_LT(*row.rbegin(), 12);
        }
    }
}

TEST(Routing, BlocksOfTokensChooseOneRankAfterTheOther)
{
    const swl_routing_size size{3, 12, 2, 8}; // experts of the ranks: 0-2, 3-5, 6-7
    std::vector<int64_t> ids(12 * 2);
    std::vector<float> weights(12 * 2);
    swl_routing routing{};

    routing.kind = SWL_ROUTING_BLOCKS;
    routing.skew = 4;
    ASSERT_TRUE(swl_routing_make(&routing, &size, 1, 0, ids.data(), weights.data()));
    for (int i = 0; i < 24; i++)
        EXPECT_EQ(ids[i] / 3, i / 8) << "token " << i / 2;
}

TEST(Routing, NobodyChoosesExpertsOfASilentRank)
{
    const swl_routing_size size{3, 300, 2, 8};
    std::vector<int64_t> ids(300 * 2);
    std::vector<float> weights(300 * 2);
    swl_routing routing{};

    routing.kind = SWL_ROUTING_SILENT;
    routing.skew = 1;
    ASSERT_TRUE(swl_routing_make(&routing, &size, 0, 0, ids.data(), weights.data()));
    EXPECT_EQ(*std::max_element(ids.begin(), ids.end()), 5);
    for (int silent : {2, 3, 9}) {
        swl_why why{};

        routing.skew = silent;
        EXPECT_EQ(swl_routing_check(&routing, &size, &why), silent < 3) << silent;
        EXPECT_EQ(why.text[0] == 0, silent < 3) << why.text;
    }
}

TEST(Routing, SkewAndSpoiltEntriesShow)
{
    const swl_routing_size size{1, 2000, 2, 64};
    std::vector<int64_t> ids(4000);
    std::vector<float> weights(4000);
    swl_routing routing{};

    routing.kind = SWL_ROUTING_ZIPF;
    routing.skew = 1;
    ASSERT_TRUE(swl_routing_make(&routing, &size, 0, 0, ids.data(), weights.data()));
    EXPECT_GT(std::count(ids.begin(), ids.end(), 0), 3 * std::count(ids.begin(), ids.end(), 40));
    routing.negative = 0.25;
    routing.beyond = 0.25;
    ASSERT_TRUE(swl_routing_make(&routing, &size, 0, 0, ids.data(), weights.data()));
    EXPECT_NEAR((double)std::count_if(ids.begin(), ids.end(), [](int64_t i) { return i < 0; }),
                1000, 150);
    EXPECT_NEAR((double)std::count_if(ids.begin(), ids.end(), [](int64_t i) { return i >= 64; }),
                1000, 150);
}

TEST(Routing, RaggedStepsHaveRanksWithoutTokens)
{
    const swl_routing_size size{16, 100, 1, 16};
    swl_routing routing{};
    int empty = 0;

    routing.ragged = true;
    for (int rank = 0; rank < 16; rank++) {
        int n = swl_routing_tokens(&routing, &size, rank, 3);

        EXPECT_LE(n, 100);
        empty += n == 0;
    }
    EXPECT_GT(empty, 0);
    EXPECT_LT(empty, 16);
}

TEST(Payload, RowsAreFiniteAndRepeatable)
{
    for (swl_oracle_type type : {SWL_ORACLE_BF16, SWL_ORACLE_FP16, SWL_ORACLE_FP32}) {
        uint64_t a[64], b[64];

        swl_payload_row(type, 64, swl_random_of(1, 2, 3), a);
        swl_payload_row(type, 64, swl_random_of(1, 2, 3), b);
        for (int h = 0; h < 64; h++) {
            float x = std::fabs(swl_oracle_load(type, a, h));

            EXPECT_EQ(swl_oracle_load(type, a, h), swl_oracle_load(type, b, h));
            EXPECT_GE(x, 0.125f);
            EXPECT_LT(x, 2.0f);
        }
    }
}

TEST(Table, ColumnsAreAligned)
{
    static swl_table table;
    FILE *file = tmpfile();

    table = swl_table{};
    swl_table_row(&table);
    swl_table_text(&table, 0, "name");
    swl_table_text(&table, 1, "us");
    swl_table_row(&table);
    swl_table_text(&table, 0, "x");
    swl_table_text(&table, 1, "%.1f", 1.25e6);
    swl_table_print(&table, file);
    EXPECT_EQ(text_of(file), "  name         us\n  ---------------\n  x     1250000.0\n");
}

TEST(Json, NestsAndEscapes)
{
    FILE *file = tmpfile();
    swl_json json{file, 0, false};

    swl_json_open(&json, nullptr, '{');
    swl_json_text(&json, "a\"b", "line\n");
    swl_json_open(&json, "list", '[');
    swl_json_integer(&json, nullptr, -3);
    swl_json_number(&json, nullptr, INFINITY);
    swl_json_close(&json, ']');
    swl_json_open(&json, "none", '{');
    swl_json_close(&json, '}');
    swl_json_flag(&json, "ok", true);
    swl_json_close(&json, '}');
    EXPECT_EQ(text_of(file),
              "{\n  \"a\\\"b\": \"line\\u000a\",\n  \"list\": [\n    -3,\n    null\n  ],\n"
              "  \"none\": {},\n  \"ok\": true\n}\n");
}

TEST(Json, BytesThatAreNoUtf8DoNotSpoilIt)
{
    const struct {
        const char *text, *written;
    } cases[] = {
        {"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x9a\x80", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x9a\x80"},
        {"a\xff", "a\\ufffd"},                                /* never in UTF-8 */
        {"\x80z", "\\ufffdz"},                                /* continues nothing */
        {"\xe2\x82", "\\ufffd\\ufffd"},                       /* cut off */
        {"\xc3\"", "\\ufffd\\\""},                            /* the quote is no part of it */
        {"\xc0\xaf", "\\ufffd\\ufffd"},                       /* longer than needed */
        {"\xe0\x80\xaf", "\\ufffd\\ufffd\\ufffd"},            /* likewise */
        {"\xed\xa0\x80", "\\ufffd\\ufffd\\ufffd"},            /* half of a pair of UTF-16 */
        {"\xf4\x90\x80\x80", "\\ufffd\\ufffd\\ufffd\\ufffd"}, /* beyond U+10FFFF */
    };

    for (const auto &c : cases) {
        FILE *file = tmpfile();
        swl_json json{file, 0, false};

        swl_json_text(&json, nullptr, c.text);
        EXPECT_EQ(text_of(file), std::string("\"") + c.written + "\"");
    }
}
