//! Link: two programs and their queue pairs, what they do in turn, and the completions that they may get.
mod posting;

use super::device::SharedDevice;
use super::judge::{Arrival, Judge};
use super::network::settle;
use super::plan::{LinkKind, LinkPlan};
use super::program::{Half, Program};
use crate::plan::Plan;
use crate::random::Random;
use ::memory::MemoryTable;
use ::verbs::{AsyncEvent, AsyncMessage, Completion, Gid, QpState, Status};
use port::Nanos;
use std::sync::Arc;

/// Between two polls whether the peer's host is found.
const ASK_AGAIN: Nanos = 10_000_000;
/// Between the packet sequence numbers of a queue pair and those of its next life: far more than are on their way.
const LIFE: u32 = 0x21_0000;
/// Lives after which programs give up. A network may lose everything.
const MOST_LIVES: u32 = 40;

/// How far the queue pairs of one number are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinkState {
    /// They wait for the addresses of hosts.
    Connecting,
    Running,
    /// One is in the error state; both will be, and are drained. Then they begin anew.
    Failing,
    /// All is done; the receive work requests that are left are flushed.
    Ending,
    /// The other program is gone.
    Orphaned,
    Over,
}

/// A link.
pub(crate) struct Link {
    plan: LinkPlan,
    pub(crate) judge: Judge,
    table: Arc<MemoryTable>,
    pids: [u32; 2],
    sides: [Option<Program>; 2],
    gids: [Gid; 2],
    stages: Vec<LinkState>,
    lives: Vec<u32>,
    /// When each queue pair may post again, by side; and when a program may offer memory again.
    post_at: [Vec<Nanos>; 2],
    offer_at: [Nanos; 2],
    /// Shared receive work requests that queue pairs may have lost when they were reset.
    lost: usize,
    start: Nanos,
    /// Messages that nobody repeats have come by then, or never.
    settle: Nanos,
    quiet_at: Nanos,
    breaks: Vec<(Nanos, super::plan::Break)>,
    random: Random,
    /// When it acts.
    pub(crate) wake_at: Nanos,
    /// When something happened last.
    pub(crate) progress_at: Nanos,
    /// How often queue pairs began anew.
    pub(crate) renewals: u64,
    is_over: bool,
}

impl Link {
    /// Both programs attach.
    pub(crate) fn new(
        plan: &Plan,
        index: usize,
        start: Nanos,
        devices: [SharedDevice; 2],
        table: &Arc<MemoryTable>,
    ) -> Result<Link, String> {
        let link = &plan.links[index];
        let pids = [0, 1].map(|side| 10_000 + 2 * index as u32 + side);
        let judge = Judge::new(plan, index, table, pids)?;
        let [one, other] = &devices;
        let program = |side: usize, device| Program::new(link, device, pids[side], &judge.lanes[side]);
        let sides = [program(0, one)?, program(1, other)?];
        let gids = [sides[0].gid(), sides[1].gid()];
        let mut breaks: Vec<_> = link.breaks.iter().map(|it| (start + it.at_us * 1000, *it)).collect();
        breaks.sort_by_key(|(at, _)| *at);
        let begin = start + link.start_us * 1000;
        Ok(Link {
            plan: link.clone(),
            judge,
            table: Arc::clone(table),
            pids,
            sides: sides.map(Some),
            gids,
            stages: vec![LinkState::Connecting; link.qps],
            lives: vec![0; link.qps],
            post_at: [vec![begin; link.qps], vec![begin; link.qps]],
            offer_at: [begin; 2],
            lost: 0,
            start,
            settle: settle(plan),
            quiet_at: Nanos::MAX,
            breaks,
            random: Random::new(plan.seed ^ super::device::OWN ^ (index as u64 + 1) << 48),
            wake_at: begin,
            progress_at: begin,
            renewals: 0,
            is_over: false,
        })
    }

    /// Nothing is left to do.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Operations found right so far.
    pub(crate) fn judged(&self) -> u64 {
        self.judge.judged
    }

    /// One of its programs is on this host, and has something to poll.
    pub(crate) fn has_mail(&self, host: usize) -> bool {
        let here = |side: &usize| self.plan.hosts[*side] == host;
        let mail = |side: usize| self.sides[side].as_ref().is_some_and(Program::has_mail);
        !self.is_over && (0..2).filter(here).any(mail)
    }

