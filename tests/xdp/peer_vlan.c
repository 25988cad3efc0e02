/* The kernel's end of a link whose frames all carry VLAN tag 42: kernels without 8021q take part by this, too. What comes
 * without the tag is dropped. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

SEC("tc/egress")
int tag(struct __sk_buff *skb)
{
    return bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), 42) ? TC_ACT_SHOT : TC_ACT_OK;
}

SEC("tc/ingress")
int untag(struct __sk_buff *skb)
{
    if (!skb->vlan_present || (skb->vlan_tci & 0xfff) != 42)
        return TC_ACT_SHOT;
    return bpf_skb_vlan_pop(skb) ? TC_ACT_SHOT : TC_ACT_OK;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
