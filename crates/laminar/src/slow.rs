//! The switch's own processor: segments of installed flows that the pipeline leaves to it (docs/P4.md). It brings them
//! into the form that the pipeline takes, and does what a pipeline cannot: FIN, RST, SYN, other options, probes.
use crate::Laminar;
use crate::descriptor::PORT_NET;
use crate::flow::Flow;
use crate::frames::{FrameVerdict, ip_header, is_tcp};
use crate::program::Program;
use ::tcp::{Owner, PeerFin, ReceiveWindow, Rejected, Unacceptable};
use engine::stream::{self, Stream};
use engine::{Burst, DropReason, Exception, FlowId, Frame};
use port::Checksum;
use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;
use wire::checksum::Sum;
use wire::tcp::{self, Flags, Options, Timestamps};
use wire::{Endpoint, EtherType, FourTuple, Seq, ethernet, ip, ipv4, ipv6};

const IP_AT: usize = ethernet::HEADER_LEN;

/// A TCP segment's headers, and where its parts lie.
pub(crate) struct Parts {
    tuple: FourTuple,
    pub tcp: tcp::Header,
    ip: ip::Header,
    /// Bytes of all headers.
    headers: usize,
    pub payload: u32,
}

fn parts(frame: &Frame) -> Result<Parts, DropReason> {
    let (ip, ip_len) = ip_header(frame).ok_or(DropReason::Ethernet)??;
    if ip.is_fragment {
        return Err(DropReason::Fragment);
    }
    let segment = frame.bytes().get(IP_AT + ip_len..).ok_or(DropReason::Ip)?;
    let (tcp, tcp_len) = tcp::Header::parse(segment).map_err(|_| DropReason::TcpHeader)?;
    let payload = (ip.payload_len as usize).checked_sub(tcp_len).ok_or(DropReason::TcpHeader)? as u32;
    let tuple = FourTuple::new(Endpoint::new(ip.dst, tcp.dst_port), Endpoint::new(ip.src, tcp.src_port));
    Ok(Parts { tuple, tcp, ip, headers: IP_AT + ip_len + tcp_len, payload })
}

impl Laminar {
    /// A frame of the exception path: of an installed flow, or the control plane's.
    pub(crate) fn exception(&mut self, mut frame: Box<Frame>, burst: &mut Burst<'_, Stream>) {
        if !is_tcp(&frame) {
            return burst.exceptions.push((Exception::Foreign, frame));
        }
        let parts = match parts(&frame) {
            Ok(parts) => parts,
            Err(reason) => return self.refuse(frame, reason, None, burst),
        };
        let Some(flow) = self.tuples.get(&parts.tuple).copied() else {
            return burst.exceptions.push((Exception::NoFlow, frame));
        };
        if self.slow_path_again {
            return self.refuse(frame, DropReason::TcpHeader, Some(flow), burst);
        }
        match self.unusual(flow, &parts, burst) {
            Ok(()) => {}
            Err(Some(reason)) => return self.refuse(frame, reason, Some(flow), burst),
            Err(None) => {
                self.record(&frame, Some(flow), FrameVerdict::Accepted, burst);
                return burst.pool.put(frame);
            }
        }
        self.note_blocks(flow, &parts, burst);
        let stamps = parts.tcp.options.timestamps.filter(|_| self.flow(flow).is_some_and(|flow| flow.clock.is_some()));
        reduce_options(&mut frame, &parts, stamps);
        self.slow_path_again = true;
        self.frame(PORT_NET, frame, burst);
        self.settle(burst);
        self.slow_path_again = false;
        self.take_fin(flow, burst);
    }

    /// Flow and headers of a segment that no descriptor reports.
    pub(crate) fn owner(&self, frame: &Frame) -> Option<(u32, Parts)> {
        let parts = parts(frame).ok()?;
        Some((self.tuples.get(&parts.tuple).copied()?, parts))
    }

    /// What the peer has beyond a hole, as a segment reports that may lie outside the window.
    pub(crate) fn note_blocks(&mut self, id: u32, parts: &Parts, burst: &mut Burst<'_, Stream>) {
        let accepted = self.switch.program.accepts(id, parts.tcp.seq, parts.payload);
        if self.flow(id).is_some_and(|flow| accepted && flow.note_blocks(&parts.tcp)) {
            self.may_send(id, burst);
        }
    }

