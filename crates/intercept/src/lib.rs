//! The system calls of the own process, seen below the symbols.
//!
//! [`install`] finds system call instructions in the code that the dynamic linker has loaded, and replaces those
//! that can concern the caller by jumps. From then on such a call first comes to [`Rules::ask`], which decides what
//! becomes of it. `docs/SYSTEM-CALLS.md` compares this with other techniques and lists what it does not reach.
//!
//! [`spread_net`] catches what is not rewritten, code that is loaded later included.
//!
//! From the outside in: `objects` (what is loaded), `sites` (which instructions, pure), `stubs` (what a jump leads
//! to), `patch` (memory), `entry` (registers), `apart` (small stacks). Of the net: `net` (the signal), `dispositions`
//! (the program's signals), `own` (programs that the library loads), `call_sites` (which stub), `running` (what can be
//! rewritten while threads run), `pool` (its stubs).
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod call_sites;
mod dispositions;
mod entry;
mod objects;
mod patch;
mod pool;
mod running;
mod sites;
mod small_stacks;
pub mod static_programs;
mod stubs;
mod user_dispatch;

pub use dispositions::{Action, BIT as NEVER_BLOCKED, change as change_action, unchanged as action_unchanged};
pub use entry::{Ask, Call, Class, NUMBERS, Rules, Verdict};
pub use sites::Reason;
pub use user_dispatch::{
    go_on_in_child, is_there as has_net, put_back as put_net_back, take_away as take_net_away, warn, what_is_lost,
};

/// What [`install`] did.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Report {
    /// Instructions that were rewritten.
    pub rewritten: usize,
    /// Instructions whose number is known and of no concern.
    pub of_no_concern: usize,
    /// Instructions that stay as they are, although they may concern: where, in which object, and why.
    pub left: Vec<(String, u64, Reason)>,
}

/// Rewrites the system call instructions of everything loaded so far. It leaves out objects that `skip` names by their
/// path (empty for the program itself), the dynamic linker, and the kernel's own object.
///
/// # Safety
/// The process has one thread, and no signal handler runs. `rules.ask` keeps the contract of [`Ask`].
pub unsafe fn install(rules: &Rules, skip: fn(&str) -> bool) -> Report {
    entry::set(rules);
    if rules.has_small_stacks {
        small_stacks::set(rules);
    }
    let mut report = Report::default();
    for object in objects::loaded().iter().filter(|object| !skip(&object.path)) {
        for code in &object.code {
            // SAFETY: by the dynamic linker, this range is mapped and executable; nothing unmaps it meanwhile.
            let bytes = unsafe { code.bytes() };
            let scan =
                sites::scan(bytes, code.start, &object.functions, |number| (rules.class_of)(number) != Class::Pass);
            report.of_no_concern += scan.of_no_concern;
            report.left.extend(scan.left.iter().map(|(at, reason)| (object.path.clone(), *at, *reason)));
            // SAFETY: the caller's promise; the sites are of this range.
            match unsafe { patch::apply(code, &scan.sites, entry::address()) } {
                Ok(()) => report.rewritten += scan.sites.len(),
                Err(reason) => {
                    let all = scan.sites.iter().map(|site| (object.path.clone(), site.call, reason));
                    report.left.extend(all);
                }
            }
        }
    }
    report
}

/// Catches all system calls that are not rewritten, of this thread and of all that it makes. Behind [`install`].
///
/// # Errors
/// The system's error number where it has no syscall user dispatch (Linux 5.11), or refuses it.
///
/// # Safety
/// As [`install`].
pub unsafe fn spread_net() -> Result<(), libc::c_int> {
    // SAFETY: the caller's promise.
    unsafe { user_dispatch::start(entry::address()) }
}
