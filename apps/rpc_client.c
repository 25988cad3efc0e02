/* rpc_client: N connections, requests of one size and replies of another, up to D in flight on each.
 *
 * Plain POSIX, identical for every stack. Closed loop: a reply lets the next request go. Open loop (-R): requests
 * are due at fixed times, whatever becomes of the earlier ones, and a latency counts from when its request was due,
 * so that a stall is felt by all requests that it delays. Each request is a write of its own; -b writes all that
 * may go at once. Every reply must bear the number of its request.
 *
 * Measuring begins at -B (nanoseconds of CLOCK_MONOTONIC, so that several clients begin together), or after -w
 * seconds. load.h has what is printed. The exit status is 1 if anything was lost or wrong.
 *
 * With -i every connection has one request before measuring begins, is idle meanwhile, and has one request after it.
 */
#define _GNU_SOURCE
#include "load.h"
#include <sched.h>

/* OPENING: connections that are being opened at once; a listener's backlog has an end. */
enum { EVENTS = 256, READ = 64 * 1024, NUMBER = 8, OPENING = 512, MEASURED_AFTER = 300000000 };

struct connection {
    int fd, watching_out;
    uint64_t committed, sent, answered;   /* requests */
    size_t partly;                        /* bytes of request number `sent` that the socket has taken */
    size_t position;                      /* bytes of the present reply that have come */
    char number[NUMBER];
    uint64_t *started;                    /* ring of `depth` times */
    uint64_t counted;
};

static struct sockaddr_in address = {.sin_family = AF_INET};
static struct sockaddr_un path;
static const char *folder = NULL;
static long connections = 1, depth = 1, open_connections = 0;
static size_t size = 64, reply = 64, numbered, at_once;
static double seconds = 5, warm_up = 0, rate = 0;
static uint64_t due_at = 0, due_gap = 0;
static long due_on = 0;
static int batch = 0, polling = 0, idle = 0;
static char *outgoing, *incoming;
static struct connection *all;

static void watch(int set, int operation, struct connection *c, uint32_t events) {
    watch_fd(set, operation, c->fd, events, c);
}

/* Sends what is committed, one request a write, or as many as fit the buffer. */
static int push(int set, struct connection *c) {
    while (c->sent < c->committed) {
        size_t n = least(batch ? at_once : 1, (size_t)(c->committed - c->sent));
        for (size_t i = 0; i < n; i++) {
            uint64_t number = c->sent + i;
            memcpy(outgoing + i * size, &number, numbered);
        }
        ssize_t taken = send(c->fd, outgoing + c->partly, n * size - c->partly, MSG_NOSIGNAL);
        if (taken < 0 && errno != EAGAIN) return -1;
        if (taken < 0) break;
        c->partly += (size_t)taken;
        c->sent += c->partly / size;
        c->partly %= size;
    }
    int wanted = c->sent < c->committed;
    if (wanted != c->watching_out) {
        watch(set, EPOLL_CTL_MOD, c, wanted ? EPOLLIN | EPOLLOUT : EPOLLIN);
        c->watching_out = wanted;
    }
    return 0;
}

static int has_room(const struct connection *c) {
    return c->fd >= 0 && c->committed - c->answered < (uint64_t)depth;
}

static void commit(struct connection *c, uint64_t time) {
    c->started[c->committed++ % (uint64_t)depth] = time;
}

/* Reads once; returns how many replies were completed, or -1 when the connection is over. */
static long pull(struct connection *c) {
    ssize_t n = recv(c->fd, incoming, READ, 0);
    if (n < 0 && errno == EAGAIN) return 0;
    if (n <= 0) return -1;
    uint64_t time = now(), before = c->answered;
    const char *bytes = incoming;
    for (size_t length = (size_t)n; length;) {
        if (c->position < numbered)
            memcpy(c->number + c->position, bytes, least(numbered - c->position, length));
        size_t step = least(reply - c->position, length);
        bytes += step;
        length -= step;
        c->position += step;
        if (c->position < reply) break;
        c->position = 0;
        wrong += c->answered >= c->sent || memcmp(c->number, &c->answered, numbered) != 0;
        c->counted += (uint64_t)record(c->started[c->answered % (uint64_t)depth], time);
        c->answered++;
    }
    return (long)(c->answered - before);
}

