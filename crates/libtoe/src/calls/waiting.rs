//! Waiting for sockets and sets: other processes may share them, so they are claimed before each sleep.
use crate::calls::inherited_sets;
use crate::daemon::share;
use crate::lock::Guard;
use crate::state::Lib;
use crate::system::errno::Result;
use crate::wait::rounds::Rounds;
use crate::wait::{Target, WaitOptions};
use libc::pollfd;

/// Waits until `poll` gives something ([`Rounds`]).
pub(crate) fn until<T>(
    lib: &mut Guard,
    wait: WaitOptions<'_>,
    poll: impl FnMut(&mut Lib, Option<&[pollfd]>) -> Option<T>,
) -> Result<T> {
    Rounds { wait, prepare: claim, poll }.until(lib)
}

/// The same where the caller has checked already.
pub(crate) fn go_on<T>(
    lib: &mut Guard,
    wait: WaitOptions<'_>,
    poll: impl FnMut(&mut Lib, Option<&[pollfd]>) -> Option<T>,
) -> Result<T> {
    Rounds { wait, prepare: claim, poll }.go_on(lib)
}

/// Before a wait goes to sleep: its connections' completions come here.
fn claim(lib: &mut Guard, targets: &[Target]) -> Result<()> {
    for target in targets {
        match target {
            Target::Socket(key) if lib.socket(*key).is_some_and(|socket| socket.is_shared()) => {
                share::claim(lib, *key)?
            }
            Target::Socket(_) => {}
            Target::Set(key) | Target::Members(key) => inherited_sets::refresh(lib, *key)?,
        }
    }
    Ok(())
}
