//! libtoe.so: preloaded into an unmodified program, it runs the program's TCP sockets on OpenTOE.
//!
//! It interposes the socket calls of POSIX and Linux. Everything that is not an accelerated socket passes to the
//! next definition of the call. It talks to the daemon through one context per process (crate `context`) and
//! never touches the network itself. `docs/POSIX.md` lists each call with its limits.
//!
//! From the outside in: `interpose` (C entry points), `table` (which descriptors are ours), `lock` and `state`
//! (everything is behind one lock), `socket`, `stream`, `kept`, `connect`, `fast`, `data`, `zero_copy`, `log`,
//! `options` (what sockets do), `program`, `faults` (the program's memory), `epoll`, `poll`, `readiness`, `wait`,
//! `signals`, `lookout`, `thread`, `confine` (waiting), `context_side`, `attach`, `lost`, `reattach`, `comm`, `fork`,
//! `spawn`, `exec`, `image`, `static_host`, `passing`, `carried`, `room`, `say`, `environment`, `share`, `interfaces`,
//! `lists` (the tie to the daemon).

mod address;
mod attach;
mod carried;
mod comm;
mod confine;
mod connect;
mod context_side;
mod data;
mod environment;
mod epoll;
mod errno;
mod exclusive;
mod exec;
mod fast;
mod faults;
mod few;
mod fork;
mod home;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod image;
mod interfaces;
mod interpose;
mod kept;
mod listener;
mod lists;
mod lock;
mod log;
mod log_records;
mod lookout;
mod lost;
mod option_values;
mod options;
mod own_fd;
mod own_socket;
mod passing;
mod pieces;
mod poll;
mod program;
mod quiet;
mod readiness;
mod real;
mod reattach;
mod rest;
mod ring;
mod room;
mod say;
#[cfg(test)]
mod schedules;
mod share;
mod sharing;
mod signals;
mod socket;
mod spawn;
mod splice;
mod stand_in;
mod state;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod static_host;
mod stream;
mod table;
mod thread;
mod wait;
mod waking;
mod zero_copy;

/// Run by the dynamic linker when the library is loaded.
extern "C" fn start() {
    lock::look_for_others();
    attach::look_at_environment();
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
