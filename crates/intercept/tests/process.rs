//! A process that rewrites its own system calls: what the C library calls, what inline assembly calls, registers,
//! children and threads.
use intercept::{Call, Class, Rules, Verdict};
use std::arch::asm;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// A number that the answers give.
const ANSWER: isize = 4711;
static ASKED: AtomicU32 = AtomicU32::new(0);
const RULES: Rules = Rules { class_of, descriptors: &DESCRIPTORS, ask, has_small_stacks: false };
static DESCRIPTORS: [AtomicU32; 1024] = [const { AtomicU32::new(0) }; 1024];
/// A descriptor whose calls are asked about.
const OURS: i32 = 1000;

fn class_of(number: usize) -> Class {
    match number as libc::c_long {
        libc::SYS_getppid | libc::SYS_vfork | libc::SYS_clone | libc::SYS_clone3 => Class::Ask,
        libc::SYS_read | libc::SYS_write | libc::SYS_close => Class::Descriptor,
        _ => Class::Pass,
    }
}

extern "C" fn ask(call: &mut Call) -> Verdict {
    ASKED.fetch_add(1, Relaxed);
    spoil_registers();
    match call.number as libc::c_long {
        libc::SYS_getppid if call.arguments[0] == 1 => Verdict::Pass,
        libc::SYS_getppid | libc::SYS_write => {
            call.number = ANSWER;
            Verdict::Done
        }
        libc::SYS_read => {
            call.number = -(libc::EXDEV as isize);
            Verdict::Done
        }
        _ => Verdict::InPlace,
    }
}

/// Changes all vector registers that a C function may change.
fn spoil_registers() {
    // SAFETY: it declares what it changes.
    unsafe {
        asm!("pcmpeqd xmm0, xmm0", "movdqa xmm7, xmm0", "movdqa xmm15, xmm0",
            out("xmm0") _, out("xmm7") _, out("xmm15") _);
        if std::is_x86_feature_detected!("avx") {
            asm!("vcmpps ymm3, ymm3, ymm3, 15", "vmovaps ymm12, ymm3", out("ymm3") _, out("ymm12") _);
        }
        if std::is_x86_feature_detected!("avx512f") {
            asm!("vpternlogd zmm20, zmm20, zmm20, 255", "kxnorw k3, k3, k3", out("zmm20") _, out("k3") _);
        }
    }
}

fn bare(number: libc::c_long, first: usize) -> isize {
    let result: isize;
    // SAFETY: `getppid` reads no arguments.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result, in("rdi") first,
            out("rcx") _, out("r11") _, options(nostack));
    }
    result
}

fn main() {
    // SAFETY: one thread; the answers keep their contract.
    let report = unsafe { intercept::install(&RULES, |_| false) };
    println!("{} rewritten, {} of no concern, left: {:x?}", report.rewritten, report.of_no_concern, report.left);
    assert!(report.rewritten > 10 && report.of_no_concern > 100, "{report:x?}");
    let checks: [fn(); 7] = [
        the_c_library_and_inline_assembly_are_seen,
        descriptors_are_distinguished,
        registers_flags_and_the_red_zone_stay,
        children_and_threads_run,
        a_signal_handler_on_a_small_stack_calls,
        a_cancelled_thread_runs_its_handlers,
        speed,
    ];
    checks.iter().for_each(|check| check());
    // As the usual harness prints it, for scripts that count.
    println!("test result: ok. {} passed; 0 failed; 0 ignored; 0 measured; 0 filtered out", checks.len());
}

fn the_c_library_and_inline_assembly_are_seen() {
    // SAFETY: plain calls.
    unsafe {
        assert_eq!(libc::getppid() as isize, ANSWER);
        assert_eq!(bare(libc::SYS_getppid, 0), ANSWER);
        let real = bare(libc::SYS_getppid, 1);
        assert!(real != ANSWER && real > 0);
        assert!(libc::getpid() > 1);
    }
}

