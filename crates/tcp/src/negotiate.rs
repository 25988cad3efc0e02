//! Negotiation of options by SYN: segment size (RFC 9293 section 3.7.1), window scale and timestamps (RFC 7323),
//! selective acknowledgement (RFC 2018), ECN (RFC 3168).
use crate::Nanos;
use crate::window::MOST_SHIFT;
use serde::{Deserialize, Serialize};
use wire::tcp::{Agreed, Flags, Header, Options, TIMESTAMPS_LEN, Timestamps};

/// Segment size of a peer that names none (RFC 9293 section 3.7.1).
const DEFAULT_MSS: u16 = 536;
/// Least segment size that is accepted: a smaller one would make the host send mostly headers.
const LEAST_MSS: u16 = 88;

/// SYNs of a DCTCP connection that offer ECN before one goes without. It is for networks whose switches are known to
/// mark (RFC 8257 section 1). There a lost SYN met a full buffer, not a middlebox that drops ECN. A flow without marks
/// among others that heed them would take most of the link as long as it lives.
pub const DCTCP_ECN_TRIES: u32 = 3;

/// The options that this host offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Most payload bytes that it accepts in a segment, options not taken off.
    pub mss: u16,
    /// Shift of the windows that it will send.
    pub shift: u8,
    /// Receive window while the handshake goes on, bytes.
    pub window: u16,
    /// ECN.
    pub ecn: bool,
    /// SYNs that offer it, before one goes without.
    #[serde(default)]
    pub ecn_tries: u32,
    /// Added to the millisecond clock in timestamps.
    pub timestamp_offset: u32,
    /// The engine carries the timestamps option. What it does not carry is not offered.
    pub timestamps: bool,
    /// The engine carries selective acknowledgements.
    pub sack: bool,
}

/// The options of a peer's SYN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Peer {
    /// Most payload bytes that it takes in a segment, options not taken off.
    pub mss: u16,
    /// Shift of the windows that it will send; `None` where it does not scale.
    pub shift: Option<u8>,
    /// Timestamps (RFC 7323).
    pub timestamps: bool,
    /// SACK permitted (RFC 2018).
    pub sack: bool,
    /// An ECN setup (RFC 3168 section 6.1.1).
    pub ecn: bool,
}

impl Offer {
    /// The smallest shift with which a window of `rx_bytes` can be advertised.
    pub fn shift_for(rx_bytes: u32) -> u8 {
        (0..MOST_SHIFT).find(|shift| rx_bytes >> shift <= u16::MAX as u32).unwrap_or(MOST_SHIFT)
    }

    /// Reads a SYN or SYN-ACK; what the engine does not carry counts as not offered.
    pub fn read(&self, syn: &Header) -> Peer {
        let peer = Peer::read(syn);
        Peer { timestamps: peer.timestamps && self.timestamps, sack: peer.sack && self.sack, ..peer }
    }

    /// Options of the first SYN: everything.
    // Meets RFC 9293: MUST-14, SHLD-5.
    pub fn syn_options(&self, now: Nanos) -> Options {
        Options {
            mss: Some(self.mss),
            window_scale: Some(self.shift),
            sack_permitted: self.sack,
            timestamps: self.timestamps.then(|| Timestamps { value: self.clock(now), echo: 0 }),
            sack: [None; 4],
            fast_open: None,
        }
    }

    /// Options of a SYN that answers another one: only what the peer offered too.
    // Meets RFC 2018: 2-a.
    pub fn syn_ack_options(&self, now: Nanos, peer: &Peer, recent: u32) -> Options {
        Options {
            mss: Some(self.mss),
            window_scale: peer.shift.is_some().then_some(self.shift),
            sack_permitted: peer.sack,
            timestamps: peer.timestamps.then(|| Timestamps { value: self.clock(now), echo: recent }),
            sack: [None; 4],
            fast_open: None,
        }
    }

    /// TSval now (RFC 7323 section 5.4).
    pub fn clock(&self, now: Nanos) -> u32 {
        ((now / 1_000_000) as u32).wrapping_add(self.timestamp_offset)
    }

