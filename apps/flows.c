/* flows: many bulk flows from one program to another; how many bytes each of them moved.
 *
 * Plain POSIX, identical for every stack, or with -z through OpenTOE's zero-copy interface (include/toe.h). One side
 * listens (-l), the other connects (-c); the connecting side sends, with -r on both sides the listening one. The
 * receiver waits until all flows are there, prints when measuring begins, lets them run for the warm-up, counts the
 * bytes of each for the time asked, prints them as one JSON object and hangs up. The sender writes on every flow
 * whatever the socket takes until the receiver hangs up. With -T the sender writes every byte anew before it is sent
 * and the receiver reads every word, as programs do that have data of their own. With -b each flow has so many 10^6
 * bits a second to send.
 */
#define _GNU_SOURCE
#include "load.h"
#include "../include/toe.h"
#include <fcntl.h>

/* QUANTUM: bytes that a flow may write before the next flow has its round. */
enum { EVENTS = 256, READ = 64 * 1024, QUANTUM = 64 * 1024 };

static struct sockaddr_in address = {.sin_family = AF_INET};
static long flows = 1;
static size_t block = 64 * 1024;
static double seconds = 5, warm_up = 0, mbit = 0;
static int zero_copy = 0, touching = 0, *sockets;
static char *buffer;
static uint64_t seen = 0;                  /* the sum of all words, so that reading them cannot be left out */

/* The other side accepts, or is connected to, one flow after the other. */
static void open_all(int set, int listening, uint32_t events) {
    int listener = listening ? listen_at(&address, 0, 4096, 0) : -1;
    for (long i = 0; i < flows; i++) {
        sockets[i] = listening ? accept4(listener, NULL, NULL, SOCK_CLOEXEC) : socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (sockets[i] < 0) die(listening ? "accept" : "socket");
        if (!listening && connect(sockets[i], (struct sockaddr *)&address, sizeof address) < 0) die("connect");
        if (fcntl(sockets[i], F_SETFL, O_NONBLOCK) < 0) die("fcntl");
        watch_fd(set, EPOLL_CTL_ADD, sockets[i], events, &sockets[i]);
    }
    if (listening) close(listener);
}

static void touch_in(const void *bytes, size_t length) {
    const uint64_t *words = bytes;
    uint64_t sum = 0;
    for (size_t i = 0; i < length / 8; i++) sum += words[i];
    seen += sum;
}

/* Receives once; as recv. */
static ssize_t receive_some(int fd) {
    if (!zero_copy) {
        ssize_t n = recv(fd, buffer, READ, 0);
        if (touching && n > 0) touch_in(buffer, (size_t)n);
        return n;
    }
    struct iovec iov[2];
    ssize_t there = toe_zc_peek(fd, iov, 1, 0);
    if (there <= 0) return there;
    if (touching) touch_in(iov[0].iov_base, iov[0].iov_len), touch_in(iov[1].iov_base, iov[1].iov_len);
    return toe_zc_release(fd, (size_t)there) < 0 ? -1 : there;
}

/* Sends one message or a part of it; as send. */
static ssize_t send_some(int fd, uint64_t count) {
    if (!zero_copy) {
        if (touching) memset(buffer, (int)count, block);
        return send(fd, buffer, block, MSG_NOSIGNAL);
    }
    struct iovec iov[2];
    ssize_t room = toe_zc_reserve(fd, iov, 1, 0);
    if (room <= 0) return room;
    size_t length = least((size_t)room, block), first = least(length, iov[0].iov_len);
    if (touching) memset(iov[0].iov_base, (int)count, first), memset(iov[1].iov_base, (int)count, length - first);
    return toe_zc_commit(fd, length, 0) < 0 ? -1 : (ssize_t)length;
}

static int receive(int set) {
    uint64_t *bytes = calloc((size_t)flows, sizeof *bytes);
    struct epoll_event events[EVENTS];
    if (!bytes) die("calloc");
    say_begin(warm_up, seconds);
    long open = flows;
    for (uint64_t time = now(); open && time < end_at;) {
        int n = epoll_wait(set, events, EVENTS, 10);
        time = now();
        for (int i = 0; i < n; i++) {
            int *fd = events[i].data.ptr;
            ssize_t got = receive_some(*fd);
            if (got < 0 && errno == EAGAIN) continue;
            if (got > 0 && time >= begin_at && time < end_at) bytes[fd - sockets] += (uint64_t)got;
            if (got > 0) continue;
            close(*fd);
            open--;
        }
    }
    printf("{\"flows\":%ld,\"seconds\":%.6f,\"lost\":%ld,\"seen\":%llu,\"bytes\":[", flows,
           (double)(end_at - begin_at) / 1e9, flows - open, (unsigned long long)seen);
    for (long i = 0; i < flows; i++) printf("%s%llu", i ? "," : "", (unsigned long long)bytes[i]);
    printf("]}\n");
    return open != flows;
}

