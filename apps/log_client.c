/* log_client ADDRESS PORT CONNECTIONS RECORDS [RECORD [SEED [KILLED]]]: writes records to a log, as any TCP program may.
 *
 * Each connection writes so many records, in pieces of random sizes that do not respect records, from one thread that
 * goes round all of them. RECORDS of 0: as many as it can until SIGTERM. The last KILLED connections are reset in the
 * middle of a record. apps/log_server.c reads.
 */
#define _GNU_SOURCE
#include "program.h"
#include "log_record.h"
#include <poll.h>

struct writer {
    int fd;
    uint64_t client, written, end;
    int is_killed, is_done;
};

static size_t size = 256;
static uint64_t dice;
static volatile sig_atomic_t is_ended;

static void end(int number) {
    (void)number;
    is_ended = 1;
}

static uint64_t roll(uint64_t most) {
    return mix(++dice) % most;
}

/* The next bytes of the connection's stream, at most so many. */
static size_t make(const struct writer *w, char *into, size_t most) {
    uint64_t record[8192];
    size_t done = 0;
    while (done < most && w->written + done < w->end) {
        uint64_t at = w->written + done, left = size - at % size;
        make_record(record, size, w->client, at / size);
        size_t len = left < most - done ? (size_t)left : most - done;
        if (len > w->end - at) len = (size_t)(w->end - at);
        memcpy(into + done, (char *)record + at % size, len);
        done += len;
    }
    return done;
}

static void write_some(struct writer *w) {
    static char bytes[65536];
    size_t most = roll(4) ? 1 + roll(3000) : 1 + roll(sizeof bytes);
    size_t len = make(w, bytes, most);
    ssize_t n = send(w->fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN && errno != EINTR) die("send");
    if (n > 0) w->written += (uint64_t)n;
}

/* All was written: shuts its side down, or dies without that. Returns whether the connection is over. */
static int finish(struct writer *w) {
    struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    char byte;
    if (w->is_killed) setsockopt(w->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    else if (!w->is_done) {
        if (shutdown(w->fd, SHUT_WR) < 0) die("shutdown");
        w->is_done = 1;
        return 0;
    } else {
        /* The peer closes when it has seen the end: then all was acknowledged. */
        if (recv(w->fd, &byte, 1, 0) != 0) die("the peer did not end well");
    }
    close(w->fd);
    w->fd = -1;
    return 1;
}

static void start(struct writer *w, uint64_t client, uint64_t bytes, int is_killed, const struct sockaddr_in *address) {
    *w = (struct writer){.client = client, .end = is_killed ? bytes - size / 2 : bytes, .is_killed = is_killed};
    w->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(w->fd, (const struct sockaddr *)address, sizeof *address) < 0) die("connect");
}

/* Until each connection has written all of its bytes and is over. SIGTERM: the record that was begun is its last one. */
static void write_all(struct writer *writers, struct pollfd *fds, int connections) {
    for (int open = connections, is_last = 0; open > 0;) {
        int ends_now = is_ended && !is_last;
        is_last |= ends_now;
        for (int i = 0; i < connections; i++) {
            struct writer *w = &writers[i];
            if (ends_now) w->end = (w->written + size - 1) / size * size + (w->is_killed ? size / 2 : 0);
            fds[i] = (struct pollfd){.fd = w->fd, .events = w->is_done ? POLLIN : POLLOUT};
        }
        if (poll(fds, (nfds_t)connections, -1) < 0 && errno != EINTR) die("poll");
        for (int i = 0; i < connections; i++) {
            if (writers[i].fd < 0 || !fds[i].revents) continue;
            if (writers[i].written < writers[i].end) write_some(&writers[i]);
            if (writers[i].written == writers[i].end && finish(&writers[i])) open--;
        }
    }
}

int main(int argc, char **argv) {
    if (argc < 5) {
        fprintf(stderr, "usage: log_client ADDRESS PORT CONNECTIONS RECORDS [RECORD [SEED [KILLED]]]\n");
        return 2;
    }
    int connections = atoi(argv[3]), killed = argc > 7 ? atoi(argv[7]) : 0;
    uint64_t records = strtoull(argv[4], NULL, 10), written = 0;
    size = argc > 5 ? strtoul(argv[5], NULL, 10) : size;
    if (size < 16 || size > 65536) {
        fprintf(stderr, "log_client: a record has 16 to 65536 bytes\n");
        return 2;
    }
    dice = argc > 6 ? strtoull(argv[6], NULL, 10) << 32 : 0;
    uint64_t first = dice >> 12, bytes = (records ? records : UINT64_MAX / size) * size;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2]))};
    if (inet_pton(AF_INET, argv[1], &address.sin_addr) != 1) die(argv[1]);
    struct writer *writers = calloc((size_t)connections, sizeof *writers);
    struct pollfd *fds = calloc((size_t)connections, sizeof *fds);
    if (!writers || !fds) die("memory");
    if (!records) signal(SIGTERM, end);
    for (int i = 0; i < connections; i++) start(&writers[i], first + (uint64_t)i, bytes, i >= connections - killed, &address);
    write_all(writers, fds, connections);
    for (int i = 0; i < connections; i++) written += writers[i].written / size;
    printf("{\"connections\":%d,\"records\":%llu,\"killed\":%d}\n", connections, (unsigned long long)written, killed);
    return 0;
}