    /// The options that follow from an offer and a peer's SYN.
    // Meets RFC 9293: MUST-16.
    // Meets RFC 7323: 2.2-a, 3.2-a.
    pub fn agree(&self, peer: &Peer) -> Agreed {
        let options = if peer.timestamps { TIMESTAMPS_LEN as u16 } else { 0 };
        Agreed {
            mss: self.mss.min(peer.mss).max(LEAST_MSS) - options,
            snd_shift: peer.shift.unwrap_or(0),
            // Both scale or none does (RFC 7323 section 2.2).
            rcv_shift: if peer.shift.is_some() { self.shift } else { 0 },
            ts_offset: peer.timestamps.then_some(self.timestamp_offset),
            sack: peer.sack,
            ecn: self.ecn && peer.ecn,
        }
    }
}

impl Peer {
    /// Reads a SYN or SYN-ACK.
    // Meets RFC 9293: MUST-15.
    // Meets RFC 7323: 2.3-a.
    // Meets RFC 3168: 6.1.1-a.
    pub fn read(syn: &Header) -> Peer {
        let both = Flags::ECE | Flags::CWR;
        // ECN setup (RFC 3168 section 6.1.1): SYN with both bits; SYN-ACK with ECE alone.
        let ecn = match syn.flags.has(Flags::ACK) {
            true => syn.flags.0 & both.0 == Flags::ECE.0,
            false => syn.flags.has(both),
        };
        Peer {
            mss: syn.options.mss.unwrap_or(DEFAULT_MSS),
            shift: syn.options.window_scale.map(|shift| shift.min(MOST_SHIFT)),
            timestamps: syn.options.timestamps.is_some(),
            sack: syn.options.sack_permitted,
            ecn,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFER: Offer = Offer {
        mss: 1460,
        shift: 3,
        window: 65535,
        ecn: true,
        ecn_tries: 1,
        timestamp_offset: 0,
        timestamps: true,
        sack: true,
    };

    // Checks RFC 9293: MUST-14, SHLD-5, MUST-15.
    // Checks RFC 7323: 2.2-a, 3.2-a.
    #[test]
    fn a_bare_peer_gets_a_bare_connection() {
        let bare = Peer { mss: 536, ..Peer::default() };
        let agreed = OFFER.agree(&bare);
        let plain = Agreed { mss: 536, snd_shift: 0, rcv_shift: 0, ts_offset: None, sack: false, ecn: false };
        assert_eq!(agreed, plain);
        let options = OFFER.syn_ack_options(0, &bare, 0);
        assert_eq!(options, Options { mss: Some(1460), ..Options::default() });
    }

    // Checks RFC 9293: MUST-16.
    #[test]
    fn timestamps_take_their_room_from_the_segment() {
        let full = Peer { mss: 9000, shift: Some(7), timestamps: true, sack: true, ecn: true };
        let agreed = OFFER.agree(&full);
        assert_eq!((agreed.mss, agreed.snd_shift, agreed.rcv_shift, agreed.ecn), (1448, 7, 3, true));
        assert_eq!(OFFER.agree(&Peer { mss: 0, timestamps: true, ..full }).mss, 76, "a silly size is not used");
    }

    #[test]
    fn the_window_scale_is_the_smallest_that_fits() {
        let shifts = [65_535, 65_536, 262_144, 1 << 30].map(Offer::shift_for);
        assert_eq!(shifts, [0, 1, 3, 14]);
    }

    // Checks RFC 7323: 2.3-a.
    #[test]
    fn a_shift_above_fourteen_is_fourteen() {
        let options = Options { window_scale: Some(200), ..Options::default() };
        let syn = Header {
            src_port: 1,
            dst_port: 2,
            seq: wire::Seq(0),
            ack: wire::Seq(0),
            flags: Flags::SYN,
            window: 0,
            options,
        };
        assert_eq!(OFFER.agree(&Peer::read(&syn)).snd_shift, 14);
    }
}
