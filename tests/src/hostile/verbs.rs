//! The hostile program of verbs: it attaches as any program may, breaks every rule of its queues, and prints in one
//! line what it did. What it registers lies between guards, which nobody may write.
use super::attachment::Dice;
use super::queues::{COMPLETIONS, Context, FIRST_PSN, Memory, Qp, gid_of};
use memory::Key;
use shm::Region;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};
use verbs::control::Request;
use verbs::{
    AsyncEvent, Binding, Number, Operand, Piece, QP_MASK, QpState, SendElement, SendFlags, SendOpcode, Status,
};

/// Options of the program.
#[derive(Clone)]
pub struct Orders {
    /// The daemon's attach socket.
    pub socket: PathBuf,
    /// Host to attach to.
    pub host: String,
    /// Host of the peer, which is this program's own, too.
    pub peer: String,
    /// The peer of a target of raw frames, whose packets are forged.
    pub forger: Ipv4Addr,
    /// How long to go on, seconds.
    pub seconds: u64,
    /// Of all random choices.
    pub seed: u64,
}

/// Bytes that are registered, and those of each guard.
const LEN: usize = 64 << 10;
const GUARD: u8 = 0xc3;
/// Number of the queue pair that raw frames name as their source.
pub const FORGER_QP: u32 = 0x12_3456;

/// Runs an attack by its name; the line to print.
pub fn run(attack: &str, orders: &Orders) -> Result<String, String> {
    match attack {
        "scribble" => scribble(orders),
        "forge" => forge(orders),
        "unmap" => unmap(orders),
        "honest" => honest(orders),
        "target" => target(orders),
        _ => Err(format!("no attack is called {attack}: there are scribble, forge and unmap; target, and honest")),
    }
}

/// One end: a context, its memory and a queue pair.
struct End {
    context: Context,
    memory: Memory,
    key: Key,
    qp: Qp,
    /// A memory window.
    window: Number,
}

impl End {
    fn open(orders: &Orders, host: &str) -> Result<End, String> {
        let context = Context::open(&orders.socket, host)?;
        let memory = Memory::new(3 * LEN, GUARD);
        let key = context.register(&memory, LEN, LEN)?;
        let (qp, window) = (context.qp()?, context.window()?);
        Ok(End { context, memory, key, qp, window })
    }

    fn pair(orders: &Orders) -> Result<[End; 2], String> {
        let mut ends = [End::open(orders, &orders.host)?, End::open(orders, &orders.peer)?];
        connect(&mut ends)?;
        Ok(ends)
    }

    /// Byte `from` of what is registered, as a piece.
    fn piece(&self, from: usize, len: usize) -> Piece {
        self.memory.piece(LEN + from, len, self.key)
    }

    /// The same as a peer names it.
    fn remote(&self, from: usize) -> Operand {
        self.memory.remote(LEN + from, self.key)
    }

    /// Nobody has written beside what is registered.
    fn guards(&self) -> Result<(), String> {
        for from in [0, 2 * LEN] {
            if let Some(at) = self.memory.bytes(from, LEN).iter().position(|byte| *byte != GUARD) {
                return Err(format!(
                    "byte {} of the memory was written, and {LEN} to {} only are registered",
                    from + at,
                    2 * LEN
                ));
            }
        }
        Ok(())
    }

    fn post(&mut self, element: SendElement) -> Result<u32, String> {
        self.context.post(&mut self.qp, element)
    }

    /// One operation that succeeds.
    fn succeed(&mut self, element: SendElement) -> Result<(), String> {
        let number = self.post(element)?;
        self.qp.expect(number, Status::Success).map(drop)
    }
}

fn connect(ends: &mut [End; 2]) -> Result<(), String> {
    let [one, other] = ends;
    one.context.connect(&one.qp, other.context.gid(), other.qp.number)?;
    other.context.connect(&other.qp, one.context.gid(), one.qp.number)
}

/// Both queue pairs from the start, with nothing outstanding.
fn again(ends: &mut [End; 2]) -> Result<(), String> {
    for end in ends.iter_mut() {
        end.context.go(&end.qp, QpState::Reset)?;
        while end.qp.poll().is_some() {}
    }
    connect(ends)
}

