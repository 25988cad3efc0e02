//! The host, its clock, and IP packets in and out. Nothing here reads a real clock: time passes when a script lets it.
use crate::flags::Flags;
use context::{AppEnd, daemon_ends};
use control::{Application, ContextId, Host, Offers};
use engine::Worker;
use port::{Capabilities, Frame, FramePool, Nanos};
use shm::Doorbell;
use std::collections::VecDeque;
use std::sync::Arc;
use wire::icmpv6::{Message, NEIGHBOUR_HOPS, NEIGHBOUR_LEN};
use wire::ip::{self, Ends};
use wire::{EtherType, IpAddress, Mac, arp, ethernet, ipv6};

/// The clock at the start: not 0, so that nothing is taken for "never".
const START: Nanos = 1_000_000_000;
/// The only host's hardware address, and that of everybody else.
pub const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);
/// That of everybody else.
pub const OTHERS: Mac = Mac([2, 0, 0, 0, 0, 2]);
/// Rounds without time passing, after which a host counts as one that never comes to rest.
const MOST_ROUNDS: u32 = 100_000;
/// ICMPv6 types by which a host reports the groups to which it belongs (RFC 2710, RFC 3810).
const GROUPS: [u8; 3] = [131, 132, 143];
/// The host's own MTU bounds it (`mtu` of the flags).
const MTU: u16 = 9000;

/// A host on a wire that ends here.
pub struct Stack {
    host: Host,
    workers: Vec<Box<dyn Worker>>,
    pool: FramePool,
    now: Nanos,
    received: Vec<Box<Frame>>,
    sending: Vec<Box<Frame>>,
    /// IP packets that it sent, with the time of each.
    sent: VecDeque<(Nanos, Vec<u8>)>,
    /// Messages about neighbours and groups are among them, and nobody answers.
    shows_link: bool,
    context: ContextId,
    /// The application's end of its only context.
    pub end: AppEnd,
}

impl Stack {
    /// A host with one application; the error is a sentence.
    pub fn new(flags: Flags) -> Result<Stack, String> {
        let pool = FramePool::new(1024);
        let engine = flags.engine.make(&flags.host, &flags.mapping, &pool)?;
        let offers = flags.offers();
        let tcp = flags.tcp;
        let capabilities =
            Capabilities { mtu: MTU, super_segment: flags.super_segment, checksum: flags.super_segment > 0 };
        let links = vec![flags.host.link(OWN, capabilities)];
        let mut host = control::host(flags.host, links, engine, [7; 16])?;
        host.base_mut().set_tcp(tcp);
        host.base_mut().set_offers(offers);
        let (context, end) = attach(&mut host).map_err(|error| format!("cannot make a context: {error}"))?;
        let workers = host.workers();
        let (received, sending, sent) = (Vec::new(), Vec::new(), VecDeque::new());
        Ok(Stack { host, workers, pool, now: START, received, sending, sent, shows_link: false, context, end })
    }

    /// Connections that begin from now on offer and accept this.
    pub(crate) fn set_offers(&mut self, offers: Offers) {
        self.host.base_mut().set_offers(offers);
    }

    /// Fast Open cookies of peers are forgotten.
    pub(crate) fn forget_peers(&mut self) {
        self.host.base_mut().forget_peers();
    }

    /// From now on, messages of IPv6 about neighbours and groups come out as other packets do, and nobody answers.
    pub fn show_link(&mut self) {
        self.shows_link = true;
    }

    /// The engine sends urgent data, and ends segments where records end.
    pub(crate) fn has_urgent_data(&self) -> bool {
        self.host.base().has_urgent_data()
    }

    /// Its clock, nanoseconds.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Runs until nothing is left to do at this moment.
    pub fn settle(&mut self) {
        let mut quiet = 0;
        for _ in 0..MOST_ROUNDS {
            let mut done = self.host.poll(self.now, &mut self.received, &mut self.sending, &mut self.pool);
            done += self.workers.iter_mut().map(|worker| worker.poll(self.now)).sum::<usize>();
            done += self.take_sent();
            // What modules on threads of their own hand to each other takes a round more.
            quiet = if done == 0 && self.received.is_empty() { quiet + 1 } else { 0 };
            if quiet > self.workers.len().min(2) {
                break;
            }
        }
    }

    /// Lets time pass until `then`, with everything that is due before.
    pub fn run_until(&mut self, then: Nanos) {
        while let Some(due) = self.host.next_deadline().filter(|due| *due <= then) {
            self.now = due.max(self.now + 1).min(then.max(self.now));
            self.settle();
            if self.now >= then {
                break;
            }
        }
        self.now = self.now.max(then);
        self.settle();
    }

    /// Goes to the next moment at which something is due, at most to `limit`; false where there is none.
    pub fn step(&mut self, limit: Nanos) -> bool {
        let due = self.host.next_deadline().map(|due| due.max(self.now + 1));
        match due.filter(|due| *due <= limit) {
            Some(due) => {
                self.run_until(due);
                true
            }
            None => false,
        }
    }

    /// An IP packet comes in.
    pub fn inject(&mut self, packet: &[u8]) {
        let is_v6 = packet.first().is_some_and(|byte| byte >> 4 == 6);
        self.put(if is_v6 { EtherType::Ipv6 } else { EtherType::Ipv4 }, packet);
        self.settle();
    }

