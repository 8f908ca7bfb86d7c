// rails.cc: see rails.h. Before the table of the software NIC, another one that takes note.
#include "tests/support/rails.h"

#include "transport/nic.h"

#include <map>
#include <mutex>

extern "C" const struct swl_nic_ops *__real_swl_soft_ops(void);
extern "C" const struct swl_nic_ops *__wrap_swl_soft_ops(void);

namespace
{

extern const struct swl_nic_ops *const real;
extern const struct swl_nic_ops noting; /* made before any rank runs */
std::mutex notes;                       /* of all ranks */
std::map<const struct swl_nic *, uint32_t> nics;
std::map<uint32_t, uint32_t> keys;

ncclResult_t create(struct swl_nic **nic, const struct swl_nic_config *config)
{
    const ncclResult_t rc = real->create(nic, config);

    if (rc == ncclSuccess) {
        std::lock_guard<std::mutex> hold(notes);
        nics[*nic] = config->proximity ? config->proximity->nth : 0;
        (*nic)->ops = &noting;
    }
    return rc;
}

ncclResult_t reg_mr(struct swl_nic *nic, void *ptr, uint64_t bytes, unsigned access,
                    struct swl_nic_region *region)
{
    const ncclResult_t rc = real->reg_mr(nic, ptr, bytes, access, region);

    std::lock_guard<std::mutex> hold(notes);
    if (rc == ncclSuccess && nics.count(nic) > 0)
        keys[region->lkey] = nics[nic];
    return rc;
}

struct swl_nic_ops make_noting()
{
    struct swl_nic_ops ops = *real;

    ops.create = create;
    ops.reg_mr = reg_mr;
    return ops;
}

const struct swl_nic_ops *const real = __real_swl_soft_ops();
const struct swl_nic_ops noting = make_noting();

} // namespace

uint32_t rail_of(uint32_t lkey)
{
    std::lock_guard<std::mutex> hold(notes);
    return keys.count(lkey) > 0 ? keys[lkey] : UINT32_MAX;
}

extern "C" const struct swl_nic_ops *__wrap_swl_soft_ops(void)
{
    return &noting;
}
