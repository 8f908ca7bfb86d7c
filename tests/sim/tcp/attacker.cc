// attacker.cc: user nobody on a host of tcp_hosts.sh, who tries all he can at every port that he
// finds, until he is killed. Usage: attacker NAMESPACE. Layer: tests.
#include "tests/support/attack.h"
#include "tests/support/tcp_namespace.h"
#include "transport/control_internal.h"

using namespace attack;

namespace
{

const size_t most_open = 600;

// What one call says: nothing, rubbish, or that it is a rank, with what can be read for a secret.
std::string word_of(uint64_t number, const std::vector<std::vector<uint8_t>> &secrets)
{
    if (number % 3 == 0)
        return "";
    if (number % 3 == 1)
        return "GET / HTTP/1.0\r\n\r\n";
    swl_control_message m = {};
    const std::vector<uint8_t> &secret = secrets[number / 12 % secrets.size()];

    m.magic = CONTROL_MAGIC;
    m.kind = SWL_CONTROL_HELLO;
    m.from = static_cast<uint16_t>(number / 3 % 4);
    memcpy(m.bytes, secret.data(), 16);
    return std::string(reinterpret_cast<const char *>(&m), sizeof(m));
}

} // namespace

int main(int argc, char **argv)
{
    std::vector<int> open;
    uint64_t number = 0;

    if (argc != 2 || enter_host(argv[1], 0) != 0)
        return 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    if (!become_nobody())
        return 2;
    for (;;) {
        std::vector<std::vector<uint8_t>> secrets = {std::vector<uint8_t>(16, 0)};
        const std::vector<Listener> all = listeners();

        for (const Listener &l : all)
            if (l.family == AF_UNIX && l.name.rfind("swimlane-", 0) == 0)
                secrets.push_back(unhex(l.name.substr(9), 16));
        for (const Listener &l : all)
            for (int i = 0; i < 100; i++) {
                const std::string word = word_of(number++, secrets);
                const int fd = call(l);

                if (fd < 0)
                    break;
                (void)!send(fd, word.data(), word.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
                open.push_back(fd);
            }
        for (size_t n = open.size(); n > most_open; n = open.size()) {
            close(open.front());
            open.erase(open.begin());
        }
        usleep(1000);
    }
}
