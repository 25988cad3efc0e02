/* What programs do below the C library's symbols: stdio and other calls that the C library makes inside itself, and
 * system calls by an instruction of the program's own. The same on the kernel's TCP and on OpenTOE.
 *   below ADDRESS [CASE] */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #what, strerror(errno)); \
            exit(1); \
        } \
    } while (0)

extern char **environ;
static char *self, *address;

/* A system call by an instruction; an error is below 0. */
static long bare(long number, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

/* The stand-in for the daemon takes connections when somebody has asked for some. */
static void ready_to_accept(int listener)
{
    CHECK(fcntl(listener, F_SETFL, O_NONBLOCK) == 0 && accept(listener, NULL, NULL) < 0 && errno == EAGAIN);
    CHECK(fcntl(listener, F_SETFL, 0) == 0);
}

/* Two ends of a connection; what does not come within ten seconds fails. */
static void pair(int ends[2])
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof at;
    struct timeval soon = {.tv_sec = 10};
    CHECK(inet_pton(AF_INET, address, &at.sin_addr) == 1);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(listener >= 0 && bind(listener, (void *)&at, len) == 0 && listen(listener, 1) == 0);
    CHECK(getsockname(listener, (void *)&at, &len) == 0);
    ready_to_accept(listener);
    CHECK((ends[0] = socket(AF_INET, SOCK_STREAM, 0)) >= 0 && connect(ends[0], (void *)&at, len) == 0);
    CHECK((ends[1] = accept(listener, NULL, NULL)) >= 0);
    CHECK(setsockopt(ends[1], SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon) == 0);
    CHECK(close(listener) == 0);
}

/* Exactly these bytes come. */
static void expect(int fd, const char *text)
{
    char got[256] = "";
    size_t len = 0, all = strlen(text);
    while (len < all) {
        ssize_t more = read(fd, got + len, all - len);
        CHECK(more > 0);
        len += more;
    }
    CHECK(strcmp(got, text) == 0);
}

static void expect_end(int fd)
{
    char byte;
    CHECK(read(fd, &byte, 1) == 0);
}

static void stdio(void)
{
    int ends[2];
    char line[64], big[5000];
    pair(ends);
    FILE *in = fdopen(dup(ends[0]), "r"), *out = fdopen(ends[0], "w");
    CHECK(in && out && fprintf(out, "hello %d\n", 7) == 8 && fflush(out) == 0);
    expect(ends[1], "hello 7\n");
    CHECK(write(ends[1], "one\ntwo\n", 8) == 8);
    CHECK(fgets(line, sizeof line, in) && strcmp(line, "one\n") == 0);
    CHECK(fgets(line, sizeof line, in) && strcmp(line, "two\n") == 0);
    CHECK(dprintf(fileno(out), "%s", "by number\n") == 10);
    expect(ends[1], "by number\n");
    memset(big, 'x', sizeof big);
    CHECK(fwrite(big, sizeof big, 1, out) == 1 && fclose(out) == 0);
    for (size_t len = 0; len < sizeof big;) {
        ssize_t more = read(ends[1], big, sizeof big - len);
        CHECK(more > 0);
        len += more;
    }
    CHECK(fclose(in) == 0);
    expect_end(ends[1]);
    close(ends[1]);
}

