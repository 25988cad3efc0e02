/* splice: joins two TCP connections of this host into one path (FlexTOE listing 1; thesis section 4.3.3).
 *
 * The control plane enters both directions of a pair: `splices` has for the four-tuple on which segments come in what
 * they become. Numbers, timestamps, SACK blocks and windows are translated; ECN and payload stay as they are. Segments
 * that open, close or reset a connection take their direction out of the map and go to the control plane, which also
 * gets what cannot be translated here. crates/wire/src/translate.rs is the same arithmetic for those.
 *
 * Checksums are the engine's (docs/MODULES.md). Page: docs/xdp/splice.md.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* Directions: two for each pair. */
#define DIRECTIONS 16384

/* As they stand in the segment that comes in. */
struct splice_key {
    __be32 saddr, daddr;
    __be16 sport, dport;
};

struct splice {
    __u8 dst_mac[6], src_mac[6];    /* next hop, this host */
    __be32 saddr, daddr;
    __be16 sport, dport;
    __u32 seq, ack;                 /* added; `ack` also to the edges of SACK blocks */
    __u32 tsval, tsecr;             /* added */
    __u8 window_in, window_out;     /* shifts */
    __u8 flags;
    __u8 unused;
    __u32 direction;                /* its entry in `splice_seen` */
};

/* In splice.flags: the receiver takes this option. */
#define TIMESTAMPS 1
#define SACK 2

/* What was seen of a direction, for statistics and for judging what ends it. */
struct splice_seen {
    __u64 segments, bytes;
    __u32 next, ack;                /* after the latest segment's last byte; its acknowledgement */
    __u32 window;                   /* bytes */
    __u32 unused;
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, DIRECTIONS);
    __type(key, struct splice_key);
    __type(value, struct splice);
} splices SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, DIRECTIONS);
    __type(key, __u32);
    __type(value, struct splice_seen);
} splice_seen SEC(".maps");

/* linux/tcp.h has bit fields; these are the bytes. */
struct tcp {
    __be16 source, dest;
    __be32 seq, ack;
    __u8 offset, flags;
    __be16 window, checksum, urgent;
};

#define FIN 0x01
#define SYN 0x02
#define RST 0x04
#define ACK 0x10

#define IP_FRAGMENT 0x3fff          /* more fragments, or not the first */
#define MOST_OPTIONS 12             /* single NOPs counted; more go to the control plane */

struct headers {
    struct ethhdr eth;
    struct iphdr ip;
    struct tcp tcp;
} __attribute__((packed));

/* The bytes of options that RFC 7323 appendix A recommends, and nearly everybody sends. */
struct stamps {
    __u8 nop[2], kind, len;
    __be32 value, echo;
} __attribute__((packed));

/* Where in the TCP header the options begin that have numbers in them; 0 for none. */
struct found {
    __u32 stamps, sack, blocks;
};

static __always_inline __be32 plus(__be32 number, __u32 more)
{
    return bpf_htonl(bpf_ntohl(number) + more);
}

/* Finds the options. Nonzero where one is none that can be translated for this receiver. */
static __always_inline int find(__u8 *tcp, __u32 end, void *data_end, __u8 wanted, struct found *found)
{
    __u32 at = sizeof(struct tcp);
    for (int i = 0; i < MOST_OPTIONS; i++) {
        if (at >= end || at > 58) return at > end;
        __u8 *option = tcp + at;
        if ((void *)(option + 2) > data_end) return 1;
        __u8 kind = option[0], len = option[1];
        if (kind == 0) return 0;
        if (kind == 1) {
            at += 1;
            continue;
        }
        if (kind == 8 && len == 10 && (wanted & TIMESTAMPS)) {
            found->stamps = at;
        } else if (kind == 5 && (len == 10 || len == 18 || len == 26 || len == 34) && (wanted & SACK)) {
            found->sack = at;
            found->blocks = len >> 3;
        } else {
            return 1;
        }
        if (at + len > end) return 1;
        at += len;
    }
    return at < end;
}

/* Translates two numbers that stand beside each other. */
static __always_inline int add_pair(__u8 *tcp, __u32 at, void *data_end, __u32 first, __u32 second)
{
    if (at > 52) return 1;
    struct pair {
        __be32 first, second;
    } __attribute__((packed)) *pair = (void *)(tcp + at);
    if ((void *)(pair + 1) > data_end) return 1;
    pair->first = plus(pair->first, first);
    pair->second = plus(pair->second, second);
    return 0;
}

