/* verbs.h: how the programs of verbs among these meet by librdmacm. */
#ifndef VERBS_H
#define VERBS_H

#include "program.h"
#include <rdma/rdma_cma.h>

/* The next event of a channel, which must be of this type. */
static inline struct rdma_cm_event *expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type) {
    struct rdma_cm_event *event;
    if (rdma_get_cm_event(channel, &event)) die("rdma_get_cm_event");
    if (event->event != type) {
        fprintf(stderr, "%s: %s\n", program_invocation_short_name, rdma_event_str(event->event));
        exit(3);
    }
    return event;
}

/* A channel with an identifier that listens on a port of any address. */
static inline struct rdma_event_channel *listen_for(const char *port) {
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    struct rdma_cm_id *listener;

    if (!channel || rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) ||
        rdma_bind_addr(listener, (struct sockaddr *)&any) || rdma_listen(listener, 64))
        die("rdma_listen");
    return channel;
}

/* An identifier whose way to an address is known. */
static inline struct rdma_cm_id *reach(struct rdma_event_channel *channel, const char *address, const char *port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    struct rdma_cm_id *id;

    inet_pton(AF_INET, address, &to.sin_addr);
    if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) ||
        rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 5000))
        die("rdma_resolve_addr");
    rdma_ack_cm_event(expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED));
    if (rdma_resolve_route(id, 5000)) die("rdma_resolve_route");
    rdma_ack_cm_event(expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED));
    return id;
}

/* Asks for a connection, and copies what the listener shows into `shown`, where it shows so many bytes. */
static inline void establish(struct rdma_event_channel *channel, struct rdma_cm_id *id, void *shown, size_t bytes) {
    struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 16, .retry_count = 7,
                                    .rnr_retry_count = 7};
    if (rdma_connect(id, &param)) die("rdma_connect");
    struct rdma_cm_event *event = expect(channel, RDMA_CM_EVENT_ESTABLISHED);
    if (event->param.conn.private_data_len >= bytes) memcpy(shown, event->param.conn.private_data, bytes);
    rdma_ack_cm_event(event);
}

/* Lets whoever connects reach memory with these rights, and shows them something of `bytes`, which has the key. */
static inline void let_reach(struct rdma_event_channel *channel, void *memory, size_t length, int access,
                             const void *shown, uint8_t bytes, uint32_t *key) {
    struct rdma_cm_event *event;
    struct ibv_pd *pd = NULL;

    while (!rdma_get_cm_event(channel, &event)) {
        struct rdma_cm_id *id = event->id;
        if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
            if (!pd) {
                struct ibv_mr *mr = (pd = ibv_alloc_pd(id->verbs)) ? ibv_reg_mr(pd, memory, length, access) : NULL;
                if (!mr) die("ibv_reg_mr");
                *key = mr->rkey;
            }
            struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};
            attr.send_cq = attr.recv_cq = ibv_create_cq(id->verbs, 2, NULL, NULL, 0);
            struct rdma_conn_param param = {.private_data = shown, .private_data_len = bytes,
                                            .responder_resources = 16, .initiator_depth = 1, .rnr_retry_count = 7};
            if (!attr.send_cq || rdma_create_qp(id, pd, &attr) || rdma_accept(id, &param)) die("rdma_accept");
        } else if (event->event == RDMA_CM_EVENT_DISCONNECTED) {
            rdma_disconnect(id);
        }
        rdma_ack_cm_event(event);
    }
}

#endif