    /// How fast its programs are, nanoseconds.
    pub(crate) fn latency(&self) -> Nanos {
        self.plan.latency_us * 1000
    }

    /// Where its programs are.
    pub(crate) fn hosts(&self) -> [usize; 2] {
        self.plan.hosts
    }

    /// For people.
    pub(crate) fn unfinished(&self) -> String {
        let halves = |side: usize| {
            let of = |half: &Half| {
                let Half { number, posted, next, done, expected, error, .. } = half;
                format!("{number:#x}: {done} of {next} done, {} out, expects {expected}, {error:?}", posted.len())
            };
            self.sides[side].as_ref().map(|program| program.halves.iter().map(of).collect::<Vec<_>>())
        };
        format!("  RDMA {:?}, lives {:?}: {:?}; {:?}", self.stages, self.lives, halves(0), halves(1))
    }

    /// Does what is due.
    pub(crate) fn act(&mut self, now: Nanos) -> Result<(), String> {
        self.wake_at = Nanos::MAX;
        if self.is_over {
            return Ok(());
        }
        self.vanish_if_due(now)?;
        for side in 0..2 {
            self.take_completions(now, side).map_err(|what| format!("side {side}: {what}"))?;
            self.check_events(side)?;
        }
        for qp in 0..self.plan.qps {
            self.advance(now, qp).map_err(|what| format!("queue pair {qp}: {what}"))?;
        }
        for side in 0..2 {
            self.offer(now, side)?;
            (0..self.plan.qps).try_for_each(|qp| self.post(now, side, qp))?;
        }
        self.break_later(now);
        if self.stages.iter().all(|stage| *stage == LinkState::Over) {
            self.finish(now)?;
        }
        Ok(())
    }

    fn wake(&mut self, now: Nanos, at: Nanos) {
        self.wake_at = self.wake_at.min(at.max(now + 1));
    }

    /// One of the programs is gone, and what it had.
    fn vanish_if_due(&mut self, now: Nanos) -> Result<(), String> {
        let Some(vanish) = self.plan.vanishes else { return Ok(()) };
        let at = self.start + vanish.at_us * 1000;
        if now < at {
            self.wake(now, at);
            return Ok(());
        }
        if let Some(program) = self.sides[vanish.side].take() {
            self.leave(now, vanish.side, &program)?;
            let orphaned =
                |stage: &LinkState| if *stage == LinkState::Over { LinkState::Over } else { LinkState::Orphaned };
            self.stages = self.stages.iter().map(orphaned).collect();
            self.progress_at = now;
        }
        Ok(())
    }

    /// As the daemon does it when a program's socket ends.
    fn leave(&self, now: Nanos, side: usize, program: &Program) -> Result<(), String> {
        program.detach(now);
        let domain = Program::domain(self.pids[side]);
        let keys = self.judge.memories[side].keys();
        keys.into_iter().try_for_each(|key| {
            self.table.deregister(domain, key).map_err(|why| format!("a region cannot be deregistered: {why}"))
        })
    }

    fn take_completions(&mut self, now: Nanos, side: usize) -> Result<(), String> {
        if self.plan.events {
            // Without an event there is no poll.
            let Some(program) = &self.sides[side] else { return Ok(()) };
            if program.channel.take().is_empty() {
                return Ok(());
            }
            program.ask();
        }
        while let Some(done) = self.sides[side].as_mut().map_or(Ok(None), Program::poll)? {
            self.progress_at = now;
            self.reported(side, done)?.into_iter().try_for_each(|done| self.take(side, &done))?;
        }
        Ok(())
    }

    /// What is reported to a program of a completion.
    #[cfg(not(test))]
    fn reported(&self, _side: usize, done: Completion) -> Result<[Completion; 1], String> {
        Ok([done])
    }

