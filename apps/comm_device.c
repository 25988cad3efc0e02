/* comm_device: bytes from and to memory that nobody maps, through toe_comm and toe_dma (include/toe.h).
 *
 *   comm_device receive HOST PORT MIB WHERE [rate]            on the ZeroNIC host HOST
 *   comm_device send HOST ADDRESS PORT MIB WHERE [rate]
 *   comm_device copies GPU                                    what copies of a GPU take without a network
 *
 * WHERE is `host`: memory of a sealed memfd; `stand-in`: memory of a process of its own, which serves the device's
 * queue; `gpu:N`: memory of a CUDA device, whose driver is loaded when this runs; `managed:N`: memory that its driver
 * moves; `bounce:N`: as `gpu:N`, but copied by this program to and from host memory. Each word of the stream is a
 * function of its place there, and the receiver compares all of them. With `rate`, words repeat with the ring of
 * buffers, and the receiver compares at the end: so what is measured is not the comparison.
 */
#define _GNU_SOURCE
#include "program.h"
#include "comm.h"
#include <dlfcn.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { PIECES = 16, PIECE = 1 << 20, RING = PIECES * PIECE };

static int rate;
static uint64_t scratch[PIECE / 8], expected[PIECE / 8];

/* ---- Where the bytes are. */
static void (*put)(size_t at, const void *from, size_t len);
static void (*get)(size_t at, void *into, size_t len);
/* Of `bounce`: between the GPU and the host memory that is registered. */
static void (*before_send)(size_t at, size_t len), (*after_receive)(size_t at, size_t len);

/* Memory of a sealed memfd, which the daemon reaches as fast as its own. */
static char *memory;

static void put_host(size_t at, const void *from, size_t len) {
    memcpy(memory + at, from, len);
}

static void get_host(size_t at, void *into, size_t len) {
    memcpy(into, memory + at, len);
}

static void open_host(void) {
    memory = sealed_memory(RING);
    put = put_host, get = get_host;
}

/* ---- A process of its own, whose memory nobody else has. Bytes of `put` and `get` pass through a page of both. */
struct order {
    enum { SERVE, PUT, GET } what;
    size_t at, len;
};
enum { ADDRESS = 0x10000 };
static int there = -1;
static char *passed, *own;

static void *serve(void *queue) {
    struct toe_dma_copy list[EVENTS];
    for (int count; (count = toe_dma_take(queue, list, EVENTS, -1)) > 0;)
        for (int i = 0; i < count; i++) {
            size_t at = list[i].address - ADDRESS;
            int inside = at <= RING && list[i].len <= RING - at;
            if (inside && list[i].into_device) memcpy(own + at, list[i].staging, list[i].len);
            if (inside && !list[i].into_device) memcpy(list[i].staging, own + at, list[i].len);
            toe_dma_done(queue, list[i].id, inside ? 0 : EFAULT);
        }
    return NULL;
}

static _Noreturn void stand_in(int fd) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!(own = calloc(1, RING))) die("calloc");
    for (;;) {
        struct order order;
        union {
            struct cmsghdr header;
            char room[CMSG_SPACE(sizeof(int))];
        } control;
        struct iovec piece = {&order, sizeof order};
        struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
        if (recvmsg(fd, &message, MSG_CMSG_CLOEXEC) != sizeof order) exit(0);
        if (order.what == SERVE) {
            int queue;
            memcpy(&queue, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof queue);
            toe_dma *dma = toe_dma_open(queue);
            pthread_t thread;
            if (!dma) die("toe_dma_open");
            if (pthread_create(&thread, NULL, serve, dma)) die("pthread_create");
        }
        if (order.what == PUT) memcpy(own + order.at, passed, order.len);
        if (order.what == GET) memcpy(passed, own + order.at, order.len);
        if (write(fd, "", 1) != 1) exit(0);
    }
}