    /// Any bytes come in where a frame should be.
    pub fn inject_frame(&mut self, bytes: &[u8]) {
        let mut frame = self.pool.large();
        frame.resize(bytes.len());
        frame.bytes_mut().copy_from_slice(bytes);
        self.received.push(frame);
        self.settle();
    }

    /// Neighbours on its link.
    pub fn neighbours(&self) -> usize {
        self.host.net().neighbours().len()
    }

    /// The application goes. Gives a sentence about what is left of it after every timer has run out.
    pub fn leave(&mut self) -> Result<(), String> {
        self.host.use_base(self.now, |tcp, context| tcp.detach(context, self.context));
        self.settle();
        for _ in 0..10_000 {
            if !self.step(Nanos::MAX) {
                break;
            }
            self.sent.clear();
        }
        let left: Vec<_> = self.host.base().tables().into_iter().filter(|(_, size)| *size > 0).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("left over: {left:?}")) }
    }

    /// The next packet that the host sent, and when.
    pub fn take(&mut self) -> Option<(Nanos, Vec<u8>)> {
        self.sent.pop_front()
    }

    fn put(&mut self, ethertype: EtherType, packet: &[u8]) {
        let header = ethernet::Header { dst: OWN, src: OTHERS, ethertype };
        let mut frame = self.pool.large();
        frame.resize(ethernet::HEADER_LEN + packet.len());
        header.emit(frame.bytes_mut());
        frame.bytes_mut()[ethernet::HEADER_LEN..].copy_from_slice(packet);
        self.received.push(frame);
    }

    /// Keeps IP packets; questions for hardware addresses are answered at once.
    fn take_sent(&mut self) -> usize {
        let sending = std::mem::take(&mut self.sending);
        let count = sending.len();
        for mut frame in sending {
            frame.complete_checksum();
            let packet = frame.bytes().get(ethernet::HEADER_LEN..).unwrap_or_default().to_vec();
            match ethernet::Header::parse(frame.bytes()).map(|header| header.ethertype) {
                Ok(EtherType::Ipv6) if !self.shows_link && self.is_of_the_link(&packet) => {}
                Ok(EtherType::Ipv4 | EtherType::Ipv6) => self.sent.push_back((self.now, packet)),
                Ok(EtherType::Arp) => self.answer(&packet),
                _ => {}
            }
            self.pool.put(frame);
        }
        count
    }

    /// Everybody else is there, at one hardware address.
    fn answer(&mut self, packet: &[u8]) {
        let Ok(asked) = arp::Packet::parse(packet) else { return };
        if asked.operation != arp::Operation::Request || asked.target_ip == asked.sender_ip {
            return;
        }
        let reply = arp::Packet {
            operation: arp::Operation::Reply,
            sender_mac: OTHERS,
            sender_ip: asked.target_ip,
            target_mac: asked.sender_mac,
            target_ip: asked.sender_ip,
        };
        let mut bytes = [0; arp::LEN];
        reply.emit(&mut bytes);
        self.put(EtherType::Arp, &bytes);
    }

    /// Messages about neighbours and groups (RFC 4861, RFC 3810), which a runner does not expect. Questions are
    /// answered as those of ARP are.
    fn is_of_the_link(&mut self, packet: &[u8]) -> bool {
        let Ok((header, len)) = ip::Header::parse(EtherType::Ipv6, packet, packet.len()) else { return false };
        if header.protocol != ipv6::ICMP {
            return false;
        }
        match Message::parse(&packet[len..], (header.src, header.dst)) {
            Ok(Message::Solicitation { target, .. }) => {
                let answer = Message::Advertisement { target, mac: Some(OTHERS), solicited: true, replaces: true };
                let ends = Ends { src: IpAddress::v6(target, 0), dst: header.src };
                let mut bytes = [0; ipv6::HEADER_LEN + NEIGHBOUR_LEN];
                ip::emit(ipv6::ICMP, ends, NEIGHBOUR_HOPS, &mut bytes);
                answer.emit(ends, &mut bytes[ipv6::HEADER_LEN..]);
                self.put(EtherType::Ipv6, &bytes);
                true
            }
            Ok(Message::Advertisement { .. }) => true,
            Ok(Message::Other(kind, _)) => GROUPS.contains(&kind),
            _ => false,
        }
    }
}

/// The application's context, made as the daemon makes it.
fn attach(host: &mut Host) -> Result<(ContextId, AppEnd), String> {
    let geometry = host.base().geometry();
    let make = || -> std::io::Result<_> {
        let region = Arc::new(geometry.create_region("script")?);
        let (app, daemon) = (Doorbell::eventfd()?, Doorbell::eventfd()?);
        let (app_too, daemon_too) = (app.try_clone()?, daemon.try_clone()?);
        let ends = daemon_ends(&region, geometry, app, daemon);
        Ok((ends, AppEnd::new(region, geometry, app_too, daemon_too)?))
    };
    let (ends, end) = make().map_err(|error| error.to_string())?;
    let application = Application { pid: 1, uid: 0, gid: 0, command: "script".into(), loopback: true };
    Ok((host.use_base(START, |tcp, context| tcp.attach(context, application, ends, None))?, end))
}
