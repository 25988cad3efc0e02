//! An engine that carries no data: it notes what it is asked for and reports what a test sets. A FIN counts as
//! acknowledged at once.
use super::{App, Net, config, ip_of};
use context::Slot;
use control::HostConfig;
use engine::stream::{self, FlowEnd, FlowParams, FourTuple, Stream};
use engine::{Burst, Command, ContextId, Engine, Event, Exception, FlowId, Nanos};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use wire::{Endpoint, EtherType, Seq, ethernet, ipv4, tcp};

/// What a test reads, and the events that it raises.
#[derive(Default)]
pub(crate) struct Log {
    pub installed: HashMap<FlowId, FlowParams>,
    pub commands: Vec<Recorded>,
    /// Frames of installed flows, by their payload's length.
    pub frames: Vec<(FlowId, usize)>,
    /// Events to raise.
    pub events: Vec<Event<Stream>>,
    /// Raised with the next acknowledgement of a FIN.
    pub after_fin: Vec<Event<Stream>>,
    pub attached: Vec<ContextId>,
}

/// A command, without what cannot be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recorded {
    Install(FlowId),
    Remove(FlowId),
    Rename(FlowId, ContextId, Slot),
    Move(FlowId, ContextId, Slot),
    Advance(FlowId, u32, u32, bool),
    Freeze(FlowId),
    Thaw(FlowId),
    Orphan(FlowId),
    Mss(FlowId, u16),
    Probe(FlowId),
    Retransmit(FlowId),
    Untrack(FlowId),
    NextHop(FlowId, wire::Mac),
    Other,
}

pub(crate) type Shared = Arc<Mutex<Log>>;

pub(crate) struct Recording(pub Shared, stream::Features);

impl Recording {
    pub(crate) fn boxed() -> (Box<dyn Engine<Stream>>, Shared) {
        Recording::with(stream::Features::default())
    }

    /// One that offers no more than this.
    pub(crate) fn with(features: stream::Features) -> (Box<dyn Engine<Stream>>, Shared) {
        let log = Shared::default();
        (Box::new(Recording(Arc::clone(&log), features)), log)
    }
}

/// Two hosts, and what their engines note.
pub(crate) fn two() -> (Net, [Shared; 2]) {
    with(vec![config(0), config(1)])
}

/// A client at host 0 is connected to port 80 of host 1, where nobody has accepted it yet: the client, its slot, the
/// server and its binding.
pub(crate) fn connect_unarmed(net: &mut Net) -> (App, Slot, App, u32) {
    let (mut client, mut server) = (net.attach(0), net.attach(1));
    let (binding, _) = server.bind(net, 80, false, false).unwrap();
    server.listen(net, binding, 2).unwrap();
    let tag = client.connect(ip_of(1), 80, 0);
    net.settle();
    let slot = client.connected(tag).unwrap().unwrap();
    (client, slot, server, binding)
}

/// With these configurations.
pub(crate) fn with(configs: Vec<HostConfig>) -> (Net, [Shared; 2]) {
    with_features(configs, stream::Features::default())
}

/// With engines that offer no more than this.
pub(crate) fn with_features(configs: Vec<HostConfig>, features: stream::Features) -> (Net, [Shared; 2]) {
    let mut logs = Vec::new();
    let net = Net::new(configs, |_, _| {
        let (engine, log) = Recording::with(features);
        logs.push(log);
        engine
    });
    (net, logs.try_into().ok().unwrap())
}

impl Engine<Stream> for Recording {
    fn name(&self) -> &'static str {
        "recording"
    }

    fn features(&self) -> engine::Features<stream::Features> {
        engine::Features { transport: self.1, ..engine::Features::default() }
    }

    fn poll(&mut self, _now: Nanos, burst: &mut Burst<'_, Stream>) -> usize {
        let mut log = self.0.lock().unwrap();
        let done = burst.commands.len() + burst.rx.len() + burst.back.len();
        for command in burst.commands.drain(..) {
            let recorded = log.obey(command, burst.events);
            log.commands.push(recorded);
        }
        let events = std::mem::take(&mut log.events);
        burst.events.extend(events);
        for frame in burst.back.drain(..).map(|(_, frame)| frame).chain(burst.rx.drain(..)) {
            match read(frame.bytes()) {
                None => burst.exceptions.push((Exception::Foreign, frame)),
                Some((tuple, payload)) => match log.find(&tuple) {
                    Some(flow) => {
                        log.frames.push((flow, payload));
                        burst.pool.put(frame);
                    }
                    None => burst.exceptions.push((Exception::NoFlow, frame)),
                },
            }
        }
        done
    }

    fn has_work(&self, _now: Nanos) -> bool {
        !self.0.lock().unwrap().events.is_empty()
    }

    fn next_deadline(&self) -> Option<Nanos> {
        None
    }

    fn module_stats(&self) -> Vec<(String, &'static str, u64)> {
        Vec::new()
    }
}

impl Log {
    fn find(&self, tuple: &FourTuple) -> Option<FlowId> {
        self.installed.values().find(|params| params.tuple == *tuple).map(|params| params.flow)
    }

    fn obey(&mut self, command: Command<Stream>, events: &mut Vec<Event<Stream>>) -> Recorded {
        match command {
            Command::Attach(context, _) => {
                self.attached.push(context);
                Recorded::Other
            }
            Command::Drain(context) => {
                events.push(Event::Drained(context));
                Recorded::Other
            }
            Command::Detach(context) => {
                assert!(self.installed.values().all(|params| params.context != context), "flows are left");
                self.attached.retain(|other| *other != context);
                Recorded::Other
            }
            Command::Install(params) => {
                assert!(self.attached.contains(&params.context));
                let flow = params.flow;
                assert!(self.installed.insert(flow, *params).is_none(), "{flow:?} is in use");
                Recorded::Install(flow)
            }
            Command::Remove(flow) => {
                if let Some(params) = self.installed.remove(&flow) {
                    events.push(Event::Removed(flow, end_of(&params)));
                }
                Recorded::Remove(flow)
            }
            Command::NextHop(flow, mac) => Recorded::NextHop(flow, mac),
            Command::Modules(_) => Recorded::Other,
            Command::Transport(command) => self.obey_stream(command, events),
        }
    }