    /// What is to be done before the pipeline gets the segment. An error: it does not get it, perhaps for a reason to
    /// drop it.
    fn unusual(&mut self, id: u32, parts: &Parts, burst: &mut Burst<'_, Stream>) -> Result<(), Option<DropReason>> {
        let [next, edge] = self.switch.program.rx_window(id).map(Seq);
        let window = ReceiveWindow { next, edge };
        let Some(flow) = self.flows[id as usize].as_deref() else { return Err(Some(DropReason::NoFlow)) };
        let flags = parts.tcp.flags;
        if flow.life == Owner::Dead {
            return Err(Some(DropReason::AfterClose));
        }
        let checked = self.check_timestamp(id, parts).and(window.check_reset_and_syn(flags, parts.tcp.seq));
        if let Err(rejected) = checked {
            return Err(self.reject(id, rejected, burst));
        }
        let Some(flow) = self.flows[id as usize].as_mut() else { return Err(Some(DropReason::NoFlow)) };
        if !flags.has(Flags::ACK) {
            return Err(Some(DropReason::NoAck));
        }
        let fin = parts.tcp.seq + parts.payload;
        let fits = next.at_or_before(fin) && fin - next <= window.size();
        // Nobody will read what it brings. The pipeline would acknowledge it (RFC 9293 section 3.6.1).
        if flow.life == Owner::Orphan && parts.payload > 0 && next.before(fin) && fits {
            burst.events.push(stream::Event::OrphanData(FlowId(id)).into());
            return Err(Some(DropReason::AfterClose));
        }
        if flags.has(Flags::FIN) && !flow.ends.peer_ended() && fits {
            flow.fin_held = Some(fin);
        }
        Ok(())
    }

    /// Answers a segment that TCP's rules do not process, where that is due. Returns why it is dropped, if it is.
    // Meets RFC 5961: 7-a, 10-a.
    pub(crate) fn reject(&mut self, id: u32, rejected: Rejected, burst: &mut Burst<'_, Stream>) -> Option<DropReason> {
        let now = self.now;
        let flow = self.flow(id)?;
        match rejected {
            Rejected::Reset => {
                flow.life = Owner::Dead;
                burst.events.push(stream::Event::Reset(FlowId(id)).into());
                None
            }
            Rejected::Dropped(reason) => Some(reason.into()),
            Rejected::Challenged(reason) if !flow.challenges.allow(now) => {
                // What was dropped beside the segment: its answer.
                self.count_drop(Some(id), DropReason::ChallengeLimit, burst);
                Some(reason.into())
            }
            Rejected::Answered(reason) | Rejected::Challenged(reason) => {
                self.acknowledge(id, burst);
                Some(reason.into())
            }
        }
    }

    /// PAWS for a segment that the pipeline has not checked, or has found old.
    // Meets RFC 7323: 3.2-c, 5.3-a, 5.3-b, 5.5-a.
    fn check_timestamp(&self, id: u32, parts: &Parts) -> Result<(), Rejected> {
        let Some(flow) = self.flows[id as usize].as_deref().filter(|flow| flow.clock.is_some()) else { return Ok(()) };
        let Some((recent, _)) = self.switch.program.peer_clock(id) else { return Ok(()) };
        if parts.tcp.flags.has(Flags::RST) {
            return Ok(());
        }
        let value = parts.tcp.options.timestamps.map(|stamps| stamps.value);
        ::tcp::check_timestamp(value, parts.payload, recent, self.now.saturating_sub(flow.stamped_at))
    }

    /// A segment that the pipeline left to be challenged.
    #[cold]
    pub(crate) fn challenge(&mut self, id: u32, frame: Box<Frame>, bad_ack: bool, burst: &mut Burst<'_, Stream>) {
        let rejected = match self.why_unacceptable(id, &frame, bad_ack) {
            Ok(clock) => {
                // The last timestamp is out of date, and the pipeline has no clock of days.
                self.switch.program.set_peer_clock(id, clock);
                return self.frame(PORT_NET, frame, burst);
            }
            Err(rejected) => rejected,
        };
        self.take_ack_alone(id, &frame, rejected, burst);
        let reason = self.reject(id, rejected, burst).unwrap_or(DropReason::NoFlow);
        self.refuse(frame, reason, Some(id), burst);
    }

