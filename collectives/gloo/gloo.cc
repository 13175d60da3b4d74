// Slices over libgloo (see gloo.h).
//
// Of libgloo this takes the transport: its thread, its queue of messages, its buffers. Connections
// come from the mesh. A pair of libgloo can only be made listening, on a port of its own; node_pair
// closes this port at once and puts the connection in its place. Until then, for some microseconds,
// the port is on a loopback address of 24 random bits, which no other machine reaches.
//
// libgloo checks what a peer sends in its own thread, where an exception would end the process.
// node_pair catches it there: the connection is at its end, like one that broke.
//
// The kernel wakes that thread for each packet of a slice, of 64 KB at most, which costs more than
// to copy it (docs/measurements.md). Within a slice node_pair asks for more at once: SO_RCVLOWAT.

#include "collectives/gloo/gloo.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/pair.h>
#include <gloo/transport/unbound_buffer.h>

namespace {

namespace tcp = gloo::transport::tcp;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr auto LOST = std::chrono::seconds(1),
               LEFT = std::chrono::seconds(5); // gloo.h says for what
constexpr auto WATCH = milliseconds(20);
constexpr size_t AT_ONCE_BYTES = 5 << 15; // measured: so three of the largest packets at a time

int64_t now_ns() {
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t); // that of td_mono_now
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// No signal reaches a thread that is made while this lives.
class no_signals {
  public:
    no_signals() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~no_signals() {
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }

  private:
    sigset_t before_;
};

// A broken connection raises no SIGPIPE in this thread.
class no_pipe_signal {
  public:
    no_pipe_signal() {
        sigset_t pending;
        sigemptyset(&pipe_);
        sigaddset(&pipe_, SIGPIPE);
        sigpending(&pending);
        was_pending_ = sigismember(&pending, SIGPIPE) == 1;
        pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
    }
    ~no_pipe_signal() {
        const struct timespec at_once = {0, 0};
        if (!was_pending_) (void)sigtimedwait(&pipe_, nullptr, &at_once);
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }

  private:
    sigset_t pipe_, before_;
    bool was_pending_;
};

// What the connections, the watching thread and the caller know of each other.
struct watch {
    std::mutex mutex;
    std::condition_variable changed;
    int lost = -1;      // the first node whose connection ended
    std::set<int> gone; // all of them
    steady_clock::time_point lost_at, waits_since;
    std::string why;
    bool waits = false;                              // the caller waits for a round
    gloo::transport::UnboundBuffer *slice = nullptr; // of which this one,
    int awaited = -1;                                // from or to that node
    bool stops = false;                              // nothing that ends from now on is lost
    bool aborted = false;                            // a call failed, or `aborted` said so

    void lose(int node, const std::string &what) {
        std::lock_guard<std::mutex> lock(mutex);
        if (stops) return;
        gone.insert(node);
        if (lost >= 0) return;
        lost = node;
        why = what;
        lost_at = steady_clock::now();
        changed.notify_all();
    }
    void stop() {
        std::lock_guard<std::mutex> lock(mutex);
        stops = true;
        changed.notify_all();
    }
    void wait(bool on) {
        std::lock_guard<std::mutex> lock(mutex);
        waits = on;
        waits_since = steady_clock::now();
        slice = nullptr;
    }
    void wait_for(gloo::transport::UnboundBuffer *next, size_t p) {
        std::lock_guard<std::mutex> lock(mutex);
        slice = next;
        awaited = (int)p;
    }
};

class node_pair : public tcp::Pair {
  public:
    node_pair(tcp::Context *context, tcp::Device *device, int node, milliseconds timeout, int fd,
              watch *w)
        : tcp::Pair(context, device, node, timeout), node_(node), watch_(w) {
        std::unique_lock<std::mutex> lock(m_);
        if (fd_ != -1) {
            device_->unregisterDescriptor(fd_, this);
            ::close(fd_);
        }
        fd_ = fd;
        ex_ = nullptr;
        try {
            handleConnected();
        } catch (...) { // libgloo would end the process over a descriptor that it has not watched
            fd_ = -1;
            throw;
        }
    }

    // libgloo's thread is out of this object before the part of it that is made here goes.
    ~node_pair() override {
        std::unique_lock<std::mutex> lock(m_);
        if (state_ != CLOSED) tcp::Pair::changeState(CLOSED);
    }

