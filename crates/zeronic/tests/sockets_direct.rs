//! Direct receives: a stretch of the stream lands in memory that the program has posted, and it is the program's again
//! whenever it wants. Whatever comes, and whenever it posts and takes back, the program reads the stream.
#[path = "../../flextoe/tests/common/mod.rs"]
mod common;
#[path = "support/over.rs"]
mod over;

use common::solo::{ACK, FLOW, START, Seg, Solo, seg};
use common::{Config, Rng};
use context::{DirectWords, Post, TakenBack};
use engine::{Command, ContextId, Slot, stream};
use over::{over_flextoe, over_laminar};
use shm::ByteRing;
use std::sync::Arc;

const HEAP: u32 = 65_536;
/// What lies in the heap where nothing landed.
const BLANK: u8 = 0xaa;

/// A program that receives directly: what the library does, as far as an engine can see.
struct Program {
    solo: Solo,
    words: DirectWords,
    heap: ByteRing,
    /// Received in order, as the engine has reported.
    reported: u32,
}

impl Program {
    fn new(engine: common::MakeEngine) -> Program {
        let config = Config { engine, timestamps: false, mss: 1000, rx_bytes: 8192, wscale: 0, ..Config::clean(1) };
        let solo = Solo::new(config);
        let end = &solo.side.app.end;
        let words = DirectWords::new(&end.region, &end.geometry, solo.side.app.slot.index).expect("a heap");
        let heap = words.heap().expect("laid out so");
        heap.write(0, &[BLANK; HEAP as usize]);
        Program { solo, words, heap, reported: 0 }
    }

    fn read_so_far(&self) -> u32 {
        self.solo.side.app.read
    }

    /// Posts `len` bytes at `at` for what is read next.
    fn post(&self, at: u32, len: u32) -> bool {
        self.words.post(Post { pos: self.read_so_far(), at, len })
    }

    fn comes(&mut self, segs: &[Seg]) {
        self.solo.receive(segs);
        self.reported = self.solo.completion().map_or(self.reported, |(rx_tail, ..)| rx_tail);
    }

    /// Bytes `0..len` from what is read next, from wherever they lie.
    fn look(&self, len: u32) -> Vec<u8> {
        let (from, mut bytes) = (self.read_so_far(), vec![0; len as usize]);
        self.solo.side.app.rx.read(from, &mut bytes);
        let landed = self.words.landed(from, len);
        let post = self.words.posted();
        if !landed.is_empty() {
            let at = post.at + (from + landed.start - post.pos);
            self.heap.read(at, &mut bytes[landed.start as usize..landed.end as usize]);
        }
        bytes
    }

    /// Reads and checks so many bytes; what was posted stays posted.
    fn reads(&mut self, len: u32) {
        let from = self.read_so_far();
        assert_eq!(self.look(len), stream(from, len), "from {from}");
        let app = &mut self.solo.side.app;
        app.read += len;
        app.bump();
    }

    /// The buffer is the program's again; what it has not read lies in the ring.
    fn takes_back(&mut self) {
        for _ in 0..3 {
            if self.words.take_back(self.reported) == TakenBack::Done {
                let landed = self.words.landed(self.read_so_far(), 8192);
                let rest = self.look(landed.end);
                let app = &self.solo.side.app;
                app.rx.write(app.read.wrapping_add(landed.start), &rest[landed.start as usize..]);
                return;
            }
            self.comes(&[]);
        }
        panic!("the engine does not give it back");
    }

    fn lies_in_heap(&self, at: u32, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.heap.read(at, &mut bytes);
        bytes
    }

    fn lies_in_ring(&self, pos: u32, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.solo.side.app.rx.read(pos, &mut bytes);
        bytes
    }
}

fn stream(from: u32, len: u32) -> Vec<u8> {
    (from..from + len).map(Solo::byte).collect()
}

fn data(from: u32, len: u32) -> Seg {
    seg(START + from, START, ACK, len)
}

#[test]
fn payload_lands_in_posted_memory_and_nowhere_else() {
    for engine in [over_flextoe, over_laminar] {
        let mut program = Program::new(engine);
        assert!(program.post(1000, 300));
        program.comes(&[data(0, 100), data(100, 250)]);
        assert_eq!((program.reported, program.words.landed_bytes()), (350, 300));
        assert_eq!(program.lies_in_heap(1000, 300), stream(0, 300));
        assert_eq!(
            (program.lies_in_heap(0, 1000), program.lies_in_heap(1300, 1000)),
            (vec![BLANK; 1000], vec![BLANK; 1000])
        );
        assert_eq!(program.lies_in_ring(0, 300), [0; 300], "one copy, not two");
        assert_eq!(program.lies_in_ring(300, 50), stream(300, 50), "what is behind the buffer");
        program.reads(350);
        assert!(program.post(0, 10), "the engine has let it go by itself");
    }
}

#[test]
fn it_lands_ahead_of_a_hole_and_is_told_in_order() {
    for engine in [over_flextoe, over_laminar] {
        let mut program = Program::new(engine);
        assert!(program.post(0, 4000));
        program.comes(&[data(0, 100), data(300, 100)]);
        assert_eq!((program.reported, program.lies_in_heap(300, 100)), (100, stream(300, 100)));
        program.comes(&[data(100, 200)]);
        assert_eq!((program.reported, program.words.landed_bytes()), (400, 400));
        program.reads(400);
    }
}