    fn take(&mut self, side: usize, done: &Completion) -> Result<(), String> {
        let number = |half: &Half| {
            let ends = half.ends();
            done.qp == if done.is_receive() { ends.receives } else { ends.sends }
        };
        let halves = self.sides[side].as_ref().map(|program| program.halves.iter().position(number));
        let qp = halves.flatten().ok_or_else(|| format!("a completion of no queue pair: {done:?}"))?;
        let judged = if done.is_receive() { self.received(side, qp, done) } else { self.sent(side, qp, done) };
        judged.map_err(|what| format!("queue pair {qp}: {what}: {done:?}"))
    }

    /// A completion of a send work request: it, and all before it, have ended.
    fn sent(&mut self, side: usize, qp: usize, done: &Completion) -> Result<(), String> {
        let may_fail = self.may_fail(side, qp);
        let Some(program) = &mut self.sides[side] else { return Ok(()) };
        let half = &mut program.halves[qp];
        if !half.posted.iter().any(|(number, _)| *number == done.number) {
            return Err("a completion for what is not outstanding".into());
        }
        while let Some((number, work)) = half.posted.pop_front() {
            let is_it = number == done.number;
            let Some(asked) = self.judge.works[side][qp].get(work).copied() else {
                half.other_ended(work, is_it, done)?;
                self.judge.judged += u64::from(done.status == Status::Success);
                break;
            };
            if (asked.is_signalled && !is_it) || (is_it && !asked.is_signalled && done.status == Status::Success) {
                return Err(format!("a completion is left out, or was not asked for, at {asked:?}"));
            }
            if !is_it || done.status == Status::Success {
                if half.error.is_some() || work != half.done {
                    return Err(format!("a success out of order: {} have ended, error {:?}", half.done, half.error));
                }
                if is_it && done.opcode != asked.opcode.completes_as() {
                    return Err(format!("a completion of another kind than {asked:?}"));
                }
                half.done = work + 1;
                half.window_went(asked.opcode);
                self.judge.sent(side, qp, work)?;
            }
            if is_it {
                break;
            }
        }
        if done.status == Status::Success {
            return Ok(());
        }
        let right = match (half.error, done.status) {
            (Some(_), status) => status == Status::Flushed,
            (None, Status::Flushed) => half.was_moved,
            (None, Status::RetryExceeded) => may_fail,
            _ => false,
        };
        half.error = half.error.or(Some(done.status));
        if right { Ok(()) } else { Err("the wrong status".into()) }
    }

    /// Whether a queue pair may rightly get nothing from its peer's.
    fn may_fail(&self, side: usize, qp: usize) -> bool {
        let peer = self.sides[1 - side].as_ref().map(|program| &program.halves[qp]);
        let is_there = peer.is_some_and(|half| half.error.is_none() && !half.was_moved);
        self.plan.kind.is_reliable() && !(self.judge.network.is_calm && is_there)
    }

    /// A completion of a receive work request.
    fn received(&mut self, side: usize, qp: usize, done: &Completion) -> Result<(), String> {
        let [one, other] = &mut self.sides;
        let (own, peer) = if side == 0 { (one, other) } else { (other, one) };
        let Some(own) = own else { return Ok(()) };
        let shared = !own.shared.is_empty();
        let queue = if self.plan.kind == LinkKind::Extended { done.remote_qp as usize } else { 0 };
        let offers = own.offers(qp, queue).ok_or("a completion of a receive queue that there is not")?;
        let at = offers.out.iter().position(|(number, _)| *number == done.number);
        let place = match at {
            Some(0) => offers.out.pop_front(),
            Some(at) if shared => offers.out.remove(at),
            Some(_) => return Err("a completion of a receive queue is left out".into()),
            None => None,
        };
        let (_, place) = place.ok_or("a completion for what is not outstanding")?;
        let half = &mut own.halves[qp];
        match done.status {
            Status::Success if half.was_moved && half.error.is_some() => return Err("a success after the flush".into()),
            Status::Success => {
                let peer = peer.as_ref().map(|program| &program.halves[qp]);
                self.judge.received(side, qp, Arrival { done, place, half, peer })?;
            }
            Status::Flushed if half.was_moved || half.error.is_some() => self.judge.unused(side, place)?,
            _ => return Err("the wrong status".into()),
        }
        if let Some(offers) = own.offers(qp, queue) {
            offers.free.push(place);
        }
        Ok(())
    }

