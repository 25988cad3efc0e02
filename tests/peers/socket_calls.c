/* Random sequences of socket calls, all ends in one process. What each call answers is printed; it depends on the
 * seed and on the stack alone, so two stacks can be compared line by line. After each call the sequence waits until
 * nothing moves any more, because what a call finds must not depend on speed.
 *
 * With THREADS, so many threads sleep in epoll sets of their own meanwhile. Which thread is woken for which socket is
 * printed, before any other call about sockets could have had that effect.
 *
 * With ADDRESS6, most sockets are of IPv6: for both families, for IPv6 alone, bound and connected to addresses of IPv6
 * and to mapped ones of IPv4.
 *
 * usage: socket_calls ADDRESS FIRST_SEED COUNT QUIET_MICROSECONDS [THREADS [ADDRESS6]]
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* Sequences with an odd seed make all calls by number, through the C library's syscall(). */
static int by_number;
#define CALL(function, number, ...) (by_number ? syscall(number, __VA_ARGS__) : (long)(function)(__VA_ARGS__))
#define socket(...) (int)CALL(socket, SYS_socket, __VA_ARGS__)
#define bind(...) CALL(bind, SYS_bind, __VA_ARGS__)
#define listen(...) CALL(listen, SYS_listen, __VA_ARGS__)
#define connect(...) CALL(connect, SYS_connect, __VA_ARGS__)
#define accept4(...) (int)CALL(accept4, SYS_accept4, __VA_ARGS__)
#define send(fd, at, size, flags) \
    (by_number ? syscall(SYS_sendto, fd, at, size, flags, NULL, 0) : (send)(fd, at, size, flags))
#define recv(fd, at, size, flags) \
    (by_number ? syscall(SYS_recvfrom, fd, at, size, flags, NULL, NULL) : (recv)(fd, at, size, flags))
#define writev(...) CALL(writev, SYS_writev, __VA_ARGS__)
#define readv(...) CALL(readv, SYS_readv, __VA_ARGS__)
#define sendmsg(...) CALL(sendmsg, SYS_sendmsg, __VA_ARGS__)
#define recvmsg(...) CALL(recvmsg, SYS_recvmsg, __VA_ARGS__)
#define close(...) CALL(close, SYS_close, __VA_ARGS__)
#define shutdown(...) CALL(shutdown, SYS_shutdown, __VA_ARGS__)
#define getsockname(...) CALL(getsockname, SYS_getsockname, __VA_ARGS__)
#define getpeername(...) CALL(getpeername, SYS_getpeername, __VA_ARGS__)
#define getsockopt(...) CALL(getsockopt, SYS_getsockopt, __VA_ARGS__)
#define setsockopt(...) CALL(setsockopt, SYS_setsockopt, __VA_ARGS__)
#define dup(...) (int)CALL(dup, SYS_dup, __VA_ARGS__)
#define fcntl(...) CALL(fcntl, SYS_fcntl, __VA_ARGS__)
#define ioctl(...) CALL(ioctl, SYS_ioctl, __VA_ARGS__)
#define epoll_create1(...) (int)CALL(epoll_create1, SYS_epoll_create1, __VA_ARGS__)
#define epoll_ctl(...) CALL(epoll_ctl, SYS_epoll_ctl, __VA_ARGS__)
/* Some machines have only those with more arguments. */
#define poll(fds, count, time) \
    (by_number ? (int)syscall(SYS_ppoll, fds, (long)(count), &(struct timespec){0}, NULL, 8L) : (poll)(fds, count, time))
#define epoll_wait(set, at, most, time) \
    (by_number ? (int)syscall(SYS_epoll_pwait, set, at, most, time, NULL, 8L) : (epoll_wait)(set, at, most, time))

enum { SLOTS = 8, MOST = 20000, CALLS = 28, IN_FLIGHT = 60000, LOOKS = 8, MOST_SLEEPERS = 4 };

