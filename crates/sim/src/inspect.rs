//! Inspector: checks every frame between a host and the network by RFC 9293's rules for a sender, with both sides. It
//! finds a stack that corrupts, acknowledges what it has not, or exceeds a window.
use crate::pair::{CLIENT, Half, Pair, SERVER, SideState};
use control::FlowView;
use port::capture::Direction as Way;
use port::{Capture, Checksum, Frame};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use wire::checksum::Sum;
use wire::tcp::Flags;
use wire::{Endpoint, EtherType, IpAddress, Seq, ethernet, ip, ipv4, tcp};

/// Source and destination of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ends {
    /// Source address and port.
    pub from: Endpoint,
    /// Destination address and port.
    pub to: Endpoint,
}

impl Ends {
    fn reversed(self) -> Ends {
        Ends { from: self.to, to: self.from }
    }

    /// This is the direction in which `local` sends to `remote`.
    pub(crate) fn is_of(self, local: SocketAddr, remote: SocketAddr) -> bool {
        (self.from, self.to) == (local.into(), remote.into())
    }
}

/// Bytes that an application has written and its host not sent, and its end: a transmit buffer at most.
const MOST_UNSENT: u32 = (16 << 20) + 1;
/// So many advertised right edges are remembered.
const EDGES: usize = 16;

/// What is known of one direction of a connection.
#[derive(Debug, Clone, Copy, Default)]
struct Direction {
    /// Initial sequence number.
    isn: Option<Seq>,
    /// End of what was sent so far.
    sent_end: Seq,
    /// FIN was sent; it stands just before `sent_end`.
    fin: bool,
    /// The sender's options on SYN.
    window_scale: Option<u8>,
    mss: u16,
    /// Window in its SYN, where that had no acknowledgement to be counted from; received by the other side.
    syn_window: Option<u16>,
    /// Earlier connections between the same ends, the last one first: initial number and end of what was sent.
    earlier: [Option<(Seq, Seq)>; 4],
    /// Right edge of the sender's receive window: the furthest that it advertised.
    edge: Option<Seq>,
    /// The same, of what the other side has received.
    edge_received: Option<Seq>,
    /// The other side's host was killed since it last received an edge: the next one has none.
    unknown_edge: bool,
    /// It has sent nothing since: until its program is back, it drops what it receives (docs/RESTART.md).
    silent: bool,
    /// The sender's host was killed: the next one counts all as sent that the application wrote, and its end.
    sender_killed: bool,
    /// The right edges that the other side has received last.
    edges: [Option<Seq>; EDGES],
}

/// A TCP segment as it stands in a frame.
struct ObservedSegment {
    ends: Ends,
    header: tcp::Header,
    payload: Vec<u8>,
    segment_size: u16,
}

/// Stands above a trace.
pub(crate) const TRACE_HEADING: &str = concat!(
    "       time ns what     source -> destination, flags, seq, ack, window (as on the wire), payload bytes\n",
    "               sent: as a host gave it to the network; received: as a host got it, if it did\n",
    "                 app N context M: -> a request to its daemon, <- a reply, as Rust prints them; a slot is INDEX.USES\n",
    "               host 0 has address 10.0.0.1, host 1 has 10.0.0.2, and so on"
);

/// Lines that a trace keeps.
const MOST_TRACE: usize = 10_000;

/// Inspects frames.
#[derive(Default)]
pub(crate) struct Inspector {
    directions: BTreeMap<Ends, Direction>,
    /// Which pair and side sends in a direction.
    pairs: BTreeMap<Ends, (usize, usize)>,
    /// Sums up everything sent, to compare two runs.
    pub digest: u64,
    /// Frames sent.
    pub frames: u64,
    /// Segments with data or FIN that were sent again.
    pub resent: u64,
    /// Keep a line for each segment, for people.
    pub tracing: bool,
    /// These lines, the last ones.
    pub trace: VecDeque<String>,
    /// Where frames are written as hosts send them.
    pub capture: Option<Capture>,
    /// Where data was sent for the first time, since the last inspection.
    pub begun: Vec<Ends>,
    /// The first SYN and the first SYN-ACK: initial sequence numbers, and the SYN's timestamp.
    pub first: [Option<(Seq, u32)>; 2],
}

