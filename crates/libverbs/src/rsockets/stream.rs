//! A connected stream: bytes go by WRITE into the peer's receive buffers, which the peer writes to a table of ours.
//!
//! The receive buffer is a ring of two halves. Each half is advertised to the peer by itself, and filled before the
//! next one. So the ring is filled in order, and messages only have how many bytes have come.
use super::protocol::{Connection, Mapping, Message, RemoteBuffer, TARGETS};
use super::queue::{Depth, Done, Queue, Write};
use super::registered::{Access, Buffer};
use super::settings::Sizes;
use crate::abi::RdmaCmId;
use crate::cm::Id;
use crate::errno::Result;
use std::os::fd::RawFd;

/// Control messages that may be under way.
const CONTROLS: u32 = 4;
/// Bytes of the send buffer below which nothing is sent: small pieces cost as much as large ones.
const LEAST_ROOM: usize = 2048;
/// Bytes of a message at most, so that copying the next one and sending this one overlap.
const MOST_BYTES: usize = 1 << 16;

/// A stream. Numbers of messages have 16 bits and wrap.
pub(super) struct Stream {
    queue: Queue,
    sizes: Sizes,
    /// The tables that the peer writes: its receive buffers, then its mappings.
    table: Buffer,
    sending: Sending,
    receiving: Receiving,
    peer: Connection,
    end: End,
}

struct Sending {
    buffer: Buffer,
    /// Where the next byte goes, and how many are free.
    at: usize,
    room: usize,
    /// Work requests that may be posted.
    slots: u32,
    controls: u32,
    /// The entry of the table that is filled.
    target: usize,
    /// Messages sent, and allowed.
    sent: u16,
    allowed: u16,
}

struct Receiving {
    buffer: Buffer,
    /// Where the next byte is read, and how many there are.
    at: usize,
    arrived: usize,
    /// Bytes that the peer may write.
    open: usize,
    /// Bytes that were read and are not advertised as free yet, and where those begin.
    free: usize,
    free_at: usize,
    /// Bytes of messages that are not read, message by message.
    messages: std::collections::VecDeque<u32>,
    /// Messages read, and at which number the peer is notified of it.
    read: u16,
    report_at: u16,
    /// The entry of the peer's table that is written next.
    entry: usize,
}

/// What is over.
#[derive(Debug, Clone, Copy, Default)]
struct End {
    /// The peer sends no more.
    peer_sends: bool,
    /// The peer is gone.
    peer: bool,
    /// This side sends no more; takes no more.
    sends: bool,
    takes: bool,
    /// Messages cannot go on.
    broken: bool,
}

impl Stream {
    /// For an identifier that has a device.
    ///
    /// # Safety
    /// The identifier is not destroyed before the stream.
    pub(super) unsafe fn new(id: *mut RdmaCmId, sizes: Sizes) -> Result<Stream> {
        // SAFETY: as the caller guarantees.
        let service = unsafe { Id::of(id) }.seat().service;
        let domain = service.domain()?;
        let half = (sizes.receive / TARGETS).max(1);
        let sizes = Sizes { receive: half * TARGETS, ..sizes };
        let depth = Depth {
            send: u32::from(sizes.send_queue) + CONTROLS,
            receive: u32::from(sizes.receive_queue) + CONTROLS,
            inline: sizes.inline.max(size_of::<Mapping>() as u32),
        };
        let table = TARGETS * size_of::<RemoteBuffer>() + sizes.mappings as usize * size_of::<Mapping>();
        // SAFETY: as the caller guarantees; the service's domain stays.
        unsafe {
            Ok(Stream {
                queue: Queue::new(service, id, depth)?,
                sizes,
                table: Buffer::new(domain, table, Access::Peer)?,
                sending: Sending {
                    buffer: Buffer::new(domain, sizes.send, Access::Own)?,
                    at: 0,
                    room: sizes.send,
                    slots: sizes.send_queue.into(),
                    controls: 0,
                    target: 0,
                    sent: 0,
                    allowed: 0,
                },
                receiving: Receiving {
                    buffer: Buffer::new(domain, sizes.receive, Access::Peer)?,
                    at: 0,
                    arrived: 0,
                    open: half,
                    free: half,
                    free_at: half,
                    messages: std::collections::VecDeque::new(),
                    read: 0,
                    report_at: sizes.receive_queue / 2,
                    entry: 1,
                },
                peer: Connection {
                    credits: 0,
                    mappings: 0,
                    table: RemoteBuffer::default(),
                    buffer: RemoteBuffer::default(),
                },
                end: End::default(),
            })
        }
    }

