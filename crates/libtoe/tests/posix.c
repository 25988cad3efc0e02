/* Cases of POSIX and Linux socket behaviour. The same program runs on the kernel's TCP (over loopback) and under
 * libtoe.so, and must pass on both: so the kernel itself vouches for what is expected here.
 *
 * usage: posix ADDRESS [CASE...]
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../../include/toe.h"

static struct sockaddr_in here = {.sin_family = AF_INET};

#define CHECK(condition)                                                                                          \
    do {                                                                                                          \
        if (!(condition)) {                                                                                       \
            fprintf(stderr, "posix: line %d: %s (errno %d, %s)\n", __LINE__, #condition, errno, strerror(errno)); \
            exit(1);                                                                                              \
        }                                                                                                         \
    } while (0)

static int listener(int flags) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0), one = 1;
    CHECK(fd >= 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
    struct sockaddr_in address = here;
    socklen_t len = sizeof address;
    CHECK(bind(fd, (void *)&address, sizeof address) == 0);
    CHECK(listen(fd, 16) == 0);
    CHECK(getsockname(fd, (void *)&address, &len) == 0);
    CHECK(len == sizeof address && address.sin_port != 0);
    return fd;
}

static struct sockaddr_in name_of(int fd) {
    struct sockaddr_in address;
    socklen_t len = sizeof address;
    CHECK(getsockname(fd, (void *)&address, &len) == 0);
    return address;
}

/* A listener must have been asked for a connection before one can be made: libtoe arms it then, the kernel does not mind. */
static void show_interest(int fd) {
    struct pollfd one = {fd, POLLIN, 0};
    poll(&one, 1, 0);
}

