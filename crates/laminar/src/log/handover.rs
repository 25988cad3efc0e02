//! A log that leaves for another daemon's engine, or comes from one (docs/TAKEOVER.md). Its records stay where they
//! lie, in the application's region. What goes over is whose they are, and where those that are not complete have their
//! places. What the pipeline had received of them out of order comes again, and fills the same places.
use crate::Laminar;
use crate::places::{Log, Member, Owner, Stretch};
use context::LogEnd;
use engine::stream::{self, LogMember, LogState, Stream};
use engine::{Burst, ContextId, FlowId};

/// As an owner: a connection that has left. No member's life is 0 after a takeover.
const LEFT: Owner = Owner { flow: 0, life: 0, ready: true };

impl Laminar {
    /// Hands over what the context's log was. It is the engine's no more.
    pub(crate) fn give_up_log(&mut self, context: ContextId, burst: &mut Burst<'_, Stream>) {
        let state = self.logs.of(context.0).and_then(|number| self.take_log(number));
        burst.events.push(stream::Event::LogGivenUp(context, state.map(Box::new)).into());
    }

    fn take_log(&mut self, number: u16) -> Option<LogState> {
        let log = self.logs.list.get_mut(number as usize)?.take()?;
        // By flow: a member's life, and its place among the members.
        let mut numbers: Vec<Option<(u32, u32)>> = vec![None; self.flows.len()];
        let mut members = Vec::new();
        for (id, flow) in self.flows.iter_mut().enumerate() {
            let Some(flow) = flow.as_deref_mut() else { continue };
            let Some(member) = flow.member.take_if(|member| member.log == number) else { continue };
            self.switch.program.leave_log(id as u32);
            // Nothing of its stream is unread.
            flow.rx_head = flow.rx_tail;
            numbers[id] = Some((member.life, members.len() as u32));
            members.push(member.state(id as u32));
        }
        let number_of = |owner: Owner| {
            let (life, number) = (*numbers.get(owner.flow as usize)?)?;
            (life == owner.life).then_some(number)
        };
        let mut owners: Vec<(Option<u32>, u32)> = Vec::new();
        for member in (log.head..log.tail).map(|index| number_of(log.owner(index))) {
            match owners.last_mut() {
                Some((last, count)) if *last == member => *count += 1,
                _ => owners.push((member, 1)),
            }
        }
        let Log { head: given_back, ready: readable, tail: placed, .. } = log;
        Some(LogState { shape: log.end.shape, given_back, readable, placed, owners, members })
    }

    /// A log goes on that another engine gave up; its flows have been resumed.
    pub(crate) fn resume_log(&mut self, context: ContextId, end: LogEnd, state: &LogState) {
        let Some(number) = self.add_log(Log::resume(context.0, end, state)) else { return };
        for (at, member) in state.members.iter().enumerate() {
            self.resume_member(Member::resume(number, life_of(at), member), member.flow.0);
        }
        // The other engine's last completion may have found no room.
        let completion = self.logs.get(number).map(|log| log.completion());
        completion.into_iter().for_each(|completion| self.contexts.report_log(context.0, completion));
    }

    fn resume_member(&mut self, mut member: Member, id: u32) {
        let Some(log) = self.logs.list.get_mut(member.log as usize).and_then(Option::as_mut) else { return };
        log.expect_incomplete(&member);
        let program = &mut self.switch.program;
        let flow = self.flows.get_mut(id as usize).and_then(Option::as_deref_mut);
        let resumed = flow.filter(|flow| program.join_log(id, member.log, flow.rx_base + member.start, log.record()));
        let Some(flow) = resumed else {
            // The pipeline has no room for it: it ends as one that left.
            let end = member.reserved;
            self.logs.counts[1] += log.finish(&mut member, end, true);
            log.left_behind += member.records - member.trimmed;
            return;
        };
        program.set_log(id, member.reserved);
        // What its log's reader has given back, it has read.
        flow.rx_head = member.start.wrapping_add((member.trimmed as u32).wrapping_mul(log.record()));
        log.promised += (flow.rx.usual() / log.record()) as u64;
        flow.member = Some(Box::new(member));
        self.log_moved(id);
    }
}

/// The life of the member that stands there in the state of its log.
fn life_of(at: usize) -> u32 {
    at as u32 + 1
}

impl Log {
    fn resume(context: u32, end: LogEnd, state: &LogState) -> Log {
        let mut log = Log::new(context, end);
        (log.head, log.ready, log.tail) = (state.given_back, state.readable, state.placed);
        log.lives = state.members.len() as u32;
        let mut index = log.head;
        for (member, count) in &state.owners {
            let at = member.map(|member| member as usize);
            let owner = at.and_then(|at| {
                let flow = state.members.get(at)?.flow.0 as u16;
                Some(Owner { flow, life: life_of(at), ready: true })
            });
            log.left_behind += if owner.is_none() { u64::from(*count) } else { 0 };
            for _ in 0..*count {
                log.set_owner(index, owner.unwrap_or(LEFT));
                index += 1;
            }
        }
        log
    }

    /// Of what a flow has in the log, this is not complete.
    fn expect_incomplete(&mut self, member: &Member) {
        for (Stretch { from, index }, until) in member.incomplete() {
            let records = until.wrapping_sub(from) / self.record();
            for index in index..index + u64::from(records) {
                self.set_owner(index, Owner { ready: false, ..self.owner(index) });
            }
        }
    }
}

impl Member {
    fn state(&self, flow: u32) -> LogMember {
        let Member { mark, start, reserved, done, records, trimmed: given_back, .. } = *self;
        let stretches = self.stretches.iter().map(|stretch| (stretch.from, stretch.index)).collect();
        LogMember { flow: FlowId(flow), mark, start, reserved, done, records, given_back, stretches }
    }

    fn resume(log: u16, life: u32, state: &LogMember) -> Member {
        let LogMember { mark, start, reserved, done, records, given_back: trimmed, .. } = *state;
        let stretches = state.stretches.iter().map(|(from, index)| Stretch { from: *from, index: *index }).collect();
        Member { log, start, life, moved: false, mark, reserved, done, records, trimmed, stretches }
    }
}
