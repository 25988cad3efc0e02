//! The application's side of a context: its rings, and which socket a completion is for.
mod reports;

use crate::state::heap;
use crate::state::mapped_region::MappedRegion;
use crate::state::readiness;
use crate::state::set::EpollSet;
use crate::state::slab::{Key, Slab};
use crate::state::slot_state::SHUT_WRITE;
use crate::state::socket::{Kind, Socket};
use crate::state::stream::Stream;
use crate::system::sleep_set::Bells;
use crate::system::waking;
use crate::table;
use context::attach::Welcome;
use context::{AppEnd, Completion, Endpoint, LOG_SLOT, Reply, Request, Slot};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// What one slot of the data pair is used for.
#[derive(Clone, Copy)]
struct SlotUse {
    /// Index of its socket; or [`UNUSED`], or [`OVER`].
    socket: u32,
    /// The [`Completion::tag`] of the completions with positions only.
    tag: u32,
}

impl SlotUse {
    fn new(socket: u32, generation: u16) -> SlotUse {
        SlotUse { socket, tag: Completion::plain_tag(generation, 0) }
    }

    fn is_of(&self, slot: Slot) -> bool {
        self.tag as u16 == slot.generation
    }
}

/// No connection was in the slot yet.
const UNUSED: u32 = u32::MAX;
/// The connection of this generation was closed.
const OVER: u32 = u32::MAX - 1;

/// The tie to the daemon of an attached process.
pub(crate) struct Context {
    /// Our ends of the rings.
    pub end: AppEnd,
    /// Our region.
    pub home: Arc<MappedRegion>,
    /// The daemon's description of the host.
    pub welcome: Welcome,
    /// The user as which the process attached: a program may give up root later.
    pub user: libc::uid_t,
    /// Of the contexts that the process has had, which one: [`Lib::attached`] counts them from 1.
    pub number: u32,
    control: OwnedFd,
    slots: Vec<SlotUse>,
    /// Completions that overtook the reply that opens their connection, by slot: the two pairs are not ordered.
    early: BTreeMap<u32, Completion>,
    /// Listening sockets by binding.
    pub listeners: BTreeMap<u32, Key>,
    /// Sockets that are being connected, by tag.
    pub connects: BTreeMap<u32, Key>,
    /// Answers that threads wait for, by tag.
    pub answers: BTreeMap<u32, Option<Reply>>,
    last_tag: u32,
    /// The socket that is the process's shared log.
    pub log: Option<Key>,
    /// Connections whose bump found the ring full.
    pub pending: Vec<Key>,
    /// Connections with bytes that `MSG_MORE` or `TCP_CORK` holds back.
    pub held: Vec<Key>,
    /// Inherited connections that were closed here but never claimed.
    pub unclaimed: Vec<Box<Stream>>,
    /// Memory of the heap that closed connections still send from, until their slots are free.
    pub pins: Vec<(Slot, Vec<usize>)>,
    /// Drains that found nothing, of late.
    pub empty_drains: u32,
    /// Bytes copied since the thread last let others run.
    moved: u64,
}

/// Bytes that are copied at most until other programs on the core may run. They would wait for milliseconds where a
/// program always finds something to move.
const MOVED_MOST: u64 = 256 << 10;
/// Every so many drains that found nothing, check whether the daemon still lives.
pub(crate) const LIFE_CHECK: u32 = 1024;

impl Context {
    /// Bytes were copied for the program; reports whether others on its core are to run.
    #[inline]
    pub(crate) fn has_moved(&mut self, bytes: u32) -> bool {
        self.moved += u64::from(bytes);
        let enough = self.moved >= MOVED_MOST;
        if enough {
            self.moved = 0;
        }
        enough
    }

    /// A fresh context.
    pub(crate) fn new(
        end: AppEnd,
        home: Arc<MappedRegion>,
        welcome: Welcome,
        control: OwnedFd,
        user: libc::uid_t,
    ) -> Context {
        let unused = SlotUse::new(UNUSED, 0);
        Context {
            slots: vec![unused; end.geometry.slots as usize],
            early: BTreeMap::new(),
            end,
            home,
            welcome,
            user,
            number: 0,
            control,
            listeners: BTreeMap::new(),
            connects: BTreeMap::new(),
            answers: BTreeMap::new(),
            last_tag: 0,
            log: None,
            pending: Vec::new(),
            held: Vec::new(),
            unclaimed: Vec::new(),
            pins: Vec::new(),
            empty_drains: 0,
            moved: 0,
        }
    }

