//! Programs that use a volume by queues of their own (`toe_volume_*`) at a real `toed`. What is read is what was
//! written, into the program's memory, through loss, too. A program that asks for what is not its own gets an error.
mod common;

use common::Toed;
use common::comm::{LEN, TIMEOUT};
use common::place::Place;
use common::store::{MIB, Store, WIDE, bytes, hosts};
use context::comm::{Answer, COMPLETIONS, POSTS, Piece, Request};
use context::volume::{Completion, Hello, Order, Post, VERSION};
use std::fs;
use std::time::Instant;

const EFAULT: u32 = 14;
const EINVAL: u32 = 22;
const EPERM: u32 = 1;

fn hello(volume: &str) -> Hello {
    Hello { volume_version: VERSION, volume: volume.into(), host: None, command: "test".into() }
}

fn open(toed: &Toed, volume: &str) -> (Place, u64) {
    let (place, answer) = Place::open(toed, &hello(volume));
    let Answer::Volume { bytes, .. } = answer else { panic!("{answer:?}") };
    (place, bytes)
}

/// Asks for blocks, and waits for the end: its error number.
fn ask(place: &mut Place, order: Order, at: u64, memory: Piece) -> u32 {
    place.push(Post { id: at, order, at, memory }.to_words());
    let Completion { id, errno } = Completion::from_words(place.next_words());
    assert_eq!(id, at);
    errno
}

#[test]
fn blocks_go_into_a_programs_memory_and_back_through_loss() {
    for fabric in [WIDE, "mtu = 9000\nloss = 0.02\nreorder = 0.02\nduplicate = 0.02\ncorrupt = 0.01"] {
        let store = Store::new();
        let sections = store.volume("v", "s", "size = 4194304") + &store.block("v", "c", "v.sock", "");
        let mut toed = Toed::start(&(hosts(fabric) + &sections));
        let (mut place, size) = open(&toed, "v");
        assert_eq!(size, 4 * MIB);
        let expected = bytes(3, LEN);
        for part in 0..4u64 {
            place.memory.write(0, &expected);
            let memory = Piece { key: place.key, offset: 0, len: LEN as u64 };
            assert_eq!(ask(&mut place, Order::Write, part * LEN as u64, memory), 0);
        }
        // Many at once, each block at another place of the memory than of the volume.
        let blocks = LEN / 4096;
        place.memory.write(0, &vec![0; LEN]);
        for block in 0..blocks as u64 {
            let memory = Piece { key: place.key, offset: (blocks as u64 - 1 - block) * 4096, len: 4096 };
            place.push(Post { id: block, order: Order::Read, at: LEN as u64 + block * 4096, memory }.to_words());
        }
        let mut ended: Vec<u64> = (0..blocks)
            .map(|_| {
                let Completion { id, errno } = Completion::from_words(place.next_words());
                assert_eq!(errno, 0, "block {id}");
                id
            })
            .collect();
        ended.sort_unstable();
        assert!(ended.into_iter().eq(0..blocks as u64), "each request ends once");
        let mut memory = vec![0; LEN];
        place.memory.read(0, &mut memory);
        let turned: Vec<u8> = memory.chunks(4096).rev().flatten().copied().collect();
        assert!(turned == expected, "other bytes came");
        drop(place);
        assert!(fs::read(store.path("v")).unwrap() == expected.repeat(4), "the file has other bytes");
        assert!(toed.end().success());
    }
}

