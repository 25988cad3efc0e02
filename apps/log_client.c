/* log_client ADDRESS PORT CONNECTIONS RECORDS [RECORD [SEED [KILLED]]]: writes records to a log, as any TCP program may.
 *
 * Each connection writes so many records, in pieces of random sizes that do not respect records, from one thread that goes
 * round all of them. The last KILLED connections are reset in the middle of a record. apps/log_server.c reads.
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

/* All was written: says so to the peer, or dies without a word. Returns whether the connection is over. */
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

int main(int argc, char **argv) {
    if (argc < 5) {
        fprintf(stderr, "usage: log_client ADDRESS PORT CONNECTIONS RECORDS [RECORD [SEED [KILLED]]]\n");
        return 2;
    }
    int connections = atoi(argv[3]), killed = argc > 7 ? atoi(argv[7]) : 0, open = connections;
    uint64_t records = strtoull(argv[4], NULL, 10);
    size = argc > 5 ? strtoul(argv[5], NULL, 10) : size;
    dice = argc > 6 ? strtoull(argv[6], NULL, 10) << 32 : 0;
    uint64_t first = dice >> 12;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2]))};
    if (inet_pton(AF_INET, argv[1], &address.sin_addr) != 1) die(argv[1]);
    struct writer *writers = calloc((size_t)connections, sizeof *writers);
    struct pollfd *fds = calloc((size_t)connections, sizeof *fds);
    if (!writers || !fds || size > 65536) die("memory");
    for (int i = 0; i < connections; i++) {
        struct writer *w = &writers[i];
        *w = (struct writer){.client = first + (uint64_t)i, .end = records * size, .is_killed = i >= connections - killed};
        if (w->is_killed) w->end -= size / 2;
        w->fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(w->fd, (struct sockaddr *)&address, sizeof address) < 0) die("connect");
    }
    while (open > 0) {
        for (int i = 0; i < connections; i++) {
            short events = writers[i].is_done ? POLLIN : POLLOUT;
            fds[i] = (struct pollfd){.fd = writers[i].fd, .events = events};
        }
        if (poll(fds, (nfds_t)connections, -1) < 0 && errno != EINTR) die("poll");
        for (int i = 0; i < connections; i++) {
            if (writers[i].fd < 0 || !fds[i].revents) continue;
            if (writers[i].written < writers[i].end) write_some(&writers[i]);
            if (writers[i].written == writers[i].end && finish(&writers[i])) open--;
        }
    }
    printf("{\"connections\":%d,\"records\":%llu,\"killed\":%d}\n", connections, (unsigned long long)records, killed);
    return 0;
}
