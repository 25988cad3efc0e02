/* kv_client: load for memcached or redis: gets, and a share of sets, up to D in flight on each of N connections.
 *
 * Plain POSIX, identical for every stack. Every value follows from its key, and every answer is compared with what it
 * must be. Requests that may go at once leave in one write. load.h has what is printed; the exit status is 1 if
 * anything was lost or wrong.
 */
#define _GNU_SOURCE
#include "load.h"
#include <fcntl.h>

enum { EVENTS = 256, READ = 64 * 1024, KEYS = 1000, MOST_VALUE = 8192, MOST_DEPTH = 256 };

/* A request that is out: when it left, and the place of its key; `set` is whether it stores. */
struct request {
    uint64_t started;
    int key, set;
};

struct connection {
    int fd;
    uint64_t asked, answered;
    size_t position;               /* bytes of the present answer that have come */
    struct request *out;           /* ring of `depth` */
};

static struct sockaddr_in address = {.sin_family = AF_INET};
static long connections = 1, depth = 1, sets = 10;
static size_t value = 32;
static double seconds = 5, warm_up = 0;
static int redis = 0;
static uint64_t request_number = 0;
static char incoming[READ], outgoing[READ], *get_answers[KEYS];
static size_t get_length;
static const char *set_answer;

/* The value of a key: its number, over and over. */
static void make_value(char *bytes, int key) {
    char number[16];
    snprintf(number, sizeof number, "%08d", key);
    for (size_t i = 0; i < value; i++) bytes[i] = number[i % 8];
}

static void prepare(void) {
    static char bytes[MOST_VALUE + 1];
    set_answer = redis ? "+OK\r\n" : "STORED\r\n";
    for (int key = 0; key < KEYS; key++) {
        make_value(bytes, key);
        get_answers[key] = malloc(value + 64);
        if (!get_answers[key]) die("malloc");
        get_length = (size_t)(redis ? sprintf(get_answers[key], "$%zu\r\n%s\r\n", value, bytes)
                                    : sprintf(get_answers[key], "VALUE key%08d 0 %zu\r\n%s\r\nEND\r\n", key, value, bytes));
    }
}

/* Writes a request; returns its length. */
static size_t make_request(char *to, int key, int set) {
    static char bytes[MOST_VALUE + 1];
    if (!set) return (size_t)sprintf(to, redis ? "*2\r\n$3\r\nGET\r\n$11\r\nkey%08d\r\n" : "get key%08d\r\n", key);
    make_value(bytes, key);
    if (redis) return (size_t)sprintf(to, "*3\r\n$3\r\nSET\r\n$11\r\nkey%08d\r\n$%zu\r\n%s\r\n", key, value, bytes);
    return (size_t)sprintf(to, "set key%08d 0 0 %zu\r\n%s\r\n", key, value, bytes);
}

/* Sends `n` requests; small ones, so the socket takes them whole. */
static int ask(struct connection *c, long n, uint64_t time) {
    size_t length = 0;
    for (long i = 0; i < n; i++) {
        request_number++;
        /* A step that has no common divisor with the number of keys visits them all. */
        struct request *r = &c->out[c->asked++ % (uint64_t)depth];
        *r = (struct request){time, (int)(request_number * 7919 % KEYS), request_number % 100 < (uint64_t)sets};
        length += make_request(outgoing + length, r->key, r->set);
    }
    return send(c->fd, outgoing, length, MSG_NOSIGNAL) == (ssize_t)length ? 0 : -1;
}

/* Reads once; returns how many answers were completed, or -1 when the connection is over. */
static long pull(struct connection *c) {
    ssize_t n = recv(c->fd, incoming, READ, 0);
    if (n < 0 && errno == EAGAIN) return 0;
    if (n <= 0) return -1;
    uint64_t time = now(), before = c->answered;
    const char *bytes = incoming;
    for (size_t length = (size_t)n; length && c->answered < c->asked;) {
        struct request *r = &c->out[c->answered % (uint64_t)depth];
        const char *expected = r->set ? set_answer : get_answers[r->key];
        size_t whole = r->set ? strlen(set_answer) : get_length, step = least(whole - c->position, length);
        wrong += memcmp(bytes, expected + c->position, step) != 0;
        bytes += step;
        length -= step;
        c->position += step;
        if (c->position < whole) break;
        c->position = 0;
        record(r->started, time);
        c->answered++;
    }
    return (long)(c->answered - before);
}

