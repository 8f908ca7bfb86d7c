/* gpu_cuda_fd_test.cc: descriptors change hands between processes. Needs no GPU. */
#include "src/runtime/cuda/driver.h"
#include "tests/support/attack.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace
{

int file_with(const char *text)
{
    const int fd = memfd_create("test", MFD_CLOEXEC);

    EXPECT_EQ(write(fd, text, strlen(text)), static_cast<ssize_t>(strlen(text)));
    return fd;
}

bool holds(int fd, const char *text)
{
    char bytes[64] = {};

    return pread(fd, bytes, sizeof(bytes) - 1, 0) == static_cast<ssize_t>(strlen(text)) &&
           strcmp(bytes, text) == 0;
}

TEST(Descriptors, AreFetchedByIdUntilTheyAreWithdrawn)
{
    const uint64_t me = swl_gpu_process_id();
    const int one = file_with("one"), two = file_with("two");
    int fd = -1;

    ASSERT_EQ(swl_fd_export(1, one), cudaSuccess);
    ASSERT_EQ(swl_fd_export(2, two), cudaSuccess);
    ASSERT_EQ(swl_fd_fetch(me, 2, &fd), cudaSuccess);
    EXPECT_NE(fd, two);
    EXPECT_TRUE(holds(fd, "two"));
    close(fd);
    EXPECT_NE(swl_fd_fetch(me, 3, &fd), cudaSuccess);
    swl_fd_withdraw(2);
    EXPECT_NE(swl_fd_fetch(me, 2, &fd), cudaSuccess);
    ASSERT_EQ(swl_fd_fetch(me, 1, &fd), cudaSuccess);
    EXPECT_TRUE(holds(fd, "one"));
    close(fd);
    swl_fd_withdraw(1);
    EXPECT_NE(swl_fd_fetch(me, 1, &fd), cudaSuccess);
    ASSERT_EQ(swl_fd_export(1, one), cudaSuccess); /* the service starts again */
    ASSERT_EQ(swl_fd_fetch(me, 1, &fd), cudaSuccess);
    close(fd);
    swl_fd_withdraw(1);
    close(one);
    close(two);
}

TEST(Descriptors, AreFetchedByAnotherProcess)
{
    const uint64_t owner = swl_gpu_process_id();
    const int file = file_with("hello");
    int status = -1;

    ASSERT_EQ(swl_fd_export(7, file), cudaSuccess);
    const pid_t child = fork();
    if (child == 0) {
        int fd = -1;

        _exit(swl_fd_fetch(owner, 7, &fd) == cudaSuccess && holds(fd, "hello") ? 0 : 1);
    }
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    swl_fd_withdraw(7);
    close(file);
}

TEST(Descriptors, D_E1GoToTheSameUserOnly)
{
    const uint64_t owner = swl_gpu_process_id();
    const int file = file_with("hello");

    attack::on_own_host([&] {
        ASSERT_EQ(swl_fd_export(7, file), cudaSuccess);
        attack::Nobody nobody([&](attack::Nobody &me) {
            int fd = -1;

            for (const attack::Listener &l : attack::listeners())
                close(attack::call(l)); /* anybody may */
            me.say(swl_fd_fetch(owner, 7, &fd) == cudaSuccess ? 'y' : 'n');
        });
        EXPECT_EQ(nobody.hear(), 'n');
        swl_fd_withdraw(7);
    });
    close(file);
}

/* Answers everybody who asks the process `owner`, with a descriptor of its own. */
void answer_for(uint64_t owner, attack::Nobody &me)
{
    sockaddr_un at = {};
    char byte = 1;
    iovec part = {&byte, 1};
    msghdr m = {};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    const int listener = socket(AF_UNIX, SOCK_STREAM, 0), file = file_with("hello");

    at.sun_family = AF_UNIX;
    const int n = snprintf(at.sun_path + 1, sizeof(at.sun_path) - 1, "swimlane-%016llx",
                           static_cast<unsigned long long>(owner));
    const bool listens =
        bind(listener, reinterpret_cast<sockaddr *>(&at),
             static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + n)) == 0 &&
        listen(listener, 8) == 0;

    m.msg_iov = &part;
    m.msg_iovlen = 1;
    m.msg_control = control;
    m.msg_controllen = sizeof(control);
    cmsghdr *header = CMSG_FIRSTHDR(&m);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &file, sizeof(file));
    me.say(listens ? 'y' : 'n');
    for (;;) {
        const int fd = accept(listener, nullptr, nullptr);

        (void)!sendmsg(fd, &m, MSG_NOSIGNAL);
        close(fd);
    }
}

/* Somebody else has the name: what he offers is not taken for memory of the process. */
TEST(Descriptors, D_E1AreTakenFromTheSameUserOnly)
{
    const uint64_t owner = 0x1234567812345678ull;

    attack::on_own_host([owner] {
        attack::Nobody nobody([owner](attack::Nobody &me) { answer_for(owner, me); });
        int fd = -1;

        EXPECT_EQ(nobody.hear(), 'y');
        EXPECT_EQ(swl_fd_fetch(owner, 7, &fd), cudaErrorOperatingSystem);
    });
}

TEST(Descriptors, OfNobodyAreRefusedAtOnce)
{
    int fd = -1;

    EXPECT_EQ(swl_fd_fetch(0x0123456789abcdefull, 1, &fd), cudaErrorOperatingSystem);
}

} // namespace
