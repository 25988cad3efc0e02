//! The opening handshake: LISTEN, SYN-SENT and SYN-RECEIVED (RFC 9293 sections 3.5 and 3.10.7).
use super::established::Established;
use super::negotiate::{Offer, Peer};
use crate::{FourTuple, Nanos, Segment, State, Unacceptable};
use serde::{Deserialize, Serialize};
use wire::Seq;
use wire::tcp::{Cookie, Flags, Header, Options, Timestamps};

/// A connection between its first SYN and the moment when an engine takes it over.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Handshake {
    stage: HandshakeState,
    /// Initial sequence number of this host.
    pub iss: Seq,
    offer: Offer,
    /// SYNs sent so far.
    sent: u32,
    first_sent: Nanos,
    #[serde(default)]
    early: Early,
}

/// What a handshake has of Fast Open (RFC 7413).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Early {
    /// The option of the first SYN, or of each SYN-ACK.
    option: Option<Cookie>,
    /// Bytes of payload: of this host's first SYN, or those of the peer's SYN that were taken.
    bytes: u32,
    /// Of this host's, those that were acknowledged with the SYN.
    #[serde(default)]
    acknowledged: u32,
    /// Bytes that the program has written: this host's first SYN carries the first of them.
    #[serde(default)]
    written: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum HandshakeState {
    SynSent,
    SynReceived { irs: Seq, peer: Peer, recent: u32, passive: bool },
}

/// The answer to a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// Nothing, for this reason.
    Drop(Unacceptable),
    /// Answer with an acknowledgement of what is expected ([`Handshake::ack`]): a challenge, so within its budget.
    Challenge(Unacceptable),
    /// Answer with a reset that has this sequence number, and go on as before.
    Reset(Seq),
    /// Send the SYN of the present state again ([`Handshake::syn`]): the peer's came (again).
    Resend,
    /// The peer refused or reset it: it is over.
    Refused,
    /// The connection is open.
    Established(Established),
}

impl Handshake {
    /// Active open: enters SYN-SENT.
    pub fn connect(now: Nanos, iss: Seq, offer: Offer) -> Handshake {
        Handshake { stage: HandshakeState::SynSent, iss, offer, sent: 0, first_sent: now, early: Early::default() }
    }

    /// The first SYN asks for a cookie, or has one and carries so many bytes (RFC 7413 section 4.2.1).
    pub fn connect_early(self, option: Option<Cookie>, bytes: u32) -> Handshake {
        Handshake { early: Early { option, bytes, acknowledged: 0, written: bytes }, ..self }
    }

    /// The program has written so many bytes before the connection is open, those of the SYN among them.
    pub fn with_written(self, written: u32) -> Handshake {
        Handshake { early: Early { written, ..self.early }, ..self }
    }

    /// LISTEN gets a SYN (RFC 9293 section 3.10.7.2): enters SYN-RECEIVED. Data on the SYN is left to the peer's
    /// retransmission.
    pub fn listen(now: Nanos, iss: Seq, offer: Offer, syn: &Segment) -> Handshake {
        let mut handshake = Handshake::connect(now, iss, offer);
        handshake.stage = HandshakeState::received(&offer, syn, true);
        handshake
    }

    /// The SYN-ACK has this option.
    pub fn with_cookie(self, option: Option<Cookie>) -> Handshake {
        Handshake { early: Early { option, ..self.early }, ..self }
    }

    /// LISTEN gets a SYN whose cookie is right (RFC 7413 section 4.2.2). The connection is open for this side at once,
    /// with so many bytes of the SYN, which the SYN-ACK acknowledges.
    // Meets RFC 7413: 4.2.2-b, 4.2.2-c.
    pub fn accept_early(self, syn: &Segment, bytes: u32) -> (Handshake, Established) {
        let handshake = Handshake { early: Early { bytes, ..self.early }, ..self };
        let (peer, irs) = (handshake.offer.read(&syn.header), syn.header.seq);
        let recent = syn.header.options.timestamps.map_or(0, |stamp| stamp.value);
        // The window of a SYN is not scaled; how long the round trip takes is not seen yet.
        let open = handshake.established(0, irs, &peer, recent, syn.header.window.into());
        (handshake, Established { pass_on: bytes > 0, rtt: None, answered: bytes, ..open })
    }

