//! The hostile application: it attaches as any program may, by the daemon's own protocol, and then breaks every rule
//! that it can reach. Each attack runs for a while and prints in one line what it did.
use super::attachment::{Attachment, Dice, connect};
use context::{Bump, Geometry, Slot};
use rustix::fs::{OFlags, fcntl_setfl};
use shm::{CACHE_LINE, PAGE, Region, ring_bytes};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

/// Options of the program.
#[derive(Clone)]
pub struct Orders {
    /// The daemon's attach socket.
    pub socket: PathBuf,
    /// Host to attach to.
    pub host: String,
    /// An echo server: its address and port.
    pub echo: (Ipv4Addr, u16),
    /// How long to go on, seconds.
    pub seconds: u64,
    /// Of all random choices.
    pub seed: u64,
}

/// Contexts, and connections without a hello, that are tried.
const MANY: usize = 400;
/// Old descriptors that are stored, and repeated at each connection.
const MANY_OLD: usize = 64;
/// Connections of one context that are tried.
const MANY_CONNECTIONS: u32 = 5000;

/// Runs an attack by its name; the line to print.
pub fn run(attack: &str, orders: &Orders) -> Result<String, String> {
    match attack {
        "scribble" => scribble(orders),
        "silent" => silent(orders),
        "greedy" => greedy(orders),
        "replay" => replay(orders),
        "busy" => busy(orders),
        _ => Err(format!(
            "no attack is called {attack}: there are scribble, silent, greedy and replay, and busy, which is none"
        )),
    }
}

/// Writes random and adversarial values over the whole region, from several threads, again and again with a new
/// context: first everything but the rings' positions, so that the daemon goes on believing; then those too.
fn scribble(orders: &Orders) -> Result<String, String> {
    let end = Instant::now() + Duration::from_secs(orders.seconds);
    let mut dice = Dice::new(orders.seed);
    let (mut contexts, mut written, mut posted) = (0u64, 0, 0);
    while Instant::now() < end {
        let mut mine = Attachment::new(&orders.socket, &orders.host)?;
        mine.listen(30_000 + (contexts % 1000) as u16)?;
        // Some streams are in their buffers already, and some in their small rings.
        for length in [3000, 60, 3000, 60] {
            let slot = mine.connect(orders.echo)?;
            mine.write(slot, 0, &vec![7; length]);
        }
        let (region, geometry) = (mine.end.region.clone(), mine.end.geometry);
        let stop = AtomicBool::new(false);
        let seeds = [dice.next(), dice.next()];
        thread::scope(|scope| {
            let scribblers = seeds.map(|seed| {
                let (region, stop) = (&region, &stop);
                scope.spawn(move || scribble_memory(region, &geometry, Dice::new(seed), stop))
            });
            // The rings are this thread's alone: the others leave their positions be.
            posted += post_anything(&mut mine, &mut dice);
            bells_that_wait(&mine);
            thread::sleep(Duration::from_millis(20 + dice.below(60)));
            lie_about_positions(&region, &geometry, &mut dice);
            mine.end.daemon_bell.ring_always();
            thread::sleep(Duration::from_millis(5));
            stop.store(true, Relaxed);
            written += scribblers.into_iter().map(|thread| thread.join().unwrap_or(0)).sum::<u64>();
        });
        contexts += 1;
    }
    Ok(format!("{contexts} contexts, {written} words over their memory, {posted} descriptors"))
}

/// Where the two positions of each ring lie.
fn ring_positions(g: &Geometry) -> [usize; 8] {
    let (data, control) = (ring_bytes::<2>(g.data_entries), ring_bytes::<8>(g.control_entries));
    let rings = [PAGE, PAGE + data, PAGE + 2 * data, PAGE + 2 * data + control];
    std::array::from_fn(|at| rings[at / 2] + at % 2 * CACHE_LINE)
}

/// Random words everywhere but over the rings' positions: bells, descriptors, slots, payload that is being sent.
fn scribble_memory(region: &Region, geometry: &Geometry, mut dice: Dice, stop: &AtomicBool) -> u64 {
    let positions = ring_positions(geometry);
    let head = geometry.rx_at(0) as u64;
    // Its connections are within the machine: none has a slot for long paths, which are the first ones.
    let used = geometry.rx_at(geometry.long.slots) as u64;
    let body = (4 * (geometry.rx_bytes + geometry.tx_bytes)) as u64;
    let mut written = 0;
    while !stop.load(Relaxed) {
        for _ in 0..64 {
            let at = match dice.below(2) {
                0 => dice.below(head) as usize & !7,
                _ => (used + dice.below(body)) as usize & !7,
            };
            if !positions.contains(&(at & !(CACHE_LINE - 1))) {
                region.u64_at(at).store(dice.adversarial(), Relaxed);
                written += 1;
            }
        }
        // As much as one of three threads of a busy program: this is about memory, not about cores.
        thread::yield_now();
    }
    written
}

/// Descriptors that follow the rings' rules, and nothing else.
fn post_anything(mine: &mut Attachment, dice: &mut Dice) -> u64 {
    // Where the slots begin that its connections have.
    let first = u64::from(mine.end.geometry.long.slots);
    let mut posted = 0;
    for _ in 0..200 {
        for _ in 0..64 {
            let mut words = std::array::from_fn(|_| match dice.below(4) {
                0 => dice.below(8),
                1 => first + dice.below(8),
                _ => dice.adversarial(),
            });
            words[0] = dice.below(16) | dice.below(6) << 32;
            posted += mine.end.requests.push(words).is_ok() as u64;
            // The end of the stream or not, grown or not; and what may be under way, or anything.
            let slot = (first + dice.below(6)) | dice.below(3) << 32 | dice.below(4) << 48;
            let written = dice.below(2 * mine.end.geometry.tx_bytes as u64);
            let positions = if dice.below(2) == 0 { written } else { dice.adversarial() };
            posted += mine.end.bumps.push([slot, positions]).is_ok() as u64;
        }
        mine.end.daemon_bell.ring_always();
        thread::sleep(Duration::from_micros(200));
    }
    posted
}