#[test]
fn what_lies_behind_a_hole_goes_to_the_ring_afterwards() {
    for engine in [over_flextoe, over_laminar] {
        let mut program = Program::new(engine);
        assert!(program.post(0, 4000));
        program.comes(&[data(0, 100), data(300, 100)]);
        assert_eq!(
            program.words.take_back(program.reported),
            TakenBack::Asked,
            "bytes lie there that were not reported"
        );
        program.takes_back();
        let before = program.lies_in_heap(0, HEAP as usize);
        program.comes(&[data(100, 200), data(400, 50)]);
        assert_eq!(program.lies_in_heap(0, HEAP as usize), before, "it is the program's");
        program.reads(450);
    }
}

#[test]
fn between_batches_it_is_taken_back_without_the_engine() {
    let mut program = Program::new(over_flextoe);
    assert!(program.post(0, 4000));
    program.comes(&[data(0, 100)]);
    program.reads(60);
    assert_eq!(program.words.take_back(program.reported), TakenBack::Done);
    assert_eq!(program.words.landed(program.read_so_far(), 1000), 0..40);
    program.takes_back();
    program.comes(&[data(100, 100)]);
    assert_eq!(program.lies_in_heap(100, 100), [BLANK; 100]);
    program.reads(140);
}

#[test]
fn none_begins_while_the_ring_has_bytes_behind_a_hole() {
    let mut program = Program::new(over_flextoe);
    program.comes(&[data(100, 100)]);
    assert!(program.post(0, 4000));
    program.comes(&[data(0, 50)]);
    assert_eq!((program.reported, program.words.landed_bytes()), (50, 0));
    program.comes(&[data(50, 50)]);
    program.comes(&[data(200, 100)]);
    assert_eq!((program.reported, program.words.landed_bytes()), (300, 100), "with the next one");
    program.reads(300);
}

#[test]
fn another_name_and_the_end_give_it_back() {
    let mut program = Program::new(over_flextoe);
    assert!(program.post(0, 4000));
    program.comes(&[data(0, 100), data(200, 100)]);
    let (context, slot) = (ContextId(1), Slot { index: 1, generation: 1 });
    program.solo.command(stream::Command::Rename { flow: FLOW, context, slot });
    assert_eq!(program.words.take_back(0), TakenBack::Done);
    assert_eq!((program.words.landed(0, 1000), program.lies_in_ring(200, 100)), (0..100, stream(200, 100)));
    let mut program = Program::new(over_laminar);
    assert!(program.post(0, 4000));
    program.comes(&[data(0, 100)]);
    program.solo.command(Command::Remove(FLOW));
    assert_eq!(program.words.take_back(0), TakenBack::Done);
    assert_eq!(program.words.landed(0, 1000), 0..100);
}

/// A program that writes anything into the words about its memory: its stream goes on, and nothing is written behind
/// the heap.
#[test]
fn hostile_words_reach_the_programs_own_heap_only() {
    for seed in 0..200 {
        let (mut program, mut rng) = (Program::new(over_flextoe), Rng(seed));
        let end = &program.solo.side.app.end;
        let (region, words) = (Arc::clone(&end.region), end.geometry.slot_state_at(program.solo.side.app.slot.index));
        for at in 0..40 {
            for word in 0..9 {
                if rng.chance(30) {
                    let near = [0, 1, 3, 5, 7, 15, at * 50, HEAP, HEAP - 10, u32::MAX, rng.next() as u32];
                    let value = near[rng.below(near.len() as u64) as usize];
                    region
                        .u32_at(words + context::DIRECT_AT + 4 * word)
                        .store(value, std::sync::atomic::Ordering::Relaxed);
                }
            }
            program.comes(&[data(at * 50, 50)]);
        }
        assert_eq!(program.reported, 2000, "the stream goes on");
    }
}

/// Arrivals in any order, posts, reads and takings back at any moment.
#[test]
fn whatever_comes_and_is_posted_the_program_reads_the_stream() {
    let mut landed = 0;
    for seed in 0..120 {
        let engine = if seed % 4 == 0 { over_laminar } else { over_flextoe };
        let (mut program, mut rng) = (Program::new(engine), Rng(seed));
        for _ in 0..400 {
            let near = program.reported as i64 + rng.below(9_000) as i64 - 2500;
            let from = near.max(0) as u32;
            match rng.below(10) {
                0..6 => {
                    let from = if rng.chance(40) { program.reported } else { from };
                    program.comes(&[
                        data(from, rng.below(1500) as u32 + 1),
                        data(program.reported, rng.below(900) as u32 + 1),
                    ]);
                }
                6 => {
                    // One receive at a time.
                    program.takes_back();
                    let len = rng.below(9000) as u32 + 1;
                    program.post(rng.below(u64::from(HEAP - len)) as u32, len);
                }
                7 => program.takes_back(),
                _ => {
                    let unread = program.reported - program.read_so_far();
                    program.reads(rng.below(u64::from(unread) + 1) as u32);
                    program.comes(&[]);
                }
            }
        }
        assert!(program.reported > 20_000, "seed {seed}: the stream goes on");
        landed += program.words.landed_bytes();
    }
    assert!(landed > 500_000, "much of it landed: {landed}");
}
