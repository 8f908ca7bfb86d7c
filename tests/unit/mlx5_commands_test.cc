// Every byte of every firmware command against the offsets of the public layouts.
#include "tests/support/mlx5_wire.h"
#include "transport/mlx5/commands.h"
#include "transport/nic_kinds.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

namespace
{

struct Command : mlx5_command {
    Command() : mlx5_command()
    {
        memset(static_cast<mlx5_command *>(this), 0xee, sizeof(mlx5_command));
    }
};

void expect_bytes(const mlx5_command &c, const std::vector<uint8_t> &expected, int line)
{
    ASSERT_EQ(c.in_bytes, expected.size()) << "line " << line;
    for (size_t i = 0; i < expected.size(); i++)
        EXPECT_EQ(c.in[i], expected[i])
            << "byte 0x" << std::hex << i << ", line " << std::dec << line;
    for (size_t i = 0; i < c.out_bytes; i++)
        ASSERT_EQ(c.out[i], 0) << "byte " << i << " of the output, line " << line;
}
#define EXPECT_COMMAND(c, bytes, ...) expect_bytes(c, wire::image(bytes, {__VA_ARGS__}), __LINE__)

TEST(Mlx5Commands, QueryCapsAsksForGeneralCurrentValues)
{
    Command c;

    swl_mlx5_query_caps(&c);
    EXPECT_COMMAND(c, 16, {wire::opcode, 0x100}, {wire::op_mod, 1});
    EXPECT_EQ(c.out_bytes, 16u + 4096);
}

TEST(Mlx5Commands, CapsAreReadFromTheirPlaces)
{
    Command c;
    struct mlx5_caps caps;

    swl_mlx5_query_caps(&c);
    wire::put(c.out, wire::log_max_qp_sz, 15);
    wire::put(c.out, wire::ece_support, 1);
    wire::put(c.out, wire::log_max_ra_req_qp, 4);
    wire::put(c.out, wire::log_max_ra_res_qp, 5);
    wire::put(c.out, wire::cqe_version, 1);
    wire::put(c.out, wire::atomic, 1);
    wire::put(c.out, wire::log_bf_reg_size, 9);
    wire::put(c.out, wire::sq_ts_format, 2);
    swl_mlx5_caps_read(&c, &caps);
    EXPECT_EQ(caps.log_max_qp_size, 15u);
    EXPECT_EQ(caps.log_reads_out, 4u);
    EXPECT_EQ(caps.log_reads_in, 5u);
    EXPECT_EQ(caps.cqe_version, 1u);
    EXPECT_EQ(caps.log_bf_bytes, 9u);
    EXPECT_EQ(caps.sq_ts_format, 2u);
    EXPECT_TRUE(caps.atomic);
    EXPECT_TRUE(caps.ece);
    memset(c.out, 0xff, c.out_bytes);
    wire::put(c.out, wire::atomic, 0);
    wire::put(c.out, wire::ece_support, 0);
    wire::put(c.out, wire::log_max_ra_req_qp, 0);
    swl_mlx5_caps_read(&c, &caps);
    EXPECT_FALSE(caps.atomic);
    EXPECT_FALSE(caps.ece);
    EXPECT_EQ(caps.log_reads_out, 0u);
    EXPECT_EQ(caps.log_reads_in, 0x3fu);
}

TEST(Mlx5Commands, CreateCqCollapsesAndIgnoresOverrun)
{
    const struct mlx5_cq_plan plan = {
        {0x11223344, 0x123456789000, 0x1a2b3c4d5e40}, 10, 0xabcdef, 37};
    Command c;

    swl_mlx5_create_cq(&c, &plan);
    EXPECT_COMMAND(c, 272, {wire::opcode, 0x400}, {wire::cq_umem_offset, 0x123456789000},
                   {wire::cq_umem_id, 0x11223344}, {wire::cq_umem_valid, 1}, {wire::cqe_sz, 0},
                   {wire::cc, 1}, {wire::oi, 1}, {wire::cqc_dbr_umem_valid, 1},
                   {wire::cqc_dbr_umem_id, 0x11223344}, {wire::log_cq_size, 10},
                   {wire::cqc_uar_page, 0xabcdef}, {wire::c_eqn, 37}, {wire::cqc_log_page_size, 0},
                   {wire::cqc_dbr_addr, 0x1a2b3c4d5e40});
    EXPECT_EQ(c.out_bytes, 16u);
}

TEST(Mlx5Commands, CreateQpIsRcWithoutReceiveQueue)
{
    const struct mlx5_qp_plan plan = {{0x55667788, 0xfedcba987000, 0x7654321000c0},
                                      15,
                                      0x123456,
                                      0x234567,
                                      0x345678,
                                      2,
                                      0x90abcdef};
    Command c;

    swl_mlx5_create_qp(&c, &plan);
    EXPECT_COMMAND(c, 272, {wire::opcode, 0x500}, {wire::ece, 0x90abcdef},
                   {wire::wq_umem_offset, 0xfedcba987000}, {wire::wq_umem_id, 0x55667788},
                   {wire::wq_umem_valid, 1}, {wire::st, 0}, {wire::pm_state, 3},
                   {wire::pd, 0x234567}, {wire::log_sq_size, 15}, {wire::ts_format, 1},
                   {wire::rq_type, 3}, {wire::uar_page, 0x123456}, {wire::user_index, 0xffffff},
                   {wire::cqn_snd, 0x345678}, {wire::cqn_rcv, 0x345678}, {wire::dbr_umem_valid, 1},
                   {wire::dbr_umem_id, 0x55667788}, {wire::dbr_addr, 0x7654321000c0});
}

TEST(Mlx5Commands, CreateQpKeepsFreeRunningTime)
{
    struct mlx5_qp_plan plan = {};
    Command c;

    swl_mlx5_create_qp(&c, &plan);
    EXPECT_EQ(wire::get(c.in, wire::ts_format), 0u);
    plan.ts_format = 1;
    swl_mlx5_create_qp(&c, &plan);
    EXPECT_EQ(wire::get(c.in, wire::ts_format), 1u);
}

TEST(Mlx5Commands, IndirectKeyListsItsPiecesInWholeLines)
{
    const struct mlx5_piece pieces[5] = {{0x111122223333, 1ull << 30, 0xa0a0a0a0},
                                         {0x444455556666, 1ull << 30, 0xb1b1b1b1},
                                         {0x777788889999, 0x7fffffff, 0xc2c2c2c2},
                                         {0xaaaabbbbcccc, 1, 0xd3d3d3d3},
                                         {0xddddeeeeffff, 12345, 0xe4e4e4e4}};
    const struct mlx5_mkey_plan plan = {0xfedcba9876543210,
                                        0x123456789a,
                                        0x765432,
                                        SWL_NIC_REMOTE_WRITE | SWL_NIC_LOCAL_WRITE,
                                        pieces,
                                        5};
    wire::Values values = {{wire::opcode, 0x200},
                           {wire::list_octwords, 8},
                           {wire::access_mode_1_0, 2},
                           {wire::mkc_lr, 1},
                           {wire::mkc_lw, 1},
                           {wire::mkc_rw, 1},
                           {wire::mkc_qpn, 0xffffff},
                           {wire::mkey_7_0, 0x5a},
                           {wire::mkc_pd, 0x765432},
                           {wire::start_addr, 0xfedcba9876543210},
                           {wire::mkc_len, 0x123456789a},
                           {wire::translations_octword_size, 8}};
    Command c;

    for (unsigned i = 0; i < 5; i++)
        values = values + wire::Values{{wire::klm_byte_count(i), pieces[i].bytes},
                                       {wire::klm_mkey(i), pieces[i].key},
                                       {wire::klm_address(i), pieces[i].address}};
    swl_mlx5_create_mkey(&c, &plan);
    expect_bytes(c, wire::image(272 + 8 * 16, values), __LINE__);
    wire::put(c.out, wire::number, 0x00beef);
    EXPECT_EQ(swl_mlx5_key(&c), 0xbeef5au);
}

TEST(Mlx5Commands, IndirectKeyAllowsWhatIsAskedFor)
{
    const struct {
        unsigned access;
        wire::Field field;
    } cases[] = {{SWL_NIC_LOCAL_WRITE, wire::mkc_lw},
                 {SWL_NIC_REMOTE_WRITE, wire::mkc_rw},
                 {SWL_NIC_REMOTE_READ, wire::mkc_rr},
                 {SWL_NIC_REMOTE_ADD, wire::mkc_a}};

    for (const auto &c : cases) {
        const struct mlx5_mkey_plan plan = {0, 1, 0, c.access | SWL_NIC_RELAXED, nullptr, 0};
        Command command;

        swl_mlx5_create_mkey(&command, &plan);
        for (const auto &other : cases)
            EXPECT_EQ(wire::get(command.in, other.field), other.access == c.access);
    }
}

TEST(Mlx5Commands, InitOpensThePortForPeers)
{
    Command c;

    swl_mlx5_init_qp(&c, 0xfedcba, 2, 77);
    EXPECT_COMMAND(c, 272, {wire::opcode, 0x502}, {wire::number, 0xfedcba}, {wire::pm_state, 3},
                   {wire::rre, 1}, {wire::rwe, 1}, {wire::rae, 1}, {wire::atomic_mode, 3},
                   {wire::pkey_index, 77}, {wire::vhca_port_num, 2});
}

struct rc_path path_of(bool ethernet, bool global)
{
    struct rc_path p = {};

