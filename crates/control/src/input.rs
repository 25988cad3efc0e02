//! The exception path: frames that the engine does not process.
use crate::cookies::Cookie;
use crate::flow::Place;
use crate::net::{Body, Expiry, Ip, Packet, Received, read_ip, read_segment};
use crate::opening::Owner;
use crate::plane::{Plane, Stage};
use crate::timers::Timer;
use engine::stream::FourTuple;
use engine::{Command, DropReason, Exception, FlowId, Nanos};
use port::{Frame, FramePool};
use tcp::{Segment, WaitDisposition};
use wire::icmpv4::{Message, PORT_UNREACHABLE};
use wire::{IpAddress, Mac, arp, ipv4};

/// Protocol number of UDP.
const UDP: u8 = 17;
/// Code of "destination unreachable" for a protocol that the host does not speak.
const PROTOCOL_UNREACHABLE: u8 = 2;

impl Plane {
    /// A frame of the exception path.
    pub fn on_frame(&mut self, now: Nanos, why: Exception, mut frame: Box<Frame>, pool: &mut FramePool) {
        let rest = match read_ip(&frame, self.net.mac, self.net.address) {
            Err(reason) => {
                self.drops.count(reason);
                Some(frame)
            }
            Ok(Received::Arp(packet)) => {
                self.on_arp(now, &packet);
                Some(frame)
            }
            Ok(Received::Ip(ip)) => match ip.header.protocol {
                // TCP is for one station (RFC 1122 section 4.2.3.10).
                ipv4::TCP if !ip.unicast => {
                    self.drops.count(DropReason::Ethernet);
                    Some(frame)
                }
                ipv4::TCP => match read_segment(&mut frame, &ip) {
                    Ok(segment) => self.on_segment(now, why, &segment, ip.src_mac, frame),
                    Err(reason) => {
                        self.drops.count(reason);
                        Some(frame)
                    }
                },
                ipv4::ICMP => {
                    frame.flatten();
                    self.on_icmp(now, &ip, &frame);
                    Some(frame)
                }
                protocol => {
                    self.drops.count(DropReason::Protocol);
                    let code = if protocol == UDP { PORT_UNREACHABLE } else { PROTOCOL_UNREACHABLE };
                    self.send_unreachable(now, &ip, &frame, code);
                    Some(frame)
                }
            },
        };
        if let Some(frame) = rest {
            pool.put(frame);
        }
    }

    /// A segment for no installed flow. Gives the frame back where it is not kept.
    fn on_segment(
        &mut self,
        now: Nanos,
        why: Exception,
        segment: &Segment,
        src_mac: Mac,
        frame: Box<Frame>,
    ) -> Option<Box<Frame>> {
        match self.connections.get(&segment.tuple) {
            Some(Stage::Flow(id)) => return self.on_early_segment(why, id, frame),
            Some(Stage::Opening(key)) => return self.on_opening_segment(now, key, segment, src_mac, frame),
            Some(Stage::Splice(key, side)) => return self.on_spliced(now, (key, side), segment, src_mac, frame),
            Some(Stage::Wait(key)) => self.on_waiting(now, key, segment, src_mac),
            None => match self.opening_of_cookie(now, segment, src_mac) {
                Some(Cookie::Opening(key)) => return self.on_opening_segment(now, key, segment, src_mac, frame),
                Some(Cookie::Later) => {}
                None => self.on_listen(now, segment, src_mac, None),
            },
        }
        Some(frame)
    }

    /// The engine did not know the flow when it looked, but is told of it before it looks again. A segment that it
    /// does not take for one of TCP at all would only come back.
    fn on_early_segment(&mut self, why: Exception, id: FlowId, frame: Box<Frame>) -> Option<Box<Frame>> {
        if why == Exception::Foreign {
            self.drops.count(DropReason::TcpHeader);
            return Some(frame);
        }
        if self.flows.get(id.0).is_some_and(|flow| flow.place == Place::Engine) {
            self.refeed.push((why, frame));
            return None;
        }
        self.drops.count(DropReason::AfterClose);
        Some(frame)
    }

    /// A segment for a closed connection in TIME-WAIT or FIN-WAIT-2.
    fn on_waiting(&mut self, now: Nanos, key: u32, segment: &Segment, src_mac: Mac) {
        let Some(wait) = self.waits.get_mut(key) else { return };
        let (since, ended_before) = (wait.since, wait.fin_received);
        let disposition = wait.on_segment(segment);
        let ack = wait.ack(now);
        let most = self.config.limits.challenges_per_interval();
        let allowed = disposition != WaitDisposition::Acknowledge || wait.challenges.allow_of(now, most);
        match disposition {
            WaitDisposition::Ignore => self.drops.count(DropReason::AfterClose),
            WaitDisposition::Acknowledge => {
                self.drops.count(DropReason::AfterClose);
                if allowed {
                    self.send_tcp(now, &segment.tuple, ack);
                } else {
                    self.drops.count(DropReason::ChallengeLimit);
                }
            }
            WaitDisposition::Finished => {
                // Not within the budget for answers to strangers: without it, a peer that closes thousands of
                // connections a second keeps them all in LAST-ACK.
                self.send_tcp(now, &segment.tuple, ack);
                self.time_wait(now, key);
                if !ended_before {
                    self.offer_port(&segment.tuple, since);
                }
            }
            WaitDisposition::Reuse(above) => {
                self.end_wait(key);
                self.on_listen(now, segment, src_mac, Some(above));
            }
            WaitDisposition::Reset => {
                self.drops.count(DropReason::AfterClose);
                let seq = ack.seq;
                self.end_wait(key);
                self.reset_tuple(now, &segment.tuple, seq, Some(ack.ack), ack.options.timestamps);
            }
            WaitDisposition::Gone => self.end_wait(key),
        }
    }

