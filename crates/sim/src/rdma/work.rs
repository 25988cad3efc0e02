//! Work of a queue pair: drawn before, so that the judge of both sides has it, too.
use super::plan::{LEAST_RAW, LinkKind, LinkPlan};
use crate::random::{Random, Stream};
use verbs::SendOpcode;

/// A send work request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    pub(crate) opcode: SendOpcode,
    pub(crate) len: usize,
    pub(crate) is_signalled: bool,
    pub(crate) is_fenced: bool,
    pub(crate) is_inline: bool,
    /// Scatter-gather entries, where it is not inline.
    pub(crate) pieces: usize,
    /// The peer's shared receive queue that it names, on an extended connection.
    pub(crate) srq: u32,
    /// Of a compare and swap: it compares with what is there.
    pub(crate) matches: bool,
    /// The counter of its queue pair's atomics before it.
    pub(crate) before: u64,
}

/// What a fetch and add adds.
pub(crate) const ADDS: u64 = 3;
/// By how much a swap changes the counter.
pub(crate) const SWAPS: u64 = 1000;

/// Inline data of a work request at most.
pub(crate) const MOST_INLINE: usize = 300;

impl Work {
    /// It takes a receive work request of the peer.
    pub(crate) fn takes_receive(&self) -> bool {
        use SendOpcode::{Send, SendImmediate, SendInvalidate, WriteImmediate};
        matches!(self.opcode, Send | SendImmediate | SendInvalidate | WriteImmediate)
    }

    /// It writes into the peer's memory that it names.
    pub(crate) fn writes(&self) -> bool {
        matches!(self.opcode, SendOpcode::Write | SendOpcode::WriteImmediate)
    }

    /// The counter after it.
    pub(crate) fn after(&self) -> u64 {
        match self.opcode {
            SendOpcode::FetchAdd => self.before + ADDS,
            SendOpcode::CompareSwap if self.matches => self.before + SWAPS,
            _ => self.before,
        }
    }
}

/// What a queue pair sends, in order.
pub(crate) fn draw(plan: &LinkPlan, count: usize, random: &mut Random) -> Vec<Work> {
    let mut works = Vec::with_capacity(count);
    let mut before = 0;
    for number in 0..count {
        let mut work = draw_one(plan, random);
        work.before = before;
        before = work.after();
        // A wait for the completion of the last one covers all.
        work.is_signalled |= number + 1 == count;
        works.push(work);
    }
    works
}

fn draw_one(plan: &LinkPlan, random: &mut Random) -> Work {
    use SendOpcode::*;
    let opcode = match plan.kind {
        LinkKind::Windowed if random.one_in(4) => random.pick(&[SendInvalidate, LocalInvalidate]),
        LinkKind::Reliable | LinkKind::Windowed | LinkKind::Extended => {
            random.pick(&[Write, Write, WriteImmediate, Send, SendImmediate, Read, Read, FetchAdd, CompareSwap])
        }
        // A link that may lose messages needs their numbers.
        LinkKind::Unreliable => random.pick(&[Write, WriteImmediate, SendImmediate]),
        LinkKind::Datagram => SendImmediate,
        LinkKind::Raw => Send,
    };
    let is_one_packet = !plan.kind.of_verbs().is_connected();
    let least = if plan.kind == LinkKind::Raw { LEAST_RAW } else { 0 };
    let longest = u64::from(plan.longest);
    let longest = if is_one_packet { longest.min(plan.mtu().bytes() as u64) } else { longest };
    let len = match random.up_to(3) {
        0 => random.up_to(70.min(longest)),
        1 => (random.up_to(3) * plan.mtu().bytes() as u64).min(longest),
        _ => random.up_to(longest),
    };
    let len = if opcode.is_atomic() { 8 } else { (len as usize).max(least) };
    let len = if opcode.is_local() { 0 } else { len };
    let may_be_inline = !opcode.is_local() && !opcode.is_atomic() && opcode != Read && len <= MOST_INLINE;
    Work {
        opcode,
        len,
        // Invalidating a window waits until the peer's completion shows that its own accesses have ended.
        is_signalled: random.chance(0.6) || plan.kind == LinkKind::Windowed,
        // A window goes when all that was read by it has come.
        is_fenced: plan.kind.is_reliable() && random.one_in(10) || opcode == SendInvalidate,
        is_inline: may_be_inline && random.one_in(2),
        pieces: match opcode {
            LocalInvalidate => 0,
            opcode if opcode.is_atomic() => 1,
            _ => random.between(1, 6) as usize,
        },
        matches: random.chance(0.8),
        srq: if plan.xrc_queues > 0 { random.up_to(plan.xrc_queues as u64 - 1) as u32 } else { 0 },
        before: 0,
    }
}

/// Where a work request stands among all of a link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkIndex {
    pub(crate) link: usize,
    pub(crate) side: usize,
    pub(crate) qp: usize,
    pub(crate) work: usize,
}

/// The bytes that a work request moves: what is sent, written or read by it.
pub(crate) fn stream(seed: u64, place: WorkIndex) -> Stream {
    let WorkIndex { link, side, qp, work } = place;
    let number = ((link * 2 + side) * 64 + qp) * 512 + work;
    Stream(seed ^ (number as u64 + 1) << 40)
}
