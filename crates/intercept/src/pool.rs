//! Stubs of the net, one for each place that made a system call: what is in one, and the room for them. It is in the
//! range from which the kernel takes system calls as they are.
use crate::patch;
use crate::sites::CALL;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// Bytes of the room.
pub(crate) const ROOM: usize = 256 << 10;
/// The addresses that stubs jump by: where they ask, and where a child begins.
const HEAD: usize = 16;
/// The most bytes that move from behind the instruction into a stub.
pub(crate) const BEHIND: usize = 20;
/// The most bytes of a stub.
const MOST: usize = 128;
/// From the beginning of the way in to what follows the system call.
const TO_BACK: usize = SKIP_RED_ZONE.len() + LEA_R11.len() + 4 + 6 + 2 + 8 + 2;

const SKIP_RED_ZONE: [u8; 5] = [0x48, 0x8d, 0x64, 0x24, 0x80];
/// `nop` of as many bytes.
const LONG_NOP: [u8; 5] = [0x0f, 0x1f, 0x44, 0, 0];
const LEA_R11: [u8; 3] = [0x4c, 0x8d, 0x1d];
const LEA_RCX: [u8; 3] = [0x48, 0x8d, 0x0d];
/// `jmp [rip + ...]`
const JUMP_BY: [u8; 2] = [0xff, 0x25];
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// `mov rcx, rax`, then `jrcxz`: no flag changes.
const IS_CHILD: [u8; 4] = [0x48, 0x89, 0xc1, 0xe3];
const SHORT_JUMP: u8 = 0xeb;

unsafe extern "C" {
    static toe_intercept_pool: [u8; ROOM];
}

/// Stubs use no stack of the program's, and distinguish children from other calls: those of programs that
/// [`crate::static_programs`] runs.
static WITHOUT_STACK: AtomicBool = AtomicBool::new(false);
static USED: AtomicUsize = AtomicUsize::new(0);

/// What a stub stands for.
pub(crate) struct CallSite<'a> {
    /// The system call instruction.
    pub call: u64,
    /// What stands in front of the instruction and is replaced: an instruction that the stub does first.
    pub before: &'a [u8],
    /// Instructions behind it that the stub does.
    pub behind: &'a [u8],
}

/// A stub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stub {
    /// Where code that was replaced leads to.
    pub start: u64,
    /// Where it goes on behind what stood in front of the instruction.
    pub enter: u64,
}

fn base() -> u64 {
    (&raw const toe_intercept_pool).expose_provenance() as u64
}

/// Writes the head of the room: where stubs ask, and where children begin. `without_stack`: they use none of the
/// program's.
///
/// # Safety
/// No stub runs.
pub(crate) unsafe fn begin(ask: u64, child: u64, without_stack: bool) -> Result<(), crate::Reason> {
    WITHOUT_STACK.store(without_stack, Relaxed);
    let head: Vec<u8> = [ask.to_le_bytes(), child.to_le_bytes()].concat();
    USED.store(HEAD, Relaxed);
    // SAFETY: the room's first bytes, which nothing else uses.
    unsafe { patch::write(base(), &head) }
}

/// Makes a stub; `None` where there is no more room. One thread at a time.
pub(crate) fn add(place: &CallSite) -> Option<Stub> {
    let used = USED.load(Relaxed);
    if used + MOST > ROOM {
        return None;
    }
    let mut bytes = Bytes { at: base() + used as u64, base: base(), all: [0xcc; MOST], len: 0 };
    let stub = bytes.stub(place);
    // SAFETY: bytes of the room that no stub has yet.
    unsafe { patch::write(bytes.at, &bytes.all[..bytes.len]) }.ok()?;
    USED.store((used + bytes.len).next_multiple_of(16), Relaxed);
    Some(stub)
}

/// The instructions behind the system call that a stub does, as far as there are `len` bytes of them.
///
/// # Safety
/// `enter` is of a stub that [`add`] gave.
pub(crate) unsafe fn behind(enter: u64, len: usize) -> [u8; BEHIND] {
    let mut found = [0; BEHIND];
    let at = std::ptr::with_exposed_provenance::<u8>(enter as usize + TO_BACK);
    // SAFETY: the caller's stub has so many bytes there.
    unsafe { std::ptr::copy_nonoverlapping(at, found.as_mut_ptr(), len.min(BEHIND)) };
    found
}

/// A stub that is being written.
struct Bytes {
    at: u64,
    base: u64,
    all: [u8; MOST],
    len: usize,
}

impl Bytes {
    fn add(&mut self, bytes: &[u8]) {
        self.all[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn here(&self) -> u64 {
        self.at + self.len as u64
    }

    /// A distance of 32 bits to an address within the room, counted from behind it.
    fn distance(&mut self, to: u64) {
        let from = self.here() + 4;
        self.add(&(to.wrapping_sub(from) as u32).to_le_bytes());
    }

    /// Fills in the distance of a short jump that ends at `end`.
    fn lead_here(&mut self, end: usize) {
        self.all[end - 1] = (self.len - end) as u8;
    }

    fn stub(&mut self, place: &CallSite) -> Stub {
        let start = self.here();
        self.add(place.before);
        let enter = self.here();
        let without_stack = WITHOUT_STACK.load(Relaxed);
        self.add(if without_stack { &LONG_NOP } else { &SKIP_RED_ZONE });
        self.add(&LEA_R11);
        let back = enter + TO_BACK as u64;
        self.distance(back);
        self.add(&JUMP_BY);
        self.distance(self.base);
        self.add(&[SHORT_JUMP, 0]);
        let to_child = self.len;
        // entry.s: unwinders are shown the program's own address.
        self.add(&(place.call + CALL).to_le_bytes());
        self.add(&[SHORT_JUMP, 0]);
        let to_plain = self.len;
        self.add(place.behind);
        self.add(&JUMP_BY);
        self.add(&[0; 4]);
        self.add(&(place.call + CALL + place.behind.len() as u64).to_le_bytes());
        if without_stack {
            self.lead_here(to_plain);
            self.add(&SYSCALL);
            self.add(&[0xe9]);
            self.distance(back);
        } else {
            self.lead_here(to_plain);
        }
        self.lead_here(to_child);
        self.add(&SYSCALL);
        self.add(&IS_CHILD);
        self.add(&[0]);
        let is_child = self.len;
        self.add(&[0xe9]);
        self.distance(back);
        self.lead_here(is_child);
        self.add(&LEA_RCX);
        self.distance(back);
        self.add(&JUMP_BY);
        self.distance(self.base + 8);
        Stub { start, enter }
    }
}