    /// RFC 826, with what keeps strangers from writing into the table: only an answer to a question, or a question to
    /// this host, adds an entry; anything else at most changes one that is there.
    fn on_arp(&mut self, now: Nanos, packet: &arp::Packet) {
        let sender = IpAddress::v4(packet.sender_ip);
        // Nobody else has this host's address, and group addresses are no stations.
        if sender == self.net.address || packet.sender_mac.is_group() || packet.sender_mac == self.net.mac {
            return self.drops.count(DropReason::Ethernet);
        }
        let for_us = self.net.address == packet.target_ip;
        let asks = packet.operation == arp::Operation::Request;
        // A sender without an address probes (RFC 5227): it is answered, not learned.
        if !sender.is_unspecified() {
            let neighbour = self.net.routes.next_hop(sender) == Some(sender);
            self.learn(now, sender, packet.sender_mac, for_us && asks && neighbour);
        }
        if for_us && asks {
            if self.arp_answers.take(now) {
                self.net.answer(packet);
            }
        } else if !for_us && !asks {
            self.drops.count(DropReason::Ethernet);
        }
    }

    fn learn(&mut self, now: Nanos, ip: IpAddress, mac: Mac, add: bool) {
        let Some(learned) = self.net.neighbours.learn(now, ip, mac, add) else { return };
        self.timers.set(Timer::Neighbour(ip), learned.due);
        if let Some(packet) = learned.queued {
            self.net.send_to(mac, packet);
        }
        let behind = |tuple: &FourTuple| self.net.routes.next_hop(tuple.remote_ip) == Some(ip);
        let unsent = self.openings.iter().filter(|(_, opening)| opening.unsent && behind(&opening.tuple));
        let unsent: Vec<u32> = unsent.map(|(key, _)| key).collect();
        unsent.into_iter().for_each(|key| self.send_syn(now, key));
        for (id, flow) in self.flows.iter_mut() {
            if flow.remote_mac != mac && self.net.next_hop(flow.tuple.get().remote_ip) == ip {
                flow.remote_mac = mac;
                self.commands.push(Command::NextHop(FlowId(id), mac));
            }
        }
        self.splice_next_hop(ip, mac);
    }

    /// A neighbour's timer: ask again, or give up and tell who waits.
    pub fn neighbour_due(&mut self, now: Nanos, ip: IpAddress) {
        match self.net.neighbours.expire(now, ip) {
            Expiry::Unused => {}
            Expiry::Ask(due) => {
                self.timers.set(Timer::Neighbour(ip), due);
                self.net.ask(ip);
            }
            Expiry::Unreachable(queued) => {
                if queued.is_some() {
                    self.drops.count(DropReason::ArpUnresolved);
                }
                let behind = |tuple: &FourTuple| self.net.routes.next_hop(tuple.remote_ip) == Some(ip);
                let waiting: Vec<u32> = self
                    .openings
                    .iter()
                    .filter(|(_, it)| {
                        matches!(it.owner, Owner::Connect { .. }) && it.open.is_none() && behind(&it.tuple)
                    })
                    .map(|(key, _)| key)
                    .collect();
                for key in waiting {
                    self.fail_opening(now, key, libc::EHOSTUNREACH);
                }
            }
        }
    }

    /// Tells a sender that nobody is there (RFC 1122 sections 3.2.2.1 and 3.3.8), within limits, and never about a
    /// frame that went to many.
    fn send_unreachable(&mut self, now: Nanos, ip: &Ip, frame: &Frame, code: u8) {
        if !ip.unicast || !self.icmp.take(now) {
            return;
        }
        let end = (ip.body_at + 8).min(frame.bytes().len());
        let quoted = frame.bytes()[ip.at..end].to_vec();
        self.send_icmp(now, ip.header.src.into(), Message::Unreachable { code, mtu: 0 }, quoted);
    }

    pub fn send_icmp(&mut self, now: Nanos, dst: IpAddress, message: Message, data: Vec<u8>) {
        let packet = Packet { dst, body: Body::Icmp(message, data) };
        self.net.send(now, packet, &mut self.timers, &mut self.drops);
    }
}
