/* Cases about system calls that a program makes by number, through the C library's syscall(). */
#ifndef POSIX_CALLS_H
#define POSIX_CALLS_H

#include "ends.h"

#include <sys/syscall.h>

/* A descriptor closed by number is closed: the peer sees the end, and the file that gets the number next is that file. */
static void closed_by_number(void) {
    int e[2], file, memory = memfd_create("file", MFD_CLOEXEC);
    char buffer[8] = {0};
    pair(e);
    int number = e[0];
    CHECK(syscall(SYS_close, number) == 0);
    CHECK(read(e[1], buffer, 8) == 0);
    CHECK((file = fcntl(memory, F_DUPFD_CLOEXEC, number)) == number);
    CHECK(write(file, "line", 4) == 4 && pread(file, buffer, 8, 0) == 4 && memcmp(buffer, "line", 4) == 0);
    close(file), close(memory);
    CHECK(syscall(SYS_close, number) < 0 && errno == EBADF);
    close(e[1]);
    pair(e);
    CHECK(syscall(SYS_close_range, e[0], e[0], 0) == 0 && read(e[1], buffer, 8) == 0);
    close(e[1]);
}

static void moved_by_number(void) {
    int e[2], set = (int)syscall(SYS_epoll_create1, EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 9};
    struct iovec parts[2] = {{"cd", 2}, {"e", 1}};
    char buffer[8] = {0};
    pair(e);
    CHECK(syscall(SYS_epoll_ctl, set, EPOLL_CTL_ADD, e[1], &event) == 0);
    CHECK(syscall(SYS_epoll_pwait, set, &event, 1, 0, NULL, 8) == 0);
    CHECK(syscall(SYS_write, e[0], "ab", 2) == 2 && syscall(SYS_writev, e[0], parts, 2) == 3);
    CHECK(syscall(SYS_epoll_pwait, set, &event, 1, 5000, NULL, 8) == 1 && event.data.u64 == 9);
    for (int got = 0; got < 5;) {
        int more = (int)syscall(SYS_recvfrom, e[1], buffer + got, 8 - got, 0, NULL, NULL);
        CHECK(more > 0);
        got += more;
    }
    CHECK(memcmp(buffer, "abcde", 5) == 0);
    CHECK(syscall(SYS_recvfrom, e[1], buffer, 8, MSG_DONTWAIT, NULL, NULL) < 0 && errno == EAGAIN);
    int copy = (int)syscall(SYS_dup, e[0]);
    CHECK(copy > 0 && syscall(SYS_close, e[0]) == 0);
    CHECK(syscall(SYS_sendto, copy, "f", 1, MSG_NOSIGNAL, NULL, 0) == 1 && read(e[1], buffer, 8) == 1);
    e[0] = copy;
    unpair(e), close(set);
}

/* A child made by clone has what the parent had, and a file closed there is still open here. */
static void forked_by_number(void) {
    int e[2], status;
    char buffer[8];
    pair(e);
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (child == 0) {
        int right = write(e[0], "child", 5) == 5 && close(e[0]) == 0 && close(e[1]) == 0;
        _exit(right ? 0 : 1);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(read(e[1], buffer, 8) == 5);
    CHECK(write(e[0], "parent", 6) == 6 && read(e[1], buffer, 8) == 6);
    unpair(e);
}

static void by_number(void) {
    closed_by_number();
    moved_by_number();
    forked_by_number();
}

#endif
