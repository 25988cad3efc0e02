//! System calls made directly. `libtoe.so` interposes the C library's functions, `syscall` among them: what the library
//! does for itself must not come back to it.
use std::arch::asm;
use std::io;

/// Makes a system call. Returns what the kernel returns: a value, or an error number below 0. Leaves `errno` alone.
///
/// # Safety
/// As the system call: pointers among the arguments have exposed provenance and are valid for what it does with them.
#[inline]
#[cfg(target_arch = "x86_64")]
pub unsafe fn raw(number: libc::c_long, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let result: isize;
    // SAFETY: Linux' calling convention (syscall(2), "Architecture calling conventions"): the kernel changes rax, rcx
    // and r11.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    result
}

/// Makes a system call. Returns what the kernel returns: a value, or an error number below 0. Leaves `errno` alone.
///
/// # Safety
/// As the system call: pointers among the arguments have exposed provenance and are valid for what it does with them.
#[inline]
#[cfg(target_arch = "aarch64")]
pub unsafe fn raw(number: libc::c_long, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let result: isize;
    // SAFETY: Linux' calling convention (syscall(2), "Architecture calling conventions").
    unsafe {
        asm!(
            "svc 0",
            in("x8") number, inlateout("x0") a as isize => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack)
        );
    }
    result
}

/// The same, with the error as `io::Error`.
///
/// # Safety
/// As [`raw`].
pub unsafe fn call(number: libc::c_long, arguments: [usize; 6]) -> io::Result<usize> {
    // SAFETY: the caller's arguments.
    let result = unsafe { raw(number, arguments) };
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result as i32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_errors_come_back_and_all_six_arguments_arrive() {
        let length = crate::PAGE;
        // SAFETY: an anonymous mapping, which needs all six arguments, unmapped again; an invalid descriptor.
        unsafe {
            let (prot, flags) = (libc::PROT_READ as usize, (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize);
            let at = call(libc::SYS_mmap, [0, length, prot, flags, usize::MAX, 0]).unwrap();
            assert!(at != 0 && at % length == 0);
            assert_eq!(call(libc::SYS_munmap, [at, length, 0, 0, 0, 0]).unwrap(), 0);
            // An offset that is no multiple of a page is refused: the sixth argument arrives.
            let refused = call(libc::SYS_mmap, [0, length, prot, flags & !(libc::MAP_ANONYMOUS as usize), 0, 1]);
            assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EINVAL));
            assert_eq!(raw(libc::SYS_close, [usize::MAX, 0, 0, 0, 0, 0]), -(libc::EBADF as isize));
        }
    }
}
