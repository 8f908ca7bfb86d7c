// The layout of mlx5 firmware commands once more, for tests: written from the table of the public
// layouts, bit by bit, without transport/mlx5/fields.h. Offsets count from the start of the
// command.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace wire
{

struct Field {
    unsigned offset, shift, width;
};

constexpr unsigned qpc = 0x18, cqc = 0x10, ads = 0x18 + 0x18, cap = 0x10;

constexpr Field opcode{0x00, 16, 16}, op_mod{0x04, 0, 16};
constexpr Field status{0x00, 24, 8}, syndrome{0x04, 0, 32};
constexpr Field number{0x08, 0, 24}, opt_param_mask{0x10, 0, 32}, ece{0x14, 0, 32};
constexpr Field out_ece{0x0c, 0, 32};

constexpr Field cq_umem_offset{0x50, 0, 64}, cq_umem_id{0x58, 0, 32}, cq_umem_valid{0x5c, 31, 1};
constexpr Field cqc_dbr_umem_valid{cqc + 0x00, 25, 1}, cqe_sz{cqc + 0x00, 21, 3};
constexpr Field cc{cqc + 0x00, 20, 1}, oi{cqc + 0x00, 17, 1}, cqc_dbr_umem_id{cqc + 0x04, 0, 32};
constexpr Field log_cq_size{cqc + 0x0c, 24, 5}, cqc_uar_page{cqc + 0x0c, 0, 24};
constexpr Field c_eqn{cqc + 0x14, 0, 8}, cqc_log_page_size{cqc + 0x18, 24, 5};
constexpr Field cqc_dbr_addr{cqc + 0x38, 0, 64};

constexpr Field wq_umem_offset{0x100, 0, 64}, wq_umem_id{0x108, 0, 32}, wq_umem_valid{0x10c, 31, 1};
constexpr Field state{qpc + 0x00, 28, 4}, st{qpc + 0x00, 16, 8}, pm_state{qpc + 0x00, 11, 2};
constexpr Field pd{qpc + 0x04, 0, 24}, mtu{qpc + 0x08, 29, 3}, log_msg_max{qpc + 0x08, 24, 5};
constexpr Field log_sq_size{qpc + 0x08, 11, 4}, ts_format{qpc + 0x08, 6, 2};
constexpr Field uar_page{qpc + 0x0c, 0, 24}, user_index{qpc + 0x10, 0, 24};
constexpr Field remote_qpn{qpc + 0x14, 0, 24}, log_ack_req_freq{qpc + 0x70, 28, 4};
constexpr Field log_sra_max{qpc + 0x70, 21, 3}, retry_count{qpc + 0x70, 16, 3};
constexpr Field rnr_retry{qpc + 0x70, 13, 3}, next_send_psn{qpc + 0x78, 0, 24};
constexpr Field cqn_snd{qpc + 0x7c, 0, 24}, log_rra_max{qpc + 0x90, 21, 3};
constexpr Field atomic_mode{qpc + 0x90, 16, 4}, rre{qpc + 0x90, 15, 1}, rwe{qpc + 0x90, 14, 1};
constexpr Field rae{qpc + 0x90, 13, 1}, min_rnr_nak{qpc + 0x94, 24, 5};
constexpr Field next_rcv_psn{qpc + 0x94, 0, 24}, cqn_rcv{qpc + 0x9c, 0, 24};
constexpr Field dbr_addr{qpc + 0xa0, 0, 64}, rq_type{qpc + 0xac, 24, 3};
constexpr Field hw_sq_wqebb_counter{qpc + 0xb4, 16, 16};
constexpr Field dbr_umem_valid{qpc + 0xd0, 28, 1}, dbr_umem_id{qpc + 0xe4, 0, 32};

constexpr Field pkey_index{ads + 0x00, 0, 16}, grh{ads + 0x04, 23, 1}, rlid{ads + 0x04, 0, 16};
constexpr Field ack_timeout{ads + 0x08, 27, 5}, src_addr_index{ads + 0x08, 16, 8};
constexpr Field stat_rate{ads + 0x08, 8, 4}, hop_limit{ads + 0x08, 0, 8};
constexpr Field tclass{ads + 0x0c, 20, 8}, rgid_high{ads + 0x10, 0, 64},
    rgid_low{ads + 0x18, 0, 64};
constexpr Field dscp{ads + 0x20, 16, 6}, udp_sport{ads + 0x20, 0, 16};
constexpr Field eth_prio{ads + 0x24, 28, 3}, sl{ads + 0x24, 24, 4},
    vhca_port_num{ads + 0x24, 16, 8};
constexpr Field rmac_high{ads + 0x24, 0, 16}, rmac_low{ads + 0x28, 0, 32};

constexpr unsigned mkc = 0x10, klm = 0x110; // of CREATE_MKEY
constexpr Field list_octwords{0x60, 0, 32}, mkc_a{mkc + 0x00, 14, 1}, mkc_rw{mkc + 0x00, 13, 1};
constexpr Field mkc_rr{mkc + 0x00, 12, 1}, mkc_lw{mkc + 0x00, 11, 1}, mkc_lr{mkc + 0x00, 10, 1};
constexpr Field access_mode_1_0{mkc + 0x00, 8, 2}, mkc_qpn{mkc + 0x04, 8, 24};
constexpr Field mkey_7_0{mkc + 0x04, 0, 8}, mkc_pd{mkc + 0x0c, 0, 24};
constexpr Field start_addr{mkc + 0x10, 0, 64}, mkc_len{mkc + 0x18, 0, 64};
constexpr Field translations_octword_size{mkc + 0x34, 0, 32};
constexpr Field klm_byte_count(unsigned i)
{
    return {klm + 16 * i, 0, 31};
}
constexpr Field klm_mkey(unsigned i)
{
    return {klm + 16 * i + 4, 0, 32};
}
constexpr Field klm_address(unsigned i)
{
    return {klm + 16 * i + 8, 0, 64};
}

constexpr Field log_max_qp_sz{cap + 0x10, 16, 8}, ece_support{cap + 0x14, 28, 1};
constexpr Field log_max_ra_req_qp{cap + 0x28, 16, 6}, log_max_ra_res_qp{cap + 0x28, 0, 6};
constexpr Field cqe_version{cap + 0x3c, 0, 4}, atomic{cap + 0x40, 1, 1};
constexpr Field log_bf_reg_size{cap + 0x4c, 16, 5}, sq_ts_format{cap + 0x88, 30, 2};

// Number of the field's bit i (0 = lowest), counted from the first byte's highest bit.
inline unsigned bit_of(Field f, unsigned i)
{
    const unsigned first_word_bits = f.width > 32 ? 64 : 32;

    return f.offset * 8 + first_word_bits - 1 - f.shift - i;
}

inline void put(uint8_t *bytes, Field f, uint64_t value)
{
    for (unsigned i = 0; i < f.width; i++) {
        const unsigned bit = bit_of(f, i);
        const uint8_t mask = static_cast<uint8_t>(0x80u >> (bit % 8));

        bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] & ~mask);
        if (value >> i & 1)
            bytes[bit / 8] |= mask;
    }
}

inline uint64_t get(const uint8_t *bytes, Field f)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < f.width; i++) {
        const unsigned bit = bit_of(f, i);

        value |= static_cast<uint64_t>(bytes[bit / 8] >> (7 - bit % 8) & 1) << i;
    }
    return value;
}

using Values = std::vector<std::pair<Field, uint64_t>>;

// A command with these fields and zero everywhere else.
inline std::vector<uint8_t> image(std::size_t bytes, const Values &values)
{
    std::vector<uint8_t> made(bytes);

    for (const auto &v : values)
        put(made.data(), v.first, v.second);
    return made;
}

inline Values operator+(Values a, const Values &b)
{
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

} // namespace wire