/* A connection's two directions are numbered by the sender; bytes in flight stay below what any stack buffers. */
struct slot {
    int fd;
    int file;       /* which socket: descriptors that dup made share it */
    int port;       /* own port, network order, once bound or connected */
    int line;       /* connection, 0 for none */
    int end;        /* which end of it */
    int shut;       /* a direction was shut down */
    int v6;         /* AF_INET6 */
    int was_mapped; /* connects to addresses of IPv4 only */
};

static struct slot slots[SLOTS];
static int in_flight[2][64];
static unsigned sent[2][64];
static int lines, files, set;
static uint64_t state;
static struct in_addr here;
static struct in6_addr here6;
static int speaks_6;
static long quiet;
static unsigned char bytes[MOST];
/* Two pages, of which the second cannot be touched, and two, of which the second can only be read. */
static unsigned char *edge, *constant;

/* splitmix64 */
static unsigned below(unsigned limit) {
    uint64_t z = (state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return (unsigned)((z ^ (z >> 31)) % limit);
}

/* What can be seen of all sockets without changing anything. */
static uint64_t state_hash(void) {
    struct pollfd fds[SLOTS];
    uint64_t seen = 0;
    for (int i = 0; i < SLOTS; i++) fds[i] = (struct pollfd){.fd = slots[i].fd, .events = POLLIN | POLLOUT | POLLRDHUP};
    poll(fds, SLOTS, 0);
    for (int i = 0; i < SLOTS; i++) {
        int readable = 0;
        if (slots[i].fd >= 0 && slots[i].line) ioctl(slots[i].fd, FIONREAD, &readable);
        seen = seen * 1000003 + (uint64_t)fds[i].revents * 65537 + (uint64_t)readable;
    }
    return seen;
}

/* Threads that sleep, each in a set of its own. */
static struct sleeper { pthread_t thread; int set, bell; atomic_uint woken; } sleepers[MOST_SLEEPERS];
static int threads;
static atomic_int over;

static uint64_t all_woken(void) {
    uint64_t all = 0;
    for (int t = 0; t < threads; t++) all = all << 9 | sleepers[t].woken;
    return all;
}

/* Waits until none is woken any more, without a call that could wake others, and prints which were. */
static void print_woken(const char *when) {
    uint64_t before = all_woken();
    for (int same = 0; threads && same < LOOKS; same++) {
        usleep((useconds_t)(quiet / LOOKS + 1));
        uint64_t after = all_woken();
        if (after != before) before = after, same = -1;
    }
    for (int t = 0; t < threads; t++) {
        unsigned woken = atomic_exchange(&sleepers[t].woken, 0);
        if (woken) printf("  thread %d woken%s: %#x\n", t, when, woken);
    }
}

/* Until nothing has moved for a while: in so many polls, not only for so long. Where the machine is busy, time passes between two polls
   without the other side having run; but each sleep lets it run. */
static void settle(void) {
    print_woken("");
    uint64_t before = state_hash();
    for (int same = 0, all = 0; same < LOOKS && all < 200 * LOOKS; same++, all++) {
        usleep((useconds_t)(quiet / LOOKS + 1));
        uint64_t after = state_hash();
        if (after != before) before = after, same = -1;
    }
    print_woken(" late");
}

static void print_result(const char *call, int slot, long result) {
    int error = errno;
    if (result < 0) printf(" %s %d: %ld %s\n", call, slot, result, strerrorname_np(error));
    else printf(" %s %d: %ld\n", call, slot, result);
}

static int free_slot(void) {
    for (int i = 0; i < SLOTS; i++)
        if (slots[i].fd < 0) return i;
    return -1;
}

/* The port lies at the same place in both. */
typedef union { struct sockaddr_in v4; struct sockaddr_in6 v6; } Address;
enum { HERE, ANY, MAPPED };

static struct in6_addr mapped(void) {
    struct in6_addr address = {.s6_addr = {[10] = 0xff, [11] = 0xff}};
    memcpy(address.s6_addr + 12, &here, sizeof here);
    return address;
}

static Address at(int v6, int port, int which) {
    Address address = {.v4 = {.sin_family = AF_INET, .sin_port = (in_port_t)port}};
    if (!v6) address.v4.sin_addr.s_addr = which == ANY ? INADDR_ANY : here.s_addr;
    else address.v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = (in_port_t)port,
                                            .sin6_addr = which == ANY ? in6addr_any : which == MAPPED ? mapped() : here6};
    return address;
}