static void instructions(void)
{
    int ends[2];
    char byte = 'a';
    pair(ends);
    CHECK(bare(SYS_dup2, ends[0], 50, 0, 0, 0, 0) == 50);
    CHECK(bare(SYS_close, ends[0], 0, 0, 0, 0, 0) == 0);
    CHECK(bare(SYS_write, 50, (long)"dup", 3, 0, 0, 0) == 3);
    expect(ends[1], "dup");
    CHECK(bare(SYS_fcntl, 50, F_SETFL, O_NONBLOCK, 0, 0, 0) == 0);
    CHECK(bare(SYS_read, 50, (long)&byte, 1, 0, 0, 0) == -EAGAIN);
    CHECK(write(ends[1], "b", 1) == 1);
    struct pollfd wait = {.fd = 50, .events = POLLIN};
    CHECK(bare(SYS_poll, (long)&wait, 1, 10000, 0, 0, 0) == 1 && wait.revents == POLLIN);
    CHECK(bare(SYS_recvfrom, 50, (long)&byte, 1, 0, 0, 0) == 1 && byte == 'b');
    int set = bare(SYS_epoll_create1, 0, 0, 0, 0, 0, 0);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = 9}, got;
    CHECK(set >= 0 && bare(SYS_epoll_ctl, set, EPOLL_CTL_ADD, 50, (long)&event, 0, 0) == 0);
    CHECK(bare(SYS_epoll_wait, set, (long)&got, 1, 0, 0, 0) == 0);
    CHECK(write(ends[1], "c", 1) == 1);
    CHECK(bare(SYS_epoll_wait, set, (long)&got, 1, 10000, 0, 0) == 1 && got.data.u32 == 9);
    CHECK(bare(SYS_read, 50, (long)&byte, 1, 0, 0, 0) == 1 && byte == 'c');
    CHECK(bare(SYS_close, set, 0, 0, 0, 0, 0) == 0 && bare(SYS_close, 50, 0, 0, 0, 0, 0) == 0);
    expect_end(ends[1]);
    /* The number is the program's again: a file gets what is written to it. */
    int file = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    CHECK(file >= 0 && dup2(file, 50) == 50 && write(50, "private", 7) == 7 && lseek(file, 0, SEEK_END) == 7);
    close(50), close(file), close(ends[1]);
}

static void sockets_by_instructions(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof at;
    CHECK(inet_pton(AF_INET, address, &at.sin_addr) == 1);
    long listener = bare(SYS_socket, AF_INET, SOCK_STREAM, 0, 0, 0, 0);
    CHECK(listener >= 0 && bare(SYS_bind, listener, (long)&at, len, 0, 0, 0) == 0);
    CHECK(bare(SYS_listen, listener, 4, 0, 0, 0, 0) == 0);
    CHECK(bare(SYS_getsockname, listener, (long)&at, (long)&len, 0, 0, 0) == 0 && at.sin_port);
    ready_to_accept(listener);
    long client = bare(SYS_socket, AF_INET, SOCK_STREAM, 0, 0, 0, 0);
    CHECK(bare(SYS_connect, client, (long)&at, len, 0, 0, 0) == 0);
    long server = bare(SYS_accept4, listener, 0, 0, SOCK_CLOEXEC, 0, 0);
    CHECK(server >= 0 && bare(SYS_sendto, client, (long)"by hand", 7, 0, 0, 0) == 7);
    expect(server, "by hand");
    CHECK(bare(SYS_shutdown, client, SHUT_WR, 0, 0, 0, 0) == 0);
    expect_end(server);
    CHECK(bare(SYS_close_range, listener, listener, 0, 0, 0, 0) == 0);
    close(client), close(server);
}

static void spawned(void)
{
    int ends[2], status;
    pid_t child;
    char *arguments[] = {"cat", NULL};
    posix_spawn_file_actions_t actions;
    pair(ends);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[0], 0);
    posix_spawn_file_actions_adddup2(&actions, 0, 1);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    CHECK(posix_spawnp(&child, "no such program", &actions, NULL, arguments, environ) == ENOENT);
    CHECK(posix_spawnp(&child, "cat", &actions, NULL, arguments, environ) == 0);
    /* The parent's descriptors are what they were. */
    CHECK(fcntl(ends[0], F_GETFD) == 0 && write(ends[0], "parent ", 7) == 7);
    expect(ends[1], "parent ");
    CHECK(close(ends[0]) == 0 && write(ends[1], "spawned", 7) == 7);
    expect(ends[1], "spawned");
    CHECK(shutdown(ends[1], SHUT_WR) == 0 && waitpid(child, &status, 0) == child && status == 0);
    expect_end(ends[1]);
    close(ends[1]);
}

