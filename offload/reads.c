/* Batched READ (SmartNS, sections 3.5 and 5.6): many pieces of the host's memory in one request and one response.
 *
 * Request: address and length of each piece, 512 at most. Response: their bytes, one after the other. */
#include "offload.h"

#define READS 0x11
#define MOST 512
#define AT_ONCE 32 /* outstanding operations */

struct piece {
    uint64_t at, size;
};

static int reads(offload_context *context)
{
    const struct piece *pieces = context->request;
    uint64_t count = context->request_size / sizeof *pieces, sum = 0;
    int64_t ids[AT_ONCE];
    uint8_t *response;

    for (uint64_t i = 0; i < count; i++) {
        if (pieces[i].size > OFFLOAD_RESPONSE_BYTES || (sum += pieces[i].size) > OFFLOAD_RESPONSE_BYTES)
            return -1;
    }
    if (count == 0 || count > MOST || !(response = alloc_resp(context, sum)))
        return -1;
    /* A piece is waited for when its place among the outstanding ones is wanted again. */
    uint8_t *at = response;
    for (uint64_t i = 0; i < count + AT_ONCE; i++) {
        if (i >= AT_ONCE && i - AT_ONCE < count && wait_dma_finish(context, ids[i % AT_ONCE]))
            return -1;
        if (i < count) {
            ids[i % AT_ONCE] = submit_dma(context, DMA_READ, pieces[i].at, at, pieces[i].size);
            at += pieces[i].size;
        }
    }
    return submit_resp(context, response, sum);
}

int offload_init(void)
{
    return register_opcode(READS, OFFLOAD_EVERY_QP, reads);
}
