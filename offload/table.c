/* A get from a hash table in the host's memory: open addressing, a power of two of buckets.
 *
 * Request: address of the table, key (not 0). Response: the 64 bytes of its value; status 1: no such key. */
#include "offload.h"

#define GET 0x12
#define VALUE_BYTES 64

struct table {
    uint64_t mask, buckets; /* buckets less one; address of the first */
};

struct bucket {
    uint64_t key, value; /* key 0: free */
};

struct request {
    uint64_t table, key;
};

static int read_host(offload_context *context, uint64_t at, void *into, size_t size)
{
    return wait_dma_finish(context, submit_dma(context, DMA_READ, at, into, size));
}

static int get(offload_context *context)
{
    const struct request *request = context->request;
    struct table table;
    struct bucket bucket;
    void *value;

    if (context->request_size != sizeof *request || !(value = alloc_resp(context, VALUE_BYTES)))
        return -1;
    if (read_host(context, request->table, &table, sizeof table))
        return -1;
    uint64_t at = request->key * 0x9e3779b97f4a7c15u >> 32;
    for (uint64_t tries = 0; tries <= table.mask; tries++, at++) {
        if (read_host(context, table.buckets + (at & table.mask) * sizeof bucket, &bucket, sizeof bucket))
            return -1;
        if (bucket.key == request->key) {
            if (read_host(context, bucket.value, value, VALUE_BYTES))
                return -1;
            return submit_resp(context, value, VALUE_BYTES);
        }
        if (bucket.key == 0)
            return 1;
    }
    return 1;
}

int offload_init(void)
{
    return register_opcode(GET, OFFLOAD_EVERY_QP, get);
}