/* Begins to connect: many connections at once, so that a lost SYN delays only its own. */
static void open_one(int set, struct connection *c) {
    int one = 1;
    c->fd = socket(folder ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0) die("socket");
    const struct sockaddr *to = folder ? (struct sockaddr *)&path : (struct sockaddr *)&address;
    if (connect(c->fd, to, folder ? sizeof path : sizeof address) < 0 && errno != EINPROGRESS) die("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    c->started = calloc((size_t)depth, sizeof *c->started);
    if (!c->started) die("calloc");
    watch(set, EPOLL_CTL_ADD, c, EPOLLOUT);
}

static void connect_all(int set) {
    struct epoll_event events[EVENTS];
    for (long begun = 0; open_connections < connections;) {
        while (begun < connections && begun < open_connections + OPENING) open_one(set, &all[begun++]);
        int n = epoll_wait(set, events, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            int error = 0;
            socklen_t length = sizeof error;
            if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0) die("getsockopt");
            if ((errno = error)) die("connect");
            watch(set, EPOLL_CTL_MOD, c, EPOLLIN);
            open_connections++;
        }
    }
}

static void lost(struct connection *c) {
    errors++;
    open_connections--;
    close(c->fd);
    c->fd = -1;
}

static int serve(int set, struct connection *c, uint32_t events) {
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        long done = pull(c);
        if (done < 0) return -1;
        for (uint64_t time = rate > 0 || !done ? 0 : now(); time && done; done--) commit(c, time);
    }
    return c->sent < c->committed || c->watching_out ? push(set, c) : 0;
}

/* Open loop: requests that are due. One that finds no room waits, and its latency counts from when it was due. */
static void send_due(int set, uint64_t time) {
    while (due_at <= time && has_room(&all[due_on])) {
        struct connection *c = &all[due_on];
        commit(c, due_at);
        if (push(set, c) < 0) lost(c);
        due_at += due_gap;
        due_on = (due_on + 1) % connections;
    }
}

static int time_limit(uint64_t time) {
    if (polling || rate > 0) return 0;
    uint64_t left = time < end_at ? (end_at - time) / 1000000 + 1 : 0;
    return (int)least(left, 100);
}

/* Returns CPU seconds between the beginning and the end of measuring. */
static double run(int set) {
    uint64_t time = now();
    double before = 0;
    int measuring = 0;
    due_gap = rate > 0 ? (uint64_t)(1e9 / rate) : 0;
    due_at = time;
    for (long i = 0; i < connections && rate == 0; i++) {
        for (long k = 0; k < depth; k++) commit(&all[i], now());
        if (push(set, &all[i]) < 0) die("send");
    }
    struct epoll_event events[EVENTS];
    while (open_connections && time < end_at) {
        if (!measuring && time >= begin_at) {
            before = cpu_seconds();
            measuring = 1;
        }
        int n = epoll_wait(set, events, EVENTS, time_limit(time));
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            if (serve(set, c, events[i].events) < 0) lost(c);
        }
        time = now();
        if (rate > 0) send_due(set, time);
        /* A client that never sleeps gives way to other threads on its core. */
        if (rate > 0 && n == 0) sched_yield();
    }
    return cpu_seconds() - before;
}

/* One request on each connection, and its reply. */
static void one_round(int set) {
    struct epoll_event events[EVENTS];
    uint64_t wanted = 0, answered = 0;
    for (long i = 0; i < connections; i++) {
        commit(&all[i], now());
        wanted = all[i].committed * (uint64_t)connections;
        if (push(set, &all[i]) < 0) die("send");
    }
    while (answered < wanted) {
        int n = epoll_wait(set, events, EVENTS, -1);
        for (int i = 0; i < n; i++)
            if (pull(events[i].data.ptr) < 0) die("a connection was lost");
        answered = 0;
        for (long i = 0; i < connections; i++) answered += all[i].answered;
    }
}