static void order_to(struct order order, int queue) {
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {.header = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
    struct iovec piece = {&order, sizeof order};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    if (queue >= 0) {
        memcpy(CMSG_DATA(&control.header), &queue, sizeof queue);
        message.msg_control = &control, message.msg_controllen = sizeof control;
    }
    char done;
    if (sendmsg(there, &message, 0) < 0 || read(there, &done, 1) != 1) die("the stand-in");
}

static void put_there(size_t at, const void *from, size_t len) {
    memcpy(passed, from, len);
    order_to((struct order){PUT, at, len}, -1);
}

static void get_there(size_t at, void *into, size_t len) {
    order_to((struct order){GET, at, len}, -1);
    memcpy(into, passed, len);
}

/* Before the program has anything that a child should not have. */
static void fork_stand_in(void) {
    int pair[2];
    passed = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (passed == MAP_FAILED) die("mmap");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) die("socketpair");
    pid_t child = fork();
    if (child < 0) die("fork");
    if (child == 0) close(pair[0]), stand_in(pair[1]);
    close(pair[1]);
    there = pair[0];
}

static void open_stand_in(void) {
    uint32_t device;
    int queue;
    if (toe_comm_device(comm, &device, &queue) < 0) die("toe_comm_device");
    if (toe_comm_register_device(comm, device, ADDRESS, RING, &key) < 0) die("toe_comm_register_device");
    order_to((struct order){SERVE, 0, 0}, queue);
    close(queue);
    put = put_there, get = get_there;
}

/* ---- A CUDA device. Types and numbers are those of the driver's reference manual. */
typedef int cu_result;
typedef unsigned long long cu_address;
static cu_result (*cuInit)(unsigned), (*cuDevicePrimaryCtxRetain)(void **, int), (*cuCtxSetCurrent)(void *);
static cu_result (*cuMemAlloc)(cu_address *, size_t), (*cuMemcpyHtoD)(cu_address, const void *, size_t);
static cu_result (*cuMemcpyDtoH)(void *, cu_address, size_t), (*cuMemcpyDtoD)(cu_address, cu_address, size_t);
static cu_result (*cuMemHostRegister)(void *, size_t, unsigned), (*cuCtxSynchronize)(void);
static cu_result (*cuMemcpyHtoDAsync)(cu_address, const void *, size_t, void *);
static cu_result (*cuMemcpyDtoHAsync)(void *, cu_address, size_t, void *);
static cu_result (*cuMemAllocManaged)(cu_address *, size_t, unsigned);
static cu_address device;

static void cu(cu_result result, const char *what) {
    if (result) fprintf(stderr, "comm_device: %s: CUDA's error %d\n", what, result), exit(1);
}

static void find(void *library, const char *name, void *function) {
    void *found = dlsym(library, name);
    if (!found) fprintf(stderr, "comm_device: the CUDA driver has no %s\n", name), exit(1);
    memcpy(function, &found, sizeof found);
}

static void put_gpu(size_t at, const void *from, size_t len) {
    cu(cuMemcpyHtoD(device + at, from, len), "cuMemcpyHtoD");
    /* From pageable memory, a copy may still be under way. */
    cu(cuCtxSynchronize(), "cuCtxSynchronize");
}

static void get_gpu(size_t at, void *into, size_t len) {
    cu(cuMemcpyDtoH(into, device + at, len), "cuMemcpyDtoH");
}

static void out_of_gpu(size_t at, size_t len) {
    cu(cuMemcpyDtoH(memory + at, device + at, len), "cuMemcpyDtoH");
}

static void into_gpu(size_t at, size_t len) {
    cu(cuMemcpyHtoD(device + at, memory + at, len), "cuMemcpyHtoD");
}

static void allocate_gpu(int number, int managed) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *context;
    if (!library) fprintf(stderr, "comm_device: SKIPPED, there is no CUDA driver: %s\n", dlerror()), exit(77);
    find(library, "cuInit", &cuInit), find(library, "cuDevicePrimaryCtxRetain", &cuDevicePrimaryCtxRetain);
    find(library, "cuCtxSetCurrent", &cuCtxSetCurrent), find(library, "cuMemAlloc_v2", &cuMemAlloc);
    find(library, "cuMemcpyHtoD_v2", &cuMemcpyHtoD), find(library, "cuMemcpyDtoH_v2", &cuMemcpyDtoH);
    find(library, "cuMemcpyDtoD_v2", &cuMemcpyDtoD), find(library, "cuMemHostRegister_v2", &cuMemHostRegister);
    find(library, "cuMemcpyHtoDAsync_v2", &cuMemcpyHtoDAsync), find(library, "cuCtxSynchronize", &cuCtxSynchronize);
    find(library, "cuMemcpyDtoHAsync_v2", &cuMemcpyDtoHAsync);
    cu_result begun = cuInit(0);
    if (begun) fprintf(stderr, "comm_device: SKIPPED, there is no CUDA device: error %d\n", begun), exit(77);
    cu(cuDevicePrimaryCtxRetain(&context, number), "cuDevicePrimaryCtxRetain");
    cu(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    /* CU_MEM_ATTACH_GLOBAL */
    if (managed) find(library, "cuMemAllocManaged", &cuMemAllocManaged), cu(cuMemAllocManaged(&device, RING, 1), "cuMemAllocManaged");
    else cu(cuMemAlloc(&device, RING), "cuMemAlloc");
}

