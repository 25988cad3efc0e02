//! Confinement of the daemon, once everything is open. It gives up its capabilities, the right to gain others, and the
//! system calls that it has no use for. docs/SECURITY.md has the attackers.
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, remove_capability_from_bounding_set,
    set_capabilities, set_no_new_privs,
};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter_all_threads};

/// Drops all capabilities of the calling thread and of those that it will start. To be called while it is the only one,
/// after ports and sockets are open: no port needs any of them to go on.
pub fn drop_capabilities() -> Result<(), String> {
    keep(CapabilitySet::empty())
}

/// The same but for CAP_NET_ADMIN and CAP_NET_BIND_SERVICE, where they are there: a kernel may allow some congestion
/// controls, and ports below 1024, to nobody else.
pub(crate) fn keep_network_capabilities() -> Result<(), String> {
    let own = capabilities(None).map_err(|e| format!("cannot see the own capabilities: {e}"))?;
    keep((CapabilitySet::NET_ADMIN | CapabilitySet::NET_BIND_SERVICE) & own.permitted)
}

fn keep(capabilities: CapabilitySet) -> Result<(), String> {
    let failed = |e: rustix::io::Errno| format!("cannot give up capabilities: {e}");
    set_no_new_privs(true).map_err(failed)?;
    // Of those that it may drop: without CAP_SETPCAP the bounding set stays, which `no_new_privs` makes meaningless.
    for capability in CapabilitySet::all().iter() {
        let _ = remove_capability_from_bounding_set(capability);
    }
    // An older kernel has no ambient set.
    let _ = clear_ambient_capability_set();
    let inheritable = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: capabilities, permitted: capabilities, inheritable })
        .map_err(failed)
}

/// From now on the process, all its threads, can call only [`ALLOWED`]; any other system call fails with `EPERM`.
pub fn filter_system_calls() -> Result<(), String> {
    allow_only(ALLOWED)
}

/// The same for the process that makes sockets for a ZeroNIC host: [`HELPERS`].
pub(crate) fn filter_helpers_calls() -> Result<(), String> {
    allow_only(HELPERS)
}

fn allow_only(allowed: &[i64]) -> Result<(), String> {
    let failed =
        |what: &str| format!("cannot install the filter of system calls: {what} (confine = false does without)");
    let rules = allowed.iter().map(|number| (*number, Vec::new())).collect();
    let arch: TargetArch = std::env::consts::ARCH.try_into().map_err(|_| failed("unknown architecture"))?;
    let (refuse, allow) = (SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow);
    let filter = SeccompFilter::new(rules, refuse, allow, arch).map_err(|e| failed(&e.to_string()))?;
    let program: BpfProgram = filter.try_into().map_err(|e: seccompiler::BackendError| failed(&e.to_string()))?;
    apply_filter_all_threads(&program).map_err(|e| failed(&e.to_string()))
}

/// What a daemon that has opened everything still calls. Left out is what an attacker would use. That is `socket` and
/// `connect`, `execve`, `ptrace`, `process_vm_*`, `bpf`, `mount`, `setns`, `unshare`, `set*id`, `io_uring_*`, `kill`,
/// `perf_event_open`, `userfaultfd`, `keyctl`, `link`, `chmod`, `chown`.
const ALLOWED: &[i64] = &[
    // Memory: regions of applications, the allocator, and code of XDP modules and P4 programs (mmap, mprotect).
    libc::SYS_brk,
    libc::SYS_fallocate,
    libc::SYS_ftruncate,
    libc::SYS_madvise,
    libc::SYS_memfd_create,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    // Ports, doorbells, the sockets that are open, captures, the log.
    libc::SYS_accept4,
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_fsync,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_ioctl,
    libc::SYS_fstatfs,
    libc::SYS_lseek,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    libc::SYS_pread64,
    libc::SYS_preadv2,
    libc::SYS_pwrite64,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    // Dummy bytes for Linux' TCP below a ZeroNIC host.
    libc::SYS_sendfile,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_socketpair,
    libc::SYS_write,
    libc::SYS_writev,
    // A process that keeps a shared daemon.
    libc::SYS_pidfd_open,
    // Files: what /proc has of an application, a log that begins anew; at the end, its own sockets.
    libc::SYS_fstat,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_readlinkat,
    libc::SYS_statx,
    libc::SYS_unlinkat,
    // Threads, time, signals to itself, the end.
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_geteuid,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_membarrier,
    libc::SYS_nanosleep,
    libc::SYS_prctl,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    // Threads that stream tracepoints step back behind the data-path.
    libc::SYS_getpriority,
    libc::SYS_setpriority,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_tgkill,
    libc::SYS_uname,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_dup2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rmdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
];

/// What a process calls that makes TCP sockets in a namespace where nothing is but a device of the daemon's, and passes
/// them on.
const HELPERS: &[i64] = &[
    libc::SYS_bind,
    libc::SYS_brk,
    libc::SYS_close,
    libc::SYS_connect,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getrandom,
    libc::SYS_getsockname,
    libc::SYS_listen,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_recvmsg,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sendmsg,
    libc::SYS_setsockopt,
    libc::SYS_sigaltstack,
    libc::SYS_socket,
];
