/* What the memory of offload_host has, for the examples of offload functions in offload/. A client gets the first
 * structure when it connects by verbs. */
#ifndef OFFLOAD_MEMORY_H
#define OFFLOAD_MEMORY_H

#include <stdint.h>

#define VALUE_BYTES 64
#define ELEMENTS 1024
#define BLOCK_BYTES (1u << 20)

struct shown {
    uint64_t list;   /* the first of ELEMENTS list elements, which have the keys 1, 2, ... */
    uint64_t block;  /* BLOCK_BYTES, of which each has a value by its place */
    uint64_t table;  /* a hash table with the same keys */
    uint64_t append; /* a list that is empty */
    uint32_t rkey;   /* of all of them, for READ */
    uint32_t pid;
};

struct list_element {
    uint64_t key, next, value;
};

struct hash_table {
    uint64_t mask, buckets;
};

struct bucket {
    uint64_t key, value;
};

struct append_list {
    uint64_t first, used, elements, pool;
};

struct append_element {
    uint64_t next, value;
};

static inline uint8_t block_byte(uint64_t at)
{
    return (uint8_t)(at * 31 + (at >> 8) * 7);
}

static inline uint8_t value_byte(uint64_t key, int at)
{
    return (uint8_t)(key * 13 + at);
}

static inline uint64_t hash(uint64_t key)
{
    return key * 0x9e3779b97f4a7c15u >> 32;
}

#endif