    /// The daemon's socket: its end means that the daemon died.
    pub(crate) fn control_fd(&self) -> RawFd {
        self.control.as_raw_fd()
    }

    /// The bells that ring for completions and replies.
    pub(crate) fn bells(&self) -> Bells {
        Bells { context: self.number, bell: self.end.app_bell.fd().as_raw_fd(), daemon: self.control_fd() }
    }

    /// The same, to ask something over it.
    pub(crate) fn control(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// The daemon has closed that socket: it is gone. Messages there, answers to what a thread has just asked, are no
    /// sign of that.
    pub(crate) fn daemon_is_gone(&self) -> bool {
        waking::has_ended(self.control_fd())
    }

    /// A tag that no waiting request has.
    pub(crate) fn fresh_tag(&mut self) -> u32 {
        self.last_tag = self.last_tag.wrapping_add(1);
        self.last_tag
    }

    /// Gives a slot of the data pair its socket. Returns what the engine reported of it already.
    pub(crate) fn use_slot(&mut self, slot: Slot, socket: Key) -> Option<Completion> {
        *self.slots.get_mut(slot.index as usize)? = SlotUse::new(socket.index as u32, slot.generation);
        self.end.sent(slot.index).store(0, Relaxed);
        self.early.remove(&slot.index).filter(|completion| completion.slot == slot)
    }

    /// The slot means nothing to us any more.
    pub(crate) fn forget_slot(&mut self, slot: Slot) {
        if let Some(entry) = self.slots.get_mut(slot.index as usize).filter(|entry| entry.is_of(slot)) {
            entry.socket = OVER;
        }
    }

    /// Index of the socket whose connection is in a slot.
    pub(crate) fn socket_of(&self, slot: Slot) -> Option<usize> {
        let entry = self.slots.get(slot.index as usize)?;
        (entry.is_of(slot) && entry.socket < OVER).then_some(entry.socket as usize)
    }

    /// Takes a completion in, where it is one of the common case.
    #[inline(always)]
    pub(crate) fn take_completion_fast(
        &self,
        sockets: &mut Slab<Socket>,
        sets: &mut Slab<EpollSet>,
        words: [u64; 2],
    ) -> Option<()> {
        let completion = Completion::from_words(words);
        let entry = self.slots.get(completion.slot.index as usize)?;
        if Completion::tag(words) != entry.tag {
            return None;
        }
        readiness::take_completion(sockets.get_mut(entry.socket as usize)?, sets, &completion)
    }

    /// Takes a completion in.
    #[inline(never)]
    pub(crate) fn take_completion(
        &mut self,
        sockets: &mut Slab<Socket>,
        sets: &mut Slab<EpollSet>,
        completion: &Completion,
    ) {
        let Some(entry) = self.slots.get_mut(completion.slot.index as usize) else {
            if completion.slot.index == LOG_SLOT {
                self.take_log_completion(sockets, sets, completion);
            }
            return;
        };
        match (entry.is_of(completion.slot), entry.socket) {
            (true, OVER) => {}
            (false, _) | (true, UNUSED) => self.keep_early(completion),
            (true, index) => {
                entry.tag = Completion::plain_tag(completion.slot.generation, completion.ring);
                if let Some(Kind::Stream(stream)) = sockets.get_mut(index as usize).map(|socket| &mut socket.kind) {
                    stream.on_sent_report(self.end.sent(completion.slot.index));
                }
                self.note_urgent(sockets, index as usize, completion);
                readiness::apply(sockets, sets, index as usize, completion);
            }
        }
    }

    /// Where a completion reports urgent data of the peer: its mark, before anybody reads up to there.
    pub(crate) fn note_urgent(&self, sockets: &mut Slab<Socket>, index: usize, completion: &Completion) {
        let Some(socket) = sockets.get_mut(index).filter(|_| completion.urgent) else { return };
        let Kind::Stream(stream) = &socket.kind else { return };
        let is_new = stream.note_urgent(self.end.urgent(completion.slot.index), socket.options.inline_urgent);
        if is_new && socket.signals.are_there() {
            socket.signals.note_urgent();
            readiness::wake_waiters(socket);
        }
    }

    #[cold]
    fn keep_early(&mut self, completion: &Completion) {
        self.early.insert(completion.slot.index, *completion);
    }

    /// Sends the engine the present positions of a connection. Where the ring is full, the
    /// bump is deferred.
    #[inline(always)]
    pub(crate) fn bump(&mut self, key: Key, stream: &mut Stream) {
        if stream.shared {
            // Another process may have written, and grown.
            stream.follow_growth();
        }
        let fin = stream.flags() & SHUT_WRITE != 0;
        self.push_bump(key, stream, fin);
    }

    /// The same of a connection that only this process has, and whose own direction is open.
    #[inline(always)]
    pub(crate) fn bump_open(&mut self, key: Key, stream: &mut Stream) {
        self.push_bump(key, stream, false);
    }

    #[inline(always)]
    fn push_bump(&mut self, key: Key, stream: &mut Stream, fin: bool) {
        let Some(slot) = stream.name else { return };
        stream.bump_held = false;
        if self.end.bumps.push(stream.bump(slot, fin).to_words()).is_err() {
            self.defer_bump(key, stream);
        }
        self.end.daemon_bell.ring();
    }

    /// The ring is full: the bump is sent before anything waits.
    #[cold]
    fn defer_bump(&mut self, key: Key, stream: &mut Stream) {
        if !stream.pending {
            stream.pending = true;
            self.pending.push(key);
        }
    }

    /// Sends a request that is not answered; `false` where the ring is full.
    pub(crate) fn send_request(&mut self, request: Request) -> bool {
        let sent = self.end.requests.push(request.to_words()).is_ok();
        self.end.daemon_bell.ring();
        sent
    }

    /// Whether bumps wait for room in the ring.
    pub(crate) fn has_pending_bumps(&self) -> bool {
        !self.pending.is_empty()
    }

    /// There are replies to take in.
    #[inline]
    pub(crate) fn was_answered(&self) -> bool {
        !self.end.replies.is_empty()
    }

    /// All of the daemon's rings was taken in, and no check of its life is due.
    #[inline]
    pub(crate) fn nothing_new(&mut self) -> bool {
        let quiet = self.is_quiet() && (self.empty_drains + 1) % LIFE_CHECK != 0;
        self.empty_drains = self.empty_drains.wrapping_add(quiet as u32);
        quiet
    }

    /// Nothing is to be taken in or sent.
    #[inline]
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.end.completions.is_empty() && self.end.replies.is_empty() && self.pending.is_empty()
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        for fd in [self.end.app_bell.fd().as_raw_fd(), self.end.daemon_bell.fd().as_raw_fd(), self.control_fd()] {
            table::clear(fd);
        }
    }
}

