/* comm_file: a file from one program's memory to another's through toe_comm (include/toe.h).
 *
 *   comm_file receive HOST PORT FILE        on the ZeroNIC host HOST; - for the daemon's first
 *   comm_file send HOST ADDRESS PORT FILE
 *
 * Both post several pieces of a buffer at once, and use a piece again when it is done. The receiver prints at the end
 * how many bytes came; it returns when the sender's stream has ended.
 */
#define _GNU_SOURCE
#include "program.h"
#include "comm.h"

enum { PIECES = 16, PIECE = 1 << 20 };

static char *memory;

static void post_receive(uint32_t connection, uint64_t piece) {
    if (toe_comm_recv(comm, connection, key, piece % PIECES * PIECE, PIECE, piece) < 0) die("toe_comm_recv");
}

static void write_all(int fd, const char *from, size_t length) {
    for (ssize_t n; length; from += n, length -= (size_t)n)
        if ((n = write(fd, from, length)) < 0) die("write");
}

static void receive(uint16_t port, const char *file) {
    int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644), ended = 0;
    if (fd < 0) die(file);
    if (toe_comm_listen(comm, port, 0) < 0) die("toe_comm_listen");
    struct toe_comm_event events[EVENTS];
    uint64_t bytes = 0, posted = 0;
    uint32_t connection = 0;
    while (!ended) {
        int count = next(events);
        for (int i = 0; i < count; i++) switch (events[i].what) {
            case TOE_COMM_LISTENING: puts("listening"), fflush(stdout); break;
            case TOE_COMM_ACCEPTED:
                if (connection) break;
                for (connection = events[i].connection; posted < PIECES; posted++) post_receive(connection, posted);
                break;
            case TOE_COMM_RECEIVED:
                write_all(fd, memory + events[i].id % PIECES * PIECE, events[i].value);
                bytes += events[i].value;
                if (events[i].value == PIECE) post_receive(connection, posted++);
                break;
            case TOE_COMM_ENDED: ended = 1; break;
            }
    }
    if (toe_comm_end(comm, connection) < 0) die("toe_comm_end");
    if (close(fd) < 0) die(file);
    printf("%llu bytes\n", (unsigned long long)bytes);
}

static void send_file(const struct sockaddr_in *to, const char *file) {
    int fd = open(file, O_RDONLY | O_CLOEXEC), ended = 0;
    if (fd < 0) die(file);
    if (toe_comm_connect(comm, to, 0) < 0) die("toe_comm_connect");
    struct toe_comm_event events[EVENTS];
    uint64_t posted = 0, sent = 0;
    uint32_t connection = 0;
    for (int done = 0, over = 0; !over;) {
        while (connection && !done && posted - sent < PIECES) {
            size_t offset = posted % PIECES * PIECE, length = 0;
            for (ssize_t n; length < PIECE; length += (size_t)n) {
                if ((n = read(fd, memory + offset + length, PIECE - length)) < 0) die(file);
                if (n == 0) break;
            }
            if (length && toe_comm_send(comm, connection, key, offset, length, posted++) < 0) die("toe_comm_send");
            if (length == PIECE) continue;
            done = 1;
            if (toe_comm_end(comm, connection) < 0) die("toe_comm_end");
        }
        /* The receiver ends its stream when it has everything. */
        if ((over = done && ended && sent == posted)) break;
        int count = next(events);
        for (int i = 0; i < count; i++) {
            if (events[i].what == TOE_COMM_CONNECTED) connection = events[i].connection;
            if (events[i].what == TOE_COMM_SENT) sent++;
            if (events[i].what == TOE_COMM_ENDED) ended = 1;
        }
    }
}

int main(int count, char **words) {
    struct sockaddr_in to = {.sin_family = AF_INET};
    if (count == 5 && !strcmp(words[1], "receive")) {
        open_comm(words[2]);
        memory = sealed_memory(PIECES * PIECE);
        receive((uint16_t)atoi(words[3]), words[4]);
    } else if (count == 6 && !strcmp(words[1], "send") && inet_pton(AF_INET, words[3], &to.sin_addr) == 1) {
        to.sin_port = htons((uint16_t)atoi(words[4]));
        open_comm(words[2]);
        memory = sealed_memory(PIECES * PIECE);
        send_file(&to, words[5]);
    } else {
        fprintf(stderr, "usage: comm_file receive HOST PORT FILE | comm_file send HOST ADDRESS PORT FILE\n");
        return 2;
    }
    toe_comm_close(comm);
    return 0;
}
