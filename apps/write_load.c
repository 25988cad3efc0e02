/* RDMA WRITEs to another host: as many outstanding as wanted, or one at a time now and then, which shows what a short
 * message waits on its way.
 *
 * write_load serve PORT                                      memory that is written; prints "ready"
 * write_load ADDRESS PORT BYTES OUTSTANDING PAUSE_US BEGIN_NS WARM_UP SECONDS      prints the lines of load.h
 * Measuring begins at BEGIN_NS of CLOCK_MONOTONIC, writing so many seconds before: all have connected by then. */
#define _GNU_SOURCE
#include "load.h"
#include "verbs.h"
#include <sys/mman.h>

enum { MEMORY = 1 << 20, MOST_OUTSTANDING = 1024 };

/* Where a client may write. */
struct shown {
    uint64_t address;
    uint32_t rkey;
};

static struct rdma_cm_id *id;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct shown shown;

/* Whole pages of their own: the daemon maps them. */
static void *memory(void) {
    void *at = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) die("mmap");
    memset(at, 1, MEMORY);
    return at;
}

/* All clients write to the same place. */
static void serve(const char *port) {
    struct rdma_event_channel *channel = listen_for(port);
    void *at = memory();

    puts("ready");
    fflush(stdout);
    shown.address = (uintptr_t)at;
    let_reach(channel, at, MEMORY, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &shown, sizeof shown, &shown.rkey);
}

static void connect_to(const char *address, const char *port, uint32_t outstanding) {
    struct rdma_event_channel *channel = rdma_create_event_channel();
    if (!channel) die("rdma_create_event_channel");
    id = reach(channel, address, port);
    struct ibv_pd *pd = ibv_alloc_pd(id->verbs);
    if (!pd || !(mr = ibv_reg_mr(pd, memory(), MEMORY, IBV_ACCESS_LOCAL_WRITE))) die("ibv_reg_mr");
    cq = ibv_create_cq(id->verbs, (int)outstanding, NULL, NULL, 0);
    struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
                                    .cap = {outstanding, 1, 1, 1, 0}};
    if (!cq || rdma_create_qp(id, pd, &attr)) die("rdma_create_qp");
    establish(channel, id, &shown, sizeof shown);
    if (!shown.rkey) die("what the server shows");
}

static void post(uint32_t bytes) {
    struct ibv_sge sge = {(uintptr_t)mr->addr, bytes, mr->lkey};
    struct ibv_send_wr request = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
                                  .send_flags = IBV_SEND_SIGNALED}, *bad;
    request.wr.rdma.remote_addr = shown.address, request.wr.rdma.rkey = shown.rkey;
    if (ibv_post_send(id->qp, &request, &bad)) die("ibv_post_send");
}

static void wait_until(uint64_t time) {
    struct timespec at = {(time_t)(time / 1000000000u), (long)(time % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) {
    }
}

/* Completions of a queue pair come in the order of its requests. */
static void load(uint32_t bytes, uint32_t outstanding, uint64_t pause) {
    uint64_t started[MOST_OUTSTANDING];
    uint32_t posted = 0, ended = 0;
    struct ibv_wc wc;
    int found;

    for (uint64_t time = now(); time < end_at || posted != ended; time = now()) {
        while (posted - ended < outstanding && time < end_at) {
            started[posted++ % outstanding] = time;
            post(bytes);
        }
        for (; (found = ibv_poll_cq(cq, 1, &wc)) == 1; ended++) {
            if (wc.status != IBV_WC_SUCCESS) {
                fprintf(stderr, "write_load: %s\n", ibv_wc_status_str(wc.status));
                exit(3);
            }
            record(started[ended % outstanding], now());
        }
        if (found < 0) die("the daemon has gone");
        if (pause && posted == ended) wait_until(now() + pause);
    }
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "serve")) serve(argv[2]);
    if (argc != 9) {
        fprintf(stderr, "usage: write_load serve PORT\n"
                        "       write_load ADDRESS PORT BYTES OUTSTANDING PAUSE_US BEGIN_NS WARM_UP SECONDS\n");
        return 2;
    }
    uint32_t bytes = (uint32_t)atoi(argv[3]), outstanding = (uint32_t)atoi(argv[4]);
    uint64_t pause = strtoull(argv[5], NULL, 0) * 1000;
    if (bytes < 1 || bytes > MEMORY || outstanding < 1 || outstanding > MOST_OUTSTANDING) return 2;
    connect_to(argv[1], argv[2], outstanding);
    begin_at = strtoull(argv[6], NULL, 0);
    double cpu = cpu_seconds();
    say_begin(0, atof(argv[8]));
    wait_until(begin_at - (uint64_t)(atof(argv[7]) * 1e9));
    load(bytes, outstanding, pause);
    return say_result(cpu_seconds() - cpu, &counted, 1);
}