impl Inspector {
    /// From now on the connection between `client` and `server` is the pair's.
    pub(crate) fn register(&mut self, client: Endpoint, server: Endpoint, pair: usize) {
        let ends = Ends { from: client, to: server };
        self.pairs.insert(ends, (pair, CLIENT));
        self.pairs.insert(ends.reversed(), (pair, SERVER));
    }

    /// The pair of a connection that came in at `local` from `remote`.
    pub(crate) fn pair_of(&self, local: Endpoint, remote: Endpoint) -> Option<usize> {
        self.pairs.get(&Ends { from: local, to: remote }).filter(|(_, side)| *side == SERVER).map(|(pair, _)| *pair)
    }

    fn note(&mut self, now: u64, what: &str, segment: &ObservedSegment) {
        if self.tracing {
            self.note_line(now, format!("{what} {}", describe(segment)));
        }
    }

    /// Adds a line to the trace.
    pub(crate) fn note_line(&mut self, now: u64, line: String) {
        self.trace.push_back(format!("{now:>14} {line}"));
        if self.trace.len() > MOST_TRACE {
            self.trace.pop_front();
        }
    }

    /// A host sends a frame.
    pub(crate) fn sent(&mut self, now: u64, frame: &Frame, mtu: u16, pairs: &[Pair]) -> Result<(), String> {
        self.frames += 1;
        let limit = ethernet::HEADER_LEN + if frame.segment_size > 0 { 65_535 } else { usize::from(mtu) };
        if frame.len() > limit {
            return Err(format!("a frame of {} bytes is sent, the MTU is {mtu}", frame.len()));
        }
        self.digest(now, frame);
        self.capture.iter().for_each(|capture| capture.write(now, Way::Out, [frame]));
        let Some(segment) = read(frame, true)? else { return Ok(()) };
        self.note(now, "sent    ", &segment);
        self.check(&segment, pairs).map_err(|what| format!("{what} (sent: {})", describe(&segment)))?;
        if let Some(reverse) = self.directions.get_mut(&segment.ends.reversed()) {
            reverse.silent = false;
        }
        Ok(())
    }

    /// A host receives a frame.
    pub(crate) fn received(&mut self, now: u64, frame: &Frame) {
        let Ok(Some(segment)) = read(frame, false) else { return };
        self.note(now, "received", &segment);
        let ObservedSegment { ends, header, .. } = segment;
        let reverse = self.directions.get(&ends.reversed()).copied().unwrap_or_default();
        let Some(direction) = self.directions.get_mut(&ends) else { return };
        if header.flags.has(Flags::RST) {
            return;
        }
        if !header.flags.has(Flags::ACK) {
            direction.syn_window = Some(header.window);
            return;
        }
        // An old duplicate of an earlier connection shows nothing about this one.
        let known = reverse.isn.is_some_and(|isn| header.ack - isn <= reverse.sent_end - isn);
        if known && plausible(direction, &header) {
            let edge = header.ack + window(&header, direction, &reverse);
            if header.flags.has(Flags::SYN) {
                // Not scaled (RFC 7323 section 2.2): where the scale rounds, no later segment advertises it again.
                direction.syn_window = Some(header.window);
            }
            direction.edge_received = Some(direction.edge_received.map_or(edge, |old| old.max(edge)));
            direction.unknown_edge &= direction.silent;
            direction.edges.rotate_right(1);
            direction.edges[0] = Some(edge);
        }
    }

    /// A host begins to send with a window that was advertised to it: one that is smaller would break nothing, only be
    /// slow.
    pub(crate) fn check_known_window(&self, ends: Ends, flow: &FlowView) -> Result<(), String> {
        let (Some(direction), Some(reverse)) = (self.directions.get(&ends), self.directions.get(&ends.reversed()))
        else {
            return Ok(());
        };
        let figure = |name| flow.figures.get(name).map_or(0, |value| *value as u32);
        let known = Seq(figure("snd_una")) + figure("snd_wnd");
        let of_syn = direction.isn.zip(reverse.syn_window).map(|(isn, window)| isn + 1 + u32::from(window));
        let edges = reverse.edges.into_iter().chain([of_syn]).flatten();
        if edges.clone().any(|edge| edge == known) {
            return Ok(());
        }
        let edges: Vec<u32> = edges.map(|edge| edge - Seq(figure("snd_una"))).collect();
        Err(format!("{} bytes are its peer's window, of {edges:?} that it received: {flow:?}", figure("snd_wnd")))
    }

