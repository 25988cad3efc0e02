//! Interface between generated code and the runtime: the layout of one pass's memory, and the functions that generated
//! code calls. The only unsafe code of the crate is here and in `code`.
#![allow(unsafe_code)]

use super::entry_layout;
use super::tables::{Memory, View};
use crate::interp::hash;
use crate::ir::{Gress, Program, Ty};
use crate::meter::Meters;
use crate::ops;
use std::mem::offset_of;

/// Copies that one pass can make.
pub(super) const MOST_MIRRORS: usize = 4;
/// Bytes that a mirror puts in front of its copy at most: the hardware's limit.
pub(super) const MOST_SIDE_BYTES: usize = 48;

/// A copy that a mirror made.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct MirrorOut {
    pub session: u64,
    pub len: u64,
    pub bytes: [u8; MOST_SIDE_BYTES],
}

/// Memory of one pass. Pointers lead to what the [`super::Native`] owns, and are made anew when that changes.
#[repr(C)]
pub(super) struct Context {
    pub packet: *const u8,
    pub len: u64,
    pub length: u64,
    pub port: u64,
    pub queue: u64,
    pub now: u64,
    /// Room for all headers that the deparser may emit.
    pub head: *mut u8,
    pub registers: *const u64,
    pub counters: *const u64,
    pub defaults: *const u64,
    pub views: *const View,
    pub tables: *const Memory,
    pub meters: *mut Meters,
    pub program: *const Program,
    pub random: u64,
    pub head_len: u64,
    pub payload_at: u64,
    pub port_set: u64,
    pub out: [u64; 6],
    pub mirror_count: u64,
    pub mirrors: [MirrorOut; MOST_MIRRORS],
}

// SAFETY: all that the pointers lead to is owned by the `Native` that owns this, goes along with it to another thread,
// and is used by passes only, for which the `Native` is borrowed.
unsafe impl Send for Context {}
// SAFETY: likewise.
unsafe impl Send for View {}

impl Context {
    pub(super) fn new(random: u64) -> Box<Context> {
        Box::new(Context {
            packet: std::ptr::null(),
            len: 0,
            length: 0,
            port: 0,
            queue: 0,
            now: 0,
            head: std::ptr::null_mut(),
            registers: std::ptr::null(),
            counters: std::ptr::null(),
            defaults: std::ptr::null(),
            views: std::ptr::null(),
            tables: std::ptr::null(),
            meters: std::ptr::null_mut(),
            program: std::ptr::null(),
            random,
            head_len: 0,
            payload_at: 0,
            port_set: 0,
            out: [0; 6],
            mirror_count: 0,
            mirrors: [MirrorOut { session: 0, len: 0, bytes: [0; MOST_SIDE_BYTES] }; MOST_MIRRORS],
        })
    }
}

/// What a joined pass answers for a packet that went through both halves; below is what a half answers.
pub(super) const CROSSED: u64 = 2;

/// Values that the caller gives.
#[derive(Clone, Copy)]
pub(super) enum In {
    Packet,
    Len,
    Length,
    Port,
    Queue,
    Now,
    Head,
}

impl In {
    pub(super) fn offset(self) -> i32 {
        let at = match self {
            In::Packet => offset_of!(Context, packet),
            In::Len => offset_of!(Context, len),
            In::Length => offset_of!(Context, length),
            In::Port => offset_of!(Context, port),
            In::Queue => offset_of!(Context, queue),
            In::Now => offset_of!(Context, now),
            In::Head => offset_of!(Context, head),
        };
        at as i32
    }
}

pub(super) const REGISTERS: i32 = offset_of!(Context, registers) as i32;
pub(super) const COUNTERS: i32 = offset_of!(Context, counters) as i32;
pub(super) const DEFAULTS: i32 = offset_of!(Context, defaults) as i32;
pub(super) const VIEWS: i32 = offset_of!(Context, views) as i32;
pub(super) const VIEW_SIZE: usize = size_of::<View>();
pub(super) const VIEW_SLOTS: i32 = offset_of!(View, slots) as i32;
pub(super) const VIEW_LIMIT: i32 = offset_of!(View, limit) as i32;
pub(super) const VIEW_ENTRIES: i32 = offset_of!(View, entries) as i32;
pub(super) const VIEW_DEFAULT: i32 = offset_of!(View, default) as i32;
pub(super) const RANDOM: i32 = offset_of!(Context, random) as i32;
pub(super) const HEAD_LEN: i32 = offset_of!(Context, head_len) as i32;
pub(super) const PAYLOAD_AT: i32 = offset_of!(Context, payload_at) as i32;
pub(super) const PORT_SET: i32 = offset_of!(Context, port_set) as i32;
pub(super) const MIRROR_COUNT: i32 = offset_of!(Context, mirror_count) as i32;
pub(super) const MIRRORS: i32 = offset_of!(Context, mirrors) as i32;
pub(super) const MIRROR_SIZE: usize = size_of::<MirrorOut>();
pub(super) const MIRROR_SESSION: i32 = offset_of!(MirrorOut, session) as i32;
pub(super) const MIRROR_LEN: i32 = offset_of!(MirrorOut, len) as i32;
pub(super) const MIRROR_BYTES: i32 = offset_of!(MirrorOut, bytes) as i32;

