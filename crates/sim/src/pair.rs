//! Model of a connection's two sides: what both did so far, against which either side's view is judged.
use crate::plan::{CallPlan, Script};
use crate::random::Stream;
use port::Nanos;
use shm::ByteRing;
use std::sync::Arc;

/// The side that connects.
pub(crate) const CLIENT: usize = 0;
/// The side that listens.
pub(crate) const SERVER: usize = 1;

/// For so long a host goes on to send what a program left that has closed (`fin_timeout_ms`).
const FIN_TIMEOUT: Nanos = 60_000_000_000;
/// For so long it repeats what nobody acknowledges (`give_up_ms`).
pub(crate) const GIVE_UP_MS: u32 = 3_600_000;

/// How far a side is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SideState {
    /// Not connected or accepted yet.
    Waiting,
    /// The application has it.
    Open,
    /// The application gave it up.
    Closed,
}

/// One side's doings.
#[derive(Clone)]
pub(crate) struct Half {
    /// How far it is.
    pub stage: SideState,
    /// When the application got it.
    pub opened_at: Option<Nanos>,
    /// When it closed the connection by itself.
    pub closed_at: Option<Nanos>,
    /// Bytes that it wrote.
    pub written: u64,
    /// Where its FIN stands, once the application asked for one.
    pub fin: Option<u64>,
    /// Bytes that it took out of its receive buffer: all were right.
    pub read: u64,
    /// Its process went before there was room in the ring for the bump of its last write.
    pub unreported: bool,
    /// Bytes of its own that completions report as acknowledged.
    pub acked: u64,
    /// It was notified that nothing more comes.
    pub eof: bool,
    /// What it sends.
    pub stream: Stream,
    /// Its receive buffer, while it is open.
    pub buffer: Option<Arc<ByteRing>>,
}

/// One connection, both sides.
#[derive(Clone)]
pub(crate) struct Pair {
    /// Its group in the plan.
    pub call: usize,
    /// Its number in the group.
    pub number: u32,
    /// The sides: [`CLIENT`] and [`SERVER`].
    pub halves: [Half; 2],
    /// Why it may end otherwise than planned: somebody reset it, left, crashed.
    pub spoiled: Option<&'static str>,
    /// When anything about it last changed.
    pub progress_at: Nanos,
}

impl Half {
    /// A side that has done nothing yet.
    pub(crate) fn new(stream: Stream) -> Half {
        let (stage, opened_at, closed_at) = (SideState::Waiting, None, None);
        let (fin, buffer, unreported) = (None, None, false);
        Half { stage, opened_at, closed_at, written: 0, fin, read: 0, unreported, acked: 0, eof: false, buffer, stream }
    }
}

impl Pair {
    /// A connection about to be opened.
    pub(crate) fn new(seed: u64, call: usize, number: u32, now: Nanos) -> Pair {
        let stream = |side: u64| Stream(seed ^ ((call as u64 + 1) << 40) ^ (u64::from(number) << 8) ^ side);
        let half = |side: u64| Half::new(stream(side));
        Pair { call, number, halves: [half(0), half(1)], spoiled: None, progress_at: now }
    }

    /// From now on it may end in other ways than planned.
    pub(crate) fn spoil(&mut self, why: &'static str) {
        self.spoiled.get_or_insert(why);
    }

    /// Its client closed it a minute ago, before its server had it, as happens where a listener has no slots. The
    /// client's host may have given up what was left to send, with a reset that may be lost.
    pub(crate) fn may_be_given_up(&self, now: Nanos) -> bool {
        let [Some(closed), Some(opened)] = [self.halves[CLIENT].closed_at, self.halves[SERVER].opened_at] else {
            return false;
        };
        closed < opened && now - closed >= FIN_TIMEOUT
    }

    /// Its client has it for an hour and its server never had. Where a backlog is always full, connections that come at
    /// the right moment get each place that comes free, and a waiting one may give up.
    pub(crate) fn was_left_waiting(&self, now: Nanos) -> bool {
        let since = self.halves[CLIENT].opened_at.filter(|_| self.halves[SERVER].stage == SideState::Waiting);
        since.is_some_and(|since| now - since >= Nanos::from(GIVE_UP_MS) * 1_000_000)
    }

