/* A program whose memory offload functions reach: a list, a hash table, bytes, and a list to append to. The same memory
 * is there for one-sided verbs, so that both ways can be compared.
 *
 * offload_host SOCKET PORT VERBS_PORT [kernel|stay]
 * "kernel": in ordinary memory, which the engine reaches through the kernel. It ends when its standard input does, unless
 * it is to stay. */
#define _GNU_SOURCE
#define OFFLOAD_NO_FUNCTIONS
#include "../include/offload.h"
#include "offload_memory.h"
#include "verbs.h"
#include <pthread.h>

#define HASH_BUCKETS (2 * ELEMENTS)

struct memory {
    struct list_element list[ELEMENTS];
    struct bucket buckets[HASH_BUCKETS];
    uint8_t values[ELEMENTS][VALUE_BYTES];
    struct append_element pool[ELEMENTS];
    struct hash_table table;
    struct append_list append;
    uint8_t block[BLOCK_BYTES];
};

static void fill(struct memory *memory)
{
    for (uint64_t i = 0; i < ELEMENTS; i++) {
        /* Neighbours in the list are none in memory. */
        uint64_t place = i * 389 % ELEMENTS, next = (i + 1) * 389 % ELEMENTS;
        struct list_element *element = &memory->list[place];
        element->key = i + 1;
        element->next = i + 1 < ELEMENTS ? (uintptr_t)&memory->list[next] : 0;
        element->value = (uintptr_t)memory->values[place];
        for (int at = 0; at < VALUE_BYTES; at++)
            memory->values[place][at] = value_byte(element->key, at);
        uint64_t bucket = hash(element->key);
        while (memory->buckets[bucket % HASH_BUCKETS].key)
            bucket++;
        memory->buckets[bucket % HASH_BUCKETS] = (struct bucket){element->key, element->value};
    }
    memory->table = (struct hash_table){HASH_BUCKETS - 1, (uintptr_t)memory->buckets};
    memory->append = (struct append_list){0, 0, ELEMENTS, (uintptr_t)memory->pool};
    for (uint64_t at = 0; at < BLOCK_BYTES; at++)
        memory->block[at] = block_byte(at);
}

static struct memory *memory;

/* Lets clients READ the memory by verbs. */
static void *serve(void *channel)
{
    static struct shown shown;

    shown = (struct shown){(uintptr_t)memory->list, (uintptr_t)memory->block, (uintptr_t)&memory->table,
                           (uintptr_t)&memory->append, 0, (uint32_t)getpid()};
    let_reach(channel, memory, sizeof *memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, &shown, sizeof shown,
              &shown.rkey);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    char byte;

    if (argc < 4) {
        fprintf(stderr, "usage: offload_host SOCKET PORT VERBS_PORT [kernel|stay]\n");
        return 2;
    }
    memory = argc > 4 && !strcmp(argv[4], "kernel") ? calloc(1, sizeof *memory) : offload_memory(sizeof *memory);
    if (!memory)
        die("memory");
    fill(memory);
    if (offload_open(argv[1], (uint16_t)atoi(argv[2])) || register_dma_region(memory, sizeof *memory))
        die("the offload engine");
    if (pthread_create(&thread, NULL, serve, listen_for(argv[3])))
        die("thread");
    puts("ready");
    fflush(stdout);
    while (argc > 4 && !strcmp(argv[4], "stay")) pause();
    while (read(0, &byte, 1) > 0) {
    }
    /* What was appended, newest first. */
    for (uint64_t at = memory->append.first; at; at = ((struct append_element *)at)->next)
        printf("%llu\n", (unsigned long long)((struct append_element *)at)->value);
    return 0;
}
