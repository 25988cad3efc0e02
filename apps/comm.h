/* comm.h: what the programs of toe_comm (include/toe.h) have in common. Include it after program.h or load.h. */
#ifndef COMM_H
#define COMM_H

#include "../include/toe.h"
#include <fcntl.h>
#include <sys/mman.h>

enum { EVENTS = 64, TIME_LIMIT_MS = 120 * 1000 };

static toe_comm *comm;
static uint32_t key;

/* On a ZeroNIC host; - is the daemon's first. */
static inline void open_comm(const char *host) {
    if (!toe_comm_open) errno = EOPNOTSUPP, die("libtoe.so is not loaded");
    if (!(comm = toe_comm_open(strcmp(host, "-") ? host : NULL))) die("toe_comm_open");
}

/* Registered memory of a sealed memfd, which the daemon reaches as fast as its own. */
static inline void *sealed_memory(size_t length) {
    int fd = memfd_create(program_invocation_short_name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, (off_t)length) < 0) die("memfd_create");
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0) die("F_ADD_SEALS");
    void *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) die("mmap");
    /* While it is registered the descriptor is open: the library finds the memory's file by it. */
    if (toe_comm_register(comm, memory, length, &key) < 0) die("toe_comm_register");
    close(fd);
    return memory;
}

/* The next events, at least one. A post that failed ends the program. */
static inline int next_events(struct toe_comm_event *events) {
    int count = toe_comm_wait(comm, events, EVENTS, TIME_LIMIT_MS);
    if (count == 0) errno = ETIMEDOUT;
    if (count <= 0) die("toe_comm_wait");
    for (int i = 0; i < count; i++)
        if (events[i].what == TOE_COMM_FAILED) errno = (int)events[i].value, die("a post");
    return count;
}

/* The same; a connection that is lost ends the program, too. */
static inline int next(struct toe_comm_event *events) {
    int count = next_events(events);
    for (int i = 0; i < count; i++)
        if (events[i].what == TOE_COMM_LOST) errno = (int)events[i].value, die("the connection");
    return count;
}

#endif
