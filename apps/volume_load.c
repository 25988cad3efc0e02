/* volume_load: requests of one length at random places of a volume through toe_volume (include/toe.h).
 *
 *   volume_load VOLUME read|write SIZE DEPTH CLIENTS WARM_UP SECONDS [BEGIN_NS]
 *
 * Each client is a use of the volume of its own, as a program's, with DEPTH requests in flight; all are in this process
 * and take turns. It prints the lines of load.h.
 */
#define _GNU_SOURCE
#include "load.h"
#include "volume.h"
#include <sched.h>

enum { MOST_CLIENTS = 64, MOST_DEPTH = 1024 };

struct client {
    toe_volume *volume;
    uint32_t key;
    uint64_t random, started[MOST_DEPTH];
};

static struct client clients[MOST_CLIENTS];
static uint64_t counts[MOST_CLIENTS], places, size;
static int writing;

/* Xorshift64 (Marsaglia 2003). */
static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

static void ask(struct client *client, uint64_t slot) {
    uint64_t at = next_random(&client->random) % places * size;
    int (*post)(toe_volume *, uint64_t, size_t, uint32_t, uint64_t, uint64_t) = writing ? toe_volume_write : toe_volume_read;
    client->started[slot] = now();
    if (post(client->volume, at, size, client->key, slot * size, slot) < 0) die("a request");
}

int main(int count, char **words) {
    if (count < 8) {
        fprintf(stderr, "usage: volume_load VOLUME read|write SIZE DEPTH CLIENTS WARM_UP SECONDS [BEGIN_NS]\n");
        return 2;
    }
    writing = !strcmp(words[2], "write");
    size = strtoull(words[3], NULL, 10);
    uint64_t depth = strtoull(words[4], NULL, 10);
    long number = strtol(words[5], NULL, 10);
    if (count > 8) begin_at = strtoull(words[8], NULL, 10);
    errno = EINVAL;
    if (!size || !depth || depth > MOST_DEPTH || number < 1 || number > MOST_CLIENTS) die("the arguments");
    for (long i = 0; i < number; i++) {
        struct client *client = &clients[i];
        client->volume = open_volume(words[1]);
        client->random = mix((uint64_t)i + 1);
        places = toe_volume_size(client->volume) / size;
        char *memory = memory_of(client->volume, depth * size, &client->key);
        for (size_t at = 0; at < depth * size; at += 8) *(uint64_t *)(memory + at) = mix(at);
    }
    say_begin(strtod(words[6], NULL), strtod(words[7], NULL));
    for (long i = 0; i < number; i++)
        for (uint64_t slot = 0; slot < depth; slot++) ask(&clients[i], slot);
    double cpu = 0;
    struct toe_volume_event events[EVENTS];
    for (uint64_t time = now(); time < end_at;) {
        int found = 0;
        for (long i = 0; i < number; i++) {
            struct client *client = &clients[i];
            int ended = toe_volume_poll(client->volume, events, EVENTS);
            found += ended;
            time = now();
            if (!cpu && time >= begin_at) cpu = cpu_seconds();
            for (int e = 0; e < ended; e++) {
                errors += events[e].error != 0;
                counts[i] += (uint64_t)record(client->started[events[e].id], time);
                ask(client, events[e].id);
            }
        }
        if (!found) sched_yield();
    }
    return say_result(cpu_seconds() - cpu, counts, number);
}
