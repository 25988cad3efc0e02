/* program.h: what all these programs have in common. Include it first, after _GNU_SOURCE is defined. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* errno is 0 where a stream has ended too early. */
static inline _Noreturn void die(const char *what) {
    const char *why = errno ? strerror(errno) : "the peer hung up";
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, why);
    exit(1);
}

static inline size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Nanoseconds of CLOCK_MONOTONIC. */
static inline uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The finalizer of MurmurHash3: a cheap bijection, so no two words of a stream are equal. */
static inline uint64_t mix(uint64_t x) {
    x ^= x >> 33, x *= 0xff51afd7ed558ccdu, x ^= x >> 33, x *= 0xc4ceb9fe1a85ec53u;
    return x ^ x >> 33;
}

/* The words of a stream from byte `at` on, a multiple of 8: word i is a mix of seed + i. */
static inline void make_words(uint64_t seed, uint64_t at, uint64_t *into, size_t words) {
    for (size_t i = 0; i < words; i++) into[i] = mix(seed + at / 8 + i);
}

/* Says which byte of a stream is another, with what is there instead: that tells a stale buffer from a wrong place. */
static inline void die_of_byte(uint64_t seed, uint64_t at, const char *got, size_t length) {
    fprintf(stderr, "%s: byte %llu of stream %llu is another;", program_invocation_short_name, (unsigned long long)at,
            (unsigned long long)seed);
    uint64_t skip = -at & 7, there = 0, near = 64 << 20, first = at / 8 > near ? at / 8 - near : 0;
    if (length < skip + 8) fprintf(stderr, " it is among the last bytes of a receive\n"), exit(1);
    memcpy(&there, got + skip, 8);
    for (uint64_t i = first; i < at / 8 + near; i++)
        if (mix(seed + i) == there)
            fprintf(stderr, " the word behind it belongs at byte %llu;", (unsigned long long)i * 8);
    fprintf(stderr, " the word is %016llx, of %zu bytes left\n", (unsigned long long)there, length);
    exit(1);
}

/* Compares bytes of such a stream, from byte `at` on; ends the program at the first that is another. */
static inline void check_words(uint64_t seed, uint64_t at, const char *got, size_t length) {
    for (size_t i = 0; i < length; i++) {
        uint64_t word = mix(seed + (at + i) / 8);
        if (got[i] != ((const char *)&word)[(at + i) % 8]) die_of_byte(seed, at + i, got + i, length - i);
    }
}

static inline void watch_fd(int set, int operation, int fd, uint32_t events, void *data) {
    struct epoll_event event = {.events = events, .data.ptr = data};
    if (epoll_ctl(set, operation, fd, &event) < 0) die("epoll_ctl");
}

/* A socket that listens; `flags` as SOCK_NONBLOCK. Several threads may have one each with SO_REUSEPORT. */
static inline int listen_at(const struct sockaddr_in *address, int flags, int backlog, int one_of_several) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0), one = 1;
    if (fd < 0) die("socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (one_of_several) setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
    if (bind(fd, (const struct sockaddr *)address, sizeof *address) < 0) die("bind");
    if (listen(fd, backlog) < 0) die("listen");
    return fd;
}

/* The UNIX socket of a port in a folder, for programs that meet there instead. */
static inline struct sockaddr_un in_folder(const char *folder, unsigned port) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = snprintf(address.sun_path, sizeof address.sun_path, "%s/%u", folder, port);
    errno = ENAMETOOLONG;
    if (length < 0 || (size_t)length >= sizeof address.sun_path) die(folder);
    return address;
}

/* The next connection of a listener that does not block, or -1. */
static inline int accept_next(int listener) {
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), one = 1;
    if (fd >= 0) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

/* All of `length` bytes or nothing, on a socket that blocks. */
static inline void send_or_die(int fd, const void *from, size_t length) {
    for (const char *at = from; length;) {
        ssize_t n = send(fd, at, length, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) die("send");
        at += n, length -= (size_t)n;
    }
}

static inline void receive_or_die(int fd, void *into, size_t length) {
    for (char *at = into; length;) {
        ssize_t n = recv(fd, at, length, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = 0;
        if (n <= 0) die("recv");
        at += n, length -= (size_t)n;
    }
}

#endif