    /// The handshake of a cookie, in SYN-RECEIVED: of one that is about to be sent, or of one that came back.
    pub fn of_cookie(now: Nanos, iss: Seq, offer: Offer, irs: Seq, peer: Peer, recent: u32) -> Handshake {
        let stage = HandshakeState::SynReceived { irs, peer, recent, passive: true };
        // When it was sent is not kept: no round-trip time comes of it.
        Handshake { stage, iss, offer, sent: 2, first_sent: now, early: Early::default() }
    }

    /// The SYN or SYN-ACK of the present state, counted as sent.
    // Meets RFC 9293: SHLD-8.
    // Meets RFC 7323: 2.2-b, 3.2-d.
    // Meets RFC 3168: 6.1.1.1-a.
    pub fn syn(&mut self, now: Nanos, tuple: &FourTuple) -> Header {
        self.sent += 1;
        if self.sent == 1 {
            self.first_sent = now;
        }
        let (flags, ack, mut options) = match &self.stage {
            HandshakeState::SynSent => {
                // A SYN that seems to be lost may have been lost because of its ECN bits (RFC 3168 section 6.1.1.1).
                let ecn = self.offer.ecn && self.sent <= self.offer.ecn_tries;
                let flags = if ecn { Flags::SYN | Flags::ECE | Flags::CWR } else { Flags::SYN };
                (flags, Seq(0), self.offer.syn_options(now))
            }
            HandshakeState::SynReceived { irs, peer, recent, .. } => {
                let flags = Flags::SYN | Flags::ACK;
                let flags = if self.offer.ecn && peer.ecn { flags | Flags::ECE } else { flags };
                (flags, *irs + 1 + self.taken(), self.offer.syn_ack_options(now, peer, *recent))
            }
        };
        // A SYN that seems to be lost may have been lost because of the option, or of what it carried.
        // Meets RFC 7413: 4.1.3.1-a.
        options.fast_open = self.early.option.filter(|_| self.is_passive() || self.is_early());
        // The window of a SYN is never scaled (RFC 7323 section 2.2).
        header(tuple, self.iss, ack, flags, self.offer.window, options)
    }

    /// The SYN that was counted last is the first one: it carries the data of [`Handshake::connect_early`].
    pub fn is_early(&self) -> bool {
        self.stage == HandshakeState::SynSent && self.sent <= 1
    }

    /// The bytes that the first SYN carries.
    pub fn early_bytes(&self) -> u32 {
        if self.is_passive() { 0 } else { self.early.bytes }
    }

    /// What the first SYN had of Fast Open may be why it was lost (RFC 7413 section 4.1.3.1).
    pub fn early_was_lost(&self) -> bool {
        self.has_early() && self.sent > 1
    }

    /// The first SYN has, or will have, something of Fast Open.
    pub fn has_early(&self) -> bool {
        !self.is_passive() && (self.early.option.is_some() || self.early.bytes > 0)
    }

    fn is_passive(&self) -> bool {
        matches!(self.stage, HandshakeState::SynReceived { passive: true, .. })
    }

    /// Bytes of the peer's SYN that were taken.
    pub fn taken(&self) -> u32 {
        if self.is_passive() { self.early.bytes } else { 0 }
    }

    /// How many of the first SYN's bytes an acknowledgement covers; `None` where it is not of what was sent.
    fn acknowledged(&self, ack: Seq) -> Option<u32> {
        let bytes = ack - (self.iss + 1);
        let most = if self.sent > 0 { self.early_bytes() } else { 0 };
        (bytes <= most).then_some(bytes)
    }