static void pair(int ends[2]) {
    int l = listener(0);
    show_interest(l);
    struct sockaddr_in address = name_of(l);
    ends[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(connect(ends[0], (void *)&address, sizeof address) == 0);
    ends[1] = accept4(l, NULL, NULL, SOCK_CLOEXEC);
    CHECK(ends[1] >= 0);
    close(l);
}

static void unpair(int ends[2]) {
    close(ends[0]);
    close(ends[1]);
}

static int epoll_now(int set, struct epoll_event *events, int count) {
    return epoll_wait(set, events, count, 100);
}

static void watch(int set, int operation, int fd, uint32_t bits, uint64_t data) {
    struct epoll_event event = {.events = bits, .data.u64 = data};
    CHECK(epoll_ctl(set, operation, fd, &event) == 0);
}

static void names(void) {
    int e[2];
    pair(e);
    struct sockaddr_in a = name_of(e[0]), b;
    socklen_t len = sizeof b;
    CHECK(getpeername(e[1], (void *)&b, &len) == 0);
    CHECK(a.sin_port == b.sin_port && a.sin_addr.s_addr == b.sin_addr.s_addr);
    int type = 0, error = -1, accepting = -1;
    len = sizeof type;
    CHECK(getsockopt(e[0], SOL_SOCKET, SO_TYPE, &type, &len) == 0 && type == SOCK_STREAM);
    CHECK(getsockopt(e[0], SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0);
    CHECK(getsockopt(e[0], SOL_SOCKET, SO_ACCEPTCONN, &accepting, &len) == 0 && accepting == 0);
    struct tcp_info info;
    len = sizeof info;
    CHECK(getsockopt(e[0], IPPROTO_TCP, TCP_INFO, &info, &len) == 0 && info.tcpi_state == TCP_ESTABLISHED);
    CHECK(getsockopt(e[0], IPPROTO_TCP, 12345, &error, &len) < 0 && errno == ENOPROTOOPT);
    CHECK(setsockopt(e[0], IPPROTO_TCP, TCP_CONGESTION, "nonesuch", 8) < 0 && errno == ENOENT);
    CHECK(connect(e[0], (void *)&a, sizeof a) < 0 && errno == EISCONN);
    CHECK(listen(e[0], 1) < 0 && errno == EINVAL);
    unpair(e);
    CHECK(send(e[0], "x", 1, 0) < 0 && errno == EBADF);
}

static void transfer(void) {
    int e[2];
    char buffer[100] = {0};
    pair(e);
    CHECK(write(e[0], "hello world", 11) == 11);
    CHECK(recv(e[1], buffer, 5, MSG_PEEK | MSG_WAITALL) == 5 && memcmp(buffer, "hello", 5) == 0);
    struct pollfd all = {e[1], POLLIN, 0};
    CHECK(poll(&all, 1, 1000) == 1 && all.revents == POLLIN);
    int available = 0;
    CHECK(ioctl(e[1], FIONREAD, &available) == 0 && available == 11);
    struct iovec two[2] = {{buffer, 3}, {buffer + 50, 8}};
    CHECK(readv(e[1], two, 2) == 11 && memcmp(buffer, "hel", 3) == 0 && memcmp(buffer + 50, "lo world", 8) == 0);
    CHECK(recv(e[1], buffer, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
    CHECK(read(e[1], buffer, 0) == 0);
    CHECK(send(e[0], "123456", 6, 0) == 6);
    CHECK(recv(e[1], NULL, 2, MSG_TRUNC) == 2 && recv(e[1], buffer, 4, MSG_WAITALL) == 4);
    CHECK(memcmp(buffer, "3456", 4) == 0);
    int one = 1, zero = 0;
    CHECK(setsockopt(e[0], IPPROTO_TCP, TCP_CORK, &one, sizeof one) == 0 && write(e[0], "ab", 2) == 2);
    CHECK(send(e[0], "cd", 2, MSG_MORE) == 2);
    CHECK(setsockopt(e[0], IPPROTO_TCP, TCP_CORK, &zero, sizeof zero) == 0 && write(e[0], "ef", 2) == 2);
    CHECK(recv(e[1], buffer, 6, MSG_WAITALL) == 6 && memcmp(buffer, "abcdef", 6) == 0);
    struct iovec out[2] = {{"one", 3}, {"two", 3}};
    struct mmsghdr messages[2] = {{.msg_hdr = {.msg_iov = out, .msg_iovlen = 1}},
                                  {.msg_hdr = {.msg_iov = out + 1, .msg_iovlen = 1}}};
    CHECK(sendmmsg(e[0], messages, 2, 0) == 2 && messages[1].msg_len == 3);
    CHECK(recv(e[1], buffer, 6, MSG_WAITALL) == 6 && memcmp(buffer, "onetwo", 6) == 0);
    unpair(e);
}

static void half_close(void) {
    int e[2];
    char c;
    pair(e);
    CHECK(shutdown(e[0], SHUT_WR) == 0 && read(e[1], &c, 1) == 0);
    CHECK(write(e[1], "x", 1) == 1 && read(e[0], &c, 1) == 1 && c == 'x');
    signal(SIGPIPE, SIG_IGN);
    CHECK(write(e[0], "y", 1) < 0 && errno == EPIPE);
    struct pollfd p = {e[1], POLLIN | POLLOUT | POLLRDHUP, 0};
    CHECK(poll(&p, 1, 0) == 1 && p.revents == (POLLIN | POLLOUT | POLLRDHUP));
    CHECK(shutdown(e[1], SHUT_WR) == 0);
    CHECK(poll(&p, 1, 1000) == 1 && p.revents & POLLHUP);
    unpair(e);
}

static volatile sig_atomic_t pipes, alarms;
static void on_pipe(int s) { (void)s, pipes++; }
static void on_alarm(int s) { (void)s, alarms++; }

static void sigpipe(void) {
    int e[2];
    pair(e);
    signal(SIGPIPE, on_pipe);
    shutdown(e[0], SHUT_WR);
    CHECK(write(e[0], "x", 1) < 0 && errno == EPIPE && pipes == 1);
    CHECK(send(e[0], "x", 1, MSG_NOSIGNAL) < 0 && errno == EPIPE && pipes == 1);
    signal(SIGPIPE, SIG_IGN);
    unpair(e);
}

static void reset(void) {
    int e[2];
    char c;
    struct linger now = {1, 0};
    pair(e);
    CHECK(write(e[0], "last", 4) == 4);
    struct pollfd p = {e[1], POLLIN, 0};
    CHECK(poll(&p, 1, 1000) == 1);
    CHECK(setsockopt(e[0], SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
    close(e[0]);
    p.events = 0;
    CHECK(poll(&p, 1, 1000) == 1 && p.revents & POLLHUP && p.revents & POLLERR);
    int error = 0;
    socklen_t len = sizeof error;
    CHECK(getsockopt(e[1], SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == ECONNRESET);
    CHECK(send(e[1], "x", 1, MSG_NOSIGNAL) < 0 && errno == EPIPE);
    while (read(e[1], &c, 1) > 0) continue;
    close(e[1]);
}

/* An error that MSG_WAITALL meets behind some bytes is the next call's. */
static void error_behind_bytes(void) {
    int e[2];
    char buffer[16];
    struct linger none = {.l_onoff = 1, .l_linger = 0};
    struct pollfd gone;
    pair(e);
    CHECK(write(e[0], "abc", 3) == 3);
    CHECK(recv(e[1], buffer, 1, MSG_WAITALL) == 1);
    CHECK(setsockopt(e[0], SOL_SOCKET, SO_LINGER, &none, sizeof none) == 0);
    close(e[0]);
    gone = (struct pollfd){.fd = e[1], .events = 0};
    while (!(gone.revents & POLLHUP)) CHECK(poll(&gone, 1, 1000) == 1);
    CHECK(recv(e[1], buffer, 16, MSG_WAITALL | MSG_DONTWAIT) == 2);
    CHECK(recv(e[1], buffer, 16, MSG_DONTWAIT) < 0 && errno == ECONNRESET);
    CHECK(recv(e[1], buffer, 16, MSG_DONTWAIT) == 0);
    close(e[1]);
}

static void nonblocking_connect(void) {
    int l = listener(SOCK_NONBLOCK), fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), error = -1;
    socklen_t len = sizeof error;
    struct sockaddr_in address = name_of(l);
    CHECK(accept(l, NULL, NULL) < 0 && errno == EAGAIN);
    CHECK(fcntl(fd, F_GETFL) & O_NONBLOCK);
    int result = connect(fd, (void *)&address, sizeof address);
    CHECK(result == 0 || errno == EINPROGRESS);
    struct pollfd p = {fd, POLLOUT, 0};
    CHECK(poll(&p, 1, 2000) == 1 && p.revents == POLLOUT);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0);
    p = (struct pollfd){l, POLLIN, 0};
    CHECK(poll(&p, 1, 2000) == 1);
    int other = accept(l, NULL, NULL);
    CHECK(other >= 0 && !(fcntl(other, F_GETFL) & O_NONBLOCK));
    close(other), close(fd), close(l);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    result = connect(fd, (void *)&address, sizeof address);
    CHECK(result < 0 && (errno == EINPROGRESS || errno == ECONNREFUSED));
    if (errno == EINPROGRESS) {
        p = (struct pollfd){fd, POLLOUT, 0};
        CHECK(poll(&p, 1, 2000) == 1 && p.revents & POLLERR && p.revents & POLLHUP);
        CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == ECONNREFUSED);
    }
    close(fd);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(fd, (void *)&address, sizeof address) < 0 && errno == ECONNREFUSED);
    close(fd);
}

static void level_and_edge(void) {
    int e[2], set = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event events[8];
    char buffer[16];
    pair(e);
    watch(set, EPOLL_CTL_ADD, e[1], EPOLLIN, 77);
    CHECK(epoll_wait(set, events, 8, 0) == 0);
    CHECK(write(e[0], "abc", 3) == 3);
    CHECK(epoll_now(set, events, 8) == 1 && events[0].events == EPOLLIN && events[0].data.u64 == 77);
    CHECK(epoll_wait(set, events, 8, 0) == 1);
    watch(set, EPOLL_CTL_MOD, e[1], EPOLLIN | EPOLLET, 78);
    CHECK(epoll_wait(set, events, 8, 0) == 1 && events[0].data.u64 == 78);
    CHECK(epoll_wait(set, events, 8, 0) == 0);
    CHECK(write(e[0], "d", 1) == 1 && epoll_now(set, events, 8) == 1);
    CHECK(epoll_wait(set, events, 8, 10) == 0 && read(e[1], buffer, 16) == 4);
    watch(set, EPOLL_CTL_MOD, e[1], EPOLLIN | EPOLLONESHOT, 79);
    CHECK(write(e[0], "e", 1) == 1 && epoll_now(set, events, 8) == 1 && epoll_wait(set, events, 8, 10) == 0);
    CHECK(write(e[0], "f", 1) == 1 && epoll_wait(set, events, 8, 10) == 0);
    watch(set, EPOLL_CTL_MOD, e[1], EPOLLIN | EPOLLOUT | EPOLLRDHUP, 80);
    CHECK(epoll_wait(set, events, 8, 0) == 1 && events[0].events == (EPOLLIN | EPOLLOUT));
    close(e[0]);
    do CHECK(epoll_now(set, events, 8) == 1);
    while (!(events[0].events & EPOLLRDHUP));
    CHECK(epoll_ctl(set, EPOLL_CTL_DEL, e[1], NULL) == 0 && epoll_wait(set, events, 8, 0) == 0);
    CHECK(epoll_ctl(set, EPOLL_CTL_DEL, e[1], NULL) < 0 && errno == ENOENT);
    watch(set, EPOLL_CTL_ADD, e[1], EPOLLIN, 81);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, e[1], events) < 0 && errno == EEXIST);
    CHECK(epoll_now(set, events, 1) == 1);
    close(e[1]);
    CHECK(epoll_wait(set, events, 8, 10) == 0);
    close(set);
}

/* A listener on any address has a half in the kernel, which is in the kernel's set as long as it listens. */
static void listeners_in_sets(void) {
    int set = epoll_create1(EPOLL_CLOEXEC), s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), other;
    struct epoll_event events[4] = {0};
    CHECK(listen(s, 4) == 0);
    watch(set, EPOLL_CTL_ADD, s, EPOLLIN, 1);
    CHECK(epoll_wait(set, events, 4, 0) == 0);
    CHECK(shutdown(s, SHUT_RD) == 0);
    CHECK(epoll_ctl(set, EPOLL_CTL_DEL, s, NULL) == 0 && epoll_wait(set, events, 4, 0) == 0);
    CHECK(listen(s, 4) == 0);
    watch(set, EPOLL_CTL_ADD, s, EPOLLIN, 2);
    CHECK(epoll_wait(set, events, 4, 0) == 0);
    close(s);
    /* Bound again, to one address: then the kernel has no part in it. (To a loopback address it cannot be bound again
     * under libtoe.so: docs/POSIX.md.) */
    s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in one = here;
    one.sin_port = 0;
    CHECK(listen(s, 4) == 0 && shutdown(s, SHUT_RD) == 0);
    if (bind(s, (void *)&one, sizeof one) == 0) {
        CHECK(listen(s, 4) == 0);
        CHECK(accept(s, NULL, NULL) < 0 && errno == EAGAIN);
    }
    close(s);
    /* An entry outlives its descriptor, and another descriptor of the same socket has an entry of its own. */
    s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    watch(set, EPOLL_CTL_ADD, s, EPOLLIN, 3);
    other = dup(s);
    close(s);
    CHECK(listen(other, 4) == 0);
    watch(set, EPOLL_CTL_ADD, other, EPOLLIN, 4);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, other, events) < 0 && errno == EEXIST);
    CHECK(epoll_wait(set, events, 4, 0) == 0);
    close(other);
    close(set);
}

