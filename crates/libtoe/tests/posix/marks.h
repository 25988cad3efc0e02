/* Cases about SO_RCVLOWAT and TCP_NOTSENT_LOWAT: from how many bytes on a program is notified. */
#ifndef POSIX_MARKS_H
#define POSIX_MARKS_H

#include "ends.h"

/* Without a call that the mark is about. */
static void await_bytes(int fd, int count) {
    int there = 0;
    for (int i = 0; i < 60000 && there < count; i++) {
        CHECK(ioctl(fd, FIONREAD, &there) == 0);
        if (there < count) usleep(1000);
    }
    CHECK(there == count);
}

static int mark_of(int fd) {
    int mark = -1;
    socklen_t len = sizeof mark;
    CHECK(getsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &mark, &len) == 0);
    return mark;
}

static void set_mark(int fd, int mark) { CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof mark) == 0); }

/* What poll, select and a set return at once. */
static int readable(int fd, int set) {
    struct pollfd one = {fd, POLLIN, 0};
    struct epoll_event event;
    fd_set fds;
    FD_ZERO(&fds);
    FD_SET(fd, &fds);
    int polled = poll(&one, 1, 0), selected = select(fd + 1, &fds, NULL, NULL, &(struct timeval){0});
    CHECK(polled == selected && polled == epoll_wait(set, &event, 1, 0));
    return polled;
}

