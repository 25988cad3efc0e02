//! The helpers. What they are given was checked before the call: maps are maps, memory is there.
use super::{META, OPEN_RECORDS, Run, print};
use crate::helpers::Name;
use crate::maps::{Error, Map, Table, Update};

/// How code calls a helper: the run and five registers; the result goes to register 0.
pub(super) type Function = extern "C" fn(&mut Run, u64, u64, u64, u64, u64) -> u64;

/// The code of a helper.
pub(super) fn function(name: Name) -> Function {
    match name {
        Name::MapLookup => map_lookup,
        Name::MapUpdate => map_update,
        Name::MapDelete => map_delete,
        Name::Time => time,
        Name::Print => trace,
        Name::Random => random,
        Name::Processor => processor,
        Name::Redirect => redirect,
        Name::ChecksumDifference => checksum_difference,
        Name::AdjustHead => adjust_head,
        Name::AdjustMeta => adjust_meta,
        Name::AdjustTail => adjust_tail,
        Name::RingOutput => ring_output,
        Name::RingReserve => ring_reserve,
        Name::RingSubmit => ring_submit,
        Name::RingDiscard => ring_discard,
        Name::FrameLength => frame_length,
        Name::LoadBytes => load_bytes,
        Name::StoreBytes => store_bytes,
    }
}

const INVALID: u64 = -22_i64 as u64;
const NO_MEMORY: u64 = -12_i64 as u64;
const FULL_RING: u64 = -11_i64 as u64;

/// Shortest frame, and most that the front may grow in one step (the kernel's headroom for XDP).
const ETHERNET: usize = 14;
const HEADROOM: usize = 256;
/// Longest frame.
const LONGEST: usize = 65_535;

fn map<'a>(register: u64) -> &'a Map {
    // SAFETY: the check has proved that the register holds a map of this program; those live as long as the program,
    // which the run keeps.
    unsafe { &*(register as usize as *const Map) }
}

fn bytes<'a>(address: u64, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the check, or the code before the call, has made sure that so many bytes are there: in the frame, a stack
    // or a map's memory, all of which stay for the run. Another replica may write to a map's memory at the same time.
    // Then these bytes are a mixture of old and new, which programs that share such memory accept.
    unsafe { std::slice::from_raw_parts(address as usize as *const u8, len) }
}

fn bytes_mut<'a>(address: u64, len: usize) -> &'a mut [u8] {
    if len == 0 {
        return &mut [];
    }
    // SAFETY: as for `bytes`; the check has proved that it may be written.
    unsafe { std::slice::from_raw_parts_mut(address as usize as *mut u8, len) }
}

fn done(result: Result<(), Error>) -> u64 {
    result.map_or_else(|error| -(error as i64) as u64, |()| 0)
}

extern "C" fn map_lookup(run: &mut Run, r1: u64, key: u64, _: u64, _: u64, _: u64) -> u64 {
    let map = map(r1);
    run.pin();
    let slot = map.find(bytes(key, map.definition.key_size as usize));
    slot.map_or(0, |slot| (map.values.address() + 8 * map.word(slot, run.replica)) as u64)
}

extern "C" fn map_update(run: &mut Run, r1: u64, key: u64, value: u64, flags: u64, _: u64) -> u64 {
    let how = match flags {
        0 => Update::Any,
        1 => Update::Add,
        2 => Update::Replace,
        _ => return INVALID,
    };
    let map = map(r1);
    run.pin();
    let key = bytes(key, map.definition.key_size as usize);
    done(map.update(key, bytes(value, map.definition.value_size as usize), how, run.replica))
}

extern "C" fn map_delete(run: &mut Run, r1: u64, key: u64, _: u64, _: u64, _: u64) -> u64 {
    let map = map(r1);
    run.pin();
    done(map.delete(bytes(key, map.definition.key_size as usize)))
}

extern "C" fn time(run: &mut Run, _: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    run.now
}

extern "C" fn trace(run: &mut Run, pattern: u64, len: u64, a: u64, b: u64, c: u64) -> u64 {
    let line = print::format(bytes(pattern, len as u32 as usize), [a, b, c]);
    let len = line.len() as u64;
    run.shared.log.add(line);
    len
}

/// xorshift64* (Vigna 2016): for sampling, not for secrets.
extern "C" fn random(run: &mut Run, _: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    run.random ^= run.random >> 12;
    run.random ^= run.random << 25;
    run.random ^= run.random >> 27;
    run.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
}

extern "C" fn processor(run: &mut Run, _: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    run.replica.into()
}

/// The result code is enough: where a frame is redirected to is the control plane's affair.
extern "C" fn redirect(_: &mut Run, _: u64, flags: u64, _: u64, _: u64, _: u64) -> u64 {
    // Flags choose what happens when it fails, which it does not.
    if flags > 3 { 0 } else { 4 }
}

/// The sum of `to` less that of `from`, in 32 bits of one's complement (RFC 1071), for RFC 1624's update.
extern "C" fn checksum_difference(_: &mut Run, from: u64, from_len: u64, to: u64, to_len: u64, seed: u64) -> u64 {
    let (from_len, to_len) = (from_len as u32 as usize, to_len as u32 as usize);
    if from_len % 4 != 0 || to_len % 4 != 0 {
        return INVALID;
    }
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u32::from_ne_bytes);
    let less = bytes(from, from_len).chunks_exact(4).map(|bytes| u64::from(!word(bytes)));
    let more = bytes(to, to_len).chunks_exact(4).map(|bytes| u64::from(word(bytes)));
    let mut sum = less.chain(more).sum::<u64>() + (seed & u64::from(u32::MAX));
    while sum >> 32 != 0 {
        sum = (sum >> 32) + (sum & u64::from(u32::MAX));
    }
    sum
}

