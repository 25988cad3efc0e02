//! Linux network namespaces: making them, and doing something inside one.
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Where names of namespaces live, by the convention of `ip netns`.
const NAMES: &str = "/run/netns";

/// An open network namespace: it exists at least as long as this value, a process in it, or its name.
#[derive(Debug)]
pub struct Netns {
    fd: OwnedFd,
    named: String,
}

impl Netns {
    /// The namespace with this name (as in `ip netns`) or at this path.
    pub fn open(name_or_path: &str) -> Result<Netns, String> {
        let path = if name_or_path.contains('/') { name_or_path.into() } else { format!("{NAMES}/{name_or_path}") };
        let file = File::open(&path).map_err(|e| format!("no network namespace `{name_or_path}` ({path}): {e}"))?;
        Ok(Netns { fd: file.into(), named: name_or_path.into() })
    }

    /// The namespace of the calling thread.
    pub fn current() -> Result<Netns, String> {
        Netns::open("/proc/thread-self/ns/net")
    }

    /// A new namespace without a name: it goes when this value and the last process in it do. Its loopback
    /// interface is up.
    pub fn create() -> Result<Netns, String> {
        on_a_thread(|| {
            unshare()?;
            crate::Interface::named("lo")?.set_up()?;
            Netns::current()
        })
    }

    /// Moves the calling process, which has no other thread, into a new namespace; where it may not, into a user
    /// namespace as well, in which it may. The loopback interface is up.
    pub fn isolate() -> Result<(), String> {
        if unshare().is_err() {
            // SAFETY: a plain system call.
            if unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET) } != 0 {
                let error = io::Error::last_os_error();
                return Err(format!(
                    "cannot make a network namespace: {error}; it needs CAP_SYS_ADMIN, or user namespaces for everybody"
                ));
            }
        }
        crate::Interface::named("lo")?.set_up()
    }

    /// A new namespace with a name, for `ip netns exec` and the like. It stays until [`Netns::remove`].
    pub fn create_named(name: &str) -> Result<Netns, String> {
        if name.is_empty() || name.contains('/') || name.starts_with('.') {
            return Err(format!("`{name}` is no name for a network namespace"));
        }
        let path = format!("{NAMES}/{name}");
        std::fs::create_dir_all(NAMES).map_err(|e| format!("cannot make {NAMES}: {e}"))?;
        File::create_new(&path).map_err(|e| format!("cannot make the network namespace `{name}`: {e}"))?;
        let made = Netns::create().and_then(|netns| netns.run(|| bind_here(&path))?.map(|()| netns));
        match made {
            Ok(netns) => Ok(Netns { named: name.into(), ..netns }),
            Err(sentence) => {
                let _ = std::fs::remove_file(&path);
                Err(sentence)
            }
        }
    }

    /// Removes the name of a namespace; the namespace goes with the last that uses it.
    pub fn remove(name: &str) -> Result<(), String> {
        let path = format!("{NAMES}/{name}");
        let failed = |e: io::Error| format!("cannot remove the network namespace `{name}`: {e}");
        let target = c_string(&path)?;
        // SAFETY: a plain system call with a C string.
        if unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) } != 0 {
            return Err(failed(io::Error::last_os_error()));
        }
        std::fs::remove_file(&path).map_err(failed)
    }

    /// Runs `action` inside, on a thread of its own; the caller's thread stays where it is. Descriptors that it opens
    /// stay attached to the namespace.
    pub fn run<T: Send>(&self, action: impl FnOnce() -> T + Send) -> Result<T, String> {
        on_a_thread(|| {
            enter(self.fd.as_raw_fd()).map_err(|e| format!("cannot enter network namespace `{}`: {e}", self.named))?;
            Ok(action())
        })
    }

    /// Makes a program that is yet to be started run inside.
    pub fn start_inside(&self, command: &mut Command) -> Result<(), String> {
        let fd = self.fd.try_clone().map_err(|e| format!("no descriptor is left: {e}"))?;
        // SAFETY: between fork and exec only setns is called, which is async-signal-safe; the descriptor is owned by
        // the closure.
        unsafe { command.pre_exec(move || enter(fd.as_raw_fd())) };
        Ok(())
    }

    /// A path to it that is valid in this process while this value lives.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.fd.as_raw_fd())
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn on_a_thread<T: Send>(action: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
    std::thread::scope(|scope| match scope.spawn(action).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

fn enter(fd: RawFd) -> io::Result<()> {
    // SAFETY: a plain system call; the kernel checks the descriptor.
    if unsafe { libc::setns(fd, libc::CLONE_NEWNET) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn unshare() -> Result<(), String> {
    // SAFETY: a plain system call; only this thread moves, and it ends soon.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0 {
        return Ok(());
    }
    Err(format!("cannot make a network namespace: {}", io::Error::last_os_error()))
}

/// Gives the calling thread's namespace the name at `path`, an existing file.
fn bind_here(path: &str) -> Result<(), String> {
    let (from, to) = (c_string("/proc/thread-self/ns/net")?, c_string(path)?);
    // SAFETY: a plain system call with C strings.
    let done = unsafe { libc::mount(from.as_ptr(), to.as_ptr(), std::ptr::null(), libc::MS_BIND, std::ptr::null()) };
    if done == 0 { Ok(()) } else { Err(format!("cannot name the namespace {path}: {}", io::Error::last_os_error())) }
}

fn c_string(text: &str) -> Result<std::ffi::CString, String> {
    std::ffi::CString::new(text).map_err(|_| format!("`{}` has a zero byte", text.escape_debug()))
}
