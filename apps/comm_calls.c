/* comm_calls: requests and answers as messages, through toe_comm (include/toe.h).
 *
 *   comm_calls serve HOST PORT              on the ZeroNIC host HOST; - for the daemon's first
 *   comm_calls call HOST ADDRESS PORT COUNT
 *
 * A request is a number of bytes that the caller chose at random; the answer is the same bytes with each bit turned. There is
 * no length in front and nothing to be put together: a send here is a receive there. The caller compares each byte.
 */
#define _GNU_SOURCE
#include "program.h"
#include "comm.h"

enum { CALLS = 16, MOST = 1 << 16 };

/* The first half is for requests, the second for answers: a part for each call that may be under way. */
static unsigned char *memory;

static uint64_t request_at(uint64_t call) { return call % CALLS * MOST; }
static uint64_t answer_at(uint64_t call) { return (CALLS + call % CALLS) * MOST; }

/* The length of a request, and a byte of it. */
static size_t length_of(uint64_t call) { return (size_t)(call * 2654435761u % MOST) + 1; }
static unsigned char byte_of(uint64_t call, size_t at) { return (unsigned char)(call * 31 + at * 7 + at / 251); }

static void receive(uint32_t connection, uint64_t at, uint64_t call) {
    if (toe_comm_recv(comm, connection, key, at, MOST, call) < 0) die("toe_comm_recv");
}

static void send_bytes(uint32_t connection, uint64_t at, size_t length, uint64_t call) {
    if (toe_comm_send(comm, connection, key, at, length, call) < 0) die("toe_comm_send");
}

/* Of one caller: its requests are answered, until it ends. */
static void serve(uint16_t port) {
    if (toe_comm_listen_messages(comm, port, 0) < 0) die("toe_comm_listen_messages");
    struct toe_comm_event events[EVENTS];
    uint64_t posted = 0, answered = 0;
    for (int ended = 0; !ended;) {
        int count = next(events);
        for (int i = 0; i < count; i++) {
            uint32_t connection = events[i].connection;
            uint64_t call = events[i].id;
            size_t length = events[i].value;
            switch (events[i].what) {
            case TOE_COMM_LISTENING: puts("listening"), fflush(stdout); break;
            case TOE_COMM_ACCEPTED:
                while (posted < CALLS) receive(connection, request_at(posted), posted), posted++;
                break;
            case TOE_COMM_RECEIVED:
                if (!length) break; /* No request will come. */
                for (size_t at = 0; at < length; at++) memory[answer_at(call) + at] = ~memory[request_at(call) + at];
                send_bytes(connection, answer_at(call), length, call);
                break;
            case TOE_COMM_SENT:
                answered++;
                receive(connection, request_at(posted), posted), posted++;
                break;
            case TOE_COMM_ENDED:
                if (toe_comm_end(comm, connection) < 0) die("toe_comm_end");
                ended = 1;
                break;
            }
        }
    }
    printf("%llu answers\n", (unsigned long long)answered);
}

static void ask(uint32_t connection, uint64_t call) {
    size_t length = length_of(call);
    for (size_t at = 0; at < length; at++) memory[request_at(call) + at] = byte_of(call, at);
    receive(connection, answer_at(call), call);
    send_bytes(connection, request_at(call), length, call);
}

static void check(uint64_t call, size_t length) {
    if (length != length_of(call)) {
        fprintf(stderr, "comm_calls: answer %llu has %zu bytes\n", (unsigned long long)call, length);
        exit(1);
    }
    for (size_t at = 0; at < length; at++)
        if (memory[answer_at(call) + at] != (unsigned char)~byte_of(call, at)) {
            fprintf(stderr, "comm_calls: byte %zu of answer %llu is wrong\n", at, (unsigned long long)call);
            exit(1);
        }
}

static void call_all(const struct sockaddr_in *to, uint64_t calls) {
    if (toe_comm_connect_messages(comm, to, 0) < 0) die("toe_comm_connect_messages");
    struct toe_comm_event events[EVENTS];
    uint64_t asked = 0, sent = 0, checked = 0, bytes = 0;
    for (int ended = 0; !ended;) {
        int count = next(events);
        for (int i = 0; i < count; i++) {
            uint32_t connection = events[i].connection;
            if (events[i].what == TOE_COMM_ENDED) ended = 1;
            if (events[i].what == TOE_COMM_SENT) sent++;
            if (events[i].what == TOE_COMM_RECEIVED) check(checked++, events[i].value), bytes += events[i].value;
            if (events[i].what == TOE_COMM_ENDED) continue;
            /* The memory of a call may change when its request is sent and its answer is here. */
            uint64_t over = sent < checked ? sent : checked;
            while (asked < calls && asked - over < CALLS) ask(connection, asked++);
            if (over == calls && toe_comm_end(comm, connection) < 0) die("toe_comm_end");
        }
    }
    printf("%llu calls, %llu bytes each way\n", (unsigned long long)checked, (unsigned long long)bytes);
}

int main(int count, char **words) {
    struct sockaddr_in to = {.sin_family = AF_INET};
    if (count == 4 && !strcmp(words[1], "serve")) {
        open_comm(words[2]);
        memory = sealed_memory(2 * CALLS * MOST);
        serve((uint16_t)atoi(words[3]));
    } else if (count == 6 && !strcmp(words[1], "call") && inet_pton(AF_INET, words[3], &to.sin_addr) == 1) {
        to.sin_port = htons((uint16_t)atoi(words[4]));
        open_comm(words[2]);
        memory = sealed_memory(2 * CALLS * MOST);
        call_all(&to, strtoull(words[5], NULL, 10));
    } else {
        fprintf(stderr, "usage: comm_calls serve HOST PORT | comm_calls call HOST ADDRESS PORT COUNT\n");
        return 2;
    }
    toe_comm_close(comm);
    return 0;
}