impl Context {
    /// Sends a request that must not be lost, in a call that cannot wait: the ring is emptied by the daemon soon.
    pub(crate) fn send_request_surely(&mut self, request: Request) {
        while !self.send_request(request) && !self.daemon_is_gone() {
            waking::yield_now();
        }
    }

    /// Gives up this process's share of a connection.
    pub(crate) fn close_stream(&mut self, mut stream: Box<Stream>, abort: bool) {
        if stream.gone {
            stream.take_pins().into_iter().for_each(heap::unpin);
            return;
        }
        let Some(slot) = stream.name else {
            // Never claimed: the share is given up with the next call that may wait.
            self.unclaimed.push(stream);
            return;
        };
        self.take_back(&stream);
        let pins = stream.take_pins();
        if !pins.is_empty() {
            self.pins.push((slot, pins));
        }
        self.forget_slot(slot);
        let (tx_head, rx_head) = stream.positions();
        self.send_request_surely(Request::Close { slot, tx_head, rx_head, abort });
    }
}

impl Context {
    /// A slot is free: nothing is sent from the memory that its connection had pinned.
    pub(crate) fn unpin(&mut self, slot: Slot) {
        while let Some(at) = self.pins.iter().position(|(of, _)| *of == slot) {
            self.pins.swap_remove(at).1.into_iter().for_each(heap::unpin);
        }
    }

    /// Whether the host has a route to the peer, or is the peer.
    pub(crate) fn reaches(&self, remote: Endpoint) -> bool {
        let welcome = &self.welcome;
        welcome.addresses.contains(&remote.ip) || welcome.routes.iter().any(|route| route.contains(remote.ip))
    }
}
