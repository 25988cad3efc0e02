//! The same streams with modules on real threads.
mod common;

use common::{Config, Lab};
use engine::Worker;
use flextoe::Mapping;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::JoinHandle;

/// Runs workers, each on its thread, on the laboratory's clock.
fn start(workers: Vec<Box<dyn Worker>>, clock: &Arc<AtomicU64>, stop: &Arc<AtomicBool>) -> Vec<JoinHandle<()>> {
    let run = |mut worker: Box<dyn Worker>| {
        let (clock, stop) = (Arc::clone(clock), Arc::clone(stop));
        std::thread::spawn(move || {
            while !stop.load(Relaxed) {
                if worker.poll(clock.load(Relaxed)) == 0 {
                    std::thread::yield_now();
                }
            }
        })
    };
    workers.into_iter().map(run).collect()
}

#[test]
fn replicated_modules_on_their_own_threads() {
    let mapping = Mapping { threads: true, preprocess: 2, flow_groups: 2, postprocess: 2, dma: 2 };
    for seed in 0..8 {
        let config = Config { loss: 3, duplicate: 3, reorder: 10, mapping: mapping.clone(), ..Config::random(seed) };
        let mut lab = Lab::new(config);
        let (clock, stop) = (Arc::new(AtomicU64::new(lab.now)), Arc::new(AtomicBool::new(false)));
        let mut threads = Vec::new();
        for side in &mut lab.sides {
            threads.extend(start(std::mem::take(&mut side.workers), &clock, &stop));
        }
        let finished = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            lab.finish_with(20, |now| {
                clock.store(now, Relaxed);
                std::thread::yield_now();
            });
        }));
        stop.store(true, Relaxed);
        threads.into_iter().for_each(|thread| thread.join().expect("a worker"));
        if let Err(panic) = finished {
            std::panic::resume_unwind(panic);
        }
        let figures = flextoe_counts(&lab);
        assert!(figures.iter().all(|(_, works)| *works > 0), "every flow group's pipeline worked: {figures:?}");
    }
}

/// Works that went through the replicas of the modules that are not bound to a flow group.
fn flextoe_counts(lab: &Lab) -> Vec<(String, u64)> {
    let list = lab.sides[0].engine.module_stats();
    let counted = list.into_iter().filter(|(name, counter, _)| *counter == "works" && !name.starts_with("protocol"));
    counted.map(|(name, _, works)| (name, works)).collect()
}
