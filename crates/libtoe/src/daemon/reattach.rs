//! Reattachment, from a daemon that ended to the next one (docs/RESTART.md).
//!
//! The library has no thread of its own. It tries to attach again in calls of the program and, while none is made, in
//! sleeps of calls that wait.
use crate::daemon::attach::{self, Failure};
use crate::state::context_side::Context;
use crate::state::listener::Listener;
use crate::state::lost::{Lost, Remains};
use crate::state::set::EpollSet;
use crate::state::slab::Key;
use crate::state::socket::{Kind, Socket};
use crate::state::stream::Stream;
use crate::state::{Lib, Link, events, idle, readiness};
use crate::system::{waking, warn};
use context::attach::{MOST_KEPT, SurvivingConnection};
use context::{Completion, OptionName, Request, Slot, Unaccelerated};
use std::collections::BTreeSet;

/// What of a socket may come back to the next daemon.
enum Left {
    Nothing,
    /// A connection that is reset.
    Reset,
    Listener,
    Connection,
}

/// What becomes of a process' sockets without their daemon: how many there are of each.
#[derive(Default)]
struct Remainder {
    listeners: usize,
    connections: usize,
    reset: usize,
}

impl Remainder {
    fn waits(&self) -> bool {
        self.listeners + self.connections > 0
    }

    /// A sentence for people.
    fn sentence(&self) -> String {
        let Remainder { listeners, connections, reset } = self;
        let waiting = match (connections, listeners) {
            (0, _) => format!("listeners ({listeners})"),
            (_, 0) => format!("connections ({connections})"),
            _ => format!("connections ({connections}) and listeners ({listeners})"),
        };
        let ended = if *reset > 0 { format!(", connections ({reset}) are reset") } else { String::new() };
        format!("the daemon is gone: {waiting} wait for the next one{ended}")
    }
}

/// What lasts of a context whose daemon is gone. What the program had asked of that daemon and what it had not received
/// was perhaps to close a connection.
fn remains_of(context: &Context) -> Remains {
    let asked = context.end.requests.untaken().into_iter().filter_map(Request::from_words);
    let closed = asked.filter_map(|request| match request {
        Request::Close { slot, tx_head, rx_head, abort } => {
            Some((Stream::closed(&context.home, slot, tx_head, rx_head)?, abort))
        }
        _ => None,
    });
    Remains::now(&context.home, closed.collect())
}

/// What of this process's sockets the next daemon can go on with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lasts {
    Nothing,
    /// The daemon ended its connections, or the program has fewer reports of them than their peers.
    Listeners,
    All,
}

/// How many connections go on, and how many do not.
#[derive(Clone, Copy, Default)]
struct WentOn {
    on: usize,
    ended: usize,
}

impl Lib {
    /// Checks whether the daemon's end of the attach socket is still there.
    pub(crate) fn check_daemon(&mut self) {
        if self.context().is_some_and(|context| context.daemon_is_gone()) {
            self.daemon_died();
        }
    }

    /// The daemon is gone: connections and listeners wait for the next one, all other waits end.
    pub(crate) fn daemon_died(&mut self) {
        if !matches!(self.link, Link::Attached(_)) {
            return;
        }
        self.drain_leftovers();
        // Descriptors cannot be opened under a filter of the program's.
        let comes_back = !waking::is_confined();
        let can_go_on = self.context().is_some_and(|context| context.end.can_go_on());
        let lasts = match (comes_back, can_go_on) {
            (false, _) => Lasts::Nothing,
            (true, false) => Lasts::Listeners,
            (true, true) => Lasts::All,
        };
        let mut remainder = Remainder::default();
        for index in self.sockets.indices() {
            match self.lose(index, lasts) {
                Left::Nothing => {}
                Left::Reset => remainder.reset += 1,
                Left::Listener => remainder.listeners += 1,
                Left::Connection => remainder.connections += 1,
            }
        }
        let remains = self.context().map(|context| remains_of(context)).filter(|_| lasts == Lasts::All);
        let wanted = remainder.waits() || remains.as_ref().is_some_and(|remains| !remains.closed.is_empty());
        self.link = if comes_back { Link::Lost(Lost::now(wanted), remains.map(Box::new)) } else { Link::Dead };
        if remainder.waits() {
            warn::line(&remainder.sentence());
        }
        self.wake_all();
    }