static void open_gpu(int number, int managed, int bounce) {
    allocate_gpu(number, managed);
    if (bounce) {
        open_host();
        cu(cuMemHostRegister(memory, RING, 0), "cuMemHostRegister");
        before_send = out_of_gpu, after_receive = into_gpu;
    } else if (toe_comm_register(comm, (void *)(uintptr_t)device, RING, &key) < 0) {
        die("toe_comm_register of GPU memory");
    }
    put = put_gpu, get = get_gpu;
}

static void prepare(const char *host, const char *where) {
    if (!strcmp(where, "stand-in")) fork_stand_in();
    open_comm(host);
    if (!strcmp(where, "host")) open_host();
    else if (!strcmp(where, "stand-in")) open_stand_in();
    else if (!strncmp(where, "gpu:", 4)) open_gpu(atoi(where + 4), 0, 0);
    else if (!strncmp(where, "bounce:", 7)) open_gpu(atoi(where + 7), 0, 1);
    else if (!strncmp(where, "managed:", 8)) open_gpu(atoi(where + 8), 1, 0);
    else errno = EINVAL, die(where);
}

/* ---- The stream. */
static void words(uint64_t piece, uint64_t *into) {
    uint64_t first = (rate ? piece % PIECES : piece) * (PIECE / 8);
    for (size_t i = 0; i < PIECE / 8; i++) into[i] = mix(first + i + 1);
}

static void compare(uint64_t piece) {
    words(piece, expected);
    memset(scratch, 0, PIECE);
    get(piece % PIECES * PIECE, scratch, PIECE);
    for (size_t i = 0; i < PIECE / 8; i++)
        if (scratch[i] != expected[i])
            fprintf(stderr, "comm_device: word %zu of piece %llu is another one\n", i, (unsigned long long)piece), exit(1);
}

static void receive(uint16_t port, uint64_t pieces) {
    struct toe_comm_event events[EVENTS];
    uint64_t posted = 0, done = 0, begun = 0, last = 0;
    uint32_t connection = 0;
    if (toe_comm_listen(comm, port, 0) < 0) die("toe_comm_listen");
    for (int ended = 0; !ended || done < pieces;) {
        int count = next(events);
        for (int i = 0; i < count; i++) switch (events[i].what) {
            case TOE_COMM_LISTENING: puts("listening"), fflush(stdout); break;
            case TOE_COMM_ACCEPTED: connection = events[i].connection; break;
            case TOE_COMM_RECEIVED:
                if (events[i].value != PIECE) errno = 0, die("the stream");
                if (after_receive) after_receive(done % PIECES * PIECE, PIECE);
                if (!rate) compare(done);
                if (!begun) begun = now();
                if (++done == pieces) last = now();
                break;
            case TOE_COMM_ENDED: ended = 1; break;
            }
        for (; connection && posted < pieces && posted - done < PIECES; posted++)
            if (toe_comm_recv(comm, connection, key, posted % PIECES * PIECE, PIECE, posted) < 0) die("toe_comm_recv");
    }
    for (uint64_t piece = pieces > PIECES ? pieces - PIECES : 0; rate && piece < pieces; piece++) compare(piece);
    double gbit = last > begun ? (double)(pieces - 1) * PIECE * 8 / (double)(last - begun) : 0;
    if (toe_comm_end(comm, connection) < 0) die("toe_comm_end");
    printf("%llu MiB, equal, %.2f Gbit/s%s\n", (unsigned long long)pieces, gbit, rate ? "" : " with comparison");
}

