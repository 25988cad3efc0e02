//! The helpers that a module may call: numbers, names and arguments as in linux/bpf.h.

/// An argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arg {
    /// There is none, or it is not read.
    None,
    /// A number.
    Number,
    /// The program's context.
    Context,
    /// A map with keys.
    Map,
    /// A ring buffer.
    Ring,
    /// Memory with a key of the map before.
    Key,
    /// Memory with a value of the map before.
    Value,
    /// Memory that is read; the next argument is its size.
    Read,
    /// The same; null where the size is zero.
    ReadOrNull,
    /// Memory that is written; the next argument is its size.
    Write,
    /// The size of the memory before.
    Size,
    /// A number that the program fixes.
    Fixed,
    /// A record of a ring buffer, which is given back.
    Record,
}

/// What a helper returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Returns {
    Number,
    ValueOrNull,
    RecordOrNull,
}

/// Its number, for the interpreter and the compiler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Name {
    MapLookup,
    MapUpdate,
    MapDelete,
    Time,
    Print,
    Random,
    Processor,
    Redirect,
    ChecksumDifference,
    AdjustHead,
    AdjustMeta,
    AdjustTail,
    RingOutput,
    RingReserve,
    RingSubmit,
    RingDiscard,
    FrameLength,
    LoadBytes,
    StoreBytes,
}

impl Name {
    pub(crate) const ALL: [Name; 19] = [
        Name::MapLookup,
        Name::MapUpdate,
        Name::MapDelete,
        Name::Time,
        Name::Print,
        Name::Random,
        Name::Processor,
        Name::Redirect,
        Name::ChecksumDifference,
        Name::AdjustHead,
        Name::AdjustMeta,
        Name::AdjustTail,
        Name::RingOutput,
        Name::RingReserve,
        Name::RingSubmit,
        Name::RingDiscard,
        Name::FrameLength,
        Name::LoadBytes,
        Name::StoreBytes,
    ];
}

pub(crate) struct Helper {
    pub id: u32,
    pub name: Name,
    pub text: &'static str,
    pub args: [Arg; 5],
    pub returns: Returns,
    /// The packet may lie elsewhere afterwards: pointers to it are void.
    pub moves_packet: bool,
}

const fn helper(id: u32, name: Name, text: &'static str, args: [Arg; 5], returns: Returns) -> Helper {
    let moves_packet = matches!(name, Name::AdjustHead | Name::AdjustMeta | Name::AdjustTail);
    Helper { id, name, text, args, returns, moves_packet }
}

use Arg::{Context, Fixed, Key, Map, None as No, Number as Num, Read, ReadOrNull, Record, Ring, Size, Value, Write};
use Returns::{Number, RecordOrNull, ValueOrNull};

const HELPERS: &[Helper] = &[
    helper(1, Name::MapLookup, "map_lookup_elem", [Map, Key, No, No, No], ValueOrNull),
    helper(2, Name::MapUpdate, "map_update_elem", [Map, Key, Value, Num, No], Number),
    helper(3, Name::MapDelete, "map_delete_elem", [Map, Key, No, No, No], Number),
    helper(5, Name::Time, "ktime_get_ns", [No; 5], Number),
    helper(6, Name::Print, "trace_printk", [Read, Size, No, No, No], Number),
    helper(7, Name::Random, "get_prandom_u32", [No; 5], Number),
    helper(8, Name::Processor, "get_smp_processor_id", [No; 5], Number),
    helper(23, Name::Redirect, "redirect", [Num, Num, No, No, No], Number),
    helper(28, Name::ChecksumDifference, "csum_diff", [ReadOrNull, Size, ReadOrNull, Size, Num], Number),
    helper(44, Name::AdjustHead, "xdp_adjust_head", [Context, Num, No, No, No], Number),
    helper(54, Name::AdjustMeta, "xdp_adjust_meta", [Context, Num, No, No, No], Number),
    helper(65, Name::AdjustTail, "xdp_adjust_tail", [Context, Num, No, No, No], Number),
    helper(125, Name::Time, "ktime_get_boot_ns", [No; 5], Number),
    helper(130, Name::RingOutput, "ringbuf_output", [Ring, Read, Size, Num, No], Number),
    helper(131, Name::RingReserve, "ringbuf_reserve", [Ring, Fixed, Num, No, No], RecordOrNull),
    helper(132, Name::RingSubmit, "ringbuf_submit", [Record, Num, No, No, No], Number),
    helper(133, Name::RingDiscard, "ringbuf_discard", [Record, Num, No, No, No], Number),
    helper(160, Name::Time, "ktime_get_coarse_ns", [No; 5], Number),
    helper(188, Name::FrameLength, "xdp_get_buff_len", [Context, No, No, No, No], Number),
    helper(189, Name::LoadBytes, "xdp_load_bytes", [Context, Num, Write, Size, No], Number),
    helper(190, Name::StoreBytes, "xdp_store_bytes", [Context, Num, Read, Size, No], Number),
];

pub(crate) fn find(id: u32) -> Option<&'static Helper> {
    HELPERS.iter().find(|helper| helper.id == id)
}

/// Helpers of the kernel that programs ask for and that are not here; for the sentence.
pub(crate) fn name(id: u32) -> String {
    let known = match id {
        4 => "probe_read",
        12 => "tail_call",
        25 => "perf_event_output",
        51 => "redirect_map",
        69 => "fib_lookup",
        84 => "sk_lookup_tcp",
        93 => "spin_lock",
        113 => "probe_read_kernel",
        163 => "check_mtu",
        164 => "for_each_map_elem",
        177 => "trace_vprintk",
        181 => "loop",
        195 => "map_lookup_percpu_elem",
        201 => "dynptr_read",
        204 => "tcp_raw_gen_syncookie_ipv4",
        _ => return format!("number {id}"),
    };
    format!("{known} (number {id})")
}
