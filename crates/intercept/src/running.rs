//! Patching of running code: what a jump may replace while other threads run.
//!
//! No thread may be between two instructions that a jump replaces. An instruction that loads the call's number in
//! front of it has five bytes alone. Behind a call that is always caught, a thread is only where it jumps to.
use crate::patch;
use crate::pool::BEHIND;
use crate::sites::{self, CALL, JUMP};
use iced_x86::{Decoder, DecoderOptions};
use shm::system_call;
use std::ops::Range;

/// What moves into the stub. Nothing does where the place cannot be rewritten.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Bytes in front of the call.
    pub before: usize,
    /// Bytes behind it.
    pub behind: usize,
    /// The mapping that the place is in.
    pub code: Range<u64>,
}

/// Some bytes of code.
///
/// # Safety
/// `len` bytes can be read there.
pub(crate) unsafe fn bytes(at: u64, len: usize) -> [u8; BEHIND] {
    let mut found = [0; BEHIND];
    let from = std::ptr::with_exposed_provenance::<u8>(at as usize);
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from, found.as_mut_ptr(), len.min(BEHIND)) };
    found
}

/// Makes the decoder's tables, which takes memory: in a handler it would be too late.
pub(crate) fn prepare() {
    let _ = behind(&[0x0f, 5, 0x90, 0x90, 0x90, 0x90], 0);
}

/// What can be replaced at a place.
///
/// # Safety
/// There is a system call instruction, which a thread has just run.
pub(crate) unsafe fn plan(call: u64, number: usize) -> Plan {
    // Other code belongs to a compiler in the program, which may change it at any time.
    let Some(code) = mapping(call).filter(|code| code.end - code.start < 1 << 30) else { return Plan::default() };
    let len = (code.end - code.start) as usize;
    // SAFETY: mapped from a file, readable and executable.
    let all = unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<u8>(code.start as usize), len) };
    let offset = (call - code.start) as usize;
    let before = before(&all[..offset], number);
    if before != 0 && patch::is_one_line(call - before as u64) {
        return Plan { before, behind: 0, code };
    }
    match behind(all, offset) {
        Some(behind) if patch::is_one_line(call) && !is_target(all, offset) => Plan { before: 0, behind, code },
        _ => Plan { before: 0, behind: 0, code },
    }
}

/// The bytes in front of a call, where they are one instruction that loads its number.
pub(crate) fn before(code: &[u8], number: usize) -> usize {
    match code {
        // A prefix would make it another register's.
        [.., prefix, 0xb8, a, b, c, d]
            if prefix & 0xf0 != 0x40 && u32::from_le_bytes([*a, *b, *c, *d]) as usize == number =>
        {
            JUMP as usize
        }
        _ => 0,
    }
}

/// The instructions behind a call that move with it.
fn behind(code: &[u8], call: usize) -> Option<usize> {
    let first = call + CALL as usize;
    let mut decoder = Decoder::with_ip(64, code.get(first..)?, first as u64, DecoderOptions::NONE);
    let mut len = 0;
    while len < (JUMP - CALL) as usize {
        if !decoder.can_decode() {
            return None;
        }
        let one = decoder.decode();
        if one.is_invalid() || !sites::does_the_same_elsewhere(&one) {
            return None;
        }
        len += one.len();
    }
    (len <= BEHIND).then_some(len)
}

/// Whether anything of the form of a jump leads behind the first byte of what a jump at a call replaces.
pub(crate) fn is_target(code: &[u8], call: usize) -> bool {
    let hit = call + 1..call + JUMP as usize;
    let near = code.iter().enumerate().take((call + 160).min(code.len())).skip(call.saturating_sub(160));
    // Jcc, LOOP and JRCXZ, JMP with a distance of 8 bits (Intel SDM vol. 2).
    let is_short = |opcode: u8| matches!(opcode, 0x70..=0x7f | 0xe0..=0xe3 | 0xeb);
    let short = near.filter(|(_, opcode)| is_short(**opcode)).any(|(offset, _)| {
        code.get(offset + 1)
            .is_some_and(|distance| hit.contains(&(offset + 2).wrapping_add_signed(*distance as i8 as isize)))
    });
    short
        || code.windows(6).enumerate().any(|(offset, bytes)| {
            let distance = i32::from_le_bytes([bytes[2], bytes[3], bytes[4], bytes[5]]);
            hit.contains(&(offset + 6).wrapping_add_signed(distance as isize)) && sites::is_jump([bytes[0], bytes[1]])
        })
}

