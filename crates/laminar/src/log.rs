//! Shared logs (docs/SHARED-LOG.md): the host's half of the sequencer. The pipeline gives payload its place in a log.
//! This part puts it there, fills gaps, finds out when records are complete, and gives their room back to the
//! connections.
mod handover;

use crate::Laminar;
use crate::descriptor::{Dma, LOG_FILL, LogPlace};
use crate::flow::Flow;
use crate::frames::place;
use crate::places::{Log, Logs, Member};
use context::LogEnd;
use engine::stream::{self, LogRefusal, MOST_LOGS, Stream};
use engine::{Burst, ContextId, DropReason, FlowId, Frame};
use shm::Span;
use std::collections::VecDeque;
use tcp::Owner;

impl Laminar {
    pub(crate) fn open_log(&mut self, context: ContextId, end: LogEnd) {
        // Without a tail in the pipeline it has no members: they are notified.
        let _ = self.add_log(Log::new(context.0, end));
    }

    /// Its number; nothing where the pipeline has no tail for it.
    fn add_log(&mut self, log: Log) -> Option<u16> {
        let free = self.logs.list.iter().position(Option::is_none);
        let number = free.unwrap_or(self.logs.list.len());
        if number >= MOST_LOGS || !self.switch.program.has_logs() {
            return None;
        }
        self.switch.program.set_log_tail(number as u16, log.tail_bytes());
        self.logs.list.resize_with(self.logs.list.len().max(number + 1), || None);
        self.logs.list[number] = Some(log);
        Some(number as u16)
    }

    /// The context is gone, and its log.
    pub(crate) fn close_log(&mut self, context: u32) {
        let Some(number) = self.logs.of(context) else { return };
        for id in 0..self.flows.len() as u32 {
            if self.flow(id).is_some_and(|flow| flow.member.as_ref().is_some_and(|member| member.log == number)) {
                self.leave_log(id);
            }
        }
        self.logs.list[number as usize] = None;
    }

    pub(crate) fn join_log(&mut self, id: u32, rx_head: u32, mark: u64, burst: &mut Burst<'_, Stream>) {
        let result = self.try_join(id, rx_head, mark);
        burst.events.push(stream::Event::LogJoined(FlowId(id), result).into());
        if result.is_ok() {
            // What was received before may be whole records, or all there is.
            self.log_moved(id);
        }
    }

    fn try_join(&mut self, id: u32, rx_head: u32, mark: u64) -> Result<(), LogRefusal> {
        let flow = self.flows.get_mut(id as usize).and_then(Option::as_deref_mut).ok_or(LogRefusal::Unfit)?;
        let number = self.logs.of(flow.params.context.0).ok_or(LogRefusal::Unfit)?;
        let log = self.logs.get(number).ok_or(LogRefusal::Unfit)?;
        if flow.member.is_some() {
            return Err(LogRefusal::Joined);
        }
        let taken = rx_head.wrapping_sub(flow.rx_head);
        if flow.life != Owner::Owned || flow.frozen || taken > flow.rx_tail.wrapping_sub(flow.rx_head) {
            return Err(LogRefusal::Unfit);
        }
        let window = (flow.rx.usual() / log.record()) as u64;
        if log.promised + log.left_behind + window > log.owners.len() as u64 {
            return Err(LogRefusal::Full);
        }
        log.promised += window;
        log.lives = log.lives.wrapping_add(1);
        flow.rx_head = rx_head;
        let mut member = Member {
            log: number,
            start: rx_head,
            life: log.lives,
            moved: false,
            mark,
            reserved: 0,
            done: 0,
            records: 0,
            trimmed: 0,
            stretches: VecDeque::new(),
        };
        // What has come already, in order or not, is in the receive buffer.
        let next = self.switch.program.rx_window(id)[0].wrapping_sub(flow.ends.peer_len());
        let behind = next.wrapping_add(self.switch.program.interval_end(id)).wrapping_sub(flow.rx_base.0);
        let has = behind.wrapping_sub(rx_head).max(flow.rx_tail.wrapping_sub(rx_head));
        if has > 0 {
            log.reserve(id, &mut member, has.next_multiple_of(log.record()));
            let place = log.tail_bytes().wrapping_sub(member.reserved);
            log.end.records.write_span(place, &Span::new(&flow.rx, rx_head, has));
        }
        let first = flow.rx_base + rx_head;
        if !self.switch.program.join_log(id, number, first, log.record()) {
            return Err(LogRefusal::Unfit);
        }
        self.switch.program.set_log(id, member.reserved);
        self.switch.program.set_log_tail(number, log.tail_bytes());
        flow.member = Some(Box::new(member));
        Ok(())
    }

    /// Payload that the pipeline gave a place in the log. False where that place cannot be: another program's.
    pub(crate) fn place_in_log(&mut self, dma: &Dma, at: &LogPlace, segment: Option<(&Frame, usize)>) -> bool {
        let id = dma.flow as u32;
        let Some(flow) = self.flows.get_mut(id as usize).and_then(Option::as_deref_mut) else { return true };
        let Some(member) = flow.member.as_deref_mut() else { return true };
        let Some(log) = self.logs.list.get_mut(member.log as usize).and_then(Option::as_mut) else { return true };
        let new = at.after.wrapping_sub(at.before);
        let room = log.owners.len() as u64 - (log.tail - log.head);
        let right = at.before == member.reserved && (new == 0 || at.place == log.tail_bytes());
        if !right || new % log.record() != 0 || (new / log.record()) as u64 > room {
            return false;
        }
        if new > 0 {
            log.reserve(id, member, new);
        }
        let Some((frame, payload_at)) = segment else { return true };
        let length = dma.length as u32;
        if dma.flags & LOG_FILL == 0 {
            // By the pipeline's own address, all in what was reserved just now.
            let into = at.offset.wrapping_sub(at.before);
            if dma.address != at.place.wrapping_add(into) || into > new || length > new - into {
                return false;
            }
            if dma.skip < length {
                place(frame, payload_at, dma, &log.end.records);
            }
            return true;
        }
        self.logs.counts[2] += 1;
        let Some(log) = self.logs.list[member.log as usize].as_ref() else { return true };
        log.pieces(member, at.offset, (dma.skip.min(length), length), |first, last, to| {
            let piece = Dma { skip: first, length: last as u16, address: to.wrapping_sub(first), ..*dma };
            place(frame, payload_at, &piece, &log.end.records);
        });
        true
    }

