/* meet serve PORT COUNT | meet call ADDRESS PORT WORD [SOURCE]: connections by librdmacm, to see which device has them.
 *
 * The server listens on a port of any address, and prints for each request the device that it came to and its word. It
 * answers COUNT requests: those with the word "no" by a refusal, others by a connection over which it sends its word.
 * The client prints its device, and the private data of the answer. */
#define _GNU_SOURCE
#include "verbs.h"
#include <stdbool.h>

enum { WORD = 32 };

/* A word, as private data: as long as it is, without the last zero. */
static struct rdma_conn_param saying(const char *word) {
    struct rdma_conn_param param = {.private_data = word, .private_data_len = (uint8_t)strlen(word),
                                    .responder_resources = 1, .initiator_depth = 1, .retry_count = 7,
                                    .rnr_retry_count = 7};
    return param;
}

/* Private data of an event. It may be longer than what the peer gave; the rest is zeros. */
static void private_data(const struct rdma_cm_event *event, char word[WORD + 1]) {
    size_t bytes = event->param.conn.private_data_len;
    memset(word, 0, WORD + 1);
    if (event->param.conn.private_data) memcpy(word, event->param.conn.private_data, bytes < WORD ? bytes : WORD);
}

static void with_queues(struct rdma_cm_id *id) {
    struct ibv_qp_init_attr queues = {.cap = {.max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1},
                                      .qp_type = IBV_QPT_RC};
    if (rdma_create_qp(id, NULL, &queues)) die("rdma_create_qp");
}

/* Sends a word, or receives one, in the way of the queue pair's own completion queues. */
static void exchange(struct rdma_cm_id *id, char word[WORD], bool sends) {
    struct ibv_wc done;
    int count;
    struct ibv_mr *memory = ibv_reg_mr(id->pd, word, WORD, IBV_ACCESS_LOCAL_WRITE);
    if (!memory) die("ibv_reg_mr");
    struct ibv_sge piece = {.addr = (uintptr_t)word, .length = WORD, .lkey = memory->lkey};
    struct ibv_send_wr send = {.sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
    struct ibv_recv_wr receive = {.sg_list = &piece, .num_sge = 1};
    struct ibv_send_wr *bad_send;
    struct ibv_recv_wr *bad_receive;
    if (sends ? ibv_post_send(id->qp, &send, &bad_send) : ibv_post_recv(id->qp, &receive, &bad_receive)) die("post");
    while (!(count = ibv_poll_cq(sends ? id->send_cq : id->recv_cq, 1, &done)));
    if (count < 0 || done.status) {
        fprintf(stderr, "meet: a work request failed: %s\n", ibv_wc_status_str(done.status));
        exit(3);
    }
    ibv_dereg_mr(memory);
}

static void serve(const char *port, int count) {
    struct rdma_event_channel *channel = listen_for(port);
    while (count > 0) {
        struct rdma_cm_event *event;
        char word[WORD + 1];
        if (rdma_get_cm_event(channel, &event)) die("rdma_get_cm_event");
        struct rdma_cm_id *id = event->id;
        enum rdma_cm_event_type type = event->event;
        private_data(event, word);
        rdma_ack_cm_event(event);
        if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
            const char *device = ibv_get_device_name(id->verbs->device);
            printf("%s: %s\n", device, word);
            fflush(stdout);
            if (!strcmp(word, "no")) {
                if (rdma_reject(id, device, (uint8_t)strlen(device))) die("rdma_reject");
                rdma_destroy_id(id);
                count--;
                continue;
            }
            struct rdma_conn_param answer = saying(device);
            with_queues(id);
            if (rdma_accept(id, &answer)) die("rdma_accept");
        } else if (type == RDMA_CM_EVENT_ESTABLISHED) {
            char own[WORD] = "from ";
            strncat(own, ibv_get_device_name(id->verbs->device), sizeof own - strlen(own) - 1);
            exchange(id, own, true);
            /* The peer has it all: it waits for this, so that it is there as long as something is sent again. */
            if (rdma_disconnect(id)) die("rdma_disconnect");
        } else if (type == RDMA_CM_EVENT_DISCONNECTED) {
            rdma_destroy_qp(id);
            rdma_destroy_id(id);
            count--;
        }
    }
}

/* As `reach` has it, from an address of one's own where one is named. */
static struct rdma_cm_id *from(struct rdma_event_channel *channel, const char *address, const char *port,
                               const char *own) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    struct sockaddr_in source = {.sin_family = AF_INET};
    struct rdma_cm_id *id;
    inet_pton(AF_INET, address, &to.sin_addr);
    if (!own) return reach(channel, address, port);
    inet_pton(AF_INET, own, &source.sin_addr);
    if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) ||
        rdma_resolve_addr(id, (struct sockaddr *)&source, (struct sockaddr *)&to, 5000))
        die("rdma_resolve_addr");
    rdma_ack_cm_event(expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED));
    if (rdma_resolve_route(id, 5000)) die("rdma_resolve_route");
    rdma_ack_cm_event(expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED));
    return id;
}

static void call(const char *address, const char *port, const char *word, const char *own) {
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_event *event;
    char answer[WORD + 1], received[WORD] = "";
    if (!channel) die("rdma_create_event_channel");
    struct rdma_cm_id *id = from(channel, address, port, own);
    struct rdma_conn_param param = saying(word);
    with_queues(id);
    if (rdma_connect(id, &param)) die("rdma_connect");
    if (rdma_get_cm_event(channel, &event)) die("rdma_get_cm_event");
    private_data(event, answer);
    bool is_there = event->event == RDMA_CM_EVENT_ESTABLISHED;
    if (!is_there && event->event != RDMA_CM_EVENT_REJECTED) {
        fprintf(stderr, "meet: %s\n", rdma_event_str(event->event));
        exit(3);
    }
    rdma_ack_cm_event(event);
    if (is_there) exchange(id, received, false);
    printf("%s: %s %s %s\n", ibv_get_device_name(id->verbs->device), is_there ? "accepted by" : "refused by", answer,
           received);
    if (is_there) {
        rdma_ack_cm_event(expect(channel, RDMA_CM_EVENT_DISCONNECTED));
        if (rdma_disconnect(id)) die("rdma_disconnect");
    }
    rdma_destroy_qp(id);
    rdma_destroy_id(id);
}

int main(int argc, char **argv) {
    if (argc == 4 && !strcmp(argv[1], "serve")) {
        serve(argv[2], atoi(argv[3]));
        return 0;
    }
    if ((argc == 5 || argc == 6) && !strcmp(argv[1], "call")) {
        call(argv[2], argv[3], argv[4], argv[5]);
        return 0;
    }
    fprintf(stderr, "usage: meet serve PORT COUNT | meet call ADDRESS PORT WORD [SOURCE]\n");
    return 2;
}
