// Every byte that transport/wqe.h makes, against the structs and helpers of infiniband/mlx5dv.h.
#include "transport/wqe.h"

#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>
#include <string.h>

namespace
{

const uint64_t index64 = 0x7ffee1234ull;
const uint32_t qpn = 0xabc123;
const uint64_t remote = 0x1122334455667788ull;
const uint32_t rkey = 0x99aabbcc;
const uint64_t local = 0x0102030405060708ull;
const uint32_t lkey = 0xddeeff01;

// A block with segments of the reference header in it; the rest is zero.
struct block {
    alignas(16) uint8_t bytes[64];

    block() : bytes()
    {
    }
    template <class T> T *at(size_t offset)
    {
        return reinterpret_cast<T *>(bytes + offset);
    }
    void control(uint8_t opcode, uint8_t segments)
    {
        mlx5dv_set_ctrl_seg(at<struct mlx5_wqe_ctrl_seg>(0), static_cast<uint16_t>(index64), opcode,
                            0, qpn, MLX5_WQE_CTRL_CQ_UPDATE, segments, 0, 0);
    }
    void far()
    {
        at<struct mlx5_wqe_raddr_seg>(16)->raddr = htobe64(remote);
        at<struct mlx5_wqe_raddr_seg>(16)->rkey = htobe32(rkey);
    }
    void pointer(size_t offset, uint32_t bytes_)
    {
        mlx5dv_set_data_seg(at<struct mlx5_wqe_data_seg>(offset), bytes_, lkey, local);
    }
};

void expect_equal(const struct swl_wqe &mine, const block &reference)
{
    const uint8_t *bytes = reinterpret_cast<const uint8_t *>(mine.word);

    for (int i = 0; i < 64; i++)
        EXPECT_EQ(bytes[i], reference.bytes[i]) << "byte " << i;
}

struct swl_wqe dirty()
{
    struct swl_wqe w;

    memset(&w, 0xee, sizeof(w));
    return w;
}

} // namespace

TEST(WqeMlx5dv, NopHasTheReferenceBytes)
{
    struct swl_wqe w = dirty();
    block b;

    b.control(MLX5_OPCODE_NOP, 1);
    swl_wqe_nop(&w, index64, qpn);
    expect_equal(w, b);
}

TEST(WqeMlx5dv, WriteAndReadHaveTheReferenceBytes)
{
    for (uint8_t opcode : {MLX5_OPCODE_RDMA_WRITE, MLX5_OPCODE_RDMA_READ}) {
        struct swl_wqe w = dirty();
        block b;

        b.control(opcode, 3);
        b.far();
        b.pointer(32, 0x12345678);
        swl_wqe_move(&w, index64, opcode, qpn, {local, lkey, 0x12345678}, {remote, rkey});
        expect_equal(w, b);
    }
}

TEST(WqeMlx5dv, InlineWriteHasTheReferenceBytesForEveryLength)
{
    uint32_t data[7];

    for (uint32_t i = 0; i < 7; i++)
        data[i] = 0xa0a1a2a3u + i * 0x10101010u;
    for (uint32_t bytes = 4; bytes <= SWL_WQE_INLINE_MAX; bytes += 4) {
        struct swl_wqe w = dirty();
        block b;

        b.control(
            MLX5_OPCODE_RDMA_WRITE,
            static_cast<uint8_t>(2 + (sizeof(struct mlx5_wqe_inl_data_seg) + bytes + 15) / 16));
        b.far();
        b.at<struct mlx5_wqe_inl_data_seg>(32)->byte_count = htobe32(MLX5_INLINE_SEG | bytes);
        memcpy(b.bytes + 36, data, bytes);
        swl_wqe_inline(&w, index64, qpn, data, bytes, {remote, rkey});
        expect_equal(w, b);
    }
}

TEST(WqeMlx5dv, FetchAddHasTheReferenceBytes)
{
    struct swl_wqe w = dirty();
    block b;

    b.control(MLX5_OPCODE_ATOMIC_FA, 4);
    b.far();
    b.at<struct mlx5_wqe_atomic_seg>(32)->swap_add = htobe64(0x8877665544332211ull);
    b.pointer(48, 8);
    swl_wqe_fetch_add(&w, index64, qpn, 0x8877665544332211ull, {local, lkey, 8}, {remote, rkey});
    expect_equal(w, b);
}

TEST(WqeMlx5dv, SegmentsAreSixteenBytesAndBlocksFour)
{
    EXPECT_EQ(sizeof(struct mlx5_wqe_ctrl_seg), 16u);
    EXPECT_EQ(sizeof(struct mlx5_wqe_raddr_seg), 16u);
    EXPECT_EQ(sizeof(struct mlx5_wqe_data_seg), 16u);
    EXPECT_EQ(sizeof(struct mlx5_wqe_atomic_seg), 16u);
    EXPECT_EQ(SWL_WQE_BYTES, static_cast<unsigned>(MLX5_SEND_WQE_BB));
}

TEST(WqeMlx5dv, SendRecordIsTheSecondWord)
{
    EXPECT_EQ(SWL_DBR_SEND, static_cast<unsigned>(MLX5_SND_DBR));
}

// The first 8 bytes of a control segment and the doorbell share their layout; only the index and
// the queue matter to a NIC.
TEST(WqeMlx5dv, DoorbellIsAControlSegmentWithOnlyIndexAndQueue)
{
    struct mlx5_wqe_ctrl_seg c;
    uint64_t first;
    uint64_t mine = swl_doorbell_value(index64, qpn);

    memset(&c, 0, sizeof(c));
    mlx5dv_set_ctrl_seg(&c, static_cast<uint16_t>(index64), 0, 0, qpn, 0, 0, 0, 0);
    memcpy(&first, &c, 8);
    EXPECT_EQ(mine, first);
}

