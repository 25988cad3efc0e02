/* flows: many bulk flows from one program to another; how many bytes each of them moved.
 *
 * Plain POSIX, identical for every stack. The receiver (-l) waits until all flows are there, lets them run for the
 * warm-up, counts the bytes of each for the time asked, prints them as one JSON object and hangs up. The sender (-c)
 * writes on every flow whatever the socket takes until the receiver hangs up.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS = 256 };

static struct sockaddr_in address = {.sin_family = AF_INET};
static long flows = 1;
static size_t block = 64 * 1024;
static double seconds = 5, warm_up = 0;
static char *buffer;

static _Noreturn void die(const char *what) {
    fprintf(stderr, "flows: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void watch(int set, int fd, uint32_t events, long number) {
    struct epoll_event event = {.events = events, .data.u64 = (uint64_t)number};
    if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) < 0) die("epoll_ctl");
}

/* Accepts all flows. */
static void accept_all(int set, int *sockets) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    if (listener < 0) die("socket");
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) < 0) die("bind");
    if (listen(listener, 4096) < 0) die("listen");
    for (long i = 0; i < flows; i++) {
        sockets[i] = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (sockets[i] < 0) die("accept");
        watch(set, sockets[i], EPOLLIN, i);
    }
    close(listener);
}

static int receive(void) {
    int set = epoll_create1(EPOLL_CLOEXEC);
    int *sockets = calloc((size_t)flows, sizeof *sockets);
    uint64_t *bytes = calloc((size_t)flows, sizeof *bytes);
    if (set < 0 || !sockets || !bytes) die("set-up");
    accept_all(set, sockets);
    uint64_t begin = now() + (uint64_t)(warm_up * 1e9), end = begin + (uint64_t)(seconds * 1e9);
    long open = flows;
    struct epoll_event events[EVENTS];
    for (uint64_t time = now(); open && time < end;) {
        int n = epoll_wait(set, events, EVENTS, 10);
        time = now();
        for (int i = 0; i < n; i++) {
            uint64_t flow = events[i].data.u64;
            ssize_t got = recv(sockets[flow], buffer, block, 0);
            if (got < 0 && errno == EAGAIN) continue;
            if (got > 0 && time >= begin && time < end) bytes[flow] += (uint64_t)got;
            if (got > 0) continue;
            close(sockets[flow]);
            open--;
        }
    }
    printf("{\"flows\":%ld,\"seconds\":%.3f,\"lost\":%ld,\"bytes\":[", flows, (double)(end - begin) / 1e9, flows - open);
    for (long i = 0; i < flows; i++) printf("%s%llu", i ? "," : "", (unsigned long long)bytes[i]);
    printf("]}\n");
    return open != flows;
}

static int transmit(void) {
    int set = epoll_create1(EPOLL_CLOEXEC);
    int *sockets = calloc((size_t)flows, sizeof *sockets);
    if (set < 0 || !sockets) die("set-up");
    for (long i = 0; i < flows; i++) {
        sockets[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (sockets[i] < 0) die("socket");
        if (connect(sockets[i], (struct sockaddr *)&address, sizeof address) < 0) die("connect");
        watch(set, sockets[i], EPOLLOUT, i);
    }
    long open = flows;
    struct epoll_event events[EVENTS];
    while (open) {
        int n = epoll_wait(set, events, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            uint64_t flow = events[i].data.u64;
            ssize_t sent = send(sockets[flow], buffer, block, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (sent >= 0 || errno == EAGAIN) continue;
            close(sockets[flow]);
            open--;
        }
    }
    return 0;
}

static _Noreturn void usage(void) {
    fprintf(stderr, "usage: flows -l [-a ADDRESS] [-p PORT] [-n FLOWS] [-w WARM_UP_SECONDS] [-t SECONDS]   receive\n"
                    "       flows -c ADDRESS [-p PORT] [-n FLOWS] [-s BYTES_A_WRITE]                       send\n");
    exit(2);
}

int main(int argc, char **argv) {
    int port = 7779, receiving = 0, sending = 0;
    for (int option; (option = getopt(argc, argv, "la:c:p:n:w:t:s:")) != -1;) {
        if (option == 'l' && (receiving = 1)) continue;
        if (option == 'a' && inet_pton(AF_INET, optarg, &address.sin_addr) == 1) continue;
        if (option == 'c' && inet_pton(AF_INET, optarg, &address.sin_addr) == 1 && (sending = 1)) continue;
        if (option == 'p' && (port = atoi(optarg)) > 0 && port < 65536) continue;
        if (option == 'n' && (flows = atol(optarg)) > 0) continue;
        if (option == 'w' && (warm_up = atof(optarg)) >= 0) continue;
        if (option == 't' && (seconds = atof(optarg)) > 0) continue;
        if (option == 's' && (block = strtoul(optarg, NULL, 10)) > 0) continue;
        usage();
    }
    if (optind < argc || receiving == sending) usage();
    address.sin_port = htons((uint16_t)port);
    signal(SIGPIPE, SIG_IGN);
    buffer = calloc(1, block);
    if (!buffer) die("calloc");
    return receiving ? receive() : transmit();
}