    /// An acknowledgement of all that came so far.
    pub fn ack(&self, now: Nanos, tuple: &FourTuple) -> Header {
        let (ack, options, shift) = match &self.stage {
            HandshakeState::SynSent => (Seq(0), Options::default(), 0),
            HandshakeState::SynReceived { irs, peer, recent, .. } => {
                let stamp = Timestamps { value: self.offer.clock(now), echo: *recent };
                let options = Options { timestamps: peer.timestamps.then_some(stamp), ..Options::default() };
                (*irs + 1 + self.taken(), options, self.offer.agree(peer).rcv_shift)
            }
        };
        let seq = self.iss + 1 + self.early.acknowledged;
        header(tuple, seq, ack, Flags::ACK, self.offer.window >> shift, options)
    }

    /// RFC 9293's state.
    pub fn state(&self) -> State {
        if self.stage == HandshakeState::SynSent { State::SynSent } else { State::SynReceived }
    }

    /// A segment came for this connection.
    pub fn on_segment(&mut self, now: Nanos, segment: &Segment) -> Disposition {
        match self.stage {
            HandshakeState::SynSent => self.in_syn_sent(now, segment),
            HandshakeState::SynReceived { irs, peer, recent, passive } => {
                self.in_syn_received(now, segment, irs, &peer, recent, passive)
            }
        }
    }

    /// RFC 9293 section 3.10.7.3.
    // Meets RFC 9293: MUST-10.
    fn in_syn_sent(&mut self, now: Nanos, segment: &Segment) -> Disposition {
        let ack = segment.header.ack;
        // "If SEG.ACK =< ISS or SEG.ACK > SND.NXT, send a reset (unless the RST bit is set)."
        // Meets RFC 7413: 4.2.1-c.
        let early = self.acknowledged(ack).filter(|_| segment.ack());
        if segment.ack() && early.is_none() {
            return if segment.rst() {
                Disposition::Drop(Unacceptable::OutsideWindow)
            } else {
                Disposition::Reset(ack)
            };
        }
        if segment.rst() {
            // "If the ACK was acceptable, signal to the user 'error: connection reset'; otherwise (no ACK), drop."
            return if segment.ack() { Disposition::Refused } else { Disposition::Drop(Unacceptable::OutsideWindow) };
        }
        if !segment.syn() {
            return Disposition::Drop(Unacceptable::NoAck);
        }
        self.stage = HandshakeState::received(&self.offer, segment, false);
        if !segment.ack() {
            // Simultaneous open (figure 8): "enter SYN-RECEIVED, form a SYN,ACK segment and send it".
            return Disposition::Resend;
        }
        let HandshakeState::SynReceived { irs, peer, recent, .. } = self.stage else { unreachable!("just set") };
        // The window of a SYN-ACK is not scaled; payload on it comes again.
        let snd_wnd = segment.header.window as u32;
        self.early.acknowledged = early.unwrap_or(0);
        let open = self.established(now, irs, &peer, recent, snd_wnd);
        // Data that waits acknowledges the SYN-ACK, where the peer has a window for it.
        let acknowledge = open.written == open.early || snd_wnd == 0;
        Disposition::Established(Established { acknowledge, ..open })
    }

