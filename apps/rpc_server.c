/* rpc_server: reads requests of one size, answers each with a reply of another.
 *
 * Plain POSIX, identical for every stack. The first bytes of a request (eight, or all of a shorter one) are its
 * number; the reply begins with it, so the client sees that its own request was answered. By default each reply is
 * a write of its own; -b writes all replies to what one read brought at once. While the socket does not take a
 * reply, the connection is not read: the client feels it. With -1 a connection is closed after its first reply. With -k
 * it computes for each reply, as a server that has something to do would.
 */
#define _GNU_SOURCE
#include "program.h"

enum { READ = 64 * 1024, EVENTS = 256, NUMBER = 8 };

/* A connection costs little while it is idle: what the socket did not take is the only thing it stores. */
struct peer {
    int fd;
    size_t position;          /* bytes of the present request that have come */
    char number[NUMBER];
    char *left;               /* replies that the socket did not take at once, */
    size_t left_at;           /* where what it has not taken yet begins, */
    size_t left_bytes;        /* and how many bytes that is */
};

static struct sockaddr_in address = {.sin_family = AF_INET};
static size_t size = 64, reply = 64, most_read, numbered;
static unsigned long cycles = 0;
static const char *folder = NULL;
static int batch = 0, polling = 0, single = 0;
static char *incoming, *outgoing;

static void accept_all(int set, int listener) {
    for (int fd; (fd = accept_next(listener)) >= 0;) {
        struct peer *peer = calloc(1, sizeof *peer);
        if (!peer) die("calloc");
        peer->fd = fd;
        watch_fd(set, EPOLL_CTL_ADD, fd, EPOLLIN, peer);
    }
}

static void hang_up(struct peer *peer) {
    close(peer->fd);
    free(peer->left);
    free(peer);
}

/* A chain of instructions that wait for each other: three times a shift and an exclusive-or, and two multiplications. */
static void compute(char *number) {
    enum { CYCLES = 12 };
    volatile uint64_t sink;
    uint64_t x = (unsigned char)*number;
    for (unsigned long done = 0; done < cycles; done += CYCLES) x = mix(x + 1);
    sink = x;
    (void)sink;
}

/* Takes one read's bytes apart; returns how many replies now stand in `outgoing`. */
static size_t answer(struct peer *peer, const char *bytes, size_t length) {
    size_t replies = 0;
    while (length) {
        if (peer->position < numbered) {
            size_t n = least(numbered - peer->position, length);
            memcpy(peer->number + peer->position, bytes, n);
        }
        size_t n = least(size - peer->position, length);
        bytes += n;
        length -= n;
        peer->position += n;
        if (peer->position < size) break;
        peer->position = 0;
        if (cycles) compute(peer->number);
        memcpy(outgoing + replies++ * reply, peer->number, numbered);
    }
    return replies;
}

/* Writes replies, new ones or those that were left; the buffer keeps the rest. -1: the connection is over. */
static int write_out(struct peer *peer, const char *bytes, size_t length, size_t step) {
    while (length) {
        ssize_t n = send(peer->fd, bytes, least(step, length), MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN) return -1;
        if (n < 0) break;
        bytes += n;
        length -= (size_t)n;
    }
    peer->left_bytes = length;
    if (peer->left && length) {
        peer->left_at = (size_t)(bytes - peer->left);
        return 0;
    }
    free(peer->left);
    peer->left = NULL;
    peer->left_at = 0;
    if (length && !(peer->left = malloc(length))) die("malloc");
    if (length) memcpy(peer->left, bytes, length);
    return 0;
}

static void serve(int set, struct peer *peer, uint32_t events) {
    int waited = peer->left_bytes > 0, ok = 0;
    if (waited) ok = write_out(peer, peer->left + peer->left_at, peer->left_bytes, peer->left_bytes);
    if (!ok && waited && single && !peer->left_bytes) ok = -1;
    if (!ok && !peer->left_bytes && events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        ssize_t n = recv(peer->fd, incoming, most_read, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN)) ok = -1;
        size_t bytes = n > 0 ? answer(peer, incoming, (size_t)n) * reply : 0;
        if (!ok && bytes) ok = write_out(peer, outgoing, bytes, batch ? bytes : reply);
        if (!ok && bytes && single && !peer->left_bytes) ok = -1;
    }
    if (ok < 0) {
        hang_up(peer);
    } else if (waited != (peer->left_bytes > 0)) {
        watch_fd(set, EPOLL_CTL_MOD, peer->fd, peer->left_bytes ? EPOLLOUT : EPOLLIN, peer);
    }
}

static int listen_in_folder(void) {
    struct sockaddr_un path = in_folder(folder, ntohs(address.sin_port));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) die("socket");
    if (bind(fd, (struct sockaddr *)&path, sizeof path) < 0) die("bind");
    if (listen(fd, 4096) < 0) die("listen");
    return fd;
}

static _Noreturn void usage(void) {
    fprintf(stderr, "usage: rpc_server [-a ADDRESS | -u FOLDER (of UNIX sockets)] [-p PORT] [-s REQUEST_BYTES] [-r REPLY_BYTES]\n"
                    "                  [-b (replies of one read in one write)] [-y (poll, never sleep)]\n"
                    "                  [-1 (one request a connection)] [-k CYCLES (computed for each reply)]\n");
    exit(2);
}

static void parse(int argc, char **argv) {
    int port = 7777;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    for (int option; (option = getopt(argc, argv, "a:u:p:s:r:by1k:")) != -1;) {
        if (option == 'a' && inet_pton(AF_INET, optarg, &address.sin_addr) == 1) continue;
        if (option == 'u' && (folder = optarg)) continue;
        if (option == 'p' && (port = atoi(optarg)) > 0 && port < 65536) continue;
        if (option == 's' && (size = strtoul(optarg, NULL, 10)) > 0) continue;
        if (option == 'r' && (reply = strtoul(optarg, NULL, 10)) > 0) continue;
        if (option == 'b' && (batch = 1)) continue;
        if (option == 'y' && (polling = 1)) continue;
        if (option == '1' && (single = 1)) continue;
        if (option == 'k' && (cycles = strtoul(optarg, NULL, 10)) < 1000000000) continue;
        usage();
    }
    if (optind < argc) usage();
    address.sin_port = htons((uint16_t)port);
}

int main(int argc, char **argv) {
    parse(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    /* So few requests in a read that their replies are not much more than a read either. */
    size_t at_once = READ / reply ? READ / reply : 1;
    most_read = least(READ, size * at_once);
    numbered = least(NUMBER, least(size, reply));
    incoming = malloc(most_read);
    outgoing = calloc(most_read / size + 1, reply);
    if (!incoming || !outgoing) die("malloc");
    int listener = folder ? listen_in_folder() : listen_at(&address, SOCK_NONBLOCK, 4096, 0), set = epoll_create1(EPOLL_CLOEXEC);
    if (set < 0) die("epoll_create1");
    watch_fd(set, EPOLL_CTL_ADD, listener, EPOLLIN, NULL);
    struct epoll_event events[EVENTS];
    for (;;) {
        int n = epoll_wait(set, events, EVENTS, polling ? 0 : -1);
        if (n < 0 && errno != EINTR) die("epoll_wait");
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr) serve(set, events[i].data.ptr, events[i].events);
            else accept_all(set, listener);
        }
    }
}
