//! Sets after fork: connections in them are shared with another process, which may take their news.
use super::Target;
use crate::errno::Result;
use crate::few::Few;
use crate::lock::Guard;
use crate::share;
use crate::socket::Kind;
use crate::state::{Key, Lib};

/// Whether another process may take news of a connection in the set.
pub(crate) fn has_shared(lib: &mut Lib, key: Key) -> bool {
    members_after_fork(lib, key).iter().any(|member| is_shared(lib, *member))
}

fn is_shared(lib: &mut Lib, key: Key) -> bool {
    matches!(lib.socket(key).map(|socket| &socket.kind), Some(Kind::Stream(stream)) if stream.shared)
}

/// The sockets of a set that existed when the process forked; none for others, which costs nothing.
fn members_after_fork(lib: &mut Lib, key: Key) -> Vec<Key> {
    let Some(set) = lib.set(key).filter(|set| set.may_share) else { return Vec::new() };
    let targets: Vec<Target> =
        set.entries.indices().iter().filter_map(|i| set.entries.get(*i)).map(|entry| entry.target).collect();
    let key = |target| match target {
        Target::Socket(index) => lib.key_of(index as usize),
        Target::Set(_) => None,
    };
    targets.into_iter().filter_map(key).collect()
}

/// After fork, a process that waits takes over what it inherited and waits for.
pub(super) fn refresh(lib: &mut Guard, key: Key) -> Result<()> {
    let members = members_after_fork(lib, key);
    let mut any = false;
    for member in members {
        lib.show_interest(member);
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
            set.sleepers = 0;
            set.kicked = false;
            set.waiters = Few::None;
            (set.bed, set.kick) = (None, None);
        }
    }
}