    /// What is to be reported to the peer.
    pub(super) fn offered(&self) -> Connection {
        let place = |buffer: &Buffer, len: usize| RemoteBuffer {
            address: buffer.address(0),
            key: buffer.key(),
            len: len as u32,
        };
        Connection {
            credits: self.sizes.receive_queue,
            mappings: self.sizes.mappings,
            table: place(&self.table, TARGETS),
            buffer: place(&self.receiving.buffer, self.half()),
        }
    }

    /// The peer has advertised this: bytes may go.
    pub(super) fn begin(&mut self, peer: Connection) {
        self.table.store(0, peer.buffer);
        self.sending.allowed = peer.credits;
        self.receiving.entry = 1 % peer.table.len.max(1) as usize;
        self.peer = peer;
    }

    /// Takes completions, and reports to the peer what is free.
    pub(super) fn progress(&mut self) {
        let Stream { queue, sizes, sending, receiving, end, .. } = self;
        let mut again = 0;
        queue.poll(|done| match done {
            Done::Received(message) => {
                again += 1;
                match message {
                    Message::Data(bytes) => end.broken |= !receiving.add(bytes, sizes.receive_queue),
                    Message::Credits(number) => sending.allowed = number,
                    Message::Disconnect => (end.peer, end.peer_sends) = (true, true),
                    Message::Shutdown => end.peer_sends = true,
                    Message::Mapping(_) | Message::Other => {}
                }
            }
            Done::Control => sending.controls -= 1,
            Done::Sent(bytes) => {
                sending.slots += 1;
                sending.room += bytes as usize;
            }
            Done::Failed => end.broken = true,
        });
        for _ in 0..again {
            end.broken |= queue.post_receive().is_err();
        }
        self.send_credits();
    }

    /// Notifies the peer of free messages, and of a half that is read.
    fn send_credits(&mut self) {
        let half = self.half();
        let has_half = self.receiving.free >= half;
        let many = self.receiving.read.wrapping_sub(self.receiving.report_at) < 1 << 15;
        if !(has_half || many) || !self.can_control() || self.end.peer_sends {
            return;
        }
        let receiving = &mut self.receiving;
        receiving.report_at = receiving.read.wrapping_add(self.sizes.receive_queue / 2);
        let message = Message::Credits(receiving.read.wrapping_add(self.sizes.receive_queue));
        if !has_half {
            return self.control(&[], RemoteBuffer::default(), message);
        }
        let place = RemoteBuffer {
            address: receiving.buffer.address(receiving.free_at),
            key: receiving.buffer.key(),
            len: half as u32,
        };
        let to = entry(&self.peer.table, receiving.entry);
        receiving.free -= half;
        receiving.open += half;
        receiving.free_at = (receiving.free_at + half) % self.sizes.receive;
        receiving.entry = (receiving.entry + 1) % self.peer.table.len.max(1) as usize;
        let mut bytes = [0; size_of::<RemoteBuffer>()];
        bytes[..8].copy_from_slice(&place.address.to_ne_bytes());
        bytes[8..12].copy_from_slice(&place.key.to_ne_bytes());
        bytes[12..].copy_from_slice(&place.len.to_ne_bytes());
        self.control(&bytes, to, message);
    }

    fn control(&mut self, bytes: &[u8], to: RemoteBuffer, message: Message) {
        let from = RemoteBuffer { address: bytes.as_ptr().expose_provenance() as u64, key: 0, len: bytes.len() as u32 };
        let write = Write { from, to, message: Some(message), is_control: true };
        match self.queue.post_write(&write, 0) {
            Ok(()) => self.sending.controls += 1,
            Err(_) => self.end.broken = true,
        }
    }

    /// A control message can go.
    pub(super) fn can_control(&self) -> bool {
        self.sending.controls < CONTROLS && !self.is_over() && self.peer.table.len > 0
    }

    /// Bytes can be sent.
    pub(super) fn can_send(&self) -> bool {
        let sending = &self.sending;
        self.can_write() && sending.sent != sending.allowed && self.target().len > 0
    }

