//! Entry from a stub to the handler, and back, with all registers as they were.
//!
//! A stub leaves the program's stack pointer 128 bytes lower and in r11 the address at which it goes on behind the
//! system call. In front of that address stand the call instruction itself (2 bytes), and the address in the program
//! that unwinders are to see (8 bytes). rcx is free, too: the instruction changes both.
use crate::dispositions::HANDLERS;
use libc::c_int;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64};

/// Numbers of system calls below this one have a class.
pub const NUMBERS: usize = 512;

/// What is done with a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    /// Passed to the kernel.
    Pass = 0,
    /// Passed to the kernel unless its first argument is a descriptor whose word is not 0.
    Descriptor = 1,
    /// Asked about.
    Ask = 2,
}

/// A system call that is asked about.
#[derive(Debug, Default, Clone)]
#[repr(C)]
pub struct Call {
    /// Its number; the answer writes the result here, as the kernel gives it: a value, or an error number below 0.
    pub number: isize,
    /// Its arguments.
    pub arguments: [usize; 6],
}

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Verdict {
    /// It is done: the result is in [`Call::number`].
    Done = 0,
    /// The kernel does it.
    Pass = 1,
    /// The kernel does it, and nothing of this crate is on the stack meanwhile: a child may run on another stack, or
    /// on this one before its parent goes on.
    InPlace = 2,
}

/// Decides about a system call. It runs on the program's stack, unless [`Rules::has_small_stacks`], perhaps in a
/// signal handler or in a child that shares its parent's memory, and leaves `errno` alone.
pub type Ask = extern "C" fn(&mut Call) -> Verdict;

/// Which system calls are intercepted, and the handler that decides about them.
pub struct Rules {
    /// Each number's class; numbers from [`NUMBERS`] on are of class [`Class::Pass`].
    pub class_of: fn(usize) -> Class,
    /// For [`Class::Descriptor`]: one word for each descriptor. 0 means that its calls pass.
    pub descriptors: &'static [AtomicU32],
    /// Decides about all others.
    pub ask: Ask,
    /// The program's stacks may be too small for `ask`: each thread gets another one for it.
    pub has_small_stacks: bool,
}

pub(crate) static CLASSES: [AtomicU8; NUMBERS] = [const { AtomicU8::new(0) }; NUMBERS];
pub(crate) static DESCRIPTORS: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());
pub(crate) static COUNT: AtomicU32 = AtomicU32::new(0);
static ASK: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
/// Which vector registers there are beside xmm0 to xmm15: components of XCR0 (Intel SDM vol. 1, 13.1), and
/// [`XGETBV_1`].
static VECTORS: AtomicU32 = AtomicU32::new(0);
/// Where stubs jump to.
static ENTRY: AtomicU64 = AtomicU64::new(0);

/// ymm0 to ymm15.
const AVX: u32 = 1 << 2;
/// Mask registers, the upper halves of zmm0 to zmm15, zmm16 to zmm31.
const AVX512: u32 = 0b111 << 5;
/// The processor reports which of them are in use (XGETBV with ecx = 1; Intel SDM vol. 1, 13.2).
const XGETBV_1: u32 = 1 << 31;

/// Takes the rules over.
pub(crate) fn set(rules: &Rules) {
    VECTORS.store(vectors(), Relaxed);
    COUNT.store(rules.descriptors.len().try_into().unwrap_or(u32::MAX), Relaxed);
    DESCRIPTORS.store(rules.descriptors.as_ptr().cast_mut(), Relaxed);
    CLASSES.iter().enumerate().for_each(|(number, class)| class.store((rules.class_of)(number) as u8, Relaxed));
    ASK.store(rules.ask as *mut (), Relaxed);
    ENTRY.store(toe_intercept_entry as *const () as u64, Relaxed);
}

/// Stubs jump elsewhere, and there somebody else is asked, about one more call.
pub(crate) fn lead_to(address: u64, ask: Ask, number: usize) {
    ENTRY.store(address, Relaxed);
    ASK.store(ask as *mut (), Relaxed);
    CLASSES[number].store(Class::Ask as u8, Relaxed);
}

fn vectors() -> u32 {
    use std::arch::x86_64::__cpuid_count;
    let mut found = 0;
    if std::is_x86_feature_detected!("avx") {
        found |= AVX;
    }
    // Without these three, nothing that the C library has uses the registers.
    let has_avx512 = std::is_x86_feature_detected!("avx512f")
        && std::is_x86_feature_detected!("avx512bw")
        && std::is_x86_feature_detected!("avx512vl");
    if has_avx512 {
        found |= AVX512;
    }
    // Bit 2 of eax: XGETBV with ecx = 1 (Intel SDM vol. 2, CPUID, leaf 0DH, sub-leaf 1).
    if found != 0 && __cpuid_count(0xd, 1).eax & 4 != 0 {
        found |= XGETBV_1;
    }
    found
}

unsafe extern "C" {
    fn toe_intercept_entry();
}

/// Where stubs jump to.
pub(crate) fn address() -> u64 {
    ENTRY.load(Relaxed)
}

const _: () = assert!(size_of::<Call>() == 7 * 8 && size_of::<c_int>() == 4);

std::arch::global_asm!(
    include_str!("entry.s"),
    include_str!("own.s"),
    handlers = sym HANDLERS,
    classes = sym CLASSES,
    descriptors = sym DESCRIPTORS,
    count = sym COUNT,
    ask = sym ASK,
    vectors = sym VECTORS,
    numbers = const NUMBERS,
    avx = const AVX,
    avx512 = const AVX512,
    xgetbv_1 = const 31,
);