/* What is not for the program ends when the parent closes it, though the program lives and has another socket. */
static void spawned_beside_others(void)
{
    int ends[2], others[2], alive[2], status;
    pid_t child;
    char *arguments[] = {"cat", NULL};
    posix_spawn_file_actions_t actions;
    pair(ends), pair(others);
    CHECK(pipe2(alive, O_CLOEXEC) == 0);
    CHECK(fcntl(others[0], F_SETFD, FD_CLOEXEC) == 0 && fcntl(others[1], F_SETFD, FD_CLOEXEC) == 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, alive[0], 0);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    CHECK(posix_spawnp(&child, "cat", &actions, NULL, arguments, environ) == 0);
    close(alive[0]), close(others[0]), close(ends[0]);
    expect_end(others[1]);
    struct pollfd end = {ends[1], POLLIN, 0};
    CHECK(poll(&end, 1, 300) == 0);
    close(alive[1]);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    expect_end(ends[1]);
    close(ends[1]), close(others[1]);
}

static void *reads_to_the_end(void *end)
{
    char byte;
    return (void *)read((int)(long)end, &byte, 1);
}

static void *spawns(void *ended)
{
    int status;
    pid_t child;
    char *arguments[] = {"true", NULL};
    CHECK(posix_spawnp(&child, "true", NULL, NULL, arguments, environ) == 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0 && write((int)(long)ended, "e", 1) == 1);
    return NULL;
}

/* A thread that never waited for a socket runs a program with one, while another thread sleeps and is woken. */
static void spawned_beside_sleepers(void)
{
    int ends[2], others[2], ended[2];
    char byte;
    pthread_t sleeper, spawner;
    pair(ends), pair(others);
    CHECK(fcntl(others[0], F_SETFD, FD_CLOEXEC) == 0 && fcntl(others[1], F_SETFD, FD_CLOEXEC) == 0);
    CHECK(pipe2(ended, O_CLOEXEC) == 0);
    CHECK(pthread_create(&sleeper, NULL, reads_to_the_end, (void *)(long)others[0]) == 0);
    for (int i = 0; i < 40; i++) {
        CHECK(pthread_create(&spawner, NULL, spawns, (void *)(long)ended[1]) == 0 && pthread_detach(spawner) == 0);
        CHECK(read(ended[0], &byte, 1) == 1);
        usleep(1000);
    }
    shutdown(others[1], SHUT_WR);
    CHECK(pthread_join(sleeper, NULL) == 0);
    close(ends[0]), close(ends[1]), close(others[0]), close(others[1]);
    close(ended[0]), close(ended[1]);
}

/* A wait for a thread that made a child ends with that thread. It is the first thread that ends. */
static void spawned_and_joined(void)
{
    int ended[2];
    pthread_t spawner;
    CHECK(pipe2(ended, O_CLOEXEC) == 0);
    for (int i = 0; i < 3; i++) {
        CHECK(pthread_create(&spawner, NULL, spawns, (void *)(long)ended[1]) == 0 && pthread_join(spawner, NULL) == 0);
    }
    close(ended[0]), close(ended[1]);
}

static void executed(void)
{
    int ends[2], status;
    pair(ends);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[0], 0), dup2(ends[0], 1);
        close(ends[0]), close(ends[1]);
        execl(self, "below", address, "child", (char *)NULL);
        _exit(9);
    }
    CHECK(close(ends[0]) == 0 && write(ends[1], "21\n", 3) == 3);
    expect(ends[1], "twice 21 is 42\n");
    CHECK(shutdown(ends[1], SHUT_WR) == 0 && waitpid(child, &status, 0) == child && status == 0);
    expect_end(ends[1]);
    close(ends[1]);
}

/* The program that the case above runs: its standard input and output are a socket. */
static int child(void)
{
    int number;
    while (scanf("%d", &number) == 1)
        printf("twice %d is %d\n", number, 2 * number), fflush(stdout);
    return 0;
}