/// Random words over the regions of its queues from a thread, and elements that are nearly right, and those that are
/// not: keys, lengths, addresses, opcodes, numbers of others' queue pairs.
fn scribble(orders: &Orders) -> Result<String, String> {
    let end = Instant::now() + Duration::from_secs(orders.seconds);
    let mut dice = Dice::new(orders.seed);
    let (mut contexts, mut posted, mut written) = (0u64, 0u64, 0u64);
    while Instant::now() < end {
        let mut ends = End::pair(orders)?;
        // First the rules of the send queue hold, so that the daemon goes on reading: then none does.
        for scribbles in [false, true] {
            let stop = AtomicBool::new(false);
            let mut regions: Vec<Arc<Region>> = ends.iter().flat_map(|end| end.qp.regions.clone()).collect();
            regions.extend(ends.iter().filter(|_| scribbles).map(|end| Arc::clone(&end.context.region)));
            let (seed, stop) = (dice.next(), &stop);
            written += thread::scope(|scope| {
                let scribbler = scope.spawn(move || scribble_memory(&regions, Dice::new(seed), stop));
                posted += post_anything(&mut ends, scribbles, &mut dice);
                stop.store(true, Relaxed);
                scribbler.join().unwrap_or(0)
            });
            ends.iter().try_for_each(End::guards)?;
        }
        contexts += 2;
    }
    Ok(format!("{contexts} contexts, {written} words over their queues, {posted} elements, no guard touched"))
}

fn scribble_memory(regions: &[Arc<Region>], mut dice: Dice, stop: &AtomicBool) -> u64 {
    let mut written = 0;
    while !stop.load(Relaxed) {
        for _ in 0..64 {
            let region = &regions[dice.below(regions.len() as u64) as usize];
            let at = dice.below(region.len() as u64) as usize & !7;
            region.u64_at(at).store(dice.adversarial(), Relaxed);
            written += 1;
        }
        thread::yield_now();
    }
    written
}

fn post_anything(ends: &mut [End; 2], anything: bool, dice: &mut Dice) -> u64 {
    let mut posted = 0;
    for _ in 0..40 {
        for _ in 0..16 {
            let (from, to) = if dice.below(2) == 0 { (0, 1) } else { (1, 0) };
            let element = nearly_right(&ends[from], &ends[to], dice);
            let words = match anything && dice.below(4) == 0 {
                true => std::array::from_fn(|_| dice.adversarial()),
                false => element.encode(),
            };
            posted += u64::from(ends[from].context.push(words));
            let piece = Piece { key: forged(ends[to].key, dice), ..place(&ends[to], dice) };
            posted += u64::from(ends[to].qp.post_receive(piece));
        }
        for end in ends.iter_mut() {
            while end.qp.poll().is_some() {}
        }
        thread::sleep(Duration::from_micros(300));
        // The first false one has ended the queue pair. A context whose pipe is corrupt may be refused.
        if again(ends).is_err() {
            break;
        }
    }
    posted
}

/// The right key, or nearly it, or any.
fn forged(key: Key, dice: &mut Dice) -> u32 {
    match dice.below(4) {
        0 => key.0 ^ 1 << dice.below(32),
        1 => dice.adversarial() as u32,
        _ => key.0,
    }
}

/// A piece in what is registered, or across its ends, or anywhere.
fn place(end: &End, dice: &mut Dice) -> Piece {
    let (from, len) = (dice.below(LEN as u64), dice.below(9000));
    let first = end.memory.address() + LEN as u64;
    let (address, len) = match dice.below(8) {
        0 => (first - 1 - dice.below(64), len + 65),
        1 => (first + LEN as u64 - dice.below(8), 9 + len),
        2 => (dice.adversarial(), len),
        3 => (first + from, dice.adversarial() & u64::from(u32::MAX)),
        _ => (first + from, len.min(LEN as u64 - from)),
    };
    Piece { address, len: len as u32, key: end.key.0 }
}