static void open_one(int set, struct connection *c) {
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0) die("socket");
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address) < 0) die("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (fcntl(c->fd, F_SETFL, O_NONBLOCK) < 0) die("fcntl");
    c->out = calloc((size_t)depth, sizeof *c->out);
    if (!c->out) die("calloc");
    watch_fd(set, EPOLL_CTL_ADD, c->fd, EPOLLIN, c);
}

/* Stores every key. */
static void fill(int set, struct connection *c) {
    struct epoll_event event;
    long all = sets;
    sets = 100;
    for (int key = 0; key < KEYS; key++) {
        if (ask(c, 1, 0) < 0) die("send");
        while (c->answered < c->asked)
            if (epoll_wait(set, &event, 1, -1) > 0 && pull(c) < 0) die("recv");
    }
    sets = all;
    if (wrong) {
        fprintf(stderr, "kv_client: the server does not store what it is given\n");
        exit(1);
    }
}

static double run(int set, struct connection *all) {
    struct epoll_event events[EVENTS];
    double before = 0;
    int measuring = 0;
    for (long i = 0; i < connections; i++)
        if (ask(&all[i], depth, now()) < 0) die("send");
    for (uint64_t time = now(); time < end_at && !errors && !wrong; time = now()) {
        if (!measuring && time >= begin_at) {
            before = cpu_seconds();
            measuring = 1;
        }
        int n = epoll_wait(set, events, EVENTS, 100);
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            long done = pull(c);
            if (done < 0 || (done && ask(c, done, now()) < 0)) errors++;
        }
    }
    return cpu_seconds() - before;
}

static _Noreturn void usage(void) {
    fprintf(stderr, "usage: kv_client -c ADDRESS -p PORT [-k (redis, not memcached)] [-n CONNECTIONS] [-d DEPTH]\n"
                    "                 [-s VALUE_BYTES] [-x PERCENT_OF_SETS] [-t SECONDS] [-w WARM_UP_SECONDS]\n");
    exit(2);
}

static void parse(int argc, char **argv) {
    int port = 11211;
    for (int option; (option = getopt(argc, argv, "c:p:kn:d:s:x:t:w:")) != -1;) {
        if (option == 'c' && inet_pton(AF_INET, optarg, &address.sin_addr) == 1) continue;
        if (option == 'p' && (port = atoi(optarg)) > 0 && port < 65536) continue;
        if (option == 'k' && (redis = 1)) continue;
        if (option == 'n' && (connections = atol(optarg)) > 0) continue;
        if (option == 'd' && (depth = atol(optarg)) > 0 && depth <= MOST_DEPTH) continue;
        if (option == 's' && (value = strtoul(optarg, NULL, 10)) > 0 && value <= MOST_VALUE) continue;
        if (option == 'x' && (sets = atol(optarg)) >= 0 && sets <= 100) continue;
        if (option == 't' && (seconds = atof(optarg)) > 0) continue;
        if (option == 'w' && (warm_up = atof(optarg)) >= 0) continue;
        usage();
    }
    if (optind < argc || !address.sin_addr.s_addr || (size_t)depth * (value + 64) > READ) usage();
    address.sin_port = htons((uint16_t)port);
}

int main(int argc, char **argv) {
    parse(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    prepare();
    struct connection *all = calloc((size_t)connections, sizeof *all);
    int set = epoll_create1(EPOLL_CLOEXEC);
    if (!all || set < 0) die("set-up");
    for (long i = 0; i < connections; i++) open_one(set, &all[i]);
    fill(set, &all[0]);
    say_begin(warm_up, seconds);
    double cpu = run(set, all);
    uint64_t *counts = calloc((size_t)connections, sizeof *counts);
    for (long i = 0; counts && i < connections; i++) counts[i] = all[i].answered;
    return say_result(cpu, counts, connections);
}
