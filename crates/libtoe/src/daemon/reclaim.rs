//! Idle reclaim: the memory of quiet connections is given back (docs/MEMORY.md).
//!
//! A connection uses its buffers from front to end, again and again, so in time every page of them is resident. Where
//! everything that was written is acknowledged and everything that came was read, nothing in them is of use. Once a
//! second, all sockets are swept. One whose positions have not moved since the last time is reclaimed. Its transmit
//! buffer is given back here: no other process writes there, and nothing is left to send again. The daemon gives its
//! receive buffer back when it is asked to.
use crate::state::context_side::Context;
use crate::state::slab::Key;
use crate::state::socket::{Kind, Socket};
use crate::state::stream::Stream;
use crate::state::{Lib, Link};
use crate::system::waking;
use context::{Request, Slot};
use std::time::Duration;

/// Time from one sweep to the next: a connection is reclaimed after one to two of them, at first.
const ROUND: Duration = Duration::from_secs(1);
/// Sleep at most so long while a sweep is under way.
const STEP_NAP: Duration = Duration::from_millis(1);
/// Sockets swept in one step.
const STEP: usize = 1024;
/// Connections that are reclaimed in one step.
const MOST: usize = 64;
/// A process that never sleeps takes a step after so many batches of completions.
const BATCHES: u32 = 1024;

impl Lib {
    /// Completions came. A busy process does its steps here.
    #[inline]
    pub(crate) fn note_activity(&mut self) {
        self.sweeper.again = true;
        self.sweeper.batches = self.sweeper.batches.wrapping_add(1);
        if self.sweeper.batches % BATCHES == 0 {
            self.reclaim_some();
        }
    }

    /// A step of the sweep, where it is time for one. Returns when the next one is due: the longest that a thread may
    /// sleep.
    pub(crate) fn reclaim_some(&mut self) -> Option<Duration> {
        let Lib { link: Link::Attached(context), sockets, sweeper, .. } = self else { return None };
        if !sweeper.under_way {
            if !sweeper.again {
                return None;
            }
            let now = waking::now();
            let since = sweeper.began.map_or(ROUND, |began| now - began);
            if since < ROUND {
                return Some(ROUND - since);
            }
            (sweeper.began, sweeper.under_way, sweeper.again, sweeper.at) = (Some(now), true, false, 0);
            sweeper.first.get_or_insert(now);
        }
        let round = sweeper.seconds();
        let (end, mut reclaimed) = ((sweeper.at + STEP).min(sockets.span()), 0);
        while sweeper.at < end && reclaimed < MOST {
            if let Some(socket) = sockets.get_mut(sweeper.at) {
                match sweep(context, socket, round) {
                    Found::Nothing => {}
                    Found::Moved => sweeper.again = true,
                    Found::Idle => reclaimed += 1,
                    // The next step begins with this one.
                    Found::NoRoom => break,
                }
            }
            sweeper.at += 1;
        }
        sweeper.under_way = sweeper.at < sockets.span();
        match (sweeper.under_way, sweeper.again) {
            (true, _) => Some(STEP_NAP),
            (false, true) => Some(ROUND),
            (false, false) => None,
        }
    }

    /// The daemon has answered.
    pub(crate) fn reclaimed(&mut self, slot: Slot, done: bool) {
        let Lib { link: Link::Attached(context), sockets, .. } = self else { return };
        let Some(index) = context.socket_of(slot) else { return };
        let Some(socket) = sockets.get_mut(index) else { return };
        let key = Key { index, id: socket.id };
        let Kind::Stream(stream) = &mut socket.kind else { return };
        stream.reclaim.asked = false;
        if !done {
            // Its memory is still there: to be asked for again after the next completion.
            stream.reclaim.empty.1 = stream.reclaim.empty.1.wrapping_sub(1);
        } else {
            context.end.reclaimed(slot);
        }
        context.bump(key, stream);
    }
}

enum Found {
    /// Nothing to give back, or not now.
    Nothing,
    /// It was used since the last sweep, or not for long enough.
    Moved,
    /// It is reclaimed from now on.
    Idle,
    /// It is to be reclaimed, but the daemon's ring of requests is full.
    NoRoom,
}

fn sweep(context: &mut Context, socket: &mut Socket, round: u32) -> Found {
    let broken = socket.broken;
    let Kind::Stream(stream) = &mut socket.kind else { return Found::Nothing };
    let now = stream.positions();
    if now == stream.reclaim.empty || stream.shared || stream.reclaim.asked || broken || !stream.is_whole() {
        return Found::Nothing;
    }
    let moved = now != stream.reclaim.seen;
    stream.reclaim.seen = now;
    if !stream.reclaim.idle.is_due(moved, round) {
        return Found::Moved;
    }
    let found = give_back(context, stream, now);
    if matches!(found, Found::Idle) {
        stream.reclaim.idle.since = round;
    }
    found
}

fn give_back(context: &mut Context, stream: &mut Stream, now: (u32, u32)) -> Found {
    let held = stream.reclaim.reserved || stream.keeps();
    let busy = held || stream.pending || stream.bump_held || stream.in_flight() > 0 || stream.readable() > 0;
    let Some(slot) = stream.name.filter(|_| !busy && stream.home.context() == context.home.context()) else {
        return Found::Nothing;
    };
    // Small rings go both at once, and the daemon gives them back.
    let both = stream.home.geometry.has_small() && now != stream.reclaim.empty;
    if now.1 != stream.reclaim.empty.1 || both {
        if !context.send_request(Request::Reclaim { slot, tx_head: now.0, rx_head: now.1 }) {
            return Found::NoRoom;
        }
        stream.reclaim.empty.1 = now.1;
        stream.reclaim.asked = true;
    }
    if now.0 != stream.reclaim.empty.0 && context.end.discard_sent(slot).is_ok() {
        stream.reclaim.empty.0 = now.0;
    }
    Found::Idle
}