fn descriptors_are_distinguished() {
    DESCRIPTORS[OURS as usize].store(1, Relaxed);
    let mut byte = 0u8;
    // SAFETY: a local buffer.
    unsafe {
        assert_eq!(libc::write(OURS, (&raw const byte).cast(), 1), ANSWER);
        assert_eq!(libc::read(OURS, (&raw mut byte).cast(), 1), -1);
        assert_eq!(*libc::__errno_location(), libc::EXDEV);
        let before = ASKED.load(Relaxed);
        assert_eq!(libc::read(OURS + 1, (&raw mut byte).cast(), 1), -1);
        assert_eq!(*libc::__errno_location(), libc::EBADF);
        assert_eq!(libc::write(-1, (&raw const byte).cast(), 1), -1);
        assert_eq!(libc::write(1 << 20, (&raw const byte).cast(), 1), -1);
        assert_eq!(ASKED.load(Relaxed), before);
    }
    // Buffered output reaches it from inside of the C library.
    // SAFETY: a stream of our own; a C string.
    unsafe {
        let stream = libc::fdopen(libc::dup(1), c"w".as_ptr());
        let number = libc::fileno(stream);
        DESCRIPTORS[number as usize].store(1, Relaxed);
        let before = ASKED.load(Relaxed);
        libc::fputs(c"never seen".as_ptr(), stream);
        libc::fflush(stream);
        assert!(ASKED.load(Relaxed) > before);
        DESCRIPTORS[number as usize].store(0, Relaxed);
    }
}

/// Registers before a call, in the order of the assembly below.
const SEEDS: usize = 13;

fn registers_flags_and_the_red_zone_stay() {
    for first in [0, 1] {
        let (mut after, mut vectors) = ([0u64; SEEDS], [0u64; 4]);
        let (zone, flags): (u64, u64);
        // SAFETY: a call that reads no arguments; what is changed is declared; the red zone below this function's frame
        // is used within the assembly only, without a push in between.
        unsafe {
            asm!(
                "push rbx", "push rbp", "sub rsp, 256", "mov [rsp + 16], {vectors}", "mov [rsp + 24], {after}",
                "mov r12, 0x5151515151515151", "mov [rsp - 128], r12", "mov [rsp - 8], r12",
                "movq xmm0, r12", "movq xmm7, r12", "movq xmm15, r12", "movq xmm12, r12",
                "mov rbx, 1", "mov rdx, 2", "mov rsi, 3", "mov rbp, 5", "mov r8, 6", "mov r9, 7", "mov r10, 8",
                "mov r12, 9", "mov r13, 10", "mov r14, 11", "mov r15, 12",
                "std", "stc",
                "mov eax, 110",
                "syscall",
                "mov rcx, [rsp - 128]", "mov rdi, [rsp - 8]", "pushfq", "cld", "pop r11", "and rcx, rdi",
                "mov rdi, [rsp + 24]",
                "mov [rdi], rbx", "mov [rdi + 8], rdx", "mov [rdi + 16], rsi", "mov [rdi + 24], rbp",
                "mov [rdi + 32], r8", "mov [rdi + 40], r9", "mov [rdi + 48], r10", "mov [rdi + 56], r12",
                "mov [rdi + 64], r13", "mov [rdi + 72], r14", "mov [rdi + 80], r15", "mov [rdi + 88], rax",
                "mov rdi, [rsp + 16]",
                "movq [rdi], xmm0", "movq [rdi + 8], xmm7", "movq [rdi + 16], xmm15", "movq [rdi + 24], xmm12",
                "add rsp, 256", "pop rbp", "pop rbx",
                after = in(reg) &raw mut after, vectors = in(reg) &raw mut vectors,
                inout("rdi") first as u64 => _, out("rcx") zone, lateout("r11") flags, out("rax") _, out("rdx") _,
                out("rsi") _, out("r8") _, out("r9") _, out("r10") _, out("r12") _, out("r13") _, out("r14") _,
                out("r15") _, out("xmm0") _, out("xmm7") _, out("xmm12") _, out("xmm15") _,
            );
        }
        assert_eq!(after[..11], [1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12]);
        assert_eq!(vectors, [0x5151_5151_5151_5151; 4]);
        assert_eq!((zone, flags & 0x401), (0x5151_5151_5151_5151, 0x401));
        assert_eq!(after[11] as isize == ANSWER, first == 0);
    }
}

