/* Takes the VLAN tag (IEEE 802.1Q) off received frames; only of the network in `config`, where that has one. What was
 * taken off is left in the frame's metadata for later modules: 0x8100 above, the tag below. */
#include "packet.h"

struct config {
    __u32 only; /* the network to strip, 1 to 4094; 0: every one */
    __u32 padding;
    __u64 stripped;
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct config);
} config SEC(".maps");

SEC("xdp.frags")
int vlan_strip(struct xdp_md *ctx)
{
    struct ethhdr *eth = start(ctx);
    struct vlan *vlan = (void *)(eth + 1);
    if ((void *)(vlan + 1) > end(ctx) || eth->h_proto != bpf_htons(ETH_P_8021Q))
        return XDP_PASS;
    __u32 zero = 0;
    struct config *wanted = bpf_map_lookup_elem(&config, &zero);
    __u16 tag = bpf_ntohs(vlan->tag);
    if (!wanted || (wanted->only && wanted->only != (tag & 0xfff)))
        return XDP_PASS;

    /* The addresses move up to the type behind the tag. */
    struct ethhdr kept;
    __builtin_memcpy(&kept, eth, 2 * ETH_ALEN);
    __builtin_memcpy((void *)eth + sizeof *vlan, &kept, 2 * ETH_ALEN);
    if (bpf_xdp_adjust_head(ctx, sizeof *vlan))
        return XDP_ABORTED;
    __sync_fetch_and_add(&wanted->stripped, 1);

    if (!bpf_xdp_adjust_meta(ctx, -4)) {
        __u32 *meta = (void *)(long)ctx->data_meta;
        if ((void *)(meta + 1) <= start(ctx))
            *meta = ETH_P_8021Q << 16 | tag;
    }
    return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