    /// The acknowledgement of a segment that is not acceptable goes into the pipeline alone, where it counts.
    #[cold]
    pub(crate) fn take_ack_alone(&mut self, id: u32, frame: &Frame, rejected: Rejected, burst: &mut Burst<'_, Stream>) {
        let Some((flow, parts)) = self.flows[id as usize].as_deref().zip(parts(frame).ok()) else { return };
        let counts = ::tcp::ack_counts_alone(rejected, parts.tcp.ack, flow.una, flow.max, flow.max_wnd);
        if !counts || !parts.tcp.flags.has(Flags::ACK) || self.slow_path_again {
            return;
        }
        let stamps = parts.tcp.options.timestamps.filter(|_| flow.clock.is_some());
        let next = Seq(self.switch.program.rx_window(id)[0]);
        let tcp = tcp::Header { seq: next, flags: Flags::ACK, ..parts.tcp };
        let mut alone = burst.pool.small();
        alone.bytes_vec().extend_from_slice(&frame.bytes()[..parts.headers]);
        reduce_options(&mut alone, &Parts { tcp, payload: 0, ..parts }, stamps);
        self.slow_path_again = true;
        self.frame(PORT_NET, alone, burst);
        self.slow_path_again = false;
    }

    /// Which of its numbers makes a segment unacceptable; or the timestamp of one that seemed old, and is acceptable.
    fn why_unacceptable(&self, id: u32, frame: &Frame, bad_ack: bool) -> Result<u32, Rejected> {
        let outside = Rejected::Challenged(Unacceptable::OutsideWindow);
        let Some((flow, parts)) = self.flows[id as usize].as_deref().zip(parts(frame).ok()) else {
            return Err(outside);
        };
        self.check_timestamp(id, &parts)?;
        let ack = ::tcp::check_ack(parts.tcp.ack, flow.una, flow.max, flow.max_wnd);
        let clock = self.switch.program.peer_clock(id).filter(|_| flow.clock.is_some());
        if let Some(((recent, acked), stamps)) = clock.zip(parts.tcp.options.timestamps) {
            if Seq(stamps.value).before(Seq(recent)) {
                let [next, edge] = self.switch.program.rx_window(id).map(Seq);
                let window = ReceiveWindow { next, edge };
                let sequence = window.check_sequence(parts.tcp.seq, parts.payload, false, acked);
                return sequence.map_err(|rejected| rejected.with_ack(ack)).and(ack).map(|()| stamps.value);
            }
        }
        Err(if bad_ack {
            Rejected::Challenged(Unacceptable::AckBeyondSent)
        } else if ack.is_err() {
            Rejected::Challenged(Unacceptable::AckTooOld)
        } else {
            outside
        })
    }

    /// All before the peer's FIN is there: it ends the stream, and is acknowledged.
    pub(crate) fn take_fin(&mut self, id: u32, burst: &mut Burst<'_, Stream>) {
        let next = Seq(self.switch.program.rx_window(id)[0]);
        let Some(flow) = self.flows[id as usize].as_mut() else { return };
        if flow.life == Owner::Dead || flow.ends.peer_ended() || flow.fin_held != Some(next) {
            return;
        }
        flow.fin_held = None;
        let order = flow.ends.end_peer();
        flow.rx_tail = next - flow.rx_base;
        flow.publish_received();
        self.switch.program.end_rx(id, (next + 1).0);
        let event = if order == PeerFin::Second { stream::Event::PeerFinToo } else { stream::Event::PeerFin };
        burst.events.push(event(FlowId(id)).into());
        self.log_moved(id);
        self.notify(id);
        self.acknowledge(id, burst);
    }

