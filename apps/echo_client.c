/* echo_client: N connections to an echo server, D messages of S bytes in flight on each, closed loop.
 *
 * Plain POSIX, identical for every stack. Each connection sends its messages in batches: when replies to k
 * messages have arrived, k new ones leave in one write. A reply's latency runs from the write that carried its
 * message to the read that completed it. Every reply is compared with what was sent.
 * Prints one JSON object; exit status 1 if anything was lost or wrong. With -b another one before it, at once when all
 * connections are open.
 */
#define _GNU_SOURCE
#include "program.h"

enum { EVENTS = 256, SUB = 64, BUCKETS = 64 * SUB };

struct connection {
    int fd;
    uint64_t sent, received;   /* bytes; sent counts what is committed, also if the socket has not taken it yet */
    size_t unsent;             /* committed bytes that the socket has not taken yet */
    uint64_t *started;         /* ring of `depth` times, one per message in flight */
    int watching_out;
};

static struct sockaddr_in address = {.sin_family = AF_INET};
static long connections = 1, size = 64, depth = 1;
static int say_begun = 0;
static double seconds = 5, warm_up = 0;
static uint64_t limit = 0, answered = 0, counted = 0, errors = 0, wrong = 0;
static uint64_t histogram[BUCKETS], slowest = 0;
static char *pattern, *incoming;
static size_t incoming_size;

/* Log-linear histogram: SUB buckets per power of two, so each bucket is at most 1.6% wide. */
static size_t bucket_of(uint64_t ns) {
    if (ns < SUB) return ns;
    int shift = 63 - __builtin_clzll(ns) - 6;
    return (size_t)(shift + 1) * SUB + ((ns >> shift) - SUB);
}

static double bucket_us(size_t bucket) {
    if (bucket < SUB) return (double)bucket / 1e3;
    return (double)((bucket % SUB + SUB) << (bucket / SUB - 1)) / 1e3;
}

static double percentile(double p) {
    uint64_t wanted = (uint64_t)(p * (double)counted), seen = 0;
    for (size_t i = 0; i < BUCKETS; i++) {
        seen += histogram[i];
        if (seen > wanted) return bucket_us(i);
    }
    return (double)slowest / 1e3;
}

static void watch(int set, int operation, struct connection *c, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = c};
    if (epoll_ctl(set, operation, c->fd, &event) < 0) die("epoll_ctl");
}

/* Byte i of the stream is pattern[i % size]: the pattern is stored depth + 1 times over, so one write suffices. */
static int push(int set, struct connection *c) {
    while (c->unsent) {
        uint64_t position = c->sent - c->unsent;
        ssize_t n = send(c->fd, pattern + position % (uint64_t)size, c->unsent, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN) return -1;
        if (n < 0) break;
        c->unsent -= (size_t)n;
    }
    int wanted = c->unsent > 0;
    if (wanted != c->watching_out) {
        watch(set, EPOLL_CTL_MOD, c, wanted ? EPOLLIN | EPOLLOUT : EPOLLIN);
        c->watching_out = wanted;
    }
    return 0;
}

static int commit(int set, struct connection *c, long messages, uint64_t time) {
    for (long i = 0; i < messages; i++) {
        c->started[c->sent / (uint64_t)size % (uint64_t)depth] = time;
        c->sent += (uint64_t)size;
        c->unsent += (size_t)size;
    }
    return push(set, c);
}

static void record(uint64_t latency) {
    counted++;
    histogram[bucket_of(latency)]++;
    if (latency > slowest) slowest = latency;
}

/* Reads once; returns how many messages were completed, or -1 when the connection is over. */
static long pull(struct connection *c, int recording) {
    uint64_t before = c->received;
    ssize_t n = recv(c->fd, incoming, incoming_size, 0);
    if (n < 0 && errno == EAGAIN) return 0;
    if (n <= 0) return -1;
    wrong += memcmp(incoming, pattern + before % (uint64_t)size, (size_t)n) != 0;
    c->received += (uint64_t)n;
    uint64_t time = now(), first = before / (uint64_t)size, last = c->received / (uint64_t)size;
    for (uint64_t i = first; i < last && recording; i++) record(time - c->started[i % (uint64_t)depth]);
    answered += last - first;
    return (long)(last - first);
}

