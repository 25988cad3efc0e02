/* Limits how many connections a second each IPv4 address may try to open: a token bucket for each source, in a map
 * where the addresses that were quiet longest make room for new ones. Other frames pass. */
#include "packet.h"

#define SECOND 1000000000ull

struct limit {
    __u32 per_second; /* 0: no limit */
    __u32 burst;      /* how many at once */
    __u64 passed;
    __u64 dropped;
};

/* A SYN costs SECOND credits, and each nanosecond of waiting earns `per_second` of them. */
struct bucket {
    __u64 credit;
    __u64 at; /* when it was last counted */
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct limit);
} limits SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 16384);
    __type(key, __be32);
    __type(value, struct bucket);
} sources SEC(".maps");

static __always_inline int first_syn(struct xdp_md *ctx, __be32 *source)
{
    struct iphdr *ip = ipv4(ctx);
    if (!ip)
        return 0;
    struct tcphdr *segment = tcp(ctx, ip);
    *source = ip->saddr;
    return segment && segment->syn && !segment->ack;
}

/* Takes one SYN's worth out of a source's bucket, if there is as much. Frames of one source may be on several replicas at
 * once; then a SYN more may pass, as the two see each other's half-done sums. */
static __always_inline int allowed(__be32 source, struct limit *limit)
{
    __u64 now = bpf_ktime_get_ns();
    __u64 most = limit->burst * SECOND;
    struct bucket *bucket = bpf_map_lookup_elem(&sources, &source);
    if (!bucket) {
        if (most < SECOND)
            return 0;
        struct bucket fresh = { .credit = most - SECOND, .at = now };
        bpf_map_update_elem(&sources, &source, &fresh, BPF_ANY);
        return 1;
    }
    __u64 waited = now - bucket->at;
    __u64 credit = most;
    if (limit->per_second && waited < most / limit->per_second) {
        credit = bucket->credit + waited * limit->per_second;
        if (credit > most)
            credit = most;
    }
    int good = credit >= SECOND;
    bucket->credit = good ? credit - SECOND : credit;
    bucket->at = now;
    return good;
}

SEC("xdp.frags")
int syn_limit(struct xdp_md *ctx)
{
    __be32 source;
    if (!first_syn(ctx, &source))
        return XDP_PASS;
    __u32 zero = 0;
    struct limit *limit = bpf_map_lookup_elem(&limits, &zero);
    if (!limit || !limit->per_second)
        return XDP_PASS;
    if (allowed(source, limit)) {
        __sync_fetch_and_add(&limit->passed, 1);
        return XDP_PASS;
    }
    __sync_fetch_and_add(&limit->dropped, 1);
    return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
