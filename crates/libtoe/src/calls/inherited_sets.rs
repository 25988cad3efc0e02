//! Sets after fork: connections in them are shared with another process, which may take their completions.
use crate::daemon::share;
use crate::lock::Guard;
use crate::state::Lib;
use crate::state::members::{is_shared, members_after_fork};
use crate::state::slab::Key;
use crate::system::errno::Result;

/// After fork, a process that waits takes over what it inherited and waits for.
pub(crate) fn refresh(lib: &mut Guard, key: Key) -> Result<()> {
    let members = members_after_fork(lib, key);
    let mut any = false;
    for member in members {
        lib.request_events(member);
        if is_shared(lib, member) {
            any = true;
            share::claim(lib, member)?;
        }
    }
    if let Some(set) = lib.set(key) {
        set.may_share &= any;
    }
    Ok(())
}

/// After fork, connections in the sets are shared, and the child sleeps on descriptors of its own.
pub(crate) fn after_fork(lib: &mut Lib, in_child: bool) {
    for index in lib.sets.indices() {
        let Some(set) = lib.sets.get_mut(index) else { continue };
        set.may_share = true;
        if in_child {
            set.forget_sleepers();
        }
    }
}
