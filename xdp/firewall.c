/* Drops IPv4 frames by their source address. The longest prefix in `rules` that matches decides; without one a frame
 * passes. Each rule counts its frames. Rules change while frames flow; see docs/xdp/firewall.md. */
#include "packet.h"

struct prefix {
    __u32 bits;
    __be32 source;
};

enum action { PASS, DROP };

struct rule {
    __u32 action; /* enum action */
    __u32 padding;
    __u64 frames;
};

struct {
    __uint(type, BPF_MAP_TYPE_LPM_TRIE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 4096);
    __type(key, struct prefix);
    __type(value, struct rule);
} rules SEC(".maps");

SEC("xdp.frags")
int firewall(struct xdp_md *ctx)
{
    struct iphdr *ip = ipv4(ctx);
    if (!ip)
        return XDP_PASS;
    struct prefix key = { .bits = 32, .source = ip->saddr };
    struct rule *rule = bpf_map_lookup_elem(&rules, &key);
    if (!rule)
        return XDP_PASS;
    __sync_fetch_and_add(&rule->frames, 1);
    return rule->action == DROP ? XDP_DROP : XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
