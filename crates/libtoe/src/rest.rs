//! Giving back the memory of connections that are quiet (docs/MEMORY.md).
//!
//! A connection uses its buffers from front to end, again and again, so in time every page of them is resident. Where
//! everything that was written is acknowledged and everything that came was read, nothing in them is of use. Once a second
//! a hand goes around all sockets; one whose positions have not moved since the last time rests: its transmit buffer is
//! given back here (nobody but this process writes there, and nothing is left to send again), its receive buffer by the
//! daemon, which is asked to.
use crate::context_side::Context;
use crate::errno::Result;
use crate::lock::Guard;
use crate::signals::Signals;
use crate::socket::{Kind, Socket};
use crate::state::{Key, Lib, Link};
use crate::stream::Stream;
use crate::wait::{self, Wait};
use context::{Request, Slot};
use std::time::{Duration, Instant};

/// Time from one round of the hand to the next: a connection rests after one to two of them, at first.
const ROUND: Duration = Duration::from_secs(1);
/// Rounds that a connection must be quiet at most.
const MOST_PATIENCE: u8 = 64;
/// Sleep at most so long while the hand is under way.
const STEP_NAP: Duration = Duration::from_millis(1);
/// Sockets looked at in one step.
const STEP: usize = 1024;
/// Connections that begin to rest in one step.
const MOST: usize = 64;
/// A process that never sleeps takes a step after so many batches of notices.
const BATCHES: u32 = 1024;

/// Where the hand is.
pub(crate) struct Hand {
    at: usize,
    /// When the last round began; none is under way before the first.
    began: Option<Instant>,
    /// When the first one did.
    first: Option<Instant>,
    under_way: bool,
    /// Something was said of a connection since the round began, or one was found that may rest next time.
    again: bool,
    batches: u32,
}

impl Hand {
    /// Before the first round.
    pub(crate) const fn new() -> Hand {
        Hand { at: 0, began: None, first: None, under_way: false, again: false, batches: 0 }
    }

    /// From the begin of the first round to that of the last, in seconds, and one more.
    fn seconds(&self) -> u32 {
        let time = self.began.zip(self.first).map_or(0, |(began, first)| (began - first).as_secs());
        time.min(u64::from(u32::MAX) - 1) as u32 + 1
    }
}

impl Lib {
    /// Notices came. A busy process does its steps here.
    #[inline]
    pub(crate) fn note_activity(&mut self) {
        self.hand.again = true;
        self.hand.batches = self.hand.batches.wrapping_add(1);
        if self.hand.batches % BATCHES == 0 {
            self.rest_some();
        }
    }

    /// A step of the hand, where it is time for one. Says when the next one is due: the longest that a thread may sleep.
    pub(crate) fn rest_some(&mut self) -> Option<Duration> {
        let Lib { link: Link::Attached(context), sockets, hand, .. } = self else { return None };
        if !hand.under_way {
            if !hand.again {
                return None;
            }
            let now = Instant::now();
            let since = hand.began.map_or(ROUND, |began| now - began);
            if since < ROUND {
                return Some(ROUND - since);
            }
            (hand.began, hand.under_way, hand.again, hand.at) = (Some(now), true, false, 0);
            hand.first.get_or_insert(now);
        }
        let round = hand.seconds();
        let (end, mut resting) = ((hand.at + STEP).min(sockets.span()), 0);
        while hand.at < end && resting < MOST {
            if let Some(socket) = sockets.get_mut(hand.at) {
                match look(context, socket, round) {
                    Found::Nothing => {}
                    Found::Moved => hand.again = true,
                    Found::Quiet => resting += 1,
                    // The next step begins with this one.
                    Found::NoRoom => break,
                }
            }
            hand.at += 1;
        }
        hand.under_way = hand.at < sockets.span();
        match (hand.under_way, hand.again) {
            (true, _) => Some(STEP_NAP),
            (false, true) => Some(ROUND),
            (false, false) => None,
        }
    }

    /// The daemon has answered.
    pub(crate) fn rested(&mut self, slot: Slot, done: bool) {
        let Lib { link: Link::Attached(context), sockets, .. } = self else { return };
        let Some(index) = context.socket_of(slot) else { return };
        let Some(socket) = sockets.get_mut(index) else { return };
        let key = Key { index, id: socket.id };
        let Kind::Stream(stream) = &mut socket.kind else { return };
        stream.rest.asked = false;
        if !done {
            // Its memory is still there: to be asked for again after the next news.
            stream.rest.empty.1 = stream.rest.empty.1.wrapping_sub(1);
        } else {
            context.end.rested(slot);
        }
        context.bump(key, stream);
    }
}

