//! Judge of completions: what each states must hold at that time.
use super::program::{Conn, Posted, Program, RECEIVE, SOURCE};
use crate::random::Stream;
use context::comm::{Carries, Completion, Outcome};

/// Linux' ENOBUFS: a list is full.
const ENOBUFS: u64 = 105;

/// What is wrong with a completion, in tests of the judge.
#[cfg(test)]
#[derive(Debug, Clone, Copy)]
pub(crate) enum Lie {
    /// It comes twice.
    Twice,
    /// It does not come.
    LeftOut,
    /// It comes before its data: they are not there yet, or were altered.
    Early,
    /// It has a byte less than came.
    Short,
    /// A byte before a place is written.
    Outside,
}

/// Both programs, and what their streams are.
pub(super) struct Sides<'a> {
    pub(super) programs: &'a mut [Option<Program>; 2],
    /// What each side sends on each connection.
    pub(super) streams: [&'a [Stream]; 2],
    pub(super) carries: Carries,
    /// Bytes that have no receive yet may be acknowledged: they are kept, or lie in the transport's buffer.
    pub(super) keeps: [bool; 2],
    /// Connections may end otherwise than planned.
    pub(super) is_spoiled: bool,
}

impl Sides<'_> {
    /// A completion of a connection of a program's. True where bytes were found right.
    pub(super) fn judge(&mut self, side: usize, at: usize, done: &Completion) -> Result<bool, String> {
        match done.outcome {
            Outcome::Received => self.received(side, at, done),
            Outcome::Sent => self.sent(side, at, done),
            Outcome::Ended => self.ended(side, at),
            Outcome::Failed => self.failed(side, at, done),
            Outcome::Lost if self.is_spoiled => self.lost(side, at),
            Outcome::Lost => Err("the connection is lost, and nobody gave a reason".into()),
            _ => Err("it is not of a connection".into()),
        }
    }

    fn conn(&mut self, side: usize, at: usize) -> Result<&mut Conn, String> {
        let program = self.programs[side].as_mut().ok_or("its program is gone")?;
        Ok(&mut program.conns[at])
    }

    fn received(&mut self, side: usize, at: usize, done: &Completion) -> Result<bool, String> {
        let stream = self.streams[1 - side][at];
        let peer_written = self.programs[1 - side].as_ref().map(|peer| peer.conns[at].written);
        let sent = self.programs[1 - side].as_ref().map(|peer| peer.conns[at].lengths.clone());
        let carries = self.carries;
        let conn = self.conn(side, at)?;
        let posted = conn.receives.pop_front().filter(|posted| posted.id == done.id);
        let posted = posted.ok_or("a completion out of order, or of what is not under way")?;
        let delivered = conn.delivered;
        if carries == Carries::Messages && done.value > 0 {
            let bytes = sent.map(|sent| sent.get(conn.messages).map_or(0, |len| *len as u64));
            conn.messages += 1;
            if bytes.is_some_and(|bytes| bytes != done.value) {
                return Err(format!("message {} has {bytes:?} bytes where it was sent", conn.messages - 1));
            }
        }
        if done.value > 0 && conn.peer_ended {
            return Err("bytes come behind the end of the stream".into());
        }
        (conn.delivered, conn.is_full) = (delivered + done.value, false);
        if done.value > posted.len as u64 {
            return Err(format!("it has more bytes than the {} that were posted", posted.len));
        }
        if peer_written.is_some_and(|written| delivered + done.value > written) {
            return Err("more bytes came than were sent".into());
        }
        let program = self.programs[side].as_mut().ok_or("its program is gone")?;
        if !program.is_unmapped {
            program.memory.has(RECEIVE, posted.place, stream, delivered, done.value as usize)?;
            program.release(RECEIVE, posted)?;
        }
        Ok(true)
    }

    fn sent(&mut self, side: usize, at: usize, done: &Completion) -> Result<bool, String> {
        let conn = self.conn(side, at)?;
        let posted = conn.sends.pop_front().filter(|posted| posted.id == done.id);
        let posted = posted.ok_or("a completion out of order, or of what is not under way")?;
        self.is_delivered(side, at, posted)?;
        let program = self.programs[side].as_mut().ok_or("its program is gone")?;
        if !program.is_unmapped {
            program.release(SOURCE, posted)?;
        }
        Ok(true)
    }

    /// What the peer has acknowledged is in memory that its program posted, or was notified of.
    fn is_delivered(&self, side: usize, at: usize, posted: Posted) -> Result<(), String> {
        let stream = self.streams[side][at];
        let keeps = self.keeps[1 - side];
        let peer = self.programs[1 - side].as_ref().filter(|peer| !peer.is_unmapped && !keeps);
        let Some(peer) = peer else { return Ok(()) };
        let conn = &peer.conns[at];
        let (mut from, end) = (conn.delivered, posted.at + posted.len as u64);
        if conn.is_closed {
            return Ok(());
        }
        let lengths = self.programs[side].as_ref().map_or(&[][..], |program| &program.conns[at].lengths);
        let mut nth = 0;
        for receive in &conn.receives {
            if from >= end {
                return Ok(());
            }
            let count = (end - from).min(conn.room(nth, receive.len, lengths) as u64);
            let held = peer.memory.has(RECEIVE, receive.place, stream, from, count as usize);
            // Its refusal is on its way to the program: the list was full, and those behind it found room again.
            if held.is_err() && peer.memory.is_clear(&peer.memory.receive, receive.place)? {
                continue;
            }
            held.map_err(|what| format!("byte {from} and more are acknowledged, and {what}"))?;
            (from, nth) = (from + count, nth + 1);
        }
        if from >= end {
            return Ok(());
        }
        Err(format!("bytes {from}..{end} are acknowledged, and nobody posted memory for them"))
    }

    fn ended(&mut self, side: usize, at: usize) -> Result<bool, String> {
        let peer = self.programs[1 - side].as_ref().map(|peer| (peer.conns[at].is_ended, peer.conns[at].written));
        let is_spoiled = self.is_spoiled;
        let conn = self.conn(side, at)?;
        if conn.peer_ended {
            return Err("the stream ends twice".into());
        }
        conn.peer_ended = true;
        match peer {
            _ if is_spoiled => Ok(false),
            Some((true, written)) if written == conn.delivered => Ok(false),
            _ => Err(format!("the stream ends after {} bytes, its sender has {peer:?}", conn.delivered)),
        }
    }

    /// A post was refused: a receive, because the list is full, or anything behind the end of the connection.
    fn failed(&mut self, side: usize, at: usize, done: &Completion) -> Result<bool, String> {
        let is_spoiled = self.is_spoiled;
        let conn = self.conn(side, at)?;
        let is_over = conn.is_closed || is_spoiled;
        let index = conn.receives.iter().position(|posted| posted.id == done.id);
        let Some(posted) = index.and_then(|index| conn.receives.remove(index)) else {
            return if is_over { Ok(false) } else { Err("a post is refused that is no receive".into()) };
        };
        conn.is_full = true;
        if done.value != ENOBUFS && !is_over {
            return Err("a receive is refused, and there is room".into());
        }
        let program = self.programs[side].as_mut().ok_or("its program is gone")?;
        if !program.is_unmapped {
            program.release(RECEIVE, posted)?;
        }
        Ok(false)
    }

    fn lost(&mut self, side: usize, at: usize) -> Result<bool, String> {
        self.conn(side, at)?.is_closed = true;
        Ok(false)
    }
}
