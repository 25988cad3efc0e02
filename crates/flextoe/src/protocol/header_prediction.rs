//! The fast path (header prediction, after Van Jacobson): nearly every work of a connection, in few instructions. It
//! takes the expected segment, and an application's message that may be sent at once, on a flow about which nothing is
//! unusual. Each function checks first and changes nothing where it refuses; then the work takes the slow path, with
//! the same result.
use super::state::{ProtocolState, age_ticks};
use super::{Due, track};
use crate::message::{EnginePositions, PayloadPart, Received, Report, Sent, Summary, Tally, TxSegment};
use crate::observer::Observer;
use engine::Nanos;
use engine::stream::ticks;
use std::sync::atomic::Ordering::Relaxed;
use tcp::Owner;
use tcp::window::ACK_DELAY;
use trace::Point;
use wire::Seq;
use wire::ipv4::Ecn;
use wire::tcp::Flags;

impl ProtocolState {
    /// Nothing about the flow is unusual: established, no loss, no FIN, nothing out of order, no congestion to echo.
    pub(super) fn is_fast(&self) -> bool {
        let ended = !self.ends.are_open() || self.holds_fin || self.life != Owner::Owned || self.frozen;
        let lost = !self.recovery.is_idle() || self.dup_acks > 0 || !self.ooo.is_empty();
        let signalled = self.overriding || self.ece || self.cwr || self.asked || self.urgent || self.has_records;
        !(ended || lost || signalled)
    }

    /// The expected segment, but for its timestamps: the next one, with payload or an acknowledgement of something new,
    /// or both. Its payload is within the advertised window and fits where the stream is now.
    #[inline(always)]
    fn expects(&self, seg: &Summary) -> bool {
        let acked = seg.ack - self.una;
        seg.seq == self.rcv_nxt
            && seg.flags.0 & !Flags::PSH.0 == Flags::ACK.0
            && acked <= self.max - self.una
            && seg.payload_len <= self.rcv_adv - self.rcv_nxt
            && seg.payload_len <= self.rcv_head + self.fixed.rx_place - self.rcv_nxt
            && seg.payload_len | acked != 0
            && !seg.sack
            && !seg.ce
    }

    /// [`ProtocolState::receive`] of an expected segment on a fast flow.
    #[inline(always)]
    pub(super) fn receive_fast<O: Observer>(
        &mut self,
        flow: u32,
        seg: &Summary,
        due: &mut Due,
        now: Nanos,
        observer: O,
    ) -> Option<Received> {
        if !self.expects(seg) {
            return None;
        }
        if self.fixed.agreed.ts_offset.is_some() {
            let value = seg.timestamps?.value;
            if Seq(value).before(Seq(self.ts_recent)) {
                return None;
            }
            if self.last_ack == seg.seq {
                (self.ts_recent, self.ts_recent_at) = (value, age_ticks(now));
            }
        }
        let (acked, mut tally) = (seg.ack - self.una, Tally::default());
        if acked > 0 || self.wl1.at_or_before(seg.seq) {
            let window = (seg.window as u32) << self.fixed.agreed.snd_shift;
            if window != self.snd_wnd {
                self.report_window(window, seg.ack, flow, observer);
                (self.snd_wnd, self.max_wnd) = (window, self.max_wnd.max(window));
            }
            (self.wl1, self.wl2) = (seg.seq, seg.ack);
        }
        if acked > 0 {
            (tally.acked, tally.rtt) = (acked, self.take_ack_fast(seg.ack, now));
            observer.event(Point::Acked, flow, [seg.ack.0.into(), acked.into()]);
            if tally.rtt > 0 {
                observer.value(Point::Rtt, flow, tally.rtt.into());
            }
        }
        let place = PayloadPart { pos: seg.seq - self.fixed.rx_base, skip: 0, len: seg.payload_len };
        if place.len > 0 {
            tally.delivered = place.len;
            observer.event(Point::InOrder, flow, [seg.seq.0.into(), place.len.into()]);
            self.take_payload_fast(flow, place.len, due, now);
        }
        let stats = &*self.fixed.stats;
        stats.snd_wnd.store(self.snd_wnd, Relaxed);
        stats.snd_una.store(self.una.0, Relaxed);
        stats.rcv_nxt.store(self.rcv_nxt.0, Relaxed);
        // Nothing has ended on a fast flow: no FIN is part of the positions.
        let (rx_tail, tx_tail) = (self.rcv_nxt - self.fixed.rx_base, self.una - self.fixed.tx_base);
        let report = if self.reported || self.nxt != self.head { self.report(0) } else { None };
        Some(Received { place, tally, completion: EnginePositions { rx_tail, tx_tail, fin: false }, report })
    }

