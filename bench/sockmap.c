/* sockmap.c: TCP over the kernel's loopback without its TCP. What a socket sends goes straight into the receive queue of the
 * socket at the other end, as proxies and meshes do it. For `opentoe bench echo --linux sockmap`. */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* Ports of an end: its own, its peer's. All connections are between addresses of one namespace. */
struct ends {
    __u32 own, peer;
};

struct {
    __uint(type, BPF_MAP_TYPE_SOCKHASH);
    __uint(max_entries, 65536);
    __type(key, struct ends);
    __type(value, __u32);
} sockets SEC(".maps");

/* A connection is there: both of its ends come by. */
SEC("sockops")
int enter(struct bpf_sock_ops *ops) {
    if (ops->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB || ops->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB) {
        struct ends ends = {.own = ops->local_port, .peer = bpf_ntohl(ops->remote_port)};
        bpf_sock_hash_update(ops, &sockets, &ends, BPF_NOEXIST);
    }
    return 0;
}

/* Without the other end in the map, the kernel's TCP carries the message. */
SEC("sk_msg")
int redirect(struct sk_msg_md *message) {
    struct ends other = {.own = bpf_ntohl(message->remote_port), .peer = message->local_port};
    bpf_msg_redirect_hash(message, &sockets, &other, BPF_F_INGRESS);
    return SK_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
