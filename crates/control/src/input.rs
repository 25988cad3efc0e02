//! The exception path: frames that the engine does not process.
use crate::connections::Stage;
use crate::cookies::Cookie;
use crate::flow::Place;
use crate::openings::{Opening, Owner};
use crate::outbox::Outbox;
use crate::packet::read_segment;
use crate::plane::Plane;
use ::host::Received;
use engine::stream::FourTuple;
use engine::{Command, DropReason, Exception, FlowId};
use port::Frame;
use tcp::Segment;
use wire::{IpAddress, Mac};

impl Plane {
    /// A TCP packet of the exception path. Gives the frame back where it is not kept.
    pub fn on_frame(&mut self, out: &mut Outbox<'_>, why: Exception, mut frame: Box<Frame>) -> Option<Box<Frame>> {
        let Received::Packet(ip) = out.net.receive(out.now, &mut frame, out.drops) else { return Some(frame) };
        // TCP is for one station (RFC 1122 section 4.2.3.10).
        let segment = if ip.unicast { read_segment(&mut frame, &ip) } else { Err(DropReason::Ethernet) };
        match segment {
            Ok(segment) => self.on_segment(out, why, &segment, ip.src_mac, frame),
            Err(reason) => {
                out.drops.count(reason);
                Some(frame)
            }
        }
    }

    /// A segment for no installed flow. Gives the frame back where it is not kept.
    fn on_segment(
        &mut self,
        out: &mut Outbox<'_>,
        why: Exception,
        segment: &Segment,
        src_mac: Mac,
        frame: Box<Frame>,
    ) -> Option<Box<Frame>> {
        match self.connections.get(&segment.tuple) {
            Some(Stage::Flow(id)) => return self.on_early_segment(out, why, id, frame),
            Some(Stage::Opening(key)) => return self.on_opening_segment(out, key, segment, src_mac, frame),
            Some(Stage::Splice(key, side)) => return self.on_spliced(out, (key, side), segment, src_mac, frame),
            Some(Stage::Wait(key)) => {
                if let Some(above) = self.waits.on_segment(out, &mut self.connections, key, segment) {
                    self.on_listen(out, segment, src_mac, Some(above));
                }
            }
            None => match self.opening_of_cookie(out, segment, src_mac) {
                Some(Cookie::Opening(key)) => return self.on_opening_segment(out, key, segment, src_mac, frame),
                Some(Cookie::Later) => {}
                None => self.on_listen(out, segment, src_mac, None),
            },
        }
        Some(frame)
    }

    /// The engine did not know the flow when it looked, but is told of it before it looks again. A segment that it
    /// does not take for one of TCP at all would only come back.
    fn on_early_segment(
        &mut self,
        out: &mut Outbox<'_>,
        why: Exception,
        id: FlowId,
        frame: Box<Frame>,
    ) -> Option<Box<Frame>> {
        if why == Exception::Foreign {
            out.drops.count(DropReason::TcpHeader);
            return Some(frame);
        }
        if self.flows.get(id.0).is_some_and(|flow| flow.place == Place::Engine) {
            self.frames.refeed.push((why, frame));
            return None;
        }
        out.drops.count(DropReason::AfterClose);
        Some(frame)
    }

    /// A neighbour has this hardware address: whoever waited for it goes on, and flows through it follow.
    pub fn neighbour_learned(&mut self, out: &mut Outbox<'_>, ip: IpAddress, mac: Mac) {
        let behind = |tuple: &FourTuple| out.net.routes.next_hop(tuple.remote_ip) == Some(ip);
        let unsent = self.openings.iter().filter(|(_, opening)| opening.unsent && behind(&opening.tuple));
        let unsent: Vec<u32> = unsent.map(|(key, _)| key).collect();
        unsent.into_iter().for_each(|key| self.send_syn(out, key));
        for (id, flow) in self.flows.iter_mut() {
            if flow.remote_mac != mac && out.net.next_hop(flow.tuple.get().remote_ip) == ip {
                flow.remote_mac = mac;
                out.commands.push(Command::NextHop(FlowId(id), mac));
            }
        }
        self.splice_next_hop(ip, mac);
    }

    /// A neighbour does not answer: connections that are being opened through it fail.
    pub fn neighbour_unreachable(&mut self, out: &mut Outbox<'_>, ip: IpAddress) {
        let behind = |tuple: &FourTuple| out.net.routes.next_hop(tuple.remote_ip) == Some(ip);
        let waits = |it: &Opening| matches!(it.owner, Owner::Connect { .. }) && it.open.is_none() && behind(&it.tuple);
        let waiting: Vec<u32> = self.openings.iter().filter(|(_, it)| waits(it)).map(|(key, _)| key).collect();
        for key in waiting {
            self.fail_opening(out, key, libc::EHOSTUNREACH);
        }
    }
}
