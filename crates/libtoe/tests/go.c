/* What a dynamic Go program does, and few others: its system calls come from instructions of its own, on stacks that
 * are too small for anything else, and signals interrupt them on stacks of their own. usage: go ADDRESS */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

/* What Go's linker puts into the data of each program. */
__attribute__((aligned(16), used)) static volatile char information[32] = "\xff Go buildinf:";

enum { PAGE = 4096, SMALL = 1024, ROUNDS = 3000, THREADS = 4, ENDED = 100 };

static struct sockaddr_in here;
static int listener;
static volatile sig_atomic_t interrupted;
static _Thread_local char *small;

static void check(int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "go: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* A system call on the thread's small stack. */
static long call(long number, long a, long b, long c, long d, long e) {
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = 0;
    __asm__ volatile("mov %%rsp, %%rbx\n\tmov %[top], %%rsp\n\tsyscall\n\tmov %%rbx, %%rsp"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9), [top] "r"(small)
                     : "rbx", "rcx", "r11", "memory", "cc");
    if (result < 0) errno = (int)-result;
    return result < 0 ? -1 : result;
}

/* A signal finds no room on the small stack: as in Go's runtime, none may come where there is no other one. */
static void block(int how) {
    sigset_t alarm;
    sigemptyset(&alarm), sigaddset(&alarm, SIGALRM);
    pthread_sigmask(how, &alarm, NULL);
}

/* Below the small stack nothing may be touched. */
static void begin_thread(void) {
    char *memory = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(memory != MAP_FAILED && mprotect(memory, PAGE, PROT_NONE) == 0, "a small stack");
    small = memory + PAGE + SMALL;
    stack_t signals = {.ss_size = 32 << 10};
    signals.ss_sp = malloc(signals.ss_size);
    block(SIG_BLOCK);
    check(call(SYS_sigaltstack, (long)&signals, 0, 0, 0, 0) == 0, "a signal stack");
    block(SIG_UNBLOCK);
}

static void end_thread(void) {
    stack_t before, none = {.ss_flags = SS_DISABLE};
    block(SIG_BLOCK);
    check(call(SYS_sigaltstack, (long)&none, (long)&before, 0, 0, 0) == 0, "no signal stack");
    free(before.ss_sp);
    munmap(small - PAGE - SMALL, 2 * PAGE);
}

/* The handler's own calls are asked about as well; its stack is the thread's signal stack. */
static void on_signal(int number) {
    unsigned long set;
    (void)number;
    int before = errno;
    if (syscall(SYS_rt_sigprocmask, SIG_SETMASK, NULL, &set, sizeof set) == 0) interrupted++;
    errno = before;
}

static void exchange(int from, int to, long number) {
    long found = 0;
    check(call(SYS_write, from, (long)&number, sizeof number, 0, 0) == sizeof number, "write");
    check(call(SYS_read, to, (long)&found, sizeof found, 0, 0) == sizeof found, "read");
    check(found == number, "other bytes came");
}

/* The stand-in for the daemon takes connections when somebody has asked for some. */
static void ready_to_accept(void) {
    check(call(SYS_fcntl, listener, F_SETFL, O_NONBLOCK, 0, 0) == 0, "O_NONBLOCK");
    check(call(SYS_accept4, listener, 0, 0, SOCK_CLOEXEC, 0) == -1 && errno == EAGAIN, "nobody has come");
    check(call(SYS_fcntl, listener, F_SETFL, 0, 0, 0) == 0, "fcntl");
}

static void *run_thread(void *rounds) {
    begin_thread();
    ready_to_accept();
    int one = call(SYS_socket, AF_INET, SOCK_STREAM, 0, 0, 0);
    check(one >= 0 && call(SYS_connect, one, (long)&here, sizeof here, 0, 0) == 0, "connect");
    int other = call(SYS_accept4, listener, 0, 0, SOCK_CLOEXEC, 0);
    check(other >= 0, "accept4");
    for (long round = 0; round < *(long *)rounds; round++) exchange(one, other, round);
    check(call(SYS_close, one, 0, 0, 0, 0) == 0 && call(SYS_close, other, 0, 0, 0, 0) == 0, "close");
    end_thread();
    return NULL;
}

/* One after the other: each accepts its own connection. */
static void run_threads(int count, long rounds) {
    for (int number = 0; number < count; number++) {
        pthread_t thread;
        check(pthread_create(&thread, NULL, run_thread, &rounds) == 0, "pthread_create");
        check(pthread_join(thread, NULL) == 0, "pthread_join");
    }
}

/* Address space in KiB. */
static long space(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    check(file != NULL && fscanf(file, "%ld", &pages) == 1, "statm");
    fclose(file);
    return pages * (PAGE / 1024);
}

/* A child that shares this memory, and leaves it by an exec. */
static void run_children(void) {
    char *words[] = {"/bin/true", NULL}, *none[] = {NULL};
    for (int round = 0; round < 20; round++) {
        pid_t child;
        int status = 1;
        check(posix_spawn(&child, words[0], NULL, NULL, words, none) == 0, "posix_spawn");
        check(waitpid(child, &status, 0) == child && status == 0, "a child");
    }
}

int main(int count, char **words) {
    check(count == 2 && information[1] == ' ', "usage: go ADDRESS");
    begin_thread();
    here.sin_family = AF_INET;
    check(inet_pton(AF_INET, words[1], &here.sin_addr) == 1, words[1]);
    socklen_t len = sizeof here;
    listener = call(SYS_socket, AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0, 0, 0);
    check(listener >= 0 && call(SYS_bind, listener, (long)&here, sizeof here, 0, 0) == 0, "bind");
    check(call(SYS_listen, listener, 16, 0, 0, 0) == 0, "listen");
    check(call(SYS_getsockname, listener, (long)&here, (long)&len, 0, 0) == 0, "getsockname");
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK | SA_RESTART};
    check(sigaction(SIGALRM, &action, NULL) == 0, "sigaction");
    struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    check(setitimer(ITIMER_REAL, &often, NULL) == 0, "setitimer");
    run_threads(THREADS, ROUNDS);
    run_children();
    run_threads(THREADS, ROUNDS);
    check(interrupted > 0, "no signal came");
    check(setitimer(ITIMER_REAL, &never, NULL) == 0, "setitimer");
    long before = space();
    run_threads(ENDED, 1);
    check(space() - before < 8 << 10, "threads that ended have left their stacks");
    check(call(SYS_close, listener, 0, 0, 0, 0) == 0, "close");
    puts("ran");
    return 0;
}
