//! Fast Open (RFC 7413) of half-open connections: what a client's SYN has of it, and what its answer teaches.
use super::Handshakes;
use crate::half_open::{HalfOpen, SynData};
use crate::outbox::Outbox;
use ::tcp::fast_open::First;
use ::tcp::{Established, Peer, Segment};
use context::EarlyData;
use engine::stream::FourTuple;
use port::Frame;
use wire::tcp::{Cookie, HEADER_LEN, MAX_HEADER_LEN};

/// The SYN of a connection that a program opens with data, or would.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EarlySyn {
    /// It goes at once, and may ask for a cookie.
    Goes(Option<Cookie>),
    /// It waits for data, of which it takes so much.
    Waits(Option<Cookie>, u16),
}

impl Handshakes {
    /// Fast Open part of the SYN to a peer, where `mss` bytes are a full segment.
    // Meets RFC 7413: 4.2.1-a, 4.2.1-b.
    pub(crate) fn early_syn(&self, out: &Outbox<'_>, tuple: &FourTuple, asked: EarlyData, mss: u16) -> EarlySyn {
        // The SYN has its options besides (RFC 9293 section 3.7.1).
        let waits = |option, mss: u16| match mss.saturating_sub((MAX_HEADER_LEN - HEADER_LEN) as u16) {
            0 => EarlySyn::Goes(option),
            room => EarlySyn::Waits(option, room),
        };
        let first = match asked {
            _ if !self.offers.fast_open_client => return EarlySyn::Goes(None),
            EarlyData::No => return EarlySyn::Goes(None),
            EarlyData::WithoutCookie => {
                return waits(None, mss.min(self.cookies.mss_of(tuple.remote_ip).unwrap_or(mss)));
            }
            EarlyData::WithCookie => self.cookies.first(out.now, tuple.remote_ip),
        };
        match first {
            First::Plain => EarlySyn::Goes(None),
            First::Asks => EarlySyn::Goes(Some(Cookie::REQUEST)),
            First::Carries(cookie, known) => waits(Some(cookie), mss.min(known)),
        }
    }

    /// A connection attempt begins with this SYN.
    pub(crate) fn begin_early(&mut self, key: u32, syn: EarlySyn) {
        let Some(half_open) = self.all.get_mut(key) else { return };
        match syn {
            EarlySyn::Goes(option) => half_open.handshake = half_open.handshake.clone().connect_early(option, 0),
            EarlySyn::Waits(cookie, room) => half_open.early = SynData::Awaited(cookie, room),
        }
    }

    /// Bytes of data that the SYN waits for.
    pub(crate) fn awaits(&self, key: u32) -> Option<u16> {
        match self.all.get(key)?.early {
            SynData::Awaited(_, room) => Some(room),
            _ => None,
        }
    }

    /// The data of a SYN that waited for it, and how much the program has written in all.
    pub(crate) fn give_data(&mut self, key: u32, data: Vec<u8>, written: u32) {
        let Some(half_open) = self.all.get_mut(key) else { return };
        if let SynData::Awaited(cookie, _) = half_open.early {
            let handshake = half_open.handshake.clone().connect_early(cookie, data.len() as u32);
            half_open.handshake = handshake.with_written(written);
            half_open.early = SynData::There(data);
        }
    }

    /// A SYN is answered: its cookie is remembered, and a path that lost another one.
    pub(super) fn learn(&mut self, out: &Outbox<'_>, key: u32, answer: &Segment) {
        let Some(half_open) = self.all.get(key).filter(|half_open| half_open.handshake.has_early()) else { return };
        let peer = half_open.tuple.remote_ip;
        if half_open.handshake.early_was_lost() {
            self.cookies.lost(out.now, peer);
        } else {
            let mss = Peer::read(&answer.header).mss;
            if half_open.handshake.early_bytes() > 0 {
                self.cookies.met(peer, mss);
            }
            self.cookies.answered(peer, answer.header.options.fast_open, mss);
        }
    }

    /// The SYN of a half-open connection was accepted with its data: it is open, and waits for a context that takes it.
    /// `None` where the data cannot be kept.
    pub(crate) fn accept_early(
        &mut self,
        out: &mut Outbox<'_>,
        key: u32,
        open: Established,
        data: Option<Box<Frame>>,
    ) -> Option<()> {
        // What the frame has is the SYN's; the engine gets it after the connection.
        let kept = data.is_none_or(|data| self.hold(out, key, data).is_none());
        let half_open = self.all.get_mut(key).filter(|_| kept)?;
        half_open.open = Some(open);
        out.counters.accepted += 1;
        Some(())
    }
}

impl HalfOpen {
    /// The data of the SYN that was just made: that of the first one only.
    // Meets RFC 7413: 4.1.3.1-a.
    pub(super) fn take_data(&mut self) -> Vec<u8> {
        match std::mem::replace(&mut self.early, SynData::No) {
            SynData::There(data) if self.handshake.is_early() => data,
            _ => Vec::new(),
        }
    }
}
