/* Cases about urgent data: MSG_OOB, the mark, SO_OOBINLINE, POLLPRI. */
#ifndef POSIX_URGENT_H
#define POSIX_URGENT_H

#include "ends.h"

#include <sys/select.h>

/* Waits until poll returns these events of the socket: first for the mark, then for what is readable. */
static void await_urgent(int fd) {
    struct pollfd one = {fd, POLLPRI, 0};
    CHECK(poll(&one, 1, 60000) == 1 && one.revents == POLLPRI);
}

static int polled(int fd) {
    struct pollfd one = {fd, POLLPRI | POLLIN, 0};
    CHECK(poll(&one, 1, 0) >= 0);
    return one.revents;
}

/* So many bytes are there to read, as far as FIONREAD counts. */
static void await_count(int fd, int count) {
    int there = -1;
    for (int i = 0; i < 60000 && there != count; i++) {
        CHECK(ioctl(fd, FIONREAD, &there) == 0);
        if (there != count) usleep(1000);
    }
    CHECK(there == count);
}

static void urgent_byte(void) {
    int e[2];
    char buffer[16] = {0};
    pair(e);
    CHECK(recv(e[1], buffer, 1, MSG_OOB) < 0 && errno == EINVAL && sockatmark(e[1]) == 0);
    CHECK(send(e[0], "abcX", 4, MSG_OOB) == 4 && write(e[0], "def", 3) == 3);
    await_urgent(e[1]);
    await_count(e[1], 3);
    CHECK(polled(e[1]) == (POLLPRI | POLLIN));
    CHECK(recv(e[1], buffer, 16, MSG_PEEK) == 3 && recv(e[1], buffer, 2, 0) == 2 && sockatmark(e[1]) == 0);
    CHECK(recv(e[1], buffer, 16, 0) == 1 && buffer[0] == 'c' && sockatmark(e[1]) == 1);
    CHECK(recv(e[1], buffer, 1, MSG_OOB | MSG_PEEK) == 1 && buffer[0] == 'X');
    CHECK(recv(e[1], buffer, 1, MSG_OOB) == 1 && buffer[0] == 'X' && sockatmark(e[1]) == 1);
    CHECK(!(polled(e[1]) & POLLPRI) && recv(e[1], buffer, 1, MSG_OOB) < 0 && errno == EINVAL);
    memset(buffer, 0, 16);
    CHECK(recv(e[1], buffer, 3, MSG_WAITALL) == 3 && memcmp(buffer, "def", 3) == 0 && sockatmark(e[1]) == 0);
    CHECK(write(e[1], "back", 4) == 4 && recv(e[0], buffer, 4, MSG_WAITALL) == 4);
    unpair(e);
}

/* A call that waits for all stops at the mark all the same. Who reads on there gives up the urgent byte. */
static void stops_at_the_mark(void) {
    int e[2];
    char buffer[16] = {0};
    pair(e);
    CHECK(write(e[0], "ab", 2) == 2 && send(e[0], "X", 1, MSG_OOB) == 1);
    await_urgent(e[1]);
    CHECK(recv(e[1], buffer, 16, MSG_WAITALL) == 2 && sockatmark(e[1]) == 1);
    CHECK(polled(e[1]) == POLLPRI);
    CHECK(recv(e[1], buffer, 0, MSG_DONTWAIT) <= 0 && sockatmark(e[1]) == 1);
    CHECK(recv(e[1], buffer, 16, MSG_DONTWAIT) < 0 && errno == EAGAIN);
    CHECK(recv(e[1], buffer, 1, MSG_OOB) < 0 && errno == EINVAL && polled(e[1]) == 0);
    /* The next one, at once after bytes that are not urgent. */
    CHECK(write(e[0], "cd", 2) == 2 && send(e[0], "Y", 1, MSG_OOB) == 1 && shutdown(e[0], SHUT_WR) == 0);
    await_urgent(e[1]);
    CHECK(recv(e[1], buffer, 16, 0) == 2 && recv(e[1], buffer, 1, MSG_OOB) == 1 && buffer[0] == 'Y');
    CHECK(recv(e[1], buffer, 16, 0) == 0);
    unpair(e);
}

static void urgent_inline(void) {
    int e[2], on = 1;
    char buffer[16] = {0};
    pair(e);
    CHECK(setsockopt(e[1], SOL_SOCKET, SO_OOBINLINE, &on, sizeof on) == 0);
    CHECK(send(e[0], "abX", 3, MSG_OOB) == 3 && write(e[0], "cd", 2) == 2);
    await_urgent(e[1]);
    await_count(e[1], 5);
    CHECK(recv(e[1], buffer, 1, MSG_OOB) < 0 && errno == EINVAL);
    CHECK(recv(e[1], buffer, 16, 0) == 2 && sockatmark(e[1]) == 1 && polled(e[1]) == (POLLPRI | POLLIN));
    CHECK(recv(e[1], buffer, 16, 0) == 3 && memcmp(buffer, "Xcd", 3) == 0 && sockatmark(e[1]) == 0);
    CHECK(polled(e[1]) == 0);
    unpair(e);
}

