// Every struct, number and call of transport/verbs/cm.h against the header of librdmacm.
#include "tests/unit/same_abi.h"
#include "transport/verbs/cm.h"

#include <gtest/gtest.h>
#include <rdma/rdma_cma.h>

namespace
{

#define EXPECT_SAME_CALL(result, symbol, arguments)                                                \
    EXPECT_TRUE((calls<decltype(swl_cm::symbol), plain<decltype(&::symbol)>::type>::same()))       \
        << #symbol;

TEST(RdmacmAbi, CallsHaveTheArgumentsOfTheLibrary){CM_CALLS(EXPECT_SAME_CALL)}

TEST(RdmacmAbi, StructsMatch)
{
    EXPECT_SAME_FIELD(cm_channel, fd, rdma_event_channel, fd);
    EXPECT_SAME_FIELD(cm_id, verbs, rdma_cm_id, verbs);
    EXPECT_SAME_FIELD(cm_id, channel, rdma_cm_id, channel);
    EXPECT_SAME_FIELD(cm_id, context, rdma_cm_id, context);
    EXPECT_SAME_FIELD(cm_id, qp, rdma_cm_id, qp);
    EXPECT_EQ(sizeof(struct cm_param), sizeof(struct rdma_conn_param));
    EXPECT_SAME_FIELD(cm_param, private_data, rdma_conn_param, private_data);
    EXPECT_SAME_FIELD(cm_param, private_data_len, rdma_conn_param, private_data_len);
    EXPECT_SAME_FIELD(cm_param, responder_resources, rdma_conn_param, responder_resources);
    EXPECT_SAME_FIELD(cm_param, initiator_depth, rdma_conn_param, initiator_depth);
    EXPECT_SAME_FIELD(cm_param, retry_count, rdma_conn_param, retry_count);
    EXPECT_SAME_FIELD(cm_param, rnr_retry_count, rdma_conn_param, rnr_retry_count);
    EXPECT_SAME_FIELD(cm_param, qp_num, rdma_conn_param, qp_num);
    EXPECT_SAME_FIELD(cm_event, id, rdma_cm_event, id);
    EXPECT_SAME_FIELD(cm_event, listen_id, rdma_cm_event, listen_id);
    EXPECT_SAME_FIELD(cm_event, event, rdma_cm_event, event);
    EXPECT_SAME_FIELD(cm_event, status, rdma_cm_event, status);
    EXPECT_SAME_FIELD(cm_event, conn, rdma_cm_event, param.conn);
}

TEST(RdmacmAbi, NumbersMatch)
{
    EXPECT_EQ(int{CM_PORT_SPACE_TCP}, int{RDMA_PS_TCP});
    EXPECT_EQ(int{CM_ADDR_RESOLVED}, int{RDMA_CM_EVENT_ADDR_RESOLVED});
    EXPECT_EQ(int{CM_ADDR_ERROR}, int{RDMA_CM_EVENT_ADDR_ERROR});
    EXPECT_EQ(int{CM_ROUTE_RESOLVED}, int{RDMA_CM_EVENT_ROUTE_RESOLVED});
    EXPECT_EQ(int{CM_ROUTE_ERROR}, int{RDMA_CM_EVENT_ROUTE_ERROR});
    EXPECT_EQ(int{CM_CONNECT_REQUEST}, int{RDMA_CM_EVENT_CONNECT_REQUEST});
    EXPECT_EQ(int{CM_CONNECT_ERROR}, int{RDMA_CM_EVENT_CONNECT_ERROR});
    EXPECT_EQ(int{CM_UNREACHABLE}, int{RDMA_CM_EVENT_UNREACHABLE});
    EXPECT_EQ(int{CM_REJECTED}, int{RDMA_CM_EVENT_REJECTED});
    EXPECT_EQ(int{CM_ESTABLISHED}, int{RDMA_CM_EVENT_ESTABLISHED});
    EXPECT_EQ(int{CM_DISCONNECTED}, int{RDMA_CM_EVENT_DISCONNECTED});
    EXPECT_EQ(int{CM_DEVICE_REMOVAL}, int{RDMA_CM_EVENT_DEVICE_REMOVAL});
}

} // namespace