fn nearly_right(from: &End, to: &End, dice: &mut Dice) -> SendElement {
    let opcode = SendOpcode::ALL[dice.below(SendOpcode::ALL.len() as u64) as usize];
    let (own, remote) = (place(from, dice), place(to, dice));
    let piece = Piece { key: forged(from.key, dice), ..own };
    let remote = Operand { address: remote.address, key: forged(to.key, dice) };
    let mut element = from.qp.work(opcode, piece, remote);
    match dice.below(6) {
        0 => element.qp = dice.next() as u32 & QP_MASK,
        1 => element.qp = to.qp.number,
        2 => {
            element.flags = SendFlags(dice.below(8) as u8 | SendFlags::INLINE.0);
            (element.pieces, element.inline) = (0, dice.below(33) as u32);
        }
        _ => {}
    }
    (element.number, element.immediate) = (dice.next() as u32, dice.next() as u32);
    if opcode.is_local() && dice.below(4) > 0 {
        element.pieces = 0;
        let window = if dice.below(4) > 0 { from.window } else { to.window };
        let key = window << 8 | dice.below(4) as u32;
        let (region, rights) = (forged(from.key, dice), dice.below(16) as u8);
        let Piece { address, len, .. } = own;
        let zero_based = dice.below(2) == 0;
        element.set_binding(&Binding { window, key, region, address, len: len.into(), rights, zero_based });
    }
    if dice.below(4) == 0 {
        // What the peer may have bound meanwhile.
        element.key = to.window << 8 | dice.below(4) as u32;
        element.immediate = element.key;
    }
    element
}

/// A forgery: what it is called, the element, and how it must end at both sides.
type Forgery = (&'static str, fn(&End, &End) -> SendElement, Status, Option<Status>);

fn write(one: &End, other: &End) -> SendElement {
    one.qp.work(SendOpcode::Write, one.piece(0, 5000), other.remote(0))
}

fn with_piece(element: SendElement, change: impl FnOnce(&mut Piece)) -> SendElement {
    let mut element = element;
    let mut piece = element.piece(0);
    change(&mut piece);
    element.set_piece(0, piece);
    element
}

/// Binds a window to what is registered.
fn binds(end: &End, window: Number, len: usize) -> SendElement {
    let mut element = SendElement { pieces: 0, ..end.qp.work(SendOpcode::BindWindow, Piece::default(), end.remote(0)) };
    let (region, address, rights) = (end.key.0, end.remote(0).address, 0b0110);
    let (key, zero_based) = (window << 8 | 1, false);
    element.set_binding(&Binding { window, key, region, address, len: len as u64, rights, zero_based });
    element
}

const FORGERIES: [Forgery; 17] = [
    ("local key", |a, b| with_piece(write(a, b), |p| p.key ^= 1 << 31), Status::LocalProtection, None),
    ("peer's key as local", |a, b| with_piece(write(a, b), |p| p.key = b.key.0), Status::LocalProtection, None),
    (
        "beyond the own region",
        |a, b| with_piece(write(a, b), |p| p.address += LEN as u64 - 4999),
        Status::LocalProtection,
        None,
    ),
    ("no such length", |a, b| with_piece(write(a, b), |p| p.len = u32::MAX), Status::LocalLength, None),
    ("remote key", |a, b| SendElement { key: b.key.0 ^ 1, ..write(a, b) }, Status::RemoteAccess, None),
    ("own key as remote", |a, b| SendElement { key: a.key.0, ..write(a, b) }, Status::RemoteAccess, None),
    (
        "beyond the peer's region",
        |a, b| SendElement { target: b.remote(LEN - 4999).address, ..write(a, b) },
        Status::RemoteAccess,
        None,
    ),
    (
        "before the peer's region",
        |a, b| SendElement { target: b.remote(0).address - 1, ..write(a, b) },
        Status::RemoteAccess,
        None,
    ),
    (
        "at the end of all addresses",
        |a, b| SendElement { target: u64::MAX - 100, ..write(a, b) },
        Status::RemoteAccess,
        None,
    ),
    (
        "a READ beyond",
        |a, b| a.qp.work(SendOpcode::Read, a.piece(0, 5000), b.remote(LEN - 4999)),
        Status::RemoteAccess,
        None,
    ),
    (
        "an atomic on an odd address",
        |a, b| a.qp.work(SendOpcode::FetchAdd, a.piece(0, 8), b.remote(4)),
        Status::RemoteInvalidRequest,
        None,
    ),
    (
        "a SEND longer than its receive",
        |a, b| a.qp.work(SendOpcode::Send, a.piece(0, 5000), b.remote(0)),
        Status::RemoteInvalidRequest,
        Some(Status::LocalLength),
    ),
    ("a window of the peer's", |a, b| binds(a, b.window, LEN), Status::WindowBind, None),
    ("a window beyond its region", |a, _| binds(a, a.window, LEN + 1), Status::WindowBind, None),
    (
        "a key that is not bound",
        |a, _| {
            let bare =
                a.qp.work(SendOpcode::LocalInvalidate, Piece::default(), Operand { address: 0, key: a.window << 8 });
            SendElement { pieces: 0, ..bare }
        },
        Status::WindowBind,
        None,
    ),
    (
        "an invalidated region",
        |a, b| SendElement { immediate: b.key.0, ..a.qp.work(SendOpcode::SendInvalidate, a.piece(0, 0), b.remote(0)) },
        Status::RemoteAccess,
        None,
    ),
    (
        "a window with an entry",
        |a, b| a.qp.work(SendOpcode::BindWindow, a.piece(0, 8), b.remote(0)),
        Status::LocalQpOperation,
        None,
    ),
];

/// Each forgery ends as with hardware; what is posted behind it is flushed; the queue pair serves again after a reset.
fn forge(orders: &Orders) -> Result<String, String> {
    let mut ends = End::pair(orders)?;
    let end = Instant::now() + Duration::from_secs(orders.seconds);
    let mut ended = 0u64;
    'rounds: while ended == 0 || Instant::now() < end {
        for forgery in &FORGERIES {
            // On a crowded machine, a round takes a minute.
            if ended > 0 && Instant::now() > end {
                break 'rounds;
            }
            ended += one_forgery(&mut ends, forgery).map_err(|error| format!("{}: {error}", forgery.0))?;
        }
        overrun(&mut ends).map_err(|error| format!("overrun: {error}"))?;
        for stolen in [ends[1].qp.number, QP_MASK, 0, 1] {
            others_queue_pair(&mut ends, stolen).map_err(|error| format!("queue pair {stolen}: {error}"))?;
        }
        ended += 5;
    }
    Ok(format!(
        "{ended} forged work requests of {} kinds ended as with hardware, no guard touched",
        FORGERIES.len() + 2
    ))
}