    /// A host with these addresses was killed.
    pub(crate) fn killed(&mut self, addresses: [IpAddress; 2]) {
        for (ends, direction) in &mut self.directions {
            if addresses.contains(&ends.to.ip) {
                (direction.unknown_edge, direction.silent) = (true, true);
            }
            direction.sender_killed |= addresses.contains(&ends.from.ip);
        }
    }

    fn digest(&mut self, now: u64, frame: &Frame) {
        let mut add = |value: u64| self.digest = (self.digest ^ value).wrapping_mul(0x0100_0000_01b3).rotate_left(29);
        add(now);
        add(frame.len() as u64);
        for chunk in frame.bytes().chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            add(u64::from_le_bytes(word));
        }
    }

    fn check(&mut self, segment: &ObservedSegment, pairs: &[Pair]) -> Result<(), String> {
        let ObservedSegment { ends, header, payload, .. } = segment;
        if header.flags.has(Flags::RST) {
            return Ok(());
        }
        if header.flags.has(Flags::SYN) {
            self.forget_pair(*ends, header, pairs);
            return self.begin(*ends, header);
        }
        let reverse = self.directions.get(&ends.reversed()).copied().unwrap_or_default();
        let Some(direction) = self.directions.get_mut(ends) else { return Ok(()) };
        let (Some(isn), Some(peer_isn)) = (direction.isn, reverse.isn) else { return Ok(()) };
        if speaks_of_earlier(header, peer_isn, &reverse) {
            return Ok(());
        }
        check_ack(header, peer_isn, &reverse)?;
        // One with the number of its SYN only asks for an answer: the peer takes nothing from it (RFC 9293 section
        // 3.10.7.4, first check).
        if header.seq != isn {
            check_edge(header, direction, &reverse)?;
        }
        check_size(segment, &reverse)?;
        let pair = self.pairs.get(ends).and_then(|(pair, side)| Some((pairs.get(*pair)?, *side)));
        if let Some((pair, side)) = pair {
            check_room(header, direction, (&reverse, peer_isn), &pair.halves[side])?;
        }
        let fin = header.flags.has(Flags::FIN);
        if payload.is_empty() && !fin {
            return Ok(());
        }
        check_window(segment, isn, &reverse)?;
        let end = header.seq + payload.len() as u32 + u32::from(fin);
        if direction.sent_end == isn + 1 {
            self.begun.push(*ends);
        }
        self.resent += u64::from(header.seq.before(direction.sent_end));
        direction.sent_end = direction.sent_end.max(end);
        direction.fin |= fin;
        pair.map_or(Ok(()), |(pair, side)| check_payload(segment, isn, pair, side))
    }

    /// With a new connection between the same ends, an earlier one whose client is done with it is over. The new one
    /// may be registered already, or not yet.
    fn forget_pair(&mut self, ends: Ends, header: &tcp::Header, pairs: &[Pair]) {
        let is_new = self.directions.get(&ends).is_some_and(|direction| direction.isn != Some(header.seq));
        let over = |(pair, _): &(usize, usize)| {
            pairs.get(*pair).is_some_and(|pair| pair.halves[CLIENT].stage == SideState::Closed)
        };
        if is_new && !header.flags.has(Flags::ACK) && self.pairs.get(&ends).is_some_and(over) {
            self.pairs.remove(&ends);
            self.pairs.remove(&ends.reversed());
        }
    }

    /// A SYN begins a direction, and without ACK a connection.
    fn begin(&mut self, ends: Ends, header: &tcp::Header) -> Result<(), String> {
        let has_ack = header.flags.has(Flags::ACK);
        let stamp = header.options.timestamps.map_or(0, |timestamps| timestamps.value);
        self.first[usize::from(has_ack)].get_or_insert((header.seq, stamp));
        let is_new = self.directions.get(&ends).is_none_or(|direction| direction.isn != Some(header.seq));
        if is_new {
            let old = self.directions.get(&ends);
            let earlier = old.map_or([None; 4], |old| {
                let last = old.isn.map(|isn| (isn, old.sent_end));
                [last, old.earlier[0], old.earlier[1], old.earlier[2]]
            });
            if !has_ack && !self.is_simultaneous(ends) {
                self.directions.remove(&ends.reversed());
            }
            let fresh = Direction {
                isn: Some(header.seq),
                sent_end: header.seq + 1,
                window_scale: header.options.window_scale.map(|shift| shift.min(14)),
                mss: header.options.mss.unwrap_or(536),
                earlier,
                ..Direction::default()
            };
            self.directions.insert(ends, fresh);
        }
        if has_ack {
            let reverse = self.directions.get(&ends.reversed()).copied().unwrap_or_default();
            let Some(peer_isn) = reverse.isn else { return Ok(()) };
            if speaks_of_earlier(header, peer_isn, &reverse) {
                return Ok(());
            }
            check_ack(header, peer_isn, &reverse)?;
            if let Some(direction) = self.directions.get_mut(&ends) {
                check_edge(header, direction, &reverse)?;
            }
        }
        Ok(())
    }

    /// The other side has sent a SYN too and nothing else.
    fn is_simultaneous(&self, ends: Ends) -> bool {
        self.directions.get(&ends.reversed()).is_some_and(|direction| {
            direction.isn.is_some_and(|isn| direction.sent_end == isn + 1) && direction.edge.is_none()
        })
    }
}

