//! Readiness of a socket, in epoll's bits, and the wake-ups that follow.
use crate::state::events::{ERR, HUP, IN, OUT, PRI, RDHUP};
use crate::state::few::Few;
use crate::state::option_values::Options;
use crate::state::set::{EpollSet, became_ready};
use crate::state::slab::Slab;
use crate::state::slot_state::{LOW_MARK, RX_FIN, SHUT_READ, SHUT_WRITE, SPLICED, UNSENT_MARK, URGENT};
use crate::state::socket::{Kind, Socket};
use crate::state::stream::{Stream, StreamChange};
use crate::system::waking;
use context::Completion;

/// What the socket is ready for now; what nobody asked for need not be checked.
#[inline]
fn of(socket: &Socket, wanted: u32) -> u32 {
    let error = if socket.error != 0 { ERR } else { 0 };
    match &socket.kind {
        Kind::Stream(stream) => {
            let notifications = if stream.has_notifications(socket.broken) { ERR } else { 0 };
            let over = if socket.broken { IN | OUT | RDHUP | HUP } else { 0 };
            over | error | notifications | stream_bits(stream, &socket.options, wanted)
        }
        _ if socket.attempt_failed() => IN | OUT | RDHUP | HUP | error,
        // As Linux shows a stream socket that is neither connected nor listening.
        Kind::Fresh | Kind::Bound(_) => OUT | HUP | error,
        // The first bytes go with the SYN.
        Kind::Connecting { .. } if socket.awaits_data() => OUT | error,
        Kind::Connecting { .. } => error,
        // Also where the daemon died: nothing will ever come, and a listener that is readable for ever would make its
        // server spin for ever.
        Kind::Listener(listener) if listener.queue.is_empty() => error,
        Kind::Listener(_) => IN | error,
        Kind::Log(_) if socket.broken => IN | HUP | ERR,
        Kind::Log(log) => error | if log.is_readable() { IN } else { 0 },
    }
}

#[inline]
fn stream_bits(stream: &Stream, options: &Options, wanted: u32) -> u32 {
    let flags = stream.flags();
    let reading_is_over = flags & (RX_FIN | SHUT_READ) != 0;
    let mut bits = 0;
    let enough = if flags & (LOW_MARK | URGENT) == 0 { stream.readable() > 0 } else { stream.has_enough(options) };
    if reading_is_over || enough {
        bits |= IN;
    }
    if reading_is_over {
        bits |= RDHUP;
    }
    if flags & URGENT != 0 && stream.has_urgent_byte() {
        bits |= PRI;
    }
    let writable = match flags & (SHUT_WRITE | SPLICED | UNSENT_MARK) {
        0 => stream.is_roomy(),
        UNSENT_MARK => stream.is_writable(),
        others => others & SHUT_WRITE != 0,
    };
    if wanted & OUT != 0 && writable {
        bits |= OUT;
    }
    if flags & SHUT_WRITE != 0 && reading_is_over {
        bits |= HUP;
    }
    bits
}

/// What the socket is ready for among `wanted` (errors and hang-ups are always wanted). Remembers that somebody
/// waits for room where there is none.
#[inline(never)]
pub(crate) fn among(socket: &mut Socket, wanted: u32) -> u32 {
    let ready = of(socket, wanted) & (wanted | ERR | HUP);
    if wanted & OUT != 0 && ready & OUT == 0 {
        if let Kind::Stream(stream) = &mut socket.kind {
            stream.waits_for_room = true;
        }
    }
    ready
}

/// Notifies the epoll sets and threads that wait for the socket that `bits` became true.
#[inline(never)]
pub(crate) fn notify(socket: &mut Socket, sets: &mut Slab<EpollSet>, bits: u32) {
    socket.signals.note(bits);
    for watcher in socket.watchers.as_slice() {
        became_ready(sets, *watcher, bits);
    }
    wake_waiters(socket);
}

/// Wakes the threads that wait for the socket itself, and the one that raises its signals.
pub(crate) fn wake_waiters(socket: &Socket) {
    socket.waiters.as_slice().iter().for_each(|waiter| waking::wake(*waiter));
}

/// Takes a completion of a connection in, and wakes whom it concerns.
#[inline]
pub(crate) fn apply(sockets: &mut Slab<Socket>, sets: &mut Slab<EpollSet>, index: usize, completion: &Completion) {
    let Some(socket) = sockets.get_mut(index) else { return };
    let Kind::Stream(stream) = &mut socket.kind else { return };
    let change = stream.apply(completion);
    apply_change(socket, sets, change);
}

/// Wakes the threads and sets that a change of a socket's connection concerns.
pub(crate) fn apply_change(
    socket: &mut Socket,
    sets: &mut Slab<EpollSet>,
    StreamChange { bytes, room, end }: StreamChange,
) {
    let Kind::Stream(stream) = &mut socket.kind else { return };
    let urgent = stream.flags() & URGENT != 0;
    let marked = stream.slow_completions && (socket.options.low_mark > 1 || stream.unsent_mark() > 0);
    let enough = bytes && (!(marked | urgent) || stream.has_enough(&socket.options));
    let mut bits = if enough { IN } else { 0 };
    if urgent && stream.has_urgent_byte() {
        bits |= PRI;
    }
    if end {
        bits |= IN | RDHUP | HUP;
    }
    if room && stream.waits_for_room && stream.is_writable() {
        stream.waits_for_room = false;
        bits |= OUT;
    }
    if stream.reclaim.refers && stream.settle_references() {
        bits |= ERR;
    }
    if bits != 0 {
        notify(socket, sets, bits);
    } else if bytes {
        // A call that has taken some already waits for fewer than the mark.
        wake_waiters(socket);
    }
}

/// Readiness of a socket with waiters, where it is an open connection with nothing to report but whether bytes are
/// there.
#[inline(always)]
pub(crate) fn ready_bits(socket: &Socket, wanted: u32) -> Option<u32> {
    match &socket.kind {
        Kind::Stream(stream)
            if !(socket.broken | stream.reclaim.refers)
                && socket.error == 0
                && wanted & OUT == 0
                && stream.flags() == 0 =>
        {
            Some(if stream.unread_bytes() != 0 { IN & wanted } else { 0 })
        }
        _ => None,
    }
}

/// Takes a completion in by which bytes came or were acknowledged, without an end. No thread waits for its connection
/// but in sets, and each byte of it is an event. `None`, and nothing was done, for all others.
#[inline(always)]
pub(crate) fn take_completion(socket: &mut Socket, sets: &mut Slab<EpollSet>, completion: &Completion) -> Option<()> {
    let Kind::Stream(stream) = &socket.kind else { return None };
    if stream.waits_for_room | stream.slow_completions || !matches!(socket.waiters, Few::None) {
        return None;
    }
    match (stream.advance(completion), &socket.watchers) {
        (false, _) | (true, Few::None) => {}
        (true, Few::One(watcher)) => became_ready(sets, *watcher, IN),
        (true, Few::Many(watchers)) => watchers.iter().for_each(|watcher| became_ready(sets, *watcher, IN)),
    }
    Some(())
}
