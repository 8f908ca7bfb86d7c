/* gpu_cuda_fd_test.cc: descriptors change hands between processes. Needs no GPU. */
#include "src/gpu_cuda_driver.h"

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

    ASSERT_EQ(swl_fd_offer(1, one), cudaSuccess);
    ASSERT_EQ(swl_fd_offer(2, two), cudaSuccess);
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
    ASSERT_EQ(swl_fd_offer(1, one), cudaSuccess); /* the service starts again */
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

    ASSERT_EQ(swl_fd_offer(7, file), cudaSuccess);
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

TEST(Descriptors, OfNobodyAreRefusedAtOnce)
{
    int fd = -1;

    EXPECT_EQ(swl_fd_fetch(0x0123456789abcdefull, 1, &fd), cudaErrorOperatingSystem);
}

} // namespace
