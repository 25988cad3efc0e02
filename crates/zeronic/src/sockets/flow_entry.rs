//! A connection in the NIC's half: where its payload lies, and which of it may be written.
use super::direct::{Direct, Part, place};
use super::referred::{Referred, Rows};
use engine::stream::{FlowEnd, FlowParams, FlowStats};
use shm::{ByteRing, Pooled, Span};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use wire::{CompactTuple, Mac, Seq};

/// Whether the engine takes a connection's segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It does.
    Goes,
    /// The engine was asked to let it stand still, and has not answered.
    Asked,
    /// Its segments go to the control plane, as they are.
    Still,
    /// It does, with their payload.
    Whole,
}

/// A connection.
pub(super) struct FlowEntry {
    pub(super) tuple: CompactTuple,
    /// This host's hardware address.
    pub(super) station: Mac,
    rx: Arc<ByteRing>,
    tx: Arc<ByteRing>,
    /// What the engine takes for `rx`.
    blank: Arc<ByteRing>,
    /// Sequence number of the first byte of each stream.
    rx_begin: Seq,
    tx_begin: Seq,
    /// The right edge of the window: the peer was never promised more.
    edge: Seq,
    /// Bytes that the peer is offered at most.
    offered: u32,
    /// The application has read this far at least: each edge lies no further ahead than what was offered then.
    read: Seq,
    /// Shift of the windows that this host sends.
    shift: u8,
    /// The port computes no checksums.
    pub(super) completes: bool,
    stats: Pooled<FlowStats>,
    /// How far the application has written, in the control plane's state.
    written: u32,
    pub(super) standing: Standing,
    /// Sequence number behind the last byte that a capture has.
    pub(super) recorded: Option<Seq>,
    /// Where bytes may land in the program's memory.
    pub(super) direct: Option<Box<Direct>>,
    /// What is sent from the program's memory.
    pub(super) referred: Option<Box<Referred>>,
}

/// Where bytes of a transmit stream lie.
pub(super) enum Outgoing {
    /// In one row of the ring.
    Ring(Span),
    /// In one row of the program's memory.
    Program(Span),
    /// In several, in the ring and in the program's memory.
    Rows,
    /// Nowhere: they are more than the buffer holds.
    Nowhere,
}

/// What figure 8 makes of a segment.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Placement {
    /// All of it lies below the cursor.
    Old,
    /// `len` bytes from byte `skip` of the payload on have a place.
    At { skip: u32, len: u32 },
    /// The peer was promised none of it.
    None,
}

impl FlowEntry {
    /// `blank` is what the engine is to take for the receive buffer; none where the engine has the payload.
    pub(super) fn new(params: &FlowParams, blank: Option<&Arc<ByteRing>>) -> FlowEntry {
        // The cursor, until the engine moves it.
        params.stats.rcv_nxt.store(params.rcv_nxt.0, Relaxed);
        FlowEntry {
            tuple: params.tuple.into(),
            station: params.local_mac,
            rx: Arc::clone(&params.rx),
            tx: Arc::clone(&params.tx),
            blank: Arc::clone(blank.unwrap_or(&params.rx)),
            rx_begin: params.rcv_nxt - params.rx_pos,
            tx_begin: params.snd_nxt - params.tx_pos,
            edge: params.rcv_nxt + params.rx.usual(),
            offered: params.rx.usual(),
            read: params.rcv_nxt,
            shift: params.agreed.rcv_shift,
            completes: !params.checksum_offload,
            stats: params.stats.clone(),
            written: params.tx_pos,
            standing: if blank.is_some() { Standing::Goes } else { Standing::Whole },
            recorded: None,
            direct: None,
            referred: None,
        }
    }

    /// It goes on where another engine left it. Returns the number of the ring in which its received stream is.
    pub(super) fn resume(&mut self, end: &FlowEnd) -> u8 {
        self.stats.rcv_nxt.store(end.rcv_nxt.0, Relaxed);
        self.read = end.rcv_nxt - end.unread;
        if let Some(resume) = &end.resume {
            self.edge = end.rcv_nxt + resume.window.min(self.rx.most());
        }
        // The application may have written a wrong position of its ring.
        match self.standing {
            Standing::Whole => self.rx.number(),
            _ => self.outgrow(end.rcv_nxt),
        }
    }

    /// The peer may be offered so many bytes.
    pub(super) fn offer(&mut self, bytes: u32) {
        self.offered = self.offered.max(bytes.min(self.rx.most()));
    }

    /// The application has written so far.
    pub(super) fn written(&mut self, tx_head: u32) {
        self.written = Seq(self.written).max(Seq(tx_head)).0;
    }

    /// The sequence number up to which the engine has the stream in order. Bytes below it are the application's.
    pub(super) fn cursor(&self) -> Seq {
        Seq(self.stats.rcv_nxt.load(Relaxed))
    }

    /// A segment of the engine's advertises a window.
    pub(super) fn promise(&mut self, ack: Seq, window: u16) {
        let edge = ack + (u32::from(window) << self.shift);
        if self.edge.before(edge) {
            self.edge = edge;
            // What is not in order nobody has read, whatever the engine promises.
            let (read, cursor) = (edge - self.offered, self.cursor());
            self.read = self.read.max(if cursor.before(read) { cursor } else { read });
        }
    }