/* Only the last urgent byte is one; an earlier one that is not passed becomes an ordinary one. */
static void urgent_twice(void) {
    int e[2];
    char buffer[16] = {0};
    pair(e);
    CHECK(send(e[0], "aX", 2, MSG_OOB) == 2);
    await_urgent(e[1]);
    CHECK(send(e[0], "bY", 2, MSG_OOB) == 2);
    await_count(e[1], 3);
    CHECK(recv(e[1], buffer, 16, 0) == 3 && memcmp(buffer, "aXb", 3) == 0);
    await_urgent(e[1]);
    CHECK(recv(e[1], buffer, 1, MSG_OOB) == 1 && buffer[0] == 'Y');
    /* At the mark, with its byte taken, the next urgent byte comes: that byte does not come back into the stream. */
    CHECK(send(e[0], "cZ", 2, MSG_OOB) == 2);
    await_urgent(e[1]);
    CHECK(recv(e[1], buffer, 16, 0) == 1 && buffer[0] == 'c');
    CHECK(recv(e[1], buffer, 1, MSG_OOB) == 1 && buffer[0] == 'Z');
    unpair(e);
}

static void urgent_in_sets(void) {
    int e[2], set = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {0};
    struct msghdr message = {0};
    char byte = 0;
    struct iovec piece = {&byte, 1};
    fd_set exceptional;
    message.msg_iov = &piece, message.msg_iovlen = 1;
    pair(e);
    watch(set, EPOLL_CTL_ADD, e[1], EPOLLPRI, 7);
    CHECK(write(e[0], "a", 1) == 1);
    await_count(e[1], 1);
    CHECK(epoll_wait(set, &event, 1, 0) == 0);
    CHECK(send(e[0], "X", 1, MSG_OOB) == 1);
    CHECK(epoll_wait(set, &event, 1, 60000) == 1 && event.events == EPOLLPRI && event.data.u64 == 7);
    FD_ZERO(&exceptional);
    FD_SET(e[1], &exceptional);
    CHECK(select(e[1] + 1, NULL, NULL, &exceptional, &(struct timeval){60}) == 1 && FD_ISSET(e[1], &exceptional));
    CHECK(recvmsg(e[1], &message, MSG_OOB) == 1 && byte == 'X' && message.msg_flags == MSG_OOB);
    CHECK(epoll_wait(set, &event, 1, 0) == 0);
    CHECK(select(e[1] + 1, NULL, NULL, &exceptional, &(struct timeval){0}) == 0);
    unpair(e), close(set);
}