extern "C" fn adjust_head(run: &mut Run, _: u64, by: u64, _: u64, _: u64, _: u64) -> u64 {
    let by = by as i32;
    let count = by.unsigned_abs() as usize;
    let frame = run.frame();
    if by >= 0 {
        if frame.bytes().len() < count + ETHERNET || !frame.strip_front(count) {
            return INVALID;
        }
    } else {
        if count > HEADROOM || frame.len() + count > LONGEST {
            return INVALID;
        }
        frame.grow_front(count);
    }
    seen(run)
}

fn seen(run: &mut Run) -> u64 {
    let bytes = run.frame().bytes_mut().as_mut_ptr_range();
    (run.data, run.data_end) = (bytes.start as usize, bytes.end as usize);
    0
}

extern "C" fn adjust_meta(run: &mut Run, _: u64, by: u64, _: u64, _: u64, _: u64) -> u64 {
    let by = i64::from(by as i32);
    let len = (run.meta_end - run.meta) as i64 - by;
    if by % 4 != 0 || !(0..=META as i64).contains(&len) {
        return INVALID;
    }
    run.meta = run.meta_end - len as usize;
    0
}

extern "C" fn adjust_tail(run: &mut Run, _: u64, by: u64, _: u64, _: u64, _: u64) -> u64 {
    let frame = run.frame();
    let Some(len) = frame.len().checked_add_signed(by as i32 as isize) else { return INVALID };
    if !(ETHERNET..=LONGEST).contains(&len) {
        return INVALID;
    }
    if let Some(span) = frame.payload() {
        let headers = frame.bytes().len();
        let shorter = (len >= headers && len < frame.len()).then(|| span.slice(0, (len - headers) as u32));
        match shorter {
            Some(span) => {
                frame.set_payload(Some(span));
                return seen(run);
            }
            None => frame.flatten(),
        }
    }
    // Growing stays in the memory that the frame has.
    if len > frame.bytes().len() && len > frame.capacity() {
        return INVALID;
    }
    frame.resize(len);
    seen(run)
}

extern "C" fn ring_output(_: &mut Run, r1: u64, data: u64, len: u64, _: u64, _: u64) -> u64 {
    match &map(r1).table {
        Table::Ring(ring) if ring.output(bytes(data, len as u32 as usize)) => 0,
        Table::Ring(_) => FULL_RING,
        _ => INVALID,
    }
}

extern "C" fn ring_reserve(run: &mut Run, r1: u64, len: u64, _: u64, _: u64, _: u64) -> u64 {
    let map = map(r1);
    if run.open.len() >= OPEN_RECORDS {
        return 0;
    }
    let index = run.shared.maps.iter().position(|other| std::ptr::eq(other, map));
    let address = map.ring().and_then(|ring| ring.reserve(len as u32));
    match (index, address) {
        (Some(index), Some(address)) => {
            // What an earlier record left there is nobody's business.
            bytes_mut(address as u64, len as usize).fill(0);
            run.open.push((index, address));
            address as u64
        }
        _ => 0,
    }
}

fn ring_finish(run: &mut Run, address: u64, keep: bool) -> u64 {
    if let Some(at) = run.open.iter().position(|(_, open)| *open as u64 == address) {
        let (map, address) = run.open.swap_remove(at);
        if let Some(ring) = run.shared.maps[map].ring() {
            ring.finish(address, keep);
        }
    }
    0
}

extern "C" fn ring_submit(run: &mut Run, address: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    ring_finish(run, address, true)
}

extern "C" fn ring_discard(run: &mut Run, address: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    ring_finish(run, address, false)
}

extern "C" fn frame_length(run: &mut Run, _: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    run.frame().len() as u64
}

/// From anywhere in the frame, also from payload that is elsewhere in memory.
extern "C" fn load_bytes(run: &mut Run, _: u64, at: u64, to: u64, len: u64, _: u64) -> u64 {
    let (at, len) = (at as u32 as usize, len as u32 as usize);
    let frame = run.frame();
    if at + len > frame.len() {
        return INVALID;
    }
    let headers = frame.bytes().len();
    let near = headers.saturating_sub(at).min(len);
    if near > 0 {
        let from = frame.bytes()[at..].as_ptr();
        // SAFETY: `near` bytes are there, and `to` was checked for `len`; a program may load into the packet itself, so
        // they may overlap.
        unsafe { std::ptr::copy(from, to as usize as *mut u8, near) };
    }
    if let Some(span) = frame.payload().filter(|_| near < len) {
        let remaining = bytes_mut(to + near as u64, len - near);
        span.slice((at + near - headers) as u32, (len - near) as u32).read(remaining);
    }
    0
}

/// Payload that is elsewhere in memory is the application's, and stays as it is.
extern "C" fn store_bytes(run: &mut Run, _: u64, at: u64, from: u64, len: u64, _: u64) -> u64 {
    let (at, len) = (at as u32 as usize, len as u32 as usize);
    let frame = run.frame();
    if at + len > frame.len() {
        return INVALID;
    }
    if at + len > frame.bytes().len() {
        return NO_MEMORY;
    }
    let from = bytes(from, len);
    let to = frame.bytes_mut()[at..].as_mut_ptr();
    // SAFETY: `at + len` was compared with the frame's length; both may lie in the frame, so they may overlap.
    unsafe { std::ptr::copy(from.as_ptr(), to, len) };
    0
}
