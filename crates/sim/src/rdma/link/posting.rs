//! Posting by the programs of a link: memory to receive into, and work requests.
use super::{Link, LinkState};
use crate::random::Random;
use crate::rdma::plan::LinkKind;
use crate::rdma::program::{Half, Order};
use crate::rdma::windows::{Bound, is_remote, is_zero_based};
use crate::rdma::work::Work;
use ::verbs::{Piece, SendOpcode};
use port::Nanos;

impl Link {
    /// Offers memory to receive into.
    pub(super) fn offer(&mut self, now: Nanos, side: usize) -> Result<(), String> {
        let mut waits = false;
        let queues = 0..self.plan.shared_queues().max(1);
        let all = (0..self.plan.qps).flat_map(|qp| queues.clone().map(move |queue| (qp, queue)));
        for (qp, queue) in all {
            if self.stages[qp] != LinkState::Running {
                continue;
            }
            let Some(program) = &mut self.sides[side] else { return Ok(()) };
            let memory = &self.judge.memories[side];
            let whole = self.plan.longest as usize + if self.plan.kind == LinkKind::Datagram { 40 } else { 0 };
            let most = self.plan.receives + if self.plan.shared_queues() > 0 { self.lost } else { 0 };
            let random = &mut self.random;
            let Some(offers) = program.offers(qp, queue) else { continue };
            while offers.out.len() < most && !offers.free.is_empty() {
                if now < self.offer_at[side] {
                    waits = true;
                    break;
                }
                offers.offer(memory, |at| cut(at, whole, 1 + random.up_to(3) as usize, random));
                if self.plan.receive_gap_us > 0 {
                    self.offer_at[side] = now + self.plan.receive_gap_us * 1000;
                }
            }
        }
        if waits {
            self.wake(now, self.offer_at[side]);
        }
        Ok(())
    }

    /// Posts work requests, as many as may be outstanding.
    pub(super) fn post(&mut self, now: Nanos, side: usize, qp: usize) -> Result<(), String> {
        while self.stages[qp] == LinkState::Running {
            self.bind_if_free(side, qp);
            let (Some(program), Some(peer)) = (&self.sides[side], &self.sides[1 - side]) else { return Ok(()) };
            let (half, peer) = (&program.halves[qp], &peer.halves[qp]);
            let works = &self.judge.works[side][qp];
            if half.next >= works.len() || half.error.is_some() || half.was_moved {
                return Ok(());
            }
            // What is not signalled ends with a later one: so that one has to be posted, too.
            let signalled = half.posted.iter().any(|(_, work)| works.get(*work).is_none_or(|work| work.is_signalled));
            if half.posted.len() >= self.plan.depth && signalled {
                return Ok(());
            }
            if now < self.post_at[side][qp] {
                let at = self.post_at[side][qp];
                self.wake(now, at);
                return Ok(());
            }
            let (number, work, remote) = (half.next, works[half.next], peer.number);
            if !may_post(&work, [half, peer], &self.judge.works[1 - side][qp]) {
                return Ok(());
            }
            let order = self.order(side, qp, number, remote)?;
            if let Some(program) = &mut self.sides[side] {
                program.post(qp, &work, &order);
            }
            self.window_goes(side, qp, work.opcode);
            self.post_at[side][qp] = now + self.plan.gap_us * 1000;
        }
        Ok(())
    }

    /// What a work request names, with its data in place.
    fn order(&mut self, side: usize, qp: usize, number: usize, remote: u32) -> Result<Order, String> {
        let work = self.judge.works[side][qp][number];
        let place = self.judge.place(side, qp, number);
        let (own, peer) = (&self.judge.memories[side], &self.judge.memories[1 - side]);
        let at = own.source.place(place);
        let is_fetched = work.opcode.is_atomic() || work.opcode == SendOpcode::Read;
        let data = if is_fetched { Vec::new() } else { self.judge.data(side, qp, number) };
        if !is_fetched && !work.is_inline {
            own.write(at, &data)?;
        }
        let parts = cut(at, work.len, work.pieces, &mut self.random);
        let pieces: Vec<Piece> = parts.into_iter().map(|(at, len)| own.piece(&own.source, at, len)).collect();
        let target = if work.opcode.is_atomic() { self.judge.counter(side, qp) } else { place };
        let order = Order { operand: peer.operand(target), immediate: number as u32, remote, pieces, data };
        Ok(self.through_window(side, qp, work.opcode, order))
    }

    /// Posts a binding where the window of a queue pair has none.
    fn bind_if_free(&mut self, side: usize, qp: usize) {
        let memory = &self.judge.memories[side];
        let Some(program) = &mut self.sides[side] else { return };
        let half = &mut program.halves[qp];
        let works = half.error.is_none() && !half.was_moved;
        let Some(window) = half.window.as_mut().filter(|window| works && window.bound == Bound::No) else { return };
        (window.bound, window.chosen) = (Bound::Soon, window.chosen.wrapping_add(1));
        let binding = memory.binding(window.number, window.key(), is_zero_based(qp));
        program.post_binding(qp, &binding);
    }

    /// A work request was posted: perhaps one that invalidates a window.
    fn window_goes(&mut self, side: usize, qp: usize, opcode: SendOpcode) {
        let of = match opcode {
            SendOpcode::LocalInvalidate => side,
            SendOpcode::SendInvalidate => 1 - side,
            _ => return,
        };
        let window = self.sides[of].as_mut().and_then(|program| program.halves[qp].window.as_mut());
        window.into_iter().for_each(|window| window.bound = Bound::Going);
    }

    /// The same order, by the window of the peer's queue pair.
    fn through_window(&self, side: usize, qp: usize, opcode: SendOpcode, order: Order) -> Order {
        let key = |side: usize| {
            let half = self.sides[side].as_ref().map(|program| &program.halves[qp]);
            half.and_then(|half| half.window).map(|window| window.key())
        };
        let (Some(own), Some(peer)) = (key(side), key(1 - side)) else { return order };
        let mut order = order;
        match opcode {
            SendOpcode::LocalInvalidate => order.operand.key = own,
            SendOpcode::SendInvalidate => order.immediate = peer,
            _ => {
                order.operand.key = peer;
                if is_zero_based(qp) {
                    order.operand.address -= self.judge.memories[1 - side].targets_at();
                }
            }
        }
        order
    }
}

/// Nobody names a window that is not bound, or invalidates one that its peer may still need. `halves`: the poster, and
/// its peer, whose works are `of_peer`.
fn may_post(work: &Work, halves: [&Half; 2], of_peer: &[Work]) -> bool {
    let [own, peer] = halves;
    let is_bound = |half: &Half| half.window.is_none_or(|window| window.bound == Bound::Yes);
    let needs = |(_, work): &(u32, usize)| of_peer.get(*work).is_some_and(|work| is_remote(work.opcode));
    match work.opcode {
        SendOpcode::LocalInvalidate => is_bound(own) && !peer.posted.iter().any(needs),
        opcode if is_remote(opcode) => is_bound(peer),
        _ => true,
    }
}

/// Cuts a range into so many parts; some may be empty.
fn cut(at: usize, len: usize, parts: usize, random: &mut Random) -> Vec<(usize, usize)> {
    let mut done = 0;
    let part = |left: usize| {
        let part = if left == 0 { len - done } else { random.up_to((len - done) as u64) as usize };
        done += part;
        (at + done - part, part)
    };
    (0..parts).rev().map(part).collect()
}