    /// Nothing is reported that nobody gave a reason for.
    fn check_events(&self, side: usize) -> Result<(), String> {
        use AsyncEvent::{CommunicationEstablished, LastReceiveReached, SendQueueDrained};
        let Some(program) = &self.sides[side] else { return Ok(()) };
        for message in program.events.take() {
            let event = <[u8; AsyncMessage::BYTES]>::try_from(message).ok().and_then(AsyncMessage::decode);
            let event = event.ok_or("an asynchronous event that there is not")?;
            if !matches!(event.event, CommunicationEstablished | LastReceiveReached | SendQueueDrained) {
                return Err(format!("side {side} got {event:?}"));
            }
        }
        Ok(())
    }

    /// The queue pairs of one number go on.
    fn advance(&mut self, now: Nanos, qp: usize) -> Result<(), String> {
        match self.stages[qp] {
            LinkState::Connecting => self.connect(now, qp),
            LinkState::Running => self.run(now, qp),
            LinkState::Failing => self.renew_if_drained(now, qp),
            LinkState::Ending if self.is_drained(qp) => self.stage(now, qp, LinkState::Over),
            LinkState::Orphaned => self.end_alone(now, qp),
            LinkState::Ending | LinkState::Over => Ok(()),
        }
    }

    fn stage(&mut self, now: Nanos, qp: usize, stage: LinkState) -> Result<(), String> {
        (self.stages[qp], self.progress_at) = (stage, now);
        // The others may have waited for it.
        self.wake(now, now);
        Ok(())
    }

    fn connect(&mut self, now: Nanos, qp: usize) -> Result<(), String> {
        let [Some(one), Some(other)] = &mut self.sides else { return Ok(()) };
        let reachable = [one.reaches(self.gids[1])?, other.reaches(self.gids[0])?];
        if reachable != [true; 2] {
            self.wake(now, now + ASK_AGAIN);
            return Ok(());
        }
        let life = self.lives[qp].wrapping_mul(LIFE);
        let psns = [0, 0x12_3456].map(|side| (self.plan.psn + qp as u32 + side).wrapping_add(life) & 0xff_ffff);
        let ends = [one.halves[qp].ends(), other.halves[qp].ends()];
        one.connect(qp, self.gids[1], &ends[1], psns)?;
        other.connect(qp, self.gids[0], &ends[0], [psns[1], psns[0]])?;
        (one.halves[qp].expected, other.halves[qp].expected) = (other.halves[qp].done, one.halves[qp].done);
        self.stage(now, qp, LinkState::Running)
    }

    fn run(&mut self, now: Nanos, qp: usize) -> Result<(), String> {
        let due = self.breaks.iter().position(|(at, it)| *at <= now && it.qp == qp);
        let broken = due.map(|at| self.breaks.remove(at).1);
        let failed = self.sides.iter().flatten().any(|program| program.halves[qp].error.is_some());
        if let Some(it) = broken.filter(|it| it.at_once) {
            self.move_to_error(it.side, qp)?;
            return self.renew(now, qp);
        }
        if broken.is_some() || failed {
            (0..2).try_for_each(|side| self.move_to_error(side, qp))?;
            return self.stage(now, qp, LinkState::Failing);
        }
        if self.is_done(now, qp) {
            (0..2).try_for_each(|side| self.move_to_error(side, qp))?;
            return self.stage(now, qp, LinkState::Ending);
        }
        Ok(())
    }

    /// The program moves a queue pair to the error state, unless it is there.
    fn move_to_error(&mut self, side: usize, qp: usize) -> Result<(), String> {
        let Some(program) = &mut self.sides[side] else { return Ok(()) };
        if !std::mem::replace(&mut program.halves[qp].was_moved, true) {
            program.go(qp, QpState::Error)?;
            if !program.halves[qp].posted.is_empty() {
                program.post_mark(qp);
            }
        }
        Ok(())
    }