static void mixed_sets(void) {
    int e[2], p[2], inner = epoll_create1(0), outer = epoll_create1(0), bell = eventfd(0, EFD_NONBLOCK);
    struct epoll_event events[8];
    uint64_t one = 1;
    char c;
    pair(e);
    CHECK(pipe(p) == 0);
    watch(inner, EPOLL_CTL_ADD, e[1], EPOLLIN, 1);
    watch(inner, EPOLL_CTL_ADD, p[0], EPOLLIN, 2);
    watch(inner, EPOLL_CTL_ADD, bell, EPOLLIN, 3);
    watch(outer, EPOLL_CTL_ADD, inner, EPOLLIN, 4);
    CHECK(epoll_wait(outer, events, 8, 10) == 0);
    CHECK(write(bell, &one, 8) == 8 && write(p[1], "x", 1) == 1 && write(e[0], "y", 1) == 1);
    struct pollfd wait = {e[1], POLLIN, 0};
    CHECK(poll(&wait, 1, 1000) == 1);
    CHECK(epoll_now(outer, events, 8) >= 1 && events[0].data.u64 == 4);
    uint64_t seen = 0;
    for (int i = 0; i < 100 && seen != 14; i++) {
        int n = epoll_now(inner, events, 8);
        CHECK(n > 0);
        while (n--) seen |= 1u << events[n].data.u64;
    }
    CHECK(seen == 14);
    struct pollfd polled[3] = {{inner, POLLIN, 0}, {p[0], POLLIN, 0}, {-1, POLLIN, 0}};
    CHECK(poll(polled, 3, 0) == 2);
    CHECK(read(bell, &one, 8) == 8 && read(p[0], &c, 1) == 1 && read(e[1], &c, 1) == 1);
    CHECK(epoll_wait(inner, events, 8, 20) == 0 && epoll_wait(outer, events, 8, 20) == 0);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(e[1], &set);
    FD_SET(p[0], &set);
    struct timeval soon = {0, 20000};
    CHECK(select(FD_SETSIZE, &set, NULL, NULL, &soon) == 0 && !FD_ISSET(e[1], &set));
    CHECK(write(e[0], "z", 1) == 1);
    FD_SET(e[1], &set);
    FD_SET(p[0], &set);
    CHECK(select(FD_SETSIZE, &set, NULL, NULL, NULL) == 1 && FD_ISSET(e[1], &set) && !FD_ISSET(p[0], &set));
    close(inner), close(outer), close(bell), close(p[0]), close(p[1]);
    unpair(e);
}