/// The executable mapping of a file around an address.
fn mapping(address: u64) -> Option<Range<u64>> {
    let path = c"/proc/self/maps";
    let open = libc::O_RDONLY | libc::O_CLOEXEC;
    let arguments = [libc::AT_FDCWD as isize as usize, path.as_ptr().expose_provenance(), open as usize, 0, 0, 0];
    // SAFETY: a C string.
    let file = unsafe { system_call::raw(libc::SYS_openat, arguments) };
    if file < 0 {
        return None;
    }
    let found = lines(file as usize, address);
    // SAFETY: just opened.
    unsafe { system_call::raw(libc::SYS_close, [file as usize, 0, 0, 0, 0, 0]) };
    found
}

/// Reads lines of `/proc/self/maps` (proc(5)) up to that of an address.
fn lines(file: usize, address: u64) -> Option<Range<u64>> {
    let mut line = Line::default();
    let mut buffer = [0u8; 512];
    loop {
        let arguments = [file, (&raw mut buffer).expose_provenance(), buffer.len(), 0, 0, 0];
        // SAFETY: a local buffer.
        let read = unsafe { system_call::raw(libc::SYS_read, arguments) };
        if read <= 0 {
            return None;
        }
        for byte in &buffer[..read as usize] {
            if *byte != b'\n' {
                line.add(*byte);
                continue;
            }
            if (line.numbers[0]..line.numbers[1]).contains(&address) {
                return line.is_code().then(|| line.numbers[0]..line.numbers[1]);
            }
            line = Line::default();
        }
    }
}

/// What is read of a line: `start-end rwxp offset device inode path`.
#[derive(Default)]
struct Line {
    /// Start, end, and the inode (decimal digits, read as hexadecimal: only whether it is 0 matters).
    numbers: [u64; 3],
    flags: [u8; 4],
    /// Fields that ended.
    field: usize,
    /// Characters of the present field.
    len: usize,
}

impl Line {
    fn add(&mut self, byte: u8) {
        if byte == b' ' || self.field == 0 && byte == b'-' {
            // Runs of blanks separate the path only.
            self.field += 1;
            self.len = 0;
            return;
        }
        let digit = (byte as char).to_digit(16).map(u64::from);
        match (self.field, digit) {
            (0 | 1, Some(digit)) => self.numbers[self.field] = self.numbers[self.field] << 4 | digit,
            (2, _) if self.len < 4 => self.flags[self.len] = byte,
            (5, Some(digit)) => self.numbers[2] |= digit,
            _ => {}
        }
        self.len += 1;
    }

    /// Readable, executable, not writable, private, of a file.
    fn is_code(&self) -> bool {
        self.flags == *b"r-xp" && self.numbers[2] != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_in_front_of_a_call_is_recognised() {
        assert_eq!(before(&[0x90, 0xb8, 3, 0, 0, 0], 3), 5);
        assert_eq!(before(&[0x90, 0xb8, 3, 0, 0, 0], 4), 0, "another call's");
        assert_eq!(before(&[0x41, 0xb8, 3, 0, 0, 0], 3), 0, "mov r8d, 3");
        assert_eq!(before(&[0xb8, 3, 0, 0, 0], 3), 0, "at the very beginning");
    }

    #[test]
    fn what_moves_from_behind_a_call_is_whole_instructions() {
        // cmp rax, -4096; ja
        assert_eq!(behind(&[0x0f, 5, 0x48, 0x3d, 0, 0xf0, 0xff, 0xff, 0x77, 4, 0x90], 0), Some(6));
        // A return moves nowhere.
        assert_eq!(behind(&[0x0f, 5, 0xc3, 0x90, 0x90, 0x90], 0), None);
        assert_eq!(behind(&[0x0f, 5, 0x90], 0), None, "the code ends");
    }

    #[test]
    fn jumps_behind_a_call_are_found() {
        let mut code = [0x90u8; 64];
        assert!(!is_target(&code, 32));
        // jne to 34, from 8.
        (code[8], code[9]) = (0x75, 24);
        assert!(is_target(&code, 32));
        code[9] = 22;
        assert!(!is_target(&code, 32), "to the call itself");
        // jmp to 35, from 45: -15.
        code[45..50].copy_from_slice(&[0xe9, 0xf1, 0xff, 0xff, 0xff]);
        assert!(is_target(&code, 32));
    }

    #[test]
    fn mappings_of_files_are_distinguished_from_others() {
        let own = mapping(mapping as *const () as u64).unwrap();
        assert!(own.contains(&(mapping as *const () as u64)));
        let local = 0u8;
        assert_eq!(mapping((&raw const local).addr() as u64), None);
        assert_eq!(mapping(16), None);
    }
}
