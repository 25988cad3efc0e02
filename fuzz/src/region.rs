//! A region whose other side writes what it likes: its directory, and the queues in it.
use crate::Input;
use context::Directory;
use context::queues::{AppQueues, DaemonQueues, QueueSizes, RECEIVES_AT_ONCE};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Steps of an input that are looked at.
const MOST: usize = 4096;

/// Words of a small set's region change while both sides use their ends.
pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let size = |byte: u8| (1u32 << (byte % 8)) & !1;
    let sizes = QueueSizes { send: size(input.byte()), receive: size(input.byte()), completion: size(input.byte()) };
    let (region, mut daemon) = DaemonQueues::create("fuzz", sizes).expect("sizes that can be");
    let app = AppQueues::new(&region).expect("its own directory");
    let (mut sends, mut receives, mut completions) = (app.send, app.receive, app.completion);
    let words = region.len() / 8;
    for _ in 0..MOST {
        if input.is_over() {
            break;
        }
        match input.byte() % 8 {
            0 => region.u64_at(input.word() as usize % words * 8).store(input.long(), Relaxed),
            1 => region.u64_at(input.byte() as usize % words * 8).store(input.long(), Relaxed),
            2 => drop(sends.as_mut().map(|queue| queue.push([input.long(); 8]))),
            3 => drop(receives.as_mut().map(|queue| queue.push([input.long(); 2]))),
            4 => drop(daemon.completion.as_mut().map(|queue| queue.push([input.long(); 8]))),
            5 => {
                daemon.send.as_mut().map(|queue| queue.pop());
                completions.as_mut().map(|queue| queue.pop());
            }
            6 => {
                let mut some = [[0; 2]; RECEIVES_AT_ONCE];
                let taken = daemon.receive.as_mut().map_or(0, |queue| queue.take(&mut some));
                assert!(taken <= RECEIVES_AT_ONCE);
            }
            _ => look(&region),
        }
    }
    look(&region);
    let resumed = DaemonQueues::resume(&region, sizes, daemon.positions()).expect("the same sizes");
    assert_eq!(resumed.positions(), daemon.positions());
}

/// The directory as an application reads it: either refused, or in the region.
fn look(region: &Arc<shm::Region>) {
    match Directory::read(region) {
        Ok(directory) => assert!(directory.end() <= region.len()),
        Err(sentence) => assert!(!sentence.is_empty()),
    }
    let _ = AppQueues::new(region);
}