    void handleEvents(int events) override {
        await_lock();
        try {
            tcp::Pair::handleEvents(events);
        } catch (const std::exception &e) {
            (void)signalExceptionExternal(e.what());
        }
    }

  protected:
    void changeState(state next) noexcept override {
        if (next == CLOSED && state_ == CONNECTED) watch_->lose(node_, what());
        tcp::Pair::changeState(next);
    }

    void handleReadWrite(int events) override {
        tcp::Pair::handleReadWrite(events);
        if (state_ == CONNECTED) ask_for_rest();
    }

  private:
    std::string what() const noexcept {
        try {
            if (ex_) std::rethrow_exception(ex_);
        } catch (const std::exception &e) {
            return e.what();
        }
        return "its connection ended";
    }

    // The next event is for that many bytes, or for the connection's end; between slices, for one.
    void ask_for_rest() {
        const size_t head = sizeof rx_.preamble, whole = rx_.preamble.nbytes;
        const bool is_within = rx_.nread >= head && rx_.nread < whole;
        const int next = is_within ? (int)std::min(whole - rx_.nread, AT_ONCE_BYTES) : 1;
        if (next == asked_for_) return;
        if (!setsockopt(fd_, SOL_SOCKET, SO_RCVLOWAT, &next, sizeof next)) asked_for_ = next;
    }

    // libgloo's thread comes again and again, without a pause, while the caller writes and so has
    // the lock. Here it waits for it; not for long, since who closes a connection waits for this
    // thread with the lock in his hands.
    void await_lock() {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += 1000000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_sec++;
            until.tv_nsec -= 1000000000;
        }
        pthread_mutex_t *const lock = m_.native_handle();
        if (!pthread_mutex_clocklock(lock, CLOCK_MONOTONIC, &until)) pthread_mutex_unlock(lock);
    }

    const int node_;
    watch *const watch_;
    int asked_for_ = 1; // bytes
};

class node_context : public tcp::Context {
  public:
    // Sockets have no timeouts: callers give theirs. libgloo leaves this without a value.
    node_context(std::shared_ptr<tcp::Device> device, int node, int n_nodes)
        : tcp::Context(std::move(device), node, n_nodes) {
        setTimeout(milliseconds(0));
    }
    void adopt(int node, int fd, watch *w) {
        pairs_[(size_t)node].reset(new node_pair(this, device_.get(), node, getTimeout(), fd, w));
    }
    void end_all(const std::string &why) {
        signalException(why);
    }
};

// Whether this file sees an object of libgloo as libgloo does: one that it made has room for what
// is known here of a pair, and no more than the allocator rounds up.
void check_layout(node_context *context, int own) {
    auto &made = context->tcp::Context::createPair(own);
    const size_t there = malloc_usable_size(dynamic_cast<void *>(made.get()));
    made.reset();
    if (there >= sizeof(tcp::Pair) && there < sizeof(tcp::Pair) + 32) return;
    throw std::runtime_error("its objects have another layout than its headers say; rebuild traind "
                             "against the libgloo-dev of this libgloo");
}

std::shared_ptr<tcp::Device> make_device() {
    std::random_device random;
    const unsigned a = random();
    tcp::attr attr;
    attr.hostname = "127." + std::to_string(a & 255) + "." + std::to_string(a >> 8 & 255) + "." +
                    std::to_string(1 + (a >> 16 & 255) % 254);
    return std::make_shared<tcp::Device>(tcp::CreateDeviceAttr(attr));
}

} // namespace

struct td_gloo_round {
    std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> to, from; // by node; or none
};

struct td_gloo {
    td_gloo_config config;
    watch state;
    std::shared_ptr<node_context> context;
    std::thread watching;
};