static void open_one(int set, struct connection *c) {
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0) die("socket");
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address) < 0) die("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    c->started = calloc((size_t)depth, sizeof *c->started);
    watch(set, EPOLL_CTL_ADD, c, EPOLLIN);
}

static int serve(int set, struct connection *c, uint32_t events, int recording) {
    if (events & EPOLLOUT && push(set, c) < 0) return -1;
    if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR))) return 0;
    long done = pull(c, recording);
    return done < 0 ? -1 : done ? commit(set, c, done, now()) : 0;
}

/* Runs the closed loop; returns the seconds that were measured. */
static double run(int set, struct connection *all) {
    uint64_t begin = now(), measured = begin + (uint64_t)(warm_up * 1e9), end = measured + (uint64_t)(seconds * 1e9);
    for (long i = 0; i < connections; i++)
        if (commit(set, &all[i], depth, now()) < 0) die("send");
    uint64_t time = begin;
    struct epoll_event events[EVENTS];
    long open = connections;
    while (open && time < end && !(limit && counted >= limit)) {
        int n = epoll_wait(set, events, EVENTS, 100);
        time = now();
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            if (serve(set, c, events[i].events, time >= measured) == 0) continue;
            errors++;
            open--;
            close(c->fd);
        }
    }
    return (double)(now() - measured) / 1e9;
}

static _Noreturn void usage(void) {
    fprintf(stderr, "usage: echo_client -c ADDRESS [-p PORT] [-n CONNECTIONS] [-s SIZE] [-d DEPTH]\n"
                    "                   [-t SECONDS] [-w WARM_UP_SECONDS] [-o MESSAGES] [-b]\n");
    exit(2);
}

static void parse(int argc, char **argv) {
    int port = 7777;
    for (int option; (option = getopt(argc, argv, "c:p:n:s:d:t:w:o:b")) != -1;) {
        if (option == 'c' && inet_pton(AF_INET, optarg, &address.sin_addr) == 1) continue;
        if (option == 'p' && (port = atoi(optarg)) > 0 && port < 65536) continue;
        if (option == 'n' && (connections = atol(optarg)) > 0) continue;
        if (option == 's' && (size = atol(optarg)) > 0) continue;
        if (option == 'd' && (depth = atol(optarg)) > 0) continue;
        if (option == 't' && (seconds = atof(optarg)) > 0) continue;
        if (option == 'w' && (warm_up = atof(optarg)) >= 0) continue;
        if (option == 'o' && (limit = strtoull(optarg, NULL, 10)) > 0) continue;
        if (option == 'b' && (say_begun = 1)) continue;
        usage();
    }
    if (optind < argc || !address.sin_addr.s_addr) usage();
    address.sin_port = htons((uint16_t)port);
}

int main(int argc, char **argv) {
    parse(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    incoming_size = (size_t)(size * depth);
    size_t stored = incoming_size + (size_t)size;
    pattern = malloc(stored);
    incoming = malloc(incoming_size);
    struct connection *all = calloc((size_t)connections, sizeof *all);
    int set = epoll_create1(EPOLL_CLOEXEC);
    if (!pattern || !incoming || !all || set < 0) die("set-up");
    for (size_t i = 0; i < stored; i++) pattern[i] = (char)(i % (size_t)size * 131 + 7);
    for (long i = 0; i < connections; i++) open_one(set, &all[i]);
    if (say_begun) printf("{\"begun\":true}\n"), fflush(stdout);
    double elapsed = run(set, all);
    printf("{\"connections\":%ld,\"size\":%ld,\"depth\":%ld,\"seconds\":%.3f,\"ops\":%llu,\"ops_per_s\":%.0f,"
           "\"latency_us\":{\"p50\":%.2f,\"p99\":%.2f,\"p999\":%.2f,\"p9999\":%.2f,\"max\":%.2f},"
           "\"errors\":%llu,\"wrong\":%llu}\n",
           connections, size, depth, elapsed, (unsigned long long)counted, (double)counted / elapsed,
           percentile(0.5), percentile(0.99), percentile(0.999), percentile(0.9999), (double)slowest / 1e3,
           (unsigned long long)errors, (unsigned long long)wrong);
    return errors || wrong || !counted;
}
