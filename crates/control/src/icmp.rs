//! Received ICMP messages (RFC 792, RFC 1122 section 3.2.2). An error message is believed only where it quotes a
//! segment that this host can have sent just now (RFC 5927 section 4.1).
use crate::connections::Stage;
use crate::flow::Place;
use crate::outbox::Outbox;
use crate::plane::Plane;
use ::host::{Quote, Unreachable};
use ::tcp::Agreed;
use engine::FlowId;
use engine::stream::{self, FourTuple};
use wire::icmpv4::FRAGMENTATION_NEEDED;
use wire::{IpAddress, Seq, ipv4, tcp};

/// Least path MTU that is believed: every IPv4 host takes 576 bytes (RFC 791), and lies below that only cost speed.
const LEAST_MTU: u16 = 576;
/// Path MTUs that occur, for routers that do not name one (RFC 1191 section 7.1).
const PLATEAUS: [u16; 9] = [32_000, 17_914, 8166, 4352, 2002, 1492, 1006, 576, 508];

/// The segment that an error message quotes.
struct Quoted {
    tuple: FourTuple,
    seq: Seq,
    /// Bytes of the packet.
    len: u16,
}

impl Plane {
    /// An ICMP error. Returns whether it is believed.
    // Meets RFC 9293: MUST-54, MUST-56.
    pub fn on_unreachable(&mut self, out: &mut Outbox<'_>, error: &Unreachable) -> bool {
        let Unreachable { code, mtu, quote } = error;
        let quoted = quoted(quote);
        let stage = quoted.as_ref().and_then(|quoted| self.connections.get(&quoted.tuple));
        match (quoted, stage) {
            (Some(quoted), Some(Stage::Opening(key))) => self.opening_unreachable(out, key, *code, &quoted),
            (Some(quoted), Some(Stage::Flow(id))) if *code == FRAGMENTATION_NEEDED => {
                self.lower_mss(out, id, *mtu, &quoted)
            }
            // An established connection is not reset by ICMP (RFC 5461); retransmission decides.
            _ => false,
        }
    }

    /// A soft error: what the application hears if nobody answers (RFC 9293 section 3.9.2.2). A port or protocol that
    /// is not there ends the attempt.
    fn opening_unreachable(&mut self, out: &mut Outbox<'_>, key: u32, code: u8, quote: &Quoted) -> bool {
        let Some(opening) = self.openings.get_mut(key).filter(|opening| opening.handshake.iss == quote.seq) else {
            return false;
        };
        match code {
            0 | 6 | 9 | 11 => opening.soft_error = Some(libc::ENETUNREACH),
            1 | 7 | 10 | 12 | 13 => opening.soft_error = Some(libc::EHOSTUNREACH),
            2 | 3 => self.fail_opening(out, key, libc::ECONNREFUSED),
            _ => return false,
        }
        true
    }

    /// Path MTU discovery (RFC 1191): full segments become smaller, never larger, and so are those of later connections
    /// to the same destination.
    fn lower_mss(&mut self, out: &mut Outbox<'_>, id: FlowId, mtu: u16, quote: &Quoted) -> bool {
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
        if mss >= flow.agreed.mss {
            return false;
        }
        flow.agreed.mss = mss;
        out.net.path_mtus.learn(out.now, quote.tuple.remote_ip, mtu);
        out.commands.push(stream::Command::Mss(id, mss).into());
        true
    }

    /// Payload bytes of a full segment to a destination, for a connection that begins: what both ends agreed on, less
    /// where the path is known to carry less.
    pub fn mss_towards(&self, out: &mut Outbox<'_>, dst: IpAddress, agreed: &Agreed) -> u16 {
        let known = out.net.path_mtus.get(out.now, dst).map(|mtu| mss_of(mtu, agreed));
        known.map_or(agreed.mss, |mss| agreed.mss.min(mss))
    }
}

/// Payload bytes of a full segment in an IP packet of so many bytes.
pub(crate) fn mss_of(mtu: u16, agreed: &Agreed) -> u16 {
    let options = if agreed.ts_offset.is_some() { tcp::TIMESTAMPS_LEN } else { 0 };
    mtu.saturating_sub((ipv4::HEADER_LEN + tcp::HEADER_LEN + options) as u16)
}

/// The segment of a quoted packet, where it is one.
fn quoted(quote: &Quote) -> Option<Quoted> {
    let [a, b, c, d, seq @ ..] = quote.first;
    let tuple = FourTuple {
        local_ip: quote.src.into(),
        remote_ip: quote.dst.into(),
        local_port: u16::from_be_bytes([a, b]),
        remote_port: u16::from_be_bytes([c, d]),
    };
    (quote.protocol == ipv4::TCP).then_some(Quoted { tuple, seq: Seq(u32::from_be_bytes(seq)), len: quote.len })
}