namespace {

// Ends the connections when the attempt is over, or when a round waits though a node is gone.
void watch_rounds(td_gloo *g) {
    watch &w = g->state;
    std::unique_lock<std::mutex> lock(w.mutex);
    for (bool ended = false; !w.stops;) {
        w.changed.wait_for(lock, WATCH);
        if (ended && w.slice) { // libgloo wakes nobody whose slice had begun to come
            w.slice->abortWaitRecv();
            w.slice->abortWaitSend();
        }
        if (ended || w.stops) continue;
        if (!w.aborted && g->config.aborted) {
            lock.unlock();
            const bool over = g->config.aborted(g->config.aborted_arg);
            lock.lock();
            w.aborted = w.aborted || over;
        }
        const auto since = std::max(w.lost_at, w.waits_since);
        const auto limit = w.slice && w.gone.count(w.awaited) ? LOST : LEFT;
        const bool waits_in_vain = w.lost >= 0 && w.waits && steady_clock::now() - since >= limit;
        if (!w.aborted && !waits_in_vain) continue;
        ended = true;
        lock.unlock();
        g->context->end_all(w.aborted ? "the attempt is over" : "another node is gone");
        lock.lock();
    }
}

void end_all(td_gloo *g) {
    {
        std::lock_guard<std::mutex> lock(g->state.mutex);
        g->state.aborted = true;
        g->state.changed.notify_all();
    }
    try {
        g->context->end_all("the group was ended");
    } catch (const std::exception &) { // they are at their end then
    }
}

std::string name_of(const td_gloo *g, int node) {
    const std::string number = std::to_string(node);
    if (!g->config.names || !*g->config.names[node]) return number;
    return number + " (" + g->config.names[node] + ")";
}

// What the kernel says of a connection whose other machine does not answer.
bool is_silence(const std::string &why) {
    for (const int code : {ETIMEDOUT, EHOSTUNREACH, ENETUNREACH}) {
        if (why.find(std::strerror(code)) != std::string::npos) return true;
    }
    return false;
}

td_status fail_lost(const td_gloo *g, int node, const std::string &why) {
    const std::string name = name_of(g, node);
    td_status s =
        is_silence(why)
            ? td_fail(TD_ABORTED,
                      "node %s is gone, the attempt is over: its machine does not answer any more, "
                      "or its rank takes nothing; look at the host, the network between, and its "
                      "log (%s)",
                      name.c_str(), why.c_str())
            : td_fail(TD_ABORTED,
                      "node %s is gone, the attempt is over; its own error says why (%s)",
                      name.c_str(), why.c_str());
    return td_status_with_meta(td_status_with_reason(s, "COLLECTIVE_ABORTED"), "lost_node", "%d",
                               node);
}

// What the kernel knows of a connection's end, else what libgloo says.
std::string ended_by(int fd, const char *what) {
    int error = 0;
    socklen_t bytes = sizeof error;
    const bool is_known = getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 && error;
    return is_known ? std::strerror(error) : what;
}

td_status fail(td_gloo *g, int node, const char *what, bool is_late) {
    bool aborted;
    int lost;
    std::string why;
    {
        std::lock_guard<std::mutex> lock(g->state.mutex);
        aborted = g->state.aborted;
        lost = g->state.lost;
        why = lost >= 0 ? g->state.why : what;
    }
    td_status s;
    if (aborted) {
        s = td_fail(TD_ABORTED, "a peer is gone, the attempt is over");
        s = td_status_with_reason(s, "COLLECTIVE_ABORTED");
    } else if (is_late) {
        s = td_fail(TD_DEADLINE_EXCEEDED,
                    "node %s did not send or take its part in time; see its log",
                    name_of(g, node).c_str());
        s = td_status_with_meta(td_status_with_reason(s, "COLLECTIVE_TIMEOUT"), "missing_nodes",
                                "%d", node);
    } else {
        s = fail_lost(g, lost >= 0 ? lost : node, why);
    }
    end_all(g);
    return td_status_with_class(s, TD_CLASS_COLLECTIVE);
}

void came(bool is_whole) {
    if (!is_whole) throw std::runtime_error("the connections were ended within a slice");
}

milliseconds left_of(int64_t deadline_ns) {
    return milliseconds(std::max<int64_t>((deadline_ns - now_ns() + 999999) / 1000000, 1));
}

// This process has no memory, or no thread; no other node is to blame.
bool is_lack(const std::exception &e) {
    const auto *system = dynamic_cast<const std::system_error *>(&e);
    return dynamic_cast<const std::bad_alloc *>(&e) ||
           (system && (system->code() == std::errc::resource_unavailable_try_again ||
                       system->code() == std::errc::not_enough_memory));
}

td_status fail_lack(const std::exception &e) {
    return td_fail(TD_RESOURCE_EXHAUSTED,
                   "no memory or thread for connections between nodes: %s; raise "
                   "resources.memory_bytes, or let the node have more threads",
                   e.what());
}

} // namespace