/// What a connection's buffers were when the hand came by.
#[derive(Default)]
pub(crate) struct State {
    /// Positions (written, read) at the last look.
    seen: (u32, u32),
    /// Positions when the buffers were given back, or never used.
    empty: (u32, u32),
    /// The daemon was asked and has not answered: bumps may be lost.
    pub asked: bool,
    /// The program holds addresses of room that it reserved (zero-copy interface).
    pub reserved: bool,
    quiet: Quiet,
}

/// How long a connection has been quiet, and how long it must be. To rest and to wake costs system calls and page faults,
/// so one that wakes soon, again and again (32,000 connections that speak every other second), must be quiet for longer
/// and longer.
#[derive(Default)]
struct Quiet {
    /// Looks that found it as the one before did.
    looks: u8,
    /// Looks that it takes, less one.
    patience: u8,
    /// When it began to rest, until it wakes: seconds as [`Hand::seconds`] has them; 0 for none.
    since: u32,
}

impl Quiet {
    /// A look of the round that began at second `now`; whether it is time to rest.
    fn is_due(&mut self, moved: bool, now: u32) -> bool {
        if !moved {
            self.looks = self.looks.saturating_add(1);
            return self.looks > self.patience;
        }
        let since = std::mem::take(&mut self.since);
        if since != 0 {
            let soon = now.saturating_sub(since) <= 2 * (u32::from(self.patience) + 2);
            self.patience = if soon { (2 * self.patience + 1).min(MOST_PATIENCE - 1) } else { 0 };
        }
        self.looks = 0;
        false
    }
}

enum Found {
    /// Nothing to give back, or not now.
    Nothing,
    /// It was used since the last look, or not for long enough.
    Moved,
    /// It rests from now on.
    Quiet,
    /// It is to rest, but the daemon's ring of requests is full.
    NoRoom,
}

fn look(context: &mut Context, socket: &mut Socket, round: u32) -> Found {
    let broken = socket.broken;
    let Kind::Stream(stream) = &mut socket.kind else { return Found::Nothing };
    let now = stream.positions();
    if now == stream.rest.empty || stream.shared || stream.rest.asked || broken || stream.flags() != 0 {
        return Found::Nothing;
    }
    let moved = now != stream.rest.seen;
    stream.rest.seen = now;
    if !stream.rest.quiet.is_due(moved, round) {
        return Found::Moved;
    }
    let found = give_back(context, stream, now);
    if matches!(found, Found::Quiet) {
        stream.rest.quiet.since = round;
    }
    found
}

fn give_back(context: &mut Context, stream: &mut Stream, now: (u32, u32)) -> Found {
    let held = stream.rest.reserved || stream.keeps();
    let busy = held || stream.owed || stream.untold || stream.in_flight() > 0 || stream.readable() > 0;
    let Some(slot) = stream.name.filter(|_| !busy && stream.home.context == context.home.context) else {
        return Found::Nothing;
    };
    // Small rings go both at once, and the daemon gives them back.
    let both = stream.home.geometry.has_small() && now != stream.rest.empty;
    if now.1 != stream.rest.empty.1 || both {
        if !context.tell(Request::Rest { slot, tx_head: now.0, rx_head: now.1 }) {
            return Found::NoRoom;
        }
        stream.rest.empty.1 = now.1;
        stream.rest.asked = true;
    }
    if now.0 != stream.rest.empty.0 && context.end.discard_sent(slot).is_ok() {
        stream.rest.empty.0 = now.0;
    }
    Found::Quiet
}

/// Waits until the daemon has answered for a connection that is wanted again: microseconds.
#[cold]
pub(crate) fn wake(lib: &mut Guard, key: Key) -> Result<()> {
    let wait = Wait { signals: Signals::Keep, ..Wait::forever() };
    wait::until(lib, wait, |lib, _| match lib.context() {
        None => Some(()),
        Some(_) => match lib.socket(key).map(|socket| &socket.kind) {
            Some(Kind::Stream(stream)) if stream.rest.asked => None,
            _ => Some(()),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks once a round at a connection that speaks every `period` rounds; how often it rests in 1000 rounds.
    fn rests(period: u32) -> u32 {
        let (mut quiet, mut asleep, mut rests) = (Quiet::default(), false, 0);
        for round in 0..1000 {
            let (moved, now) = (round % period == 0, round + 1);
            asleep &= !moved;
            if !asleep && quiet.is_due(moved, now) {
                (asleep, quiet.since) = (true, now);
                rests += 1;
            }
        }
        rests
    }

    #[test]
    fn who_speaks_every_few_seconds_soon_rests_no_more_and_who_is_silent_for_long_rests_each_time() {
        assert!((1..=3).contains(&rests(3)), "{}", rests(3));
        assert_eq!((rests(20), rests(500)), (50, 2));
    }
}