fn children_and_threads_run() {
    let before = ASKED.load(Relaxed);
    let output = std::process::Command::new("/bin/echo").arg("child").output().unwrap();
    assert_eq!(output.stdout, b"child\n");
    // SAFETY: C strings.
    let status = unsafe { libc::system(c"exit 7".as_ptr()) };
    assert_eq!(libc::WEXITSTATUS(status), 7);
    let sum: u32 = (0..8).map(|n| std::thread::spawn(move || n).join().unwrap()).sum();
    assert_eq!(sum, 28);
    assert!(ASKED.load(Relaxed) >= before + 10);
    // SAFETY: the child only ends.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::_exit(if libc::getppid() as isize == ANSWER { 3 } else { 4 });
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert_eq!(libc::WEXITSTATUS(status), 3);
    }
}

static SEEN: AtomicU32 = AtomicU32::new(0);

extern "C" fn handler(_: libc::c_int) {
    let mut stack = [0u8; 64];
    stack[0] = 1;
    SEEN.store((bare(libc::SYS_getppid, 0) == ANSWER) as u32 + stack[0] as u32, Relaxed);
}

fn a_signal_handler_on_a_small_stack_calls() {
    // SAFETY: a stack of the least size that the system takes, kept until it is given up; a handler of ours.
    unsafe {
        let size = libc::getauxval(51).max(2048) as usize + 4096;
        let mut memory = vec![0u8; size];
        let stack = libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: size };
        assert_eq!(libc::sigaltstack(&stack, std::ptr::null_mut()), 0);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_ONSTACK;
        libc::sigfillset(&mut action.sa_mask);
        libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
        libc::raise(libc::SIGUSR1);
        assert_eq!(SEEN.load(Relaxed), 2);
        let none = libc::stack_t { ss_flags: libc::SS_DISABLE, ..stack };
        assert_eq!(libc::sigaltstack(&none, std::ptr::null_mut()), 0);
    }
}

extern "C" fn reads_for_ever(pipe: *mut libc::c_void) -> *mut libc::c_void {
    let mut byte = 0u8;
    // SAFETY: the descriptor travels as a number.
    unsafe { libc::read(pipe as usize as i32, (&raw mut byte).cast(), 1) };
    std::ptr::null_mut()
}

unsafe extern "C" {
    fn pthread_cancel(thread: libc::pthread_t) -> libc::c_int;
}

/// The C library unwinds the stack of a thread that is cancelled, through our frames.
fn a_cancelled_thread_runs_its_handlers() {
    // SAFETY: a pipe and a thread of our own, both waited for.
    unsafe {
        let mut pipe = [0; 2];
        assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
        let mut thread = 0;
        let argument = pipe[0] as usize as *mut libc::c_void;
        assert_eq!(libc::pthread_create(&mut thread, std::ptr::null(), reads_for_ever, argument), 0);
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(pthread_cancel(thread), 0);
        let mut result = std::ptr::null_mut();
        assert_eq!(libc::pthread_join(thread, &mut result), 0);
        // PTHREAD_CANCELED
        assert_eq!(result as isize, -1);
    }
}

/// Not a check: the figures of docs/SYSTEM-CALLS.md.
fn speed() {
    let time = |what: &str, call: &dyn Fn() -> isize| {
        let best = (0..20).map(|_| {
            let start = Instant::now();
            for _ in 0..20_000 {
                std::hint::black_box(call());
            }
            start.elapsed().as_nanos() as f64 / 20_000.0
        });
        println!("{what:<28} {:6.1} ns", best.fold(f64::MAX, f64::min));
    };
    // SAFETY: a bad descriptor and no bytes.
    let plain = || unsafe { shm::system_call::raw(libc::SYS_close, [usize::MAX, 0, 0, 0, 0, 0]) };
    time("not rewritten", &plain);
    // SAFETY: as above.
    time("rewritten, passed", &|| unsafe { libc::close(-1) as isize });
    time("rewritten, asked, passed", &|| bare(libc::SYS_getppid, 1));
    time("rewritten, asked, answered", &|| bare(libc::SYS_getppid, 0));
}
