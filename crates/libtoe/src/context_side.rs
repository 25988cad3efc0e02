//! The application's side of a context: taking notices and replies in, sending bumps and requests out.
use crate::epoll::EpollSet;
use crate::errno::Result;
use crate::home::Home;
use crate::lock::Guard;
use crate::say::{self, Topic};
use crate::signals::Signals;
use crate::socket::{Kind, Pending, Socket};
use crate::state::{Key, Lib, Link, Slab};
use crate::stream::Stream;
use crate::wait::{self, Wait};
use crate::waking::{self, Point};
use crate::{readiness, table};
use context::attach::Welcome;
use context::{AppEnd, LOG_SLOT, Notice, Reply, Request, Slot};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

/// What one slot of the data pair is used for.
#[derive(Clone, Copy)]
struct SlotUse {
    /// Index of its socket; or [`UNUSED`], or [`OVER`].
    socket: u32,
    /// The [`Notice::tag`] of the notices that say nothing but positions.
    tag: u32,
}

impl SlotUse {
    fn new(socket: u32, generation: u16) -> SlotUse {
        SlotUse { socket, tag: Notice::plain_tag(generation, false) }
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
    pub home: Arc<Home>,
    /// What the daemon said of the host.
    pub welcome: Welcome,
    /// The user as which the process attached: a program may give up root later.
    pub user: libc::uid_t,
    /// Of the contexts that the process has had, which one: [`Lib::attached`] counts them from 1.
    pub number: u32,
    control: OwnedFd,
    slots: Vec<SlotUse>,
    /// Notices that overtook the reply that opens their connection, by slot: the two pairs are not ordered.
    early: BTreeMap<u32, Notice>,
    /// Listening sockets by binding.
    pub listeners: BTreeMap<u32, Key>,
    /// Sockets that are being connected, by tag.
    pub connects: BTreeMap<u32, Key>,
    /// Answers that threads wait for, by tag.
    answers: BTreeMap<u32, Option<Reply>>,
    last_tag: u32,
    /// The socket that is the process's shared log.
    pub log: Option<Key>,
    /// Connections whose bump found the ring full.
    owed: Vec<Key>,
    /// Connections with bytes that `MSG_MORE` or `TCP_CORK` holds back.
    pub held: Vec<Key>,
    /// Inherited connections that were closed here but never claimed.
    pub unclaimed: Vec<Box<Stream>>,
    empty_drains: u32,
    /// Bytes copied since the thread last let others run.
    moved: u64,
}

/// Bytes that are copied at most until other programs on the core have their turn: they would wait for milliseconds where
/// a program always finds something to move.
const MOVED_MOST: u64 = 256 << 10;
/// Every so many drains that found nothing, look whether the daemon still lives.
const LIFE_CHECK: u32 = 1024;

impl Context {
    /// Bytes were copied for the program; says whether others on its core are to have their turn.
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
    pub(crate) fn new(end: AppEnd, home: Arc<Home>, welcome: Welcome, control: OwnedFd, user: libc::uid_t) -> Context {
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
            owed: Vec::new(),
            held: Vec::new(),
            unclaimed: Vec::new(),
            empty_drains: 0,
            moved: 0,
        }
    }

    /// The daemon's socket: its end means that the daemon died.
    pub(crate) fn control_fd(&self) -> RawFd {
        self.control.as_raw_fd()
    }

