//! libtoe.so: preloaded into an unmodified program, it runs the program's TCP sockets on OpenTOE.
//!
//! It interposes the socket calls of POSIX and Linux. Everything that is not an accelerated socket passes to the
//! next definition of the call. It talks to the daemon through one context per process (crate `context`) and
//! never touches the network itself. `docs/POSIX.md` lists each call with its limits.
//!
//! | module, from the outside in | what |
//! |---|---|
//! | `interpose` | C entry points and system calls |
//! | `interfaces` | the host's interfaces beside the kernel's |
//! | `process` | fork, exec, passing of descriptors |
//! | `calls` | socket calls |
//! | `daemon` | the connection to the daemon |
//! | `wait` | yields and sleeps |
//! | `lock` | the one lock of the library |
//! | `state` | sockets, streams, epoll sets, readiness |
//! | `system` | system calls of the library |
//! | `table` | the table of file descriptors |
//!
//! Each module uses only those below it. `schedules` tests waiting.

mod calls;
mod daemon;
mod interfaces;
mod interpose;
mod lock;
mod process;
#[cfg(test)]
mod schedules;
mod state;
mod system;
mod table;
mod wait;

use daemon::attach;
use process::{environment, exec};
use system::faults;

/// Run by the dynamic linker when the library is loaded.
extern "C" fn start() {
    lock::detect_threads();
    attach::read_environment();
    environment::remember();
    if attach::is_enabled() {
        faults::start();
    }
    exec::take_over();
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    {
        interpose::hosted::start(table::words());
        interpose::layer::start();
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;