    /// RFC 9293 section 3.10.7.4, for SYN-RECEIVED.
    // Meets RFC 9293: MUST-11.
    fn in_syn_received(
        &mut self,
        now: Nanos,
        segment: &Segment,
        irs: Seq,
        peer: &Peer,
        recent: u32,
        passive: bool,
    ) -> Disposition {
        let Header { seq, ack, flags: _, window, options, src_port: _, dst_port: _ } = &segment.header;
        if segment.syn() && *seq == irs {
            // The peer's SYN again: it has not seen ours. In a simultaneous open it carries the acknowledgement of
            // our SYN, and all is done (figure 8, line 7).
            let early = self.acknowledged(*ack).filter(|_| segment.ack() && !passive && !segment.rst());
            if let Some(early) = early {
                self.early.acknowledged = early;
                return Disposition::Established(self.established(now, irs, peer, recent, *window as u32));
            }
            return if segment.rst() { Disposition::Drop(Unacceptable::OutsideWindow) } else { Disposition::Resend };
        }
        let stale = options.timestamps.is_some_and(|t| peer.timestamps && (t.value.wrapping_sub(recent) as i32) < 0);
        // PAWS (RFC 7323 section 5.3) is not for resets.
        if stale && !segment.rst() {
            return Disposition::Challenge(Unacceptable::Paws);
        }
        if !self.acceptable(segment, irs + 1) {
            return if segment.rst() {
                Disposition::Drop(Unacceptable::OutsideWindow)
            } else {
                Disposition::Challenge(Unacceptable::OutsideWindow)
            };
        }
        if segment.rst() {
            // RFC 5961 section 3.2: only the exact sequence number resets.
            return if *seq == irs + 1 {
                Disposition::Refused
            } else {
                Disposition::Challenge(Unacceptable::RstChallenged)
            };
        }
        if segment.syn() {
            return Disposition::Challenge(Unacceptable::SynChallenged);
        }
        if !segment.ack() {
            return Disposition::Drop(Unacceptable::NoAck);
        }
        let Some(early) = self.acknowledged(*ack) else {
            // "If the segment acknowledgment is not acceptable, form a reset segment <SEQ=SEG.ACK><CTL=RST>."
            return Disposition::Reset(*ack);
        };
        let newest = options.timestamps.map_or(recent, |stamp| stamp.value);
        let snd_wnd = (*window as u32) << peer.shift.unwrap_or(0);
        let pass_on = segment.payload > 0 || segment.fin();
        self.early.acknowledged = early;
        Disposition::Established(Established { pass_on, ..self.established(now, irs, peer, newest, snd_wnd) })
    }

    /// The acceptability test of RFC 9293 section 3.4, table 6, with this host's window at `rcv_nxt`.
    fn acceptable(&self, segment: &Segment, rcv_nxt: Seq) -> bool {
        let (seq, len, window) = (segment.header.seq, segment.len(), self.offer.window as u32);
        seq.within(rcv_nxt, window) || (len > 0 && (seq + (len - 1)).within(rcv_nxt, window))
    }

    fn established(&self, now: Nanos, irs: Seq, peer: &Peer, recent: u32, snd_wnd: u32) -> Established {
        Established {
            agreed: self.offer.agree(peer),
            iss: self.iss,
            irs,
            snd_wnd,
            ts_recent: recent,
            acknowledge: false,
            pass_on: false,
            rtt: (self.sent == 1).then(|| now.saturating_sub(self.first_sent)),
            early: self.early.acknowledged,
            written: if self.is_passive() { 0 } else { self.early.written },
            answered: 0,
        }
    }
}

impl HandshakeState {
    fn received(offer: &Offer, syn: &Segment, passive: bool) -> HandshakeState {
        let recent = syn.header.options.timestamps.map_or(0, |stamp| stamp.value);
        HandshakeState::SynReceived { irs: syn.header.seq, peer: offer.read(&syn.header), recent, passive }
    }
}