/// Takes `O_NONBLOCK` from what it was given and fills what can be filled: whoever trusts a descriptor that an
/// application has waits for ever.
fn bells_that_wait(mine: &Attachment) {
    for bell in [mine.end.app_bell.fd(), mine.end.daemon_bell.fd()] {
        let full = (u64::MAX - 1).to_ne_bytes();
        let _ = rustix::io::write(bell, &full);
        let _ = fcntl_setfl(bell, OFlags::empty());
    }
    // And sets its sleep flag, so that its doorbell is rung.
    (0..64).for_each(|line| mine.end.region.u32_at(line * CACHE_LINE).store(u32::MAX >> (line % 3), Relaxed));
}

fn lie_about_positions(region: &Region, geometry: &Geometry, dice: &mut Dice) {
    let positions = ring_positions(geometry);
    for _ in 0..8 {
        let at = positions[dice.below(8) as usize];
        region.u32_at(at).store(dice.adversarial() as u32, Relaxed);
    }
}

/// Sends without ever reading: neither what comes back, nor completions, nor replies.
fn silent(orders: &Orders) -> Result<String, String> {
    let mut mine = Attachment::new(&orders.socket, &orders.host)?;
    mine.listen(31_000)?;
    let room = mine.end.geometry.tx_bytes;
    for _ in 0..32 {
        let slot = mine.connect(orders.echo)?;
        mine.write(slot, 0, &vec![9; room as usize]);
    }
    thread::sleep(Duration::from_secs(orders.seconds));
    Ok(format!("32 connections, {room} bytes sent on each, none read"))
}

/// Opens everything that can be opened until it is refused, and keeps it.
fn greedy(orders: &Orders) -> Result<String, String> {
    let unattached: Vec<_> = (0..MANY).map_while(|_| connect(&orders.socket).ok()).collect();
    let mut mine = Vec::new();
    let refused = loop {
        match Attachment::new(&orders.socket, &orders.host) {
            Ok(attachment) if mine.len() < MANY => mine.push(attachment),
            Ok(_) => break "nobody".to_string(),
            Err(sentence) => break sentence,
        }
    };
    let (mut connections, mut bindings, mut forks) = (0, 0, 0);
    if let Some(first) = mine.first_mut() {
        connections = first.connect_many(orders.echo, MANY_CONNECTIONS)?;
        bindings = first.bind_many(MANY_CONNECTIONS)?;
        forks = first.fork_many(1000)?;
    }
    thread::sleep(Duration::from_secs(orders.seconds));
    Ok(format!(
        "{} unattached, {} contexts until: {refused}; in one of them {connections} connections, {bindings} addresses, \
         {forks} forks",
        unattached.len(),
        mine.len(),
    ))
}

/// Connections one after the other, each with a message that `write` sends and that comes back.
fn in_turn(orders: &Orders, mut write: impl FnMut(&mut Attachment, Slot, &[u8], &mut Dice)) -> Result<u64, String> {
    let end = Instant::now() + Duration::from_secs(orders.seconds);
    let mut mine = Attachment::new(&orders.socket, &orders.host)?;
    let mut dice = Dice::new(orders.seed);
    let mut lives = 0;
    while Instant::now() < end {
        let slot = mine.connect(orders.echo)?;
        let message: Vec<u8> = (0..2000 + dice.below(9000)).map(|_| dice.next() as u8).collect();
        write(&mut mine, slot, &message, &mut dice);
        mine.expect(slot, &message)?;
        let length = message.len() as u32;
        mine.close(slot, length, length)?;
        lives += 1;
    }
    Ok(lives)
}

/// Uses a slot again and again, and repeats the descriptors of its earlier lives.
fn replay(orders: &Orders) -> Result<String, String> {
    let (mut old, mut replayed) = (Vec::new(), 0);
    let lives = in_turn(orders, |mine, slot, message, dice| {
        let mut repeat = |mine: &mut Attachment, old: &[Bump]| {
            replayed += old.len();
            old.iter().for_each(|earlier| mine.post(*earlier));
        };
        repeat(mine, &old);
        mine.write(slot, 0, message);
        repeat(mine, &old);
        let length = message.len() as u32;
        old.push(Bump {
            slot,
            tx_head: length + 100,
            rx_head: length,
            fin: dice.below(2) == 0,
            ring: dice.below(4) as u8,
        });
        if old.len() > MANY_OLD {
            old.remove(dice.below(MANY_OLD as u64) as usize);
        }
    })?;
    Ok(format!("{lives} connections in turn, {replayed} old descriptors, every byte as it was sent"))
}

/// An honest program that is as busy: it writes each message in as many pieces as the other one leaves descriptors.
fn busy(orders: &Orders) -> Result<String, String> {
    let mut pieces = 0;
    let lives = in_turn(orders, |mine, slot, message, _| {
        let length = message.len().div_ceil(2 * MANY_OLD + 1);
        for (at, piece) in message.chunks(length).enumerate() {
            mine.write(slot, (at * length) as u32, piece);
            pieces += 1;
        }
    })?;
    Ok(format!("{lives} connections in turn, {pieces} writes, every byte as it was sent"))
}