    /// Returns the round-trip time, where this ends one.
    #[inline(always)]
    fn take_ack_fast(&mut self, ack: Seq, now: Nanos) -> u32 {
        self.grow_window(ack - self.una);
        self.una = ack;
        self.nxt = self.nxt.max(ack);
        self.rtt.take(now, ack)
    }

    #[inline(always)]
    fn take_payload_fast(&mut self, flow: u32, len: u32, due: &mut Due, now: Nanos) {
        self.rcv_nxt += len;
        if self.unacked == 0 {
            self.ack_due = now + ACK_DELAY;
        }
        self.unacked += len;
        if self.unacked >= self.ack_after() && !self.ack_now {
            self.ack_now = true;
            due.urgent.push(flow);
        }
        if !self.ack_listed {
            due.wait(flow, self);
        }
    }

    /// An application's positions, with a grant, on a fast flow with nothing unsent. What it wrote leaves at once,
    /// where it fits a segment and the windows.
    #[inline(always)]
    pub(super) fn bump_fast<O: Observer>(
        &mut self,
        flow: u32,
        (tx_head, rx_head): (u32, u32),
        due: &mut Due,
        now: Nanos,
        observer: O,
    ) -> Option<Sent> {
        // Positions that are older, or impossible, come out too large.
        let written = tx_head.wrapping_sub(self.head - self.fixed.tx_base);
        let taken = rx_head.wrapping_sub(self.rcv_head - self.fixed.rx_base);
        let sent_all = self.nxt == self.head && self.max == self.head;
        let room = self.fixed.tx_size - (self.head - self.una);
        let possible = written <= room && taken <= self.rcv_nxt - self.rcv_head;
        if !sent_all || !possible || written > self.usable().min(self.fixed.at_once) {
            return None;
        }
        observer.event(Point::Bump, flow, [tx_head.into(), rx_head.into()]);
        self.rcv_head += taken;
        let (mut segment, mut active) = (None, false);
        if written > 0 {
            observer.event(Point::Sent, flow, [self.head.0.into(), written.into()]);
            segment = Some(self.send_fast(written, now));
            active = track(self);
        } else if taken > 0 {
            let acknowledged_now = self.ack_now;
            self.update_window();
            due.note(flow, self, acknowledged_now);
        }
        let was_reported = std::mem::take(&mut self.reported);
        let report = was_reported.then_some(Report { segments: 0, sent: written });
        Some(Sent { segment, report, active })
    }

    /// One segment with all that is to be sent: new data, after all that was sent before.
    #[inline(always)]
    fn send_fast(&mut self, len: u32, now: Nanos) -> TxSegment {
        let seq = self.head;
        if self.rtt.start(now, seq + len) {
            self.fixed.stats.timed_ticks.store(ticks(now), Relaxed);
        }
        let mut segment = self.segment(seq, Flags::PSH, now);
        segment.pos = seq - self.fixed.tx_base;
        segment.fields.payload_len = len;
        segment.fields.ecn = if self.fixed.agreed.ecn { Ecn::Ect0 } else { Ecn::NotEct };
        segment.segment_size = if len > self.fixed.agreed.mss as u32 { self.fixed.agreed.mss } else { 0 };
        self.head = seq + len;
        (self.nxt, self.max) = (self.head, self.head);
        self.fixed.stats.snd_nxt.store(self.head.0, Relaxed);
        segment
    }
}

#[cfg(test)]
mod tests {
    use crate::batch::Batch;
    use crate::message::{Control, FlowCommand, Job, Summary, Work};
    use crate::observer::{Observer, Off};
    use crate::protocol::Protocol;
    use engine::stream::{Agreed, FlowParams, FourTuple, Growth};
    use engine::{ContextId, FlowId, Nanos, Slot};
    use proptest::prelude::*;
    use shm::{ByteRing, PAGE, Pooled, Region};
    use std::cell::RefCell;
    use std::net::Ipv4Addr;
    use std::sync::Arc;
    use trace::Point;
    use wire::tcp::{Flags, Timestamps};
    use wire::{Mac, Seq};

    /// The tracepoints' records, without times.
    #[derive(Default)]
    struct Reports(RefCell<Vec<(Point, u32, [u64; 2])>>);

    impl Observer for &Reports {
        fn event(self, point: Point, flow: u32, values: [u64; 2]) {
            self.0.borrow_mut().push((point, flow, values));
        }
        fn value(self, point: Point, flow: u32, value: u64) {
            self.event(point, flow, [value, 0]);
        }
        fn sample(self) -> u64 {
            0
        }
        fn since(self, _: Point, _: u32, _: u64) {}
    }