fn header(tuple: &FourTuple, seq: Seq, ack: Seq, flags: Flags, window: u16, options: Options) -> Header {
    Header { src_port: tuple.local_port, dst_port: tuple.remote_port, seq, ack, flags, window, options }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use std::net::Ipv4Addr;

    pub(crate) const TUPLE: FourTuple = FourTuple {
        local_ip: wire::IpAddress::v4(Ipv4Addr::new(10, 0, 0, 1)),
        remote_ip: wire::IpAddress::v4(Ipv4Addr::new(10, 0, 0, 2)),
        local_port: 1,
        remote_port: 2,
    };

    /// A segment to [`TUPLE`] without options.
    pub(crate) fn segment(flags: Flags, seq: u32, ack: u32, payload: u32) -> Segment {
        let (src_port, dst_port) = (TUPLE.remote_port, TUPLE.local_port);
        let (seq, ack) = (Seq(seq), Seq(ack));
        let header = Header { src_port, dst_port, seq, ack, flags, window: 1000, options: Options::default() };
        Segment { tuple: TUPLE, header, payload }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{TUPLE, segment};
    use super::*;

    const ISS: u32 = 100;
    const IRS: u32 = 300;
    const OFFER: Offer = Offer {
        mss: 1460,
        shift: 2,
        window: 5000,
        ecn: true,
        ecn_tries: 1,
        timestamp_offset: 0,
        timestamps: true,
        sack: true,
    };
    const SYN: Flags = Flags::SYN;
    const ACK: Flags = Flags::ACK;
    const RST: Flags = Flags::RST;
    const FIN: Flags = Flags::FIN;

    fn syn_sent() -> Handshake {
        let mut handshake = Handshake::connect(0, Seq(ISS), OFFER);
        handshake.syn(0, &TUPLE);
        handshake
    }

    fn syn_received() -> Handshake {
        let mut handshake = Handshake::listen(0, Seq(ISS), OFFER, &segment(SYN, IRS, 0, 0));
        handshake.syn(0, &TUPLE);
        handshake
    }

    fn simultaneous() -> Handshake {
        let mut handshake = syn_sent();
        assert_eq!(handshake.on_segment(0, &segment(SYN, IRS, 0, 0)), Disposition::Resend);
        handshake
    }

    /// What a disposition comes to, without its particulars.
    fn kind(disposition: Disposition) -> &'static str {
        match disposition {
            Disposition::Drop(_) => "drop",
            Disposition::Challenge(_) => "challenge",
            Disposition::Reset(_) => "reset",
            Disposition::Resend => "resend",
            Disposition::Refused => "refused",
            Disposition::Established(_) => "established",
        }
    }

    fn check(make: fn() -> Handshake, table: &[(Flags, u32, u32, u32, &str)]) {
        for (flags, seq, ack, payload, expected) in table {
            let disposition = make().on_segment(1000, &segment(*flags, *seq, *ack, *payload));
            assert_eq!(kind(disposition), *expected, "{flags:?} seq {seq} ack {ack} payload {payload}");
        }
    }

    #[test]
    fn syn_sent_follows_section_3_10_7_3() {
        check(
            syn_sent,
            &[
                (SYN | ACK, IRS, ISS + 1, 0, "established"),
                (SYN | ACK, IRS, ISS + 1, 10, "established"),
                (SYN | ACK, IRS, ISS, 0, "reset"),
                (SYN | ACK, IRS, ISS + 2, 0, "reset"),
                (ACK, IRS, ISS + 9, 0, "reset"),
                (ACK, IRS, ISS + 1, 0, "drop"),
                (SYN, IRS, 0, 0, "resend"),
                (RST | ACK, 0, ISS + 1, 0, "refused"),
                (RST | ACK, 0, ISS, 0, "drop"),
                (RST, 0, 0, 0, "drop"),
                (FIN, IRS, 0, 0, "drop"),
            ],
        );
    }

    // Checks RFC 9293: MUST-11.
    #[test]
    fn syn_received_follows_section_3_10_7_4() {
        check(
            syn_received,
            &[
                (ACK, IRS + 1, ISS + 1, 0, "established"),
                (ACK, IRS + 1, ISS + 1, 100, "established"),
                (FIN | ACK, IRS + 1, ISS + 1, 0, "established"),
                (ACK, IRS + 1, ISS, 0, "reset"),
                (ACK, IRS + 1, ISS + 2, 0, "reset"),
                (SYN, IRS, 0, 0, "resend"),
                (SYN | ACK, IRS, ISS + 1, 0, "resend"),
                (SYN, IRS + 100, 0, 0, "challenge"),
                (SYN, IRS + 100_000, 0, 0, "challenge"),
                (ACK, IRS + 100_000, ISS + 1, 0, "challenge"),
                (RST, IRS + 1, 0, 0, "refused"),
                (RST, IRS + 2, 0, 0, "challenge"),
                (RST, IRS + 100_000, 0, 0, "drop"),
                (FIN, IRS + 1, 0, 0, "drop"),
            ],
        );
    }

    // Checks RFC 9293: MUST-10.
    #[test]
    fn a_simultaneous_open_ends_with_either_acknowledgement() {
        check(
            simultaneous,
            &[
                (SYN | ACK, IRS, ISS + 1, 0, "established"),
                (ACK, IRS + 1, ISS + 1, 0, "established"),
                (SYN, IRS, 0, 0, "resend"),
                (RST, IRS + 1, 0, 0, "refused"),
            ],
        );
        let answer = simultaneous().syn(0, &TUPLE);
        assert_eq!((answer.seq, answer.ack, answer.flags), (Seq(ISS), Seq(IRS + 1), SYN | ACK));
    }

    // Checks RFC 3168: 6.1.1-a, 6.1.1.1-a.
    #[test]
    fn ecn_is_offered_once_and_answered_only_where_offered() {
        let mut active = Handshake::connect(0, Seq(ISS), OFFER);
        assert_eq!(active.syn(0, &TUPLE).flags, SYN | Flags::ECE | Flags::CWR);
        assert_eq!(active.syn(0, &TUPLE).flags, SYN, "the second try falls back");
        let mut patient = Handshake::connect(0, Seq(ISS), Offer { ecn_tries: 2, ..OFFER });
        let offers = [(); 3].map(|()| patient.syn(0, &TUPLE).flags.has(Flags::ECE));
        assert_eq!(offers, [true, true, false], "a DCTCP flow's third");
        let plain = syn_received().syn(0, &TUPLE);
        assert_eq!(plain.flags, SYN | ACK);
        let offered = segment(SYN | Flags::ECE | Flags::CWR, IRS, 0, 0);
        let answer = Handshake::listen(0, Seq(ISS), OFFER, &offered).syn(0, &TUPLE);
        assert_eq!(answer.flags, SYN | ACK | Flags::ECE);
        for (flags, agreed) in [(Flags::ECE, true), (Flags::ECE | Flags::CWR, false), (Flags(0), false)] {
            let answer = segment(SYN | ACK | flags, IRS, ISS + 1, 0);
            let Disposition::Established(open) = syn_sent().on_segment(0, &answer) else { panic!("not open") };
            assert_eq!(open.agreed.ecn, agreed, "{flags:?}");
        }
    }

    #[test]
    fn an_old_timestamp_does_not_open_a_connection() {
        let mut syn = segment(SYN, IRS, 0, 0);
        syn.header.options.timestamps = Some(Timestamps { value: 50, echo: 0 });
        let mut handshake = Handshake::listen(0, Seq(ISS), OFFER, &syn);
        let mut ack = segment(ACK, IRS + 1, ISS + 1, 0);
        ack.header.options.timestamps = Some(Timestamps { value: 49, echo: 0 });
        assert_eq!(handshake.on_segment(0, &ack), Disposition::Challenge(Unacceptable::Paws));
        ack.header.options.timestamps = Some(Timestamps { value: 51, echo: 0 });
        let Disposition::Established(open) = handshake.on_segment(0, &ack) else { panic!("not open") };
        assert_eq!(open.timestamps(), Some(crate::TimestampState { recent: 51, offset: 0 }));
    }

    #[test]
    fn a_syn_sent_twice_gives_no_round_trip_time() {
        let answer = segment(SYN | ACK, IRS, ISS + 1, 0);
        let Disposition::Established(open) = syn_sent().on_segment(777, &answer) else { panic!("not open") };
        assert_eq!((open.rtt, open.acknowledge), (Some(777), true));
        let mut dsack = syn_sent();
        dsack.syn(500, &TUPLE);
        let Disposition::Established(open) = dsack.on_segment(777, &answer) else { panic!("not open") };
        assert_eq!(open.rtt, None);
    }

    // Checks RFC 7323: 2.2-b, 3.2-d, 2.2-c.
    #[test]
    fn the_window_of_a_syn_is_not_scaled() {
        let mut peer = segment(SYN, IRS, 0, 0);
        let stamp = Some(Timestamps { value: 9, echo: 0 });
        peer.header.options = Options { window_scale: Some(3), timestamps: stamp, ..Options::default() };
        let mut handshake = Handshake::listen(0, Seq(ISS), OFFER, &peer);
        assert_eq!(handshake.syn(0, &TUPLE).window, OFFER.window);
        let syn = Handshake::connect(0, Seq(ISS), OFFER).syn(0, &TUPLE);
        assert_eq!((syn.window, syn.options.timestamps.unwrap().echo), (OFFER.window, 0));
        // The acknowledgement's is, by the shift of the SYN; a shift that stands on it means nothing.
        let mut ack = segment(ACK, IRS + 1, ISS + 1, 0);
        ack.header.options = Options { window_scale: Some(9), ..peer.header.options };
        let Disposition::Established(open) = handshake.on_segment(0, &ack) else { panic!("not open") };
        assert_eq!((open.snd_wnd, open.agreed.snd_shift), (1000 << 3, 3));
    }

    // Checks RFC 7413: 4.2.1-c, 4.1.3.1-a.
    #[test]
    fn a_syn_with_data_may_be_acknowledged_with_it_or_without() {
        let cookie = Cookie::new(&[7; 8]);
        let early = || {
            let mut handshake = Handshake::connect(0, Seq(ISS), OFFER).connect_early(cookie, 10);
            assert_eq!(handshake.syn(0, &TUPLE).options.fast_open, cookie);
            assert!(handshake.is_early() && !handshake.early_was_lost());
            handshake
        };
        for (ack, taken) in [(ISS + 1, 0), (ISS + 4, 3), (ISS + 11, 10)] {
            let mut handshake = early();
            match handshake.on_segment(5, &segment(SYN | ACK, IRS, ack, 0)) {
                Disposition::Established(open) => {
                    assert_eq!((open.early, open.rtt, open.written), (taken, Some(5), 10));
                    assert_eq!(open.acknowledge, taken == 10, "the rest acknowledges the SYN-ACK");
                }
                other => panic!("{other:?}"),
            }
            assert_eq!(handshake.ack(5, &TUPLE).seq, Seq(ack));
        }
        for ack in [ISS, ISS + 12] {
            let answer = early().on_segment(5, &segment(SYN | ACK, IRS, ack, 0));
            assert_eq!(kind(answer), "reset", "{ack}");
        }
        assert_eq!(kind(early().on_segment(5, &segment(ACK, IRS, ISS + 11, 5))), "drop", "it overtook the SYN-ACK");
        let mut closed = segment(SYN | ACK, IRS, ISS + 1, 0);
        closed.header.window = 0;
        let Disposition::Established(open) = early().on_segment(5, &closed) else { panic!("not open") };
        assert!(open.acknowledge, "nothing else goes");
        let more = early().with_written(11).on_segment(5, &segment(SYN | ACK, IRS, ISS + 11, 0));
        let Disposition::Established(open) = more else { panic!("not open") };
        assert_eq!((open.acknowledge, open.early, open.written), (false, 10, 11));
        let mut again = early();
        let header = again.syn(9, &TUPLE);
        assert_eq!((header.options.fast_open, again.is_early(), again.early_was_lost()), (None, false, true));
        let mut both = early();
        assert_eq!(both.on_segment(5, &segment(SYN, IRS, 0, 0)), Disposition::Resend);
        assert_eq!(both.syn(5, &TUPLE).options.fast_open, None);
        assert_eq!(kind(both.on_segment(6, &segment(ACK, IRS + 1, ISS + 11, 0))), "established");
    }

    // Checks RFC 7413: 4.2.2-b, 4.2.2-c.
    #[test]
    fn the_data_of_a_syn_is_acknowledged_with_it() {
        let syn = segment(SYN, IRS, 0, 25);
        let cookie = Cookie::new(&[9; 8]);
        let handshake = Handshake::listen(0, Seq(ISS), OFFER, &syn).with_cookie(cookie);
        let (mut handshake, open) = handshake.accept_early(&syn, 25);
        assert_eq!((open.irs, open.snd_wnd, open.early, open.rtt), (Seq(IRS), 1000, 0, None));
        for _ in 0..2 {
            let header = handshake.syn(0, &TUPLE);
            assert_eq!((header.ack, header.options.fast_open), (Seq(IRS + 26), cookie));
        }
        assert_eq!(handshake.ack(0, &TUPLE).ack, Seq(IRS + 26));
    }
}