static void *write_later(void *fd) {
    usleep(50000);
    CHECK(write(*(int *)fd, "x", 1) == 1);
    return NULL;
}

static void threads(void) {
    int e[2], set = epoll_create1(0), late[2];
    struct epoll_event events[2];
    pthread_t thread;
    char c;
    pair(e), pair(late);
    pthread_create(&thread, NULL, write_later, &e[0]);
    CHECK(read(e[1], &c, 1) == 1);
    pthread_join(thread, NULL);
    watch(set, EPOLL_CTL_ADD, e[1], EPOLLIN, 1);
    pthread_create(&thread, NULL, write_later, &e[0]);
    CHECK(epoll_wait(set, events, 2, -1) == 1);
    pthread_join(thread, NULL);
    unpair(e), unpair(late), close(set);
}

static void full_buffer(void) {
    int e[2], set = epoll_create1(0);
    static char block[65536], back[65536];
    struct epoll_event events[2];
    pair(e);
    for (size_t i = 0; i < sizeof block; i++) block[i] = (char)(i * 31 >> 3);
    CHECK(fcntl(e[0], F_SETFL, O_NONBLOCK) == 0);
    watch(set, EPOLL_CTL_ADD, e[0], EPOLLOUT | EPOLLET, 5);
    CHECK(epoll_now(set, events, 2) == 1 && epoll_wait(set, events, 2, 0) == 0);
    size_t sent = 0, got = 0;
    ssize_t n;
    while ((n = write(e[0], block + sent % 65536, 65536 - sent % 65536)) > 0) sent += (size_t)n;
    CHECK(n < 0 && errno == EAGAIN && sent >= 65536);
    while (got < sent) {
        n = read(e[1], back, 65536 - got % 65536 < 7777 ? 65536 - got % 65536 : 7777);
        CHECK(n > 0 && memcmp(back, block + got % 65536, (size_t)n) == 0);
        got += (size_t)n;
    }
    CHECK(epoll_wait(set, events, 2, 2000) == 1 && events[0].events == EPOLLOUT);
    unpair(e), close(set);
}

