/* The zero-copy interface, case by case, on connections of the process with itself.
 *
 * usage: zero_copy ADDRESS     an address of the host
 */
#define _GNU_SOURCE
#include "toe.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static struct sockaddr_in here = {.sin_family = AF_INET};

#define CHECK(condition)                                                                            \
    do {                                                                                            \
        if (!(condition)) {                                                                         \
            fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #condition, strerror(errno));           \
            exit(1);                                                                                \
        }                                                                                           \
    } while (0)
#define FAILS(call, code) CHECK((call) == -1 && errno == (code))

static void pair(int *a, int *b) {
    socklen_t length = sizeof here;
    struct sockaddr_in any = here, at;
    any.sin_port = 0;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(listener, (struct sockaddr *)&any, sizeof any) == 0 && listen(listener, 1) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&at, &length) == 0);
    *a = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fcntl(listener, F_SETFL, O_NONBLOCK) == 0 && accept(listener, NULL, NULL) == -1);
    CHECK(fcntl(listener, F_SETFL, 0) == 0);
    CHECK(connect(*a, (struct sockaddr *)&at, sizeof at) == 0);
    CHECK((*b = accept(listener, NULL, NULL)) >= 0);
    close(listener);
}

static void send_text(int fd, const char *what) {
    struct iovec iov[2];
    CHECK(toe_zc_reserve(fd, iov, strlen(what), 0) >= (ssize_t)strlen(what));
    CHECK(iov[0].iov_len >= strlen(what));
    memcpy(iov[0].iov_base, what, strlen(what));
    CHECK(toe_zc_commit(fd, strlen(what), 0) == 0);
}

static void words_arrive_in_order_with_those_of_send_and_recv(void) {
    int a, b;
    struct iovec iov[2];
    char got[16] = "";
    pair(&a, &b);
    send_text(a, "one");
    CHECK(send(a, "two", 3, 0) == 3);
    send_text(a, "three");
    CHECK(toe_zc_peek(b, iov, 11, 0) == 11 && memcmp(iov[0].iov_base, "onetwothree", 11) == 0);
    CHECK(toe_zc_peek(b, iov, 1, 0) == 11);
    CHECK(toe_zc_release(b, 4) == 0);
    CHECK(recv(b, got, 2, 0) == 2 && strcmp(got, "wo") == 0);
    CHECK(toe_zc_peek(b, iov, 5, 0) == 5 && memcmp(iov[0].iov_base, "three", 5) == 0);
    CHECK(toe_zc_release(b, 0) == 0 && toe_zc_release(b, 5) == 0);
    FAILS(toe_zc_release(b, 1), EINVAL);
    close(a), close(b);
}

static void nothing_there_is_eagain_and_nothing_more_is_the_end(void) {
    int a, b;
    struct iovec iov[2];
    pair(&a, &b);
    FAILS(toe_zc_peek(b, iov, 1, MSG_DONTWAIT), EAGAIN);
    send_text(a, "last");
    CHECK(shutdown(a, SHUT_WR) == 0);
    FAILS(toe_zc_reserve(a, iov, 1, 0), EPIPE);
    FAILS(toe_zc_commit(a, 1, 0), EPIPE);
    CHECK(toe_zc_peek(b, iov, 100, 0) == 4);
    CHECK(toe_zc_release(b, 4) == 0);
    CHECK(toe_zc_peek(b, iov, 1, 0) == 0);
    close(a), close(b);
}

static void a_full_buffer_is_eagain_and_room_wakes(void) {
    int a, b;
    struct iovec iov[2];
    size_t sent = 0, seen = 0;
    pair(&a, &b);
    CHECK(fcntl(a, F_SETFL, O_NONBLOCK) == 0);
    for (int quiet = 0; quiet < 20;) {
        ssize_t room = toe_zc_reserve(a, iov, 1, 0);
        if (room < 0) {
            CHECK(errno == EAGAIN);
            usleep(2000), quiet++;
            continue;
        }
        for (int i = 0; i < 2; i++) memset(iov[i].iov_base, (int)(sent % 251), iov[i].iov_len);
        CHECK(toe_zc_commit(a, (size_t)room, 0) == 0);
        sent += (size_t)room, quiet = 0;
    }
    while (seen < sent) {
        ssize_t there = toe_zc_peek(b, iov, 1, 0);
        CHECK(there > 0 && toe_zc_release(b, (size_t)there) == 0);
        seen += (size_t)there;
    }
    struct pollfd wait = {.fd = a, .events = POLLOUT};
    CHECK(poll(&wait, 1, 10000) == 1 && wait.revents == POLLOUT);
    CHECK(toe_zc_reserve(a, iov, 1, 0) > 0);
    close(a), close(b);
}

