/* stream: bulk transfer in one direction or both at once, checked.
 *
 * Plain POSIX, identical for every stack. The client states how many bytes go each way; both sides generate the
 * bytes from a seed (word i is a mix of seed + i), compare what they receive with what must come, and the server
 * closes its direction with its verdict, so the client's exit status speaks for both.
 */
#define _GNU_SOURCE
#include "program.h"
#include <poll.h>

enum { BLOCK = 64 * 1024 };

/* First bytes of a connection, client to server, in host order: both ends are this program on one machine. */
struct order {
    uint64_t magic, upload, download, seed, check;
};
static const uint64_t MAGIC = 0x4f70656e544f4531u, VERDICT = 0x600dda7a600dda7au;

/* One direction of the connection as one side sees it. */
struct half {
    uint64_t total, done, seed;
    uint64_t made;              /* position of the block below in the stream */
    int filled;
    char block[BLOCK];
};

static struct sockaddr_in address = {.sin_family = AF_INET};
static int check = 1;

/* Makes the block at `half->done` and returns how many bytes of it lie from there on. */
static size_t make(struct half *half, char **from) {
    uint64_t start = half->done / BLOCK * BLOCK;
    if (!half->filled || (check && half->made != start)) {
        for (uint64_t i = 0; i < BLOCK / 8; i++) ((uint64_t *)half->block)[i] = mix(half->seed + start / 8 + i);
        half->made = start;
        half->filled = 1;
    }
    size_t offset = (size_t)(half->done - start), left = BLOCK - offset;
    *from = half->block + offset;
    return half->total - half->done < left ? (size_t)(half->total - half->done) : left;
}

static void send_some(int fd, struct half *out) {
    char *from;
    size_t length = make(out, &from);
    ssize_t n = send(fd, from, length, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) out->done += (uint64_t)n;
    else if (n < 0 && errno != EAGAIN && errno != EINTR) die("send");
}

/* Returns 1 if what came was not what must come. */
static int receive_some(int fd, struct half *in) {
    static char got[BLOCK];
    char *expected;
    size_t length = make(in, &expected);
    ssize_t n = recv(fd, got, length, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (n == 0) errno = 0;
    if (n <= 0) die("recv");
    in->done += (uint64_t)n;
    return check && memcmp(got, expected, (size_t)n) != 0;
}

/* Moves both directions at once until both are complete; returns how many reads brought wrong bytes. */
static uint64_t exchange(int fd, struct half *out, struct half *in) {
    uint64_t wrong = 0;
    while (out->done < out->total || in->done < in->total) {
        struct pollfd wait = {.fd = fd};
        if (out->done < out->total) wait.events |= POLLOUT;
        if (in->done < in->total) wait.events |= POLLIN;
        if (poll(&wait, 1, -1) < 0 && errno != EINTR) die("poll");
        if (wait.revents & (POLLIN | POLLHUP | POLLERR) && in->done < in->total) wrong += (uint64_t)receive_some(fd, in);
        if (wait.revents & (POLLOUT | POLLERR) && out->done < out->total) send_some(fd, out);
    }
    return wrong;
}

/* All of `length` bytes or nothing, whether the socket blocks or not. */
static void whole(int fd, void *data, size_t length, int sending) {
    for (size_t done = 0; done < length;) {
        struct pollfd wait = {.fd = fd, .events = sending ? POLLOUT : POLLIN};
        if (poll(&wait, 1, -1) < 0 && errno != EINTR) die("poll");
        char *at = (char *)data + done;
        ssize_t n = sending ? send(fd, at, length - done, MSG_NOSIGNAL) : recv(fd, at, length - done, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (n == 0) errno = 0;
        if (n <= 0) die(sending ? "send" : "recv");
        done += (size_t)n;
    }
}

static struct half *half_of(uint64_t total, uint64_t seed) {
    struct half *half = aligned_alloc(64, (sizeof *half + 63) / 64 * 64);
    if (!half) die("malloc");
    half->total = total, half->done = 0, half->seed = seed, half->made = 0, half->filled = 0;
    return half;
}

static int serve_one(int listener) {
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) die("accept");
    struct order order;
    whole(fd, &order, sizeof order, 0);
    if (order.magic != MAGIC) {
        fprintf(stderr, "stream: the peer is not stream\n");
        exit(1);
    }
    check = order.check != 0;
    /* For whoever waits for it, at once. */
    printf("{\"begun\":true}\n");
    fflush(stdout);
    struct half *in = half_of(order.upload, order.seed), *out = half_of(order.download, ~order.seed);
    uint64_t wrong = exchange(fd, out, in), verdict = VERDICT + wrong;
    whole(fd, &verdict, sizeof verdict, 1);
    close(fd);
    free(in);
    free(out);
    return wrong != 0;
}

static int serve(long times) {
    int listener = listen_at(&address, 0, 16, 0);
    int failed = 0;
    for (long i = 0; times == 0 || i < times; i++) failed |= serve_one(listener);
    return failed;
}

static int transfer(uint64_t upload, uint64_t download) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) die("socket");
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0) die("connect");
    uint64_t begin = now();
    struct order order = {MAGIC, upload, download, begin ^ (uint64_t)getpid(), (uint64_t)check};
    whole(fd, &order, sizeof order, 1);
    struct half *out = half_of(upload, order.seed), *in = half_of(download, ~order.seed);
    uint64_t wrong = exchange(fd, out, in), verdict = 0;
    whole(fd, &verdict, sizeof verdict, 0);
    double elapsed = (double)(now() - begin) / 1e9;
    int ok = wrong == 0 && verdict == VERDICT;
    printf("{\"sent\":%llu,\"received\":%llu,\"seconds\":%.3f,\"gbit_per_s\":%.3f,\"checked\":%s,\"ok\":%s}\n",
           (unsigned long long)upload, (unsigned long long)download, elapsed,
           (double)(upload + download) * 8 / elapsed / 1e9, check ? "true" : "false", ok ? "true" : "false");
    return !ok;
}

static _Noreturn void usage(void) {
    fprintf(stderr, "usage: stream -l [-a ADDRESS] [-p PORT] [-n TRANSFERS]      serve (0 transfers: for ever)\n"
                    "       stream -c ADDRESS [-p PORT] [-u BYTES] [-d BYTES] [-q]  move bytes up, down or both;\n"
                    "                                                            -q: do not compare\n");
    exit(2);
}

int main(int argc, char **argv) {
    int port = 7778, serving = 0, calling = 0;
    long times = 0;
    uint64_t upload = 0, download = 0;
    for (int option; (option = getopt(argc, argv, "la:c:p:n:u:d:q")) != -1;) {
        if (option == 'l' && (serving = 1)) continue;
        if (option == 'a' && inet_pton(AF_INET, optarg, &address.sin_addr) == 1) continue;
        if (option == 'c' && inet_pton(AF_INET, optarg, &address.sin_addr) == 1 && (calling = 1)) continue;
        if (option == 'p' && (port = atoi(optarg)) > 0 && port < 65536) continue;
        if (option == 'n' && (times = atol(optarg)) >= 0) continue;
        if (option == 'u' && (upload = strtoull(optarg, NULL, 10)) > 0) continue;
        if (option == 'd' && (download = strtoull(optarg, NULL, 10)) > 0) continue;
        if (option == 'q' && (check = 0, 1)) continue;
        usage();
    }
    if (optind < argc || serving == calling || (calling && !upload && !download)) usage();
    address.sin_port = htons((uint16_t)port);
    signal(SIGPIPE, SIG_IGN);
    return serving ? serve(times) : transfer(upload, download);
}
