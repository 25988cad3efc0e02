/* offload.h: offload functions, which run beside a host's transport (docs/OFFLOAD.md). The names are those of SmartNS,
 * table 2. Three parts: for functions, for programs whose memory they reach, for clients. */
#ifndef OFFLOAD_H
#define OFFLOAD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Offload functions: a shared object that defines offload_init() ---------------------------------------------- */

/* 2: submit_resp_to. */
#define OFFLOAD_VERSION 2

/* The request of a call. Its bytes stay as they are until the function returns. */
typedef struct offload_context {
    const void *request;
    uint64_t request_size;
    uint32_t opcode;
    uint32_t qp; /* number of the queue pair that it came by */
} offload_context;

/* Returns 0, a status of its own from 1 to 0xfeff, or a negative error number (the client gets OFFLOAD_FAILED).
 * It runs as a coroutine with a stack of 64 KiB. Others run while it waits in wait_dma_finish, and only then. */
typedef int (*offload_function)(offload_context *);

/* Defined by each library of functions: calls register_opcode for each, and returns 0, or a negative error number. */
int offload_init(void);

enum {
    DMA_READ = 0,        /* from the host's memory */
    DMA_WRITE = 1,       /* to the host's memory */
    DMA_FETCH_ADD = 2,   /* arm_addr: a uint64_t to add, replaced by what was there; size 8 */
    DMA_COMPARE_SWAP = 3 /* arm_addr: expected and new, 8 bytes each; the first is replaced as above; size 16 */
};

/* For register_opcode: the queue pairs of every port. */
#define OFFLOAD_EVERY_QP 0

struct offload_calls {
    uint32_t version;
    int (*register_opcode)(uint32_t, uint32_t, offload_function);
    void *(*alloc_resp)(offload_context *, size_t);
    int64_t (*submit_dma)(offload_context *, int, uint64_t, void *, size_t);
    int (*wait_dma_finish)(offload_context *, int64_t);
    int (*submit_resp)(offload_context *, const void *, size_t);
    int (*submit_resp_to)(offload_context *, const void *, size_t, uint64_t, uint32_t);
};

#ifndef OFFLOAD_NO_FUNCTIONS

/* The engine sets it when it loads the library. */
__attribute__((weak, visibility("default"))) const struct offload_calls *offload_calls;

/* In offload_init: requests with this opcode (1 to 0xffff) call the function. qp: of clients that connected to this
 * port, or OFFLOAD_EVERY_QP. -EINVAL; -EBUSY: twice; -EPERM: elsewhere. Where another library has the opcode, this one
 * is not loaded. */
static inline int register_opcode(uint32_t opcode, uint32_t qp, offload_function func)
{
    return offload_calls->register_opcode(opcode, qp, func);
}

/* Room for the response, once in a call. Null where it is more than 64 KiB. */
static inline void *alloc_resp(offload_context *context, size_t size)
{
    return offload_calls->alloc_resp(context, size);
}

/* Submits an operation between the host's memory, by the host program's own address, and the function's. All bytes must
 * be in one DMA region. Returns a number for wait_dma_finish; -EFAULT: no DMA region; -EACCES: the region is not for
 * this; -EINVAL: op, size or alignment; -EAGAIN: 64 are outstanding; -ETIME: the call's time is over. */
static inline int64_t submit_dma(offload_context *context, int op, uint64_t host_addr, void *arm_addr, size_t size)
{
    return offload_calls->submit_dma(context, op, host_addr, arm_addr, size);
}

/* Waits for an operation. 0, or as submit_dma; a negative dma_id is given back. */
static inline int wait_dma_finish(offload_context *context, int64_t dma_id)
{
    return dma_id < 0 ? (int)dma_id : offload_calls->wait_dma_finish(context, dma_id);
}

/* The response is these bytes of what alloc_resp gave. It leaves when the function has returned, and all operations
 * have ended. -EINVAL: other bytes, or a second response. Without a response the client gets a status alone. */
static inline int submit_resp(offload_context *context, const void *addr, size_t size)
{
    return offload_calls->submit_resp(context, addr, size);
}

/* As submit_resp, but the bytes go straight into the client's memory: an RDMA WRITE with immediate data to this
 * address, under this remote key, which the client's request names. A key or an address that the client did not
 * register for remote writes breaks its connection, as any such WRITE does. -ENOSYS: the engine is older. */
static inline int submit_resp_to(offload_context *context, const void *addr, size_t size, uint64_t client_addr,
                                 uint32_t client_key)
{
    if (offload_calls->version < 2)
        return -38;
    return offload_calls->submit_resp_to(context, addr, size, client_addr, client_key);
}

#endif

/* ---- Host programs, linked with -loffload ------------------------------------------------------------------------ */

/* Opens the offload engine behind a socket: clients that connect to this port of the engine's host reach this program's
 * DMA regions, and no other's. Once in a process. -1 with errno. It ends with the process, or with offload_close. */
int offload_open(const char *socket, uint16_t port);
void offload_close(void);

/* Offload functions may read and write these bytes of the program, and do atomics. -1 with errno. */
int register_dma_region(void *host_addr, size_t size);
/* They may only read. */
int register_dma_region_readonly(const void *host_addr, size_t size);
/* Page-aligned memory, zero, which the engine maps: an operation takes tens of nanoseconds instead of a microsecond.
 * Null with errno. It stays until the process ends. */
void *offload_memory(size_t size);

/* ---- Clients: SEND with immediate data on a reliable connection --------------------------------------------------
 * A response comes as a SEND with immediate data, or is written (submit_resp_to). Both take one receive work request.
 * Refusals and failures are always sent, without payload. */

/* Immediate data of a request, before htonl: the tag comes back with the response. */
#define OFFLOAD_REQUEST(opcode, tag) ((uint32_t)(opcode) << 16 | (uint16_t)(tag))
/* Of a response, after ntohl. */
#define OFFLOAD_STATUS(imm) ((uint32_t)(imm) >> 16)
#define OFFLOAD_TAG(imm) ((uint16_t)(imm))

/* Requests that a client may have outstanding on a connection, and the longest one in bytes. */
#define OFFLOAD_OUTSTANDING 32
#define OFFLOAD_REQUEST_BYTES 8192
#define OFFLOAD_RESPONSE_BYTES 65536

enum {
    OFFLOAD_OK = 0,
    OFFLOAD_NO_OPCODE = 0xff00, /* no function is registered */
    OFFLOAD_FAILED = 0xff01,    /* the function returned a negative number */
    OFFLOAD_TIMED_OUT = 0xff02, /* the function was ended at its time limit */
    OFFLOAD_NO_MEMORY = 0xff03  /* the engine had no memory for the call */
};

#ifdef __cplusplus
}
#endif
#endif
