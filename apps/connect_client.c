/* connect_client: opens a connection, sends a request, reads the reply, closes; N of them at a time.
 *
 * Plain POSIX, identical for every stack. The server closes after its reply (rpc_server -1), as a web server does
 * without keep-alive, so that the client's ports are free again at once. A latency runs from connect to the end of
 * the stream. load.h has what is printed; the exit status is 1 if anything was lost or wrong.
 */
#define _GNU_SOURCE
#include "load.h"

/* Requests are no longer; replies may be. */
enum { EVENTS = 256, MOST = 64 * 1024 };

/* A connection that is open now. */
struct slot {
    int fd, asked;
    uint64_t started;
    size_t received;
};

static struct sockaddr_in address = {.sin_family = AF_INET};
static long at_once = 16;
static size_t size = 64, reply = 0;
static double seconds = 5, warm_up = 0;
static char request[MOST], incoming[MOST];
static struct slot *all;

static void open_one(int set, struct slot *s) {
    int one = 1;
    *s = (struct slot){.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), .started = now()};
    if (s->fd < 0) die("socket");
    setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(s->fd, (struct sockaddr *)&address, sizeof address) < 0 && errno != EINPROGRESS) die("connect");
    watch_fd(set, EPOLL_CTL_ADD, s->fd, EPOLLOUT, s);
}

/* The connection is there: asks. -1 where it is not. */
static int ask(int set, struct slot *s) {
    if (send(s->fd, request, size, MSG_NOSIGNAL) != (ssize_t)size) return -1;
    s->asked = 1;
    watch_fd(set, EPOLL_CTL_MOD, s->fd, EPOLLIN, s);
    return 0;
}

/* Reads; 1 at the end of the stream, -1 where the connection was lost. */
static int take(struct slot *s) {
    for (;;) {
        ssize_t n = recv(s->fd, incoming, sizeof incoming, 0);
        if (n < 0) return errno == EAGAIN ? 0 : -1;
        if (n == 0) return 1;
        const char *expected = request + least(s->received, MOST - 8);
        wrong += s->received + (size_t)n > reply || memcmp(incoming, expected, least((size_t)n, 8)) != 0;
        s->received += (size_t)n;
    }
}

static void serve(int set, struct slot *s) {
    int state = s->asked ? take(s) : ask(set, s);
    if (state == 0) return;
    if (state < 0) errors++;
    if (state > 0) wrong += s->received != reply;
    if (state > 0) record(s->started, now());
    close(s->fd);
    open_one(set, s);
}

static double run(int set) {
    struct epoll_event events[EVENTS];
    double before = 0;
    int measuring = 0;
    for (uint64_t time = now(); time < end_at; time = now()) {
        if (!measuring && time >= begin_at) {
            before = cpu_seconds();
            measuring = 1;
        }
        int n = epoll_wait(set, events, EVENTS, 100);
        for (int i = 0; i < n; i++) serve(set, events[i].data.ptr);
    }
    return cpu_seconds() - before;
}

static _Noreturn void usage(void) {
    fprintf(stderr, "usage: connect_client -c ADDRESS [-p PORT] [-n CONNECTIONS_AT_ONCE] [-s BYTES] [-r REPLY_BYTES]\n"
                    "                      [-t SECONDS] [-w WARM_UP_SECONDS]\n");
    exit(2);
}

int main(int argc, char **argv) {
    int port = 7777;
    for (int option; (option = getopt(argc, argv, "c:p:n:s:r:t:w:")) != -1;) {
        if (option == 'c' && inet_pton(AF_INET, optarg, &address.sin_addr) == 1) continue;
        if (option == 'p' && (port = atoi(optarg)) > 0 && port < 65536) continue;
        if (option == 'n' && (at_once = atol(optarg)) > 0) continue;
        if (option == 's' && (size = strtoul(optarg, NULL, 10)) >= 8 && size <= MOST) continue;
        if (option == 'r' && (reply = strtoul(optarg, NULL, 10)) >= 8) continue;
        if (option == 't' && (seconds = atof(optarg)) > 0) continue;
        if (option == 'w' && (warm_up = atof(optarg)) >= 0) continue;
        usage();
    }
    if (optind < argc || !address.sin_addr.s_addr) usage();
    address.sin_port = htons((uint16_t)port);
    if (!reply) reply = size;
    signal(SIGPIPE, SIG_IGN);
    memcpy(request, "request!", 8);
    all = calloc((size_t)at_once, sizeof *all);
    int set = epoll_create1(EPOLL_CLOEXEC);
    if (!all || set < 0) die("set-up");
    for (long i = 0; i < at_once; i++) open_one(set, &all[i]);
    say_begin(warm_up, seconds);
    return say_result(run(set), NULL, 0);
}
