//! Received ICMP messages (RFC 792, RFC 1122 section 3.2.2). An error message is believed only where it quotes a
//! segment that this host can have sent just now (RFC 5927 section 4.1).
use crate::flow::Place;
use crate::net::{Ip, mss_of};
use crate::plane::{Plane, Stage};
use engine::stream::{self, FourTuple};
use engine::{DropReason, FlowId, Nanos};
use port::Frame;
use std::net::Ipv4Addr;
use wire::icmpv4::{self, FRAGMENTATION_NEEDED, Message};
use wire::{Seq, ipv4, tcp};

/// Least path MTU that is believed: every IPv4 host takes 576 bytes (RFC 791), and lies below that only cost speed.
const LEAST_MTU: u16 = 576;
/// Path MTUs that occur, for routers that do not name one (RFC 1191 section 7.1).
const PLATEAUS: [u16; 9] = [32_000, 17_914, 8166, 4352, 2002, 1492, 1006, 576, 508];

/// The segment that an error message quotes.
struct Quote {
    tuple: FourTuple,
    seq: Seq,
    /// Bytes of the packet.
    len: u16,
}

impl Plane {
    /// An ICMP message for this host. The frame is contiguous.
    // Meets RFC 9293: MUST-54, MUST-55.
    pub fn on_icmp(&mut self, now: Nanos, ip: &Ip, frame: &Frame) {
        let end = ip.body_at + ip.header.payload_len as usize;
        let Some(body) = frame.bytes().get(ip.body_at..end) else { return self.drops.count(DropReason::Icmp) };
        let data = body.get(icmpv4::HEADER_LEN..).unwrap_or_default();
        match Message::parse(body) {
            Ok(Message::EchoRequest(id, seq)) if ip.unicast => {
                let fits = end - ip.at <= self.net.mtu as usize;
                if fits && self.icmp.take(now) {
                    self.send_icmp(now, ip.header.src.into(), Message::EchoReply(id, seq), data.to_vec());
                }
            }
            Ok(Message::Unreachable { code, mtu }) => match quote(data) {
                Some(quote) if quote.tuple.local_ip == self.net.address => self.on_unreachable(now, code, mtu, &quote),
                _ => self.drops.count(DropReason::Icmp),
            },
            _ => self.drops.count(DropReason::Icmp),
        }
    }

    // Meets RFC 9293: MUST-56.
    fn on_unreachable(&mut self, now: Nanos, code: u8, mtu: u16, quote: &Quote) {
        let believed = match self.connections.get(&quote.tuple) {
            Some(Stage::Opening(key)) => self.opening_unreachable(now, key, code, quote),
            Some(Stage::Flow(id)) if code == FRAGMENTATION_NEEDED => self.lower_mss(now, id, mtu, quote),
            // An established connection is not reset by ICMP (RFC 5461); retransmission decides.
            _ => false,
        };
        if !believed {
            self.drops.count(DropReason::Icmp);
        }
    }

    /// A soft error: what the application hears if nobody answers (RFC 9293 section 3.9.2.2). A port or protocol that
    /// is not there ends the attempt.
    fn opening_unreachable(&mut self, now: Nanos, key: u32, code: u8, quote: &Quote) -> bool {
        let Some(opening) = self.openings.get_mut(key).filter(|opening| opening.handshake.iss == quote.seq) else {
            return false;
        };
        match code {
            0 | 6 | 9 | 11 => opening.soft_error = Some(libc::ENETUNREACH),
            1 | 7 | 10 | 12 | 13 => opening.soft_error = Some(libc::EHOSTUNREACH),
            2 | 3 => self.fail_opening(now, key, libc::ECONNREFUSED),
            _ => return false,
        }
        true
    }

    /// Path MTU discovery (RFC 1191): full segments become smaller, never larger, and so are those of later connections to
    /// the same destination.
    fn lower_mss(&mut self, now: Nanos, id: FlowId, mtu: u16, quote: &Quote) -> bool {
        let Some(flow) = self.flows.get_mut(id.0).filter(|flow| flow.place == Place::Engine) else { return false };
        let figures = flow.stats.read();
        let in_flight = quote.seq.within(Seq(figures.snd_una), figures.snd_nxt.wrapping_sub(figures.snd_una).max(1));
        let below = |len: u16| PLATEAUS.into_iter().find(|plateau| *plateau < len).unwrap_or(LEAST_MTU);
        let mtu = if mtu == 0 { below(quote.len) } else { mtu };
        if !in_flight || mtu < ipv4::HEADER_LEN as u16 + tcp::HEADER_LEN as u16 {
            return false;
        }
        let mtu = mtu.max(LEAST_MTU);
        let mss = mss_of(mtu, &flow.agreed);
        if mss >= flow.mss {
            return false;
        }
        flow.mss = mss;
        self.net.path_mtus.learn(now, quote.tuple.remote_ip, mtu);
        self.commands.push(stream::Command::Mss(id, mss).into());
        true
    }
}

/// Reads the quoted packet: an IP header and the first 8 bytes of a TCP header.
fn quote(data: &[u8]) -> Option<Quote> {
    // Routers change the quoted header (TTL, checksum), so only its shape is checked.
    let header_len = (*data.first()? & 0x0f) as usize * 4;
    if data[0] >> 4 != 4 || header_len < ipv4::HEADER_LEN || *data.get(9)? != ipv4::TCP {
        return None;
    }
    let tcp_at = data.get(header_len..header_len + 8)?;
    let word = |at: usize| u32::from_be_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]]);
    let tuple = FourTuple {
        local_ip: Ipv4Addr::from_bits(word(12)).into(),
        remote_ip: Ipv4Addr::from_bits(word(16)).into(),
        local_port: u16::from_be_bytes([tcp_at[0], tcp_at[1]]),
        remote_port: u16::from_be_bytes([tcp_at[2], tcp_at[3]]),
    };
    let seq = Seq(u32::from_be_bytes([tcp_at[4], tcp_at[5], tcp_at[6], tcp_at[7]]));
    Some(Quote { tuple, seq, len: u16::from_be_bytes([data[2], data[3]]) })
}
