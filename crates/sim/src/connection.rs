//! Connection of an application, one side of it: positions in two buffers, and its script.
use crate::pair::{Pair, SideState, may_write, script};
use crate::plan::{CallPlan, Ending};
use context::attach::SurvivingConnection;
use context::{Bump, Completion, OptionName, Request, Slot};
use port::Nanos;
use shm::{ByteRing, Level};
use std::sync::Arc;

const US: Nanos = 1000;

/// One side of a connection.
#[derive(Clone)]
pub(crate) struct Connection {
    /// Its pair.
    pub pair: usize,
    /// Which side it is.
    pub side: usize,
    /// Its name in the context.
    pub slot: Slot,
    rx: Arc<ByteRing>,
    tx: Arc<ByteRing>,
    /// Bytes received, as last reported to it.
    received: u64,
    /// Bytes taken.
    read: u64,
    /// Bytes written.
    written: u64,
    /// Bytes acknowledged, as last reported to it.
    acked: u64,
    eof: bool,
    /// An error ended it.
    failed: bool,
    fin: bool,
    /// The present positions have not been sent to the engine.
    pub dirty: bool,
    /// It was asked to reclaim the flow, and has not answered.
    pub asked: bool,
    /// Bytes written and read when it was last asked to.
    rested_at: (u64, u64),
    /// Bytes that the peer is offered at most.
    offered: u32,
    /// It asks for more to be offered when it has read so much.
    offers_at: u64,
    next_read: Nanos,
    next_write: Nanos,
}

/// What a side needs after it acted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// To act again at a time, or `Nanos::MAX` when a completion comes.
    At(Nanos),
    /// To close; or to reset, with `abort`.
    Close {
        /// Reset.
        abort: bool,
    },
}

impl Connection {
    /// A side that was just connected or accepted.
    pub(crate) fn new(pair: usize, side: usize, slot: Slot, buffers: (Arc<ByteRing>, Arc<ByteRing>)) -> Connection {
        let (rx, tx) = buffers;
        let offered = rx.usual();
        Connection {
            pair,
            side,
            slot,
            rx,
            tx,
            received: 0,
            read: 0,
            written: 0,
            acked: 0,
            eof: false,
            failed: false,
            fin: false,
            dirty: true,
            asked: false,
            rested_at: (0, 0),
            offered,
            offers_at: u64::from(drawn(pair, side, 0) % (4 * offered)),
            next_read: 0,
            next_write: 0,
        }
    }

    /// The receive buffer, as it was when the connection began.
    pub(crate) fn receive_buffer(&self) -> Arc<ByteRing> {
        Arc::clone(&self.rx)
    }

    /// Reports to the engine where the application is.
    pub(crate) fn bump(&self) -> Bump {
        Bump {
            slot: self.slot,
            tx_head: self.written as u32,
            rx_head: self.read as u32,
            fin: self.fin,
            ring: self.tx.number(),
        }
    }

    /// The positions at which the flow may be reclaimed now: nothing is unread or unacknowledged, and it was not
    /// reclaimed here before.
    pub(crate) fn take_idle(&mut self) -> Option<(u32, u32)> {
        let quiet = self.read == self.received && self.acked == self.written && !self.eof && !self.fin && !self.dirty;
        let here = (self.written, self.read);
        if !quiet || self.asked || here == self.rested_at {
            return None;
        }
        (self.asked, self.rested_at) = (true, here);
        Some((self.written as u32, self.read as u32))
    }

    /// What it asks to be offered from now on: more, now and then, as a program that reads much in a round trip. Up to
    /// all that its receive stream may have.
    pub(crate) fn take_offer(&mut self) -> Option<Request> {
        let most = self.rx.most();
        if self.offered >= most || self.read < self.offers_at {
            return None;
        }
        let drawn = drawn(self.pair, self.side, self.read);
        self.offers_at = self.read + u64::from(drawn % (2 * self.offered));
        self.offered = (self.offered << (1 + drawn % 3)).min(most);
        let (option, value) = (OptionName::ReceiveWindow, self.offered.into());
        Some(Request::Set { slot: self.slot, option, value })
    }

    /// How many of its streams outgrew their buffers.
    pub(crate) fn outgrew(&self) -> u64 {
        [&self.rx, &self.tx].into_iter().filter(|ring| ring.level() == Level::Large).count() as u64
    }

    /// Nothing that it wrote is on its way.
    pub(crate) fn is_acknowledged(&self) -> bool {
        self.acked == self.written
    }

    /// Where it stands, for the host that takes the place of one that is gone.
    pub(crate) fn survivor(&self) -> SurvivingConnection {
        SurvivingConnection {
            slot: self.slot,
            rx_tail: self.received as u32,
            tx_tail: self.acked as u32,
            rx_head: self.read as u32,
            tx_head: self.written as u32,
            shut: self.fin,
            peer_ended: self.eof,
        }
    }

    /// It goes on at that host, to which nothing was reported yet.
    pub(crate) fn goes_on(&mut self) {
        // All that it may have been offered.
        self.offered = self.rx.most();
        (self.asked, self.dirty) = (false, true);
    }

    /// Both directions have ended, or an error ended it, so its host may have forgotten it.
    pub(crate) fn is_over(&self) -> bool {
        self.failed || self.fin && self.eof
    }

    /// Its host reported an error.
    pub(crate) fn fails(&mut self) {
        self.failed = true;
    }

    /// The flow rested, or could not. Bumps meanwhile may be lost.
    pub(crate) fn rested(&mut self) {
        (self.asked, self.dirty) = (false, true);
    }

