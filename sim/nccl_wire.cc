/* nccl_wire.cc: ranks of other processes at a hub, over TCP on 127.0.0.1.
 *
 * One listener per process, one connection per remote rank. A connection says who it is within
 * hello_seconds or is closed; so is one whose first bytes are wrong. In the hub's process a
 * thread per connection hands in the parts of its rank and sends the answers; in the rank's
 * process one thread sends and one receives. Both ends are the same build: numbers travel in host
 * order. */
#include "sim/nccl_hub.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <thread>
#include <utility>

namespace swl_sim
{

namespace
{

const int hello_seconds = 3, frame_seconds = 20, poll_ms = 1;
const uint64_t max_part_bytes = 1ull << 30;

struct hello {
    char magic[8];
    uint64_t key, parent; /* parent: of a split, else 0 */
    int32_t rank, nranks;
};
const char hello_magic[8] = {'s', 'w', 'l', 'w', 'i', 'r', 'e', '1'};

struct arrival {
    uint64_t number;
    call_shape shape;
    uint64_t bytes;
};

struct answer {
    uint64_t number, state, nparts; /* nparts times: u64 bytes, then the bytes */
};

bool send_all(int fd, const void *data, size_t n)
{
    const char *at = static_cast<const char *>(data);

    while (n > 0) {
        ssize_t done = send(fd, at, n, MSG_NOSIGNAL);
        if (done <= 0)
            return false;
        at += done;
        n -= (size_t)done;
    }
    return true;
}

bool receive_all(int fd, void *data, size_t n)
{
    char *at = static_cast<char *>(data);

    while (n > 0) {
        ssize_t done = recv(fd, at, n, 0);
        if (done <= 0)
            return false;
        at += done;
        n -= (size_t)done;
    }
    return true;
}

void limit(int fd, int seconds)
{
    timeval t = {seconds, 0};
    int on = 1;

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

bool receive_part(int fd, bytes *part, uint64_t n)
{
    if (n > max_part_bytes)
        return false;
    part->resize(n);
    return n == 0 || receive_all(fd, part->data(), n);
}

bool send_answer(int fd, uint64_t number, const call &c)
{
    uint64_t state = c.state.load(std::memory_order_acquire);
    answer a = {number, state, state == call_complete ? c.parts.size() : 0};

    if (!send_all(fd, &a, sizeof(a)))
        return false;
    for (uint64_t r = 0; r < a.nparts; r++) {
        uint64_t n = c.parts[r].size();
        if (!send_all(fd, &n, sizeof(n)) || !send_all(fd, c.parts[r].data(), n))
            return false;
    }
    return true;
}

/* Answer the calls that have been settled. */
bool send_answers(int fd, std::map<uint64_t, std::shared_ptr<call>> *open)
{
    for (auto it = open->begin(); it != open->end();) {
        if (it->second->state.load(std::memory_order_acquire) == call_open) {
            ++it;
            continue;
        }
        if (!send_answer(fd, it->first, *it->second))
            return false;
        it = open->erase(it);
    }
    return true;
}

/* The hub's side of one remote rank, until it hangs up. */
void serve_rank(int fd, hub *h, int rank)
{
    std::map<uint64_t, std::shared_ptr<call>> open;

    for (;;) {
        pollfd p = {fd, POLLIN, 0};
        int ready = poll(&p, 1, open.empty() ? 1000 : poll_ms);
        arrival a;
        bytes part;
        if (ready < 0)
            return;
        if (ready > 0) {
            if (!receive_all(fd, &a, sizeof(a)) || !receive_part(fd, &part, a.bytes))
                return;
            open[a.number] = hub_arrive(h, rank, a.number, a.shape, std::move(part));
        }
        if (!send_answers(fd, &open))
            return;
    }
}

std::shared_ptr<hub> hub_of(const hello &who)
{
    if (who.parent == 0)
        return hub_find(who.key);
    return hub_find(who.parent) ? hub_child(who.key) : nullptr;
}

void serve_connection(int fd)
{
    hello who;

    limit(fd, hello_seconds);
    if (receive_all(fd, &who, sizeof(who)) && memcmp(who.magic, hello_magic, 8) == 0) {
        std::shared_ptr<hub> h = hub_of(who);
        uint64_t ok = h && who.nranks > 0 && hub_attach(h.get(), who.rank, who.nranks, true);
        limit(fd, frame_seconds);
        if (send_all(fd, &ok, sizeof(ok)) && ok)
            serve_rank(fd, h.get(), who.rank);
        if (ok)
            hub_leave(h.get(), who.rank, true);
    }
    close(fd);
}

void serve_listener(int listener)
{
    for (;;) {
        int fd = accept(listener, nullptr, nullptr);
        if (fd >= 0)
            std::thread(serve_connection, fd).detach();
        else
            usleep(1000); /* out of descriptors, or a connection that vanished */
    }
}

int open_listener(uint16_t *port)
{
    sockaddr_in at = {};
    socklen_t n = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(fd, (sockaddr *)&at, n) != 0 || listen(fd, 128) != 0 ||
        getsockname(fd, (sockaddr *)&at, &n) != 0) {
        close(fd);
        return -1;
    }
    *port = ntohs(at.sin_port);
    return fd;
}

/* A rank's side. The threads hold it as long as they run. */
struct connection {
    int fd = -1;
    std::mutex lock;
    std::condition_variable filled;
    std::deque<bytes> outgoing;
    std::map<uint64_t, std::shared_ptr<call>> open;
    bool ended = false;