    /// Bytes can be written to a mapping.
    pub(super) fn can_write(&self) -> bool {
        let sending = &self.sending;
        sending.slots > 0 && sending.room >= LEAST_ROOM.min(self.sizes.send / 4) && !self.is_over()
    }

    /// Sends as much as has room now: how many bytes.
    pub(super) fn send(&mut self, bytes: &[u8]) -> usize {
        let mut left = bytes;
        while !left.is_empty() && self.can_send() {
            let target = self.target();
            let piece = &left[..left.len().min(target.len as usize).min(MOST_BYTES).min(self.contiguous())];
            let count = piece.len() as u32;
            let remaining =
                RemoteBuffer { address: target.address.wrapping_add(count.into()), len: target.len - count, ..target };
            // Before the bytes go: the peer may advertise a new buffer in this place as soon as it has the last of
            // them.
            self.table.store(self.sending.target * size_of::<RemoteBuffer>(), remaining);
            if !self.post(piece, target, Some(Message::Data(count))) {
                break;
            }
            if remaining.len == 0 {
                self.sending.target = (self.sending.target + 1) % TARGETS;
            }
            self.sending.sent = self.sending.sent.wrapping_add(1);
            left = &left[piece.len()..];
        }
        bytes.len() - left.len()
    }

    /// Writes to a mapping of the peer as much as has room now: how many bytes. EINVAL where none is at the offset.
    pub(super) fn write_to(&mut self, offset: u64, bytes: &[u8]) -> Result<usize> {
        let mut done = 0;
        while done < bytes.len() && self.can_write() {
            let at = offset + done as u64;
            let Some(to) = self.mapping(at) else {
                return if done > 0 { Ok(done) } else { Err(libc::EINVAL) };
            };
            let most = self.contiguous().min(to.len as usize).min(MOST_BYTES);
            let piece = &bytes[done..][..most.min(bytes.len() - done)];
            if !self.post(piece, to, None) {
                break;
            }
            done += piece.len();
        }
        Ok(done)
    }

    /// What is mapped at an offset, from there to its end.
    fn mapping(&self, offset: u64) -> Option<RemoteBuffer> {
        let first = TARGETS * size_of::<RemoteBuffer>();
        (0..self.sizes.mappings as usize).find_map(|index| {
            let Mapping { offset: begin, place } = self.table.load(first + index * size_of::<Mapping>());
            let inside = offset.checked_sub(begin).filter(|inside| *inside < place.len.into())?;
            Some(RemoteBuffer { address: place.address.wrapping_add(inside), len: place.len - inside as u32, ..place })
        })
    }

    /// Notifies the peer of a mapping. `index` is one of its table.
    pub(super) fn map(&mut self, index: u32, mapping: Mapping) {
        let table = self.peer.table;
        let behind =
            u64::from(table.len) * size_of::<RemoteBuffer>() as u64 + u64::from(index) * size_of::<Mapping>() as u64;
        let mut bytes = [0; size_of::<Mapping>()];
        bytes[..8].copy_from_slice(&mapping.offset.to_ne_bytes());
        bytes[8..16].copy_from_slice(&mapping.place.address.to_ne_bytes());
        bytes[16..20].copy_from_slice(&mapping.place.key.to_ne_bytes());
        bytes[20..].copy_from_slice(&mapping.place.len.to_ne_bytes());
        let to = RemoteBuffer { address: table.address.wrapping_add(behind), ..table };
        self.control(&bytes, to, Message::Mapping(index));
    }

    /// Mappings that the peer's table has room for.
    pub(super) fn peer_mappings(&self) -> u32 {
        self.peer.mappings
    }

    /// Copies bytes to the send buffer and posts them.
    fn post(&mut self, bytes: &[u8], to: RemoteBuffer, message: Option<Message>) -> bool {
        let sending = &mut self.sending;
        sending.buffer.write(sending.at, bytes);
        let from = RemoteBuffer {
            address: sending.buffer.address(sending.at),
            key: sending.buffer.key(),
            len: bytes.len() as u32,
        };
        let write = Write { from, to, message, is_control: false };
        if self.queue.post_write(&write, self.sizes.inline).is_err() {
            self.end.broken = true;
            return false;
        }
        sending.at = (sending.at + bytes.len()) % self.sizes.send;
        sending.room -= bytes.len();
        sending.slots -= 1;
        true
    }