static socklen_t size_of(int v6) { return v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in); }

static void learn_port(int i) {
    Address name;
    socklen_t len = sizeof name;
    if (getsockname(slots[i].fd, (void *)&name, &len) == 0) slots[i].port = name.v4.sin_port;
}

static const char *which_address(const Address *name) {
    struct in6_addr v4 = mapped();
    if (name->v4.sin_family == AF_INET) return name->v4.sin_addr.s_addr == here.s_addr ? "here" : name->v4.sin_addr.s_addr ? "other" : "any";
    if (!memcmp(&name->v6.sin6_addr, &here6, sizeof here6)) return "here";
    if (!memcmp(&name->v6.sin6_addr, &v4, sizeof v4)) return "mapped";
    return memcmp(&name->v6.sin6_addr, &in6addr_any, sizeof here6) ? "other" : "any";
}

/* Without Nagle's algorithm, which OpenTOE does not have: docs/POSIX.md. */
static void at_once(int fd) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static void open_socket(void) {
    int i = free_slot();
    if (i < 0) return;
    int v6 = speaks_6 && below(4), type = SOCK_STREAM | SOCK_NONBLOCK | (below(2) ? SOCK_CLOEXEC : 0);
    slots[i] = (struct slot){.fd = socket(v6 ? AF_INET6 : AF_INET, type, 0), .file = ++files, .v6 = v6};
    print_result(v6 ? "socket of IPv6" : "socket", i, slots[i].fd < 0 ? -1 : 0);
    at_once(slots[i].fd);
    int only = v6 && below(4) == 0;
    if (only) print_result("IPV6_V6ONLY", i, setsockopt(slots[i].fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only));
}