    impl Reports {
        /// The order within a work has no meaning.
        fn sorted(self) -> Vec<(Point, u32, [u64; 2])> {
            let mut reports = self.0.into_inner();
            reports.sort_by_key(|(point, flow, values)| (*point as usize, *flow, *values));
            reports
        }
    }

    const ISS: Seq = Seq(u32::MAX - 3000);
    const IRS: Seq = Seq(7000);

    fn protocol(timestamps: bool, ecn: bool) -> Protocol {
        let region = Arc::new(Region::create("fast", 4 * PAGE).expect("memory"));
        let ring = |at: usize| Arc::new(ByteRing::map(&region, at * PAGE, PAGE).expect("a ring"));
        let ip = Ipv4Addr::LOCALHOST;
        let params = FlowParams {
            flow: FlowId(0),
            tuple: FourTuple { local_ip: ip.into(), remote_ip: ip.into(), local_port: 1, remote_port: 2 },
            local_mac: Mac([2; 6]),
            remote_mac: Mac([4; 6]),
            context: ContextId(0),
            slot: Slot { index: 0, generation: 0 },
            rx: ring(0),
            tx: ring(1),
            snd_nxt: ISS,
            tx_pos: 0,
            rcv_nxt: IRS,
            rx_pos: 0,
            answered: 0,
            snd_wnd: 3000,
            agreed: Agreed {
                mss: 500,
                snd_shift: 0,
                rcv_shift: 0,
                ts_offset: timestamps.then_some(5),
                sack: true,
                ecn,
            },
            receiving: Default::default(),
            ts_recent: 100,
            super_segment: 1500,
            checksum_offload: true,
            rtt: 0,
            dctcp_echo: ecn,
            cwnd: 2500,
            growth: Growth::slow_start(1 << 20),
            rate: 0,
            stats: Pooled::default(),
        };
        let mut protocol = Protocol::new(0, 1, true);
        protocol.control(&Control::Install(Arc::new(params)), 0);
        protocol
    }

    /// What may come next: mostly what is expected, from what the flow is now.
    #[derive(Debug, Clone, Copy)]
    enum Next {
        Segment { off: i8, len: u16, ack: u16, flags: u8, older: bool, ce: bool, window: u16 },
        Bump { write: u16, read: u16, odd: u8, grant: bool },
        Grant,
        FlowCommand(FlowCommand),
        Wait(u32),
    }

    fn next() -> impl Strategy<Value = Next> {
        let rarely = |weight| prop::bool::weighted(weight);
        let off = prop_oneof![12 => Just(0i8), 1 => any::<i8>()];
        let flags = prop_oneof![14 => Just(0u8), 8 => Just(8), 1 => Just(0x40), 1 => Just(0x80), 1 => Just(1)];
        let segment = (off, 0..700u16, 0..1200u16, flags, rarely(0.03), rarely(0.03), 0..4000u16).prop_map(
            |(off, len, ack, flags, older, ce, window)| Next::Segment { off, len, ack, flags, older, ce, window },
        );
        let odd = prop_oneof![20 => Just(0u8), 1 => 1..3u8];
        let bump = (0..900u16, 0..900u16, odd, rarely(0.8)).prop_map(|(write, read, odd, grant)| Next::Bump {
            write,
            read,
            odd,
            grant,
        });
        let orders = [
            FlowCommand::Window(1000),
            FlowCommand::Window(9000),
            FlowCommand::Growth(Growth { until: 20_000, per: 3000 }),
            FlowCommand::Growth(Growth::slow_start(12_000)),
            FlowCommand::Mss(400),
            FlowCommand::Nagle(true),
            FlowCommand::Nagle(false),
            FlowCommand::Retransmit(None),
            FlowCommand::Retransmit(Some(ISS + 1500)),
            FlowCommand::Untrack,
            FlowCommand::ReportSent(900),
        ];
        let flow_command = prop::sample::select(orders.to_vec()).prop_map(Next::FlowCommand);
        let wait = (0..900_000u32).prop_map(Next::Wait);
        prop_oneof![20 => segment, 20 => bump, 3 => Just(Next::Grant), 1 => flow_command, 4 => wait]
    }