    /// An empty segment just below the window, which asks for an acknowledgement. The pipeline sends nothing below
    /// the oldest byte that is not acknowledged, so this is a frame of the control plane.
    // Meets RFC 9293: SHLD-12.
    // Meets RFC 3168: 6.1.6-a.
    pub(crate) fn probe(&mut self, id: u32, burst: &mut Burst<'_, Stream>) {
        let [next, edge] = self.switch.program.rx_window(id).map(Seq);
        let Some(flow) = self.flows[id as usize].as_ref().filter(|flow| flow.life != Owner::Dead) else { return };
        let p = &flow.params;
        let open = if next.before(edge) { edge - next } else { 0 };
        let clock = self.switch.program.peer_clock(id);
        let stamps = flow
            .clock
            .zip(clock)
            .map(|(clock, (echo, _))| Timestamps { value: Program::ticks(self.now).wrapping_add(clock), echo });
        let tuple = p.tuple;
        let header = tcp::Header {
            src_port: tuple.local_port,
            dst_port: tuple.remote_port,
            seq: flow.una - 1,
            ack: next,
            flags: Flags::ACK,
            window: (open >> p.agreed.rcv_shift).min(u16::MAX as u32) as u16,
            options: Options { timestamps: stamps, ..Options::default() },
        };
        let mut frame = burst.pool.small();
        let tcp_at = flow.tcp_at();
        frame.resize(tcp_at + header.len());
        let bytes = frame.bytes_mut();
        let ethertype = if tuple.remote_ip.is_v4() { EtherType::Ipv4 } else { EtherType::Ipv6 };
        ethernet::Header { dst: p.remote_mac, src: p.local_mac, ethertype }.emit(bytes);
        ip::emit(ipv4::TCP, (tuple.local_ip, tuple.remote_ip), HOPS, &mut bytes[IP_AT..]);
        header.emit(&mut bytes[tcp_at..]);
        let mut sum = Sum::pseudo_header(tuple.local_ip, tuple.remote_ip, ipv4::TCP, header.len() as u32);
        sum.add(&bytes[tcp_at..]);
        let field = tcp_at + tcp::CHECKSUM_AT;
        bytes[field..field + 2].copy_from_slice(&sum.finish().to_be_bytes());
        self.frame(crate::descriptor::PORT_CPU, frame, burst);
        self.settle(burst);
    }

    /// Counts a drop, of a flow's too.
    pub(crate) fn count_drop(&mut self, flow: Option<u32>, reason: DropReason, burst: &mut Burst<'_, Stream>) {
        burst.drops.count(reason);
        if let Some(flow) = flow.and_then(|id| self.flow(id)) {
            flow.stats.drops.fetch_add(1, Relaxed);
            flow.stats.last_drop.store(reason as u8 + 1, Relaxed);
        }
    }

    /// Drops a received frame.
    pub(crate) fn refuse(
        &mut self,
        frame: Box<Frame>,
        reason: DropReason,
        flow: Option<u32>,
        burst: &mut Burst<'_, Stream>,
    ) {
        self.count_drop(flow, reason, burst);
        self.record(&frame, flow, FrameVerdict::Dropped(reason), burst);
        burst.pool.put(frame);
    }
}

/// What a segment reports whose options the pipeline took off. True where something has to be sent again.
#[cold]
pub(crate) fn note_options(flow: &mut Flow, frame: &Frame) -> bool {
    let header = frame.bytes().get(flow.tcp_at()..).map(tcp::Header::parse);
    matches!(header, Some(Ok((header, _))) if flow.note_blocks(&header))
}

/// Hops of a frame of the control plane, as of the pipeline's.
const HOPS: u8 = 64;

/// Takes options, extension headers, FIN and URG off, but for timestamps, in the form that the pipeline takes (RFC 7323
/// appendix A). The TCP checksum has been verified.
fn reduce_options(frame: &mut Frame, parts: &Parts, timestamps: Option<Timestamps>) {
    frame.checksum = Checksum::Verified;
    let flags = Flags(parts.tcp.flags.0 & !(Flags::FIN.0 | Flags::URG.0));
    let header = tcp::Header { flags, options: Options { timestamps, ..Options::default() }, ..parts.tcp };
    let mut link = [0; IP_AT];
    link.copy_from_slice(&frame.bytes()[..IP_AT]);
    // A header with timestamps has them in at least as many bytes, since its options fill whole words.
    let ip::Header { src, dst, ecn, hop_limit, .. } = parts.ip;
    let tcp_at = IP_AT + ip::header_len(dst);
    if !frame.strip_front(parts.headers.saturating_sub(tcp_at + header.len())) {
        return;
    }
    let bytes = frame.bytes_mut();
    bytes[..IP_AT].copy_from_slice(&link);
    let payload_len = (header.len() as u32 + parts.payload) as u16;
    match (src.ip(), dst.ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let ip = ipv4::Header::new(ipv4::TCP, (src, dst), payload_len);
            ipv4::Header { ecn, ttl: hop_limit, ..ip }.emit(&mut bytes[IP_AT..]);
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let ip = ipv6::Header::new(ipv4::TCP, src, dst, payload_len);
            ipv6::Header { ecn, hop_limit, ..ip }.emit(&mut bytes[IP_AT..]);
        }
        _ => return,
    }
    header.emit(&mut bytes[tcp_at..]);
}