fn one_forgery(ends: &mut [End; 2], (_, forged, status, of_receive): &Forgery) -> Result<u64, String> {
    let [one, other] = ends;
    let before = other.memory.bytes(LEN, LEN);
    let short = other.piece(0, 100);
    other.qp.post_receive(short);
    let wrong = one.post(forged(one, other))?;
    let behind = one.post(write(one, other))?;
    one.qp.expect(wrong, *status)?;
    one.qp.expect(behind, Status::Flushed)?;
    if let Some(status) = of_receive {
        let done = other.qp.next()?;
        if done.status != *status {
            return Err(format!("instead of {status:?} at the receiver: {done:?}"));
        }
    }
    // A part of a message that turns out to be too long may be there.
    if of_receive.is_none() && other.memory.bytes(LEN, LEN) != before {
        return Err("the peer's memory was written".into());
    }
    ends.iter().try_for_each(End::guards)?;
    again(ends)?;
    let [one, other] = ends;
    one.succeed(write(one, other))?;
    Ok(1)
}

/// More completions than the queue holds, and nobody takes them.
fn overrun(ends: &mut [End; 2]) -> Result<(), String> {
    let [one, other] = ends;
    while other.context.event_now().is_some() {}
    while one.context.event_now().is_some() {}
    for _ in 0..2 * COMPLETIONS {
        one.post(one.qp.work(SendOpcode::Write, one.piece(0, 8), other.remote(0)))?;
    }
    let events = [one.context.event()?.event, one.context.event()?.event];
    if events != [AsyncEvent::CompletionQueueError, AsyncEvent::QpFatal] {
        return Err(format!("the events {events:?}"));
    }
    if one.context.state(&one.qp)? != Some(QpState::Error) {
        return Err("the queue pair goes on".into());
    }
    // An overrun queue stays as it is: another one for the next round.
    one.qp = one.context.qp()?;
    other.context.go(&other.qp, QpState::Reset)?;
    connect(ends)
}

