/* comm_flow: a bulk flow from one program's memory to another's through toe_comm (include/toe.h): how many bytes it moved.
 *
 *   comm_flow receive HOST PORT SIZE DEPTH WARM_UP SECONDS
 *   comm_flow send HOST ADDRESS PORT SIZE DEPTH
 *
 * HOST is a ZeroNIC host; DEPTH messages of SIZE bytes are posted at a time, each in its own part of one buffer. The
 * receiver counts for the time asked what comes after the warm-up, prints it as one JSON object, as flows does, and hangs
 * up. The sender sends until then.
 */
#define _GNU_SOURCE
#include "program.h"
#include "../include/toe.h"
#include <fcntl.h>
#include <sys/mman.h>

enum { EVENTS = 64, PATIENCE_MS = 60 * 1000 };

static toe_comm *comm;
static uint32_t key;
static size_t size;
static uint64_t depth;

/* Memory of a sealed memfd, which the daemon reaches as fast as its own. */
static void prepare(const char *host) {
    if (!toe_comm_open) errno = EOPNOTSUPP, die("libtoe.so is not loaded");
    if (!(comm = toe_comm_open(strcmp(host, "-") ? host : NULL))) die("toe_comm_open");
    int fd = memfd_create("comm_flow", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, (off_t)(size * depth)) < 0) die("memfd_create");
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0) die("F_ADD_SEALS");
    char *memory = mmap(NULL, size * depth, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (memory == MAP_FAILED) die("mmap");
    for (size_t at = 0; at < size * depth; at += 8) *(uint64_t *)(memory + at) = mix(at);
    /* While it is registered the descriptor is open: the library finds the memory's file by it. */
    if (toe_comm_register(comm, memory, size * depth, &key) < 0) die("toe_comm_register");
    close(fd);
}

static void post(uint32_t connection, uint64_t message, int sending) {
    uint64_t offset = message % depth * size;
    int (*function)(toe_comm *, uint32_t, uint32_t, uint64_t, size_t, uint64_t) = sending ? toe_comm_send : toe_comm_recv;
    if (function(comm, connection, key, offset, size, message) < 0) die("a post");
}

/* The next events; at least one. */
static int next(struct toe_comm_event *events) {
    int count = toe_comm_wait(comm, events, EVENTS, PATIENCE_MS);
    if (count == 0) errno = ETIMEDOUT;
    if (count <= 0) die("toe_comm_wait");
    for (int i = 0; i < count; i++)
        if (events[i].what == TOE_COMM_FAILED) errno = (int)events[i].value, die("a post");
    return count;
}

static void receive(uint16_t port, double warm_up, double seconds) {
    if (toe_comm_listen(comm, port, 0) < 0) die("toe_comm_listen");
    struct toe_comm_event events[EVENTS];
    uint64_t posted = 0, bytes = 0, begin = 0, end = 0, counted = 0;
    for (int over = 0; !over;) {
        int count = next(events);
        uint64_t time = now();
        for (int i = 0; i < count; i++) {
            switch (events[i].what) {
            case TOE_COMM_LISTENING: puts("listening"), fflush(stdout); break;
            case TOE_COMM_ACCEPTED:
                for (; posted < depth; posted++) post(events[i].connection, posted, 0);
                begin = time + (uint64_t)(warm_up * 1e9), end = begin + (uint64_t)(seconds * 1e9);
                puts("{\"begun\":true}"), fflush(stdout);
                break;
            case TOE_COMM_RECEIVED:
                bytes += events[i].value;
                post(events[i].connection, posted++, 0);
                break;
            case TOE_COMM_ENDED:
            case TOE_COMM_LOST: errno = 0, die("the flow");
            }
        }
        if (begin && time < begin) counted = bytes;
        over = end && time >= end;
    }
    printf("{\"flows\":1,\"seconds\":%.6f,\"lost\":0,\"bytes\":[%llu]}\n", seconds, (unsigned long long)(bytes - counted));
}

static void send_on(const struct sockaddr_in *to) {
    if (toe_comm_connect(comm, to, 0) < 0) die("toe_comm_connect");
    struct toe_comm_event events[EVENTS];
    uint64_t posted = 0;
    for (;;) {
        int count = next(events);
        for (int i = 0; i < count; i++) switch (events[i].what) {
            case TOE_COMM_CONNECTED:
                for (; posted < depth; posted++) post(events[i].connection, posted, 1);
                break;
            case TOE_COMM_SENT: post(events[i].connection, posted++, 1); break;
            case TOE_COMM_ENDED:
            case TOE_COMM_LOST: return;
            }
    }
}

int main(int count, char **words) {
    struct sockaddr_in to = {.sin_family = AF_INET};
    if (count == 8 && !strcmp(words[1], "receive")) {
        size = strtoul(words[4], NULL, 10), depth = strtoul(words[5], NULL, 10);
        prepare(words[2]);
        receive((uint16_t)atoi(words[3]), atof(words[6]), atof(words[7]));
    } else if (count == 7 && !strcmp(words[1], "send") && inet_pton(AF_INET, words[3], &to.sin_addr) == 1) {
        to.sin_port = htons((uint16_t)atoi(words[4]));
        size = strtoul(words[5], NULL, 10), depth = strtoul(words[6], NULL, 10);
        prepare(words[2]);
        send_on(&to);
    } else {
        fprintf(stderr, "usage: comm_flow receive HOST PORT SIZE DEPTH WARM_UP SECONDS | comm_flow send HOST ADDRESS PORT SIZE "
                        "DEPTH\n");
        return 2;
    }
    toe_comm_close(comm);
    return 0;
}
