/* echo_server: sends every byte back. One epoll set and one listening socket per thread (SO_REUSEPORT); or, with -b, a
 * thread for each connection, which blocks.
 *
 * Plain POSIX, identical for every stack. What arrives in one read leaves in one write, so a client that keeps
 * several messages in flight gets its replies batched.
 */
#define _GNU_SOURCE
#include "program.h"
#include <pthread.h>

enum { BUFFER = 64 * 1024, EVENTS = 256 };

/* A connection. `held` bytes in `buffer` from `start` were read but not taken by the socket yet. */
struct peer {
    int fd;
    size_t start, held;
    char *buffer;
};

static struct sockaddr_in address = {.sin_family = AF_INET};
static int threads = 1;

static void accept_all(int set, int listener) {
    for (int fd; (fd = accept_next(listener)) >= 0;) {
        struct peer *peer = calloc(1, sizeof *peer);
        if (!peer || !(peer->buffer = malloc(BUFFER))) die("malloc");
        peer->fd = fd;
        watch_fd(set, EPOLL_CTL_ADD, fd, EPOLLIN, peer);
    }
}

static void hang_up(struct peer *peer) {
    close(peer->fd);
    free(peer->buffer);
    free(peer);
}

/* Writes what is held. 0: all gone; 1: the socket is full; -1: the connection is over. */
static int flush(struct peer *peer) {
    while (peer->held) {
        ssize_t n = send(peer->fd, peer->buffer + peer->start, peer->held, MSG_NOSIGNAL);
        if (n < 0) return errno == EAGAIN ? 1 : -1;
        peer->start += (size_t)n;
        peer->held -= (size_t)n;
    }
    peer->start = 0;
    return 0;
}

static void serve(int set, struct peer *peer, uint32_t events) {
    int state = flush(peer);
    if (state == 0 && events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        ssize_t n = recv(peer->fd, peer->buffer, BUFFER, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN)) {
            hang_up(peer);
            return;
        }
        if (n > 0) peer->held = (size_t)n;
        state = flush(peer);
    }
    if (state < 0) {
        hang_up(peer);
    } else if (state > 0) {
        watch_fd(set, EPOLL_CTL_MOD, peer->fd, EPOLLOUT, peer);
    } else if (events & EPOLLOUT) {
        watch_fd(set, EPOLL_CTL_MOD, peer->fd, EPOLLIN, peer);
    }
}

static void *run(void *unused) {
    (void)unused;
    int listener = listen_at(&address, SOCK_NONBLOCK, 4096, threads > 1), set = epoll_create1(EPOLL_CLOEXEC);
    if (set < 0) die("epoll_create1");
    watch_fd(set, EPOLL_CTL_ADD, listener, EPOLLIN, NULL);
    struct epoll_event events[EVENTS];
    for (;;) {
        int n = epoll_wait(set, events, EVENTS, -1);
        if (n < 0 && errno != EINTR) die("epoll_wait");
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr) serve(set, events[i].data.ptr, events[i].events);
            else accept_all(set, listener);
        }
    }
}

static void *serve_blocking(void *connection) {
    int fd = (int)(intptr_t)connection;
    char *buffer = malloc(BUFFER);
    if (!buffer) die("malloc");
    for (ssize_t n; (n = recv(fd, buffer, BUFFER, 0)) > 0;)
        if (send(fd, buffer, (size_t)n, MSG_NOSIGNAL) != n) break;
    close(fd);
    free(buffer);
    return NULL;
}

static _Noreturn void run_blocking(void) {
    int listener = listen_at(&address, 0, 4096, 0), one = 1;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 128 * 1024);
    pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) die("accept");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        pthread_t thread;
        if ((errno = pthread_create(&thread, &small, serve_blocking, (void *)(intptr_t)fd))) die("pthread_create");
    }
}

static _Noreturn void usage(void) {
    fprintf(stderr, "usage: echo_server [-a ADDRESS] [-p PORT] [-t THREADS | -b]\n");
    exit(2);
}

int main(int argc, char **argv) {
    int port = 7777, blocking = 0;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    for (int option; (option = getopt(argc, argv, "a:p:t:b")) != -1;) {
        if (option == 'a' && inet_pton(AF_INET, optarg, &address.sin_addr) == 1) continue;
        if (option == 'p' && (port = atoi(optarg)) > 0 && port < 65536) continue;
        if (option == 't' && (threads = atoi(optarg)) > 0) continue;
        if (option == 'b' && (blocking = 1)) continue;
        usage();
    }
    if (optind < argc) usage();
    address.sin_port = htons((uint16_t)port);
    signal(SIGPIPE, SIG_IGN);
    if (blocking) run_blocking();
    for (int i = 1; i < threads; i++) {
        pthread_t thread;
        if ((errno = pthread_create(&thread, NULL, run, NULL))) die("pthread_create");
    }
    run(NULL);
}