/// A work request for a queue pair that is not this context's: nothing happens, to nobody.
fn others_queue_pair(ends: &mut [End; 2], number: u32) -> Result<(), String> {
    let [one, other] = ends;
    let before = other.memory.bytes(0, 3 * LEN);
    let element = SendElement { qp: number, ..write(one, other) };
    one.context.push(element.encode());
    // It is passed over: the next one is carried out, without a gap.
    one.succeed(one.qp.work(SendOpcode::Write, one.piece(0, 0), other.remote(0)))?;
    if other.memory.bytes(0, 3 * LEN) != before || other.qp.poll().is_some() {
        return Err("it did something".into());
    }
    Ok(())
}

/// A region that goes away under a WRITE of its peer: deregistered, or unmapped without a word.
fn unmap(orders: &Orders) -> Result<String, String> {
    let end = Instant::now() + Duration::from_secs(orders.seconds);
    let mut dice = Dice::new(orders.seed);
    let (mut gone, mut writes) = ([0u64; 2], 0u64);
    while Instant::now() < end {
        let mut ends = End::pair(orders)?;
        let deregisters = dice.below(2) == 0;
        // More than what malloc keeps for itself: the end of it unmaps it.
        const LARGE: usize = 40 << 20;
        let mut large = Some(vec![0u8; LARGE]);
        let [one, other] = &mut ends;
        let remote = large.as_ref().map_or(0, |memory| memory.as_ptr() as u64);
        let key = other.context.register_at(remote, LARGE)?;
        let mut is_there = true;
        let until = Instant::now() + Duration::from_micros(500 + dice.below(3000));
        loop {
            let was_there = is_there;
            let at = remote + dice.below((LARGE - LEN) as u64);
            let element = one.qp.work(SendOpcode::Write, one.piece(0, LEN), Operand { address: at, key: key.0 });
            one.post(element)?;
            if Instant::now() >= until && std::mem::replace(&mut is_there, false) {
                match deregisters {
                    true => other.context.done(&Request::Deregister(key), &[])?,
                    false => drop(large.take()),
                }
            }
            let done = one.qp.next()?;
            match done.status {
                // One that was posted before may have been carried out before.
                Status::Success if was_there => writes += 1,
                Status::RemoteAccess => break,
                // Memory that is registered and not there: the peer fails in the operation.
                Status::RemoteOperation if !deregisters => break,
                status => return Err(format!("a WRITE of memory that is gone ended with {status:?}")),
            }
        }
        gone[usize::from(deregisters)] += 1;
        ends.iter().try_for_each(End::guards)?;
    }
    Ok(format!(
        "{writes} WRITEs, {} times into memory that was unmapped, {} times into what was deregistered, \
                each ended with the right error",
        gone[0], gone[1]
    ))
}