    /// Wakes all threads that wait. The end of the daemon's socket wakes them as well, but a thread that comes to look
    /// after this one has closed it finds nothing, and sleeps on: on bells that nobody rings any more.
    fn wake_all(&mut self) {
        self.wake_askers();
        for index in self.sockets.indices() {
            self.sockets.get(index).into_iter().for_each(readiness::wake_waiters);
        }
        for index in self.sets.indices() {
            self.sets.get_mut(index).into_iter().for_each(EpollSet::wake_all);
        }
    }

    /// A socket is without its daemon; returns what of it may come back.
    fn lose(&mut self, index: usize, lasts: Lasts) -> Left {
        let Some(socket) = self.sockets.get_mut(index) else { return Left::Nothing };
        let mut left = Left::Nothing;
        match &mut socket.kind {
            Kind::Fresh => {}
            Kind::Bound(bound) => bound.binding = 0,
            Kind::Connecting(_) => {
                socket.error = libc::ECONNRESET;
                socket.kind = Kind::Fresh;
            }
            Kind::Listener(listener) => {
                // Credits stay, as a mark of the program's interest.
                listener.queue.clear();
                let listens = !socket.broken && lasts != Lasts::Nothing && listener.ticket.is_some();
                socket.broken = !listens;
                left = if listens { Left::Listener } else { Left::Nothing };
            }
            Kind::Log(_) => socket.broken = true,
            Kind::Stream(stream) => {
                stream.abandon_post();
                stream.spill_references();
                (stream.pending, stream.bump_held, stream.reclaim.asked) = (false, false, false);
                if lasts == Lasts::All && !socket.broken && stream.surviving_connection().is_some() {
                    return Left::Connection;
                }
                return if self.end_connection(index) { Left::Reset } else { Left::Nothing };
            }
        }
        readiness::notify(socket, &mut self.sets, events::ALL);
        left
    }

    /// A connection ends with its daemon. One that was over stays as it was; false then.
    fn end_connection(&mut self, index: usize) -> bool {
        let Some(socket) = self.sockets.get_mut(index) else { return false };
        let Kind::Stream(stream) = &mut socket.kind else { return false };
        // Its slot is nothing to another daemon.
        (stream.name, stream.gone, stream.reclaim) = (None, true, idle::State::default());
        let is_reset = !stream.is_over();
        if is_reset {
            socket.error = libc::ECONNRESET;
            socket.broken = true;
        }
        readiness::notify(socket, &mut self.sets, events::ALL);
        is_reset
    }

    /// All connections that waited for a daemon end.
    fn end_connections(&mut self) -> usize {
        let waits = |socket: &Socket| matches!(&socket.kind, Kind::Stream(stream) if !stream.gone);
        let mut indices = self.sockets.indices();
        indices.retain(|index| self.sockets.get(*index).is_some_and(waits));
        for index in &indices {
            self.end_connection(*index);
        }
        indices.len()
    }

    /// Bytes that had arrived before the daemon died can still be read.
    fn drain_leftovers(&mut self) {
        while let Link::Attached(context) = &mut self.link {
            match context.end.completions.pop() {
                Ok(Some(words)) => {
                    context.take_completion(&mut self.sockets, &mut self.sets, &Completion::from_words(words));
                }
                _ => return,
            }
        }
    }

    /// Without a daemon: tries the next one where it is time to.
    #[cold]
    pub(crate) fn find_daemon(&mut self) {
        let Link::Lost(lost, remains) = &mut self.link else { return };
        if remains.as_ref().is_some_and(|remains| remains.are_over()) {
            *remains = None;
            if self.end_connections() > 0 {
                warn::line("no daemon came: connections are reset");
            }
        } else if lost.is_due(waking::now()) {
            self.come_back();
        }
    }

