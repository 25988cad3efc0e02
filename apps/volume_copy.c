/* volume_copy: a file to a volume or back through toe_volume (include/toe.h), block by block, many at once.
 *
 *   volume_copy in VOLUME FILE      writes the file's bytes, which are whole blocks, from the volume's begin on
 *   volume_copy out VOLUME FILE     writes all of the volume to the file
 *
 * Each request is of another length, up to 1 MiB, and uses a piece of registered memory.
 */
#define _GNU_SOURCE
#include "program.h"
#include "volume.h"

enum { PIECES = 16, PIECE = 1 << 20 };

static char *memory;
static uint32_t key;
/* Of each piece: which bytes its request is about. */
static struct { uint64_t at; size_t length; } requests[PIECES];

/* Lengths from one block to 256, in an order that looks random. */
static size_t length_of(uint64_t at, uint64_t end) {
    return least((mix(at) % (PIECE / BLOCK) + 1) * BLOCK, end - at);
}

/* The next request, in a piece that is free. */
static uint64_t ask(toe_volume *volume, int writing, int fd, unsigned piece, uint64_t at, uint64_t end) {
    size_t length = length_of(at, end), offset = (size_t)piece * PIECE;
    if (writing && pread(fd, memory + offset, length, (off_t)at) != (ssize_t)length) die("pread");
    int (*post)(toe_volume *, uint64_t, size_t, uint32_t, uint64_t, uint64_t) = writing ? toe_volume_write : toe_volume_read;
    if (post(volume, at, length, key, offset, piece) < 0) die("a request");
    requests[piece].at = at, requests[piece].length = length;
    return at + length;
}

static void finish(int writing, int fd, const struct toe_volume_event *event) {
    unsigned piece = (unsigned)event->id;
    if (event->error) errno = event->error, die(writing ? "a write" : "a read");
    size_t length = requests[piece].length;
    if (!writing && pwrite(fd, memory + (size_t)piece * PIECE, length, (off_t)requests[piece].at) != (ssize_t)length)
        die("pwrite");
}

int main(int count, char **words) {
    int writing = count == 4 && !strcmp(words[1], "in");
    if (count != 4 || (!writing && strcmp(words[1], "out"))) {
        fprintf(stderr, "usage: volume_copy in|out VOLUME FILE\n");
        return 2;
    }
    toe_volume *volume = open_volume(words[2]);
    int fd = open(words[3], writing ? O_RDONLY | O_CLOEXEC : O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) die(words[3]);
    uint64_t end = writing ? (uint64_t)lseek(fd, 0, SEEK_END) : toe_volume_size(volume), asked = 0;
    memory = memory_of(volume, (size_t)PIECES * PIECE, &key);
    unsigned outstanding = 0;
    for (; outstanding < PIECES && asked < end; outstanding++) asked = ask(volume, writing, fd, outstanding, asked, end);
    struct toe_volume_event events[EVENTS];
    while (outstanding) {
        int ended = next_ended(volume, events);
        for (int i = 0; i < ended; i++) {
            finish(writing, fd, &events[i]);
            if (asked < end) asked = ask(volume, writing, fd, (unsigned)events[i].id, asked, end);
            else outstanding--;
        }
    }
    if (toe_volume_deregister(volume, key) < 0) die("toe_volume_deregister");
    toe_volume_close(volume);
    if (close(fd) < 0) die(words[3]);
    printf("%llu bytes\n", (unsigned long long)asked);
    return 0;
}