/// A program that follows all rules: each kind of operation, one after the other, and each byte compared.
fn honest(orders: &Orders) -> Result<String, String> {
    let mut dice = Dice::new(orders.seed);
    let [mut one, mut other] = End::pair(orders)?;
    print("begun")?;
    let end = Instant::now() + Duration::from_secs(orders.seconds);
    let (mut operations, mut sum) = (0u64, 0u64);
    // Once at least: on a crowded machine, the time may be over when the program gets a core.
    while operations == 0 || Instant::now() < end {
        let most = [200, 20_000][dice.below(2) as usize];
        let len = 1 + dice.below(most) as usize;
        let bytes: Vec<u8> = (0..len).map(|_| dice.next() as u8).collect();
        one.memory.fill(LEN, bytes.iter().copied());
        one.succeed(one.qp.work(SendOpcode::Write, one.piece(0, len), other.remote(0)))?;
        compare("WRITE", &other.memory.bytes(LEN, len), &bytes)?;
        one.succeed(one.qp.work(SendOpcode::Read, one.piece(LEN / 2, len), other.remote(0)))?;
        compare("READ", &one.memory.bytes(LEN + LEN / 2, len), &bytes)?;
        let receive = other.piece(LEN / 2, LEN / 2);
        other.qp.post_receive(receive);
        one.succeed(one.qp.work(SendOpcode::Send, one.piece(0, len), Operand::default()))?;
        let received = other.qp.next()?;
        if received.bytes as usize != len {
            return Err(format!("a SEND of {len} bytes gave {received:?}"));
        }
        compare("SEND", &other.memory.bytes(LEN + LEN / 2, len), &bytes)?;
        if operations == 0 {
            other.memory.fill(2 * LEN - 8, [0; 8]);
        }
        let mut add = one.qp.work(SendOpcode::FetchAdd, one.piece(LEN / 2, 8), other.remote(LEN - 8));
        add.words[2] = len as u64;
        one.succeed(add)?;
        compare("atomic", &one.memory.bytes(LEN + LEN / 2, 8), &sum.to_ne_bytes())?;
        sum = sum.wrapping_add(len as u64);
        [&one, &other].into_iter().try_for_each(End::guards)?;
        operations += 4;
    }
    Ok(format!("{operations} operations"))
}

fn compare(what: &str, found: &[u8], expected: &[u8]) -> Result<(), String> {
    match found.iter().zip(expected).position(|(found, expected)| found != expected) {
        Some(at) => Err(format!("byte {at} of a {what} of {} bytes is wrong", expected.len())),
        None => Ok(()),
    }
}

/// How many queue pairs of a target raw frames are sent to: each of them but the first is to be refused something.
const TARGETS: usize = 10;

/// Queue pairs whose peer sends raw frames, with what that needs, until the right WRITE has come, which is the
/// last byte of what is registered. All of the others but that have ended in the error state.
fn target(orders: &Orders) -> Result<String, String> {
    let end = Instant::now() + Duration::from_secs(orders.seconds);
    let mut mine = End::open(orders, &orders.host)?;
    let others: Vec<Qp> = (1..TARGETS).map(|_| mine.context.qp()).collect::<Result<_, _>>()?;
    for qp in others.iter().chain([&mine.qp]) {
        mine.context.connect(qp, gid_of(orders.forger), FORGER_QP)?;
    }
    let Operand { address, key } = mine.remote(0);
    let numbers: Vec<String> = others.iter().map(|qp| qp.number.to_string()).collect();
    print(&format!("target {FIRST_PSN} {address} {key} {LEN} {FORGER_QP} {} {}", mine.qp.number, numbers.join(" ")))?;
    while mine.memory.bytes(2 * LEN - 1, 1) == [GUARD] {
        if Instant::now() > end {
            return Err("the right WRITE has not come".into());
        }
        thread::sleep(Duration::from_millis(5));
    }
    mine.guards()?;
    if mine.memory.bytes(LEN, LEN - 1).iter().any(|byte| *byte != GUARD) {
        return Err("a false frame wrote into memory".into());
    }
    let states: Vec<_> = others.iter().map(|qp| mine.context.state(qp)).collect::<Result<_, _>>()?;
    let errors = states.iter().filter(|state| **state == Some(QpState::Error)).count();
    let (own, done) = (mine.context.state(&mine.qp)?, mine.qp.poll());
    if errors + 1 < TARGETS || own != Some(QpState::ReadyToSend) || done.is_some() {
        return Err(format!("the states {states:?} and {own:?}, and the completion {done:?}"));
    }
    let events = std::iter::from_fn(|| mine.context.event_now());
    let refusals = [AsyncEvent::QpAccessError, AsyncEvent::QpRequestError];
    let reported = events.filter(|event| refusals.contains(&event.event)).count();
    if reported + 1 != TARGETS {
        return Err(format!("{reported} asynchronous errors"));
    }
    Ok(format!("{errors} queue pairs ended, each with its event"))
}

fn print(line: &str) -> Result<(), String> {
    println!("{line}");
    std::io::stdout().flush().map_err(|error| error.to_string())
}