    p.remote_qpn = 0x13579b;
    p.send_psn = 0x2468ac;
    p.recv_psn = 0xfdb975;
    p.ece = 0x80000123;
    p.mtu = 5;
    p.log_sra = 4;
    p.log_rra = 6;
    p.timeout = 21;
    p.retries = 6;
    p.ethernet = ethernet;
    p.global = global;
    p.port = 2;
    p.gid_index = 0xa7;
    p.hop_limit = 255;
    p.tclass = 106;
    p.sl = 5;
    p.rlid = 0xbeef;
    p.udp_sport = 0xd234;
    for (uint8_t i = 0; i < 16; i++)
        p.rgid[i] = static_cast<uint8_t>(0x10 + i);
    for (uint8_t i = 0; i < 6; i++)
        p.rmac[i] = static_cast<uint8_t>(0xa1 + i);
    return p;
}

using wire::operator+;

// What INIT2RTR has on every link, and on those with a global header.
const wire::Values rtr = {{wire::opcode, 0x503},
                          {wire::number, 0x9abcde},
                          {wire::opt_param_mask, 0xe},
                          {wire::ece, 0x80000123},
                          {wire::pm_state, 3},
                          {wire::mtu, 5},
                          {wire::log_msg_max, 30},
                          {wire::remote_qpn, 0x13579b},
                          {wire::log_rra_max, 6},
                          {wire::min_rnr_nak, 12},
                          {wire::next_rcv_psn, 0xfdb975},
                          {wire::rre, 1},
                          {wire::rwe, 1},
                          {wire::rae, 1},
                          {wire::atomic_mode, 3},
                          {wire::vhca_port_num, 2},
                          {wire::ack_timeout, 21},
                          {wire::stat_rate, 0}};
const wire::Values global = {{wire::src_addr_index, 0xa7},
                             {wire::hop_limit, 255},
                             {wire::tclass, 106},
                             {wire::rgid_high, 0x1011121314151617},
                             {wire::rgid_low, 0x18191a1b1c1d1e1f}};

TEST(Mlx5Commands, F87_RtrOnEthernetHasMacPriorityAndTrafficClass)
{
    const struct rc_path path = path_of(true, true);
    const wire::Values ethernet = {{wire::dscp, 106 >> 2},
                                   {wire::eth_prio, 5},
                                   {wire::udp_sport, 0xd234},
                                   {wire::rmac_high, 0xa1a2},
                                   {wire::rmac_low, 0xa3a4a5a6}};
    Command c;

    swl_mlx5_rtr_qp(&c, 0x9abcde, &path);
    expect_bytes(c, wire::image(272, rtr + global + ethernet), __LINE__);
}

TEST(Mlx5Commands, RtrOnInfinibandHasLidAndServiceLevel)
{
    const struct rc_path path = path_of(false, false);
    Command c;

    swl_mlx5_rtr_qp(&c, 0x9abcde, &path);
    expect_bytes(c, wire::image(272, rtr + wire::Values{{wire::rlid, 0xbeef}, {wire::sl, 5}}),
                 __LINE__);
}

TEST(Mlx5Commands, RtrOnInfinibandHasTheGlobalHeaderWhereItIsRequired)
{
    const struct rc_path path = path_of(false, true);
    const wire::Values far = {{wire::grh, 1}, {wire::rlid, 0xbeef}, {wire::sl, 5}};
    Command c;

    swl_mlx5_rtr_qp(&c, 0x9abcde, &path);
    expect_bytes(c, wire::image(272, rtr + global + far), __LINE__);
}

TEST(Mlx5Commands, RtsHasRetriesAndDepthOfReads)
{
    const struct rc_path path = path_of(true, true);
    Command c;

    swl_mlx5_rts_qp(&c, 0x9abcde, &path);
    EXPECT_COMMAND(c, 272, {wire::opcode, 0x504}, {wire::number, 0x9abcde}, {wire::ece, 0x80000123},
                   {wire::pm_state, 3}, {wire::log_ack_req_freq, 0}, {wire::log_sra_max, 4},
                   {wire::retry_count, 6}, {wire::rnr_retry, 7}, {wire::next_send_psn, 0x2468ac},
                   {wire::ack_timeout, 21});
}

TEST(Mlx5Commands, ShortCommandsNameTheQueuePair)
{
    Command c;

    swl_mlx5_error_qp(&c, 0xfffffe);
    EXPECT_COMMAND(c, 16, {wire::opcode, 0x507}, {wire::number, 0xfffffe});
    swl_mlx5_reset_qp(&c, 0xfffffe);
    EXPECT_COMMAND(c, 16, {wire::opcode, 0x50a}, {wire::number, 0xfffffe});
    swl_mlx5_query_qp(&c, 0xfffffe);
    EXPECT_COMMAND(c, 16, {wire::opcode, 0x50b}, {wire::number, 0xfffffe});
    EXPECT_EQ(c.out_bytes, 272u);
}

TEST(Mlx5Commands, AnswersAreReadFromTheirPlaces)
{
    Command c;
    uint32_t state, index;

    swl_mlx5_query_qp(&c, 1);
    memset(c.out, 0xff, c.out_bytes);
    wire::put(c.out, wire::number, 0x00c0de);
    wire::put(c.out, wire::out_ece, 0x12345678);
    wire::put(c.out, wire::state, 6);
    wire::put(c.out, wire::hw_sq_wqebb_counter, 0xfff0);
    swl_mlx5_qp_read(&c, &state, &index);
    EXPECT_EQ(state, 6u);
    EXPECT_EQ(index, 0xfff0u);
    EXPECT_EQ(swl_mlx5_number(&c), 0xc0deu);
    EXPECT_EQ(swl_mlx5_ece(&c), 0x12345678u);
}

TEST(Mlx5Commands, RefusalsBecomeSentences)
{
    char text[160];
    Command c;

    swl_mlx5_create_qp(&c, std::make_unique<struct mlx5_qp_plan>().get());
    EXPECT_TRUE(swl_mlx5_check(&c, 0, text, sizeof(text)));
    EXPECT_STREQ(text, "");
    EXPECT_FALSE(swl_mlx5_check(&c, EPERM, text, sizeof(text)));
    EXPECT_STREQ(text, "CREATE_QP: Operation not permitted");
    wire::put(c.out, wire::status, 3);
    wire::put(c.out, wire::syndrome, 0x00ab12cd);
    EXPECT_FALSE(swl_mlx5_check(&c, EREMOTEIO, text, sizeof(text)));
    EXPECT_STREQ(text, "CREATE_QP: firmware status 0x03 (bad parameter), syndrome 0x00ab12cd");
    wire::put(c.out, wire::status, 0x77);
    EXPECT_FALSE(
        swl_mlx5_check(&c, 0, text, sizeof(text))); // a status without an error of the call
    EXPECT_NE(std::string(text).find("0x77 (unknown status)"), std::string::npos);
}

} // namespace
