/* splice_proxy: a TCP proxy. It accepts a connection, opens one to a fixed server, and copies both ways; where it runs on
 * OpenTOE, it joins the two as soon as nothing is on its way, and is out of the path (toe_splice, include/toe.h).
 *
 * Plain POSIX, identical for every stack: toe_splice is looked up at run time. One thread a connection.
 */
#define _GNU_SOURCE
#include "program.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

enum { BUFFER = 64 * 1024 };

static struct sockaddr_in here = {.sin_family = AF_INET}, server = {.sin_family = AF_INET};
static int (*splice_sockets)(int, int);
/* Splicing must not wait for a quiet moment: the sockets are nonblocking meanwhile. */
static int at_once;
static atomic_ulong accepted, spliced, copied, ended;
/* Pairs that cannot be joined at all, and why the last one. */
static atomic_ulong refused;
static atomic_int why;

static int write_all(int fd, const char *from, size_t len) {
    while (len) {
        ssize_t put = send(fd, from, len, MSG_NOSIGNAL);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return -1;
        from += put, len -= (size_t)put;
    }
    return 0;
}

/* Resets a connection instead of closing it, so that a failure on one side is one on the other. */
static void reset(int fd) {
    struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

/* Waits for the end of a spliced pair: end of file, or an error. Nothing else can be read. */
static int await_end(int fds[2]) {
    char byte;
    int result = 0;
    for (int side = 0; side < 2; side++) {
        ssize_t got;
        while ((got = recv(fds[side], &byte, 1, 0)) < 0 && errno == EINTR) {}
        if (got) result = -1;
    }
    return result;
}

static void set_blocking(const int fds[2], int blocking) {
    for (int side = 0; side < 2; side++) fcntl(fds[side], F_SETFL, blocking ? 0 : O_NONBLOCK);
}

/* 0, or the error with which the two cannot be joined now. */
static int join(const int fds[2]) {
    if (at_once) set_blocking(fds, 0);
    int error = splice_sockets(fds[0], fds[1]) == 0 ? 0 : errno;
    if (at_once) set_blocking(fds, 1);
    return error;
}

/* Copies until both directions are closed, or until the pair is spliced. */
static int relay(int fds[2], char *buffer) {
    struct pollfd polled[2] = {{.fd = fds[0], .events = POLLIN}, {.fd = fds[1], .events = POLLIN}};
    int open = 2, may_splice = splice_sockets != NULL;
    while (open) {
        if (may_splice && open == 2) {
            int error = join(fds);
            if (!error) {
                atomic_fetch_add(&spliced, 1);
                return await_end(fds);
            }
            /* What is not quiet now may be later; any other reason stays. One that ends is not refused. */
            may_splice = error == EAGAIN;
            if (!may_splice && error != ENOTCONN) {
                why = error;
                atomic_fetch_add(&refused, 1);
            }
        }
        if (poll(polled, 2, -1) < 0 && errno != EINTR) return -1;
        for (int side = 0; side < 2; side++) {
            if (!polled[side].revents) continue;
            ssize_t got = recv(fds[side], buffer, BUFFER, 0);
            if (got < 0 && errno == EINTR) continue;
            if (got < 0 || (got > 0 && write_all(fds[1 - side], buffer, (size_t)got) < 0)) return -1;
            if (got == 0) {
                shutdown(fds[1 - side], SHUT_WR);
                polled[side].fd = -1;
                open--;
            }
            atomic_fetch_add(&copied, (unsigned long)got);
        }
    }
    return 0;
}

static void *serve(void *argument) {
    int fds[2] = {(int)(long)argument, socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)}, one = 1;
    char *buffer = malloc(BUFFER);
    int failed = !buffer || fds[1] < 0 || connect(fds[1], (struct sockaddr *)&server, sizeof server) < 0;
    if (!failed) {
        setsockopt(fds[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        setsockopt(fds[1], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        failed = relay(fds, buffer) < 0;
    }
    for (int side = 0; side < 2; side++) {
        if (fds[side] < 0) continue;
        if (failed) reset(fds[side]);
        close(fds[side]);
    }
    free(buffer);
    atomic_fetch_add(&ended, 1);
    return NULL;
}

/* A line when something has changed, so that whoever started it sees what it does. */
static void *report(void *argument) {
    unsigned long last = 0;
    for (;; usleep(100000)) {
        unsigned long sum = accepted + spliced + ended + refused;
        if (sum == last) continue;
        last = sum;
        printf("accepted %lu spliced %lu ended %lu copied_bytes %lu", accepted, spliced, ended, copied);
        if (refused) printf(" refused %lu (the last: %s)", refused, strerror(why));
        printf("\n");
        fflush(stdout);
    }
    return argument;
}

static _Noreturn void usage(void) {
    fprintf(stderr, "usage: splice_proxy LISTEN_ADDRESS PORT SERVER_ADDRESS PORT [at-once]\n"
                    "  e.g. opentoe run -- splice_proxy 10.77.0.2 8080 10.77.0.3 80\n");
    exit(2);
}

static void read_address(struct sockaddr_in *into, const char *address, const char *port) {
    char *end;
    long number = strtol(port, &end, 10);
    if (inet_pton(AF_INET, address, &into->sin_addr) != 1 || *end || number < 1 || number > 65535) usage();
    into->sin_port = htons((unsigned short)number);
}

int main(int count, char **words) {
    at_once = count == 6 && !strcmp(words[5], "at-once");
    if (count != 5 + at_once) usage();
    read_address(&here, words[1], words[2]);
    read_address(&server, words[3], words[4]);
    signal(SIGPIPE, SIG_IGN);
    *(void **)&splice_sockets = dlsym(RTLD_DEFAULT, "toe_splice");
    int listener = listen_at(&here, 0, 1024, 0);
    pthread_attr_t small;
    pthread_t thread;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 128 * 1024);
    pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &small, report, NULL)) die("pthread_create");
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
        if (fd < 0) die("accept");
        atomic_fetch_add(&accepted, 1);
        if (pthread_create(&thread, &small, serve, (void *)(long)fd)) close(fd);
    }
}