    /// Attaches to the next daemon, where one is there.
    pub(crate) fn come_back(&mut self) {
        let Link::Lost(_, remains) = &mut self.link else { return };
        let remains = remains.take();
        let tickets = |lib: &mut Lib, index| lib.listener_at(index).and_then(|listener| listener.ticket.clone());
        let ticket = self.sockets.indices().into_iter().find_map(|index| tickets(self, index));
        match attach::attach_again(ticket.map(|ticket| *ticket), remains.as_ref().map(|remains| &remains.home)) {
            Ok(context) => {
                let returned = context.welcome.returned;
                self.attached(context);
                let went_on = match remains {
                    None => WentOn::default(),
                    Some(_) if !returned => WentOn { on: 0, ended: self.end_connections() },
                    Some(remains) => match self.go_on_with(&remains) {
                        Some(went_on) => went_on,
                        None => return self.wait_longer(*remains),
                    },
                };
                self.listen_again(went_on);
            }
            Err(Failure::Absent(_)) => {
                let wanted = remains.is_some()
                    || self.sockets.indices().into_iter().any(|index| self.listener_at(index).is_some());
                if let Link::Lost(lost, place) = &mut self.link {
                    lost.later(wanted);
                    *place = remains;
                }
            }
            Err(Failure::Refused(sentence)) => {
                self.link = Link::Dead;
                self.end_connections();
                for index in self.sockets.indices() {
                    self.give_listener_up(index);
                }
                warn::line(&format!("the next daemon refuses this program, and its listeners are lost: {sentence}"));
            }
        }
    }

    /// The daemon that had just come is gone as well: all wait for the one after it.
    fn wait_longer(&mut self, Remains { home, closed, .. }: Remains) {
        self.link = Link::Lost(Lost::now(true), Some(Box::new(Remains::now(&home, closed))));
    }

    /// The next daemon has the region with the connections in it: those go on that it can go on with. Returns how many
    /// do, and how many do not; nothing where the daemon is gone meanwhile.
    fn go_on_with(&mut self, remains: &Remains) -> Option<WentOn> {
        let closed = &remains.closed;
        let kept = |index: usize| match &self.sockets.get(index)?.kind {
            Kind::Stream(stream) => Some((stream.surviving_connection()?, index)),
            _ => None,
        };
        let open: Vec<(SurvivingConnection, usize)> = self.sockets.indices().into_iter().filter_map(kept).collect();
        let all: Vec<SurvivingConnection> =
            open.iter().map(|(kept, _)| *kept).chain(closed.iter().map(|(kept, _)| *kept)).collect();
        // Until here, connections are named by the number that their context had.
        let go_on = self.ask_to_go_on(&all)?;
        let number = self.context().map_or(0, |context| context.welcome.context);
        remains.home.is_now(number);
        let mut lost = 0;
        for (kept, index) in &open {
            if go_on.contains(&kept.slot.index) {
                self.goes_on(*index, kept.slot);
            } else {
                self.end_connection(*index);
                lost += 1;
            }
        }
        for (kept, abort) in closed.iter().filter(|(kept, _)| go_on.contains(&kept.slot.index)) {
            let SurvivingConnection { slot, tx_head, rx_head, .. } = *kept;
            let Some(context) = self.context() else { break };
            context.send_request_surely(Request::Close { slot, tx_head, rx_head, abort: *abort });
        }
        Some(WentOn { on: open.len() - lost, ended: lost })
    }

    /// The slots of those connections that the daemon goes on with; nothing where it is gone meanwhile. Until it has
    /// answered for all of them, the library's side of each stays as it was: the one after it may be asked the same.
    fn ask_to_go_on(&mut self, all: &[SurvivingConnection]) -> Option<BTreeSet<u32>> {
        let mut go_on = BTreeSet::new();
        for some in all.chunks(MOST_KEPT) {
            let context = self.context()?;
            match attach::resume(context.control(), some.to_vec()) {
                Some(slots) => go_on.extend(slots.iter().map(|slot| slot.index)),
                None if context.daemon_is_gone() => return None,
                None => {}
            }
        }
        Some(go_on)
    }

    /// A connection is the next daemon's.
    fn goes_on(&mut self, index: usize, slot: Slot) {
        let (Some(key), Lib { link: Link::Attached(context), sockets, .. }) = (self.key_of(index), &mut *self) else {
            return;
        };
        let Some(socket) = sockets.get_mut(index) else { return };
        let Kind::Stream(stream) = &mut socket.kind else { return };
        stream.goes_on(context.welcome.context);
        let early = context.use_slot(slot, key);
        let policy = u64::from(socket.options.congestion);
        if policy != 0 {
            context.send_request_surely(Request::Set { slot, option: OptionName::Congestion, value: policy });
        }
        if let Some(completion) = early {
            self.apply(key, &completion);
        }
        self.send_early_options(key, slot);
        self.label_accepted(key);
    }