#[test]
fn what_is_not_the_programs_own_is_an_error() {
    let store = Store::new();
    let sections = store.volume("v", "s", "size = 1048576")
        + &store.block("v", "c", "v.sock", "")
        + &store.volume("r", "s", "read_only = true")
        + &store.block("r", "c", "r.sock", "read_only = true");
    fs::write(store.path("r"), bytes(1, MIB as usize)).unwrap();
    let toed = Toed::start(&(hosts(WIDE) + &sections));
    let (mut place, size) = open(&toed, "v");
    let (other, _) = open(&toed, "v");
    let mine = Piece { key: place.key, offset: 0, len: 4096 };
    let cases = [
        (Order::Read, 0, Piece { key: other.key, ..mine }, EFAULT),
        (Order::Write, 0, Piece { key: mine.key + 1, ..mine }, EFAULT),
        (Order::Read, 0, Piece { offset: LEN as u64 - 4095, ..mine }, EFAULT),
        (Order::Read, 0, Piece { offset: u64::MAX, ..mine }, EFAULT),
        (Order::Read, 0, Piece { len: 0, ..mine }, EINVAL),
        (Order::Read, 0, Piece { len: 4095, ..mine }, EINVAL),
        (Order::Read, 0, Piece { len: u64::MAX - 4095, ..mine }, EINVAL),
        (Order::Read, 1, mine, EINVAL),
        (Order::Read, size, mine, EINVAL),
        (Order::Write, u64::MAX - 4095, mine, EINVAL),
        (Order::Write, 0, mine, 0),
        (Order::Read, size - 4096, mine, 0),
    ];
    for (order, at, memory, errno) in cases {
        assert_eq!(ask(&mut place, order, at, memory), errno, "{order:?} at {at} with {memory:?}");
    }
    // Words that no library writes are nothing; what follows goes on.
    place.push([9; 8].map(|word| word & (shm::VALID - 1)));
    assert_eq!(ask(&mut place, Order::Read, 0, mine), 0);
    assert!(matches!(place.ask(&Request::Device, &[]), Answer::Refused(libc::EOPNOTSUPP, _)));
    assert!(matches!(place.ask(&Request::Deregister(place.key), &[]), Answer::Done));
    assert_eq!(ask(&mut place, Order::Read, 0, mine), EFAULT);
    let (mut reader, _) = open(&toed, "r");
    let memory = Piece { key: reader.key, ..mine };
    assert_eq!(ask(&mut reader, Order::Write, 0, memory), EPERM);
    let (errno, why) = Place::refused(&toed, &hello("none"));
    assert!(errno == libc::ENODEV && why.contains("no host uses a volume `none`"), "{why}");
    let (errno, why) = Place::refused(&toed, &Hello { volume_version: VERSION + 1, ..hello("v") });
    assert!(errno == libc::EPROTO && why.contains("use the libtoe.so that came with this daemon"), "{why}");
}

#[test]
fn programs_that_take_nothing_or_go_do_not_hold_up_others() {
    let store = Store::new();
    let sections = store.volume("v", "s", "size = 1048576") + &store.block("v", "c", "v.sock", "");
    let mut toed = Toed::start(&(hosts(WIDE) + &sections));
    let (mut greedy, _) = open(&toed, "v");
    let (mut place, _) = open(&toed, "v");
    let memory = Piece { key: greedy.key, offset: 0, len: 4096 };
    let post = Post { id: 0, order: Order::Read, at: 0, memory };
    // Its completions find no room: then none of what it asks for is taken.
    let (mut posted, begin) = (0, Instant::now());
    while posted < COMPLETIONS + POSTS {
        posted += u32::from(greedy.try_push(post.to_words()));
        assert!(begin.elapsed() < TIMEOUT, "{posted} of its posts were taken");
    }
    let own = Piece { key: place.key, offset: 0, len: 4096 };
    (0..256).for_each(|block| assert_eq!(ask(&mut place, Order::Read, block * 4096, own), 0));
    let (mut leaving, _) = open(&toed, "v");
    let memory = Piece { key: leaving.key, offset: 0, len: LEN as u64 };
    (0..64).for_each(|id| leaving.push(Post { id, order: Order::Read, at: 0, memory }.to_words()));
    // In the middle of its requests.
    drop(leaving);
    (0..256).for_each(|block| assert_eq!(ask(&mut place, Order::Write, block * 4096, own), 0));
    drop((place, greedy));
    assert!(toed.end().success());
}
