/* The CRC-32 (as zlib's) of a range of the host's memory: four bytes cross the network instead of the range.
 *
 * Request: address, length. Response: the CRC. */
#include "offload.h"

#define CRC 0x13
#define PIECE 16384

static uint32_t table[256];

struct request {
    uint64_t at, size;
};

static int crc(offload_context *context)
{
    const struct request *request = context->request;
    uint8_t piece[PIECE];
    uint32_t *response, sum = ~0u;

    if (context->request_size != sizeof *request || !(response = alloc_resp(context, sizeof sum)))
        return -1;
    for (uint64_t done = 0; done < request->size;) {
        uint64_t size = request->size - done < PIECE ? request->size - done : PIECE;
        if (wait_dma_finish(context, submit_dma(context, DMA_READ, request->at + done, piece, size)))
            return -1;
        for (uint64_t i = 0; i < size; i++)
            sum = table[(sum ^ piece[i]) & 0xff] ^ sum >> 8;
        done += size;
    }
    *response = ~sum;
    return submit_resp(context, response, sizeof sum);
}

int offload_init(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t word = i;
        for (int bit = 0; bit < 8; bit++)
            word = word & 1 ? 0xedb88320u ^ word >> 1 : word >> 1;
        table[i] = word;
    }
    return register_opcode(CRC, OFFLOAD_EVERY_QP, crc);
}
