//! Connections that this process shares with another one after fork.
//!
//! Completions of a connection go to one context at a time: the one that claimed it last, which is written in the
//! shared slot state. A process that uses a connection whose completions go elsewhere claims it first. One that waits
//! for it claims it again whenever another one took it meanwhile ([`crate::wait`]): the waiting thread needs the
//! completions.
//!
//! The engine also takes bumps from that context only. So whoever claims writes the connection's positions once more.
//! Whoever wrote or read checks afterwards whether it still has the claim ([`confirm`]). Either the new claimer read
//! the positions, or the other one finds the new claimer.
use crate::daemon::ask;
use crate::lock::Guard;
use crate::state::slab::Key;
use crate::state::socket::Kind;
use crate::state::{Lib, readiness};
use crate::system::errno::Result;
use context::{Reply, Request, Slot, Unaccelerated};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::fence;

/// Makes sure that the connection's completions come here and that the daemon takes its bumps. Costs one load where the
/// connection is not shared.
#[inline]
pub(crate) fn claim(lib: &mut Guard, key: Key) -> Result<()> {
    if matches!(&lib.need_socket(key)?.kind, Kind::Stream(stream) if stream.reclaim.asked) {
        end_reclaim(lib, key)?;
    }
    let by = match &lib.need_socket(key)?.kind {
        Kind::Stream(stream) if stream.shared => stream.claim_by,
        _ => return Ok(()),
    };
    claim_shared(lib, key, by)
}

/// Waits until the daemon has answered for a connection that is wanted again: microseconds.
#[cold]
fn end_reclaim(lib: &mut Guard, key: Key) -> Result<()> {
    ask::wait(lib, |lib| match lib.context() {
        None => Some(()),
        Some(_) => match lib.socket(key).map(|socket| &socket.kind) {
            Some(Kind::Stream(stream)) if stream.reclaim.asked => None,
            _ => Some(()),
        },
    })
}

/// After positions were sent: sends them again where another process took the connection over meanwhile.
#[inline]
pub(crate) fn confirm(lib: &mut Guard, key: Key) {
    if matches!(lib.socket(key).map(|socket| &socket.kind), Some(Kind::Stream(stream)) if stream.shared) {
        fence(SeqCst);
        // An error of the connection is the next call's.
        let _ = claim(lib, key);
    }
}

#[cold]
fn claim_shared(lib: &mut Guard, key: Key, (context, slot): (u32, Slot)) -> Result<()> {
    let Some(me) = lib.context().map(|context| context.home.context()) else { return Ok(()) };
    let socket = lib.need_socket(key)?;
    let broken = socket.broken;
    let stream = socket.stream()?;
    if broken || stream.gone || (stream.name.is_some() && stream.state().is_owned_by(me)) {
        return Ok(());
    }
    let claimed = ask::ask(lib, |tag| Request::Claim { tag, context, slot });
    match claimed {
        Ok(Reply::Claimed { slot, claim, .. }) => lib.take_over(key, slot, (me, claim)),
        Ok(_) => return Err(libc::EPROTO),
        // The connection ended before this process read its state.
        Err(_) => {
            let socket = lib.need_socket(key)?;
            socket.error = libc::ECONNRESET;
            socket.broken = true;
        }
    }
    Ok(())
}

impl Lib {
    fn take_over(&mut self, key: Key, slot: Slot, (me, claim): (u32, u32)) {
        let Some(Kind::Stream(stream)) = self.socket(key).map(|socket| &mut socket.kind) else {
            self.context().into_iter().for_each(|context| {
                context.send_request_surely(Request::Close { slot, tx_head: 0, rx_head: 0, abort: false });
            });
            return;
        };
        let old = stream.name.replace(slot);
        stream.claim_by = (me, slot);
        stream.state().claimed(me, claim);
        let Some(context) = self.context() else { return };
        if let Some(old) = old.filter(|old| *old != slot) {
            context.forget_slot(old);
        }
        if let Some(completion) = context.use_slot(slot, key) {
            self.apply(key, &completion);
        }
        self.catch_up(key);
        if old.is_none() {
            self.label(key, Unaccelerated::No);
        }
        self.bump(key);
    }
}

impl Lib {
    /// What another process took in is new to the sets here: positions are shared, and a completion that repeats them
    /// is none.
    fn catch_up(&mut self, key: Key) {
        let Some(index) = self.socket(key).map(|_| key.index) else { return };
        let Lib { sockets, sets, .. } = self;
        let Some(socket) = sockets.get_mut(index) else { return };
        let Kind::Stream(stream) = &mut socket.kind else { return };
        let change = stream.catch_up();
        readiness::apply_change(socket, sets, change);
    }
}

/// Gives up shares of connections that were closed here without ever having been claimed. The contract has a connection
/// only by a name of this context. Done in calls that may wait, so that a child that is about to exec does not pay for
/// each inherited connection.
pub(crate) fn give_up_unclaimed(lib: &mut Guard) {
    while let Some(stream) = lib.context().and_then(|context| context.unclaimed.pop()) {
        let (context, slot) = stream.claim_by;
        let reply = ask::ask(lib, |tag| Request::Claim { tag, context, slot });
        let Ok(Reply::Claimed { slot, claim, .. }) = reply else { continue };
        // Whoever else has it finds out that its completions were taken away.
        stream.state().claimed(lib.context().map_or(0, |context| context.home.context()), claim);
        let (tx_head, rx_head) = stream.positions();
        ask::send_request(lib, Request::Close { slot, tx_head, rx_head, abort: false });
    }
}
