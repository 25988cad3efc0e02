/* Cases about descriptors and processes: dup, files, fork, exec; and joining two connections. */
#ifndef POSIX_PROCESSES_H
#define POSIX_PROCESSES_H

#include "ends.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

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
    Address address = name_of(l);
    pair(e);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int fd = accept(l, NULL, NULL);
        if (fd < 0 || read(fd, &c, 1) != 1 || write(e[1], &c, 1) != 1 || write(fd, "!", 1) != 1) _exit(1);
        _exit(0);
    }
    close(e[1]), close(l);
    int fd = socket(FAMILY, SOCK_STREAM, 0);
    int tries = 0;
    while (connect(fd, (void *)&address, sizeof address) < 0 && tries++ < 200) {
        close(fd), usleep(10000);
        fd = socket(FAMILY, SOCK_STREAM, 0);
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

/* A process that ends with bytes unread resets the connection, as close does: its peer must not conclude that they were
 * taken (RFC 2525 section 2.17). */
static void ends_with_bytes_unread(void) {
    for (int unread = 0; unread < 2; unread++) {
        int e[2], p[2];
        char c;
        pair(e);
        CHECK(pipe(p) == 0);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            close(e[0]), close(p[1]);
            if (read(e[1], &c, 1) != 1 || write(e[1], "a", 1) != 1) _exit(1);
            if (read(p[0], &c, 1) == 0) raise(SIGKILL);
        }
        close(e[1]), close(p[0]);
        CHECK(write(e[0], "xy", 1 + unread) == 1 + unread && read(e[0], &c, 1) == 1 && c == 'a');
        close(p[1]);
        int status;
        CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
        ssize_t n = read(e[0], &c, 1);
        CHECK(unread ? n < 0 && errno == ECONNRESET : n == 0);
        close(e[0]);
    }
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

/* One process waits for bytes of a connection while another one uses it, and calls nothing of the library afterwards:
 * rsync's receiver and generator are such a pair. */
static void waits_while_shared(void) {
    int e[2];
    char c;
    for (int blocking = 0; blocking < 2; blocking++) {
        pair(e);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            struct pollfd p = {e[1], POLLIN, 0};
            if (!blocking && poll(&p, 1, 3000) != 1) _exit(1);
            signal(SIGALRM, SIG_DFL), alarm(10);
            _exit(read(e[1], &c, 1) == 1 && c == 'x' ? 0 : 2);
        }
        usleep(20000);
        CHECK(write(e[1], "w", 1) == 1 && read(e[0], &c, 1) == 1 && c == 'w' && write(e[0], "x", 1) == 1);
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        unpair(e);
    }
}

/* Two processes write to one connection at the same moment, and send nothing more: all bytes come through. */
static void writes_at_once(void) {
    enum { ROUNDS = 500 };
    int e[2];
    char c;
    /* How many bytes were read, for which the library need not be called. */
    atomic_int *seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(seen != MAP_FAILED);
    pair(e);
    pid_t writers[2];
    for (int i = 0; i < 2; i++) {
        writers[i] = fork();
        CHECK(writers[i] >= 0);
        if (writers[i] > 0) continue;
        signal(SIGALRM, SIG_DFL), alarm(10);
        close(e[0]);
        for (int round = 0; round < ROUNDS; round++) {
            while (atomic_load(seen) < 2 * round) sched_yield();
            if (write(e[1], "w", 1) != 1) _exit(1);
        }
        _exit(0);
    }
    close(e[1]);
    struct timeval time_limit = {.tv_sec = 3};
    CHECK(setsockopt(e[0], SOL_SOCKET, SO_RCVTIMEO, &time_limit, sizeof time_limit) == 0);
    for (int i = 0; i < 2 * ROUNDS; i++) {
        CHECK(read(e[0], &c, 1) == 1);
        atomic_fetch_add(seen, 1);
    }
    for (int i = 0; i < 2; i++) {
        int status;
        CHECK(waitpid(writers[i], &status, 0) == writers[i] && status == 0);
    }
    CHECK(read(e[0], &c, 1) == 0);
    close(e[0]), munmap(seen, sizeof *seen);
}

/* The new program finds the connection under its number (see `inherited` below), in whatever environment it is run. */
static void executed_in(char **environment) {
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
        if (environment) execve("/proc/self/exe", arguments, environment);
        else execv("/proc/self/exe", arguments);
        _exit(9);
    }
    close(e[1]);
    int status;
    CHECK(read(e[0], &c, 1) == 1 && c == 'Q' && write(e[0], "r", 1) == 1);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(read(e[0], &c, 1) == 0);
    close(e[0]);
}

/* nginx writes the environment of its new binary itself; scripts preload other libraries. */
static void executed(void) {
    char *empty[] = {NULL}, *other[] = {"HOME=/", "LD_PRELOAD=", NULL};
    executed_in(NULL);
    executed_in(empty);
    executed_in(other);
}

/* A program gets the sockets that are not closed on exec, and nothing else: what its maker closes beside them ends at
 * once, and is free. */