    /// The socket listens: the daemon gives a ticket with which it comes back, where the program lets us ask for one.
    pub(crate) fn take_ticket(&mut self, key: Key) {
        let Some(Kind::Listener(listener)) = self.socket(key).map(|socket| &socket.kind) else { return };
        let binding = listener.bound.binding;
        if listener.ticket.is_some() || waking::is_confined() {
            return;
        }
        let ticket = self.context().and_then(|context| attach::ticket(context.control(), binding));
        if let Some(Kind::Listener(listener)) = self.socket(key).map(|socket| &mut socket.kind) {
            listener.ticket = ticket.map(Box::new);
        }
    }

    /// Brings all listeners back, after so many connections went on and did not.
    fn listen_again(&mut self, WentOn { on, ended }: WentOn) {
        let (mut back, mut lost) = (0, Vec::new());
        for index in self.sockets.indices() {
            match self.bring_back(index) {
                None => {}
                Some(Ok(())) => back += 1,
                // The daemon that had just come is gone as well: listeners wait for the one after it, too.
                Some(Err(_)) if self.context().is_some_and(|context| context.daemon_is_gone()) => {
                    return self.daemon_died();
                }
                Some(Err((local, errno))) => {
                    self.give_listener_up(index);
                    lost.push(format!("{local} ({})", std::io::Error::from_raw_os_error(errno)));
                }
            }
        }
        let connections = on + ended;
        let connections = (connections > 0).then(|| format!("connections go on: {on} of {connections}")).into_iter();
        let listeners = (back > 0).then(|| format!("listeners ({back}) are back"));
        let what: Vec<String> = connections.chain(listeners).collect();
        if !what.is_empty() {
            warn::line(&format!("attached to the next daemon: {}", what.join("; ")));
        }
        if !lost.is_empty() {
            warn::line(&format!("listeners are lost, their addresses cannot be had again: {}", lost.join(", ")));
        }
    }

    /// A listener that is without its daemon; not one that was given up.
    fn listener_at(&mut self, index: usize) -> Option<&mut Listener> {
        match self.sockets.get_mut(index).map(|socket| (socket.broken, &mut socket.kind))? {
            (false, Kind::Listener(listener)) => Some(listener),
            _ => None,
        }
    }

    /// Brings a listener back. `None` where the socket is none; on failure the address and the error.
    fn bring_back(&mut self, index: usize) -> Option<Result<(), (context::Endpoint, i32)>> {
        let key: Key = self.key_of(index)?;
        let listener = self.listener_at(index)?;
        let local = listener.bound.local;
        let (ticket, backlog) = (listener.ticket.clone(), listener.backlog);
        let interested = listener.credits.is_some();
        let Link::Attached(context) = &mut self.link else { return None };
        let binding =
            match ticket.ok_or(libc::EACCES).and_then(|ticket| attach::listen(context.control(), *ticket, backlog)) {
                Ok(binding) => binding,
                Err(errno) => return Some(Err((local, errno))),
            };
        context.listeners.insert(binding, key);
        let listener = self.listener_at(index)?;
        (listener.bound.binding, listener.credits) = (binding, None);
        let socket = self.sockets.get(index)?;
        let (interested, in_kernel) = (interested || !socket.watchers.is_empty(), socket.listens_in_kernel());
        self.serve_loopback(binding, in_kernel);
        self.send_listener_options(key);
        self.label(key, Unaccelerated::No);
        if interested {
            self.request_events(key);
        }
        Some(Ok(()))
    }

    /// As after `listen`: loopback addresses are served where the kernel's half has them.
    fn serve_loopback(&mut self, binding: u32, in_kernel: bool) {
        let Some(context) = self.context().filter(|context| in_kernel && context.welcome.loopback) else { return };
        context.send_request_surely(Request::Loopback { binding });
    }

    /// Nothing comes to a listener any more but from the kernel. A listener that is readable for ever would make its
    /// server spin for ever, so only `accept` fails.
    fn give_listener_up(&mut self, index: usize) {
        let Some(socket) = self.sockets.get_mut(index) else { return };
        if let Kind::Listener(_) = socket.kind {
            socket.broken = true;
            readiness::notify(socket, &mut self.sets, events::ALL);
        }
    }
}
