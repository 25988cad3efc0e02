/* Cases about one connection: names, bytes each way, ends, errors. */
#ifndef POSIX_BYTES_H
#define POSIX_BYTES_H

#include "ends.h"

#include <linux/sockios.h>

static void names(void) {
    int e[2];
    pair(e);
    Address a = name_of(e[0]), b;
    socklen_t len = sizeof b;
    CHECK(getpeername(e[1], (void *)&b, &len) == 0);
    CHECK(a.ADDRESS_PORT == b.ADDRESS_PORT && same_ip(a, b));
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

/* An address that was asked for once is kept: through an attempt to connect that failed, and a later bind to any. */
static void kept_address(void) {
    Address address = here, any = {.ADDRESS_FAMILY = FAMILY};
    int closed = listener(0), fd = socket(FAMILY, SOCK_STREAM, 0);
    Address nobody = name_of(closed);
    close(closed);
    CHECK(bind(fd, (void *)&address, sizeof address) == 0);
    CHECK(connect(fd, (void *)&nobody, sizeof nobody) == -1 && errno == ECONNREFUSED);
    CHECK(same_ip(name_of(fd), here));
    CHECK(bind(fd, (void *)&any, sizeof any) == 0);
    CHECK(connect(fd, (void *)&nobody, sizeof nobody) == -1 && errno == ECONNREFUSED);
    CHECK(same_ip(name_of(fd), here));
    CHECK(listen(fd, 4) == 0);
    CHECK(same_ip(name_of(fd), here) && name_of(fd).ADDRESS_PORT != 0);
    close(fd);
    /* A listener has one port on all its addresses, also after such an attempt. */
    fd = socket(FAMILY, SOCK_STREAM, 0);
    CHECK(bind(fd, (void *)&any, sizeof any) == 0);
    CHECK(connect(fd, (void *)&nobody, sizeof nobody) == -1 && errno == ECONNREFUSED);
    CHECK(listen(fd, 4) == 0);
    show_interest(fd);
    Address own = here;
    own.ADDRESS_PORT = name_of(fd).ADDRESS_PORT;
    int client = socket(FAMILY, SOCK_STREAM, 0);
    CHECK(own.ADDRESS_PORT != 0 && connect(client, (void *)&own, sizeof own) == 0);
    close(client);
    close(fd);
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
    CHECK(send(e[0], "gh", 2, MSG_EOR) == 2 && send(e[0], "i", 1, MSG_EOR | MSG_MORE) == 1 && write(e[0], "jk", 2) == 2);
    CHECK(recv(e[1], buffer, 5, MSG_WAITALL) == 5 && memcmp(buffer, "ghijk", 5) == 0);
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

/* A reset shows in each call that reports it, without another one before. CPython's check for data before a TLS
 * handshake rests on getpeername (CVE-2023-40217). */
static void reset_alone(void) {
    struct linger now = {1, 0};
    for (int way = 0; way < 2; way++) {
        int e[2], error = 0;
        Address peer;
        socklen_t len = sizeof peer;
        pair(e);
        CHECK(write(e[0], "hello", 5) == 5);
        CHECK(setsockopt(e[0], SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
        CHECK(getpeername(e[1], (struct sockaddr *)&peer, &len) == 0);
        close(e[0]);
        int seen = 0;
        for (int round = 0; round < 1000 && !seen; round++) {
            usleep(1000);
            len = way ? sizeof error : sizeof peer;
            if (way) seen = getsockopt(e[1], SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == ECONNRESET;
            else seen = getpeername(e[1], (struct sockaddr *)&peer, &len) < 0 && errno == ENOTCONN;
        }
        CHECK(seen);
        close(e[1]);
    }
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

/* What was written before a close that resets comes first: a server refuses a request that it does not read to its
 * end. */
static void answered_before_reset(void) {
    struct linger none = {.l_onoff = 1, .l_linger = 0};
    for (int round = 0; round < 20; round++) {
        int e[2];
        char buffer[16];
        pair(e);
        struct pollfd came = {e[1], POLLIN, 0}, gone = {e[0], 0, 0};
        CHECK(write(e[0], "request", 7) == 7 && poll(&came, 1, 1000) == 1);
        CHECK(write(e[1], "refused", 7) == 7);
        CHECK(setsockopt(e[1], SOL_SOCKET, SO_LINGER, &none, sizeof none) == 0);
        close(e[1]);
        while (!(gone.revents & POLLHUP)) CHECK(poll(&gone, 1, 1000) == 1);
        CHECK(recv(e[0], buffer, 16, MSG_DONTWAIT) == 7 && memcmp(buffer, "refused", 7) == 0);
        CHECK(recv(e[0], buffer, 16, MSG_DONTWAIT) < 0 && errno == ECONNRESET);
        close(e[0]);
    }
}

static void nonblocking_connect(void) {
    int l = listener(SOCK_NONBLOCK), fd = socket(FAMILY, SOCK_STREAM | SOCK_NONBLOCK, 0), error = -1;
    socklen_t len = sizeof error;
    Address address = name_of(l);
    CHECK(accept(l, NULL, NULL) < 0 && errno == EAGAIN);
    CHECK(fcntl(fd, F_GETFL) & O_NONBLOCK);
    int result = connect(fd, (void *)&address, sizeof address);
    CHECK(result == 0 || errno == EINPROGRESS);
    Address own = name_of(fd), seen;
    struct pollfd p = {fd, POLLOUT, 0};
    CHECK(poll(&p, 1, 2000) == 1 && p.revents == POLLOUT);
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0);
    p = (struct pollfd){l, POLLIN, 0};
    CHECK(poll(&p, 1, 2000) == 1);
    socklen_t seen_len = sizeof seen;
    int other = accept(l, (void *)&seen, &seen_len);
    CHECK(other >= 0 && !(fcntl(other, F_GETFL) & O_NONBLOCK));
    CHECK(own.ADDRESS_PORT != 0 && own.ADDRESS_PORT == seen.ADDRESS_PORT);
    close(other), close(fd), close(l);
    /* Nobody listens there any more; and nobody ever does at port 0, which may be refused before a SYN is sent. */
    Address nowhere[] = {address, address};
    nowhere[1].ADDRESS_PORT = 0;
    for (int i = 0; i < 2; i++) {
        fd = socket(FAMILY, SOCK_STREAM | SOCK_NONBLOCK, 0);
        result = connect(fd, (void *)&nowhere[i], sizeof address);
        CHECK(result < 0 && (errno == EINPROGRESS || errno == ECONNREFUSED));
        if (errno == EINPROGRESS) {
            p = (struct pollfd){fd, POLLOUT, 0};
            CHECK(poll(&p, 1, 2000) == 1 && p.revents & POLLERR && p.revents & POLLHUP);
            CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == ECONNREFUSED);
        }
        close(fd);
    }
    fd = socket(FAMILY, SOCK_STREAM, 0);
    CHECK(connect(fd, (void *)&address, sizeof address) < 0 && errno == ECONNREFUSED);
    close(fd);
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

static int option_of(int fd, int level, int name) {
    int value = -1;
    socklen_t len = sizeof value;
    CHECK(getsockopt(fd, level, name, &value, &len) == 0);
    return value;
}

/* Bytes that wait for the peer, who does not read, once no more go in. */
static int waiting_at_most(int fd, size_t *sent) {
    static char block[65536];
    struct pollfd p = {fd, POLLOUT, 0};
    int queued = 0, unsent = -1;
    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    while (poll(&p, 1, 200) == 1) {
        ssize_t n = write(fd, block, sizeof block);
        CHECK(n > 0 || errno == EAGAIN);
        if (n > 0) *sent += (size_t)n;
    }
    CHECK(ioctl(fd, SIOCOUTQ, &queued) == 0);
    CHECK(ioctl(fd, SIOCOUTQNSD, &unsent) == 0 && unsent >= 0 && unsent <= queued);
    return queued;
}

/* SO_SNDBUF bounds what waits for the peer, whenever it is set; where it is raised, there is room at once. */
static void send_buffer(void) {
    int wide[2], narrow[2], small = 8192, large = 100000, l = listener(0), set = epoll_create1(0);
    Address address = name_of(l);
    size_t sent = 0, all = 0;
    static char back[65536];
    struct epoll_event events[2];
    pair(wide), pair(narrow);
    CHECK(setsockopt(narrow[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small) == 0);
    CHECK(option_of(narrow[0], SOL_SOCKET, SO_SNDBUF) == 2 * small);
    int most = waiting_at_most(wide[0], &all), less = waiting_at_most(narrow[0], &sent);
    CHECK(less > 0 && less < most);
    watch(set, EPOLL_CTL_ADD, narrow[0], EPOLLOUT | EPOLLET, 5);
    for (ssize_t n; (n = write(narrow[0], back, sizeof back)) > 0;) sent += (size_t)n;
    CHECK(errno == EAGAIN && epoll_wait(set, events, 2, 0) == 0);
    CHECK(setsockopt(narrow[0], SOL_SOCKET, SO_SNDBUF, &large, sizeof large) == 0);
    CHECK(epoll_wait(set, events, 2, 2000) == 1 && events[0].events == EPOLLOUT);
    CHECK(waiting_at_most(narrow[0], &sent) > less);
    for (ssize_t n; sent > 0; sent -= (size_t)n) CHECK((n = read(narrow[1], back, sizeof back)) > 0);
    CHECK(epoll_wait(set, events, 2, 2000) == 1);
    unpair(narrow), close(set);
    /* Before connect, and what accept gives has it of the listener. */
    narrow[0] = socket(FAMILY, SOCK_STREAM, 0);
    CHECK(setsockopt(narrow[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small) == 0);
    CHECK(setsockopt(l, SOL_SOCKET, SO_SNDBUF, &small, sizeof small) == 0);
    show_interest(l);
    CHECK(connect(narrow[0], (void *)&address, sizeof address) == 0);
    CHECK((narrow[1] = accept(l, NULL, NULL)) >= 0);
    for (int i = 0; i < 2; i++) CHECK((less = waiting_at_most(narrow[i], &sent)) > 0 && less < most);
    unpair(wide), unpair(narrow), close(l);
}

/* A write that may not block is taken at once although it is larger than the buffer; with bytes under way before it,
   and again and again, so that it goes around the ring. GROWS: the host has a ring for it. A program that has
   set SO_SNDBUF has what it asked for. */
static void large_writes(void) {
    enum { ALL = 300 << 10, ROUNDS = 12 };
    static unsigned char out[ALL], in[ALL];
    int e[2], small = 8192, grows = getenv("GROWS") != NULL;
    pair(e);
    CHECK(write(e[0], "before", 6) == 6);
    CHECK(fcntl(e[0], F_SETFL, O_NONBLOCK) == 0);
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned k = 0; k < ALL; k++) out[k] = (unsigned char)(k * 13 + k / 251 + round);
        size_t sent = 0, got = 0;
        while (got < ALL) {
            ssize_t n = sent < ALL ? write(e[0], out + sent, ALL - sent) : 0;
            CHECK(n >= 0 || errno == EAGAIN);
            CHECK(!grows || sent > 0 || n == ALL);
            if (n > 0) sent += (size_t)n;
            if (round == 0 && got == 0) CHECK(read(e[1], in, 6) == 6 && memcmp(in, "before", 6) == 0);
            if (sent > got) CHECK((n = read(e[1], in + got, sent - got)) > 0);
            if (n > 0) got += (size_t)n;
        }
        CHECK(memcmp(in, out, ALL) == 0);
    }
    unpair(e);
    pair(e);
    CHECK(setsockopt(e[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small) == 0);
    CHECK(fcntl(e[0], F_SETFL, O_NONBLOCK) == 0);
    ssize_t n = write(e[0], out, ALL);
    CHECK(n > 0 && n < ALL);
    unpair(e);
}

/* Small messages in several pieces, so many that they go through all of both buffers more than once. */
static void crumbs(void) {
    enum { HEAD = 17, BODY = 61, TAIL = 5, ALL = HEAD + BODY + TAIL, MESSAGES = 8000 };
    int e[2];
    unsigned char out[ALL], in[ALL];
    pair(e);
    for (unsigned i = 0; i < MESSAGES; i++) {
        for (unsigned k = 0; k < ALL; k++) out[k] = (unsigned char)(i * 7 + k);
        struct iovec from[] = {{out, HEAD}, {out + HEAD, BODY}, {NULL, 0}, {out + HEAD + BODY, TAIL}};
        struct msghdr message = {.msg_iov = from, .msg_iovlen = 4};
        CHECK(sendmsg(e[i & 1], &message, 0) == ALL);
        memset(in, 0, sizeof in);
        for (unsigned got = 0; got < ALL;) {
            unsigned half = (ALL - got) / 2;
            struct iovec to[] = {{in + got, half}, {in + got + half, ALL - got - half}};
            ssize_t n = readv(e[~i & 1], to, 2);
            CHECK(n > 0);
            got += (unsigned)n;
        }
        CHECK(memcmp(in, out, ALL) == 0);
    }
    unpair(e);
}

/* What is set on one socket is on no other, although they had the same until then. */
static void options(void) {
    int a[2], b[2], on = 1;
    pair(a), pair(b);
    for (int i = 0; i < 2; i++) {
        CHECK(setsockopt(a[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
        CHECK(setsockopt(b[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
    }
    struct timeval soon = {0, 20000};
    CHECK(setsockopt(a[1], SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon) == 0);
    CHECK(setsockopt(b[0], SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on) == 0);
    CHECK(option_of(a[0], SOL_SOCKET, SO_KEEPALIVE) == 0 && option_of(b[0], SOL_SOCKET, SO_KEEPALIVE) != 0);
    CHECK(option_of(a[1], IPPROTO_TCP, TCP_NODELAY) != 0 && option_of(b[1], IPPROTO_TCP, TCP_NODELAY) != 0);
    char c;
    CHECK(read(a[1], &c, 1) < 0 && errno == EAGAIN);
    struct pollfd p = {b[1], POLLIN, 0};
    CHECK(write(b[0], "x", 1) == 1 && poll(&p, 1, 2000) == 1 && read(b[1], &c, 1) == 1 && c == 'x');
    unpair(a), unpair(b);
}

#endif

/* A pipe and a socket exchange bytes, and none is lost where one of them takes less. */
static void through_pipes(void) {
    int ends[2], pipe_ends[2];
    char text[9000], back[sizeof text];
    off_t offset = 0;
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)(i * 7);
    pair(ends);
    CHECK(pipe(pipe_ends) == 0);
    CHECK(splice(pipe_ends[0], NULL, ends[0], NULL, 100, SPLICE_F_NONBLOCK) < 0 && errno == EAGAIN);
    CHECK(splice(pipe_ends[0], &offset, ends[0], NULL, 100, 0) < 0 && errno == ESPIPE);
    CHECK(splice(ends[0], NULL, ends[1], NULL, 100, 0) < 0 && errno == EINVAL);
    CHECK(write(pipe_ends[1], text, sizeof text) == sizeof text);
    CHECK(sendfile(ends[0], pipe_ends[0], NULL, 100) < 0 && errno == EINVAL);
    CHECK(splice(pipe_ends[0], NULL, ends[0], NULL, sizeof text, 0) == sizeof text);
    /* The pipe is nearly full: what it does not take stays in the socket. */
    CHECK(fcntl(pipe_ends[1], F_SETPIPE_SZ, 4096) == 4096 && fcntl(pipe_ends[1], F_SETFL, O_NONBLOCK) == 0);
    size_t got = 0;
    for (ssize_t more; got < sizeof text; got += (size_t)more) {
        more = splice(ends[1], NULL, pipe_ends[1], NULL, sizeof text, SPLICE_F_NONBLOCK);
        CHECK(more > 0 && more <= 4096);
        CHECK(splice(ends[1], NULL, pipe_ends[1], NULL, 1, SPLICE_F_NONBLOCK) < 0 && errno == EAGAIN);
        CHECK(read(pipe_ends[0], back + got, (size_t)more) == more);
    }
    CHECK(memcmp(text, back, sizeof text) == 0);
    close(ends[0]);
    CHECK(splice(ends[1], NULL, pipe_ends[1], NULL, 100, 0) == 0);
    close(pipe_ends[1]);
    CHECK(splice(pipe_ends[0], NULL, ends[1], NULL, 100, 0) == 0);
    close(ends[1]), close(pipe_ends[0]);
}