/// The sender of the segment is at or behind what it sent so far, or what it may take for sent.
fn plausible(direction: &Direction, header: &tcp::Header) -> bool {
    let unsent = if direction.sender_killed { MOST_UNSENT } else { 0 };
    direction.isn.is_some_and(|isn| header.seq - isn <= direction.sent_end - isn + unsent)
}

/// Scaled receive window: on SYN it is never scaled (RFC 7323 section 2.2).
fn window(header: &tcp::Header, own: &Direction, reverse: &Direction) -> u32 {
    let shift = match (own.window_scale, reverse.window_scale) {
        (Some(shift), Some(_)) if !header.flags.has(Flags::SYN) => shift,
        _ => 0,
    };
    u32::from(header.window) << shift
}

/// An old duplicate made one side begin anew, and the other has not noticed: it acknowledges the earlier connection.
fn speaks_of_earlier(header: &tcp::Header, peer_isn: Seq, reverse: &Direction) -> bool {
    let within = |(first, end): (Seq, Seq)| header.ack - first <= end - first;
    !within((peer_isn, reverse.sent_end)) && reverse.earlier.into_iter().flatten().any(within)
}

/// Nothing is acknowledged that was not sent.
fn check_ack(header: &tcp::Header, peer_isn: Seq, reverse: &Direction) -> Result<(), String> {
    if !header.flags.has(Flags::ACK) {
        return Err("a segment without ACK on a connection".into());
    }
    let (acked, sent) = (header.ack - peer_isn, reverse.sent_end - peer_isn);
    if acked > sent {
        return Err(format!("it acknowledges {acked} bytes past the initial number, only {sent} were sent"));
    }
    Ok(())
}

/// The right edge of the window never moves left (RFC 9293 section 3.8.6), up to what scaling rounds away.
fn check_edge(header: &tcp::Header, direction: &mut Direction, reverse: &Direction) -> Result<(), String> {
    // Nothing comes after FIN: the window has no meaning any more.
    if reverse.fin && header.ack == reverse.sent_end {
        return Ok(());
    }
    let edge = header.ack + window(header, direction, reverse);
    let slack = 1u32 << direction.window_scale.filter(|_| reverse.window_scale.is_some()).unwrap_or(0);
    if let Some(old) = direction.edge {
        if (edge + slack).before(old) {
            return Err(format!("its window's right edge moves left by {} bytes", old - edge));
        }
    }
    direction.edge = Some(direction.edge.map_or(edge, |old| old.max(edge)));
    Ok(())
}