    /// Free bytes of the send buffer that follow each other.
    fn contiguous(&self) -> usize {
        self.sending.room.min(self.sizes.send - self.sending.at)
    }

    /// The peer's receive buffer that is filled.
    fn target(&self) -> RemoteBuffer {
        self.table.load(self.sending.target * size_of::<RemoteBuffer>())
    }

    /// Takes bytes that have arrived: how many. `keep` leaves them for the next call.
    pub(super) fn receive(&mut self, into: &mut [u8], keep: bool) -> usize {
        let size = self.sizes.receive;
        let receiving = &mut self.receiving;
        let count = into.len().min(receiving.arrived);
        let first = count.min(size - receiving.at);
        let (head, tail) = into[..count].split_at_mut(first);
        receiving.buffer.read(receiving.at, head);
        receiving.buffer.read(0, tail);
        if !keep {
            receiving.take(count, size);
            self.send_credits();
        }
        count
    }

    /// Bytes that can be received.
    pub(super) fn arrived(&self) -> usize {
        self.receiving.arrived
    }

    /// Nothing will arrive beyond what has.
    pub(super) fn is_at_end(&self) -> bool {
        self.end.peer_sends || self.end.takes || self.end.broken
    }

    /// The connection broke without the peer's word.
    pub(super) fn is_broken(&self) -> bool {
        self.end.broken && !self.end.peer
    }

    /// Nothing can be sent any more.
    pub(super) fn is_over(&self) -> bool {
        self.end.broken || self.end.peer
    }

    /// This side has ended its half of the stream.
    pub(super) fn has_shut(&self) -> bool {
        self.end.sends
    }

    /// The peer is gone, by connection management.
    pub(super) fn lost(&mut self) {
        self.end.broken = true;
    }

    /// This side takes no more.
    pub(super) fn stop_taking(&mut self) {
        self.end.takes = true;
    }

    /// Reports that this side sends no more, or neither sends nor takes. Needs room for a control message.
    pub(super) fn shut(&mut self, both: bool) {
        let message = if both || self.end.peer_sends { Message::Disconnect } else { Message::Shutdown };
        (self.end.sends, self.end.takes) = (true, self.end.takes || both);
        self.control(&[], RemoteBuffer::default(), message);
    }

    /// All that was sent is in the peer's memory.
    pub(super) fn is_quiet(&self) -> bool {
        self.is_over() || (self.sending.slots == u32::from(self.sizes.send_queue) && self.sending.controls == 0)
    }

    /// The descriptor that becomes readable with what happens next.
    pub(super) fn fd(&self) -> RawFd {
        self.queue.completions.fd()
    }

    /// See [`super::completions::Completions::arm`].
    pub(super) fn arm(&mut self) {
        self.queue.completions.arm();
        self.progress();
    }

    /// Takes what the descriptor has.
    pub(super) fn drain(&mut self) {
        self.queue.completions.drain();
        self.end.broken |= !self.queue.completions.is_alive();
    }

    fn half(&self) -> usize {
        self.sizes.receive / TARGETS
    }
}

impl Receiving {
    /// So many bytes were written; false where there was no room for them, or for one of `most` messages.
    fn add(&mut self, bytes: u32, most: u16) -> bool {
        let Some(open) = self.open.checked_sub(bytes as usize) else { return false };
        if self.messages.len() >= most.into() {
            return false;
        }
        self.open = open;
        self.arrived += bytes as usize;
        self.messages.push_back(bytes);
        true
    }

    /// So many bytes were read, of a ring of `size` bytes.
    fn take(&mut self, count: usize, size: usize) {
        self.at = (self.at + count) % size;
        self.arrived -= count;
        self.free += count;
        let mut left = count as u32;
        while let Some(message) = self.messages.front_mut() {
            if *message > left {
                *message -= left;
                return;
            }
            left -= *message;
            self.messages.pop_front();
            self.read = self.read.wrapping_add(1);
        }
    }
}

/// Where an entry of a peer's table is.
fn entry(table: &RemoteBuffer, index: usize) -> RemoteBuffer {
    RemoteBuffer { address: table.address.wrapping_add((index * size_of::<RemoteBuffer>()) as u64), ..*table }
}