TEST(WqeMlx5dv, CompletionsAreReadByTheReferenceHelpers)
{
    struct swl_cqe mine;
    struct mlx5_cqe64 c;
    struct mlx5_err_cqe e;

    swl_cqe_make(&mine, index64, SWL_WQE_WRITE, qpn, 0);
    memcpy(&c, &mine, sizeof(c));
    EXPECT_EQ(mlx5dv_get_cqe_opcode(&c), MLX5_CQE_REQ);
    EXPECT_EQ(be16toh(c.wqe_counter), index64 & 0xffff);
    EXPECT_EQ(be32toh(c.sop_drop_qpn), static_cast<uint32_t>(MLX5_OPCODE_RDMA_WRITE) << 24 | qpn);
    EXPECT_EQ(mlx5dv_get_cqe_format(&c), 0);

    swl_cqe_make(&mine, index64, SWL_WQE_FETCH_ADD, qpn, SWL_SYNDROME_RETRY);
    memcpy(&e, &mine, sizeof(e));
    EXPECT_EQ(e.op_own >> 4, MLX5_CQE_REQ_ERR);
    EXPECT_EQ(e.syndrome, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
    EXPECT_EQ(e.vendor_err_synd, 0);
    EXPECT_EQ(be16toh(e.wqe_counter), index64 & 0xffff);
    EXPECT_EQ(be32toh(e.s_wqe_opcode_qpn),
              static_cast<uint32_t>(MLX5_OPCODE_ATOMIC_FA) << 24 | qpn);
}

TEST(WqeMlx5dv, ReferenceCompletionsAreReadByUs)
{
    struct mlx5_cqe64 c;
    struct swl_cqe mine;

    memset(&c, 0, sizeof(c));
    c.wqe_counter = htobe16(0xbeef);
    c.op_own = MLX5_CQE_REQ << 4 | 1;
    memcpy(&mine, &c, sizeof(mine));
    EXPECT_EQ(swl_cqe_opcode(mine.word[SWL_CQE_LAST_WORD]), static_cast<uint32_t>(SWL_CQE_DONE));
    EXPECT_EQ(swl_cqe_index(mine.word[SWL_CQE_LAST_WORD]), 0xbeefu);
    c.op_own = MLX5_CQE_INVALID << 4;
    memcpy(&mine, &c, sizeof(mine));
    EXPECT_EQ(swl_cqe_opcode(mine.word[SWL_CQE_LAST_WORD]), static_cast<uint32_t>(SWL_CQE_NONE));
}

TEST(WqeMlx5dv, NumbersAreThoseOfTheReference)
{
    EXPECT_EQ(SWL_WQE_NOP, static_cast<int>(MLX5_OPCODE_NOP));
    EXPECT_EQ(SWL_WQE_WRITE, static_cast<int>(MLX5_OPCODE_RDMA_WRITE));
    EXPECT_EQ(SWL_WQE_READ, static_cast<int>(MLX5_OPCODE_RDMA_READ));
    EXPECT_EQ(SWL_WQE_FETCH_ADD, static_cast<int>(MLX5_OPCODE_ATOMIC_FA));
    EXPECT_EQ(SWL_WQE_SIGNALLED, static_cast<unsigned>(MLX5_WQE_CTRL_CQ_UPDATE));
    EXPECT_EQ(SWL_WQE_INLINE, static_cast<unsigned>(MLX5_INLINE_SEG));
    EXPECT_EQ(SWL_CQE_ERROR, static_cast<int>(MLX5_CQE_REQ_ERR));
    EXPECT_EQ(SWL_CQE_NONE, static_cast<int>(MLX5_CQE_INVALID));
    EXPECT_EQ(SWL_SYNDROME_LOCAL_LENGTH, static_cast<int>(MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR));
    EXPECT_EQ(SWL_SYNDROME_LOCAL_OPERATION, static_cast<int>(MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR));
    EXPECT_EQ(SWL_SYNDROME_LOCAL_PROTECTION, static_cast<int>(MLX5_CQE_SYNDROME_LOCAL_PROT_ERR));
    EXPECT_EQ(SWL_SYNDROME_FLUSHED, static_cast<int>(MLX5_CQE_SYNDROME_WR_FLUSH_ERR));
    EXPECT_EQ(SWL_SYNDROME_BAD_RESPONSE, static_cast<int>(MLX5_CQE_SYNDROME_BAD_RESP_ERR));
    EXPECT_EQ(SWL_SYNDROME_LOCAL_ACCESS, static_cast<int>(MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR));
    EXPECT_EQ(SWL_SYNDROME_REMOTE_REQUEST,
              static_cast<int>(MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR));
    EXPECT_EQ(SWL_SYNDROME_REMOTE_ACCESS, static_cast<int>(MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR));
    EXPECT_EQ(SWL_SYNDROME_REMOTE_OPERATION, static_cast<int>(MLX5_CQE_SYNDROME_REMOTE_OP_ERR));
    EXPECT_EQ(SWL_SYNDROME_RETRY, static_cast<int>(MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR));
    EXPECT_EQ(SWL_SYNDROME_RNR_RETRY, static_cast<int>(MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR));
    EXPECT_EQ(SWL_SYNDROME_REMOTE_ABORTED, static_cast<int>(MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR));
}
