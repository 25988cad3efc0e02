/* comm_flow: bulk flows from one program's memory to another's through toe_comm (include/toe.h): how many bytes they moved.
 *
 *   comm_flow receive HOST PORT SIZE DEPTH FLOWS WARM_UP SECONDS
 *   comm_flow send HOST ADDRESS PORT SIZE DEPTH FLOWS [MBIT_A_SECOND_OF_EACH_FLOW]
 *
 * HOST is a ZeroNIC host, or - for the daemon's first; on each flow DEPTH messages of SIZE bytes are posted at a time,
 * each in its own part of one buffer. The receiver waits until all flows are there, prints when measuring begins, lets
 * them run for the warm-up, counts what comes for the time asked, prints it as one JSON object, as flows does, and
 * hangs up. The sender sends until then.
 */
#define _GNU_SOURCE
#include "load.h"
#include "comm.h"

enum { MOST_FLOWS = 128 };

/* A connection, how many posts were made on it, and how many of them are done. */
struct flow {
    uint32_t connection;
    uint64_t posted, done, bytes;
};

static size_t size;
static uint64_t depth;
static struct flow flows[MOST_FLOWS];
static unsigned wanted = 1, count = 0;

/* Each word is another one, and each page is there. */
static void prepare(const char *host) {
    size_t length = size * depth * wanted;
    open_comm(host);
    char *memory = sealed_memory(length);
    for (size_t at = 0; at < length; at += 8) *(uint64_t *)(memory + at) = mix(at);
}

static void post(struct flow *flow, int sending) {
    uint64_t offset = ((uint64_t)(flow - flows) * depth + flow->posted % depth) * size;
    int (*function)(toe_comm *, uint32_t, uint32_t, uint64_t, size_t, uint64_t) = sending ? toe_comm_send : toe_comm_recv;
    if (function(comm, flow->connection, key, offset, size, flow->posted++) < 0) die("a post");
}

/* A flow that has just opened. */
static struct flow *begin(uint32_t connection) {
    if (count == wanted) errno = EUSERS, die("another flow");
    struct flow *flow = &flows[count++];
    flow->connection = connection;
    return flow;
}

/* As many posts as are made at a time. */
static void fill(struct flow *flow, int sending) {
    for (uint64_t i = 0; i < depth; i++) post(flow, sending);
}

static struct flow *of(uint32_t connection) {
    for (unsigned i = 0; i < count; i++)
        if (flows[i].connection == connection) return &flows[i];
    errno = EBADF, die("an event's connection");
}

static void receive(uint16_t port, double warm_up, double seconds) {
    if (toe_comm_listen(comm, port, 0) < 0) die("toe_comm_listen");
    struct toe_comm_event events[EVENTS];
    for (uint64_t time = 0; !end_at || time < end_at;) {
        int found = next_events(events);
        time = now();
        for (int i = 0; i < found; i++) {
            switch (events[i].what) {
            case TOE_COMM_LISTENING: puts("listening"), fflush(stdout); break;
            case TOE_COMM_ACCEPTED:
                fill(begin(events[i].connection), 0);
                if (count == wanted) say_begin(warm_up, seconds);
                break;
            case TOE_COMM_RECEIVED: {
                struct flow *flow = of(events[i].connection);
                if (begin_at && time >= begin_at && time < end_at) flow->bytes += events[i].value;
                post(flow, 0);
                break;
            }
            case TOE_COMM_ENDED:
            case TOE_COMM_LOST: errno = 0, die("a flow");
            }
        }
    }
    printf("{\"flows\":%u,\"seconds\":%.6f,\"lost\":0,\"bytes\":[", count, seconds);
    for (unsigned i = 0; i < count; i++) printf("%s%llu", i ? "," : "", (unsigned long long)flows[i].bytes);
    printf("]}\n");
}

static void connect_all(const struct sockaddr_in *to) {
    for (unsigned i = 0; i < wanted; i++)
        if (toe_comm_connect(comm, to, 0) < 0) die("toe_comm_connect");
}

static void send_on(const struct sockaddr_in *to) {
    connect_all(to);
    struct toe_comm_event events[EVENTS];
    for (;;) {
        int found = next_events(events);
        for (int i = 0; i < found; i++) switch (events[i].what) {
            case TOE_COMM_CONNECTED: fill(begin(events[i].connection), 1); break;
            case TOE_COMM_SENT: post(of(events[i].connection), 1); break;
            case TOE_COMM_ENDED:
            case TOE_COMM_LOST: return;
            }
    }
}

/* Each flow sends what its rate has given it, a message at a time, and waits for more between. */
static void send_paced(const struct sockaddr_in *to, double mbit) {
    connect_all(to);
    struct toe_comm_event events[EVENTS];
    for (uint64_t start = now();; usleep(500)) {
        int found = toe_comm_wait(comm, events, EVENTS, 0);
        if (found < 0) die("toe_comm_wait");
        for (int i = 0; i < found; i++) switch (events[i].what) {
            case TOE_COMM_CONNECTED: begin(events[i].connection); break;
            case TOE_COMM_SENT: of(events[i].connection)->done++; break;
            case TOE_COMM_FAILED: errno = (int)events[i].value, die("a post");
            case TOE_COMM_ENDED:
            case TOE_COMM_LOST: return;
            }
        uint64_t due = (uint64_t)((double)(now() - start) * mbit / 8e3);
        for (unsigned i = 0; i < count; i++)
            while (flows[i].posted - flows[i].done < depth && (flows[i].posted + 1) * size <= due) post(&flows[i], 1);
    }
}

/* The message, and how many of them on how many flows. */
static void shape(char **words) {
    size = strtoul(words[0], NULL, 10), depth = strtoul(words[1], NULL, 10), wanted = (unsigned)strtoul(words[2], NULL, 10);
    if (size && depth && wanted && wanted <= MOST_FLOWS) return;
    errno = EINVAL, die("SIZE, DEPTH and FLOWS");
}

int main(int given, char **words) {
    struct sockaddr_in to = {.sin_family = AF_INET};
    if (given == 9 && !strcmp(words[1], "receive")) {
        shape(words + 4);
        prepare(words[2]);
        receive((uint16_t)atoi(words[3]), atof(words[7]), atof(words[8]));
    } else if ((given == 8 || given == 9) && !strcmp(words[1], "send") && inet_pton(AF_INET, words[3], &to.sin_addr) == 1) {
        to.sin_port = htons((uint16_t)atoi(words[4]));
        shape(words + 5);
        prepare(words[2]);
        if (given == 9) send_paced(&to, atof(words[8]));
        else send_on(&to);
    } else {
        fprintf(stderr, "usage: comm_flow receive HOST PORT SIZE DEPTH FLOWS WARM_UP SECONDS\n"
                        "       comm_flow send HOST ADDRESS PORT SIZE DEPTH FLOWS [MBIT_A_SECOND_OF_EACH_FLOW]\n");
        return 2;
    }
    toe_comm_close(comm);
    return 0;
}
