//! Pre-processing: validates received segments, filters what is not for the data-path, and finds the flow. It makes the
//! header summary and chooses the flow group (thesis section 4.3.1.3: Val, Id, Sum, Steer). Alloc and Head of section
//! 4.3.1.2 are with post-processing, which makes and writes a frame at once, where there is something to send.
use crate::batch::BATCH;
use crate::lookup::{self, Table};
use crate::message::{Control, Job, Summary, Work};
use crate::observer::Observer;
use crate::slots::Slots;
use engine::stream::{FlowParams, FourTuple};
use engine::{DropReason, Exception, Frame};
use port::Checksum;
use trace::{NO_FLOW, Point};
use wire::checksum::Sum;
use wire::ipv4::{self, Ecn};
use wire::predicted::{AddressesV6, Parties, Predicted, PredictedV4, PredictedV6, station};
use wire::tcp::SackBlocks;
use wire::{Endpoint, EtherType, ethernet, ip, tcp};

/// Connection identification (thesis table 4.1, pre-processor). Ours holds the local addresses too, because a host may
/// have several. It also holds the hash, so that a flow can be taken out of the table.
struct PreState {
    parties: Parties,
    /// Of a flow over IPv6, of whose addresses `parties` has a hash.
    addresses: Option<Box<AddressesV6>>,
    hash: u32,
    group: u8,
    /// This host's hardware address.
    station: u64,
}

/// Bytes of a flow's state here.
#[cfg(test)]
pub(crate) const STATE: usize = size_of::<Option<PreState>>();

/// Why a frame goes no further.
enum Refusal {
    Drop(DropReason),
    Exception(Exception),
}

/// The pre-processing module, or one replica of it.
pub(crate) struct Preprocess {
    flows: Slots<PreState>,
    /// Flows over IPv4.
    table: Table,
    /// Flows over IPv6, once there are any.
    table_v6: Option<Table>,
    groups: u32,
    most: u32,
}

impl Preprocess {
    pub(crate) fn new(flows: u32, groups: u8) -> Preprocess {
        let (table, table_v6) = (Table::new(flows), None);
        Preprocess { flows: Slots::new(flows), table, table_v6, groups: groups.max(1) as u32, most: flows }
    }

    pub(crate) fn control(&mut self, control: &Control) {
        match control {
            Control::Install(params) => self.install(params),
            Control::Forget(flow) => {
                if let Some(state) = self.flows.remove(flow.0) {
                    match state.addresses {
                        None => self.table.remove(state.hash, flow.0),
                        Some(_) => self.table_v6.iter_mut().for_each(|table| table.remove(state.hash, flow.0)),
                    }
                }
            }
            Control::NextHop(..) | Control::Rebind(..) | Control::Modules(..) => {}
        }
    }

    fn install(&mut self, params: &FlowParams) {
        let Some((parties, addresses)) = Parties::of_received(&params.tuple) else { return };
        let hash = lookup::hash(&parties);
        let group = (hash % self.groups) as u8;
        let is_v4 = addresses.is_none();
        let addresses = addresses.map(Box::new);
        let state = PreState { parties, addresses, hash, group, station: station(params.local_mac) };
        if self.flows.insert(params.flow.0, state) {
            let table = match is_v4 {
                true => &mut self.table,
                false => self.table_v6.get_or_insert_with(|| Table::new(self.most)),
            };
            table.insert(hash, params.flow.0);
        }
    }

    pub(crate) fn process<O: Observer>(&self, batch: &mut [Work], observer: O) {
        for work in batch {
            match work.job {
                Job::Receive => {
                    self.receive(work);
                    report(work, observer);
                }
                // A module of an operator has refused it.
                Job::Void => report_refusal(work, observer),
                // It is of a flow from the beginning, and has its flow group.
                _ => {}
            }
        }
    }

    /// Prefetches what this module's next lookups read, and calls `found` for each flow that it is going to find. First
    /// come the places of the table, then what they lead to.
    pub(crate) fn prefetch_ahead(&self, batch: &[Work], found: impl Fn(u32)) {
        for works in batch.chunks(BATCH) {
            let mut hashes = [None; BATCH];
            for (work, hash) in works.iter().zip(&mut hashes) {
                let predicted = work.frame.as_ref().and_then(|frame| predicted_v4(frame));
                *hash = predicted.map(|predicted| lookup::hash(&predicted.parties()));
                hash.iter().for_each(|hash| self.table.prefetch(*hash));
            }
            for hash in hashes.iter().flatten() {
                if let Some((flow, ())) = self.table.find(*hash, |_| Some(())) {
                    self.flows.prefetch(flow);
                    found(flow);
                }
            }
        }
    }

    #[inline(always)]
    fn receive(&self, work: &mut Work) {
        let predicted = work.frame.as_ref().and_then(|frame| predicted_v4(frame));
        let Some(predicted) = predicted else { return self.receive_other(work) };
        match self.identify(&predicted.parties(), predicted.station()) {
            Some((flow, group)) => {
                (work.flow, work.group) = (flow, group);
                work.summary = summary(&predicted);
            }
            None => refuse(work, Refusal::Exception(Exception::NoFlow)),
        }
    }