    fn obey_stream(&mut self, command: stream::Command, events: &mut Vec<Event<Stream>>) -> Recorded {
        match command {
            stream::Command::Rename { flow, context, slot } => {
                self.rename(flow, context, slot);
                Recorded::Rename(flow, context, slot)
            }
            stream::Command::Move { flow, context, slot, .. } => {
                self.rename(flow, context, slot);
                Recorded::Move(flow, context, slot)
            }
            stream::Command::Advance { flow, tx_head, rx_head, fin } => {
                if fin {
                    self.events.push(Event::Transport(stream::Event::FinAcked(flow)));
                    self.events.append(&mut self.after_fin);
                }
                Recorded::Advance(flow, tx_head, rx_head, fin)
            }
            stream::Command::Freeze { flow, .. } => {
                let end = self.installed.get(&flow).map(end_of);
                events.extend(end.map(|end| Event::Transport(stream::Event::Frozen(flow, end))));
                Recorded::Freeze(flow)
            }
            stream::Command::Thaw(flow) => Recorded::Thaw(flow),
            stream::Command::Orphan(flow) => Recorded::Orphan(flow),
            stream::Command::Mss(flow, mss) => Recorded::Mss(flow, mss),
            stream::Command::Probe(flow) => Recorded::Probe(flow),
            stream::Command::Retransmit(flow, _) => Recorded::Retransmit(flow),
            stream::Command::Untrack(flow) => Recorded::Untrack(flow),
            stream::Command::Overdue(..)
            | stream::Command::Offer(..)
            | stream::Command::ProbeTail(..)
            | stream::Command::Window(..)
            | stream::Command::Growth(..)
            | stream::Command::Nagle(..)
            | stream::Command::Rate(..)
            | stream::Command::Resume(..)
            | stream::Command::OpenLog(..)
            | stream::Command::JoinLog { .. }
            | stream::Command::GiveUpLog(_)
            | stream::Command::ResumeLog(..)
            | stream::Command::Grown(..) => Recorded::Other,
        }
    }

    fn rename(&mut self, flow: FlowId, context: ContextId, slot: Slot) {
        if let Some(params) = self.installed.get_mut(&flow) {
            params.context = context;
            params.slot = slot;
        }
    }
}

/// A flow that sent nothing and received nothing.
fn end_of(params: &FlowParams) -> FlowEnd {
    FlowEnd {
        snd_nxt: params.snd_nxt,
        snd_una: params.snd_nxt,
        rcv_nxt: params.rcv_nxt,
        unread: 0,
        ts_recent: params.ts_recent,
        resume: None,
    }
}

/// Tuple (seen from the receiver) and payload length of a frame with a TCP segment.
pub(crate) fn read(bytes: &[u8]) -> Option<(FourTuple, usize)> {
    let (ip, header, len) = parse(bytes)?;
    let tuple = FourTuple::new(Endpoint::v4(ip.dst, header.dst_port), Endpoint::v4(ip.src, header.src_port));
    Some((tuple, len))
}

/// IP header, TCP header and payload length of a frame.
pub(crate) fn parse(bytes: &[u8]) -> Option<(ipv4::Header, tcp::Header, usize)> {
    let eth = ethernet::Header::parse(bytes).ok()?;
    if eth.ethertype != EtherType::Ipv4 {
        return None;
    }
    let at = ethernet::HEADER_LEN;
    let (ip, len) = ipv4::Header::parse(&bytes[at..], bytes.len() - at).ok()?;
    if ip.protocol != ipv4::TCP || ip.is_fragment {
        return None;
    }
    let (header, header_len) = tcp::Header::parse(&bytes[at + len..at + len + ip.payload_len as usize]).ok()?;
    Some((ip, header, (ip.payload_len as usize).checked_sub(header_len)?))
}

/// A frame with a TCP segment.
pub(crate) fn tcp_frame(
    src: (wire::Mac, wire::Ipv4Addr),
    dst: (wire::Mac, wire::Ipv4Addr),
    header: &tcp::Header,
    payload: &[u8],
) -> Vec<u8> {
    let start = ethernet::HEADER_LEN + ipv4::HEADER_LEN;
    let len = header.len() + payload.len();
    let mut bytes = vec![0; start + len];
    ethernet::Header { dst: dst.0, src: src.0, ethertype: EtherType::Ipv4 }.emit(&mut bytes);
    ipv4::Header::new(ipv4::TCP, (src.1, dst.1), len as u16).emit(&mut bytes[ethernet::HEADER_LEN..]);
    header.emit(&mut bytes[start..]);
    bytes[start + header.len()..].copy_from_slice(payload);
    let mut sum = wire::checksum::Sum::pseudo_header(src.1, dst.1, ipv4::TCP, len as u32);
    sum.add(&bytes[start..]);
    let checksum = sum.finish().to_be_bytes();
    bytes[start + tcp::CHECKSUM_AT..start + tcp::CHECKSUM_AT + 2].copy_from_slice(&checksum);
    bytes
}

/// A TCP header without options.
pub(crate) fn header(src_port: u16, dst_port: u16, seq: Seq, ack: Seq, flags: tcp::Flags) -> tcp::Header {
    tcp::Header { src_port, dst_port, seq, ack, flags, window: 1000, options: tcp::Options::default() }
}