    /// Both sides have sent and received everything. Messages that nobody repeats have some time for it.
    fn is_done(&mut self, now: Nanos, qp: usize) -> bool {
        let [Some(one), Some(other)] = &self.sides else { return false };
        let sent = [one, other].iter().enumerate().all(|(side, it)| it.halves[qp].done == self.plan.works[side]);
        if !sent {
            return false;
        }
        if self.plan.kind.is_reliable() {
            let all = |side: usize, half: &Half| {
                let left = &self.judge.works[1 - side][qp][half.expected..];
                !left.iter().any(|work| work.takes_receive())
            };
            return all(0, &one.halves[qp]) && all(1, &other.halves[qp]);
        }
        let everyone = self
            .sides
            .iter()
            .flatten()
            .all(|program| program.halves.iter().all(|half| half.posted.is_empty() && half.next == half.done));
        if everyone && self.quiet_at == Nanos::MAX {
            self.quiet_at = now + self.settle;
        }
        let quiet_at = self.quiet_at.min(now + self.settle);
        if now < quiet_at {
            self.wake(now, quiet_at);
        }
        now >= self.quiet_at
    }

    /// Everything that was posted to the queue pairs of this number has ended.
    fn is_drained(&self, qp: usize) -> bool {
        let drained = |program: &Program| {
            let half = &program.halves[qp];
            half.posted.is_empty() && half.offers.as_ref().is_none_or(|offers| offers.out.is_empty())
        };
        self.sides.iter().flatten().all(drained)
    }

    fn renew_if_drained(&mut self, now: Nanos, qp: usize) -> Result<(), String> {
        if self.is_drained(qp) { self.renew(now, qp) } else { Ok(()) }
    }

    /// Both queue pairs begin anew, with what has not ended well.
    fn renew(&mut self, now: Nanos, qp: usize) -> Result<(), String> {
        self.lives[qp] += 1;
        self.renewals += 1;
        for side in 0..2 {
            // A packet that is late names the number, and only reliable queue pairs recognize it by its own.
            let another = !self.plan.kind.is_reliable() || self.lives[qp] % 2 == 0;
            let Some(program) = &mut self.sides[side] else { continue };
            let taken = program.halves[qp].offers.as_ref().map(|offers| offers.out.clone()).unwrap_or_default();
            program.renew(qp, another)?;
            let done = program.halves[qp].done;
            taken.iter().try_for_each(|(_, place)| self.judge.unused(side, *place))?;
            self.judge.set_counter(side, qp, done)?;
        }
        self.lost += usize::from(self.plan.shared_queues() > 0);
        if self.lives[qp] > MOST_LIVES {
            // Both are in the state reset: nothing is outstanding.
            return self.stage(now, qp, LinkState::Over);
        }
        self.stage(now, qp, LinkState::Connecting)
    }

    /// The other program is gone: what is outstanding fails, or ends; then this one ends, too.
    fn end_alone(&mut self, now: Nanos, qp: usize) -> Result<(), String> {
        let Some(side) = (0..2).find(|side| self.sides[*side].is_some()) else { return Ok(()) };
        let half = self.sides[side].as_ref().map(|program| &program.halves[qp]);
        // What is not signalled may have ended.
        let works = &self.judge.works[side][qp];
        let signalled = |work: usize| works.get(work).is_none_or(|work| work.is_signalled);
        let ends = |half: &Half| !half.posted.iter().any(|(_, work)| signalled(*work));
        if half.is_some_and(|half| !half.was_moved && ends(half)) {
            self.move_to_error(side, qp)?;
            self.wake(now, now);
        }
        let moved = self.sides[side].as_ref().is_some_and(|program| program.halves[qp].was_moved);
        if moved && self.is_drained(qp) { self.stage(now, qp, LinkState::Over) } else { Ok(()) }
    }

    fn break_later(&mut self, now: Nanos) {
        let running = |it: &super::plan::Break| self.stages[it.qp] == LinkState::Running;
        let next = self.breaks.iter().filter(|(_, it)| running(it)).map(|(at, _)| *at).min();
        if let Some(at) = next {
            self.wake(now, at);
        }
    }

    /// Both programs end.
    fn finish(&mut self, now: Nanos) -> Result<(), String> {
        self.judge.bytes_in_place()?;
        for side in 0..2 {
            if let Some(program) = self.sides[side].take() {
                self.judge.first_came(side, &program.halves)?;
                self.leave(now, side, &program)?;
            }
        }
        self.is_over = true;
        Ok(())
    }
}