/* Returns the CPU seconds that idle connections cost this program. */
static double wait_idle(int set) {
    struct epoll_event event;
    one_round(set);
    while (now() < begin_at) epoll_wait(set, &event, 1, 10);
    double before = cpu_seconds();
    for (uint64_t time = now(); time < end_at; time = now())
        if (epoll_wait(set, &event, 1, (int)((end_at - time) / 1000000) + 1) > 0) die("an idle connection has news");
    double used = cpu_seconds() - before;
    /* The memory of idle connections is measured now. */
    for (uint64_t measured = end_at + MEASURED_AFTER; now() < measured;) epoll_wait(set, &event, 1, 10);
    end_at = UINT64_MAX;
    one_round(set);
    end_at = begin_at + (uint64_t)(seconds * 1e9);
    return used;
}

static _Noreturn void usage(void) {
    fprintf(stderr, "usage: rpc_client -c ADDRESS | -u FOLDER (of UNIX sockets) [-p PORT] [-n CONNECTIONS] [-s REQUEST_BYTES] [-r REPLY_BYTES]\n"
                    "                  [-d DEPTH] [-t SECONDS] [-w WARM_UP_SECONDS | -B BEGIN_NS]\n"
                    "                  [-R REQUESTS_PER_SECOND] [-b (batch writes)] [-y (poll, never sleep)] [-i (idle)]\n");
    exit(2);
}

static void parse(int argc, char **argv) {
    int port = 7777;
    for (int option; (option = getopt(argc, argv, "c:u:p:n:s:r:d:t:w:B:R:byi")) != -1;) {
        if (option == 'c' && inet_pton(AF_INET, optarg, &address.sin_addr) == 1) continue;
        if (option == 'u' && (folder = optarg)) continue;
        if (option == 'p' && (port = atoi(optarg)) > 0 && port < 65536) continue;
        if (option == 'n' && (connections = atol(optarg)) > 0) continue;
        if (option == 's' && (size = strtoul(optarg, NULL, 10)) > 0) continue;
        if (option == 'r' && (reply = strtoul(optarg, NULL, 10)) > 0) continue;
        if (option == 'd' && (depth = atol(optarg)) > 0) continue;
        if (option == 't' && (seconds = atof(optarg)) > 0) continue;
        if (option == 'w' && (warm_up = atof(optarg)) >= 0) continue;
        if (option == 'B' && (begin_at = strtoull(optarg, NULL, 10)) > 0) continue;
        if (option == 'R' && (rate = atof(optarg)) > 0) continue;
        if (option == 'b' && (batch = 1)) continue;
        if (option == 'y' && (polling = 1)) continue;
        if (option == 'i' && (idle = 1)) continue;
        usage();
    }
    if (optind < argc || (!address.sin_addr.s_addr && !folder)) usage();
    address.sin_port = htons((uint16_t)port);
    if (folder) path = in_folder(folder, (unsigned)port);
    numbered = least(NUMBER, least(size, reply));
    at_once = READ / size ? READ / size : 1;
}

int main(int argc, char **argv) {
    parse(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    outgoing = calloc(at_once, size);
    incoming = malloc(READ);
    all = calloc((size_t)connections, sizeof *all);
    int set = epoll_create1(EPOLL_CLOEXEC);
    if (!outgoing || !incoming || !all || set < 0) die("set-up");
    connect_all(set);
    say_begin(warm_up, seconds);
    double cpu = idle ? wait_idle(set) : run(set);
    uint64_t *counts = calloc((size_t)connections, sizeof *counts);
    for (long i = 0; counts && i < connections; i++) counts[i] = all[i].counted;
    return say_result(cpu, counts, connections);
}