static void bind_socket(int i) {
    /* Linux binds a socket whose connection is dead, to no use. */
    struct pollfd state = {.fd = slots[i].fd};
    if ((slots[i].line || slots[i].end) && poll(&state, 1, 0) && state.revents & POLLHUP) return;
    int one = (int)below(2), other = (int)below(SLOTS);
    /* Linux reads the option when another socket binds, OpenTOE at the socket's own bind. */
    if (!slots[i].port) setsockopt(slots[i].fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    /* A port that only old connections have is refused by the kernel, unless SO_REUSEADDR is set everywhere. */
    int free = slots[other].fd >= 0 && slots[other].line == 0 && other != i;
    int port = below(4) == 0 && free ? slots[other].port : 0;
    int v6 = slots[i].v6, which = below(3) == 0 ? ANY : v6 && below(3) == 0 ? MAPPED : HERE;
    Address address = at(v6, port, which);
    if (v6) printf(" to %s\n", which_address(&address));
    long result = bind(slots[i].fd, (void *)&address, below(20) ? size_of(v6) : 4);
    print_result("bind", i, result);
    /* Linux may have forgotten the address that was asked for before, and its family. */
    if (v6 && result < 0) slots[i].was_mapped = 1;
    learn_port(i);
}

static void connect_socket(int i) {
    int to = (int)below(SLOTS);
    for (int tries = 0; tries < SLOTS && slots[to].port == 0; tries++) to = (to + 1) % SLOTS;
    /* After such an attempt has failed, Linux goes on to send segments of IPv4, and as a listener to answer so. */
    int v6 = slots[i].v6, was_mapped = slots[i].was_mapped || slots[to].was_mapped;
    int which = v6 && (below(3) == 0 || was_mapped) ? MAPPED : HERE;
    for (int j = 0; j < SLOTS; j++)
        if (slots[j].file == slots[i].file) slots[j].was_mapped |= which == MAPPED;
    Address address = at(v6, slots[to].port ? slots[to].port : htons(1), which);
    printf(which == MAPPED ? " to %d, mapped\n" : " to %d\n", to);
    print_result("connect", i, connect(slots[i].fd, (void *)&address, size_of(v6)));
    settle();
    if (!slots[i].line && lines < 63) {
        lines++;
        for (int j = 0; j < SLOTS; j++)
            if (slots[j].file == slots[i].file) slots[j].line = lines, slots[j].end = 0;
    }
    struct pollfd state = {.fd = slots[i].fd};
    if (!poll(&state, 1, 0) || !(state.revents & POLLHUP)) learn_port(i);
}

static void accept_socket(int i) {
    int fresh = free_slot();
    if (fresh < 0) return;
    Address peer = {0};
    socklen_t len = sizeof peer;
    int fd = accept4(slots[i].fd, (void *)&peer, &len, SOCK_NONBLOCK);
    print_result("accept", i, fd < 0 ? -1 : 0);
    if (fd < 0) return;
    at_once(fd);
    printf("  from %d %d\n", peer.v4.sin_family, len);
    if (slots[i].v6) printf("  from %s\n", which_address(&peer));
    slots[fresh] = (struct slot){.fd = fd, .file = ++files, .end = 1, .v6 = slots[i].v6};
    for (int j = 0; j < SLOTS; j++)
        if (slots[j].port == peer.v4.sin_port && slots[j].line && slots[j].end == 0) slots[fresh].line = slots[j].line;
}

static void *bad_pages(int allowed) {
    unsigned char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || mprotect(pages + 4096, 4096, allowed)) exit(2);
    return pages + 4096;
}

/* A place of which nothing, or not all, can be written or read. */
static unsigned char *bad_place(int writes) {
    switch (below(5)) {
    case 0: return NULL;
    case 1: return edge;
    case 2: return edge - 50;
    case 3: return writes ? constant : (unsigned char *)16;
    default: return (unsigned char *)4095;
    }
}

/* Calls with a bad address do nothing. On the kernel a long send may go out in part: these are short. */
static void bad_addresses(int i) {
    struct slot *s = &slots[i];
    int what = (int)below(8), size = 100 + (int)below(2) * 900;
    void *to = bad_place(1), *from = bad_place(0), *volatile other = (void *)(uintptr_t)(below(2) ? 0 : 40);
    struct iovec into = {to, (size_t)size};
    socklen_t len = 16;
    int peeks = below(2) ? MSG_PEEK : 0, readable = 0;
    ioctl(s->fd, FIONREAD, &readable);
    /* What fits in front of the page is received. Of more, Linux may give the first segments. */
    if (to == edge - 50 && readable > 50) to = edge, into.iov_base = to;
    long got = 0;
    switch (what) {
    case 0: print_result("recv at a bad address", i, got = recv(s->fd, to, (size_t)size, peeks | MSG_DONTWAIT)); break;
    case 1: print_result("readv at a bad address", i, got = readv(s->fd, &into, 1)), peeks = 0; break;
    case 2: print_result("send from a bad address", i, send(s->fd, from, (size_t)size, MSG_NOSIGNAL)); break;
    case 3: print_result("writev of a bad list", i, writev(s->fd, other, 1)); break;
    case 4: print_result("recvmsg of a bad message", i, recvmsg(s->fd, other, 0)); break;
    case 5: print_result("getsockname at a bad address", i, getsockname(s->fd, other, &len)); break;
    case 6: print_result("getsockopt at a bad address", i, getsockopt(s->fd, SOL_SOCKET, SO_KEEPALIVE, other, &len)); break;
    default: print_result("epoll_wait at a bad address", -1, epoll_wait(set, other, 4, 0));
    }
    if (got > 0 && !peeks) in_flight[!s->end][s->line] -= (int)got;
}