    /// The flow and the header summary of a segment of an installed flow whose headers are as predicted: for the fast
    /// path.
    #[inline(always)]
    pub(crate) fn fast(&self, frame: &Frame) -> Option<(u32, Summary)> {
        if let Some(predicted) = predicted_v4(frame) {
            let (flow, _) = self.identify(&predicted.parties(), predicted.station())?;
            return Some((flow, summary(&predicted)));
        }
        self.fast_v6(frame)
    }

    /// As [`Preprocess::fast`], over IPv6.
    #[inline(never)]
    fn fast_v6(&self, frame: &Frame) -> Option<(u32, Summary)> {
        let predicted = predicted_v6(frame)?;
        let (flow, _) = self.identify_v6(&predicted.parties(), predicted.addresses(), predicted.station())?;
        Some((flow, summary(&predicted)))
    }

    /// As [`Preprocess::receive`], of a segment whose headers are not as predicted, or that is over IPv6.
    #[inline(never)]
    fn receive_other(&self, work: &mut Work) {
        let Some(frame) = work.frame.as_mut() else { return work.job = Job::Void };
        if let Some(predicted) = predicted_v6(frame) {
            match self.identify_v6(&predicted.parties(), predicted.addresses(), predicted.station()) {
                Some((flow, group)) => {
                    (work.flow, work.group) = (flow, group);
                    work.summary = summary(&predicted);
                }
                None => refuse(work, Refusal::Exception(Exception::NoFlow)),
            }
            return;
        }
        let refusal = match validate_any(frame, &mut work.summary, &mut work.sacked) {
            Ok((tuple, station)) => match self.identify_any(&tuple, station) {
                Some((flow, group)) => return (work.flow, work.group) = (flow, group),
                None => Refusal::Exception(Exception::NoFlow),
            },
            Err(refusal) => refusal,
        };
        refuse(work, refusal);
    }

    /// The flow and its flow group.
    #[inline(always)]
    fn identify(&self, parties: &Parties, station: u64) -> Option<(u32, u8)> {
        let hash = lookup::hash(parties);
        let is_it = |flow| self.flows.get(flow).filter(|state| state.parties == *parties);
        let (flow, state) = self.table.find(hash, is_it)?;
        // A frame to another station's hardware address is not this flow's (a port in promiscuous mode).
        (state.station == station).then_some((flow, state.group))
    }

    /// The same over IPv6.
    fn identify_v6(&self, parties: &Parties, addresses: &AddressesV6, station: u64) -> Option<(u32, u8)> {
        let is_it = |state: &&PreState| state.parties == *parties && state.addresses.as_deref() == Some(addresses);
        let (flow, state) =
            self.table_v6.as_ref()?.find(lookup::hash(parties), |flow| self.flows.get(flow).filter(is_it))?;
        (state.station == station).then_some((flow, state.group))
    }

    fn identify_any(&self, tuple: &FourTuple, station: u64) -> Option<(u32, u8)> {
        match Parties::of_received(tuple)? {
            (parties, None) => self.identify(&parties, station),
            (parties, Some(addresses)) => self.identify_v6(&parties, &addresses, station),
        }
    }
}

#[cold]
#[inline(never)]
fn refuse(work: &mut Work, refusal: Refusal) {
    work.job = Job::Void;
    match refusal {
        Refusal::Drop(reason) => work.drops.add(reason),
        Refusal::Exception(exception) => work.exception = Some(exception),
    }
}

/// Reports to tracepoints what became of a received frame.
#[inline(always)]
fn report<O: Observer>(work: &Work, observer: O) {
    match work.job {
        Job::Receive => {
            let Summary { seq, payload_len, .. } = work.summary;
            observer.event(Point::Identified, work.flow, [seq.0.into(), payload_len.into()]);
        }
        _ => report_refusal(work, observer),
    }
}

/// The same of one that goes no further.
#[inline(always)]
fn report_refusal<O: Observer>(work: &Work, observer: O) {
    let Some(frame) = &work.frame else { return };
    let bytes = frame.len() as u64;
    for reason in work.drops.iter() {
        observer.event(Point::PreprocessDropped, NO_FLOW, [reason as u64, bytes]);
    }
    if let Some(why) = work.exception {
        observer.event(Point::PreprocessException, NO_FLOW, [number(why), bytes]);
    }
}

/// In the order of the words in `trace::Unit::Exception`.
fn number(why: Exception) -> u64 {
    match why {
        Exception::Foreign => 0,
        Exception::NoFlow => 1,
        Exception::Redirected => 2,
    }
}

