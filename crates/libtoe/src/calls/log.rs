//! Shared logs (include/toe.h, man/toe_log.3, docs/SHARED-LOG.md): the application's side. The data-path orders records
//! of many connections and puts them in place; here they are found, handed out in order, and given back.
use crate::calls::waiting;
use crate::daemon::{ask, share};
use crate::lock::Guard;
use crate::state::context_side::Context;
use crate::state::log_records::Log;
pub(crate) use crate::state::log_records::Record;
use crate::state::set::EpollSet;
use crate::state::slab::{Key, Slab};
use crate::state::socket::{Kind, Socket};
use crate::state::{Lib, events, readiness};
use crate::system::errno::Result;
use crate::system::waking;
use crate::wait::signals::Signals;
use crate::wait::{Target, WaitOptions};
use context::{Bump, Completion, LOG_SLOT, LogShape, Request, Slot};
use libc::c_int;
use std::sync::Arc;
use std::time::Duration;

/// Time between two attempts while a connection's memory is being given back, or the ring is full.
const PAUSE: Duration = Duration::from_millis(1);
/// How often a connection that stands still for a moment is asked again.
const ATTEMPTS: u32 = 200;

/// Makes a fresh socket of ours the log, with so many records of a size.
pub(crate) fn open(lib: &mut Guard, key: Key, record: usize, records: usize) -> Result<()> {
    let number = |value: usize| u32::try_from(value).map_err(|_| libc::EINVAL);
    let shape = LogShape { record: number(record)?, records: number(records)? };
    ask::ask(lib, |tag| Request::OpenLog { tag, shape })?;
    let context = lib.need_context()?;
    context.log = Some(key);
    let home = Arc::clone(&context.home);
    lib.need_socket(key)?.kind = Kind::Log(Box::new(Log { home, shape, ready: 0, read: 0, trimmed: 0 }));
    Ok(())
}

/// From now on, what comes on the connection is records of the log, marked with `mark`.
pub(crate) fn add(lib: &mut Guard, log: Key, key: Key, mark: u64) -> Result<()> {
    self::log(lib.need_socket(log)?)?;
    for attempt in 0.. {
        share::claim(lib, key)?;
        let socket = lib.need_socket(key)?;
        if socket.broken {
            return Err(if socket.error == 0 { libc::ENOTCONN } else { socket.take_error() });
        }
        let stream = socket.stream()?;
        if stream.keeps() {
            // What the program took in place lies where it was received.
            return Err(libc::EBUSY);
        }
        let (_, rx_head) = stream.positions();
        let slot = stream.name.filter(|_| !stream.shared).ok_or(libc::EBUSY)?;
        match ask::ask(lib, |tag| Request::JoinLog { tag, slot, rx_head, mark }) {
            Err(libc::EAGAIN) if attempt < ATTEMPTS => pause(lib),
            Err(errno) => return Err(errno),
            Ok(_) => break,
        }
    }
    // What had come is in the log, not in the receive buffer.
    if let Ok(stream) = lib.need_socket(key)?.stream() {
        stream.forget_unread();
    }
    Ok(())
}

/// The next records, in the log's order: fills `list`, as far as there are any; waits for the first.
pub(crate) fn read(lib: &mut Guard, key: Key, list: &mut [Record], flags: c_int) -> Result<usize> {
    if flags & !libc::MSG_DONTWAIT != 0 || list.is_empty() {
        return Err(libc::EINVAL);
    }
    let socket = lib.need_socket(key)?;
    let (timeout, dont_wait) = (socket.options.receive_timeout, socket.nonblocking || flags & libc::MSG_DONTWAIT != 0);
    log(socket)?;
    let deadline = if dont_wait { Some(waking::now()) } else { timeout.map(|timeout| waking::now() + timeout) };
    let targets = [Target::Socket(key)];
    let signals = if timeout.is_some() { Signals::Interrupt } else { Signals::Restart };
    let wait = WaitOptions { deadline, targets: &targets, signals, ..WaitOptions::forever() };
    let found = waiting::until(lib, wait, |lib, _| take_records(lib, key, list));
    found.map_err(|errno| if errno == libc::ETIMEDOUT { libc::EAGAIN } else { errno })?
}

fn take_records(lib: &mut Lib, key: Key, list: &mut [Record]) -> Option<Result<usize>> {
    let Some(socket) = lib.socket(key) else { return Some(Err(libc::EBADF)) };
    let broken = socket.broken;
    let log = match log(socket) {
        Ok(log) => log,
        Err(errno) => return Some(Err(errno)),
    };
    let count = list.len().min((log.ready - log.read) as usize);
    for (place, index) in list.iter_mut().zip(log.read..log.read + count as u64) {
        *place = log.record(index);
    }
    log.read += count as u64;
    match count {
        0 => broken.then_some(Err(libc::ENETDOWN)),
        count => Some(Ok(count)),
    }
}

/// The oldest `count` records that were handed out are done with: their room belongs to their connections again.
pub(crate) fn trim(lib: &mut Guard, key: Key, count: usize) -> Result<()> {
    let log = log(lib.need_socket(key)?)?;
    if count as u64 > log.read - log.trimmed {
        return Err(libc::EINVAL);
    }
    log.trimmed += count as u64;
    let slot = Slot { index: LOG_SLOT, generation: 0 };
    let bump = Bump { slot, tx_head: 0, rx_head: log.trimmed as u32, fin: false, ring: 0 };
    loop {
        let context = lib.need_context()?;
        let sent = context.end.bumps.push(bump.to_words()).is_ok();
        context.end.daemon_bell.ring();
        if sent {
            return Ok(());
        }
        pause(lib);
    }
}

fn log(socket: &mut Socket) -> Result<&mut Log> {
    match &mut socket.kind {
        Kind::Log(log) => Ok(log),
        _ => Err(libc::EBADF),
    }
}

/// A moment in which the daemon goes on, and other threads may use the library.
fn pause(lib: &mut Guard) {
    let wait = WaitOptions { deadline: Some(waking::now() + PAUSE), signals: Signals::Keep, ..WaitOptions::forever() };
    let _ = waiting::until(lib, wait, |_, _| None::<()>);
}

impl Context {
    /// The log can be read further.
    pub(crate) fn take_log_completion(
        &mut self,
        sockets: &mut Slab<Socket>,
        sets: &mut Slab<EpollSet>,
        completion: &Completion,
    ) {
        let socket = self.log.and_then(|key| sockets.get_mut(key.index).filter(|socket| socket.id == key.id));
        let Some(socket) = socket else { return };
        if let Kind::Log(log) = &mut socket.kind {
            let more = completion.rx_tail.wrapping_sub(log.ready as u32);
            if more as i32 > 0 {
                log.ready += more as u64;
                readiness::notify(socket, sets, events::IN);
            }
        }
    }
}
