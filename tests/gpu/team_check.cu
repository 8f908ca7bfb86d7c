/* team_check.cu: the team that topology.c declares by hand is NCCL's. Compiled, never run:
 * nccl_device.h is not C11, so only a CUDA translation unit can look at it. */
#include <nccl.h>
#include <nccl_device.h>

#include <cstddef>
#include <type_traits>
#include <utility>

static_assert(sizeof(ncclTeam_t) == 12 && alignof(ncclTeam_t) == 4, "struct team of topology.c");
static_assert(offsetof(ncclTeam_t, nRanks) == 0 && offsetof(ncclTeam_t, rank) == 4 &&
                  offsetof(ncclTeam_t, stride) == 8,
              "order of the fields of struct team of topology.c");
static_assert(std::is_same<decltype(ncclTeam_t::nRanks), int>::value &&
                  std::is_same<decltype(ncclTeam_t::rank), int>::value &&
                  std::is_same<decltype(ncclTeam_t::stride), int>::value,
              "types of the fields of struct team of topology.c");

/* The function looked up by name takes a communicator and returns the team by value. */
static_assert(std::is_same<decltype(ncclTeamLsa(std::declval<ncclComm_t>())), ncclTeam_t>::value,
              "ncclTeamLsa as topology.c calls it");
