//! Joining two connections: both are stopped where nothing is on its way, then the pair takes their places.
use super::table::{Answer, Joining, Seen, Side, Splice, Splices};
use crate::connections::{Connections, Lifecycle};
use crate::flow::{After, EngineState, Flow, Spliced};
use crate::flows::Flows;
use crate::outbox::Outbox;
use context::SpliceEnd;
use engine::stream::{self, FlowEnd};
use engine::{ContextId, DropReason, FlowId, Nanos};
use tcp::Agreed;
use wire::tcp::{Flags, Header, Options, Timestamps};
use wire::{IpAddress, Seq, Translation};

/// Pairs that are being joined at once: each takes a round or two.
const MOST: usize = 256;

/// One connection at the moment of joining: what the arithmetic needs of it.
#[derive(Clone, Copy)]
struct Stand {
    end: FlowEnd,
    agreed: Agreed,
    /// TSval now, where timestamps are in use.
    clock: Option<u32>,
    snd_wnd: u32,
}

/// Two connections that an application asked to join.
pub(crate) struct Ask {
    pub context: ContextId,
    pub tag: u32,
    pub flows: [FlowId; 2],
    pub ends: [SpliceEnd; 2],
}

impl Splices {
    /// Connections can be joined at all: a module that does it is loaded.
    pub(crate) fn are_supported(&self) -> bool {
        self.table.is_some()
    }

    /// An application asks to join two of its connections: the engine is asked to stop both.
    pub(crate) fn ask(&mut self, out: &mut Outbox<'_>, table: &mut Flows, ask: &Ask) -> Result<(), i32> {
        let Ask { context, tag, flows, ends } = *ask;
        if flows[0] == flows[1] {
            return Err(libc::EINVAL);
        }
        let [a, b] = flows.map(|flow| table.get(flow.0));
        let (a, b) = (a.ok_or(libc::EBADF)?, b.ok_or(libc::EBADF)?);
        may_be_joined(a, b)?;
        if !self.have_room() {
            self.totals.refused += 1;
            return Err(libc::ENOBUFS);
        }
        let joining = self.joining.iter().any(|joining| flows.iter().any(|flow| joining.flows.contains(flow)));
        let reclaim = flows.iter().any(|id| table.get(id.0).is_some_and(|flow| flow.reclaim.is_some()));
        if joining || reclaim || self.joining.len() >= MOST {
            return Err(libc::EAGAIN);
        }
        self.joining.push(Joining { context, tag, flows, answers: [Answer::None; 2] });
        for (id, SpliceEnd { tx_head, rx_head, .. }) in flows.into_iter().zip(ends) {
            if let Some(flow) = table.get_mut(id.0) {
                flow.freezing += 1;
            }
            out.commands.push(stream::Command::Freeze { flow: id, tx_head, rx_head }.into());
        }
        Ok(())
    }

    /// The engine has stopped a flow, or reports that it is not quiet. Gives the pair back where that was the last
    /// answer.
    pub(crate) fn answered(&mut self, id: FlowId, end: Option<FlowEnd>) -> Option<Joining> {
        let at = self.joining.iter().position(|joining| joining.flows.contains(&id))?;
        let joining = &mut self.joining[at];
        for (flow, answer) in joining.flows.iter().zip(&mut joining.answers) {
            if *flow == id {
                *answer = end.map_or(Answer::Busy, Answer::Frozen);
            }
        }
        let complete = !joining.answers.iter().any(|answer| matches!(answer, Answer::None));
        complete.then(|| self.joining.swap_remove(at))
    }

    /// One of two flows that are being joined is closed, or fails. Gives the pair back: both go on as they are.
    pub(crate) fn withdraw(&mut self, id: FlowId) -> Option<Joining> {
        let at = self.joining.iter().position(|joining| joining.flows.contains(&id))?;
        Some(self.joining.swap_remove(at))
    }

    /// Both flows of a pair go on as they are.
    pub(crate) fn give_up(&mut self, out: &mut Outbox<'_>, joining: &Joining) {
        out.commands.extend(joining.flows.map(|id| stream::Command::Thaw(id).into()));
        self.totals.refused += 1;
    }

    /// The pair takes the place of two flows that stand still. `None` where they do not, or there is no room.
    pub(crate) fn join(
        &mut self,
        out: &mut Outbox<'_>,
        table: &mut Flows,
        connections: &mut Connections,
        joining: &Joining,
    ) -> Option<()> {
        let flows = joining.flows;
        let [Answer::Frozen(a), Answer::Frozen(b)] = joining.answers else { return None };
        let ends = [a, b];
        if !self.have_room() {
            return None;
        }
        let stand = |at: usize| {
            let flow = table.get(flows[at].0).filter(|flow| flow.engine == EngineState::Engine)?;
            Some(Stand::of(out.now, flow, ends[at]))
        };
        let stands = [stand(0)?, stand(1)?];
        let side = |at: usize| {
            let (flow, other) = (table.get(flows[at].0)?, table.get(flows[1 - at].0)?);
            let src_mac = out.net.link_towards(other.tuple.get().remote_ip).mac;
            let translation = translation(src_mac, other, &stands[at], &stands[1 - at])?;
            let next_hop = out.net.next_hop(flow.tuple.get().remote_ip);
            Some(Side::new(flow, flows[at], next_hop, translation, &stands[at]))
        };
        let sides = [side(0)?, side(1)?];
        let key = self.all.insert(Splice { sides, first_fin: None, reset: None, last_rx: out.now, segments: 0 })?;
        self.totals.made += 1;
        for (at, side) in sides.iter().enumerate() {
            table.leave(out, flows[at], After::Splice);
            connections.set(side.tuple, Lifecycle::Splice(key, at));
            if let Some(flow) = table.get_mut(flows[at].0) {
                flow.spliced = Spliced::In(key);
            }
            self.start_direction(key, at);
            // The peers get each other's windows, and that all they sent has arrived.
            let header = half_open_ack(side, &stands[at], &stands[1 - at]);
            out.send_tcp(&side.tuple, header);
        }
        self.time(out, key);
        Some(())
    }
}

