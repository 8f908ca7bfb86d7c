// attack.h: a host of its own for a test (a network namespace), and another user on it. Layer:
// tests. Needs root, as in CI; elsewhere the tests are skipped and say so.
#ifndef SWL_ATTACK_H
#define SWL_ATTACK_H

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace attack
{

const int no_namespace = 77;
const uid_t nobody_uid = 65534;

// The calling thread is user nobody from now on. As the kernel has it: glibc would ask all threads
// of the process, among them one of TSan's that a child does not have.
inline bool become_nobody()
{
    return syscall(SYS_setgroups, 0, nullptr) == 0 &&
           syscall(SYS_setresgid, nobody_uid, nobody_uid, nobody_uid) == 0 &&
           syscall(SYS_setresuid, nobody_uid, nobody_uid, nobody_uid) == 0;
}

inline bool loopback_up()
{
    ifreq r = {};
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool ok;

    strcpy(r.ifr_name, "lo");
    ok = fd >= 0 && ioctl(fd, SIOCGIFFLAGS, &r) == 0;
    r.ifr_flags |= IFF_UP;
    ok = ok && ioctl(fd, SIOCSIFFLAGS, &r) == 0;
    close(fd);
    return ok;
}

// `body` in a process of its own, which is alone on its host as far as the network is concerned.
inline void on_own_host(const std::function<void()> &body)
{
    int status = 0;

    fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (geteuid() != 0 || unshare(CLONE_NEWNET) != 0 || !loopback_up())
            _exit(no_namespace);
        body();
        fflush(nullptr);
        _exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    ASSERT_EQ(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == no_namespace) {
        const char *ci = getenv("CI");

        ASSERT_FALSE(ci && strcmp(ci, "true") == 0) << "network namespaces cannot be made here";
        GTEST_SKIP() << "network namespaces need root";
    }
    EXPECT_EQ(status, 0) << "seen in the process of the test";
}

// A process of user nobody, on the host of the caller.
class Nobody
{
  public:
    explicit Nobody(const std::function<void(Nobody &)> &body)
    {
        if (pipe(word) != 0)
            abort();
        child = fork();
        if (child != 0) {
            close(word[1]); // so that the end of the child is heard
            return;
        }
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGPIPE, SIG_IGN);
        if (!become_nobody())
            _exit(1);
        body(*this);
        say('.');
        pause();
    }
    ~Nobody()
    {
        kill(child, SIGKILL);
        waitpid(child, nullptr, 0);
        close(word[0]);
    }
    void say(char c)
    {
        (void)!write(word[1], &c, 1);
    }
    // What the attacker has said next; '.' when it has nothing more to do.
    char hear()
    {
        char c = 0;

        (void)!read(word[0], &c, 1);
        return c;
    }

  private:
    pid_t child = -1;
    int word[2] = {-1, -1};
};

// Everything anybody can read about who listens on this host.
struct Listener {
    int family;
    std::string name; // AF_UNIX: without the zero byte
    uint32_t ip = 0;
    uint16_t port = 0;
};

inline std::vector<Listener> listeners()
{
    std::vector<Listener> all;
    char line[512], name[256];
    unsigned ip, port, state;

    if (FILE *f = fopen("/proc/net/unix", "r")) {
        while (fgets(line, sizeof(line), f))
            if (sscanf(line, "%*s %*s %*s 00010000 %*s %*s %*s @%255s", name) == 1)
                all.push_back({AF_UNIX, name});
        fclose(f);
    }
    if (FILE *f = fopen("/proc/net/tcp", "r")) {
        while (fgets(line, sizeof(line), f))
            if (sscanf(line, " %*d: %8x:%4x %*x:%*x %2x", &ip, &port, &state) == 3 && state == 10)
                all.push_back({AF_INET, "", ip, static_cast<uint16_t>(port)});
        fclose(f);
    }
    return all;
}

// A connection, blocking; -1: none soon.
inline int call(const Listener &l)
{
    const int fd = socket(l.family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const timeval patience = {0, 200000}; // of connect, too
    sockaddr_un un = {};
    sockaddr_in in = {};
    int rc;

    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    if (l.family == AF_UNIX) {
        un.sun_family = AF_UNIX;
        memcpy(un.sun_path + 1, l.name.data(), l.name.size());
        rc = connect(fd, reinterpret_cast<sockaddr *>(&un),
                     static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + l.name.size()));
    } else {
        in.sin_family = AF_INET;
        in.sin_addr.s_addr = l.ip;
        in.sin_port = htons(l.port);
        rc = connect(fd, reinterpret_cast<sockaddr *>(&in), sizeof(in));
    }
    if (rc == 0)
        return fd;
    close(fd);
    return -1;
}

// `n` bytes, zeros behind what there is.
inline std::vector<uint8_t> unhex(const std::string &text, size_t n)
{
    std::vector<uint8_t> bytes;

    for (size_t i = 0; i + 1 < text.size(); i += 2)
        bytes.push_back(static_cast<uint8_t>(strtoul(text.substr(i, 2).c_str(), nullptr, 16)));
    bytes.resize(n);
    return bytes;
}

} // namespace attack

#endif
