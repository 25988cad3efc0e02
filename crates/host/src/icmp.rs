//! ICMP (RFC 792, RFC 1122 section 3.2.2) and ICMPv6 (RFC 4443). Echo is answered here. An error message goes to the
//! transport whose packet it quotes, which decides whether it counts (RFC 5927 section 4.1).
use crate::net::{Net, Received};
use crate::packet::{Ip, Packet};
use crate::unreachable::{Cause, Quote, Unreachable};
use engine::{DropCounts, DropReason, Nanos};
use port::Frame;
use wire::ip::Ends;
use wire::{icmpv4, icmpv6, ipv4, ipv6, router};

/// Code of "destination unreachable" for a protocol that the host does not have.
const PROTOCOL_UNREACHABLE: u8 = 2;

impl Net {
    /// An ICMP message for this host. The frame is contiguous.
    // Meets RFC 9293: MUST-55.
    pub(crate) fn on_icmp(&mut self, now: Nanos, ip: &Ip, frame: &Frame, drops: &mut DropCounts) -> Received {
        use icmpv4::{HEADER_LEN, Message};
        let body = ip.body(frame).unwrap_or_default();
        let data = body.get(HEADER_LEN..).unwrap_or_default();
        match Message::parse(body) {
            Ok(Message::EchoRequest(id, seq)) if ip.unicast => {
                let reply = |body: &mut [u8]| Message::EchoReply(id, seq).emit(body);
                self.echo(now, ip, data, reply, drops);
                return Received::Done;
            }
            Ok(Message::Unreachable { code, mtu }) => {
                if let Some(quote) = Quote::parse_v4(data).filter(|quote| self.is_own(quote.src)) {
                    return Received::Unreachable(Unreachable { cause: Cause::of_v4(code, mtu), quote });
                }
            }
            _ => {}
        }
        drops.count(DropReason::Icmp);
        Received::Done
    }

    /// The same of ICMPv6, and of the neighbours' messages in it.
    // Meets RFC 4443: 2.4-d.
    pub(crate) fn on_icmpv6(&mut self, now: Nanos, ip: &Ip, frame: &Frame, drops: &mut DropCounts) -> Received {
        use icmpv6::{HEADER_LEN, Message};
        let body = ip.body(frame).unwrap_or_default();
        let data = body.get(HEADER_LEN..).unwrap_or_default();
        let ends = Ends { src: ip.header.src, dst: ip.header.dst };
        let message = Message::parse(body, ends);
        match &message {
            Ok(Message::EchoRequest(id, seq)) if ip.unicast && !ends.src.is_unspecified() => {
                let reply = |body: &mut [u8]| Message::EchoReply(*id, *seq).emit(ends.turned(), body);
                self.echo(now, ip, data, reply, drops);
                return Received::Done;
            }
            Ok(Message::Query(query)) => {
                self.on_membership_query(now, ip, query);
                return Received::Done;
            }
            Ok(router::ADVERTISEMENT) => {
                if let Some(done) = self.on_router_advertisement(now, ip, body) {
                    return done;
                }
            }
            Ok(message) => {
                if let Some(done) = self.on_discovery(now, ip, message, drops) {
                    return done;
                }
                let quote = Quote::parse_v6(data, self.zone(ip.port)).filter(|quote| self.is_own(quote.src));
                if let Some((cause, quote)) = Cause::of_v6(message).zip(quote) {
                    return Received::Unreachable(Unreachable { cause, quote });
                }
            }
            Err(_) => {}
        }
        // Routers and the kernel send to all of a link what is not handled here.
        if ip.unicast || message.is_err() {
            drops.count(DropReason::Icmp);
        }
        Received::Done
    }

    /// Answers an echo request that fits into one packet.
    // Meets RFC 4443: 4.2-a.
    fn echo(&mut self, now: Nanos, ip: &Ip, data: &[u8], reply: impl FnOnce(&mut [u8]), drops: &mut DropCounts) {
        let mtu = self.link_towards(ip.header.src).caps.mtu;
        let fits = ip.body_at + usize::from(ip.header.payload_len) - ip.at <= mtu as usize;
        if fits && self.may_send_icmp(now) {
            self.send_icmp(now, ip, data, reply, drops);
        }
    }

    /// A packet that no transport takes is dropped, and its sender gets an error (RFC 1122 sections 3.2.2.1 and 3.3.8,
    /// RFC 4443 section 3). This has limits, and never answers a frame that went to many.
    // Meets RFC 4443: 3.1-a, 3.4-a, 2.4-a, 2.4-b, 2.4-c.
    pub fn refuse(&mut self, now: Nanos, ip: &Ip, frame: &Frame, drops: &mut DropCounts) {
        drops.count(DropReason::Protocol);
        if !ip.unicast || ip.header.src.is_unspecified() || !self.may_send_icmp(now) {
            return;
        }
        let is_udp = ip.header.protocol == ipv4::UDP;
        let quoted = |most: usize| &frame.bytes()[ip.at..(ip.at + most).min(frame.bytes().len())];
        if ip.header.src.is_v4() {
            let code = if is_udp { icmpv4::PORT_UNREACHABLE } else { PROTOCOL_UNREACHABLE };
            let message = icmpv4::Message::Unreachable { code, mtu: 0 };
            self.send_icmp(now, ip, quoted(ip.body_at - ip.at + 8), |body| message.emit(body), drops);
            return;
        }
        let ends = Ends { src: ip.header.dst, dst: ip.header.src };
        let message = match is_udp {
            true => icmpv6::Message::Unreachable { code: icmpv6::PORT_UNREACHABLE },
            // Without extension headers, which protocol follows stands in byte 6.
            false => icmpv6::Message::Problem { code: icmpv6::UNKNOWN_PROTOCOL, pointer: 6 },
        };
        let room = usize::from(ipv6::LEAST_MTU) - ipv6::HEADER_LEN - icmpv6::HEADER_LEN;
        self.send_icmp(now, ip, quoted(room), |body| message.emit(ends, body), drops);
    }

    /// Answers a packet, from the address that it was sent to. `emit` writes the message before its data.
    fn send_icmp(&mut self, now: Nanos, to: &Ip, data: &[u8], emit: impl FnOnce(&mut [u8]), drops: &mut DropCounts) {
        // Both versions' headers are as long.
        let mut body = vec![0; icmpv4::HEADER_LEN + data.len()];
        body[icmpv4::HEADER_LEN..].copy_from_slice(data);
        emit(&mut body);
        let (dst, protocol) = (to.header.src, if to.header.src.is_v4() { ipv4::ICMP } else { ipv6::ICMP });
        self.send(now, Packet::new(dst, protocol, body).with_source(to.header.dst), drops);
    }
}
