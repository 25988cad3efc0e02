//! A volume over paths that lose, double, reorder, flip and fail, under a judge that has every write.
mod world;

use solar::{Direction, Status};
use world::{MS, US, World};

const BLOCKS: u64 = 256;

/// Requests as a program makes them: some outstanding, no two writes to one block at a time.
fn load(world: &mut World, requests: u64) {
    for _ in 0..requests {
        while world.judge.outstanding() >= 32 {
            world.run_until(world.now + 50 * US);
        }
        let blocks = 1 + world.random.below(16) as u32;
        let lba = world.random.below(BLOCKS - u64::from(blocks));
        let direction = if world.random.chance(500) { Direction::Read } else { Direction::Write };
        if direction == Direction::Read || !world.judge.is_being_written(lba, blocks) {
            world.submit(direction, lba, blocks);
        }
        let pause = world.now + world.random.below(20 * US);
        world.run_until(pause);
    }
}

#[test]
fn blocks_are_read_as_they_were_written() {
    let mut world = World::new(1, BLOCKS);
    load(&mut world, 500);
    world.run_until_done(100 * MS);
    assert_eq!(world.judge.failed, 0);
    let counts = world.client.counts();
    assert_eq!((counts.sender.again, counts.dropped, counts.sender.failures), (0, 0, 0));
    let (least, most) = (world.network.by_path.iter().min().unwrap(), world.network.by_path.iter().max().unwrap());
    assert!(most - least < most / 4, "paths share the load: {:?}", world.network.by_path);
}

/// Seeds of the random worlds: `SOLAR_SEEDS=FIRST..END`.
fn seeds() -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("SOLAR_SEEDS") else { return 0..60 };
    let (first, end) = text.split_once("..").expect("SOLAR_SEEDS is FIRST..END");
    first.parse().unwrap()..end.parse().unwrap()
}

#[test]
fn nothing_is_wrong_in_random_worlds() {
    for seed in seeds() {
        println!("seed {seed}");
        let mut world = World::new(seed, BLOCKS);
        world.disk.latency = world.random.below(2) * world.random.below(3 * MS);
        let shape: Vec<u64> = (0..7).map(|_| world.random.below(2)).collect();
        let [loss, doubled, flipped, marked, late, jitter, delay] =
            [50, 50, 20, 200, 20, 40 * US, 200 * US].map(|most| most * world.random.below(1000) / 1000);
        world.network.all(|path| {
            path.loss = loss * shape[0];
            path.doubled = doubled * shape[1];
            path.flipped = flipped * shape[2];
            path.marked = marked * shape[3];
            path.late = late * shape[4];
            path.jitter = jitter * shape[5];
            path.delay += delay * shape[6];
        });
        for _ in 0..8 {
            load(&mut world, 20);
            let path = world.random.below(4) as usize;
            match world.random.below(5) {
                0 if world.network.paths.iter().filter(|path| !path.cut).count() > 1 => {
                    world.network.paths[path].cut = true
                }
                0 => {
                    world.network.all(|path| path.cut = true);
                    let cut = world.now + world.random.below(2000 * MS);
                    world.run_until(cut);
                    world.network.paths[path].cut = false;
                }
                1 => world.network.all(|path| path.cut = false),
                2 => {
                    world.kill_server();
                    let down = world.now + world.random.below(300 * MS);
                    world.run_until(down);
                    world.start_server();
                }
                3 if world.random.chance(300) => world.replace_client(),
                _ => {}
            }
        }
        world.network.all(|path| path.cut = false);
        world.run_until_done(60_000 * MS);
        let failed: Vec<_> = world.completions.iter().filter(|ended| ended.status != Status::Ok).collect();
        assert!(failed.is_empty(), "seed {seed}: {failed:?}");
    }
}

#[test]
fn a_failed_path_is_left_within_ten_milliseconds() {
    let mut world = World::new(3, BLOCKS);
    load(&mut world, 100);
    world.run_until_done(100 * MS);
    for path in 0..3 {
        world.network.paths[path].cut = true;
        let cut = world.now;
        load(&mut world, 50);
        world.run_until_done(10 * MS);
        assert!(world.now - cut < 15 * MS, "50 requests took {} us", (world.now - cut) / US);
    }
    // Requests go on over others before probes have shown which paths work.
    world.run_until(world.now + 10 * MS);
    assert_eq!((world.judge.failed, world.client.working_paths()), (0, 1));
    world.network.all(|path| path.cut = false);
    world.submit(Direction::Read, 0, 1);
    world.run_until(world.now + 1100 * MS);
    assert_eq!(world.client.working_paths(), 4, "a path that works again is found");
}

#[test]
fn a_lost_server_fails_requests_after_the_configured_time() {
    let mut world = World::new(4, BLOCKS);
    load(&mut world, 10);
    world.run_until_done(100 * MS);
    world.kill_server();
    let begin = world.now;
    world.submit(Direction::Write, 0, 16);
    world.run_until_done(31_000 * MS);
    assert_eq!(world.completions.last().unwrap().status, Status::TimedOut);
    assert!(world.now - begin >= 30_000 * MS);
    world.start_server();
    world.submit(Direction::Read, 0, 16);
    world.run_until_done(1000 * MS);
    assert_eq!(world.completions.last().unwrap().status, Status::Ok, "and the client goes on with the next server");
}

#[test]
fn a_restarted_server_is_found_though_nothing_is_due() {
    let mut world = World::new(5, BLOCKS);
    world.disk.latency = 10_000 * MS;
    world.submit(Direction::Write, 9, 4);
    world.run_until(5 * MS);
    world.kill_server();
    world.start_server();
    world.disk.latency = 0;
    world.run_until_done(150 * MS);
    assert_eq!(world.completions.last().unwrap().status, Status::Ok);
    assert_eq!(world.client.counts().sessions, 2);
}

#[test]
fn a_bit_that_flips_on_the_disk_is_an_error_and_never_a_block() {
    let mut world = World::new(6, BLOCKS);
    world.submit(Direction::Write, 10, 4);
    world.run_until_done(50 * MS);
    world.disk.flip(12, 1234);
    world.submit(Direction::Read, 10, 4);
    world.run_until_done(50 * MS);
    assert_eq!(world.completions.last().unwrap().status, Status::Corrupt);
    world.submit(Direction::Write, 12, 1);
    world.run_until_done(50 * MS);
    world.submit(Direction::Read, 10, 4);
    world.run_until_done(50 * MS);
    assert_eq!(world.completions.last().unwrap().status, Status::Ok, "a write heals it");
}

#[test]
fn blocks_beyond_the_end_fail_alone() {
    let mut world = World::new(7, BLOCKS);
    world.submit(Direction::Read, BLOCKS - 2, 2);
    world.submit(Direction::Read, BLOCKS, 2);
    world.submit(Direction::Read, u64::MAX - 2, 2);
    world.run_until_done(50 * MS);
    let mut statuses: Vec<(u64, Status)> = world.completions.iter().map(|ended| (ended.token, ended.status)).collect();
    statuses.sort_by_key(|&(token, _)| token);
    assert_eq!(statuses, [(1, Status::Ok), (2, Status::OutOfRange), (3, Status::OutOfRange)]);
}
