// Tables of the proxy NICs that tests choose from; see proxies.h.
#include "tests/support/proxies.h"

#include "tests/support/loop_wire.h"
#include "transport/proxy/tcp/tcp.h"
#include "transport/proxy/verbs/verbs.h"

#include <stdlib.h>

namespace
{

ncclResult_t create_limited(struct swl_nic **nic_p, const struct swl_nic_config *config,
                            const struct swl_nic_ops *ops, uint32_t adds)
{
    const struct swl_nic_ib ib = {getenv("SWIMLANE_IB_HCA"), -1, -1, -1, 0, 0, -1};
    struct swl_nic_config one = *config;

    one.settings.ib = &ib;
    one.settings.adds = adds;
    return swl_proxy_create(nic_p, &one, ops, swl_verbs_wire_ops());
}

ncclResult_t create_messages(struct swl_nic **nic_p, const struct swl_nic_config *config);

// As on devices without atomics.
const struct swl_nic_ops messages_ops = SWL_PROXY_OPS("verbs, adds by message", create_messages);

ncclResult_t create_messages(struct swl_nic **nic_p, const struct swl_nic_config *config)
{
    return create_limited(nic_p, config, &messages_ops, SWL_ADDS_MESSAGES);
}

} // namespace

bool nic_on_verbs()
{
    return getenv("RXE_VM") != nullptr;
}

bool nic_by_message(const struct swl_nic *nic)
{
    return nic->ops == &messages_ops;
}

std::vector<const struct swl_nic_ops *> nic_proxies()
{
    if (nic_on_verbs())
        return {swl_proxy_verbs_ops(), &messages_ops};
    return {loop_ops(), swl_tcp_ops()};
}
