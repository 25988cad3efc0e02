/* volume.h: what the programs of toe_volume (include/toe.h) have in common. Include it after program.h or load.h. */
#ifndef VOLUME_H
#define VOLUME_H

#include "../include/toe.h"
#include <fcntl.h>
#include <sys/mman.h>

enum { BLOCK = 4096, EVENTS = 64, TIME_LIMIT_MS = 60 * 1000 };

/* A volume of the first host that uses it. */
static inline toe_volume *open_volume(const char *name) {
    if (!toe_volume_open) errno = EOPNOTSUPP, die("libtoe.so is not loaded");
    toe_volume *volume = toe_volume_open(name, NULL);
    if (!volume) die(name);
    return volume;
}

/* Registered memory of a sealed memfd, which the daemon reaches as fast as its own. */
static inline char *memory_of(toe_volume *volume, size_t length, uint32_t *key) {
    int fd = memfd_create(program_invocation_short_name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, (off_t)length) < 0) die("memfd_create");
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0) die("F_ADD_SEALS");
    char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) die("mmap");
    /* While it is registered the descriptor is open: the library finds the memory's file by it. */
    if (toe_volume_register(volume, memory, length, key) < 0) die("toe_volume_register");
    close(fd);
    return memory;
}

/* The next requests that have ended, at least one. */
static inline int next_ended(toe_volume *volume, struct toe_volume_event *events) {
    int count = toe_volume_wait(volume, events, EVENTS, TIME_LIMIT_MS);
    if (count == 0) errno = ETIMEDOUT;
    if (count <= 0) die("toe_volume_wait");
    return count;
}

#endif