td_status td_gloo_create(const td_gloo_config *config, const int *take_fds, td_gloo **out_g) {
    int next = 0;
    bool adopts = false;
    td_gloo *g = nullptr;
    try {
        no_signals quiet;
        g = new td_gloo{};
        g->config = *config;
        g->context = std::make_shared<node_context>(make_device(), config->node, config->n_nodes);
        check_layout(g->context.get(), config->node);
        adopts = true;
        for (; next < config->n_nodes; next++) {
            const int p = next;
            if (p == config->node) continue;
            g->context->adopt(p, take_fds[p], &g->state);
        }
        adopts = false;
        g->watching = std::thread(watch_rounds, g);
        *out_g = g;
        return TD_OK;
    } catch (const std::exception &e) {
        td_status s = nullptr;
        if (is_lack(e)) {
            s = fail_lack(e);
        } else if (adopts) {
            s = fail_lost(g, next, ended_by(take_fds[next], e.what()));
            s = td_status_with_class(s, TD_CLASS_COLLECTIVE);
        } else {
            s = td_fail(TD_INTERNAL, "libgloo: %s", e.what());
        }
        for (; next < config->n_nodes; next++) {
            if (take_fds[next] >= 0) ::close(take_fds[next]);
        }
        td_gloo_destroy(g);
        return s;
    }
}

td_status td_gloo_begin(td_gloo *g, uint64_t tag, const td_gloo_slice *to,
                        const td_gloo_slice *from, td_gloo_round **out_round) {
    int p = 0;
    td_gloo_round *round = nullptr;
    try {
        no_pipe_signal quiet;
        const int n = g->config.n_nodes;
        round = new td_gloo_round{};
        round->to.resize((size_t)n);
        round->from.resize((size_t)n);
        // What is sent first: the peer's answer to it is then written by the thread of libgloo.
        // This one would hold the connection while it writes, and that one ask for it without a
        // pause.
        for (p = 0; p < n; p++) {
            if (p == g->config.node || !to[p].bytes) continue;
            auto &b = round->to[(size_t)p];
            b = g->context->createUnboundBuffer(to[p].data, to[p].bytes);
            b->send(p, tag, 0, to[p].bytes);
        }
        for (p = 0; p < n; p++) {
            if (p == g->config.node || !from[p].bytes) continue;
            auto &b = round->from[(size_t)p];
            b = g->context->createUnboundBuffer(from[p].data, from[p].bytes);
            b->recv(p, tag, 0, from[p].bytes);
        }
        *out_round = round;
        return TD_OK;
    } catch (const std::exception &e) {
        const bool lacks = is_lack(e);
        td_status s = lacks ? fail_lack(e) : fail(g, p, e.what(), false);
        if (lacks) end_all(g);
        delete round;
        return s;
    }
}

td_status td_gloo_end(td_gloo *g, td_gloo_round *take_round, int64_t deadline_ns) {
    if (!take_round) return TD_OK;
    std::unique_ptr<td_gloo_round> round(take_round);
    size_t p = 0;
    td_status s = TD_OK;
    g->state.wait(true);
    try {
        for (p = 0; p < round->from.size(); p++) {
            if (!round->from[p]) continue;
            g->state.wait_for(round->from[p].get(), p);
            came(round->from[p]->waitRecv(nullptr, left_of(deadline_ns)));
        }
        for (p = 0; p < round->to.size(); p++) {
            if (!round->to[p]) continue;
            g->state.wait_for(round->to[p].get(), p);
            came(round->to[p]->waitSend(nullptr, left_of(deadline_ns)));
        }
    } catch (const std::exception &e) {
        s = fail(g, (int)p, e.what(), now_ns() >= deadline_ns);
    }
    g->state.wait(false);
    return s;
}

void td_gloo_drop(td_gloo_round *take_round) {
    delete take_round;
}

void td_gloo_destroy(td_gloo *g) {
    if (!g) return;
    g->state.stop();
    if (g->watching.joinable()) g->watching.join();
    g->context.reset();
    delete g;
}