static void set_handler(int flags) {
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = flags};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval soon = {{0, 0}, {0, 50000}};
    CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
}

static void signals(void) {
    int e[2], set = epoll_create1(0);
    char c;
    struct epoll_event event;
    pthread_t thread;
    pair(e);
    set_handler(0);
    CHECK(read(e[1], &c, 1) < 0 && errno == EINTR && alarms == 1);
    set_handler(SA_RESTART);
    struct pollfd p = {e[1], POLLIN, 0};
    CHECK(poll(&p, 1, 5000) < 0 && errno == EINTR && alarms == 2);
    watch(set, EPOLL_CTL_ADD, e[1], EPOLLIN, 0);
    set_handler(SA_RESTART);
    CHECK(epoll_wait(set, &event, 1, 5000) < 0 && errno == EINTR && alarms == 3);
    set_handler(SA_RESTART);
    pthread_create(&thread, NULL, write_later, &e[0]);
    sigset_t blocked;
    sigemptyset(&blocked), sigaddset(&blocked, SIGALRM);
    CHECK(read(e[1], &c, 1) == 1);
    pthread_join(thread, NULL);
    int l = listener(0);
    set_handler(0);
    CHECK(accept(l, NULL, NULL) < 0 && errno == EINTR);
    unpair(e), close(set), close(l);
}

