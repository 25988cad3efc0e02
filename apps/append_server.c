/* append_server: records of many connections in one log, in the order in which they come; how many it took.
 *
 * Plain POSIX, identical for every stack: it receives straight to the end of the log, so that its own copy is the only
 * one, and reads records that are whole in the log's order. With -S the data-path does all but the reading
 * (include/toe.h, docs/SHARED-LOG.md). Waits for all connections, prints when measuring begins, counts for the time
 * asked the bytes of records that it read, by connection, prints them as apps/flows does, and hangs up. Whatever writes
 * bytes on connections writes records: apps/flows does.
 */
#define _GNU_SOURCE
#include "load.h"
#include "../include/toe.h"
#include <fcntl.h>

/* READ: most bytes of one recv, as apps/flows. */
enum { EVENTS = 256, READ = 64 * 1024, LIST = 256 };

struct writer {
    int fd;
    long number;
    uint64_t place; /* of the record that is not whole */
    size_t have;    /* bytes of it; 0 where there is none */
};

static struct sockaddr_in address = {.sin_family = AF_INET};
static long flows = 1;
static size_t size = 256;
static uint64_t records = 65536, head = 0, tail = 0; /* of the log: places, as many as `records` at once */
static double seconds = 5, warm_up = 0;
static char *log_bytes;
static int32_t *owner; /* of each place: whose record is whole there, or -1 */
static uint64_t *bytes, seen = 0;

static char *at(uint64_t place) {
    return log_bytes + place % records * size;
}

/* What a reader of the log does at least: it reads whose record this is. */
static void look_at(const void *data, uint64_t connection, uint64_t time) {
    seen += *(const uint64_t *)data;
    if (time >= begin_at && time < end_at) bytes[connection] += size;
}

/* Records that are whole, up to the first that is not. */
static void read_own_log(uint64_t time) {
    for (; head < tail && owner[head % records] >= 0; head++) {
        look_at(at(head), (uint64_t)owner[head % records], time);
        owner[head % records] = -1;
    }
}

/* Receives once: the rest of a record, or records for the end of the log. As recv; EAGAIN where the log has no room. */
static ssize_t append(struct writer *w) {
    if (w->have > 0) {
        ssize_t n = recv(w->fd, at(w->place) + w->have, size - w->have, 0);
        if (n <= 0) return n;
        w->have = (w->have + (size_t)n) % size;
        if (w->have == 0) owner[w->place % records] = (int32_t)w->number;
        return n;
    }
    uint64_t room = least(records - (tail - head), records - tail % records);
    size_t most = least(room * size, READ / size * size);
    if (most == 0) return errno = EAGAIN, -1;
    ssize_t n = recv(w->fd, at(tail), most, 0);
    if (n <= 0) return n;
    for (size_t whole = (size_t)n / size; whole > 0; whole--) owner[tail++ % records] = (int32_t)w->number;
    w->have = (size_t)n % size;
    if (w->have > 0) w->place = tail++;
    return n;
}

static long own_log(int set, struct writer *writers) {
    struct epoll_event events[EVENTS];
    log_bytes = malloc(records * size), owner = malloc(records * sizeof *owner);
    if (!log_bytes || !owner) die("malloc");
    for (uint64_t i = 0; i < records; i++) owner[i] = -1;
    for (long i = 0; i < flows; i++) watch_fd(set, EPOLL_CTL_ADD, writers[i].fd, EPOLLIN, &writers[i]);
    say_begin(warm_up, seconds);
    long open = flows;
    for (uint64_t time = now(); open && time < end_at;) {
        int n = epoll_wait(set, events, EVENTS, 10);
        time = now();
        for (int i = 0; i < n; i++) {
            struct writer *w = events[i].data.ptr;
            ssize_t got = append(w);
            if (got > 0 || (got < 0 && errno == EAGAIN)) continue;
            close(w->fd);
            open--;
        }
        read_own_log(time);
    }
    return flows - open;
}

static long shared_log(int set, struct writer *writers) {
    struct toe_log_record list[LIST];
    struct epoll_event event;
    int log = toe_log_create(size, records, SOCK_NONBLOCK);
    if (log < 0) die("toe_log_create");
    for (long i = 0; i < flows; i++)
        if (toe_log_add(log, writers[i].fd, (uint64_t)i) < 0) die("toe_log_add");
    watch_fd(set, EPOLL_CTL_ADD, log, EPOLLIN, NULL);
    long lost = 0;
    say_begin(warm_up, seconds);
    for (uint64_t time = now(); time < end_at;) {
        epoll_wait(set, &event, 1, 10);
        time = now();
        for (ssize_t n; (n = toe_log_read(log, list, LIST, 0)) > 0;) {
            for (ssize_t i = 0; i < n; i++) {
                if (list[i].data) look_at(list[i].data, list[i].mark, time);
                else lost++;
            }
            if (toe_log_trim(log, (size_t)n) < 0) die("toe_log_trim");
            time = now();
            if (time >= end_at) break;
        }
        if (errno != EAGAIN && time < end_at) die("toe_log_read");
    }
    return lost;
}

static _Noreturn void usage(void) {
    fprintf(stderr, "usage: append_server [-a ADDRESS] [-p PORT] [-n CONNECTIONS] [-s BYTES_OF_A_RECORD] [-r RECORDS]\n"
                    "                     [-w WARM_UP_SECONDS] [-t SECONDS] [-S (the data-path appends)]\n");
    exit(2);
}

int main(int argc, char **argv) {
    int port = 7779, shared = 0;
    for (int option; (option = getopt(argc, argv, "a:p:n:w:t:s:r:S")) != -1;) {
        if (option == 'a' && inet_pton(AF_INET, optarg, &address.sin_addr) == 1) continue;
        if (option == 'p' && (port = atoi(optarg)) > 0 && port < 65536) continue;
        if (option == 'n' && (flows = atol(optarg)) > 0) continue;
        if (option == 'w' && (warm_up = atof(optarg)) >= 0) continue;
        if (option == 't' && (seconds = atof(optarg)) > 0) continue;
        if (option == 's' && (size = strtoul(optarg, NULL, 10)) >= 16 && size <= READ) continue;
        if (option == 'r' && (records = strtoul(optarg, NULL, 10)) > 0) continue;
        if (option == 'S' && (shared = 1)) continue;
        usage();
    }
    if (optind < argc) usage();
    if (shared && !toe_log_create) {
        fprintf(stderr, "append_server: the shared log is libtoe.so's: it is not loaded\n");
        return 1;
    }
    address.sin_port = htons((uint16_t)port);
    struct writer *writers = calloc((size_t)flows, sizeof *writers);
    bytes = calloc((size_t)flows, sizeof *bytes);
    int set = epoll_create1(EPOLL_CLOEXEC), listener = listen_at(&address, 0, 4096, 0);
    if (!writers || !bytes || set < 0) die("set-up");
    for (long i = 0; i < flows; i++) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) die("accept");
        writers[i] = (struct writer){.fd = fd, .number = i};
    }
    long lost = shared ? shared_log(set, writers) : own_log(set, writers);
    printf("{\"flows\":%ld,\"seconds\":%.6f,\"lost\":%ld,\"seen\":%llu,\"bytes\":[", flows,
           (double)(end_at - begin_at) / 1e9, lost, (unsigned long long)seen);
    for (long i = 0; i < flows; i++) printf("%s%llu", i ? "," : "", (unsigned long long)bytes[i]);
    printf("]}\n");
    return lost != 0;
}
