//! Sender over several paths: it keeps and retransmits each packet until it is acknowledged, in no order.
//!
//! A packet that is lost goes over whatever path has room next, of those that have timed out last: so a path that fails
//! costs a packet one time-out. A probe shows whether it works. What a packet carries may arrive twice: the receiver
//! finds out by the operation.
use crate::config::PathConfig;
use crate::packet::Ack;
use crate::path::{Path, PathReport};
use std::collections::VecDeque;
use tcp::Nanos;

/// A packet to send.
#[derive(Debug)]
pub(crate) struct Transmission<T> {
    pub(crate) path: u8,
    pub(crate) sequence: u32,
    /// What it carries; `None` for a probe.
    pub(crate) item: Option<T>,
}

/// What has been counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SenderCounts {
    /// Packets sent, also those that were sent again.
    pub sent: u64,
    /// Of these, sent again.
    pub again: u64,
    /// Paths that failed.
    pub failures: u64,
    /// Probes.
    pub probes: u64,
}

/// The sender of one end. `T` is what a packet carries.
#[derive(Debug)]
pub(crate) struct Sender<T> {
    config: PathConfig,
    paths: Vec<Path<T>>,
    waiting: VecDeque<T>,
    /// What was lost, and goes before what waits.
    lost: VecDeque<T>,
    /// Where the search for a path begins: paths of equal load alternate.
    next_path: usize,
    counts: SenderCounts,
}

impl<T: Clone> Sender<T> {
    pub(crate) fn new(config: &PathConfig, now: Nanos) -> Sender<T> {
        Sender {
            config: config.clone(),
            paths: (0..config.paths.max(1)).map(|_| Path::new(config, now)).collect(),
            waiting: VecDeque::new(),
            lost: VecDeque::new(),
            next_path: 0,
            counts: SenderCounts::default(),
        }
    }

    /// Goes on counting from there.
    pub(crate) fn with_counts(self, counts: SenderCounts) -> Sender<T> {
        Sender { counts, ..self }
    }

    pub(crate) fn push(&mut self, item: T) {
        self.waiting.push_back(item);
    }

    pub(crate) fn counts(&self) -> SenderCounts {
        self.counts
    }

    pub(crate) fn paths(&self) -> Vec<PathReport> {
        self.paths.iter().map(Path::report).collect()
    }

    pub(crate) fn working_paths(&self) -> usize {
        self.paths.iter().filter(|path| path.works()).count()
    }

    /// The next packet that may be sent now. What was lost and is not `wanted` any more is forgotten.
    pub(crate) fn next(&mut self, now: Nanos, wanted: impl Fn(&T) -> bool) -> Option<Transmission<T>> {
        if let Some(probe) = self.next_probe(now) {
            return Some(probe);
        }
        while self.lost.front().is_some_and(|item| !wanted(item)) {
            self.lost.pop_front();
        }
        self.next_item(now).or_else(|| self.next_test(now))
    }

    fn next_item(&mut self, now: Nanos) -> Option<Transmission<T>> {
        if self.lost.is_empty() && self.waiting.is_empty() {
            return None;
        }
        let path = self.least_loaded()?;
        let again = self.lost.pop_front();
        self.counts.again += u64::from(again.is_some());
        self.counts.sent += 1;
        let item = again.or_else(|| self.waiting.pop_front())?;
        let sequence = self.paths[path].send(Some(item.clone()), now);
        Some(Transmission { path: path as u8, sequence, item: Some(item) })
    }

    fn next_probe(&mut self, now: Nanos) -> Option<Transmission<T>> {
        let config = &self.config;
        let (path, sequence) =
            self.paths.iter_mut().enumerate().find_map(|(at, path)| Some((at, path.probe(config, now)?)))?;
        self.counts.probes += 1;
        Some(Transmission { path: path as u8, sequence, item: None })
    }

    /// A probe on a path that has timed out, where what waits goes over others.
    fn next_test(&mut self, now: Nanos) -> Option<Transmission<T>> {
        let (path, sequence) = self.paths.iter_mut().enumerate().find_map(|(at, path)| Some((at, path.test(now)?)))?;
        self.counts.probes += 1;
        Some(Transmission { path: path as u8, sequence, item: None })
    }

    /// Asks the peer on a path that works whether it is there.
    pub(crate) fn ask(&mut self, now: Nanos) -> Option<Transmission<T>> {
        let path = self.paths.iter().position(Path::works)?;
        self.counts.probes += 1;
        let sequence = self.paths[path].send(None, now);
        Some(Transmission { path: path as u8, sequence, item: None })
    }

    fn least_loaded(&mut self) -> Option<usize> {
        let count = self.paths.len();
        let next_path = self.next_path;
        let order = (0..count).map(|step| (next_path + step) % count);
        let preferred = |at: &usize| (self.paths[*at].is_suspect(), self.paths[*at].load());
        let path = order.filter(|&at| self.paths[at].room() > 0).min_by_key(preferred)?;
        self.next_path = (path + 1) % count;
        Some(path)
    }

    /// An acknowledgement: what the packet carried, at its first.
    pub(crate) fn acknowledged(&mut self, ack: Ack, now: Nanos) -> Option<T> {
        let path = self.paths.get_mut(usize::from(ack.path))?;
        let item = path.acknowledged(ack, now, &mut self.lost);
        path.control(now, self.waiting.len());
        item
    }

    /// Time-outs that are due.
    pub(crate) fn tick(&mut self, now: Nanos) {
        for path in &mut self.paths {
            let worked = path.works();
            path.time_out(&self.config, now, &mut self.lost);
            self.counts.failures += u64::from(worked && !path.works());
        }
    }

    /// When [`Sender::tick`] or [`Sender::next`] has something to do next, if nothing comes.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        self.paths.iter().filter_map(Path::deadline).min()
    }
}