static void timeouts(void) {
    int e[2];
    char c;
    struct timeval soon = {0, 30000};
    pair(e);
    CHECK(setsockopt(e[1], SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon) == 0);
    CHECK(read(e[1], &c, 1) < 0 && errno == EAGAIN);
    CHECK(setsockopt(e[0], SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof soon) == 0);
    static char block[1 << 20];
    ssize_t n;
    while ((n = write(e[0], block, sizeof block)) > 0) continue;
    CHECK(errno == EAGAIN);
    unpair(e);
}

static void descriptors(void) {
    int e[2];
    char c;
    pair(e);
    int copy = dup(e[0]), high = fcntl(e[0], F_DUPFD_CLOEXEC, 200), second = dup2(e[0], 150);
    CHECK(copy >= 0 && high >= 200 && second == 150 && fcntl(high, F_GETFD) & FD_CLOEXEC);
    close(e[0]);
    CHECK(write(copy, "x", 1) == 1 && read(e[1], &c, 1) == 1);
    close(copy), close(high);
    CHECK(dup3(e[1], 150, O_CLOEXEC) == 150);
    CHECK(read(e[1], &c, 1) == 0);
    int one = 1;
    CHECK(ioctl(150, FIONBIO, &one) == 0 && fcntl(e[1], F_GETFL) & O_NONBLOCK);
    close(e[1]);
    CHECK(close_range(150, 150, 0) == 0 && fcntl(150, F_GETFD) < 0);
}

static void files(void) {
    int e[2];
    char back[4096], name[] = "/tmp/posix-XXXXXX";
    int file = mkstemp(name);
    unlink(name);
    pair(e);
    for (int i = 0; i < 4096; i++) back[i] = (char)(i * 7);
    CHECK(write(file, back, 4096) == 4096);
    off_t offset = 96;
    CHECK(sendfile(e[0], file, &offset, 10000) == 4000 && offset == 4096);
    CHECK(recv(e[1], back, 4000, MSG_WAITALL) == 4000);
    for (int i = 0; i < 4000; i++) CHECK(back[i] == (char)((i + 96) * 7));
    lseek(file, 4000, SEEK_SET);
    CHECK(sendfile(e[0], file, NULL, 10000) == 96 && lseek(file, 0, SEEK_CUR) == 4096);
    CHECK(recv(e[1], back, 96, MSG_WAITALL) == 96 && back[0] == (char)(4000 * 7));
    unpair(e), close(file);
}

static void forked(void) {
    int e[2], l = listener(0);
    char c;
    struct sockaddr_in address = name_of(l);
    pair(e);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int fd = accept(l, NULL, NULL);
        if (fd < 0 || read(fd, &c, 1) != 1 || write(e[1], &c, 1) != 1 || write(fd, "!", 1) != 1) _exit(1);
        _exit(0);
    }
    close(e[1]), close(l);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    int tries = 0;
    while (connect(fd, (void *)&address, sizeof address) < 0 && tries++ < 200) {
        close(fd), usleep(10000);
        fd = socket(AF_INET, SOCK_STREAM, 0);
    }
    CHECK(tries < 200);
    CHECK(write(fd, "f", 1) == 1 && read(fd, &c, 1) == 1 && c == '!');
    CHECK(read(e[0], &c, 1) == 1 && c == 'f');
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    /* The child had the last descriptor of e[1], and of its connection. */
    CHECK(read(e[0], &c, 1) == 0 && read(fd, &c, 1) == 0);
    close(e[0]), close(fd);
}

static void shared_after_fork(void) {
    int e[2];
    char c;
    pair(e);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (int i = 0; i < 100; i++)
            if (read(e[1], &c, 1) != 1 || write(e[1], &c, 1) != 1) _exit(1);
        _exit(0);
    }
    for (int i = 0; i < 100; i++) {
        char sent = (char)i;
        CHECK(write(e[0], &sent, 1) == 1 && read(e[0], &c, 1) == 1 && c == sent);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    /* The parent goes on with the same connection. */
    CHECK(write(e[0], "p", 1) == 1 && read(e[1], &c, 1) == 1 && c == 'p');
    unpair(e);
}