static void receive_mark(void) {
    int e[2], set = epoll_create1(EPOLL_CLOEXEC), edges = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event;
    char buffer[100] = {0};
    pair(e);
    CHECK(mark_of(e[1]) == 1);
    set_mark(e[1], 0);
    CHECK(mark_of(e[1]) == 1);
    set_mark(e[1], -1);
    CHECK(mark_of(e[1]) > 1000);
    set_mark(e[1], 10);
    CHECK(mark_of(e[1]) == 10);
    watch(set, EPOLL_CTL_ADD, e[1], EPOLLIN, 1);
    watch(edges, EPOLL_CTL_ADD, e[1], EPOLLIN | EPOLLET, 2);
    CHECK(write(e[0], "abc", 3) == 3);
    await_bytes(e[1], 3);
    CHECK(!readable(e[1], set) && epoll_wait(edges, &event, 1, 20) == 0);
    /* A call that need not wait takes what is there. */
    CHECK(recv(e[1], buffer, 100, MSG_DONTWAIT | MSG_PEEK) == 3 && recv(e[1], buffer, 100, MSG_DONTWAIT) == 3);
    CHECK(write(e[0], "0123456", 7) == 7);
    await_bytes(e[1], 7);
    CHECK(!readable(e[1], set) && epoll_wait(edges, &event, 1, 20) == 0);
    CHECK(write(e[0], "789", 3) == 3 && epoll_wait(set, &event, 1, 60000) == 1);
    CHECK(readable(e[1], set) && epoll_wait(edges, &event, 1, 60000) == 1 && event.data.u64 == 2);
    /* With a part taken, there is too little again. */
    CHECK(read(e[1], buffer, 4) == 4 && !readable(e[1], set) && epoll_wait(edges, &event, 1, 0) == 0);
    /* A lower mark is an event. */
    set_mark(e[1], 6);
    CHECK(readable(e[1], set) && epoll_wait(edges, &event, 1, 0) == 1);
    set_mark(e[1], 1000000);
    CHECK(!readable(e[1], set));
    /* The end is always reported, and so is an error. */
    CHECK(shutdown(e[0], SHUT_WR) == 0 && epoll_wait(set, &event, 1, 60000) == 1 && event.events == EPOLLIN);
    CHECK(recv(e[1], buffer, 100, 0) == 6 && recv(e[1], buffer, 100, 0) == 0 && readable(e[1], set));
    unpair(e);
    pair(e);
    set_mark(e[1], 10);
    watch(set, EPOLL_CTL_ADD, e[1], EPOLLIN, 3);
    struct linger now = {1, 0};
    CHECK(setsockopt(e[0], SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
    close(e[0]);
    CHECK(epoll_wait(set, &event, 1, 60000) == 1 && event.events & EPOLLERR);
    close(e[1]), close(set), close(edges);
}

static int written_to;

static void *write_a_part_and_the_rest(void *unused) {
    char rest[30] = {0};
    CHECK(write(written_to, "abc", 3) == 3);
    usleep(20000);
    CHECK(write(written_to, rest, sizeof rest) == sizeof rest);
    return unused;
}

/* Calls that wait: until the mark, or what they ask for, or their time is over. */
static void receive_mark_blocking(void) {
    int e[2], one = 1;
    char buffer[100];
    pthread_t other;
    struct timeval soon = {.tv_usec = 20000}, later = {.tv_sec = 60};
    pair(e);
    CHECK(setsockopt(e[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
    set_mark(e[1], 20);
    CHECK(setsockopt(e[1], SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon) == 0);
    CHECK(recv(e[1], buffer, 100, 0) < 0 && errno == EAGAIN);
    CHECK(write(e[0], "abcdef", 6) == 6);
    await_bytes(e[1], 6);
    CHECK(recv(e[1], buffer, 2, 0) == 2 && recv(e[1], buffer, 100, MSG_PEEK) == 4 && recv(e[1], buffer, 100, 0) == 4);
    CHECK(setsockopt(e[1], SOL_SOCKET, SO_RCVTIMEO, &later, sizeof later) == 0);
    for (int flags = MSG_PEEK;; flags = 0) {
        written_to = e[0];
        CHECK(pthread_create(&other, NULL, write_a_part_and_the_rest, NULL) == 0);
        int got = (int)recv(e[1], buffer, 100, flags);
        CHECK(got >= 20 && memcmp(buffer, "abc", 3) == 0);
        CHECK(pthread_join(other, NULL) == 0);
        await_bytes(e[1], flags ? 33 : 33 - got);
        if (!flags) break;
        CHECK(recv(e[1], buffer, 33, MSG_WAITALL) == 33);
    }
    unpair(e);
}

/* What a listener has, its connections have. */
static void receive_mark_inherited(void) {
    int l = listener(0), e[2];
    set_mark(l, 10);
    show_interest(l);
    Address address = name_of(l);
    e[0] = socket(FAMILY, SOCK_STREAM | SOCK_CLOEXEC, 0);
    set_mark(e[0], 5);
    CHECK(connect(e[0], (void *)&address, sizeof address) == 0 && (e[1] = accept4(l, NULL, NULL, SOCK_CLOEXEC)) >= 0);
    CHECK(mark_of(e[0]) == 5 && mark_of(e[1]) == 10);
    for (int side = 0; side < 2; side++) {
        struct pollfd one = {e[side], POLLIN, 0};
        CHECK(write(e[!side], "abcd", 4) == 4);
        await_bytes(e[side], 4);
        CHECK(poll(&one, 1, 20) == 0);
        CHECK(write(e[!side], "abcdef", 6) == 6 && poll(&one, 1, 60000) == 1);
    }
    unpair(e);
    close(l);
}

/* What a call that does not wait writes while the peer reads nothing, until nothing more is taken for good. */
static int fill(int fd) {
    static char bytes[10000];
    int all = 0;
    for (int tries = 0; tries < 50; tries++) {
        int now = (int)send(fd, bytes, sizeof bytes, MSG_DONTWAIT);
        CHECK(now > 0 || errno == EAGAIN);
        if (now > 0) all += now, tries = 0;
        else usleep(2000);
    }
    return all;
}

static void *read_all(void *fd) {
    static char bytes[100000];
    while (read(*(int *)fd, bytes, sizeof bytes) > 0) {}
    return NULL;
}

/* Little is written ahead: a mark below the segment that a write fills leaves less in the buffer than none. */
static void unsent_mark(void) {
    int e[2], mark = -1, set = epoll_create1(EPOLL_CLOEXEC), filled[2];
    socklen_t len = sizeof mark;
    struct epoll_event event;
    pthread_t reader;
    char bytes[20000] = {0};
    for (int with = 0; with < 2; with++) {
        pair(e);
        CHECK(getsockopt(e[0], IPPROTO_TCP, TCP_NOTSENT_LOWAT, &mark, &len) == 0 && mark == 0);
        mark = 5000 * with;
        CHECK(setsockopt(e[0], IPPROTO_TCP, TCP_NOTSENT_LOWAT, &mark, sizeof mark) == 0);
        CHECK(getsockopt(e[0], IPPROTO_TCP, TCP_NOTSENT_LOWAT, &mark, &len) == 0 && mark == 5000 * with);
        struct pollfd one = {e[0], POLLOUT, 0};
        CHECK(poll(&one, 1, 0) == 1 && one.revents == POLLOUT);
        filled[with] = fill(e[0]);
        CHECK(poll(&one, 1, 20) == 0);
        watch(set, EPOLL_CTL_ADD, e[0], EPOLLOUT | EPOLLET, 1);
        CHECK(epoll_wait(set, &event, 1, 20) == 0);
        CHECK(pthread_create(&reader, NULL, read_all, &e[1]) == 0);
        CHECK(epoll_wait(set, &event, 1, 60000) == 1 && event.events == EPOLLOUT);
        CHECK(poll(&one, 1, 60000) == 1);
        /* A call that waits writes all. */
        for (int i = 0; i < 50; i++) CHECK(write(e[0], bytes, sizeof bytes) == sizeof bytes);
        int file = memfd_create("bytes", 0);
        CHECK(ftruncate(file, 300000) == 0 && sendfile(e[0], file, NULL, 300000) == 300000);
        close(file);
        /* Without a mark there is room at once. */
        mark = 0;
        CHECK(setsockopt(e[0], IPPROTO_TCP, TCP_NOTSENT_LOWAT, &mark, sizeof mark) == 0);
        CHECK(shutdown(e[0], SHUT_WR) == 0 && pthread_join(reader, NULL) == 0);
        unpair(e);
    }
    CHECK(filled[1] < filled[0]);
    close(set);
}

#endif
