/* Cases about waiting: epoll sets, threads, signals. */
#ifndef POSIX_EVENTS_H
#define POSIX_EVENTS_H

#include "ends.h"
#include <sys/prctl.h>
#include <sys/wait.h>

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
    int set = epoll_create1(EPOLL_CLOEXEC), s = socket(FAMILY, SOCK_STREAM | SOCK_NONBLOCK, 0), other;
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
    s = socket(FAMILY, SOCK_STREAM | SOCK_NONBLOCK, 0);
    Address one = here;
    one.ADDRESS_PORT = 0;
    CHECK(listen(s, 4) == 0 && shutdown(s, SHUT_RD) == 0);
    if (bind(s, (void *)&one, sizeof one) == 0) {
        CHECK(listen(s, 4) == 0);
        CHECK(accept(s, NULL, NULL) < 0 && errno == EAGAIN);
    }
    close(s);
    /* An entry outlives its descriptor, and another descriptor of the same socket has an entry of its own. */
    s = socket(FAMILY, SOCK_STREAM | SOCK_NONBLOCK, 0);
    watch(set, EPOLL_CTL_ADD, s, EPOLLIN, 3);
    other = dup(s);
    close(s);
    CHECK(listen(other, 4) == 0);
    watch(set, EPOLL_CTL_ADD, other, EPOLLIN, 4);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, other, events) < 0 && errno == EEXIST);
    CHECK(epoll_wait(set, events, 4, 0) == 0);
    close(other);
    /* An entry that has reported once is silent until it is armed again, whatever its socket becomes. */
    s = socket(FAMILY, SOCK_STREAM | SOCK_NONBLOCK, 0);
    memset(&one.ADDRESS_IP, 0, sizeof one.ADDRESS_IP);
    CHECK(bind(s, (void *)&one, sizeof one) == 0);
    watch(set, EPOLL_CTL_ADD, s, EPOLLIN | EPOLLOUT | EPOLLONESHOT, 5);
    CHECK(epoll_wait(set, events, 4, 0) == 1 && events[0].events == (EPOLLOUT | EPOLLHUP));
    CHECK(listen(s, 4) == 0 && (other = dup(s)) >= 0 && close(s) == 0);
    CHECK(epoll_wait(set, events, 4, 0) == 0 && shutdown(other, SHUT_RD) == 0);
    CHECK(epoll_wait(set, events, 4, 20) == 0);
    close(other);
    s = socket(FAMILY, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(bind(s, (void *)&one, sizeof one) == 0);
    watch(set, EPOLL_CTL_ADD, s, EPOLLIN | EPOLLOUT | EPOLLONESHOT, 6);
    CHECK(epoll_wait(set, events, 4, 0) == 1 && listen(s, 4) == 0);
    watch(set, EPOLL_CTL_MOD, s, EPOLLIN | EPOLLONESHOT, 7);
    CHECK(epoll_wait(set, events, 4, 0) == 0 && shutdown(s, SHUT_RD) == 0);
    CHECK(epoll_wait(set, events, 4, 20) == 1 && events[0].data.u64 == 7 && epoll_wait(set, events, 4, 20) == 0);
    CHECK(epoll_ctl(set, EPOLL_CTL_DEL, s, NULL) == 0 && epoll_ctl(set, EPOLL_CTL_DEL, s, NULL) < 0 && errno == ENOENT);
    close(s);
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

static void *sleep_in_set(void *set) {
    struct epoll_event event;
    CHECK(epoll_wait(*(int *)set, &event, 1, 200) == 0);
    return NULL;
}

/* A thread sleeps in epoll_wait when the process makes its first stream socket, as pollers of event libraries do. Its
 * wake-up must not cost another thread its own. This case comes first: later ones find sockets made. */
static void sleeps_before_the_first_socket(void) {
    int set = epoll_create1(0), event = eventfd(0, EFD_NONBLOCK), e[2];
    pthread_t sleeper, writer;
    char c;
    watch(set, EPOLL_CTL_ADD, event, EPOLLIN, 1);
    pthread_create(&sleeper, NULL, sleep_in_set, &set);
    usleep(50000);
    pair(e);
    pthread_join(sleeper, NULL);
    pthread_create(&writer, NULL, write_later, &e[0]);
    CHECK(read(e[1], &c, 1) == 1);
    pthread_join(writer, NULL);
    unpair(e), close(event), close(set);
}

enum { BLOCKED = 8, IN_SETS = 4, ECHOES = BLOCKED + IN_SETS };

static void *echo_blocked(void *fd) {
    char c;
    while (read(*(int *)fd, &c, 1) == 1) CHECK(write(*(int *)fd, &c, 1) == 1);
    return NULL;
}

static void *echo_in_set(void *fd) {
    int set = epoll_create1(0), n;
    struct epoll_event event;
    char c;
    watch(set, EPOLL_CTL_ADD, *(int *)fd, EPOLLIN, 1);
    do {
        CHECK(epoll_wait(set, &event, 1, -1) == 1);
        if ((n = (int)read(*(int *)fd, &c, 1)) == 1) CHECK(write(*(int *)fd, &c, 1) == 1);
    } while (n == 1);
    close(set);
    return NULL;
}

static void *accept_one(void *listener) {
    int fd = accept(*(int *)listener, NULL, NULL);
    CHECK(fd >= 0);
    close(fd);
    return NULL;
}

/* Many threads sleep, and bytes come for one or two of them: right after others, and after all sleep again. Nobody else would
 * wake them. */
static void turns(void) {
    int e[ECHOES][2], l = listener(0);
    pthread_t thread[ECHOES], accepts;
    char c, d;
    for (int i = 0; i < ECHOES; i++) {
        pair(e[i]);
        pthread_create(&thread[i], NULL, i < BLOCKED ? echo_blocked : echo_in_set, &e[i][1]);
    }
    pthread_create(&accepts, NULL, accept_one, &l);
    for (unsigned round = 0, dice = 1; round < 1500; round++) {
        dice = dice * 1103515245u + 12345u;
        int one = (int)(dice >> 16) % ECHOES, other = (one + 1 + (int)(dice >> 24) % (ECHOES - 1)) % ECHOES;
        if (round % 8 == 0) usleep(dice >> 16 & 4095);
        c = (char)round, d = (char)~round;
        CHECK(write(e[one][0], &c, 1) == 1 && write(e[other][0], &d, 1) == 1);
        CHECK(read(e[one][0], &c, 1) == 1 && c == (char)round && read(e[other][0], &d, 1) == 1 && d == (char)~round);
    }
    int last = socket(FAMILY, SOCK_STREAM, 0);
    Address address = name_of(l);
    CHECK(connect(last, (void *)&address, sizeof address) == 0);
    close(last);
    pthread_join(accepts, NULL);
    for (int i = 0; i < ECHOES; i++) {
        CHECK(shutdown(e[i][0], SHUT_WR) == 0);
        pthread_join(thread[i], NULL);
        unpair(e[i]);
    }
    close(l);
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

/* A signal that comes soon after a wait began ends it. Which comes first is up to the machine: where the handler
 * ran before the call, the wait is as long as asked for, and a few of these are nobody's fault. */
static void signal_at_once(void) {
    int e[2], set = epoll_create1(0), missed = 0;
    struct epoll_event event;
    struct sigaction action = {.sa_handler = on_alarm};
    pair(e);
    watch(set, EPOLL_CTL_ADD, e[1], EPOLLIN, 0);
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    for (int round = 0; round < 200; round++) {
        struct pollfd p = {e[1], POLLIN, 0};
        struct itimerval soon = {{0, 0}, {0, 15 + round % 46}};
        CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
        int n = round & 1 ? poll(&p, 1, 100) : epoll_wait(set, &event, 1, 100);
        CHECK(n == 0 || (n < 0 && errno == EINTR));
        missed += n == 0;
    }
    CHECK(missed <= 20);
    unpair(e), close(set);
}

/* A signal that is ignored by default ends no wait, whenever it comes: also where the library is awake. */
static void ignored_signals(void) {
    int e[2];
    char c;
    pair(e);
    struct timeval time_limit = {.tv_sec = 3};
    CHECK(signal(SIGCHLD, SIG_DFL) != SIG_ERR);
    CHECK(setsockopt(e[1], SOL_SOCKET, SO_RCVTIMEO, &time_limit, sizeof time_limit) == 0);
    pid_t parent = getpid(), noisy = fork();
    CHECK(noisy >= 0);
    if (noisy == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(e[0]), close(e[1]);
        while (kill(parent, SIGCHLD) == 0) continue;
    }
    pthread_t thread;
    for (int round = 0; round < 30; round++) {
        CHECK(pthread_create(&thread, NULL, write_later, &e[0]) == 0);
        CHECK(read(e[1], &c, 1) == 1);
        pthread_join(thread, NULL);
    }
    CHECK(kill(noisy, SIGKILL) == 0 && waitpid(noisy, NULL, 0) == noisy);
    unpair(e);
}

#endif
