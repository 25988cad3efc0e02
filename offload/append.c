/* Adds an element to a list in the host's memory, by atomics: several clients, and the host program itself, may do so
 * at once. The element comes from a pool, by FETCH_ADD; it becomes the list's first by COMPARE_SWAP.
 *
 * Request: address of the list, 8 bytes of value. Response: the element's address; status 1: the pool is empty. */
#include "offload.h"

#define APPEND 0x14

struct list {
    uint64_t first; /* address of an element; 0 at the end */
    uint64_t used, elements, pool;
};

struct element {
    uint64_t next, value;
};

struct request {
    uint64_t list, value;
};

static int dma(offload_context *context, int op, uint64_t at, void *own, size_t size)
{
    return wait_dma_finish(context, submit_dma(context, op, at, own, size));
}

static int append(offload_context *context)
{
    const struct request *request = context->request;
    struct list list;
    uint64_t place = 1, *response;

    if (context->request_size != sizeof *request || !(response = alloc_resp(context, sizeof *response)))
        return -1;
    if (dma(context, DMA_READ, request->list, &list, sizeof list) ||
        dma(context, DMA_FETCH_ADD, request->list + offsetof(struct list, used), &place, sizeof place))
        return -1;
    if (place >= list.elements)
        return 1;
    uint64_t at = list.pool + place * sizeof(struct element);
    uint64_t words[2] = {list.first, at};
    for (;;) {
        struct element element = {words[0], request->value};
        uint64_t expected = words[0];
        if (dma(context, DMA_WRITE, at, &element, sizeof element) ||
            dma(context, DMA_COMPARE_SWAP, request->list, words, sizeof words))
            return -1;
        if (words[0] == expected)
            break;
    }
    *response = at;
    return submit_resp(context, response, sizeof *response);
}

int offload_init(void)
{
    return register_opcode(APPEND, OFFLOAD_EVERY_QP, append);
}