static void carried_alone_by(int by_vfork) {
    int kept[2], rest[2], alive[2], status;
    char c, *arguments[] = {"cat", NULL};
    struct timeval time_limit = {.tv_sec = 2};
    int l = listener(0), again = socket(FAMILY, SOCK_STREAM | SOCK_CLOEXEC, 0);
    Address address = name_of(l);
    pair(kept), pair(rest);
    CHECK(pipe2(alive, O_CLOEXEC) == 0 && fcntl(kept[1], F_SETFD, 0) == 0);
    pid_t child = by_vfork ? vfork() : fork();
    CHECK(child >= 0);
    if (child == 0) {
        dup2(alive[0], 0);
        execvp("cat", arguments);
        _exit(9);
    }
    close(alive[0]), close(l), close(rest[1]);
    CHECK(setsockopt(rest[0], SOL_SOCKET, SO_RCVTIMEO, &time_limit, sizeof time_limit) == 0);
    CHECK(read(rest[0], &c, 1) == 0);
    int tries = 0;
    while (bind(again, (void *)&address, sizeof address) < 0 && tries++ < 200) usleep(10000);
    CHECK(tries < 200);
    /* The program never uses what it got, and has it all the same. */
    struct pollfd end = {kept[0], POLLIN, 0};
    close(kept[1]);
    CHECK(poll(&end, 1, 300) == 0);
    close(alive[1]);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(poll(&end, 1, 2000) == 1 && read(kept[0], &c, 1) == 0);
    close(kept[0]), close(rest[0]), close(again);
}

/* Nothing is kept for a program that could not be run. */
static void carried_to_none_by(int by_vfork) {
    int e[2], status;
    char c, *arguments[] = {"none", NULL};
    struct timeval time_limit = {.tv_sec = 2};
    pair(e);
    CHECK(fcntl(e[1], F_SETFD, 0) == 0);
    pid_t child = by_vfork ? vfork() : fork();
    CHECK(child >= 0);
    if (child == 0) {
        execv("/nonexistent/program", arguments);
        _exit(errno == ENOENT ? 7 : 8);
    }
    CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
    close(e[1]);
    CHECK(setsockopt(e[0], SOL_SOCKET, SO_RCVTIMEO, &time_limit, sizeof time_limit) == 0);
    CHECK(read(e[0], &c, 1) == 0);
    close(e[0]);
}

static void carried_alone(void) {
    for (int by_vfork = 0; by_vfork < 2; by_vfork++) carried_alone_by(by_vfork), carried_to_none_by(by_vfork);
}

/* More sockets than can be described in one variable of the environment: 128 KiB (execve(2)). */
static void many_executed(void) {
    enum { MANY = 1500 };
    static int many[MANY];
    struct rlimit limit, more;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    more = limit;
    if (more.rlim_cur < MANY + 500) more.rlim_cur = MANY + 500;
    if (more.rlim_max < more.rlim_cur) return;
    CHECK(setrlimit(RLIMIT_NOFILE, &more) == 0);
    for (int i = 0; i < MANY; i++) CHECK((many[i] = socket(FAMILY, SOCK_STREAM, 0)) >= 0);
    executed_in(NULL);
    carried_alone_by(0), carried_alone_by(1);
    for (int i = 0; i < MANY; i++) close(many[i]);
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

/* A child that runs no other program has all that its parent had. */
static void kept_by_a_child(void) {
    int e[2], alive[2], status;
    char c;
    pair(e);
    CHECK(pipe2(alive, O_CLOEXEC) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(alive[1]);
        _exit(read(alive[0], &c, 1) == 0 ? 0 : 1);
    }
    struct pollfd end = {e[0], POLLIN, 0};
    close(alive[0]), close(e[1]);
    CHECK(poll(&end, 1, 300) == 0);
    close(alive[1]);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(poll(&end, 1, 2000) == 1 && read(e[0], &c, 1) == 0);
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
    if (!toe_splice || IS_LOOPBACK(here)) return;
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

/* What OpenSSH's server lets the process do that reads from unknown peers (its sandbox-seccomp-filter.c), in short. */
static const int let[] = {
    SYS_read, SYS_write, SYS_close, SYS_clock_gettime, SYS_gettimeofday, SYS_getpid, SYS_gettid, SYS_futex, SYS_brk,
    SYS_mmap, SYS_munmap, SYS_mremap, SYS_madvise, SYS_nanosleep, SYS_clock_nanosleep, SYS_poll, SYS_ppoll,
    SYS_select, SYS_pselect6, SYS_rt_sigprocmask, SYS_shutdown, SYS_getrandom, SYS_exit, SYS_exit_group,
};

static void confine(void) {
    enum { LET = sizeof let / sizeof *let };
    struct sock_filter steps[LET + 3];
    struct sock_fprog filter = {LET + 3, steps};
    struct rlimit none = {0, 0}, one = {1, 1}; /* poll refuses more descriptors than the limit. */
    steps[0] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < LET; i++)
        steps[i + 1] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, let[i], LET - i, 0);
    steps[LET + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    steps[LET + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    CHECK(setrlimit(RLIMIT_NOFILE, &one) == 0 && setrlimit(RLIMIT_FSIZE, &none) == 0);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
}

/* A child that installs such a filter goes on with the connection that it has: it waits, by poll and by a blocking read,
 * until its peer writes. */
static void confined(void) {
    int e[2], status;
    char c;
    pair(e);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(e[0]);
        /* The library has not asked about it when the filter comes, and may not ask after that. */
        signal(SIGHUP, SIG_IGN);
        confine();
        for (int i = 0; i < 20; i++) {
            struct pollfd one = {e[1], POLLIN, 0};
            if (i % 2 == 0 && poll(&one, 1, 10000) != 1) _exit(2);
            if (read(e[1], &c, 1) != 1 || write(e[1], &c, 1) != 1) _exit(3);
        }
        _exit(0);
    }
    close(e[1]);
    for (int i = 0; i < 20; i++) {
        usleep(i < 10 ? 0 : 3000);
        CHECK(write(e[0], "x", 1) == 1 && read(e[0], &c, 1) == 1);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(e[0]);
}

#endif
