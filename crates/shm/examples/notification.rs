//! Elements of 64 bytes between two threads, in two ways (SmartNS section 5.5, figure 14). In a *pipe*, elements have
//! a valid bit each. With a *doorbell*, a word beside a ring has how far they are valid. A doorbell is
//! written once for elements that go together.
//!
//! `notification time TOGETHER MILLISECONDS` prints a line for each way: its name, nanoseconds an element takes in a
//! stream of them, and nanoseconds of one way of an element that is answered by one.
//! `notification count TOGETHER COUNT` is for callgrind: `path_pipe` and `path_doorbell` move COUNT elements each.
use shm::{Consumer, PipeConsumer, PipeProducer, Producer, Region, pipe_bytes, ring_bytes};
use std::hint::{black_box, spin_loop};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const ENTRIES: u32 = 1024;
const AT: usize = 4096;
/// The producer of a pipe reads the consumer's counter four times in a lap.
const EVERY: u32 = ENTRIES / 4;
/// Polls of an empty ring, or a full one, before the thread yields: both threads may share a core.
const SPINS: u32 = 1000;
/// Round trips that are timed together.
const GROUP: usize = 100;
/// What ends a thread.
const LAST: u64 = u64::MAX >> 1;

type Element = [u64; 8];

trait Sender: Send + 'static {
    /// False where there is no room.
    fn add(&mut self, element: Element) -> bool;
    /// Shows what was added, where the elements themselves do not.
    fn show(&mut self);
}

trait Receiver: Send + 'static {
    fn take(&mut self) -> Option<Element>;
}

impl Sender for PipeProducer<8> {
    #[inline(always)]
    fn add(&mut self, element: Element) -> bool {
        self.push(element).is_ok()
    }

    #[inline(always)]
    fn show(&mut self) {}
}

impl Receiver for PipeConsumer<8> {
    #[inline(always)]
    fn take(&mut self) -> Option<Element> {
        self.pop()
    }
}

impl Sender for Producer<8> {
    #[inline(always)]
    fn add(&mut self, element: Element) -> bool {
        Producer::add(self, element).is_ok()
    }

    #[inline(always)]
    fn show(&mut self) {
        self.publish();
    }
}

impl Receiver for Consumer<8> {
    #[inline(always)]
    fn take(&mut self) -> Option<Element> {
        self.pop().ok().flatten()
    }
}

fn pipe() -> (PipeProducer<8>, PipeConsumer<8>) {
    let region = region(pipe_bytes::<8>(ENTRIES));
    (PipeProducer::new(&region, AT, ENTRIES, 0, EVERY), PipeConsumer::new(&region, AT, ENTRIES, 0))
}

fn doorbell() -> (Producer<8>, Consumer<8>) {
    let region = region(ring_bytes::<8>(ENTRIES));
    (Producer::new(&region, AT, ENTRIES), Consumer::new(&region, AT, ENTRIES))
}

fn region(bytes: usize) -> Arc<Region> {
    match Region::create("notification", AT + bytes) {
        Ok(region) => Arc::new(region),
        Err(error) => fail(&format!("no shared memory: {error}")),
    }
}

/// Until it is there.
#[inline(always)]
fn wait<T>(mut poll: impl FnMut() -> Option<T>) -> T {
    let mut spins = 0;
    loop {
        if let Some(found) = poll() {
            return found;
        }
        spins += 1;
        if spins % SPINS == 0 { thread::yield_now() } else { spin_loop() }
    }
}

#[inline(always)]
fn put(sender: &mut impl Sender, number: u64) {
    wait(|| {
        let added = sender.add([number; 8]);
        if !added {
            sender.show();
        }
        added.then_some(())
    });
}

/// Nanoseconds an element takes in a stream.
fn stream(ends: (impl Sender, impl Receiver), together: u64, time: Duration) -> f64 {
    let (mut sender, mut receiver) = ends;
    let receiving = thread::spawn(move || {
        let mut count = 0;
        while wait(|| receiver.take()) == [count; 8] {
            count += 1;
        }
        count
    });
    let (begin, mut number) = (Instant::now(), 0);
    while begin.elapsed() < time {
        for _ in 0..GROUP {
            (number..number + together).for_each(|number| put(&mut sender, number));
            number += together;
            sender.show();
        }
    }
    put(&mut sender, LAST);
    sender.show();
    let Ok(count) = receiving.join() else { fail("the receiving thread ended early") };
    if count != number {
        fail(&format!("of {number} elements, only the first {count} came in their order"));
    }
    begin.elapsed().as_secs_f64() * 1e9 / count as f64
}

/// Nanoseconds of one way: half of a round trip, the median of groups.
fn one_way<S: Sender, R: Receiver>(make: impl Fn() -> (S, R), time: Duration) -> f64 {
    let ((mut sender, mut receiver), (mut back, mut answers)) = (make(), make());
    let answering = thread::spawn(move || {
        loop {
            let [number, ..] = wait(|| receiver.take());
            put(&mut back, number);
            back.show();
            if number == LAST {
                break;
            }
        }
    });
    let (begin, mut groups) = (Instant::now(), Vec::new());
    let mut exchange = |number| {
        put(&mut sender, number);
        sender.show();
        wait(|| answers.take())
    };
    while begin.elapsed() < time {
        let group = Instant::now();
        (0..GROUP as u64).for_each(|number| {
            if exchange(number) != [number; 8] {
                fail("another element came back");
            }
        });
        groups.push(group.elapsed().as_secs_f64() * 1e9 / (2 * GROUP) as f64);
    }
    exchange(LAST);
    if answering.join().is_err() {
        fail("the answering thread ended early");
    }
    groups.sort_by(f64::total_cmp);
    groups.get(groups.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Moves `count` elements within the thread.
#[inline(always)]
fn moved(ends: &mut (impl Sender, impl Receiver), together: u64, count: u64) {
    for first in (0..count).step_by(together as usize) {
        (first..first + together).for_each(|number| put(&mut ends.0, number));
        ends.0.show();
        for number in first..first + together {
            if ends.1.take() != Some([number; 8]) {
                fail("an element is not what was put in");
            }
        }
    }
}

#[inline(never)]
fn path_pipe(ends: &mut (PipeProducer<8>, PipeConsumer<8>), together: u64, count: u64) {
    moved(ends, black_box(together), count);
}

#[inline(never)]
fn path_doorbell(ends: &mut (Producer<8>, Consumer<8>), together: u64, count: u64) {
    moved(ends, black_box(together), count);
}

fn fail(sentence: &str) -> ! {
    eprintln!("notification: {sentence}");
    std::process::exit(1);
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok()).filter(|number| *number > 0);
    let (Some(what), Some(together), Some(much)) = (words.first(), number(1), number(2)) else {
        fail("usage: notification time TOGETHER MILLISECONDS | count TOGETHER COUNT");
    };
    if together > u64::from(ENTRIES) {
        fail(&format!("{ENTRIES} elements at most go together"));
    }
    if what == "count" {
        path_pipe(&mut pipe(), together, much);
        path_doorbell(&mut doorbell(), together, much);
        return;
    }
    let time = Duration::from_millis(much);
    println!("pipe {:.2} {:.2}", stream(pipe(), together, time), one_way(pipe, time));
    println!("doorbell {:.2} {:.2}", stream(doorbell(), together, time), one_way(doorbell, time));
}
