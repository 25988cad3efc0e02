/* log_server ADDRESS PORT CONNECTIONS [RECORD [RECORDS [LAZY_MS]]]: the reader of a shared log (include/toe.h), which checks it.
 *
 * Takes so many connections, lets the records of all go to one log, and reads it until all have ended. A record has
 * whose it is and which; the rest of it follows from that, so each is compared byte for byte. Prints one line of JSON
 * with what it saw; exit status 1 where a record was wrong, missing, there twice, or out of its connection's order.
 * With LAZY_MS it sleeps so long between two reads, so that the log fills up. apps/log_client.c writes.
 */
#define _GNU_SOURCE
#include "program.h"
#include "../include/toe.h"
#include "log_record.h"
#include <poll.h>

enum { BATCH = 256, MOST = 4096 };

/* Of each connection: how many of its records were read, and the number that the client gave itself. */
static uint64_t next_number[MOST], client_of[MOST];
static uint64_t records, holes, wrong, turns, index_wanted;
static size_t size = 256;

static void look_at(const struct toe_log_record *r) {
    static uint64_t last = UINT64_MAX;
    if (r->index != index_wanted++ || r->mark >= MOST || r->number != next_number[r->mark]++) {
        fprintf(stderr, "log_server: place %llu: connection %llu's record %llu is out of order\n",
                (unsigned long long)r->index, (unsigned long long)r->mark, (unsigned long long)r->number);
        wrong++;
        return;
    }
    turns += r->mark != last;
    last = r->mark;
    if (!r->data) {
        holes++;
        return;
    }
    records++;
    const uint64_t *words = r->data;
    if (r->number == 0) client_of[r->mark] = words[0];
    if (!is_record(words, size, client_of[r->mark], r->number)) {
        fprintf(stderr, "log_server: place %llu: record %llu of connection %llu holds something else\n",
                (unsigned long long)r->index, (unsigned long long)r->number, (unsigned long long)r->mark);
        wrong++;
    }
}

/* Reads what is there; returns how many. */
static size_t read_log(int log) {
    struct toe_log_record list[BATCH];
    size_t all = 0;
    for (;;) {
        ssize_t n = toe_log_read(log, list, BATCH, MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN) return all;
        if (n < 0) die("toe_log_read");
        for (ssize_t i = 0; i < n; i++) look_at(&list[i]);
        if (toe_log_trim(log, (size_t)n) < 0) die("toe_log_trim");
        all += (size_t)n;
    }
}

/* The connection has ended, by its peer's FIN or with an error; what it never finished is a hole soon. */
static int has_ended(int fd) {
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_DONTWAIT);
    return n >= 0 || (errno != EAGAIN && errno != EINTR);
}

enum { LISTENER, LOG, CONNECTION };

static void watch(int set, int fd, int kind) {
    watch_fd(set, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLRDHUP, (void *)((uintptr_t)kind << 32 | (uint32_t)fd));
}

/* Returns 1 where the connection has ended already, by a reset. */
static uint64_t take_one(int set, int listener, int log, uint64_t mark) {
    int fd = accept(listener, NULL, NULL);
    if (fd < 0) die("accept");
    if (toe_log_add(log, fd, mark) == 0) {
        watch(set, fd, CONNECTION);
        return 0;
    }
    if (errno != ECONNRESET && errno != ENOTCONN && errno != EPIPE) die("toe_log_add");
    close(fd);
    return 1;
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: log_server ADDRESS PORT CONNECTIONS [RECORD [RECORDS [LAZY_MS]]]\n");
        return 2;
    }
    uint64_t connections = strtoull(argv[3], NULL, 10), taken = 0, ended = 0;
    size = argc > 4 ? strtoul(argv[4], NULL, 10) : size;
    size_t room = argc > 5 ? strtoul(argv[5], NULL, 10) : 65536;
    long lazy = argc > 6 ? strtol(argv[6], NULL, 10) : 0;
    if (!toe_log_create) {
        fprintf(stderr, "log_server: no libtoe with shared logs is loaded: run it with `opentoe run`\n");
        return 2;
    }
    int log = toe_log_create(size, room, 0);
    if (log < 0) die("toe_log_create");
    if (toe_log_create(size, room, 0) >= 0 || errno != EEXIST) die("a second log was made");
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2]))};
    if (inet_pton(AF_INET, argv[1], &address.sin_addr) != 1) die(argv[1]);
    int listener = listen_at(&address, 0, 128, 0), set = epoll_create1(0);
    watch(set, listener, LISTENER);
    watch(set, log, LOG);
    while (ended < connections) {
        struct epoll_event events[64];
        int n = epoll_wait(set, events, 64, -1);
        if (n < 0 && errno != EINTR) die("epoll_wait");
        for (int i = 0; i < n; i++) {
            int kind = (int)((uintptr_t)events[i].data.ptr >> 32), fd = (int)(uint32_t)(uintptr_t)events[i].data.ptr;
            if (kind == LISTENER) ended += take_one(set, fd, log, taken++);
            if (kind == LOG) read_log(fd);
            if (kind == CONNECTION && has_ended(fd)) {
                close(fd);
                ended++;
            }
        }
        if (lazy) nanosleep(&(struct timespec){.tv_sec = lazy / 1000, .tv_nsec = lazy % 1000 * 1000000}, NULL);
    }
    /* Holes of connections that were reset come a moment after the news of it. */
    struct pollfd wait = {.fd = log, .events = POLLIN};
    while (read_log(log) > 0 || poll(&wait, 1, 500) > 0) {}
    printf("{\"connections\":%llu,\"records\":%llu,\"holes\":%llu,\"wrong\":%llu,\"turns\":%llu,\"log\":[",
           (unsigned long long)taken, (unsigned long long)records, (unsigned long long)holes, (unsigned long long)wrong,
           (unsigned long long)turns);
    for (uint64_t i = 0; i < taken; i++)
        printf("%s[%llu,%llu]", i ? "," : "", (unsigned long long)client_of[i], (unsigned long long)next_number[i]);
    printf("]}\n");
    return wrong != 0;
}
