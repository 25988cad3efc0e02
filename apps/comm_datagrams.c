/* comm_datagrams: requests and answers as unreliable datagrams, through toe_comm (include/toe.h).
 *
 *   comm_datagrams serve HOST PORT ADDRESS PORT         on the ZeroNIC host HOST; - for the daemon's first
 *   comm_datagrams call HOST PORT ADDRESS PORT COUNT
 *
 * The first port is the own one; address and port behind it are the peer's. A request has its number in front, and bytes that
 * follow from it; the answer has the same number and each other bit turned. A datagram may be lost, come twice or overtake
 * another, so the caller sends a request again until its answer is here. It compares each byte.
 */
#define _GNU_SOURCE
#include "program.h"
#include "comm.h"

enum { CALLS = 16, PLACES = 4 * CALLS, MOST = 1400, AGAIN_MS = 50 };
/* The number of the request that ends the server. */
static const uint64_t LAST = ~0ULL;

/* Places to send from, then places to receive into. */
static unsigned char *memory;
static uint32_t flow;

static uint64_t send_at(uint64_t place) { return place * MOST; }
static uint64_t receive_at(uint64_t place) { return (PLACES + place) * MOST; }

static size_t length_of(uint64_t call) {
    return call == LAST ? sizeof call : sizeof call + (size_t)(call * 2654435761u % (MOST - sizeof call));
}
static unsigned char byte_of(uint64_t call, size_t at) { return (unsigned char)(call * 31 + at * 7 + at / 251); }

/* The places to send from that are free. */
static uint64_t free_places[PLACES];
static int free_count;

static void open_flow(const char *port, const struct sockaddr_in *peer) {
    memory = sealed_memory(2 * PLACES * MOST);
    if (toe_comm_connect_datagrams(comm, (uint16_t)atoi(port), peer, 0) < 0) die("toe_comm_connect_datagrams");
    struct toe_comm_event event;
    if (toe_comm_wait(comm, &event, 1, TIME_LIMIT_MS) != 1) die("toe_comm_wait");
    if (event.what != TOE_COMM_CONNECTED) errno = (int)event.value, die("the flow");
    flow = event.connection;
    for (uint64_t place = 0; place < PLACES; place++) {
        free_places[free_count++] = place;
        if (toe_comm_recv(comm, flow, key, receive_at(place), MOST, place) < 0) die("toe_comm_recv");
    }
}

/* Leaves a datagram, or none where all places are under way: it counts as lost. */
static void leave(uint64_t call, unsigned char turned, const unsigned char *bytes, size_t length) {
    if (free_count == 0) return;
    uint64_t place = free_places[--free_count];
    unsigned char *to = memory + send_at(place);
    memcpy(to, &call, sizeof call);
    for (size_t at = sizeof call; at < length; at++) to[at] = (bytes ? bytes[at] : byte_of(call, at)) ^ turned;
    if (toe_comm_send(comm, flow, key, send_at(place), length, place) < 0) die("toe_comm_send");
}

/* What came to a place, which is posted again afterwards. */
static uint64_t number_at(uint64_t place) {
    uint64_t call;
    memcpy(&call, memory + receive_at(place), sizeof call);
    return call;
}

static void post_again(uint64_t place) {
    if (toe_comm_recv(comm, flow, key, receive_at(place), MOST, place) < 0) die("toe_comm_recv");
}

static int some(struct toe_comm_event *events, int milliseconds) {
    int count = toe_comm_wait(comm, events, EVENTS, milliseconds);
    if (count < 0) die("toe_comm_wait");
    for (int i = 0; i < count; i++) {
        if (events[i].what == TOE_COMM_FAILED) errno = (int)events[i].value, die("a post");
        if (events[i].what == TOE_COMM_SENT) free_places[free_count++] = events[i].id;
    }
    return count;
}

static void serve(void) {
    struct toe_comm_event events[EVENTS];
    puts("listening"), fflush(stdout);
    for (int over = 0;;) {
        /* The last answer may be lost: whoever asks again for a while gets another one. */
        int count = some(events, over ? 20 * AGAIN_MS : TIME_LIMIT_MS);
        if (count == 0 && over) break;
        if (count == 0) errno = ETIMEDOUT, die("a request");
        for (int i = 0; i < count; i++) {
            if (events[i].what != TOE_COMM_RECEIVED) continue;
            uint64_t place = events[i].id, call = number_at(place);
            if (events[i].value >= sizeof call) {
                leave(call, 0xff, memory + receive_at(place), (size_t)events[i].value);
                over |= call == LAST;
            }
            post_again(place);
        }
    }
    puts("served");
}

static void check(uint64_t call, uint64_t place, size_t length) {
    if (length != length_of(call)) {
        fprintf(stderr, "comm_datagrams: answer %llu has %zu bytes\n", (unsigned long long)call, length);
        exit(1);
    }
    const unsigned char *bytes = memory + receive_at(place);
    for (size_t at = sizeof call; at < length; at++)
        if (bytes[at] != (unsigned char)~byte_of(call, at)) {
            fprintf(stderr, "comm_datagrams: byte %zu of answer %llu is wrong\n", at, (unsigned long long)call);
            exit(1);
        }
}

static long long milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* Requests under way: their numbers, and when each was sent last. */
static struct { uint64_t call; long long at; } under_way[CALLS];
static uint64_t asked, answered, again;

static void ask(int slot, uint64_t call) {
    under_way[slot].call = call, under_way[slot].at = milliseconds();
    leave(call, 0, NULL, length_of(call));
}

/* Requests 0 to `calls`, and then the last one. */
static void call_all(uint64_t calls) {
    struct toe_comm_event events[EVENTS];
    int slots = 0;
    for (; slots < CALLS && asked < calls; slots++) ask(slots, asked), asked++;
    long long end = milliseconds() + TIME_LIMIT_MS;
    for (int over = 0; !over;) {
        int count = some(events, AGAIN_MS);
        if (milliseconds() > end) errno = ETIMEDOUT, die("an answer");
        for (int i = 0; i < count; i++) {
            if (events[i].what != TOE_COMM_RECEIVED) continue;
            uint64_t place = events[i].id, call = number_at(place);
            for (int slot = 0; slot < slots; slot++) {
                if (under_way[slot].call != call) continue;
                check(call, place, (size_t)events[i].value);
                over = call == LAST;
                answered += !over;
                if (asked < calls) ask(slot, asked), asked++;
                else under_way[slot] = under_way[--slots];
                break;
            }
            post_again(place);
        }
        if (slots == 0 && !over) ask(slots++, LAST);
        for (int slot = 0; slot < slots; slot++)
            if (milliseconds() - under_way[slot].at >= AGAIN_MS) ask(slot, under_way[slot].call), again++;
    }
    printf("%llu calls, %llu sent again\n", (unsigned long long)answered, (unsigned long long)again);
}

int main(int count, char **words) {
    struct sockaddr_in peer = {.sin_family = AF_INET};
    int serves = count == 6 && !strcmp(words[1], "serve"), calls = count == 7 && !strcmp(words[1], "call");
    if ((!serves && !calls) || inet_pton(AF_INET, words[4], &peer.sin_addr) != 1) {
        fprintf(stderr, "usage: comm_datagrams serve HOST PORT ADDRESS PORT | call HOST PORT ADDRESS PORT COUNT\n");
        return 2;
    }
    peer.sin_port = htons((uint16_t)atoi(words[5]));
    open_comm(words[2]);
    open_flow(words[3], &peer);
    if (serves) serve();
    else call_all(strtoull(words[6], NULL, 10));
    toe_comm_close(comm);
    return 0;
}