/* Bytes in front of the urgent one fill the buffer, more than once. */
static void urgent_behind_much(void) {
    enum { MUCH = 3 << 20 };
    int e[2], status;
    char *bytes = malloc(MUCH);
    char byte = 0;
    size_t got = 0;
    memset(bytes, 'm', MUCH);
    pair(e);
    pid_t child = fork();
    if (child == 0) {
        size_t sent = 0;
        close(e[1]);
        while (sent < MUCH) {
            ssize_t more = write(e[0], bytes + sent, MUCH - sent);
            if (more <= 0) _exit(1);
            sent += more;
        }
        _exit(send(e[0], "X", 1, MSG_OOB) == 1 && write(e[0], "end", 3) == 3 ? 0 : 1);
    }
    close(e[0]);
    while (!sockatmark(e[1])) {
        ssize_t more = read(e[1], bytes, 100000);
        CHECK(more > 0);
        for (ssize_t i = 0; i < more; i++) CHECK(bytes[i] == 'm');
        got += more;
        if (got == MUCH) await_urgent(e[1]);
    }
    CHECK(got == MUCH && recv(e[1], &byte, 1, MSG_OOB) == 1 && byte == 'X');
    CHECK(recv(e[1], bytes, 3, MSG_WAITALL) == 3 && memcmp(bytes, "end", 3) == 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    close(e[1]), free(bytes);
}

static volatile sig_atomic_t signalled, urgent_byte_in_handler;
static int signalled_fd;

static void on_urgent(int signal) {
    int saved = errno;
    char byte = 0;
    (void)signal;
    /* A signal may come for the mark, before its byte does. */
    if (recv(signalled_fd, &byte, 1, MSG_OOB) == 1) urgent_byte_in_handler = byte;
    signalled++;
    errno = saved;
}

static void on_event(int signal) {
    (void)signal;
    signalled++;
}

static volatile sig_atomic_t signal_fd;

static void on_queued(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    signal_fd = info->si_fd;
    signalled++;
}

static void use_handler(int number, void (*handler)(int)) {
    struct sigaction action = {0};
    action.sa_handler = handler;
    CHECK(sigaction(number, &action, NULL) == 0);
}

/* The program makes no call on a socket meanwhile. */
static void await_signals(int count) {
    for (int i = 0; i < 60000 && signalled < count; i++) usleep(1000);
    CHECK(signalled >= count);
}

/* SIGURG to the owner, whatever the program does; none to others, and none where there is no owner. */
static void urgent_signal(void) {
    int e[2];
    char buffer[16];
    pair(e);
    use_handler(SIGURG, on_urgent);
    signalled = 0, urgent_byte_in_handler = 0, signalled_fd = e[1];
    CHECK(send(e[0], "aW", 2, MSG_OOB) == 2);
    await_urgent(e[1]);
    CHECK(signalled == 0 && recv(e[1], buffer, 1, MSG_OOB) == 1);
    CHECK(fcntl(e[1], F_SETOWN, getpid()) == 0 && fcntl(e[1], F_GETOWN) == getpid());
    for (int round = 1; round <= 50; round++) {
        CHECK(send(e[0], "bX", 2, MSG_OOB) == 2);
        await_signals(round);
        CHECK(recv(e[1], buffer, 1, MSG_OOB) == 1 || urgent_byte_in_handler == 'X');
        urgent_byte_in_handler = 0;
    }
    CHECK(write(e[0], "c", 1) == 1);
    while (recv(e[1], buffer, 1, 0) == 1 && *buffer != 'c') {}
    CHECK(*buffer == 'c' && signalled == 50);
    unpair(e);
}

/* In a child, which is its own owner; by ioctl. */
static void urgent_signal_to_child(void) {
    int e[2], status;
    char byte = 'r';
    pair(e);
    pid_t child = fork();
    if (child == 0) {
        pid_t me = getpid();
        signalled = 0, signalled_fd = e[1];
        if (ioctl(e[1], FIOSETOWN, &me) != 0 || write(e[1], &byte, 1) != 1) _exit(1);
        await_signals(1);
        _exit(0);
    }
    int before = signalled;
    CHECK(read(e[0], &byte, 1) == 1 && send(e[0], "X", 1, MSG_OOB) == 1);
    CHECK(waitpid(child, &status, 0) == child && status == 0 && signalled == before);
    unpair(e);
    use_handler(SIGURG, SIG_DFL);
}

/* O_ASYNC: SIGIO for what comes, or the signal of F_SETSIG, which carries the descriptor. */
static void events_by_signal(void) {
    enum { SET_SIGNAL = 10 };
    int e[2], on = 1;
    char byte;
    struct sigaction queued = {0};
    pair(e);
    use_handler(SIGIO, on_event);
    CHECK(fcntl(e[1], F_SETOWN, getpid()) == 0 && ioctl(e[1], FIOASYNC, &on) == 0);
    CHECK(fcntl(e[1], F_GETFL) & O_ASYNC);
    for (int round = 0; round < 20; round++) {
        signalled = 0;
        CHECK(write(e[0], "x", 1) == 1);
        await_signals(1);
        CHECK(recv(e[1], &byte, 1, MSG_DONTWAIT) == 1);
    }
    queued.sa_sigaction = on_queued, queued.sa_flags = SA_SIGINFO;
    CHECK(sigaction(SIGRTMIN, &queued, NULL) == 0 && fcntl(e[1], SET_SIGNAL, SIGRTMIN) == 0);
    signalled = 0, signal_fd = -1;
    CHECK(write(e[0], "x", 1) == 1);
    await_signals(1);
    CHECK(signal_fd == e[1] && recv(e[1], &byte, 1, MSG_DONTWAIT) == 1);
    CHECK(fcntl(e[1], F_SETFL, fcntl(e[1], F_GETFL) & ~O_ASYNC) == 0);
    signalled = 0;
    CHECK(write(e[0], "x", 1) == 1 && recv(e[1], &byte, 1, 0) == 1);
    CHECK(signalled == 0);
    unpair(e);
    use_handler(SIGIO, SIG_DFL);
}

/* Some engines send none (docs/POSIX.md, "Urgent data"): the call fails. On the others the cases below run. */
static int refused(void) {
    int e[2];
    pair(e);
    int gone = send(e[0], "X", 1, MSG_OOB) < 0 && errno == EOPNOTSUPP;
    unpair(e);
    return gone;
}

static void urgent(void) {
    if (getenv("NO_URGENT")) {
        CHECK(refused());
        return;
    }
    urgent_byte();
    stops_at_the_mark();
    urgent_inline();
    urgent_twice();
    urgent_in_sets();
    urgent_behind_much();
    urgent_signal();
    urgent_signal_to_child();
}

#endif
