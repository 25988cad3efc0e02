//! Longest stall of a request when one of several paths is cut under it, in virtual time.
mod world;

use solar::{Direction, Status};
use world::{MS, US, World};

const BLOCKS: u64 = 256;
/// No request may take longer than this, whatever moment the path is cut at.
const MOST: u64 = 10 * MS;

/// A program that keeps so many requests outstanding, until a time.
fn load(world: &mut World, depth: usize, until: u64) {
    while world.now < until {
        while world.judge.outstanding() < depth {
            let blocks = 1 + world.random.below(16) as u32;
            let lba = world.random.below(BLOCKS - u64::from(blocks));
            if world.random.chance(500) {
                world.submit(Direction::Read, lba, blocks);
            } else if !world.judge.is_being_written(lba, blocks) {
                world.submit(Direction::Write, lba, blocks);
            }
        }
        let step = world.now + 1 + world.random.below(20 * US);
        world.run_until(step);
    }
}

/// What the slowest request took, of those that ended after a path was cut.
fn slowest(seed: u64, depth: usize) -> u64 {
    let mut world = World::new(seed, BLOCKS);
    let jitter = world.random.below(40 * US);
    world.network.all(|path| path.jitter = jitter);
    let cut_at = 4 * MS + world.random.below(MS);
    load(&mut world, depth, cut_at);
    world.slowest = 0;
    let path = world.random.below(4) as usize;
    world.network.paths[path].cut = true;
    let end = world.now + 30 * MS;
    load(&mut world, depth, end);
    world.run_until_done(100 * MS);
    let wrong = world.completions.iter().find(|ended| ended.status != Status::Ok);
    assert!(wrong.is_none(), "seed {seed}, {depth} outstanding: {wrong:?}");
    assert_eq!(world.client.working_paths(), 3, "seed {seed}: the path that was cut is not found");
    world.slowest
}

/// The bound holds for an idle path as well as for a full one. A request alone can meet the cut on its way there, and
/// its answer on the way back.
#[test]
fn a_cut_path_stalls_no_request_for_over_ten_milliseconds() {
    for depth in [1, 4, 32] {
        let worst = (0..20).map(|seed| (slowest(seed, depth), seed)).max().unwrap();
        println!("{depth} outstanding: at most {} us, seed {}", worst.0 / US, worst.1);
        assert!(worst.0 <= MOST, "{depth} outstanding: {} us, seed {}", worst.0 / US, worst.1);
    }
}