    /// Where `len` bytes from `seq` on belong.
    pub(super) fn place(&self, seq: Seq, len: u32) -> Placement {
        let (cursor, end) = (self.cursor(), seq + len);
        if end.at_or_before(cursor) {
            return Placement::Old;
        }
        let skip = if seq.before(cursor) { cursor - seq } else { 0 };
        let behind = if self.edge.before(end) { end - self.edge } else { 0 };
        match len.checked_sub(skip.saturating_add(behind)) {
            None | Some(0) => Placement::None,
            Some(len) => Placement::At { skip, len },
        }
    }

    /// Bytes up to `end` are about to be placed. Where the ring may not hold them beside what is unread, the stream
    /// goes on in the next one; returns its number.
    pub(super) fn outgrows(&mut self, end: Seq) -> Option<u8> {
        (end - self.read > self.rx.place()).then(|| self.outgrow(end))
    }

    #[cold]
    fn outgrow(&mut self, end: Seq) -> u8 {
        self.rx = self.rx.holding(self.read - self.rx_begin, end - self.rx_begin);
        self.rx.number()
    }

    /// Writes a part of a payload to its place. Returns how many bytes have landed in the program's memory.
    #[inline]
    pub(super) fn write(&mut self, seq: Seq, part: Part) -> u32 {
        let (pos, cursor) = (seq - self.rx_begin, self.position());
        match &mut self.direct {
            None => {
                place(&self.rx, pos, &part);
                0
            }
            Some(direct) => direct.place(&self.rx, cursor, pos, part),
        }
    }

    /// After a batch of frames. True where the program's memory still has a stretch.
    pub(super) fn release_stretch(&mut self) -> bool {
        let cursor = self.position();
        self.direct.as_mut().is_some_and(|direct| {
            direct.release(&self.rx, cursor);
            direct.is_listed = direct.has_stretch();
            direct.is_listed
        })
    }

    /// The connection ends here, or has another name from now on: no byte lands in the program's memory any more.
    pub(super) fn finish_stretch(&mut self) {
        let cursor = self.position();
        if let Some(mut direct) = self.direct.take() {
            direct.finish(&self.rx, cursor);
        }
    }

    /// The stream position that nothing has come beyond.
    pub(super) fn highest(&self) -> u32 {
        self.direct.as_ref().map_or(self.edge - self.rx_begin, |direct| direct.high)
    }

    /// The stream position of the cursor.
    fn position(&self) -> u32 {
        self.cursor() - self.rx_begin
    }

    /// These bytes were read from the ring: those that landed elsewhere are put in.
    pub(super) fn overlay(&self, seq: Seq, bytes: &mut [u8]) {
        if let Some(direct) = &self.direct {
            direct.overlay(seq - self.rx_begin, bytes);
        }
    }

    /// What lies in the receive buffer from a byte of the stream on; none where the buffer is shorter.
    pub(super) fn received(&self, seq: Seq, len: u32) -> Option<Span> {
        (len <= self.rx.size()).then(|| Span::new(&self.rx, seq - self.rx_begin, len))
    }

    /// Bytes of the transmit stream, wherever the application has put them.
    #[inline]
    pub(super) fn outgoing(&mut self, seq: Seq, len: u32) -> Outgoing {
        self.look();
        if len > self.tx.most() {
            return Outgoing::Nowhere;
        }
        let pos = seq - self.tx_begin;
        let Some(referred) = &mut self.referred else { return Outgoing::Ring(self.tx.span(pos, len)) };
        referred.look(Seq(self.stats.snd_una.load(Relaxed)) - self.tx_begin);
        let row = referred.row(pos, len);
        match referred.span(&row) {
            _ if row.len < len => Outgoing::Rows,
            Some(span) => Outgoing::Program(span),
            None => Outgoing::Ring(self.tx.span(pos, len)),
        }
    }

    /// The same from `seq` on, where they lie in several rows.
    pub(super) fn rows(&self, seq: Seq) -> Option<Rows<'_>> {
        let referred = self.referred.as_deref()?;
        Some(Rows { referred, ring: &self.tx, pos: seq - self.tx_begin, copied: 0, referred_to: 0 })
    }

    /// The transmit stream goes on where its application has put it.
    fn look(&mut self) {
        if let Some(ring) = self.tx.grown() {
            self.tx = ring;
        }
    }

    /// What stands for a segment's payload: just the bytes to which the engine copies it, so that it copies nothing.
    pub(super) fn dummy(&self, seq: Seq, len: u32) -> Option<Span> {
        (len <= self.blank.size()).then(|| Span::new(&self.blank, seq - self.rx_begin, len))
    }

    /// From now on its buffers are these, which are no smaller: what is in them goes along. Of the transmit buffer,
    /// only what was written: behind that, the application may write already.
    pub(super) fn move_to(&mut self, rx: Arc<ByteRing>, tx: Arc<ByteRing>, blank: Arc<ByteRing>) {
        self.look();
        let from = self.read - self.rx_begin;
        rx.write_span(from, &Span::new(&self.rx, from, self.rx.size().min(rx.size())));
        let una = Seq(self.stats.snd_una.load(Relaxed)) - self.tx_begin;
        let next = Seq(self.stats.snd_nxt.load(Relaxed)) - self.tx_begin;
        let head = Seq(next + self.stats.unsent.load(Relaxed)).max(Seq(self.written));
        let len = (head - Seq(una)).min(self.tx.size()).min(tx.size());
        tx.write_span(una, &Span::new(&self.tx, una, len));
        if let Some(mut referred) = self.referred.take() {
            // Who takes the connection over has none of the program's memory.
            referred.look(una);
            referred.copy_to(&tx, una, len);
        }
        (self.rx, self.tx, self.blank) = (rx, tx, blank);
    }
}