    /// Both applications are done with it.
    pub(crate) fn is_over(&self) -> bool {
        self.halves.iter().all(|half| half.stage == SideState::Closed)
    }

    /// A name for people.
    pub(crate) fn name(&self) -> String {
        format!("call {} number {}", self.call, self.number)
    }

    /// `side` was notified that `received` bytes came in order, `acked` of its own were acknowledged, and whether
    /// nothing more comes. Checks it against what the other side did.
    pub(crate) fn on_completion(&mut self, side: usize, received: u64, acked: u64, eof: bool) -> Result<(), String> {
        let name = self.name();
        let [mine, theirs] = if side == CLIENT { [0, 1] } else { [1, 0] };
        if received > self.halves[theirs].written {
            let written = self.halves[theirs].written;
            return Err(format!(
                "{name}: {} got a completion of {received} bytes, only {written} were written",
                label(side)
            ));
        }
        if acked > self.halves[mine].written {
            return Err(format!(
                "{name}: {} got a completion of {acked} acknowledged bytes, more than it wrote",
                label(side)
            ));
        }
        if eof {
            self.check_end(side, received)?;
        }
        self.check_delivered(side, acked)?;
        let half = &mut self.halves[mine];
        half.acked = half.acked.max(acked);
        half.eof |= eof;
        Ok(())
    }

    /// What is acknowledged was delivered: it was read, or lies in the receive buffer with the right values.
    fn check_delivered(&self, side: usize, acked: u64) -> Result<(), String> {
        let (mine, theirs) = (&self.halves[side], &self.halves[1 - side]);
        let Some(buffer) = &theirs.buffer else { return Ok(()) };
        let from = mine.acked.max(theirs.read);
        if acked <= from {
            return Ok(());
        }
        // The ring that is in use: what the small one does not hold cannot have arrived before it has grown.
        let grown = buffer.grown();
        let ring = grown.as_ref().unwrap_or(buffer);
        let held = acked - theirs.read;
        if held > u64::from(ring.size()) {
            return Err(format!("{}: {held} bytes are acknowledged but not read, the buffer is smaller", self.name()));
        }
        let mut bytes = vec![0; (acked - from) as usize];
        ring.read(from as u32, &mut bytes);
        match mine.stream.first_difference(from, &bytes) {
            Some(at) => Err(format!(
                "{}: byte {} of {} is acknowledged, but it is not in the receive buffer",
                self.name(),
                from + at as u64,
                label(side)
            )),
            None => Ok(()),
        }
    }

    /// An end of the stream must stand where the other side put it.
    fn check_end(&self, side: usize, received: u64) -> Result<(), String> {
        let theirs = &self.halves[1 - side];
        match theirs.fin {
            _ if theirs.unreported => Ok(()),
            Some(fin) if fin != received => {
                Err(format!("{}: {} sees the end at byte {received}, it stands at {fin}", self.name(), label(side)))
            }
            None if self.spoiled.is_none() => {
                Err(format!("{}: {} sees an end that nobody asked for", self.name(), label(side)))
            }
            _ => Ok(()),
        }
    }
}

/// `client` or `server`.
pub(crate) fn label(side: usize) -> &'static str {
    if side == CLIENT { "the client" } else { "the server" }
}

/// What a side of a call does.
pub(crate) fn script(call: &CallPlan, side: usize) -> &Script {
    if side == CLIENT { &call.client } else { &call.server }
}

/// How many bytes a side may have written when it has read `read` bytes.
pub(crate) fn may_write(call: &CallPlan, side: usize, read: u64) -> u64 {
    let total = script(call, side).send;
    let Some(turns) = call.turns else { return total };
    let (request, response) = (turns.request.max(1), turns.response.max(1));
    let rounds =
        if side == CLIENT { (read / response + 1).saturating_mul(request) } else { (read / request) * response };
    rounds.min(total)
}