/// What is offered fits into the receive buffer, beside what the application has not taken out of it.
fn check_room(
    header: &tcp::Header,
    direction: &Direction,
    (reverse, peer_isn): (&Direction, Seq),
    half: &Half,
) -> Result<(), String> {
    let Some(buffer) = half.buffer.as_ref().filter(|_| !reverse.fin) else { return Ok(()) };
    let room = peer_isn + 1 + (half.read as u32).wrapping_add(buffer.most());
    let edge = header.ack + window(header, direction, reverse);
    if room.before(edge) {
        return Err(format!("its window ends {} bytes beyond its receive buffer", edge - room));
    }
    Ok(())
}

/// No segment is longer than the peer takes (RFC 9293 section 3.7.1). SACK blocks lie beyond the acknowledgement, but
/// for a first one that reports what came twice (RFC 2883).
fn check_size(segment: &ObservedSegment, reverse: &Direction) -> Result<(), String> {
    let options = segment.header.len() - tcp::HEADER_LEN;
    let most = usize::from(reverse.mss).saturating_sub(options);
    let one = if segment.segment_size > 0 { usize::from(segment.segment_size) } else { segment.payload.len() };
    if one > most {
        return Err(format!("a segment of {one} bytes, the peer takes {most}"));
    }
    let ack = segment.header.ack;
    for (at, (left, right)) in segment.header.options.sack.iter().flatten().enumerate() {
        let twice = at == 0 && left.before(ack) && right.at_or_before(ack);
        if !left.before(*right) || (left.at_or_before(ack) && !twice) {
            return Err(format!("SACK block {}..{} for acknowledgement {}", left.0, right.0, ack.0));
        }
    }
    Ok(())
}

/// Nothing is sent beyond the window that was advertised to the sender. FIN may stand at the edge.
fn check_window(segment: &ObservedSegment, isn: Seq, reverse: &Direction) -> Result<(), String> {
    let from_syn = reverse.syn_window.map(|window| isn + 1 + u32::from(window));
    let edge = match (reverse.edge_received, from_syn) {
        (Some(a), Some(b)) => a.max(b),
        (Some(edge), None) | (None, Some(edge)) => edge,
        (None, None) => return Err("data before anything came from the peer".into()),
    };
    let end = segment.header.seq + segment.payload.len() as u32;
    // After a kill, one segment asks for the window (docs/RESTART.md).
    let slack = if reverse.unknown_edge { u32::from(reverse.mss) } else { 0 };
    if (edge + slack).before(end) {
        return Err(format!("data {} bytes beyond the peer's window", end - edge));
    }
    Ok(())
}

/// The payload is what the application wrote, at its place; FIN stands where the application put it.
fn check_payload(segment: &ObservedSegment, isn: Seq, pair: &Pair, side: usize) -> Result<(), String> {
    let half = &pair.halves[side];
    let position = u64::from(segment.header.seq - (isn + 1));
    let end = position + segment.payload.len() as u64;
    if end > half.written {
        return Err(format!("{}: bytes {position}..{end} are sent, {} were written", pair.name(), half.written));
    }
    if let Some(at) = half.stream.first_difference(position, &segment.payload) {
        return Err(format!("{}: byte {} is sent with a wrong value", pair.name(), position + at as u64));
    }
    let elsewhere = half.fin.is_some_and(|fin| fin != end) || end != half.written;
    if segment.header.flags.has(Flags::FIN) && elsewhere && !half.unreported {
        return Err(format!("{}: FIN is sent at {end}, {} were written", pair.name(), half.written));
    }
    Ok(())
}