/* Translates the options; nonzero, with nothing changed, where that cannot be done here. */
static __always_inline int translate_options(struct headers *h, __u32 len, void *data_end, const struct splice *splice)
{
    __u8 *tcp = (__u8 *)&h->tcp;
    struct stamps *usual = (void *)(h + 1);
    if (len == sizeof(struct tcp)) return 0;
    if (len == sizeof(struct tcp) + sizeof *usual && (void *)(usual + 1) <= data_end &&
        *(__u32 *)usual == bpf_htonl(0x0101080a) && (splice->flags & TIMESTAMPS)) {
        usual->value = plus(usual->value, splice->tsval);
        usual->echo = plus(usual->echo, splice->tsecr);
        return 0;
    }
    struct found found = {};
    if (find(tcp, len, data_end, splice->flags, &found)) return 1;
    if (found.stamps && add_pair(tcp, found.stamps + 2, data_end, splice->tsval, splice->tsecr)) return 1;
    for (__u32 i = 0; i < 4; i++) {
        if (i >= found.blocks) break;
        if (add_pair(tcp, found.sack + 2 + 8 * i, data_end, splice->ack, splice->ack)) return 1;
    }
    return 0;
}

/* Translates the headers that every segment has. */
static __always_inline void translate_headers(struct headers *h, const struct splice *splice)
{
    __builtin_memcpy(h->eth.h_dest, splice->dst_mac, 6);
    __builtin_memcpy(h->eth.h_source, splice->src_mac, 6);
    h->ip.saddr = splice->saddr;
    h->ip.daddr = splice->daddr;
    h->ip.ttl--;
    h->tcp.source = splice->sport;
    h->tcp.dest = splice->dport;
    h->tcp.seq = plus(h->tcp.seq, splice->seq);
    h->tcp.ack = plus(h->tcp.ack, splice->ack);
    __u32 window = ((__u32)bpf_ntohs(h->tcp.window) << (splice->window_in & 15)) >> (splice->window_out & 15);
    h->tcp.window = bpf_htons(window > 0xffff ? 0xffff : window);
}

/* Notes this segment's fields, as it came in. */
static __always_inline void note(const struct headers *h, const struct splice *splice, __u32 payload)
{
    __u32 direction = splice->direction;
    struct splice_seen *seen = bpf_map_lookup_elem(&splice_seen, &direction);
    if (!seen) return;
    __sync_fetch_and_add(&seen->segments, 1);
    __sync_fetch_and_add(&seen->bytes, payload);
    seen->next = bpf_ntohl(h->tcp.seq) + payload;
    seen->ack = bpf_ntohl(h->tcp.ack);
    seen->window = (__u32)bpf_ntohs(h->tcp.window) << (splice->window_in & 15);
}

static __always_inline int same_mac(const __u8 *a, const __u8 *b)
{
    return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3] && a[4] == b[4] && a[5] == b[5];
}

SEC("xdp.frags")
int splice(struct xdp_md *ctx)
{
    void *data_end = (void *)(long)ctx->data_end;
    struct headers *h = (void *)(long)ctx->data;
    if ((void *)(h + 1) > data_end) return XDP_PASS;
    if (h->eth.h_proto != bpf_htons(ETH_P_IP) || *(__u8 *)&h->ip != 0x45 || h->ip.protocol != IPPROTO_TCP ||
        (h->ip.frag_off & bpf_htons(IP_FRAGMENT)))
        return XDP_PASS;

    struct splice_key key = {h->ip.saddr, h->ip.daddr, h->tcp.source, h->tcp.dest};
    struct splice *splice = bpf_map_lookup_elem(&splices, &key);
    if (!splice || !same_mac(h->eth.h_dest, splice->src_mac)) return XDP_PASS;

    if (h->tcp.flags & (SYN | FIN | RST)) {
        bpf_map_delete_elem(&splices, &key);
        return XDP_REDIRECT;
    }
    __u32 len = (h->tcp.offset >> 4) * 4, all = sizeof h->ip + len, total = bpf_ntohs(h->ip.tot_len);
    if (!(h->tcp.flags & ACK) || h->ip.ttl <= 1 || len < sizeof h->tcp || total < all) return XDP_REDIRECT;
    if ((void *)((__u8 *)&h->tcp + len) > data_end) return XDP_REDIRECT;
    if (translate_options(h, len, data_end, splice)) return XDP_REDIRECT;
    note(h, splice, total - all);
    translate_headers(h, splice);
    return XDP_TX;
}

/* Where the kernel loads it. */
char LICENSE[] SEC("license") = "Dual MIT/GPL";
