/* Fails on every frame: nothing gets through, and it must be possible to take it out again. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("xdp.frags")
int abort_all(struct xdp_md *ctx)
{
    return XDP_ABORTED;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