    ~connection()
    {
        if (fd >= 0)
            close(fd);
    }
};

void end_connection(connection *c)
{
    std::lock_guard<std::mutex> hold(c->lock);

    c->ended = true;
    for (const auto &entry : c->open)
        entry.second->state.store(call_peer_gone, std::memory_order_release);
    c->open.clear();
    shutdown(c->fd, SHUT_RDWR);
    c->filled.notify_all();
}

void send_loop(const std::shared_ptr<connection> &c)
{
    for (;;) {
        bytes frame;
        {
            std::unique_lock<std::mutex> hold(c->lock);
            c->filled.wait(hold, [&c] { return c->ended || !c->outgoing.empty(); });
            if (c->ended)
                return;
            frame = std::move(c->outgoing.front());
            c->outgoing.pop_front();
        }
        if (!send_all(c->fd, frame.data(), frame.size()))
            return end_connection(c.get());
    }
}

bool receive_answer(connection *c)
{
    answer a;

    if (!receive_all(c->fd, &a, sizeof(a)) || a.nparts > 1u << 20)
        return false;
    std::vector<bytes> parts(a.nparts);
    for (bytes &part : parts) {
        uint64_t n;
        if (!receive_all(c->fd, &n, sizeof(n)) || !receive_part(c->fd, &part, n))
            return false;
    }
    std::lock_guard<std::mutex> hold(c->lock);
    auto found = c->open.find(a.number);
    if (found == c->open.end())
        return false;
    found->second->parts = std::move(parts);
    /* release: the parts, before whoever waits for the state */
    found->second->state.store(a.state, std::memory_order_release);
    c->open.erase(found);
    return true;
}

void receive_loop(const std::shared_ptr<connection> &c)
{
    while (receive_answer(c.get()))
        ;
    end_connection(c.get());
}

struct remote_link : hub_link {
    std::shared_ptr<connection> c;
    uint16_t port = 0;
    uint64_t key = 0;

    ~remote_link() override
    {
        end_connection(c.get());
    }
    std::shared_ptr<call> arrive(uint64_t number, const call_shape &shape, bytes part) override
    {
        auto made = std::make_shared<call>();
        arrival a = {number, shape, part.size()};
        const unsigned char *head = reinterpret_cast<const unsigned char *>(&a);
        bytes frame(head, head + sizeof(a));

        frame.insert(frame.end(), part.begin(), part.end());
        std::lock_guard<std::mutex> hold(c->lock);
        if (c->ended) {
            made->state.store(call_peer_gone, std::memory_order_release);
            return made;
        }
        c->open[number] = made;
        c->outgoing.push_back(std::move(frame));
        c->filled.notify_one();
        return made;
    }
    void leave() override
    {
        end_connection(c.get());
    }
    std::unique_ptr<hub_link> child(uint64_t child_key, int rank, int nranks) override
    {
        return link_remote(port, child_key, key, rank, nranks);
    }
    bool remote() const override
    {
        return true;
    }
    int serves() const override
    {
        return 0;
    }
};

int connect_to(uint16_t port)
{
    sockaddr_in at = {};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons(port);
    limit(fd, frame_seconds);
    if (connect(fd, (sockaddr *)&at, sizeof(at)) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

} // namespace

std::unique_ptr<hub_link> link_remote(uint16_t port, uint64_t key, uint64_t parent, int rank,
                                      int nranks)
{
    auto c = std::make_shared<connection>();
    hello who = {};
    uint64_t ok = 0;

    memcpy(who.magic, hello_magic, sizeof(who.magic));
    who.key = key;
    who.parent = parent;
    who.rank = rank;
    who.nranks = nranks;
    c->fd = connect_to(port);
    if (c->fd < 0 || !send_all(c->fd, &who, sizeof(who)) || !receive_all(c->fd, &ok, sizeof(ok)) ||
        ok != 1)
        return nullptr;
    limit(c->fd, 0); /* from now on an answer takes as long as the slowest rank */
    std::thread([c] { send_loop(c); }).detach();
    std::thread([c] { receive_loop(c); }).detach();
    auto made = std::make_unique<remote_link>();
    made->c = c;
    made->port = port;
    made->key = key;
    return made;
}

uint16_t wire_port()
{
    static std::mutex lock;
    static uint16_t port = 0;
    static pid_t of_process = 0; /* a child made by fork has no listener thread */
    std::lock_guard<std::mutex> hold(lock);

    if (port == 0 || of_process != getpid()) {
        int fd = open_listener(&port);
        if (fd < 0)
            return 0;
        of_process = getpid();
        std::thread(serve_listener, fd).detach();
    }
    return port;
}

} // namespace swl_sim
