/* A CUDA driver for tests: a device whose addresses are no addresses of the process, and whose copies are made by a thread
 * per stream, later than they are ordered. It has what is used of libcuda.so.1, by the reference manual. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int result;
typedef unsigned long long address;
enum { OK = 0, INVALID = 1, NOT_READY = 600, ILLEGAL = 700 };

static const address DEVICE = 1ull << 60;
static struct {
    address first;
    size_t bytes;
    char *real;
} allocations[64];
static int count;
static char context;

/* Where a device's bytes are; null where they are not all of one allocation. */
static char *real(address at, size_t len) {
    for (int i = 0; i < count; i++)
        if (at >= allocations[i].first && at - allocations[i].first <= allocations[i].bytes &&
            len <= allocations[i].bytes - (at - allocations[i].first))
            return allocations[i].real + (at - allocations[i].first);
    return NULL;
}

result cuInit(unsigned flags) { return flags ? INVALID : OK; }
result cuDevicePrimaryCtxRetain(void **into, int device) {
    *into = &context;
    return device ? INVALID : OK;
}
result cuCtxSetCurrent(void *of) { return of == &context ? OK : INVALID; }
result cuMemHostRegister_v2(void *at, size_t len, unsigned flags) { return at && len && !flags ? OK : INVALID; }
result cuMemHostUnregister(void *at) { return at ? OK : INVALID; }
result cuCtxSynchronize(void) { return OK; }

result cuMemAlloc_v2(address *into, size_t bytes) {
    if (count == 64) return INVALID;
    allocations[count].first = DEVICE + ((address)count << 40), allocations[count].bytes = bytes;
    if (!(allocations[count].real = calloc(1, bytes))) return INVALID;
    *into = allocations[count++].first;
    return OK;
}

result cuMemAllocManaged(address *into, size_t bytes, unsigned flags) { return flags == 1 ? cuMemAlloc_v2(into, bytes) : INVALID; }

result cuMemcpyHtoD_v2(address to, const void *from, size_t len) {
    char *at = real(to, len);
    return at ? (memcpy(at, from, len), OK) : INVALID;
}
result cuMemcpyDtoH_v2(void *to, address from, size_t len) {
    char *at = real(from, len);
    return at ? (memcpy(to, at, len), OK) : INVALID;
}
result cuMemcpyDtoD_v2(address to, address from, size_t len) {
    char *at = real(to, len), *of = real(from, len);
    return at && of ? (memmove(at, of, len), OK) : INVALID;
}

result cuPointerGetAttribute(void *into, int which, address at) {
    for (int i = 0; i < count; i++) {
        if (at < allocations[i].first || at - allocations[i].first >= allocations[i].bytes) continue;
        switch (which) {
        case 1: *(void **)into = &context; return OK;
        case 2: *(unsigned *)into = 2; return OK;
        case 8: *(unsigned *)into = 0; return OK;
        case 9: *(int *)into = 0; return OK;
        case 11: *(address *)into = allocations[i].first; return OK;
        case 12: *(size_t *)into = allocations[i].bytes; return OK;
        }
    }
    return INVALID;
}

/* ---- Streams: what was ordered, in its order. */
struct event {
    int happened;
};
struct work {
    enum { IN, OUT, EVENT, END } what;
    address device;
    char *host;
    size_t len;
    struct event *event;
};
enum { MOST = 4096 };
struct stream {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t news;
    struct work works[MOST];
    unsigned begin, end;
};

static void *run(void *of) {
    struct stream *stream = of;
    for (;;) {
        pthread_mutex_lock(&stream->lock);
        while (stream->begin == stream->end) pthread_cond_wait(&stream->news, &stream->lock);
        struct work work = stream->works[stream->begin++ % MOST];
        pthread_mutex_unlock(&stream->lock);
        if (work.what == END) return NULL;
        if (work.what == EVENT) __atomic_store_n(&work.event->happened, 1, __ATOMIC_RELEASE);
        char *at = work.what == EVENT ? NULL : real(work.device, work.len);
        if (at) usleep(work.len % 7 * 10);
        if (at && work.what == IN) memcpy(at, work.host, work.len);
        if (at && work.what == OUT) memcpy(work.host, at, work.len);
    }
}

static result order(struct stream *stream, struct work work) {
    pthread_mutex_lock(&stream->lock);
    int full = stream->end - stream->begin == MOST;
    if (!full) stream->works[stream->end++ % MOST] = work;
    pthread_cond_signal(&stream->news);
    pthread_mutex_unlock(&stream->lock);
    return full ? INVALID : OK;
}

result cuStreamCreate(void **into, unsigned flags) {
    struct stream *stream = calloc(1, sizeof *stream);
    if (!stream || flags > 1) return INVALID;
    pthread_mutex_init(&stream->lock, NULL), pthread_cond_init(&stream->news, NULL);
    *into = stream;
    return pthread_create(&stream->thread, NULL, run, stream) ? INVALID : OK;
}
result cuStreamDestroy_v2(void *of) {
    struct stream *stream = of;
    order(stream, (struct work){.what = END});
    pthread_join(stream->thread, NULL);
    free(stream);
    return OK;
}
result cuEventCreate(void **into, unsigned flags) { return (*into = calloc(1, sizeof(struct event))) && flags <= 3 ? OK : INVALID; }
result cuEventDestroy_v2(void *event) {
    free(event);
    return OK;
}
result cuEventRecord(void *event, void *stream) {
    __atomic_store_n(&((struct event *)event)->happened, 0, __ATOMIC_RELEASE);
    return order(stream, (struct work){.what = EVENT, .event = event});
}
result cuEventQuery(void *event) {
    return __atomic_load_n(&((struct event *)event)->happened, __ATOMIC_ACQUIRE) ? OK : NOT_READY;
}

/* On no stream, at once. */
result cuMemcpyHtoDAsync_v2(address to, const void *from, size_t len, void *stream) {
    if (!real(to, len)) return INVALID;
    if (!stream) return cuMemcpyHtoD_v2(to, from, len);
    return order(stream, (struct work){.what = IN, .device = to, .host = (char *)(uintptr_t)from, .len = len});
}
result cuMemcpyDtoHAsync_v2(void *to, address from, size_t len, void *stream) {
    if (!real(from, len)) return INVALID;
    if (!stream) return cuMemcpyDtoH_v2(to, from, len);
    return order(stream, (struct work){.what = OUT, .device = from, .host = to, .len = len});
}