    /// A completion with the engine's positions. One that is older than one seen before changes nothing.
    pub(crate) fn completion(&mut self, now: Nanos, completion: Completion, pair: &mut Pair) -> Result<(), String> {
        let received = ahead(self.received, completion.rx_tail);
        let acked = ahead(self.acked, completion.tx_tail);
        if received - self.read > u64::from(self.offered) {
            return Err(format!("{}: a completion has more than the peer was offered", pair.name()));
        }
        if self.eof && received != self.received {
            return Err(format!("{}: bytes come after the end", pair.name()));
        }
        if (received, acked, completion.fin) != (self.received, self.acked, self.eof) {
            pair.progress_at = now;
        }
        (self.received, self.acked) = (received, acked);
        pair.halves[self.side].buffer.get_or_insert_with(|| Arc::clone(&self.rx));
        self.eof |= completion.fin;
        pair.on_completion(self.side, received, acked, self.eof)
    }

    /// Reads, writes and ends by the script.
    pub(crate) fn act(&mut self, now: Nanos, call: &CallPlan, pair: &mut Pair) -> Result<Wish, String> {
        self.read(now, call, pair)?;
        self.write(now, call, pair);
        if let Some(wish) = self.end(now, call, pair) {
            return Ok(wish);
        }
        let mut at = Nanos::MAX;
        if self.received > self.read {
            at = at.min(self.next_read);
        }
        if self.room(call) > 0 {
            at = at.min(self.next_write);
        }
        Ok(Wish::At(at))
    }

    fn read(&mut self, now: Nanos, call: &CallPlan, pair: &mut Pair) -> Result<(), String> {
        let script = script(call, self.side);
        let n = (self.received - self.read).min(script.read);
        if n == 0 || now < self.next_read {
            return Ok(());
        }
        let mut bytes = vec![0; n as usize];
        if let Some(grown) = self.rx.grown() {
            self.rx = grown;
        }
        self.rx.read(self.read as u32, &mut bytes);
        if let Some(at) = pair.halves[1 - self.side].stream.first_difference(self.read, &bytes) {
            return Err(format!("{}: byte {} is received with a wrong value", pair.name(), self.read + at as u64));
        }
        self.read += n;
        self.dirty = true;
        self.next_read = now + script.read_gap_us * US;
        pair.halves[self.side].read = self.read;
        pair.progress_at = now;
        Ok(())
    }

    /// Bytes that it may write now: none while the flow may be under reclaim, for the memory of small rings goes as a
    /// whole (docs/MEMORY.md).
    fn room(&self, call: &CallPlan) -> u64 {
        let free = u64::from(self.tx.most()) - (self.written - self.acked);
        let wanted = may_write(call, self.side, self.read).saturating_sub(self.written);
        if self.fin || self.asked { 0 } else { free.min(wanted) }
    }

    fn write(&mut self, now: Nanos, call: &CallPlan, pair: &mut Pair) {
        let script = script(call, self.side);
        let n = self.room(call).min(script.write);
        if n == 0 || now < self.next_write {
            return;
        }
        let half = &mut pair.halves[self.side];
        let mut bytes = vec![0; n as usize];
        half.stream.fill(self.written, &mut bytes);
        self.tx = self.tx.holding(self.acked as u32, (self.written + n) as u32);
        self.tx.write(self.written as u32, &bytes);
        self.written += n;
        half.written = self.written;
        pair.progress_at = now;
        self.dirty = true;
        self.next_write = now + script.write_gap_us * US;
    }

    fn end(&mut self, now: Nanos, call: &CallPlan, pair: &mut Pair) -> Option<Wish> {
        let script = script(call, self.side);
        let wrote_all = self.written == script.send;
        let at_end = self.eof && self.read == self.received;
        let moved = self.written + self.read;
        let close = |pair: &mut Pair, abort: bool| {
            let half = &mut pair.halves[self.side];
            if !abort {
                half.fin = Some(self.written);
            }
            (half.stage, half.closed_at) = (SideState::Closed, Some(now));
            half.buffer = None;
            pair.progress_at = now;
            Some(Wish::Close { abort })
        };
        match script.ending {
            Ending::Abort { after } if moved >= after => {
                pair.spoil("one side reset it");
                return close(pair, true);
            }
            Ending::Leave { after } if moved >= after => {
                pair.spoil("one side left early");
                return close(pair, false);
            }
            Ending::Close if wrote_all && self.read == crate::pair::script(call, 1 - self.side).send => {
                return close(pair, false);
            }
            Ending::Shutdown if wrote_all && !self.fin => {
                (self.fin, self.dirty) = (true, true);
                pair.halves[self.side].fin = Some(self.written);
                pair.progress_at = now;
            }
            _ => {}
        }
        if at_end && (wrote_all || pair.spoiled.is_some()) { close(pair, false) } else { None }
    }

    /// The application gives it up for another reason than its script: an error, impatience.
    pub(crate) fn give_up(&self, now: Nanos, pair: &mut Pair) {
        let half = &mut pair.halves[self.side];
        half.stage = SideState::Closed;
        half.buffer = None;
        pair.progress_at = now;
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Connection { side, slot, received, read, written, acked, eof, fin, dirty, .. } = self;
        write!(f, "{} in slot {}/{}: ", crate::pair::label(*side), slot.index, slot.generation)?;
        write!(f, "received {received} read {read} written {written} acked {acked} eof {eof} fin {fin} dirty {dirty}")
    }
}

/// A 32-bit position made whole: at or ahead of `known`.
fn ahead(known: u64, position: u32) -> u64 {
    let step = position.wrapping_sub(known as u32) as i32;
    known + step.max(0) as u64
}

/// A number that follows from where a side of a pair is.
fn drawn(pair: usize, side: usize, read: u64) -> u32 {
    let mixed = (read ^ ((pair as u64) << 33) ^ ((side as u64) << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 40) as u32
}
