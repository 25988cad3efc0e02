/* Puts the VLAN tag of `config` on frames that leave and have none. */
#include "packet.h"

struct config {
    __u16 tag; /* priority << 13 | network; 0: no tag is put on */
    __u16 padding[3];
    __u64 pushed;
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct config);
} config SEC(".maps");

SEC("xdp.frags/devmap")
int vlan_push(struct xdp_md *ctx)
{
    struct ethhdr *eth = start(ctx);
    __u32 zero = 0;
    struct config *wanted = bpf_map_lookup_elem(&config, &zero);
    if (!wanted || !wanted->tag || (void *)(eth + 1) > end(ctx) || eth->h_proto == bpf_htons(ETH_P_8021Q))
        return XDP_PASS;
    if (bpf_xdp_adjust_head(ctx, -(int)sizeof(struct vlan)))
        return XDP_ABORTED;

    eth = start(ctx);
    struct vlan *vlan = (void *)(eth + 1);
    if ((void *)(vlan + 1) > end(ctx))
        return XDP_ABORTED;
    struct ethhdr kept;
    __builtin_memcpy(&kept, (void *)eth + sizeof *vlan, 2 * ETH_ALEN);
    __builtin_memcpy(eth, &kept, 2 * ETH_ALEN);
    eth->h_proto = bpf_htons(ETH_P_8021Q);
    vlan->tag = bpf_htons(wanted->tag);
    __sync_fetch_and_add(&wanted->pushed, 1);
    return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
