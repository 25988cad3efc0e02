//! Runner of many scenarios: on several threads, with panics caught and reported like any other failure.
use crate::Plan;
use crate::generate::{generate_on, generate_talks};
use crate::scene::Figures;
use crate::world::{Failure, run};
use engines::EngineKind;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::time::Instant;

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
    static QUIET: RefCell<bool> = const { RefCell::new(false) };
}

/// Runs a scenario; a panic is a failure.
pub fn run_caught(plan: &Plan) -> Result<Figures, Failure> {
    catch_panics();
    QUIET.with_borrow_mut(|quiet| *quiet = true);
    let result = catch_unwind(AssertUnwindSafe(|| run(plan)));
    QUIET.with_borrow_mut(|quiet| *quiet = false);
    result.unwrap_or_else(|_| {
        let what = PANIC.take().unwrap_or_else(|| "unknown".into());
        Err(Failure { at: 0, what: format!("panic: {what}") })
    })
}

/// Keeps the message and place of a panic in a simulation instead of printing it.
fn catch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if QUIET.with_borrow(|quiet| *quiet) {
                PANIC.set(Some(info.to_string().replace('\n', " ")));
            } else {
                before(info);
            }
        }));
    });
}

/// What many seeds gave.
#[derive(Debug, Default)]
pub struct Tally {
    /// Seeds run.
    pub seeds: u64,
    /// Sums.
    pub figures: Figures,
    /// Seeds that failed, in order.
    pub failures: Vec<(u64, Failure)>,
}

/// Which seeds to run, and when to stop.
#[derive(Debug, Clone, Copy)]
pub struct Search {
    /// The first seed.
    pub first: u64,
    /// How many, at most.
    pub count: u64,
    /// Threads.
    pub jobs: usize,
    /// Stops after so many failures.
    pub failures: usize,
    /// Begins none after this moment.
    pub until: Option<Instant>,
    /// The engine of all hosts, in the place of those that the seeds choose.
    pub engine: Option<EngineKind>,
    /// Only the seeds' part about ZeroNIC.
    pub zeronic: bool,
}

/// Runs seeds one after another. `progress` is notified of each.
pub fn run_seeds(search: Search, mut progress: impl FnMut(&Tally)) -> Tally {
    let Search { first, count, jobs, failures: most, until, engine, zeronic } = search;
    let scenario = |seed| if zeronic { generate_talks(seed) } else { generate_on(seed, engine) };
    let over = || until.is_some_and(|until| Instant::now() >= until);
    let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let (sender, receiver) = channel();
    let mut tally = Tally::default();
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            let (sender, next, stop, over, scenario) = (sender.clone(), &next, &stop, &over, &scenario);
            scope.spawn(move || {
                while !stop.load(Relaxed) && !over() {
                    let index = next.fetch_add(1, Relaxed);
                    let seed = first.wrapping_add(index);
                    if index >= count || sender.send((seed, run_caught(&scenario(seed)))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        for (seed, result) in receiver {
            tally.seeds += 1;
            match result {
                Ok(figures) => add(&mut tally.figures, &figures),
                Err(failure) => tally.failures.push((seed, failure)),
            }
            if tally.failures.len() >= most {
                stop.store(true, Relaxed);
            }
            progress(&tally);
        }
    });
    tally.failures.sort_by_key(|(seed, _)| *seed);
    tally
}

fn add(sum: &mut Figures, figures: &Figures) {
    sum.completed += figures.completed;
    sum.spoiled += figures.spoiled;
    sum.bytes += figures.bytes;
    sum.frames += figures.frames;
    sum.resent += figures.resent;
    sum.takeovers += figures.takeovers;
    sum.kills += figures.kills;
    sum.survivors += figures.survivors;
    sum.cookies += figures.cookies;
    sum.rested += figures.rested;
    sum.grown += figures.grown;
    sum.operations += figures.operations;
    sum.renewed += figures.renewed;
    sum.posts += figures.posts;
    sum.virtual_ns += figures.virtual_ns;
}
