//! Stubs, the targets of jumps: the moved instructions, with a call of `entry` between them. Pure.
use crate::sites::{CALL, JUMP, Site};

/// Bytes of one area's head: the address of `entry`.
pub(crate) const HEAD: usize = 8;

/// The most bytes that one stub takes.
pub(crate) const MOST: usize = 96;

/// `lea rsp, [rsp - 128]`: the red zone stays (System V psABI, "The Stack Frame").
const SKIP_RED_ZONE: [u8; 5] = [0x48, 0x8d, 0x64, 0x24, 0x80];
/// `lea r11, [rip + ...]`
const LEA_R11: [u8; 3] = [0x4c, 0x8d, 0x1d];
/// From there to behind the call: the jump, the address for unwinders, the call.
const TO_BEHIND: i32 = 6 + 8 + 2;
/// `jmp [rip + ...]`
const JUMP_BY: [u8; 2] = [0xff, 0x25];
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// A distance of 32 bits.
fn distance(from: u64, to: u64) -> Option<[u8; 4]> {
    i32::try_from(to.wrapping_sub(from) as i64).ok().map(i32::to_le_bytes)
}

/// Appends the stub of a site to an area at an address. `original` are the bytes of the site.
///
/// A system call changes rcx and r11, so they are free; everything else is as the program has it.
pub(crate) fn add(area: &mut Vec<u8>, address: u64, site: &Site, original: &[u8]) -> Option<u64> {
    let here = |area: &Vec<u8>| address + area.len() as u64;
    let (before, behind) = ((site.call - site.start) as usize, (site.call + CALL - site.start) as usize);
    let start = here(area);
    area.extend(original.get(..before)?);
    area.extend(SKIP_RED_ZONE);
    area.extend(LEA_R11);
    area.extend(TO_BEHIND.to_le_bytes());
    let next = here(area) + 6;
    area.extend(JUMP_BY);
    area.extend(distance(next, address)?);
    area.extend((site.call + CALL).to_le_bytes());
    area.extend(SYSCALL);
    area.extend(original.get(behind..)?);
    area.push(0xe9);
    let next = here(area) + 4;
    area.extend(distance(next, site.end)?);
    // Where a jump would lead behind the end, it traps.
    area.resize(area.len().next_multiple_of(16), 0xcc);
    Some(start)
}

/// What replaces the first bytes of a site.
pub(crate) fn jump(site: &Site, stub: u64) -> Option<[u8; JUMP as usize]> {
    let [a, b, c, d] = distance(site.start + JUMP, stub)?;
    Some([0xe9, a, b, c, d])
}
