/* Batched READ (SmartNS, sections 3.5 and 5.6): many pieces of the host's memory in one request and one response.
 *
 * Request: address and length of each piece, 512 at most. Response: their bytes, one after the other. READS_TO has an
 * address and a remote key of the client's in front of the pieces: the response is written there. */
#include "offload.h"

#define READS 0x11
#define READS_TO 0x15
#define MOST 512
#define AT_ONCE 32 /* outstanding operations */

struct piece {
    uint64_t at, size;
};

/* Reads the pieces into a response, whose length it gives; null where they are too many, too long, or in no region. */
static uint8_t *gather(offload_context *context, const struct piece *pieces, uint64_t count, uint64_t *size)
{
    int64_t ids[AT_ONCE];
    uint64_t sum = 0;
    uint8_t *response;

    for (uint64_t i = 0; i < count; i++) {
        if (pieces[i].size > OFFLOAD_RESPONSE_BYTES || (sum += pieces[i].size) > OFFLOAD_RESPONSE_BYTES)
            return NULL;
    }
    if (count == 0 || count > MOST || !(response = alloc_resp(context, sum)))
        return NULL;
    /* A piece is waited for when its place among the outstanding ones is wanted again. */
    uint8_t *at = response;
    for (uint64_t i = 0; i < count + AT_ONCE; i++) {
        if (i >= AT_ONCE && i - AT_ONCE < count && wait_dma_finish(context, ids[i % AT_ONCE]))
            return NULL;
        if (i < count) {
            ids[i % AT_ONCE] = submit_dma(context, DMA_READ, pieces[i].at, at, pieces[i].size);
            at += pieces[i].size;
        }
    }
    *size = sum;
    return response;
}

static int reads(offload_context *context)
{
    uint64_t size;
    const uint8_t *response = gather(context, context->request, context->request_size / sizeof(struct piece), &size);

    return response ? submit_resp(context, response, size) : -1;
}

/* The first pair names the client's memory in place of a piece. */
static int reads_to(offload_context *context)
{
    const struct piece *to = context->request;
    uint64_t pairs = context->request_size / sizeof *to, size;
    const uint8_t *response = pairs > 1 ? gather(context, to + 1, pairs - 1, &size) : NULL;

    return response ? submit_resp_to(context, response, size, to->at, (uint32_t)to->size) : -1;
}

int offload_init(void)
{
    int done = register_opcode(READS, OFFLOAD_EVERY_QP, reads);

    return done ? done : register_opcode(READS_TO, OFFLOAD_EVERY_QP, reads_to);
}