    /// The same, to ask something over it.
    pub(crate) fn control(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// The daemon has closed that socket: it is gone. Messages there, answers to what a thread has just asked, are no
    /// sign of that.
    pub(crate) fn daemon_is_gone(&self) -> bool {
        let mut fds = [libc::pollfd { fd: self.control_fd(), events: 0, revents: 0 }];
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: polls one descriptor of ours without waiting.
        unsafe { crate::real::ppoll_raw(&mut fds, &now, std::ptr::null()) > 0 }
    }

    /// A tag that no waiting request has.
    pub(crate) fn fresh_tag(&mut self) -> u32 {
        self.last_tag = self.last_tag.wrapping_add(1);
        self.last_tag
    }

    /// Gives a slot of the data pair its socket. Says what the engine told of it already.
    pub(crate) fn use_slot(&mut self, slot: Slot, socket: Key) -> Option<Notice> {
        *self.slots.get_mut(slot.index as usize)? = SlotUse::new(socket.index as u32, slot.generation);
        self.early.remove(&slot.index).filter(|notice| notice.slot == slot)
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

    /// Takes a notice in, where it is one of the common case.
    #[inline(always)]
    fn take_notice_fast(&self, sockets: &mut Slab<Socket>, sets: &mut Slab<EpollSet>, words: [u64; 2]) -> Option<()> {
        let notice = Notice::from_words(words);
        let entry = self.slots.get(notice.slot.index as usize)?;
        if Notice::tag(words) != entry.tag {
            return None;
        }
        readiness::take_notice(sockets.get_mut(entry.socket as usize)?, sets, &notice)
    }

    /// Takes a notice in.
    #[inline(never)]
    pub(crate) fn take_notice(&mut self, sockets: &mut Slab<Socket>, sets: &mut Slab<EpollSet>, notice: &Notice) {
        let Some(entry) = self.slots.get_mut(notice.slot.index as usize) else {
            if notice.slot.index == LOG_SLOT {
                self.take_log_notice(sockets, sets, notice);
            }
            return;
        };
        match (entry.is_of(notice.slot), entry.socket) {
            (true, OVER) => {}
            (false, _) | (true, UNUSED) => self.keep_early(notice),
            (true, index) => {
                entry.tag = Notice::plain_tag(notice.slot.generation, notice.grown);
                apply(sockets, sets, index as usize, notice);
            }
        }
    }

    #[cold]
    fn keep_early(&mut self, notice: &Notice) {
        self.early.insert(notice.slot.index, *notice);
    }

    /// Tells the engine the present positions of a connection. Where the ring is full it is owed, and sent before
    /// anything waits.
    #[inline(always)]
    pub(crate) fn bump(&mut self, key: Key, stream: &mut Stream) {
        let Some(slot) = stream.name else { return };
        stream.untold = false;
        if self.end.bumps.push(stream.bump(slot).to_words()).is_err() {
            self.owe(key, stream);
        }
        self.end.daemon_bell.ring();
    }

    #[cold]
    fn owe(&mut self, key: Key, stream: &mut Stream) {
        if !stream.owed {
            stream.owed = true;
            self.owed.push(key);
        }
    }

    /// Sends a request that is not answered; `false` where the ring is full.
    pub(crate) fn tell(&mut self, request: Request) -> bool {
        let sent = self.end.requests.push(request.to_words()).is_ok();
        self.end.daemon_bell.ring();
        sent
    }

    /// Whether bumps wait for room in the ring.
    pub(crate) fn owes(&self) -> bool {
        !self.owed.is_empty()
    }

    /// There are replies to take in.
    #[inline]
    pub(crate) fn was_answered(&self) -> bool {
        !self.end.replies.is_empty()
    }

    /// The daemon has said nothing that was not taken in, and need not be looked after either.
    #[inline]
    pub(crate) fn nothing_new(&mut self) -> bool {
        let quiet = self.is_quiet() && (self.empty_drains + 1) % LIFE_CHECK != 0;
        self.empty_drains = self.empty_drains.wrapping_add(quiet as u32);
        quiet
    }

    #[inline]
    fn is_quiet(&mut self) -> bool {
        self.end.notices.is_empty() && self.end.replies.is_empty() && self.owed.is_empty()
    }
}

#[inline]
fn apply(sockets: &mut Slab<Socket>, sets: &mut Slab<EpollSet>, index: usize, notice: &Notice) {
    let Some(socket) = sockets.get_mut(index) else { return };
    let Kind::Stream(stream) = &mut socket.kind else { return };
    let (data, room, fin) = stream.apply(notice);
    let mut bits = 0;
    if data {
        bits |= readiness::IN;
    }
    if fin {
        bits |= readiness::IN | readiness::RDHUP | readiness::HUP;
    }
    if room && stream.wants_room && stream.is_roomy() {
        stream.wants_room = false;
        bits |= readiness::OUT;
    }
    if bits != 0 {
        readiness::notify(socket, sets, bits);
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        for fd in [self.end.app_bell.fd().as_raw_fd(), self.end.daemon_bell.fd().as_raw_fd(), self.control_fd()] {
            table::clear(fd);
        }
    }
}

impl Lib {
    /// Takes in all that the daemon has said.
    #[inline]
    pub(crate) fn drain(&mut self) {
        waking::point(Point::Look);
        let Some(context) = self.context() else { return self.look_for_daemon() };
        if context.is_quiet() {
            context.empty_drains = context.empty_drains.wrapping_add(1);
            if context.empty_drains % LIFE_CHECK == 0 {
                self.check_daemon();
            }
            return;
        }
        self.taken_in = self.taken_in.wrapping_add(1);
        self.pay_owed();
        self.drain_replies();
        self.drain_notices();
        self.note_activity();
    }

    /// Takes replies in, where there are any: for calls that have no reason to look at notices.
    #[inline]
    pub(crate) fn hear_errors(&mut self) {
        if self.context().is_some_and(|context| context.was_answered()) {
            self.drain();
        }
    }

    fn drain_replies(&mut self) {
        while let Some(context) = self.context() {
            match context.end.replies.pop() {
                Ok(Some(words)) => {
                    if let Some(reply) = Reply::from_words(words) {
                        self.take_reply(reply);
                    }
                }
                Ok(None) => return,
                Err(_) => return self.daemon_died(),
            }
        }
    }

    fn drain_notices(&mut self) {
        let Lib { link: Link::Attached(context), sockets, sets, .. } = self else { return };
        // Looked up once: nothing below changes where it is.
        let context = &mut **context;
        // The engine may go on while we drain; one ring's worth is enough for one call.
        for _ in 0..context.end.geometry.data_entries {
            match context.end.notices.pop() {
                Ok(Some(words)) => {
                    if context.take_notice_fast(sockets, sets, words).is_none() {
                        context.take_notice(sockets, sets, &Notice::from_words(words));
                    }
                }
                Ok(None) => return,
                Err(_) => return self.daemon_died(),
            }
        }
    }

    /// Applies a notice to the socket's connection and wakes whom it concerns.
    pub(crate) fn apply(&mut self, key: Key, notice: &Notice) {
        apply(&mut self.sockets, &mut self.sets, key.index, notice);
    }

    fn take_reply(&mut self, reply: Reply) {
        match reply {
            Reply::Failed { tag, .. } | Reply::Connecting { tag, .. } | Reply::Connected { tag, .. } => {
                let connecting = self.context().and_then(|context| context.connects.get(&tag).copied());
                match (connecting, reply) {
                    (Some(key), _) => self.connect_reply(key, reply),
                    // Opened in spite of its cancellation: ours to close.
                    (None, Reply::Connected { slot, .. }) => self.refuse_connection(slot),
                    (None, _) => self.answer(tag, reply),
                }
            }
            Reply::Done { tag }
            | Reply::Bound { tag, .. }
            | Reply::Forked { tag, .. }
            | Reply::Claimed { tag, .. }
            | Reply::Adopted { tag, .. }
            | Reply::Info { tag, .. } => self.answer(tag, reply),
            Reply::Accept { binding, slot, local, remote, mss } => {
                self.accept_reply(binding, Pending { slot, local, remote, mss, errno: 0, taken: false });
            }
            Reply::Unaccept { binding, slot } => self.unaccept_reply(binding, slot),
            Reply::Error { slot, errno } => self.error_reply(slot, errno as i32),
            Reply::Ended { slot, rx_tail, tx_tail } => {
                self.ended(Notice { slot, rx_tail, tx_tail, fin: true, grown: false })
            }
            Reply::SpliceOver { slot, errno: 0 } => self.splice_over(slot),
            Reply::SpliceOver { slot, errno } => self.error_reply(slot, errno as i32),
            Reply::Rested { slot, done } => self.rested(slot, done),
            Reply::NotAdopted => say::once(Topic::NotAdopted),
            // Which slots are free is the control plane's business.
            Reply::Freed { .. } => {}
        }
    }

    /// The last notice of a connection, by another way.
    fn ended(&mut self, notice: Notice) {
        let Lib { link: Link::Attached(context), sockets, sets, .. } = self else { return };
        context.take_notice(sockets, sets, &notice);
    }

    fn answer(&mut self, tag: u32, reply: Reply) {
        // An answer that nobody waits for any more is dropped; what it grants goes with the context.
        if let Some(place) = self.context().and_then(|context| context.answers.get_mut(&tag)) {
            *place = Some(reply);
        }
        self.wake_askers();
    }

    fn unaccept_reply(&mut self, binding: u32, slot: Slot) {
        let Some(context) = self.context() else { return };
        let listener = context.listeners.get(&binding).copied();
        let accepted = context.socket_of(slot);
        if let Some(socket) = listener.and_then(|key| self.socket(key)) {
            if let Kind::Listener(listener) = &mut socket.kind {
                listener.took_back(slot);
            }
        }
        // A daemon takes nothing back that was accepted; to the program, the connection was reset.
        if let Some(index) = accepted {
            self.error_reply(slot, libc::ECONNRESET);
            if let Some(Kind::Stream(stream)) = self.sockets.get_mut(index).map(|socket| &mut socket.kind) {
                stream.gone = true;
            }
        }
    }

    fn error_reply(&mut self, slot: Slot, errno: i32) {
        let Some(context) = self.context() else { return };
        match context.socket_of(slot) {
            Some(index) => self.fail_stream(index, errno),
            None => self.fail_waiting(slot, errno),
        }
    }

    pub(crate) fn fail_stream(&mut self, index: usize, errno: i32) {
        let Some(socket) = self.sockets.get_mut(index) else { return };
        if let Kind::Stream(_) = socket.kind {
            socket.error = errno;
            socket.broken = true;
            readiness::notify(socket, &mut self.sets, readiness::ALL);
        }
    }

    fn pay_owed(&mut self) {
        let Some(context) = self.context() else { return };
        if context.owed.is_empty() {
            return;
        }
        for key in std::mem::take(&mut context.owed) {
            let Lib { link: Link::Attached(context), sockets, .. } = self else { return };
            let Some(socket) = sockets.get_mut(key.index).filter(|socket| socket.id == key.id) else { continue };
            if let Kind::Stream(stream) = &mut socket.kind {
                stream.owed = false;
                context.bump(key, stream);
            }
        }
    }

    /// Before a thread sleeps, everything that was held back goes out: there is no timer that would do it.
    pub(crate) fn send_held(&mut self) {
        while let Some(key) = self.context().and_then(|context| context.held.pop()) {
            self.uncork(key);
        }
    }
}

/// Sends a request and waits for its answer. `ENETDOWN` where the daemon is gone.
pub(crate) fn ask(lib: &mut Guard, make: impl FnOnce(u32) -> Request) -> Result<Reply> {
    let context = lib.need_context()?;
    let (tag, number) = (context.fresh_tag(), context.number);
    context.answers.insert(tag, None);
    let request = make(tag);
    let wait = Wait { signals: Signals::Keep, ..Wait::forever() };
    wait::until(lib, wait, |lib, _| match still(lib, number) {
        None => Some(Err(libc::ENETDOWN)),
        Some(context) => context.tell(request).then_some(Ok(())),
    })??;
    let wait = Wait { signals: Signals::Keep, ..Wait::forever() };
    let reply = wait::until(lib, wait, |lib, _| match still(lib, number) {
        None => Some(Err(libc::ENETDOWN)),
        Some(context) => context.answers.get_mut(&tag)?.take().map(Ok),
    })?;
    if let Some(context) = still(lib, number) {
        context.answers.remove(&tag);
    }
    match reply? {
        Reply::Failed { errno, .. } => Err(errno as i32),
        reply => Ok(reply),
    }
}

/// Sends a request that is not answered, waiting for room in the ring where there is none.
pub(crate) fn tell(lib: &mut Guard, request: Request) {
    let Some(number) = lib.context().map(|context| context.number) else { return };
    let wait = Wait { signals: Signals::Keep, ..Wait::forever() };
    let _ = wait::until(lib, wait, |lib, _| match still(lib, number) {
        None => Some(()),
        Some(context) => context.tell(request).then_some(()),
    });
}

/// The context with this number, if it is still the process's.
fn still(lib: &mut Lib, number: u32) -> Option<&mut Context> {
    lib.context().filter(|context| context.number == number)
}

impl Lib {
    /// Tells the engine how far the program has come.
    pub(crate) fn bump(&mut self, key: Key) {
        let Lib { sockets, link: Link::Attached(context), .. } = self else { return };
        if let Some(Socket { kind: Kind::Stream(stream), .. }) = sockets.get_mut(key.index) {
            context.bump(key, stream);
        }
    }

    /// `TCP_CORK` was taken off, or `TCP_NODELAY` set: what was held back goes out.
    pub(crate) fn uncork(&mut self, key: Key) {
        let held = |socket: &Socket| matches!(&socket.kind, Kind::Stream(stream) if stream.untold);
        if self.sockets.get(key.index).is_some_and(held) {
            self.bump(key);
        }
    }
}