    /// The work that `next` is, on the flow as it stands in `protocol`.
    fn add(batch: &mut Batch, protocol: &Protocol, next: Next) {
        let state = protocol.flows.get(0).expect("the flow");
        match next {
            Next::Segment { off, len, ack, flags, older, ce, window } => {
                let work = batch.add(0, Job::Receive);
                work.sacked = [(state.max - 1, state.max)].into_iter().collect();
                let value = state.ts_recent.wrapping_add(1).wrapping_sub(5 * older as u32);
                let outstanding = state.max - state.una;
                let seq = state.rcv_nxt + off as i32 as u32;
                work.summary = Summary {
                    seq,
                    ack: state.una + if ack % 3 == 0 { 0 } else { outstanding.min(ack.into()) },
                    flags: Flags::ACK | Flags(flags),
                    window,
                    timestamps: state.fixed.agreed.ts_offset.map(|_| Timestamps { value, echo: 0 }),
                    sack: off == 100,
                    payload_at: 66,
                    payload_len: if len < 100 { 0 } else { len.into() },
                    ce,
                };
            }
            Next::Bump { write, read, odd, grant } => {
                let tx_head = state.head - state.fixed.tx_base;
                let rx_head = state.rcv_head - state.fixed.rx_base;
                let room = state.fixed.tx_size - (state.head - state.una).min(state.fixed.tx_size);
                let readable = state.rcv_data_end() - state.rcv_head;
                let (mut tx_head, mut rx_head) =
                    (tx_head.wrapping_add(room.min(write.into())), rx_head.wrapping_add(readable.min(read.into())));
                match odd {
                    1 => tx_head = tx_head.wrapping_add(5000),
                    2 => (tx_head, rx_head) = (tx_head.wrapping_sub(7), rx_head.wrapping_sub(9)),
                    _ => {}
                }
                batch.add(0, Job::Bump { tx_head, rx_head, fin: false, grant });
            }
            Next::Grant => {
                batch.add(0, Job::Transmit { most: u32::MAX });
            }
            Next::FlowCommand(flow_command) => {
                batch.add(0, Job::FlowCommand(flow_command));
            }
            Next::Wait(_) => {
                batch.add(u32::MAX, Job::Flush { due: Nanos::MAX });
            }
        }
    }

    fn decided(work: &Work) -> String {
        let Work { ticket, job, send, place, tally, completion, report, events, drops, exception, .. } = work;
        // Of a place without bytes nothing else means anything.
        let place = (place.len > 0).then_some(place);
        format!(
            "{ticket} {job:?} {send:?} {place:?} {tally:?} {completion:?} {report:?} {events:?} {drops:?} {exception:?}"
        )
    }

    /// More than the ring holds, each message read and answered: the edge moves on with what the answers advertise.
    /// Only the first segment finds a flow that nothing was advertised on.
    #[test]
    fn messages_and_answers_never_leave_the_fast_path() {
        let mut protocol = protocol(true, false);
        for message in 0..200u32 {
            let now = 1_000_000_000 + u64::from(message);
            let state = protocol.flows.get(0).expect("the flow");
            let expected = Summary {
                seq: state.rcv_nxt,
                ack: state.max,
                flags: Flags::ACK | Flags::PSH,
                window: 4000,
                timestamps: Some(Timestamps { value: state.ts_recent + 1, echo: 0 }),
                payload_at: 66,
                payload_len: 100,
                ..Summary::default()
            };
            if protocol.receive_fast(0, &expected, now, Off).is_none() {
                assert_eq!(message, 0);
                let mut first = Batch::default();
                first.add(0, Job::Receive).summary = expected;
                protocol.process(&mut first, now, Off);
            }
            let mut answer = Batch::default();
            add(&mut answer, &protocol, Next::Bump { write: 100, read: 100, odd: 0, grant: true });
            protocol.process(&mut answer, now, Off);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever comes, the fast path and the slow path decide alike, report alike, and leave the flow alike.
        #[test]
        fn fast_and_slow_path_are_the_same(
            steps in prop::collection::vec(next(), 1..120), timestamps in any::<bool>(), ecn in any::<bool>(),
        ) {
            let (mut fast, mut slow) = (protocol(timestamps, ecn), protocol(timestamps, ecn));
            let mut now = 1_000_000_000;
            for step in steps {
                if let Next::Wait(time) = step {
                    now += u64::from(time);
                }
                let (mut one, mut other) = (Batch::default(), Batch::default());
                add(&mut one, &fast, step);
                add(&mut other, &slow, step);
                slow.flows.get_mut(0).expect("the flow").fast = false;
                let reports = [Reports::default(), Reports::default()];
                fast.process(&mut one, now, &reports[0]);
                slow.process(&mut other, now, &reports[1]);
                let [one_reports, other_reports] = reports.map(Reports::sorted);
                prop_assert_eq!(one_reports, other_reports, "{:?}", step);
                let all = |batch: &Batch| batch.iter().map(decided).collect::<Vec<String>>();
                prop_assert_eq!(all(&one), all(&other), "{:?}", step);
                let mut states = [&mut fast, &mut slow].map(|protocol| {
                    let state = protocol.flows.get_mut(0).expect("the flow");
                    state.fast = state.is_fast();
                    format!("{state:?}")
                });
                prop_assert_eq!(std::mem::take(&mut states[0]), std::mem::take(&mut states[1]), "{:?}", step);
            }
        }
    }
}