static void shells(void)
{
    int ends[2];
    pair(ends);
    CHECK(dup2(ends[0], 9) == 9 && close(ends[0]) == 0);
    CHECK(system("echo from the shell >&9") == 0);
    expect(ends[1], "from the shell\n");
    FILE *pipe = popen("cat >&9", "w");
    CHECK(pipe && fputs("through a pipe\n", pipe) > 0 && pclose(pipe) == 0);
    expect(ends[1], "through a pipe\n");
    /* Other shells do not keep it open. */
    CHECK(write(9, "still here", 10) == 10);
    expect(ends[1], "still here");
    CHECK(close(9) == 0);
    expect_end(ends[1]);
    close(ends[1]);
}

static void daemons(void)
{
    int ends[2], status;
    pair(ends);
    pid_t child = fork();
    if (child == 0) {
        if (daemon(1, 1) != 0)
            _exit(9);
        _exit(write(ends[0], "daemon", 6) == 6 ? 0 : 8);
    }
    expect(ends[1], "daemon");
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    close(ends[0]);
    expect_end(ends[1]);
    close(ends[1]);
}

static int written;

static void handler(int signal)
{
    (void)signal;
    written = bare(SYS_write, 60, (long)"signal", 6, 0, 0, 0);
}

static void signals(void)
{
    int ends[2];
    static char memory[16384];
    stack_t small = {.ss_sp = memory, .ss_size = sizeof memory};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    sigset_t all, before;
    pair(ends);
    CHECK(dup2(ends[0], 60) == 60 && close(ends[0]) == 0);
    sigfillset(&all);
    action.sa_mask = all;
    CHECK(sigaltstack(&small, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(raise(SIGUSR1) == 0 && written == 6);
    expect(ends[1], "signal");
    CHECK(sigprocmask(SIG_SETMASK, &all, &before) == 0);
    CHECK(bare(SYS_write, 60, (long)"blocked", 7, 0, 0, 0) == 7);
    expect(ends[1], "blocked");
    CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
    CHECK(bare(SYS_close, 60, 0, 0, 0, 0, 0) == 0);
    expect_end(ends[1]);
    close(ends[1]);
}

static void *echo(void *argument)
{
    long fd = (long)argument;
    char bytes[512];
    for (long got; (got = bare(SYS_read, fd, (long)bytes, sizeof bytes, 0, 0, 0)) > 0;)
        CHECK(bare(SYS_write, fd, (long)bytes, got, 0, 0, 0) == got);
    bare(SYS_close, fd, 0, 0, 0, 0, 0);
    return NULL;
}

static void threads(void)
{
    enum { COUNT = 8, ROUNDS = 300 };
    pthread_t threads[COUNT];
    int ends[COUNT][2];
    char text[32];
    for (int i = 0; i < COUNT; i++) {
        pair(ends[i]);
        CHECK(pthread_create(&threads[i], NULL, echo, (void *)(long)ends[i][0]) == 0);
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < COUNT; i++) {
            snprintf(text, sizeof text, "%d of %d", round, i);
            CHECK(write(ends[i][1], text, strlen(text)) == (ssize_t)strlen(text));
            expect(ends[i][1], text);
        }
    for (int i = 0; i < COUNT; i++) {
        shutdown(ends[i][1], SHUT_WR);
        CHECK(pthread_join(threads[i], NULL) == 0);
        expect_end(ends[i][1]);
        close(ends[i][1]);
    }
}

static void *reads(void *argument)
{
    char byte;
    CHECK(read((long)argument, &byte, 1) < 0);
    return NULL;
}

/* Calls of the kernel's stay cancellation points. */
static void cancelled(void)
{
    int ends[2];
    pthread_t thread;
    void *result;
    CHECK(pipe(ends) == 0 && pthread_create(&thread, NULL, reads, (void *)(long)ends[0]) == 0);
    usleep(20000);
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    close(ends[0]), close(ends[1]);
}

/* A child that filters its system calls. */
static void filtered(void)
{
    int ends[2], status;
    pair(ends);
    pid_t child = fork();
    if (child == 0) {
        CHECK(write(ends[0], "before ", 7) == 7);
        /* Opening files fails with EACCES, everything else is allowed. */
        struct sock_filter rules[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_yield, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = {.len = sizeof rules / sizeof rules[0], .filter = rules};
        CHECK(bare(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0) == 0);
        CHECK(bare(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, (long)&program, 0, 0, 0) == 0);
        CHECK(open("/dev/null", O_RDONLY) < 0 && errno == EACCES);
        /* What only the net catches is not seen under a filter. */
        if (getenv("LATE"))
            CHECK(write(ends[0], "after", 5) == 5);
        else
            CHECK(bare(SYS_write, ends[0], (long)"after", 5, 0, 0, 0) == 5);
        expect(ends[0], "answer");
        _exit(0);
    }
    expect(ends[1], "before after");
    usleep(10000);
    CHECK(write(ends[1], "answer", 6) == 6);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    close(ends[0]), close(ends[1]);
}

/* Code that the program makes itself: read, write and close by instructions that come to be while it runs, change, and
 * go. */
static void made(void)
{
    /* mov eax, edi; mov rdi, rsi; mov rsi, rdx; mov rdx, rcx; syscall; ret */
    static const unsigned char code[] = {0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6, 0x48, 0x89, 0xca, 0x0f, 0x05, 0xc3};
    int ends[2], flags = MAP_PRIVATE | MAP_ANONYMOUS, all = PROT_READ | PROT_WRITE | PROT_EXEC;
    pair(ends);
    for (int round = 0; round < 3; round++) {
        unsigned char *page = mmap((void *)0x20000000, 4096, all, flags, -1, 0);
        CHECK(page != MAP_FAILED);
        /* Each time somewhere else. */
        long (*call)(long, long, const void *, long) = (void *)(page + 3 * round);
        memcpy(page + 3 * round, code, sizeof code);
        CHECK(call(SYS_write, ends[0], "made", 4) == 4 && call(SYS_write, ends[0], " twice", 6) == 6);
        expect(ends[1], "made twice");
        CHECK(call(SYS_write, -1, "", 1) == -EBADF);
        CHECK(munmap(page, 4096) == 0);
    }
    close(ends[0]);
    expect_end(ends[1]);
    close(ends[1]);
}

static volatile int signalled;

static void on_signal(int signal)
{
    signalled = signal;
}

/* SIGSYS is the program's, too: blocked, waited for, handled, asked about. */
static void own_signal(void)
{
    int ends[2];
    sigset_t one, before;
    struct sigaction action = {.sa_handler = on_signal}, old;
    struct pollfd wait = {.fd = -1};
    struct timespec soon = {.tv_nsec = 1000000};
    pair(ends);
    sigemptyset(&one), sigaddset(&one, SIGSYS);
    CHECK(sigprocmask(SIG_BLOCK, &one, &before) == 0);
    CHECK(bare(SYS_write, ends[0], (long)"blocked", 7, 0, 0, 0) == 7);
    expect(ends[1], "blocked");
    CHECK(ppoll(&wait, 1, &soon, &one) == 0 && bare(SYS_ppoll, (long)&wait, 1, (long)&soon, (long)&one, 8, 0) == 0);
    CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
    CHECK(sigaction(SIGSYS, &action, &old) == 0 && old.sa_handler == SIG_DFL);
    CHECK(raise(SIGSYS) == 0 && signalled == SIGSYS);
    CHECK(bare(SYS_write, ends[0], (long)"handled", 7, 0, 0, 0) == 7 && sigaction(SIGSYS, &old, &action) == 0);
    CHECK(action.sa_handler == on_signal);
    expect(ends[1], "handled");
    close(ends[0]);
    expect_end(ends[1]);
    close(ends[1]);
}

/* Bytes of address space. */
static unsigned long used(void)
{
    unsigned long pages;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%lu", &pages) == 1 && fclose(file) == 0);
    return pages * 4096;
}

/* The first case: less than what the library maps for its sockets, and more than the program needs. */
static void limits(void)
{
    int ends[2];
    struct rlimit limit, before;
    unsigned long most = used() + (16 << 20);
    pair(ends);
    CHECK(bare(SYS_prlimit64, 0, RLIMIT_AS, 0, (long)&before, 0, 0) == 0);
    limit = (struct rlimit){most, before.rlim_max};
    CHECK(bare(SYS_setrlimit, RLIMIT_AS, (long)&limit, 0, 0, 0, 0) == 0);
    CHECK(bare(SYS_getrlimit, RLIMIT_AS, (long)&limit, 0, 0, 0, 0) == 0 && limit.rlim_cur == most);
    void *memory = mmap(NULL, 4 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED && munmap(memory, 4 << 20) == 0);
    CHECK(mmap(NULL, 1 << 30, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == ENOMEM);
    CHECK(bare(SYS_prlimit64, 0, RLIMIT_AS, (long)&before, (long)&limit, 0, 0) == 0 && limit.rlim_cur == most);
    close(ends[0]), close(ends[1]);
}

static void *sleeps(void *end)
{
    char byte;
    return (void *)read((int)(long)end, &byte, 1);
}

/* Who the process is changes in all threads at once: C libraries have a signal for it. */
static void identity(void)
{
    pthread_t thread;
    int ends[2];
    void *got;
    CHECK(pipe(ends) == 0 && pthread_create(&thread, NULL, sleeps, (void *)(long)ends[0]) == 0);
    for (int i = 0; i < 20; i++) CHECK(setgid(getgid()) == 0 && setuid(getuid()) == 0);
    CHECK(write(ends[1], "x", 1) == 1 && pthread_join(thread, &got) == 0 && got == (void *)1);
    close(ends[0]), close(ends[1]);
}

/* The path of the program's own file, wherever it has gone since, and wherever the program has. */
static void own_file(void)
{
    char path[512] = "", moved[520] = "", again[520] = "";
    CHECK(chdir("/") == 0 && readlink("/proc/self/exe", path, sizeof path - 1) > 1 && path[0] == '/');
    const char *name = strrchr(path, '/') + 1;
    CHECK(strcmp(name, "below") == 0 || strcmp(name, "late") == 0);
    snprintf(moved, sizeof moved, "%s.moved", path);
    CHECK(rename(path, moved) == 0);
    ssize_t length = readlink("/proc/self/exe", again, sizeof again - 1);
    CHECK(rename(moved, path) == 0 && length > 0 && strcmp(again, moved) == 0);
    CHECK(readlink("/proc/self/exe", again, 5) == 5 && strncmp(again, path, 5) == 0);
    CHECK(bare(SYS_readlink, (long)"/proc/self/exe", 8, 100, 0, 0, 0) == -EFAULT);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"spawned_and_joined", spawned_and_joined}, {"limits", limits}, {"own file", own_file}, {"identity", identity}, {"stdio", stdio}, {"instructions", instructions}, {"sockets", sockets_by_instructions}, {"spawned", spawned},
    {"spawned_beside_others", spawned_beside_others}, {"spawned_beside_sleepers", spawned_beside_sleepers},
    {"executed", executed}, {"shells", shells}, {"daemons", daemons}, {"signals", signals}, {"threads", threads},
    {"cancelled", cancelled}, {"filtered", filtered}, {"made", made},
    {"own signal", own_signal},
};

int main(int count, char **arguments)
{
    self = "/proc/self/exe", address = arguments[1];
    if (count > 2 && strcmp(arguments[2], "child") == 0)
        return child();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (count < 3 || strcmp(arguments[2], cases[i].name) == 0) {
            cases[i].run();
            printf("%s\n", cases[i].name), fflush(stdout);
        }
    return 0;
}