/* A stream of bytes i % 251 in commits of odd sizes, many times around the ring. */
enum { BYTES = 5000000 };

static void *pour(void *argument) {
    int fd = *(int *)argument;
    for (size_t at = 0; at < BYTES;) {
        struct iovec iov[2];
        size_t len = 1 + at % 30011;
        if (len > BYTES - at) len = BYTES - at;
        CHECK(toe_zc_reserve(fd, iov, len, 0) >= (ssize_t)len);
        for (size_t i = 0; i < len; i++) {
            size_t first = iov[0].iov_len;
            ((uint8_t *)(i < first ? iov[0].iov_base : iov[1].iov_base))[i < first ? i : i - first] = (at + i) % 251;
        }
        CHECK(toe_zc_commit(fd, len, at % 3 ? 0 : MSG_MORE) == 0);
        at += len;
    }
    CHECK(shutdown(fd, SHUT_WR) == 0);
    return NULL;
}

static void both_pieces_of_the_ring_are_right(void) {
    int a, b;
    pair(&a, &b);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, pour, &a) == 0);
    size_t at = 0, split = 0;
    for (ssize_t there; ; at += (size_t)there) {
        struct iovec iov[2];
        CHECK((there = toe_zc_peek(b, iov, 1 + at % 20011, 0)) >= 0);
        if (there == 0) break;
        split += iov[1].iov_len > 0;
        for (ssize_t i = 0; i < there; i++) {
            size_t first = iov[0].iov_len, k = (size_t)i;
            uint8_t byte = ((uint8_t *)(k < first ? iov[0].iov_base : iov[1].iov_base))[k < first ? k : k - first];
            CHECK(byte == (at + k) % 251);
        }
        CHECK(toe_zc_release(b, (size_t)there) == 0);
    }
    CHECK(at == BYTES && split > 0);
    pthread_join(thread, NULL);
    close(a), close(b);
}

/* As a store does whose commands complete in another order than they came: each is checked when it is freed. */
enum { HELD = 16, LARGEST = 12000 };

struct held {
    size_t at, len;
    struct iovec iov[2];
};

static void done_with(int fd, struct held *held) {
    size_t at = held->at;
    for (int piece = 0; piece < 2; piece++)
        for (size_t i = 0; i < held->iov[piece].iov_len; i++, at++)
            CHECK(((uint8_t *)held->iov[piece].iov_base)[i] == at % 251);
    CHECK(at == held->at + held->len);
    /* In two calls, the later piece first, every other time. */
    if (at % 2) {
        CHECK(toe_zc_free(fd, held->iov, 2) == 0);
    } else {
        CHECK(toe_zc_free(fd, held->iov + 1, 1) == 0 && toe_zc_free(fd, held->iov, 1) == 0);
    }
    held->len = 0;
}

static struct held *oldest(struct held *held) {
    struct held *found = NULL;
    for (int i = 0; i < HELD; i++)
        if (held[i].len && (!found || held[i].at < found->at)) found = &held[i];
    CHECK(found);
    return found;
}

static void places_are_freed_in_any_order(void) {
    int a, b;
    pair(&a, &b);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, pour, &a) == 0);
    struct held held[HELD] = {0};
    char copied[500];
    unsigned random = 1;
    for (size_t at = 0;;) {
        random = random * 1103515245u + 12345u;
        struct held *place = &held[random / 65536 % HELD];
        if (place->len) done_with(b, place);
        place->at = at;
        ssize_t taken = toe_zc_take(b, place->iov, 1 + random / 256 % LARGEST, 0);
        if (taken < 0 && errno == ENOBUFS) {
            /* One has been kept while the stream went around the ring. */
            done_with(b, oldest(held));
            continue;
        }
        CHECK(taken >= 0);
        at += place->len = (size_t)taken;
        if (taken == 0) break;
        /* What is read in between is not in the way. */
        if (random / 4096 % 8 == 0) {
            ssize_t n = recv(b, copied, sizeof copied, 0);
            for (ssize_t i = 0; i < n; i++) CHECK((uint8_t)copied[i] == (at + (size_t)i) % 251);
            CHECK(n >= 0);
            at += (size_t)n;
        }
    }
    for (int i = 0; i < HELD; i++)
        if (held[i].len) done_with(b, &held[i]);
    pthread_join(thread, NULL);
    close(a), close(b);
}

