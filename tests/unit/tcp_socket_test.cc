// Tests of the frames of the TCP wire and of its sockets, without a NIC.
#include "transport/proxy/tcp/frame.h"
#include "transport/tcp_endpoint.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

TEST(TcpFrame, ChecksumIsCrc32c)
{
    EXPECT_EQ(swl_crc32c(0, "123456789", 9), 0xe3069283u);
    EXPECT_EQ(swl_crc32c(swl_crc32c(0, "1234", 4), "56789", 5), 0xe3069283u);
}

TEST(TcpFrame, EveryChangedBitIsNoticed)
{
    alignas(8) uint8_t bytes[sizeof(struct tcp_frame) + 16] = {};
    struct tcp_frame *f = reinterpret_cast<struct tcp_frame *>(bytes), seen;

    f->bytes = 13;
    f->kind = TCP_WRITE;
    swl_tcp_seal(f, 3);
    EXPECT_EQ(swl_tcp_look(bytes, sizeof(bytes), 3, &seen), TCP_LOOK_FRAME);
    EXPECT_EQ(swl_tcp_look(bytes, sizeof(bytes), 4, &seen), TCP_LOOK_DAMAGED);
    for (size_t n = 0; n < sizeof(bytes); n++)
        EXPECT_EQ(swl_tcp_look(bytes, n, 3, &seen), TCP_LOOK_MORE);
    for (size_t bit = 0; bit < 8 * sizeof(bytes); bit++) {
        bytes[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
        EXPECT_NE(swl_tcp_look(bytes, sizeof(bytes), 3, &seen), TCP_LOOK_FRAME) << bit;
        bytes[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
    }
}

// A timer or a child of the application does not make a peer unreachable.
TEST(TcpSocket, SignalsDoNotEndConnecting)
{
    struct sigaction counted = {}, before;
    struct tcp_endpoint place;
    struct tcp_why why = {};
    const pthread_t me = pthread_self();
    int listener, fds[2];
    uint32_t stop = 0;

    memset(&place, 0, sizeof(place));
    place.at.v4.sin_family = AF_INET;
    place.at.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listener = swl_tcp_listen(&place, &why);
    ASSERT_GE(listener, 0) << why.text;
    ASSERT_EQ(listen(listener, 0), 0); // room for one, who is not accepted
    counted.sa_handler = [](int) {};
    ASSERT_EQ(sigaction(SIGUSR1, &counted, &before), 0);
    fds[0] = swl_tcp_connect(&place, 60000000000ull, &why);
    EXPECT_GE(fds[0], 0) << why.text;
    std::thread signals([&] {
        while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
            usleep(20000);
            pthread_kill(me, SIGUSR1);
        }
    });
    fds[1] = swl_tcp_connect(&place, 300000000ull, &why);
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    signals.join();
    EXPECT_EQ(fds[1], -1);
    EXPECT_NE(strstr(why.text, "timed out"), nullptr) << why.text;
    ASSERT_EQ(sigaction(SIGUSR1, &before, nullptr), 0);
    close(fds[0]);
    close(listener);
}
