//! The exception path: frames that the engine does not process.
use crate::cookies::Cookie;
use crate::flow::Place;
use crate::opening::{Opening, Owner};
use crate::packet::read_segment;
use crate::plane::{Plane, Stage};
use ::host::Received;
use engine::stream::FourTuple;
use engine::{Command, DropReason, Exception, FlowId, Nanos};
use port::{Frame, FramePool};
use tcp::{Segment, WaitDisposition};
use wire::{IpAddress, Mac, ipv4};

impl Plane {
    /// A frame of the exception path.
    pub fn on_frame(&mut self, now: Nanos, why: Exception, mut frame: Box<Frame>, pool: &mut FramePool) {
        let rest = match self.net.receive(now, &mut frame, &mut self.drops) {
            Received::Done => Some(frame),
            Received::Neighbour(ip, mac) => {
                self.neighbour_learned(now, ip, mac);
                Some(frame)
            }
            Received::Unreachable(error) => {
                self.on_unreachable(now, &error);
                Some(frame)
            }
            Received::Packet(ip) if ip.header.protocol != ipv4::TCP => {
                self.net.refuse(now, &ip, &frame, &mut self.drops);
                Some(frame)
            }
            // TCP is for one station (RFC 1122 section 4.2.3.10).
            Received::Packet(ip) if !ip.unicast => {
                self.drops.count(DropReason::Ethernet);
                Some(frame)
            }
            Received::Packet(ip) => match read_segment(&mut frame, &ip) {
                Ok(segment) => self.on_segment(now, why, &segment, ip.src_mac, frame),
                Err(reason) => {
                    self.drops.count(reason);
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

    /// A neighbour has this hardware address: whoever waited for it goes on, and flows through it follow.
    fn neighbour_learned(&mut self, now: Nanos, ip: IpAddress, mac: Mac) {
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

    /// Takes the next timer of a neighbour that is due; `None` where none is.
    pub fn neighbour_due(&mut self, now: Nanos) -> Option<()> {
        let expired = self.net.expire(now, &mut self.drops)?;
        self.trace_neighbour_timer(now.saturating_sub(expired.due));
        if expired.unreachable {
            self.neighbour_unreachable(now, expired.ip);
        }
        Some(())
    }

    /// A neighbour does not answer: connections that are being opened through it fail.
    fn neighbour_unreachable(&mut self, now: Nanos, ip: IpAddress) {
        let behind = |tuple: &FourTuple| self.net.routes.next_hop(tuple.remote_ip) == Some(ip);
        let waits = |it: &Opening| matches!(it.owner, Owner::Connect { .. }) && it.open.is_none() && behind(&it.tuple);
        let waiting: Vec<u32> = self.openings.iter().filter(|(_, it)| waits(it)).map(|(key, _)| key).collect();
        for key in waiting {
            self.fail_opening(now, key, libc::EHOSTUNREACH);
        }
    }
}