    /// The flow's stream has come further, or is over.
    pub(crate) fn log_moved(&mut self, id: u32) {
        let member = self.flows[id as usize].as_deref_mut().and_then(|flow| flow.member.as_deref_mut());
        if member.is_some_and(|member| !std::mem::replace(&mut member.moved, true)) {
            self.logs.moved.push(id);
        }
    }

    /// Records that became complete in this round can be read: now that all descriptors of the pipeline were processed.
    pub(crate) fn advance_logs(&mut self) {
        while let Some(id) = self.logs.moved.pop() {
            self.advance_log(id);
        }
    }

    fn advance_log(&mut self, id: u32) {
        let Some(flow) = self.flows.get_mut(id as usize).and_then(Option::as_deref_mut) else { return };
        let Some(member) = flow.member.as_deref_mut() else { return };
        let Some(log) = self.logs.list.get_mut(member.log as usize).and_then(Option::as_mut) else { return };
        member.moved = false;
        let has = flow.rx_tail.wrapping_sub(member.start);
        self.logs.counts[0] += log.finish(member, has, false);
        if flow.ends.peer_ended() {
            // Half a record at the end is none.
            self.logs.counts[1] += log.finish(member, member.reserved, true);
        }
        self.report_log(flow_log(&self.flows, id));
    }

    fn report_log(&mut self, number: Option<u16>) {
        let Some(log) = number.and_then(|number| self.logs.get(number)) else { return };
        let context = log.context;
        if let Some(completion) = log.readable() {
            self.contexts.report_log(context, completion);
        }
    }

    /// The flow's records go to the log no more. What has a place and is not complete stays a hole.
    pub(crate) fn leave_log(&mut self, id: u32) {
        let Some(flow) = self.flows.get_mut(id as usize).and_then(Option::as_deref_mut) else { return };
        if flow.member.is_some() {
            self.switch.program.leave_log(id);
            let number = self.logs.leave(flow);
            self.report_log(number);
        }
    }

    /// Another process takes the flow over: it has left the log, and what still comes for the log is for nobody.
    pub(crate) fn end_membership(&mut self, id: u32) {
        if self.flow(id).is_some_and(|flow| flow.member.is_some()) {
            self.leave_log(id);
            if let Some(flow) = self.flow(id) {
                flow.life.orphan();
            }
        }
    }

    /// As [`Laminar::leave_log`], of a flow that was taken out already.
    pub(crate) fn leave_log_with(&mut self, id: u32, flow: &mut Flow) {
        if flow.member.is_some() {
            self.switch.program.leave_log(id);
            let number = self.logs.leave(flow);
            self.report_log(number);
        }
    }

    /// The application has given back all records before number `upto`, modulo 2^32: their connections have the room
    /// again.
    pub(crate) fn trim_log(&mut self, context: u32, upto: u32, burst: &mut Burst<'_, Stream>) {
        let Some(number) = self.logs.of(context) else { return burst.drops.count(DropReason::BumpUnknown) };
        let Some(log) = self.logs.get(number) else { return };
        let count = upto.wrapping_sub(log.head as u32);
        if count as u64 > log.ready - log.head {
            // An older number changes nothing.
            if count as i32 > 0 {
                burst.drops.count(DropReason::BumpRange);
            }
            return;
        }
        let record = log.record();
        let mut opened: Vec<u32> = Vec::new();
        for _ in 0..count {
            let owner = log.owner(log.head);
            log.head += 1;
            let flow = self.flows.get_mut(owner.flow as usize).and_then(Option::as_deref_mut);
            match flow.and_then(|flow| Some((flow.member.as_deref_mut()?, &mut flow.rx_head))) {
                Some((member, rx_head)) if (member.log, member.life) == (number, owner.life) => {
                    member.trimmed += 1;
                    *rx_head = rx_head.wrapping_add(record);
                    if opened.last() != Some(&owner.flow.into()) {
                        opened.push(owner.flow.into());
                    }
                }
                _ => log.left_behind -= 1,
            }
        }
        for id in opened {
            if let Some(amount) = self.flow(id).and_then(Flow::replenish) {
                self.sync(id, amount, burst);
            }
        }
    }
}

fn flow_log(flows: &[Option<Box<Flow>>], id: u32) -> Option<u16> {
    Some(flows.get(id as usize)?.as_deref()?.member.as_deref()?.log)
}

impl Logs {
    /// Ends a flow's membership; returns of which log.
    fn leave(&mut self, flow: &mut Flow) -> Option<u16> {
        let mut member = flow.member.take()?;
        let log = self.list.get_mut(member.log as usize)?.as_mut()?;
        let (has, end) = (flow.rx_tail.wrapping_sub(member.start), member.reserved);
        self.counts[0] += log.finish(&mut member, has, false);
        // Nothing of its stream is unread any more.
        flow.rx_head = flow.rx_tail;
        self.counts[1] += log.finish(&mut member, end, true);
        log.promised -= (flow.rx.usual() / log.record()) as u64;
        log.left_behind += member.records - member.trimmed;
        Some(member.log)
    }
}