/// Reads a frame; `None` where it is not TCP. With `strict`, anything malformed or with a wrong checksum is an error.
fn read(frame: &Frame, strict: bool) -> Result<Option<ObservedSegment>, String> {
    let bad = |what: &str| if strict { Err(format!("a frame is sent with a bad {what}")) } else { Ok(None) };
    let Ok(link) = ethernet::Header::parse(frame.bytes()) else { return bad("Ethernet header") };
    if !matches!(link.ethertype, EtherType::Ipv4 | EtherType::Ipv6) {
        return Ok(None);
    }
    let packet = &frame.bytes()[ethernet::HEADER_LEN..];
    let Ok((ip, ip_len)) = ip::Header::parse(link.ethertype, packet, frame.len() - ethernet::HEADER_LEN) else {
        return bad("IP header");
    };
    if ip.protocol != ipv4::TCP {
        return Ok(None);
    }
    let segment = &packet[ip_len..];
    let Ok((header, header_len)) = tcp::Header::parse(segment) else { return bad("TCP header") };
    let mut payload = segment[header_len..].to_vec();
    if let Some(span) = frame.payload() {
        let at = payload.len();
        payload.resize(at + span.len(), 0);
        span.read(&mut payload[at..]);
    }
    let Some(len) = usize::from(ip.payload_len).checked_sub(header_len).filter(|len| *len <= payload.len()) else {
        return bad("length");
    };
    payload.truncate(len);
    if !checksum_is_right(frame, &ip, &segment[..header_len], &payload) {
        return bad("TCP checksum");
    }
    let ends = Ends { from: Endpoint::new(ip.src, header.src_port), to: Endpoint::new(ip.dst, header.dst_port) };
    Ok(Some(ObservedSegment { ends, header, payload, segment_size: frame.segment_size }))
}

fn checksum_is_right(frame: &Frame, ip: &ip::Header, header: &[u8], payload: &[u8]) -> bool {
    let pseudo = Sum::pseudo_header(ip.src, ip.dst, ipv4::TCP, u32::from(ip.payload_len));
    match frame.checksum {
        Checksum::Verified => true,
        // It is another transport's.
        Checksum::Icrc => false,
        Checksum::Partial { .. } => header[tcp::CHECKSUM_AT..tcp::CHECKSUM_AT + 2] == pseudo.partial().to_be_bytes(),
        Checksum::Complete => {
            let mut sum = pseudo;
            sum.add(header);
            sum.add(payload);
            sum.finish() == 0
        }
    }
}

fn describe(segment: &ObservedSegment) -> String {
    let ObservedSegment { ends, header, payload, .. } = segment;
    format!(
        "{} -> {} {:?} seq {} ack {} window {} payload {}",
        ends.from,
        ends.to,
        header.flags,
        header.seq.0,
        header.ack.0,
        header.window,
        payload.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::generate;
    use crate::{Record, run_recorded};
    use port::capture::pcapng::{self, Block};

    #[test]
    fn lines_of_a_trace_stand_under_its_heading() {
        let mut lines = Vec::new();
        run_recorded(&generate(1), Record { trace: Some(&mut lines), capture: None }).unwrap();
        let column = TRACE_HEADING.find("what").unwrap();
        for kind in ["sent ", "received ", "  app "] {
            assert!(lines.iter().any(|line| line[column..].starts_with(kind)), "no line of kind {kind}");
        }
        let is_time = |line: &String| line[..column].trim().parse::<u64>().is_ok();
        assert!(lines.iter().all(is_time), "{:?}", lines.iter().find(|line| !is_time(line)));
        assert!(!lines.iter().any(|line| line.contains("generation:")));
    }

    #[test]
    fn a_capture_has_all_frames_that_were_sent() {
        let path = std::env::temp_dir().join(format!("opentoe-sim-{}.pcapng", std::process::id()));
        let capture = Capture::create(&path, "network", 0, u64::MAX).unwrap();
        let figures = run_recorded(&generate(1), Record { trace: None, capture: Some(capture.clone()) }).unwrap();
        // Super-segments are written as the frames that they stand for.
        assert!(capture.figures().frames >= figures.frames && capture.figures().missed == 0, "{:?}", capture.figures());
        capture.flush();
        let mut file = std::io::BufReader::new(std::fs::File::open(&path).unwrap());
        let blocks = std::iter::from_fn(|| pcapng::read(&mut file).unwrap());
        let packets = blocks.filter(|block| matches!(block, Block::Packet(_))).count() as u64;
        std::fs::remove_file(&path).unwrap();
        assert_eq!(packets, capture.figures().frames);
    }
}