/// Reads a segment again that a module changed after it was steered; whose it is stays.
pub(crate) fn read_again(work: &mut Work) {
    let Some(frame) = work.frame.as_mut() else { return };
    if let Some(predicted) = predicted_v4(frame) {
        return work.summary = summary(&predicted);
    }
    if let Some(predicted) = predicted_v6(frame) {
        return work.summary = summary(&predicted);
    }
    if let Err(refusal) = validate_any(frame, &mut work.summary, &mut work.sacked) {
        refuse(work, refusal);
    }
}

/// The segment, where its headers are as predicted, over IPv4, and its checksum need not be verified.
#[inline(always)]
fn predicted_v4(frame: &Frame) -> Option<PredictedV4<'_>> {
    if frame.checksum == Checksum::Complete { None } else { Predicted::parse(frame.bytes(), frame.len()) }
}

/// The same over IPv6.
#[inline(always)]
fn predicted_v6(frame: &Frame) -> Option<PredictedV6<'_>> {
    if frame.checksum == Checksum::Complete { None } else { Predicted::parse(frame.bytes(), frame.len()) }
}

/// The header summary of a segment whose headers are as predicted.
#[inline(always)]
fn summary<const N: usize>(predicted: &Predicted<'_, N>) -> Summary {
    Summary {
        seq: predicted.seq(),
        ack: predicted.ack(),
        flags: predicted.flags(),
        window: predicted.window(),
        timestamps: predicted.timestamps(),
        sack: false,
        payload_at: predicted.payload_at(),
        payload_len: predicted.payload_len(),
        ce: predicted.ecn() == Ecn::Ce,
    }
}

/// The urgent pointer of a segment that was identified. Few segments have one, so the summary is without.
pub(crate) fn urgent_pointer(frame: &Frame) -> Option<u16> {
    let bytes = frame.bytes();
    let ethertype = ethernet::Header::parse(bytes).ok()?.ethertype;
    let packet = bytes.get(ethernet::HEADER_LEN..)?;
    let (_, ip_len) = ip::Header::parse(ethertype, packet, frame.len() - ethernet::HEADER_LEN).ok()?;
    tcp::urgent_pointer(packet.get(ip_len..)?)
}

/// Checks headers and checksum of any segment, and fills the header summary. Returns whom it concerns, and to which
/// station it was sent.
fn validate_any(
    frame: &mut Frame,
    summary: &mut Summary,
    sacked: &mut SackBlocks,
) -> Result<(FourTuple, u64), Refusal> {
    let bytes = frame.bytes();
    let macs = ethernet::Header::parse(bytes).map_err(|_| Refusal::Drop(DropReason::Ethernet))?;
    if !matches!(macs.ethertype, EtherType::Ipv4 | EtherType::Ipv6) {
        return Err(Refusal::Exception(Exception::Foreign));
    }
    let packet = &bytes[ethernet::HEADER_LEN..];
    let (ip, ip_len) = ip::Header::parse(macs.ethertype, packet, frame.len() - ethernet::HEADER_LEN)
        .map_err(|_| Refusal::Drop(DropReason::Ip))?;
    if ip.is_fragment {
        return Err(Refusal::Drop(DropReason::Fragment));
    }
    if ip.protocol != ipv4::TCP {
        return Err(Refusal::Exception(Exception::Foreign));
    }
    let (tcp, tcp_len) = tcp::Header::parse(&packet[ip_len..]).map_err(|_| Refusal::Drop(DropReason::TcpHeader))?;
    let payload_len =
        (ip.payload_len as usize).checked_sub(tcp_len).ok_or(Refusal::Drop(DropReason::TcpHeader))? as u32;
    let tcp_at = ethernet::HEADER_LEN + ip_len;
    verify(frame, &ip, tcp_at)?;
    *sacked = tcp.options.sack_blocks(tcp.ack);
    *summary = Summary {
        seq: tcp.seq,
        ack: tcp.ack,
        flags: tcp.flags,
        window: tcp.window,
        timestamps: tcp.options.timestamps,
        sack: !sacked.is_empty(),
        payload_at: (tcp_at + tcp_len) as u32,
        payload_len,
        ce: ip.ecn == Ecn::Ce,
    };
    let (local, remote) = (Endpoint::new(ip.dst, tcp.dst_port), Endpoint::new(ip.src, tcp.src_port));
    Ok((FourTuple::new(local, remote), station(macs.dst)))
}

/// Verifies the TCP checksum where it is not verified yet.
// Meets RFC 9293: MUST-3.
fn verify(frame: &mut Frame, ip: &ip::Header, tcp_at: usize) -> Result<(), Refusal> {
    if frame.checksum != Checksum::Complete {
        return Ok(());
    }
    frame.flatten();
    let segment = frame.bytes().get(tcp_at..tcp_at + ip.payload_len as usize);
    let mut sum = Sum::pseudo_header(ip.src, ip.dst, ipv4::TCP, ip.payload_len as u32);
    sum.add(segment.ok_or(Refusal::Drop(DropReason::TcpHeader))?);
    if sum.finish() != 0 {
        return Err(Refusal::Drop(DropReason::TcpChecksum));
    }
    frame.checksum = Checksum::Verified;
    Ok(())
}
