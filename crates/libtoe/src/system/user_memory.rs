//! The program's memory: bytes that a call reads or writes there, at addresses that may be bad. As the kernel does, a
//! call then gives `EFAULT` and changes nothing, instead of a fault inside the library (docs/POSIX.md, "Bad pointers").
//!
//! No good address pays for it: [`crate::system::faults`] recognizes the instructions below by their addresses, and
//! goes on elsewhere where one of them faults. Other architectures than x86-64 have no such places.
use crate::system::errno::Result;
use std::mem::MaybeUninit;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// Up to here a copy is a few loads and stores, as in `shm::copy`.
const SMALL: usize = 64;
const PAGE: usize = 4096;

/// Instructions of which those with the labels given may fault: what follows them is left out then, and the last list
/// is done instead.
#[cfg(target_arch = "x86_64")]
macro_rules! otherwise {
    ([$($line:literal)*] [$($at:literal)*] [$($instead:literal)*] $($operands:tt)*) => {
        std::arch::asm!(
            $($line,)*
            "30:",
            ".pushsection .text.unlikely.toe_fault,\"ax\",@progbits",
            "31:",
            $($instead,)*
            "jmp 30b",
            ".popsection",
            ".pushsection toe_faults,\"aR\",@progbits",
            ".balign 4",
            $(concat!(".long ", $at, "b - ."), ".long 31b - .",)*
            ".popsection",
            $($operands)*
        )
    };
}

/// Where one faulted, `len` is 0 behind them.
#[cfg(target_arch = "x86_64")]
macro_rules! may_fault {
    ($lines:tt $at:tt $($operands:tt)*) => {
        otherwise!($lines $at ["xor {len:e}, {len:e}"] $($operands)* options(nostack))
    };
}

/// The same of copies by registers: [`faulted`] reports it.
#[cfg(target_arch = "x86_64")]
macro_rules! copies {
    ($lines:tt $at:tt $($operands:tt)*) => {
        otherwise!(
            $lines $at ["mov byte ptr [rip + {faulted}], 1"]
            faulted = sym FAULTED, $($operands)* options(nostack, preserves_flags)
        )
    };
}

/// A copy under the library's lock met a bad address.
static FAULTED: AtomicBool = AtomicBool::new(false);

/// Whether one of the copies since the last time met a bad address. Under the library's lock, as they are.
#[inline(always)]
pub(crate) fn faulted() -> bool {
    FAULTED.load(Relaxed) && forget()
}

#[cold]
fn forget() -> bool {
    FAULTED.swap(false, Relaxed)
}

