//! Received ICMP messages (RFC 792, RFC 1122 section 3.2.2, RFC 4443). An error message counts only where it quotes a
//! segment that this host can have sent just now (RFC 5927 section 4.1).
use crate::flow::EngineState;
use crate::flows::Flows;
use crate::outbox::Outbox;
use crate::path_mtu::{least_mtu, mss_of};
use ::host::Quote;
use ::tcp::Agreed;
use engine::FlowId;
use engine::stream::{self, FourTuple};
use wire::{IpAddress, Seq, ip, tcp};

/// Path MTUs that occur, for routers that do not name one (RFC 1191 section 7.1).
const PLATEAUS: [u16; 9] = [32_000, 17_914, 8166, 4352, 2002, 1492, 1006, 576, 508];

/// The segment that an error message quotes.
pub(crate) struct Quoted {
    pub tuple: FourTuple,
    pub seq: Seq,
    /// Bytes of the packet.
    len: u16,
}

impl Flows {
    /// Path MTU discovery (RFC 1191, RFC 8201): full segments become smaller, never larger, and so are those of
    /// later connections to the same destination. Returns whether the message counts.
    // Meets RFC 8201: 4-a, 4-b, 4-c.
    pub(crate) fn lower_mss(&mut self, out: &mut Outbox<'_>, id: FlowId, mtu: u16, quote: &Quoted) -> bool {
        let Some(flow) = self.get_mut(id.0).filter(|flow| flow.engine == EngineState::Engine) else { return false };
        let figures = flow.stats.read();
        let in_flight = quote.seq.within(Seq(figures.snd_una), figures.snd_nxt.wrapping_sub(figures.snd_una).max(1));
        let (dst, least) = (quote.tuple.remote_ip, least_mtu(quote.tuple.remote_ip));
        let below = |len: u16| PLATEAUS.into_iter().find(|plateau| *plateau < len).unwrap_or(least);
        let mtu = if mtu == 0 { below(quote.len) } else { mtu };
        if !in_flight || usize::from(mtu) < ip::header_len(dst) + tcp::HEADER_LEN {
            return false;
        }
        let mtu = mtu.max(least);
        let mss = mss_of(mtu, dst, &flow.agreed);
        if mss >= flow.agreed.mss {
            return false;
        }
        flow.agreed.mss = mss;
        self.black_holes.forget(id);
        out.net.path_mtus.learn(out.now, dst, mtu);
        out.commands.push(stream::Command::Mss(id, mss).into());
        true
    }
}

/// Payload bytes of a full segment to a destination, for a connection that begins. They are what both ends agreed on,
/// or less where the path carries less.
pub(crate) fn mss_towards(out: &mut Outbox<'_>, dst: IpAddress, agreed: &Agreed) -> u16 {
    let known = out.net.path_mtus.get(out.now, dst).map(|mtu| mss_of(mtu, dst, agreed));
    known.map_or(agreed.mss, |mss| agreed.mss.min(mss))
}

/// The segment of a quoted packet, where it is one.
pub(crate) fn quoted(quote: &Quote) -> Option<Quoted> {
    let [a, b, c, d, seq @ ..] = quote.first;
    let tuple = FourTuple {
        local_ip: quote.src,
        remote_ip: quote.dst,
        local_port: u16::from_be_bytes([a, b]),
        remote_port: u16::from_be_bytes([c, d]),
    };
    (quote.protocol == wire::ipv4::TCP).then_some(Quoted { tuple, seq: Seq(u32::from_be_bytes(seq)), len: quote.len })
}