/// Two connections can be joined if what their peers agreed on with this host is what they would have agreed on with
/// each other. This concerns what cannot be translated.
fn may_be_joined(a: &Flow, b: &Flow) -> Result<(), i32> {
    for flow in [a, b] {
        if flow.engine != EngineState::Engine || !flow.closing.ends.are_open() || flow.closing.is_orphan() {
            return Err(libc::ENOTCONN);
        }
        if flow.holders.len() > 1 {
            // Another process may be reading and writing.
            return Err(libc::EBUSY);
        }
        // The module translates IPv4 segments that leave the host.
        let tuple = flow.tuple.get();
        if tuple.as_v4().is_none() || tuple.local_ip == tuple.remote_ip || tuple.remote_ip.is_loopback() {
            return Err(libc::EOPNOTSUPP);
        }
        let figures = flow.stats.read();
        if figures.outstanding > 0 || figures.unsent > 0 {
            return Err(libc::EAGAIN);
        }
    }
    let class = |flow: &Flow| (flow.agreed.mss, flow.agreed.ts_offset.is_some(), flow.agreed.ecn);
    if class(a) == class(b) { Ok(()) } else { Err(libc::EPROTONOSUPPORT) }
}

impl Stand {
    fn of(now: Nanos, flow: &Flow, end: FlowEnd) -> Stand {
        Stand {
            end,
            agreed: flow.agreed,
            clock: flow.agreed.timestamps(end.ts_recent).map(|stamps| stamps.stamp(now).value),
            snd_wnd: flow.stats.read().snd_wnd,
        }
    }
}

/// From segments of the connection that stands at `from` to segments of `flow`, which stands at `to`. What came next on
/// the one is what goes next on the other (FlexTOE listing 1). The sender's clock goes on where this host's stood, and
/// echoes lead back to it.
fn translation(src_mac: wire::Mac, flow: &Flow, from: &Stand, to: &Stand) -> Option<Translation> {
    let stamps = from.clock.zip(to.clock);
    let tuple = flow.tuple.get().as_v4()?;
    Some(Translation {
        dst_mac: flow.remote_mac,
        src_mac,
        src: tuple.local_ip,
        dst: tuple.remote_ip,
        src_port: tuple.local_port,
        dst_port: tuple.remote_port,
        seq: to.end.snd_nxt - from.end.rcv_nxt,
        ack: to.end.rcv_nxt - from.end.snd_nxt,
        timestamps: stamps
            .map(|(here, there)| (there.wrapping_sub(from.end.ts_recent), to.end.ts_recent.wrapping_sub(here))),
        sack: to.agreed.sack,
        window_in: from.agreed.snd_shift,
        window_out: to.agreed.rcv_shift,
    })
}

impl Side {
    fn new(flow: &Flow, id: FlowId, next_hop: IpAddress, translation: Translation, stand: &Stand) -> Side {
        let seen = Seen { next: stand.end.rcv_nxt, ack: stand.end.snd_nxt, window: stand.snd_wnd, ..Seen::default() };
        Side {
            tuple: flow.tuple.get(),
            next_hop,
            translation,
            clock_offset: stand.agreed.ts_offset,
            stamps: (stand.end.ts_recent, stand.clock.unwrap_or(0)),
            flow: Some(id),
            fin: None,
            fin_acked: false,
            challenges: tcp::ChallengeLimit::default(),
            seen,
        }
    }
}

/// The first segment of the joined path: acknowledges all, with the window of the other peer.
fn half_open_ack(side: &Side, stand: &Stand, other: &Stand) -> Header {
    let timestamps = stand.clock.map(|value| Timestamps { value, echo: stand.end.ts_recent });
    Header {
        src_port: side.tuple.local_port,
        dst_port: side.tuple.remote_port,
        seq: stand.end.snd_nxt,
        ack: stand.end.rcv_nxt,
        flags: Flags::ACK,
        window: (other.snd_wnd >> stand.agreed.rcv_shift).min(u16::MAX as u32) as u16,
        options: Options { timestamps, ..Options::default() },
    }
}

impl Splice {
    /// How far a sequence number, as it goes out on the other side's connection, is from what the peer there expects.
    pub(crate) fn distance(&self, side: usize, seq: Seq, expected: Seq) -> u32 {
        let out = self.sides[side].translation.seq(seq);
        (out - expected).min(expected - out)
    }
}

/// The reason in the registry for a segment that is not passed on.
pub(super) const REFUSED: DropReason = DropReason::SpliceRefused;
