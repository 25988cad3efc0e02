/* What all cases have in common: connections of the process with itself, and how a case fails. */
#ifndef POSIX_ENDS_H
#define POSIX_ENDS_H

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../../../include/toe.h"

/* The version of IP is chosen when this is compiled. */
#ifdef V6
#define FAMILY AF_INET6
#define ADDRESS_FAMILY sin6_family
#define ADDRESS_PORT sin6_port
#define ADDRESS_IP sin6_addr
typedef struct sockaddr_in6 Address;
#define IS_LOOPBACK(address) IN6_IS_ADDR_LOOPBACK(&(address).sin6_addr)
#else
#define FAMILY AF_INET
#define ADDRESS_FAMILY sin_family
#define ADDRESS_PORT sin_port
#define ADDRESS_IP sin_addr
typedef struct sockaddr_in Address;
#define IS_LOOPBACK(address) (ntohl((address).sin_addr.s_addr) >> 24 == 127)
#endif

static inline int same_ip(Address one, Address other) {
    return memcmp(&one.ADDRESS_IP, &other.ADDRESS_IP, sizeof one.ADDRESS_IP) == 0;
}

static Address here = {.ADDRESS_FAMILY = FAMILY};

#define CHECK(condition)                                                                                          \
    do {                                                                                                          \
        if (!(condition)) {                                                                                       \
            fprintf(stderr, "%s:%d: %s (errno %d, %s)\n", __FILE__, __LINE__, #condition, errno, strerror(errno)); \
            exit(1);                                                                                              \
        }                                                                                                         \
    } while (0)

static int listener(int flags) {
    int fd = socket(FAMILY, SOCK_STREAM | SOCK_CLOEXEC | flags, 0), one = 1;
    CHECK(fd >= 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
    Address address = here;
    socklen_t len = sizeof address;
    CHECK(bind(fd, (void *)&address, sizeof address) == 0);
    CHECK(listen(fd, 16) == 0);
    CHECK(getsockname(fd, (void *)&address, &len) == 0);
    CHECK(len == sizeof address && address.ADDRESS_PORT != 0);
    return fd;
}

static Address name_of(int fd) {
    Address address;
    socklen_t len = sizeof address;
    CHECK(getsockname(fd, (void *)&address, &len) == 0);
    return address;
}

/* A listener must have been asked for a connection before one can be made: libtoe arms it then, the kernel does not mind. */
static void show_interest(int fd) {
    struct pollfd one = {fd, POLLIN, 0};
    poll(&one, 1, 0);
}

static void pair(int ends[2]) {
    int l = listener(0);
    show_interest(l);
    Address address = name_of(l);
    ends[0] = socket(FAMILY, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(connect(ends[0], (void *)&address, sizeof address) == 0);
    ends[1] = accept4(l, NULL, NULL, SOCK_CLOEXEC);
    CHECK(ends[1] >= 0);
    close(l);
}

static void unpair(int ends[2]) {
    close(ends[0]);
    close(ends[1]);
}

static int epoll_now(int set, struct epoll_event *events, int count) {
    return epoll_wait(set, events, count, 100);
}

static void watch(int set, int operation, int fd, uint32_t bits, uint64_t data) {
    struct epoll_event event = {.events = bits, .data.u64 = data};
    CHECK(epoll_ctl(set, operation, fd, &event) == 0);
}

#endif