/// Copies 4 to 64 bytes, as `shm::copy` does: all are loaded before any is stored. `$four` and `$two`: the labels of
/// the loads or of the stores, whichever are about the program's memory.
#[cfg(target_arch = "x86_64")]
macro_rules! small {
    ($name:ident, $what:literal, [$($four:literal)*], [$($two:literal)*]) => {
        #[doc = $what]
        #[inline(always)]
        unsafe fn $name(from: *const u8, to: *mut u8, len: usize) {
            // SAFETY: each block lies within `len` bytes; the caller's promise about the side that cannot fault.
            unsafe {
                if len > 32 {
                    copies!(
                        ["20: movups {a}, [{from}]" "21: movups {b}, [{from} + 16]"
                         "22: movups {c}, [{from} + {len} - 32]" "23: movups {d}, [{from} + {len} - 16]"
                         "24: movups [{to}], {a}" "25: movups [{to} + 16], {b}"
                         "26: movups [{to} + {len} - 32], {c}" "27: movups [{to} + {len} - 16], {d}"]
                        [$($four)*]
                        a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
                        from = in(reg) from, to = in(reg) to, len = in(reg) len,
                    );
                } else if len >= 16 {
                    copies!(
                        ["20: movups {a}, [{from}]" "21: movups {b}, [{from} + {len} - 16]"
                         "24: movups [{to}], {a}" "25: movups [{to} + {len} - 16], {b}"]
                        [$($two)*]
                        a = out(xmm_reg) _, b = out(xmm_reg) _,
                        from = in(reg) from, to = in(reg) to, len = in(reg) len,
                    );
                } else if len >= 8 {
                    copies!(
                        ["20: mov {a}, [{from}]" "21: mov {b}, [{from} + {len} - 8]"
                         "24: mov [{to}], {a}" "25: mov [{to} + {len} - 8], {b}"]
                        [$($two)*]
                        a = out(reg) _, b = out(reg) _,
                        from = in(reg) from, to = in(reg) to, len = in(reg) len,
                    );
                } else {
                    copies!(
                        ["20: mov {a:e}, [{from}]" "21: mov {b:e}, [{from} + {len} - 4]"
                         "24: mov [{to}], {a:e}" "25: mov [{to} + {len} - 4], {b:e}"]
                        [$($two)*]
                        a = out(reg) _, b = out(reg) _,
                        from = in(reg) from, to = in(reg) to, len = in(reg) len,
                    );
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
small!(small_in, "From the program's memory.", ["20" "21" "22" "23"], ["20" "21"]);
#[cfg(target_arch = "x86_64")]
small!(small_out, "To the program's memory.", ["24" "25" "26" "27"], ["24" "25"]);

#[cfg(not(target_arch = "x86_64"))]
unsafe fn small_in(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's.
    unsafe { shm::copy(from, to, len) };
}
#[cfg(not(target_arch = "x86_64"))]
use small_in as small_out;

/// Copies from the program's memory, under the library's lock. Where not all of it can be read, [`faulted`] reports it,
/// and `to` may be written in part.
///
/// # Safety
/// `to` is valid for `len` bytes, and is none of the program's memory.
#[inline(always)]
pub(crate) unsafe fn copy_in(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { if len.wrapping_sub(4) <= SMALL - 4 { small_in(from, to, len) } else { any_in(from, to, len) } }
}

/// The same for other lengths. A call of its own: it costs nothing beside a copy of more bytes, and the others keep
/// their registers.
///
/// # Safety
/// As [`copy_in`].
#[inline(never)]
unsafe fn any_in(from: *const u8, to: *mut u8, len: usize) {
    if !can_read(from, len) {
        return FAULTED.store(true, Relaxed);
    }
    // SAFETY: the caller's promise; each page of the other side was just read.
    unsafe { shm::copy(from, to, len) }
}

/// Copies to the program's memory likewise.
///
/// # Safety
/// `from` is valid for `len` bytes, and is none of the program's memory. The program gave the other address.
#[inline(always)]
pub(crate) unsafe fn copy_out(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { if len.wrapping_sub(4) <= SMALL - 4 { small_out(from, to, len) } else { any_out(from, to, len) } }
}

/// The same for other lengths, as [`any_in`].
///
/// # Safety
/// As [`copy_out`].
#[inline(never)]
unsafe fn any_out(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise: the bytes are about to be overwritten. Then each page of the program's side was
    // just written.
    unsafe {
        match len == 0 || each_page(to, len, |at| clear(at)) != 0 {
            true => shm::copy(from, to, len),
            false => FAULTED.store(true, Relaxed),
        }
    }
}

/// Does something at the first byte, a page further each time, and at the last byte. Returns `len`, or 0 where that
/// gave 0 somewhere.
#[inline(always)]
fn each_page<T>(at: *const T, len: usize, mut touch: impl FnMut(*mut u8) -> usize) -> usize {
    let at = at.cast::<u8>().cast_mut();
    if len == 0 {
        return 0;
    }
    let last = at.wrapping_add(len - 1);
    if last < at || touch(at) & touch(last) == 0 {
        return 0;
    }
    let mut page = at;
    while len > PAGE && (last as usize).wrapping_sub(page as usize) >= PAGE {
        page = page.wrapping_add(PAGE);
        if touch(page) == 0 {
            return 0;
        }
    }
    len
}

/// True where `len` bytes can be read.
#[inline(always)]
pub(crate) fn can_read<T>(at: *const T, len: usize) -> bool {
    len == 0 || each_page(at, len, load) != 0
}

/// Whether `len` bytes can be written. They stay as they are, whoever else writes there.
pub(crate) fn can_write<T>(at: *const T, len: usize) -> bool {
    len == 0 || each_page(at, len, keep) != 0
}

/// Reads a byte; 0 where it cannot be read.
#[inline(always)]
fn load(at: *mut u8) -> usize {
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut))]
    let mut len = 1;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a read without effect, which may fault.
    unsafe {
        may_fault!(["20: movzx {a:e}, byte ptr [{at}]"] ["20"] a = out(reg) _, at = in(reg) at, len = inout(reg) len,);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
    len
}

/// Writes a byte; 0 where it cannot be written.
///
/// # Safety
/// What is there is of no use any more.
#[inline(always)]
unsafe fn clear(at: *mut u8) -> usize {
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut))]
    let mut len = 1;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise.
    unsafe {
        may_fault!(["20: mov byte ptr [{at}], 0"] ["20"] at = in(reg) at, len = inout(reg) len,);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
    len
}

/// Writes what is there; 0 where that cannot be.
fn keep(at: *mut u8) -> usize {
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut))]
    let mut len = 1;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: nothing changes, also where others write at the same time.
    unsafe {
        may_fault!(["20: lock or byte ptr [{at}], 0"] ["20"] at = in(reg) at, len = inout(reg) len,);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
    len
}