static void send_all(const struct sockaddr_in *to, uint64_t pieces) {
    struct toe_comm_event events[EVENTS];
    uint64_t posted = 0, sent = 0;
    uint32_t connection = 0;
    for (uint64_t piece = 0; rate && piece < PIECES; piece++) words(piece, expected), put(piece * PIECE, expected, PIECE);
    if (toe_comm_connect(comm, to, 0) < 0) die("toe_comm_connect");
    for (int ended = 0; !ended || sent < pieces;) {
        for (; connection && posted < pieces && posted - sent < PIECES; posted++) {
            size_t at = posted % PIECES * PIECE;
            if (!rate) words(posted, expected), put(at, expected, PIECE);
            if (before_send) before_send(at, PIECE);
            if (toe_comm_send(comm, connection, key, at, PIECE, posted) < 0) die("toe_comm_send");
            if (posted + 1 == pieces && toe_comm_end(comm, connection) < 0) die("toe_comm_end");
        }
        int count = next(events);
        for (int i = 0; i < count; i++) {
            if (events[i].what == TOE_COMM_CONNECTED) connection = events[i].connection;
            if (events[i].what == TOE_COMM_SENT) sent++;
            if (events[i].what == TOE_COMM_ENDED) ended = 1;
        }
    }
}

/* ---- What a GPU's copies take by themselves. */
static void timed(const char *what, size_t len, int in, int out) {
    enum { TIMES = 4096 };
    uint64_t begun = now();
    for (int i = 0; i < TIMES; i++) {
        size_t at = (size_t)i * len % RING;
        if (in) cu(cuMemcpyHtoDAsync(device + at, memory + at, len, NULL), "cuMemcpyHtoDAsync");
        if (out) cu(cuMemcpyDtoHAsync(memory + at, device + at, len, NULL), "cuMemcpyDtoHAsync");
    }
    cu(cuCtxSynchronize(), "cuCtxSynchronize");
    double each = (double)(now() - begun) / TIMES;
    printf("%-28s %7zu bytes: %8.1f ns each, %7.1f Gbit/s\n", what, len, each, (double)len * 8 / each);
}

static void copies(int number) {
    allocate_gpu(number, 0);
    memory = mmap(NULL, RING, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) die("mmap");
    cu(cuMemHostRegister(memory, RING, 0), "cuMemHostRegister");
    for (size_t len = 1 << 10; len <= PIECE; len <<= 2)
        timed("host to GPU, pinned", len, 1, 0), timed("GPU to host, pinned", len, 0, 1);
    timed("host to GPU, pinned", 1 << 16, 1, 0), timed("GPU to host to GPU", 1 << 16, 1, 1);
    uint64_t begun = now();
    for (int i = 0; i < 1024; i++) cu(cuMemcpyDtoD(device + (size_t)(i % 8) * PIECE, device + RING / 2, PIECE), "cuMemcpyDtoD");
    cu(cuCtxSynchronize(), "cuCtxSynchronize");
    printf("%-28s %7d bytes: %7.1f Gbit/s\n", "GPU to itself", PIECE, 1024.0 * PIECE * 8 / (double)(now() - begun));
    char *other = malloc(RING);
    if (!other) die("malloc");
    memset(other, 1, RING), begun = now();
    for (int i = 0; i < 16; i++) memcpy(memory, other, RING);
    printf("%-28s %7d bytes: %7.1f Gbit/s\n", "memcpy, one core", RING, 16.0 * RING * 8 / (double)(now() - begun));
}

int main(int count, char **arguments) {
    struct sockaddr_in to = {.sin_family = AF_INET};
    rate = count > 5 && !strcmp(arguments[count - 1], "rate");
    count -= rate;
    if (count == 3 && !strcmp(arguments[1], "copies")) {
        copies(atoi(arguments[2]));
        return 0;
    }
    if (count == 6 && !strcmp(arguments[1], "receive")) {
        prepare(arguments[2], arguments[5]);
        receive((uint16_t)atoi(arguments[3]), strtoull(arguments[4], NULL, 10));
    } else if (count == 7 && !strcmp(arguments[1], "send") && inet_pton(AF_INET, arguments[3], &to.sin_addr) == 1) {
        to.sin_port = htons((uint16_t)atoi(arguments[4]));
        prepare(arguments[2], arguments[6]);
        send_all(&to, strtoull(arguments[5], NULL, 10));
    } else {
        fprintf(stderr, "usage: comm_device receive HOST PORT MIB WHERE [rate] | send HOST ADDRESS PORT MIB WHERE [rate] | "
                        "copies GPU\n");
        return 2;
    }
    toe_comm_close(comm);
    return 0;
}