/// Places in [`Context::out`].
pub(super) const OUT_DROP: usize = 0;
pub(super) const OUT_PORT: usize = 1;
pub(super) const OUT_QUEUE: usize = 2;
pub(super) const OUT_BYPASS: usize = 3;
pub(super) const OUT_MIRROR_PORT: usize = 4;
pub(super) const OUT_MIRROR_QUEUE: usize = 5;

/// Where a place of [`Context::out`] is.
pub(super) const fn out(place: usize) -> i32 {
    offset_of!(Context, out) as i32 + place as i32 * 8
}

const INGRESS: [(&str, i32); 4] = [
    ("ingress_intrinsic_metadata_for_deparser_t.drop_ctl", out(OUT_DROP)),
    ("ingress_intrinsic_metadata_for_tm_t.ucast_egress_port", out(OUT_PORT)),
    ("ingress_intrinsic_metadata_for_tm_t.qid", out(OUT_QUEUE)),
    ("ingress_intrinsic_metadata_for_tm_t.bypass_egress", out(OUT_BYPASS)),
];
const EGRESS: [(&str, i32); 1] = [("egress_intrinsic_metadata_for_deparser_t.drop_ctl", out(OUT_DROP))];

/// Fields of the architecture that decide what becomes of a packet, and where generated code leaves them.
pub(super) fn results(gress: Gress) -> &'static [(&'static str, i32)] {
    match gress {
        Gress::Ingress => &INGRESS,
        Gress::Egress => &EGRESS,
    }
}

/// Likewise what becomes of its copies.
pub(super) fn mirror_results(gress: Gress) -> [(&'static str, i32); 2] {
    let (port, queue) = (out(OUT_MIRROR_PORT), out(OUT_MIRROR_QUEUE));
    match gress {
        Gress::Ingress => [
            ("ingress_intrinsic_metadata_for_deparser_t.mirror_egress_port", port),
            ("ingress_intrinsic_metadata_for_deparser_t.mirror_qid", queue),
        ],
        Gress::Egress => [
            ("egress_intrinsic_metadata_for_deparser_t.mirror_egress_port", port),
            ("egress_intrinsic_metadata_for_deparser_t.mirror_qid", queue),
        ],
    }
}

// ---- functions that generated code calls ----
//
// Generated code passes on the context that it was called with, numbers that the code generator took from the program,
// and its own stack. `Native::settle` made the context's pointers from what it owns and has borrowed for the pass.

pub(super) extern "C" fn lookup(context: *const Context, table: u64, keys: *const u64) -> *const u64 {
    // SAFETY: `tables` points to one Memory for each table of the program, and `table` is the number of one.
    let table = unsafe { &*(*context).tables.add(table as usize) };
    // SAFETY: generated code stored this many words there, on its stack.
    let keys = unsafe { std::slice::from_raw_parts(keys, table.key_words()) };
    table.find(keys).as_ptr()
}

/// The record for a key of one word, in a table of which there is a view.
pub(super) extern "C" fn probe_one(view: *const View, key: u64) -> *const u64 {
    // SAFETY: the view is one of the context's.
    unsafe { probe(&*view, [key]) }
}

/// Likewise of two words.
pub(super) extern "C" fn probe_two(view: *const View, first: u64, second: u64) -> *const u64 {
    // SAFETY: the view is one of the context's.
    unsafe { probe(&*view, [first, second]) }
}

/// # Safety
/// The view is that of a hashed table whose keys have this many words, and is up to date.
#[inline(always)]
unsafe fn probe<const N: usize>(view: &View, key: [u64; N]) -> *const u64 {
    let mut at = entry_layout::hash(&key);
    loop {
        // SAFETY: there are `limit` + 1 slots, a power of two, of which one at least is empty; each names an entry.
        let number = unsafe { *view.slots.add(at & view.limit as usize) };
        let Some(number) = number.checked_sub(1) else { return view.default };
        // SAFETY: as above; an entry begins with its key.
        unsafe {
            let entry = view.entries.add(number as usize * view.width as usize);
            if *entry.cast::<[u64; N]>() == key {
                return entry.add(N);
            }
        }
        at += 1;
    }
}

pub(super) extern "C" fn hash_of(context: *const Context, unit: u64, bytes: *const u8, len: u64) -> u64 {
    // SAFETY: the program outlives the batch, and `len` bytes lie packed on the stack of generated code.
    let (program, bytes) = unsafe { (&*(*context).program, std::slice::from_raw_parts(bytes, len as usize)) };
    let info = &program.hashes[unit as usize];
    hash(info.kind, bytes, info.width) as u64
}

pub(super) extern "C" fn meter(context: *const Context, unit: u64, index: u64) -> u64 {
    // SAFETY: `meters` points to one Meters for each of the program's, which nobody else touches during the batch, and
    // `unit` is the number of one; the context is the caller's own.
    let (meters, context) = unsafe { (&mut *(*context).meters.add(unit as usize), &*context) };
    meters.execute(index, context.now, context.length) as u64
}

pub(super) extern "C" fn math(context: *const Context, unit: u64, value: u64, width: u64) -> u64 {
    // SAFETY: the program outlives the batch.
    let program = unsafe { &*(*context).program };
    ops::math(program.maths[unit as usize], value as u128, Ty::Bit(width as u32)) as u64
}

pub(super) extern "C" fn sum(bytes: *const u8, len: u64) -> u64 {
    // SAFETY: the rest of the packet, within its length.
    let bytes = unsafe { std::slice::from_raw_parts(bytes, len as usize) };
    crate::interp::sum(bytes) as u64
}