static void send_bytes(int i) {
    static const int sizes[] = {0, 1, 100, 1448, 5000, MOST};
    struct slot *s = &slots[i];
    int size = sizes[below(6)], how = (int)below(3);
    if (in_flight[s->end][s->line] + size > IN_FLIGHT) return;
    for (int k = 0; k < size; k++) bytes[k] = (unsigned char)((sent[s->end][s->line] + (unsigned)k) * 7 + (unsigned)s->end);
    struct iovec parts[2] = {{bytes, (size_t)size / 3}, {bytes + size / 3, (size_t)(size - size / 3)}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    long result = how == 0   ? send(s->fd, bytes, (size_t)size, MSG_NOSIGNAL)
                  : how == 1 ? writev(s->fd, parts, 2)
                             : sendmsg(s->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    print_result(how == 0 ? "send" : how == 1 ? "writev" : "sendmsg", i, result);
    if (result > 0) sent[s->end][s->line] += (unsigned)result, in_flight[s->end][s->line] += (int)result;
}

static void receive_bytes(int i) {
    static const int sizes[] = {0, 1, 100, 2000, MOST}, flags[] = {0, 0, 0, MSG_PEEK, MSG_WAITALL, MSG_TRUNC, MSG_OOB};
    struct slot *s = &slots[i];
    int size = sizes[below(5)], flag = flags[below(7)], how = (int)below(3);
    struct iovec parts[2] = {{bytes, (size_t)size / 2}, {bytes + size / 2, (size_t)(size - size / 2)}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    memset(bytes, 0, (size_t)size);
    if (how == 1) flag = 0;
    long result = how == 0   ? recv(s->fd, bytes, (size_t)size, flag)
                  : how == 1 ? readv(s->fd, parts, 2)
                             : recvmsg(s->fd, &message, flag | MSG_DONTWAIT);
    print_result(how == 0 ? "recv" : how == 1 ? "readv" : "recvmsg", i, result);
    unsigned digest = 0;
    for (long k = 0; k < result && k < size; k++) digest = digest * 31 + bytes[k];
    if (result > 0) printf("  flags %#x digest %u\n", flag, digest);
    if (result > 0 && flag != MSG_PEEK) in_flight[!s->end][s->line] -= (int)result;
}

static void close_socket(int i) {
    if (below(4) == 0) {
        struct linger linger = {.l_onoff = 1, .l_linger = 0};
        setsockopt(slots[i].fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
        printf(" linger\n");
    }
    print_result("close", i, close(slots[i].fd));
    slots[i] = (struct slot){.fd = -1};
}

/* Not on a socket that is not connected, where Linux returns ENOTCONN and remembers it all the same; and not in both
 * directions, where it resets the connection when data comes: docs/POSIX.md. */
static void shut_down(int i) {
    int value, how = below(8) == 0 ? 3 : (int)below(2);
    socklen_t len = sizeof value;
    getsockopt(slots[i].fd, SOL_SOCKET, SO_ACCEPTCONN, &value, &len);
    struct pollfd state = {.fd = slots[i].fd};
    if (!value && (!slots[i].line || slots[i].shut || (poll(&state, 1, 0) && state.revents & POLLHUP))) return;
    for (int j = 0; j < SLOTS; j++)
        if (slots[j].line == slots[i].line && slots[j].end == slots[i].end) slots[j].shut = 1;
    printf(" how %d\n", how);
    print_result("shutdown", i, shutdown(slots[i].fd, how));
    for (int j = 0, port = slots[i].port; value && j < SLOTS; j++)
        if (slots[j].port == port) slots[j].port = 0;
}

static void options(int i) {
    static const struct { int level, name; const char *word; } all[] = {
        {SOL_SOCKET, SO_ERROR, "SO_ERROR"}, {SOL_SOCKET, SO_TYPE, "SO_TYPE"}, {SOL_SOCKET, SO_ACCEPTCONN, "SO_ACCEPTCONN"},
        {SOL_SOCKET, SO_KEEPALIVE, "SO_KEEPALIVE"}, {SOL_SOCKET, SO_REUSEADDR, "SO_REUSEADDR"}, {SOL_SOCKET, SO_DOMAIN, "SO_DOMAIN"},
        {SOL_SOCKET, SO_PROTOCOL, "SO_PROTOCOL"}, {IPPROTO_TCP, TCP_NODELAY, "TCP_NODELAY"}, {IPPROTO_TCP, TCP_CORK, "TCP_CORK"},
        {IPPROTO_TCP, TCP_KEEPIDLE, "TCP_KEEPIDLE"}, {IPPROTO_TCP, TCP_USER_TIMEOUT, "TCP_USER_TIMEOUT"}, {IPPROTO_TCP, 9999, "unknown"},
        {SOL_SOCKET, SO_RCVLOWAT, "SO_RCVLOWAT"}, {IPPROTO_TCP, TCP_NOTSENT_LOWAT, "TCP_NOTSENT_LOWAT"},
        {IPPROTO_IPV6, IPV6_V6ONLY, "IPV6_V6ONLY"},
    };
    static const int marks[] = {-1, 1, 2, 150, 2000, 12000};
    int at = (int)below(speaks_6 ? 15 : 14), value = (int)below(3), writes = (int)below(2);
    if (at == 12 || at == 13) value = marks[below(6)], writes = below(4) > 0;
    /* On a socket that is no connection any more, Linux counts numbers that were never bytes as unsent. */
    Address peer;
    socklen_t peer_len = sizeof peer;
    if (at == 13 && getpeername(slots[i].fd, (void *)&peer, &peer_len) < 0) return;
    socklen_t len = sizeof value;
    if (writes && all[at].name != TCP_CORK && all[at].name != TCP_NODELAY && all[at].name != TCP_USER_TIMEOUT) {
        print_result(all[at].word, i, setsockopt(slots[i].fd, all[at].level, all[at].name, &value, below(10) ? sizeof value : 1));
    } else {
        print_result(all[at].word, i, getsockopt(slots[i].fd, all[at].level, all[at].name, &value, &len));
        printf("  value %d len %d\n", all[at].name == SO_ERROR || len == 4 ? value : 0, len);
    }
}

static void watch(void) {
    struct pollfd fds[SLOTS];
    for (int i = 0; i < SLOTS; i++) fds[i] = (struct pollfd){.fd = slots[i].fd, .events = POLLIN | POLLOUT | POLLRDHUP | POLLPRI};
    print_result("poll", -1, poll(fds, SLOTS, 0));
    for (int i = 0; i < SLOTS; i++)
        if (slots[i].fd >= 0) printf("  %d: %#x\n", i, fds[i].revents);
}

static void change_set(int i) {
    static const int operations[] = {EPOLL_CTL_ADD, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL};
    static const uint32_t bits[] = {EPOLLIN, EPOLLOUT, EPOLLIN | EPOLLOUT, EPOLLIN | EPOLLRDHUP, EPOLLIN | EPOLLOUT | EPOLLONESHOT, 0};
    int operation = operations[below(4)];
    struct epoll_event event = {.events = bits[below(6)], .data.u32 = (uint32_t)i};
    printf(" operation %d bits %#x\n", operation, event.events);
    print_result("epoll_ctl", i, epoll_ctl(set, operation, slots[i].fd, &event));
}

static void ask_set(void) {
    struct epoll_event events[SLOTS * 2];
    int count = epoll_wait(set, events, SLOTS * 2, 0);
    print_result("epoll_wait", -1, count);
    for (uint32_t i = 0; i < SLOTS; i++)
        for (int k = 0; k < count; k++)
            if (events[k].data.u32 == i) printf("  %u: %#x\n", i, events[k].events);
}

static void names(int i) {
    Address name = {0};
    socklen_t len = sizeof name;
    int own = (int)below(2);
    long result = own ? getsockname(slots[i].fd, (void *)&name, &len) : getpeername(slots[i].fd, (void *)&name, &len);
    print_result(own ? "getsockname" : "getpeername", i, result);
    if (result == 0) printf("  %s port %d len %d\n", which_address(&name), name.v4.sin_port != 0, len);
}

static void look_inside(int i) {
    int readable = -1;
    if (below(2)) return print_result("F_GETFL", i, fcntl(slots[i].fd, F_GETFL));
    print_result("FIONREAD", i, ioctl(slots[i].fd, FIONREAD, &readable));
    printf("  %d\n", readable);
}

static void duplicate(int i) {
    int to = free_slot();
    if (to < 0) return;
    int fd = dup(slots[i].fd);
    print_result("dup", i, fd < 0 ? -1 : 0);
    if (fd >= 0) slots[to] = slots[i], slots[to].fd = fd;
}

static void nothing(int signal) { (void)signal; }

static void *sleep_in_set(void *argument) {
    struct sleeper *own = argument;
    struct epoll_event events[SLOTS * 2];
    while (!over) {
        int count = epoll_wait(own->set, events, SLOTS * 2, -1);
        for (int k = 0; k < count; k++)
            if (events[k].data.u32 < SLOTS) atomic_fetch_or(&own->woken, 1u << events[k].data.u32);
        if (count < 0 && errno != EINTR) return atomic_fetch_or(&own->woken, 1u << SLOTS), NULL;
    }
    return NULL;
}

/* In every other sequence the sets have a descriptor of the kernel's as well. */
static void send_to_sleep(void) {
    int with_bell = threads && below(2);
    over = 0;
    for (struct sleeper *one = sleepers; one < sleepers + threads; one++) {
        *one = (struct sleeper){.set = epoll_create1(EPOLL_CLOEXEC), .bell = -1};
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = SLOTS};
        if (with_bell) one->bell = eventfd(0, EFD_CLOEXEC), epoll_ctl(one->set, EPOLL_CTL_ADD, one->bell, &event);
        if (pthread_create(&one->thread, NULL, sleep_in_set, one)) exit(2);
    }
}

static void wake_all(void) {
    over = 1;
    for (struct sleeper *one = sleepers; one < sleepers + threads; one++) {
        if (one->bell >= 0 && eventfd_write(one->bell, 1)) exit(2);
        /* A signal may come in front of the call. */
        while (pthread_tryjoin_np(one->thread, NULL)) {
            if (one->bell < 0) pthread_kill(one->thread, SIGUSR1);
            usleep(50);
        }
        close(one->set);
        if (one->bell >= 0) close(one->bell);
    }
}

/* What a thread sleeps for, once: otherwise it would not sleep. Not EPOLLET: how often Linux reports that what was there
 * before is still there depends on what else happens to the socket. */
static void change_sleeper(void) {
    static const int operations[] = {EPOLL_CTL_ADD, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_MOD, EPOLL_CTL_DEL};
    static const uint32_t bits[] = {EPOLLIN | EPOLLONESHOT, EPOLLIN | EPOLLRDHUP | EPOLLONESHOT, EPOLLOUT | EPOLLONESHOT,
                                    EPOLLIN | EPOLLOUT | EPOLLONESHOT, EPOLLRDHUP | EPOLLONESHOT, EPOLLONESHOT};
    int thread = (int)below((unsigned)threads), i = (int)below(SLOTS), operation = operations[below(5)];
    struct epoll_event event = {.events = bits[below(6)], .data.u32 = (uint32_t)i};
    if (slots[i].fd < 0) return;
    printf(" thread %d operation %d bits %#x\n", thread, operation, event.events);
    print_result("epoll_ctl", i, epoll_ctl(sleepers[thread].set, operation, slots[i].fd, &event));
    print_woken("");
}

static void call(void) {
    int what = (int)below(37), i = (int)below(SLOTS);
    for (int tries = 0; tries < SLOTS && slots[i].fd < 0; tries++) i = (i + 1) % SLOTS;
    if (what < 3 || slots[i].fd < 0) open_socket();
    else if (what < 5) bind_socket(i);
    else if (what < 7) print_result("listen", i, listen(slots[i].fd, 16)), learn_port(i);
    else if (what < 11) connect_socket(i);
    else if (what < 14) accept_socket(i);
    else if (what < 18) send_bytes(i);
    else if (what < 22) receive_bytes(i);
    else if (what < 23) shut_down(i);
    else if (what < 25) close_socket(i);
    else if (what < 27) options(i);
    else if (what < 28) watch();
    else if (what < 30) change_set(i);
    else if (what < 32) ask_set();
    else if (what < 33) { if (below(2)) names(i); else look_inside(i); }
    else if (what < 34) duplicate(i);
    else bad_addresses(i);
    settle();
    for (int changes = threads; changes > 0; changes--) change_sleeper();
}

/* Every sequence begins with a connection more often than not: calls on sockets that lead nowhere are soon all seen. */
static void begin(void) {
    memset(in_flight, 0, sizeof in_flight), memset(sent, 0, sizeof sent);
    lines = files = 0;
    for (int i = 0; i < SLOTS; i++) slots[i] = (struct slot){.fd = -1};
    set = epoll_create1(EPOLL_CLOEXEC);
    send_to_sleep();
    if (below(4) == 0) return;
    open_socket(), open_socket();
    int to6 = slots[0].v6, from6 = slots[1].v6;
    Address address = at(to6, 0, to6 && !from6 ? MAPPED : HERE);
    print_result("bind", 0, bind(slots[0].fd, (void *)&address, size_of(to6)));
    print_result("listen", 0, listen(slots[0].fd, 16));
    learn_port(0);
    address = at(from6, slots[0].port, from6 && !to6 ? MAPPED : HERE);
    print_result("accept", 0, accept4(slots[0].fd, NULL, NULL, SOCK_NONBLOCK));
    print_result("connect", 1, connect(slots[1].fd, (void *)&address, size_of(from6)));
    slots[1].line = ++lines, slots[1].was_mapped = from6 && !to6;
    settle();
    learn_port(1);
    accept_socket(0);
    settle();
}

int main(int argc, char **argv) {
    threads = argc >= 6 ? atoi(argv[5]) : 0;
    speaks_6 = argc >= 7;
    int bad = argc < 5 || inet_pton(AF_INET, argv[1], &here) != 1 || (speaks_6 && inet_pton(AF_INET6, argv[6], &here6) != 1);
    if (bad || threads < 0 || threads > MOST_SLEEPERS) {
        fprintf(stderr, "usage: socket_calls ADDRESS FIRST_SEED COUNT QUIET_MICROSECONDS [THREADS [ADDRESS6]]\n");
        return 2;
    }
    uint64_t first = strtoull(argv[2], NULL, 10), count = strtoull(argv[3], NULL, 10);
    quiet = atol(argv[4]);
    edge = bad_pages(PROT_NONE), constant = bad_pages(PROT_READ);
    sigset_t pipes;
    sigemptyset(&pipes), sigaddset(&pipes, SIGPIPE), sigprocmask(SIG_BLOCK, &pipes, NULL);
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = nothing}, NULL);
    for (uint64_t seed = first; seed < first + count; seed++) {
        by_number = seed & 1;
        state = seed * 0x2545f4914f6cdd1d + 1;
        printf("seed %llu\n", (unsigned long long)seed);
        begin();
        for (unsigned calls = 4 + below(CALLS); calls > 0; calls--) call();
        for (int i = 0; i < SLOTS; i++)
            if (slots[i].fd >= 0) close(slots[i].fd);
        wake_all();
        close(set);
        fflush(stdout);
    }
    return 0;
}