static int transmit(int set) {
    struct epoll_event events[EVENTS];
    uint64_t count = 0;
    for (long open = flows; open;) {
        int n = epoll_wait(set, events, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            int *fd = events[i].data.ptr;
            ssize_t sent = 1;
            for (size_t all = 0; all < QUANTUM && sent > 0; all += (size_t)sent) sent = send_some(*fd, count++);
            if (sent >= 0 || errno == EAGAIN) continue;
            close(*fd);
            open--;
        }
    }
    return 0;
}

/* Each flow sends what its rate has given it, a block at a time, and waits for more between. */
static int transmit_paced(void) {
    uint64_t *sent = calloc((size_t)flows, sizeof *sent), start = now(), count = 0;
    if (!sent) die("calloc");
    for (long open = flows; open;) {
        uint64_t due = (uint64_t)((double)(now() - start) * mbit / 8e3);
        for (long i = 0; i < flows; i++) {
            for (ssize_t n = 1; n > 0 && sockets[i] >= 0 && sent[i] + block <= due;) {
                n = send_some(sockets[i], count++);
                if (n > 0) sent[i] += (uint64_t)n;
                if (n >= 0 || errno == EAGAIN) continue;
                close(sockets[i]);
                sockets[i] = -1;
                open--;
            }
        }
        usleep(500);
    }
    return 0;
}

static _Noreturn void usage(void) {
    fprintf(stderr, "usage: flows -l [-a ADDRESS] | -c ADDRESS  [-p PORT] [-n FLOWS] [-r (the listening side sends)]\n"
                    "             [-s BYTES_A_WRITE] [-w WARM_UP_SECONDS] [-t SECONDS] [-z (zero-copy)] [-T (touch)]\n"
                    "             [-b MBIT_A_SECOND_OF_EACH_FLOW]\n");
    exit(2);
}

int main(int argc, char **argv) {
    int port = 7779, listening = 0, calling = 0, reversed = 0;
    for (int option; (option = getopt(argc, argv, "la:c:p:n:w:t:s:b:rzT")) != -1;) {
        if (option == 'l' && (listening = 1)) continue;
        if (option == 'a' && inet_pton(AF_INET, optarg, &address.sin_addr) == 1) continue;
        if (option == 'c' && inet_pton(AF_INET, optarg, &address.sin_addr) == 1 && (calling = 1)) continue;
        if (option == 'p' && (port = atoi(optarg)) > 0 && port < 65536) continue;
        if (option == 'n' && (flows = atol(optarg)) > 0) continue;
        if (option == 'w' && (warm_up = atof(optarg)) >= 0) continue;
        if (option == 't' && (seconds = atof(optarg)) > 0) continue;
        if (option == 's' && (block = strtoul(optarg, NULL, 10)) > 0) continue;
        if (option == 'b' && (mbit = atof(optarg)) > 0) continue;
        if (option == 'r' && (reversed = 1)) continue;
        if (option == 'z' && (zero_copy = 1)) continue;
        if (option == 'T' && (touching = 1)) continue;
        usage();
    }
    if (optind < argc || listening == calling) usage();
    if (zero_copy && !toe_zc_reserve) {
        fprintf(stderr, "flows: the zero-copy interface is libtoe.so's: it is not loaded\n");
        return 1;
    }
    address.sin_port = htons((uint16_t)port);
    signal(SIGPIPE, SIG_IGN);
    buffer = calloc(1, block > READ ? block : READ);
    sockets = calloc((size_t)flows, sizeof *sockets);
    int set = epoll_create1(EPOLL_CLOEXEC), sends = listening ? reversed : !reversed;
    if (!buffer || !sockets || set < 0) die("set-up");
    open_all(set, listening, sends ? EPOLLOUT : EPOLLIN);
    if (sends && mbit > 0) return transmit_paced();
    return sends ? transmit(set) : receive(set);
}
