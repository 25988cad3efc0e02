/* Traverses a linked list in the host's memory (SmartNS, section 5.6): where a client would read each element over the
 * network, this reads them where they are.
 *
 * Request: address of the first element, key. Response: the 64 bytes of the element's value; status 1: no such key. */
#include "offload.h"

#define LIST 0x10
#define VALUE_BYTES 64

struct element {
    uint64_t key, next, value; /* addresses of the host program's; next is 0 at the end */
};

struct request {
    uint64_t first, key;
};

static int list(offload_context *context)
{
    const struct request *request = context->request;
    struct element element;
    void *value;

    if (context->request_size != sizeof *request || !(value = alloc_resp(context, VALUE_BYTES)))
        return -1;
    for (uint64_t at = request->first; at; at = element.next) {
        if (wait_dma_finish(context, submit_dma(context, DMA_READ, at, &element, sizeof element)))
            return -1;
        if (element.key == request->key) {
            if (wait_dma_finish(context, submit_dma(context, DMA_READ, element.value, value, VALUE_BYTES)))
                return -1;
            return submit_resp(context, value, VALUE_BYTES);
        }
    }
    return 1;
}

int offload_init(void)
{
    return register_opcode(LIST, OFFLOAD_EVERY_QP, list);
}