/// A message's list of buffers and their count, which is 0 where the message's address is bad.
#[inline(always)]
pub(crate) fn list_of(message: *const libc::msghdr) -> (*const libc::iovec, usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::mem::offset_of;
        let (list, count): (usize, usize);
        // SAFETY: reads without effect, which may fault.
        unsafe {
            may_fault!(
                ["20: mov {list}, [{at} + {one}]" "21: mov {len}, [{at} + {two}]"] ["20" "21"]
                list = out(reg) list, at = in(reg) message, len = out(reg) count,
                one = const offset_of!(libc::msghdr, msg_iov), two = const offset_of!(libc::msghdr, msg_iovlen),
            );
        }
        (std::ptr::with_exposed_provenance(list), count)
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the program's message.
    unsafe {
        message.as_ref().map_or((std::ptr::null(), 0), |message| (message.msg_iov.cast_const(), message.msg_iovlen))
    }
}

/// A buffer of a list, under the library's lock; without bytes where it cannot be read, which [`faulted`] reports.
#[inline(always)]
pub(crate) fn piece_at(place: *const libc::iovec) -> libc::iovec {
    #[cfg(target_arch = "x86_64")]
    {
        let (base, len): (usize, usize);
        // SAFETY: reads without effect, which may fault.
        unsafe {
            otherwise!(
                ["20: mov {base}, [{at}]" "21: mov {len}, [{at} + 8]"] ["20" "21"]
                ["mov byte ptr [rip + {faulted}], 1" "xor {len:e}, {len:e}"]
                faulted = sym FAULTED, base = out(reg) base, at = in(reg) place, len = out(reg) len, options(nostack)
            );
        }
        libc::iovec { iov_base: std::ptr::with_exposed_provenance_mut(base), iov_len: len }
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the program's list.
    unsafe {
        place.read()
    }
}

/// Copies byte by byte, from or to the program's memory; how many are left where an address is bad.
fn copy_bytes(from: *const u8, to: *mut u8, len: usize) -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        let left;
        // SAFETY: one side is the program's, and may fault; the other is the caller's and large enough.
        unsafe {
            std::arch::asm!(
                "20: rep movsb",
                "21:",
                ".pushsection toe_faults,\"aR\",@progbits",
                ".balign 4",
                ".long 20b - .", ".long 21b - .",
                ".popsection",
                inout("rcx") len => left, inout("rsi") from => _, inout("rdi") to => _, options(nostack)
            );
        }
        left
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the callers' promise.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, len);
        0
    }
}

fn all(left: usize) -> Result<()> {
    if left == 0 { Ok(()) } else { Err(libc::EFAULT) }
}

/// A value of the program's.
///
/// # Safety
/// All bytes are values of the type.
pub(crate) unsafe fn read<T: Copy>(at: *const T) -> Result<T> {
    let mut value = MaybeUninit::<T>::uninit();
    all(copy_bytes(at.cast(), value.as_mut_ptr().cast(), size_of::<T>()))?;
    // SAFETY: filled.
    Ok(unsafe { value.assume_init() })
}

/// The same; `None` at a null pointer.
///
/// # Safety
/// As [`read`].
pub(crate) unsafe fn read_any<T: Copy>(at: *const T) -> Result<Option<T>> {
    // SAFETY: the caller's promise.
    if at.is_null() { Ok(None) } else { unsafe { read(at) }.map(Some) }
}

/// Bytes of the program's, into a place of the library's own.
pub(crate) fn read_bytes(at: *const u8, into: &mut [u8]) -> Result<()> {
    all(copy_bytes(at, into.as_mut_ptr(), into.len()))
}

/// Writes a value for the program.
///
/// # Safety
/// The program gave this address for it.
pub(crate) unsafe fn write<T: Copy>(at: *mut T, value: T) -> Result<()> {
    all(copy_bytes((&raw const value).cast(), at.cast(), size_of::<T>()))
}

/// Writes bytes for the program.
///
/// # Safety
/// The program gave this address for as many.
pub(crate) unsafe fn write_bytes(at: *mut u8, bytes: &[u8]) -> Result<()> {
    all(copy_bytes(bytes.as_ptr(), at, bytes.len()))
}

/// Writes an event of `epoll_wait`, under the library's lock; [`faulted`] reports where that could not be done.
///
/// # Safety
/// The program gave this address for it.
#[inline(always)]
pub(crate) unsafe fn put_event(at: *mut libc::epoll_event, event: libc::epoll_event) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise: an event is packed, four bytes and eight.
    unsafe {
        copies!(
            ["20: mov dword ptr [{at}], {events:e}" "21: mov qword ptr [{at} + 4], {data}"] ["20" "21"]
            at = in(reg) at, events = in(reg) event.events, data = in(reg) event.u64,
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller's promise.
    unsafe {
        at.write(event)
    };
}
