/* Counts frames and bytes by class. A rule in `rules` names the class of a protocol and port, searched by the
 * destination's port first, then by the source's, then by the protocol alone (port 0); what no rule names is class
 * 0. */
#include "packet.h"
#include <linux/udp.h>

#define CLASSES 64

struct flow_kind {
    __u16 port; /* as people write it; 0: any */
    __u8 protocol;
    __u8 padding;
};

struct total {
    __u64 frames;
    __u64 bytes;
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1024);
    __type(key, struct flow_kind);
    __type(value, __u32);
} rules SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, CLASSES);
    __type(key, __u32);
    __type(value, struct total);
} classes SEC(".maps");

static __always_inline __u32 class_of(struct xdp_md *ctx)
{
    struct iphdr *ip = ipv4(ctx);
    if (!ip)
        return 0;
    struct flow_kind kind = { .protocol = ip->protocol };
    __u32 *class;
    if ((ip->protocol == IPPROTO_TCP || ip->protocol == IPPROTO_UDP) && !(ip->frag_off & bpf_htons(IP_FRAGMENT))) {
        /* Both begin with the ports. */
        struct udphdr *ports = (void *)ip + ip->ihl * 4;
        if ((void *)(ports + 1) > end(ctx))
            return 0;
        kind.port = bpf_ntohs(ports->dest);
        class = bpf_map_lookup_elem(&rules, &kind);
        if (class)
            return *class;
        kind.port = bpf_ntohs(ports->source);
        class = bpf_map_lookup_elem(&rules, &kind);
        if (class)
            return *class;
        kind.port = 0;
    }
    class = bpf_map_lookup_elem(&rules, &kind);
    return class ? *class : 0;
}

SEC("xdp.frags")
int classify(struct xdp_md *ctx)
{
    __u32 class = class_of(ctx);
    struct total *total = bpf_map_lookup_elem(&classes, &class);
    if (total) {
        total->frames++;
        total->bytes += bpf_xdp_get_buff_len(ctx);
    }
    return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