static void the_sender_stops_where_the_buffer_is_kept(void) {
    int a, b, size;
    socklen_t length = sizeof size;
    struct iovec kept[2], next[2], foreign = {&size, sizeof size};
    pair(&a, &b);
    CHECK(getsockopt(b, SOL_SOCKET, SO_RCVBUF, &size, &length) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, pour, &a) == 0);
    size_t most = (size_t)size, half = most / 2, at = 0;
    CHECK(toe_zc_take(b, kept, half, 0) == (ssize_t)half);
    FAILS(toe_zc_take(b, next, most - half + 1, MSG_DONTWAIT), ENOBUFS);
    at = half;
    /* Twice around the other half. */
    while (at < 2 * most) {
        ssize_t n = toe_zc_take(b, next, most / 8, 0);
        CHECK(n == (ssize_t)(most / 8) && ((uint8_t *)next[0].iov_base)[0] == at % 251);
        at += (size_t)n;
        CHECK(toe_zc_free(b, next, 2) == 0);
        FAILS(toe_zc_free(b, next, 1), EINVAL);
        if (at == most) {
            /* What was kept first is still there; now all may go on. */
            for (size_t i = 0; i < half; i++) CHECK(((uint8_t *)kept[0].iov_base)[i] == i % 251);
            CHECK(toe_zc_free(b, kept, 2) == 0);
        }
    }
    FAILS(toe_zc_free(b, &foreign, 1), EINVAL);
    FAILS(toe_zc_free(b, NULL, 1), EFAULT);
    FAILS(toe_zc_free(b, kept, -1), EINVAL);
    FAILS(toe_zc_take(b, next, 0, 0), EINVAL);
    for (ssize_t n; (n = toe_zc_peek(b, next, 1, 0)) > 0;) CHECK(toe_zc_release(b, (size_t)n) == 0);
    pthread_join(thread, NULL);
    close(a), close(b);
}

static void what_cannot_be_is_refused(void) {
    int a, b, kernel = socket(AF_INET, SOCK_DGRAM, 0), size;
    socklen_t length = sizeof size;
    struct iovec iov[2];
    pair(&a, &b);
    CHECK(toe_api_version() == TOE_API_VERSION);
    CHECK(getsockopt(a, SOL_SOCKET, SO_SNDBUF, &size, &length) == 0);
    FAILS(toe_zc_reserve(a, iov, 0, 0), EINVAL);
    FAILS(toe_zc_reserve(a, iov, (size_t)1 << 31, 0), EINVAL);
    FAILS(toe_zc_reserve(a, iov, 1, MSG_OOB), EINVAL);
    FAILS(toe_zc_reserve(a, NULL, 1, 0), EFAULT);
    FAILS(toe_zc_commit(a, (size_t)1 << 31, 0), EINVAL);
    FAILS(toe_zc_peek(a, iov, (size_t)1 << 31, 0), EINVAL);
    FAILS(toe_zc_reserve(kernel, iov, 1, 0), EOPNOTSUPP);
    FAILS(toe_zc_peek(-1, iov, 1, 0), EOPNOTSUPP);
    int fresh = socket(AF_INET, SOCK_STREAM, 0);
    FAILS(toe_zc_peek(fresh, iov, 1, 0), ENOTCONN);
    pid_t child = fork();
    if (child == 0) {
        FAILS(toe_zc_peek(a, iov, 1, 0), EOPNOTSUPP);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    FAILS(toe_zc_reserve(a, iov, 1, 0), EOPNOTSUPP);
    close(a), close(b), close(fresh), close(kernel);
}

int main(int argc, char **argv) {
    CHECK(argc == 2 && inet_pton(AF_INET, argv[1], &here.sin_addr) == 1);
    CHECK(toe_zc_reserve != NULL);
    words_arrive_in_order_with_those_of_send_and_recv();
    nothing_there_is_eagain_and_nothing_more_is_the_end();
    a_full_buffer_is_eagain_and_room_wakes();
    both_pieces_of_the_ring_are_right();
    places_are_freed_in_any_order();
    the_sender_stops_where_the_buffer_is_kept();
    what_cannot_be_is_refused();
    puts("zero-copy");
    return 0;
}
