//! The exception path: frames that the engine does not process.
use super::ControlPlane;
use super::fast_open::Syn;
use crate::connections::Lifecycle;
use crate::flow::{After, EngineState};
use crate::handshakes::{Cookie, IcmpEffect};
use crate::icmp;
use crate::outbox::Outbox;
use crate::packet::read_segment;
use crate::splice::{Passed, Then};
use ::host::{Cause, Received, Unreachable};
use engine::{DropReason, Exception, FlowId};
use port::Frame;
use tcp::Segment;
use wire::{IpAddress, Mac};

impl ControlPlane {
    /// A TCP packet of the exception path. Gives the frame back where it is not kept.
    pub(crate) fn on_frame(
        &mut self,
        out: &mut Outbox<'_>,
        why: Exception,
        mut frame: Box<Frame>,
    ) -> Option<Box<Frame>> {
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
        mut frame: Box<Frame>,
    ) -> Option<Box<Frame>> {
        let syn = |above| Syn { segment, station: src_mac, above };
        match self.connections.get(&segment.tuple) {
            Some(Lifecycle::Flow(id)) => return self.on_early_segment(out, why, id, frame),
            Some(Lifecycle::HalfOpen(key)) => return self.on_half_open_segment(out, key, segment, src_mac, frame),
            Some(Lifecycle::Splice(key, side)) => {
                let Passed { mut frame, then } = self.splices.on_segment(out, key, side, segment, frame);
                let above = if let Then::Reopened(_, above) = then { Some(above) } else { None };
                self.after_splice(out, then);
                if above.is_some() {
                    self.on_listen(out, syn(above), frame.as_deref_mut());
                }
                return frame;
            }
            Some(Lifecycle::TimeWait(key)) => {
                if let Some(above) = self.time_waits.on_segment(out, &mut self.connections, key, segment) {
                    self.on_listen(out, syn(Some(above)), Some(&mut *frame));
                }
            }
            // Its peer sends again. An answer now would be wrong: the connection's position is still open.
            Some(Lifecycle::Survivor) => out.drops.count(DropReason::NotAccepted),
            None => match self.half_open_of_cookie(out, segment, src_mac) {
                Some(Cookie::HalfOpen(key)) => return self.on_half_open_segment(out, key, segment, src_mac, frame),
                Some(Cookie::Later) => {}
                None => self.on_listen(out, syn(None), Some(&mut *frame)),
            },
        }
        Some(frame)
    }

    /// The engine did not have the flow at its lookup, but gets it before the next one. Or it has let go of the flow
    /// and not reported that yet. A connection that waits then has an answer, as to the peer's FIN. A segment that the
    /// engine does not take for one of TCP at all would only come back.
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
        let comes_back = [EngineState::Engine, EngineState::Leaving(After::TimeWait)];
        if self.flows.get(id.0).is_some_and(|flow| comes_back.contains(&flow.engine)) {
            out.frames.refeed.push((why, frame));
            return None;
        }
        out.drops.count(DropReason::AfterClose);
        Some(frame)
    }

    /// A neighbour has this hardware address: packets that waited for it go on, and flows through it follow.
    pub(crate) fn neighbour_learned(&mut self, out: &mut Outbox<'_>, ip: IpAddress, mac: Mac) {
        self.handshakes.neighbour_learned(out, ip);
        self.flows.neighbour_learned(out, ip, mac);
        self.splices.neighbour_learned(ip, mac);
    }

    /// A neighbour does not answer: connections that are being opened through it fail.
    pub(crate) fn neighbour_unreachable(&mut self, out: &mut Outbox<'_>, ip: IpAddress) {
        for key in self.handshakes.through(out, ip) {
            self.fail_half_open(out, key, libc::EHOSTUNREACH);
        }
    }

    /// An ICMP error. Returns whether it counts.
    // Meets RFC 9293: MUST-54, MUST-56.
    pub(crate) fn on_unreachable(&mut self, out: &mut Outbox<'_>, error: &Unreachable) -> bool {
        let Unreachable { cause, quote } = error;
        let Some(quoted) = icmp::quoted(quote) else { return false };
        match (self.connections.get(&quoted.tuple), *cause) {
            (Some(Lifecycle::HalfOpen(key)), cause) => match self.handshakes.on_unreachable(key, cause, quoted.seq) {
                IcmpEffect::Nothing => false,
                IcmpEffect::Soft => true,
                IcmpEffect::Fails(errno) => {
                    self.fail_half_open(out, key, errno);
                    true
                }
            },
            (Some(Lifecycle::Flow(id)), Cause::TooBig(mtu)) => self.flows.lower_mss(out, id, mtu, &quoted),
            // An established connection is not reset by ICMP (RFC 5461); retransmission decides.
            _ => false,
        }
    }
}