/* The new program finds both connections under their numbers: see `inherited` below. */
static void executed(void) {
    int e[2];
    char c, fd[16];
    pair(e);
    CHECK(fcntl(e[1], F_SETFD, 0) == 0 && write(e[0], "q", 1) == 1);
    struct pollfd p = {e[1], POLLIN, 0};
    CHECK(poll(&p, 1, 1000) == 1);
    snprintf(fd, sizeof fd, "%d", e[1]);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char *arguments[] = {"posix", "inherited", fd, NULL};
        execv("/proc/self/exe", arguments);
        _exit(9);
    }
    close(e[1]);
    int status;
    CHECK(read(e[0], &c, 1) == 1 && c == 'Q' && write(e[0], "r", 1) == 1);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(read(e[0], &c, 1) == 0);
    close(e[0]);
}

static int inherited(int fd) {
    char c;
    CHECK(read(fd, &c, 1) == 1 && c == 'q' && write(fd, "Q", 1) == 1);
    CHECK(read(fd, &c, 1) == 1 && c == 'r');
    return 0;
}

/* toe_splice where nothing can be spliced: what fails, and that no byte is lost. The kernel's sockets lack it. */
static void joining(void) {
    if (!toe_splice || ntohl(here.sin_addr.s_addr) >> 24 == 127) return;
    int a[2], b[2], pipe_ends[2], left = -1;
    char buffer[16] = {0};
    pair(a);
    pair(b);
    CHECK(pipe(pipe_ends) == 0);
    CHECK(toe_splice(a[1], a[1]) < 0 && errno == EINVAL);
    CHECK(toe_splice(a[1], 1000) < 0 && errno == EBADF);
    CHECK(toe_splice(pipe_ends[0], a[1]) < 0 && errno == EOPNOTSUPP);
    CHECK(write(a[0], "early", 5) == 5);
    CHECK(recv(a[1], buffer, 5, MSG_PEEK | MSG_WAITALL) == 5);
    fcntl(b[0], F_SETFL, O_NONBLOCK);
    CHECK(toe_splice(a[1], b[0]) < 0 && errno == EAGAIN);
    CHECK(recv(a[1], buffer, 5, MSG_PEEK) == 5);
    fcntl(b[0], F_SETFL, 0);
    /* What is unread is passed on, whatever becomes of the splice. */
    CHECK(toe_splice(a[1], b[0]) < 0 && errno == EOPNOTSUPP);
    CHECK(ioctl(a[1], FIONREAD, &left) == 0 && left == 0);
    CHECK(recv(b[1], buffer, 5, MSG_WAITALL) == 5 && memcmp(buffer, "early", 5) == 0);
    CHECK(write(b[1], "back", 4) == 4 && write(a[1], "on", 2) == 2);
    CHECK(recv(b[0], buffer, 4, MSG_WAITALL) == 4 && recv(a[0], buffer, 2, MSG_WAITALL) == 2);
    CHECK(shutdown(a[1], SHUT_WR) == 0);
    CHECK(toe_splice(b[0], a[1]) < 0 && errno == ENOTCONN);
    unpair(pipe_ends);
    unpair(a);
    unpair(b);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"names", names},           {"transfer", transfer},     {"half_close", half_close},
    {"sigpipe", sigpipe},       {"reset", reset},           {"nonblocking_connect", nonblocking_connect},
    {"epoll", level_and_edge},  {"mixed_sets", mixed_sets}, {"threads", threads},
    {"full_buffer", full_buffer}, {"signals", signals},     {"timeouts", timeouts},
    {"descriptors", descriptors}, {"files", files},         {"forked", forked},
    {"shared_after_fork", shared_after_fork}, {"executed", executed},
    {"joining", joining},       {"listeners_in_sets", listeners_in_sets},
    {"error_behind_bytes", error_behind_bytes},
};

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN);
    if (argc == 3 && strcmp(argv[1], "inherited") == 0) return inherited(atoi(argv[2]));
    if (argc < 2 || inet_pton(AF_INET, argv[1], &here.sin_addr) != 1) return 2;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int wanted = argc == 2;
        for (int a = 2; a < argc; a++) wanted |= strcmp(argv[a], cases[i].name) == 0;
        if (!wanted) continue;
        cases[i].run();
        printf("ok %s\n", cases[i].name);
        fflush(stdout);
    }
    return 0;
}
