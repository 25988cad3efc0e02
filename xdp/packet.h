/* Finding headers in a frame, for all modules here. */
#ifndef OPENTOE_PACKET_H
#define OPENTOE_PACKET_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define IP_FRAGMENT 0x3fff /* more fragments, or an offset */

struct vlan {
    __be16 tag; /* priority and number */
    __be16 type;
};

static __always_inline void *start(struct xdp_md *ctx)
{
    return (void *)(long)ctx->data;
}

static __always_inline void *end(struct xdp_md *ctx)
{
    return (void *)(long)ctx->data_end;
}

/* The IPv4 header, behind a VLAN tag or not; null where the frame carries something else. */
static __always_inline struct iphdr *ipv4(struct xdp_md *ctx)
{
    struct ethhdr *eth = start(ctx);
    if ((void *)(eth + 1) > end(ctx))
        return 0;
    __be16 type = eth->h_proto;
    void *next = eth + 1;
    if (type == bpf_htons(ETH_P_8021Q)) {
        struct vlan *vlan = next;
        if ((void *)(vlan + 1) > end(ctx))
            return 0;
        type = vlan->type;
        next = vlan + 1;
    }
    struct iphdr *ip = next;
    if (type != bpf_htons(ETH_P_IP) || (void *)(ip + 1) > end(ctx))
        return 0;
    return ip->version == 4 && ip->ihl >= 5 ? ip : 0;
}

/* The TCP header behind an IPv4 header; null where there is none, or only a part of a fragment. */
static __always_inline struct tcphdr *tcp(struct xdp_md *ctx, struct iphdr *ip)
{
    if (ip->protocol != IPPROTO_TCP || (ip->frag_off & bpf_htons(IP_FRAGMENT)))
        return 0;
    struct tcphdr *tcp = (void *)ip + ip->ihl * 4;
    return (void *)(tcp + 1) > end(ctx) ? 0 : tcp;
}

#endif
