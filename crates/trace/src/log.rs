//! The latest records of one thread: a ring that its writer overwrites and never waits at. Any number of readers poll
//! at it, each at its own pace; one that is too slow misses records and counts them. Safe without a lock because a
//! reader can find out afterwards which of the words that it copied may have been overwritten meanwhile.
use crate::points::Point;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

/// Records of a thread that are kept: 1 MiB.
pub(crate) const RECORDS: usize = 1 << 15;
const WORDS: usize = 4;

/// Something that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// When, nanoseconds of the tick source. Events of one batch have the time of its beginning.
    pub time: u64,
    /// What.
    pub point: Point,
    /// Which of the host's threads.
    pub thread: u16,
    /// The flow, or [`crate::NO_FLOW`].
    pub flow: u32,
    /// The point's arguments, as declared.
    pub values: [u64; 2],
}

impl Record {
    fn to_words(self) -> [u64; WORDS] {
        let what = self.point as u64 | (self.thread as u64) << 16 | (self.flow as u64) << 32;
        [self.time, what, self.values[0], self.values[1]]
    }

    fn from_words([time, what, first, second]: [u64; WORDS]) -> Option<Record> {
        let point = *Point::ALL.get(what as u16 as usize)?;
        let (thread, flow) = ((what >> 16) as u16, (what >> 32) as u32);
        Some(Record { time, point, thread, flow, values: [first, second] })
    }
}

/// The ring.
pub(crate) struct Log {
    words: Vec<AtomicU64>,
    /// Records written since the beginning.
    head: AtomicU64,
}

impl Log {
    pub(crate) fn new() -> Log {
        Log { words: (0..RECORDS * WORDS).map(|_| AtomicU64::new(0)).collect(), head: AtomicU64::new(0) }
    }

    /// Writes a record over the oldest one. To be called by one thread only.
    #[inline]
    pub(crate) fn push(&self, record: Record) {
        let head = self.head.load(Relaxed);
        // Whoever sees a word of this record also sees the present head, and so that the old one is being overwritten.
        fence(Release);
        let at = (head as usize % RECORDS) * WORDS;
        if let Some(place) = self.words.get(at..at + WORDS) {
            place.iter().zip(record.to_words()).for_each(|(word, value)| word.store(value, Relaxed));
        }
        self.head.store(head + 1, Release);
    }

    /// Where a reader begins that reads only what is to come.
    pub(crate) fn end(&self) -> u64 {
        self.head.load(Acquire)
    }

    /// Appends the records from `cursor` on, at most `most`, and moves it; returns how many were missed.
    pub(crate) fn read(&self, cursor: &mut u64, most: usize, into: &mut Vec<Record>) -> u64 {
        let head = self.head.load(Acquire);
        let first = (*cursor).max(head.saturating_sub(RECORDS as u64));
        let last = head.min(first.saturating_add(most as u64));
        let before = into.len();
        for number in first..last {
            let at = (number as usize % RECORDS) * WORDS;
            let words = std::array::from_fn(|word| self.words[at + word].load(Relaxed));
            // A record that makes no sense was being overwritten; it is taken out below with the others.
            into.push(Record::from_words(words).unwrap_or(NONSENSE));
        }
        fence(Acquire);
        // The record that is being written takes the place of the one that is RECORDS older.
        let overwritten = (self.head.load(Relaxed) + 1).saturating_sub(RECORDS as u64).clamp(first, last);
        into.drain(before..before + (overwritten - first) as usize);
        let missed = overwritten - *cursor;
        *cursor = last;
        missed
    }
}

const NONSENSE: Record = Record { time: 0, point: Point::ALL[0], thread: 0, flow: 0, values: [0; 2] };

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn record(number: u64) -> Record {
        let point = Point::ALL[number as usize % Point::ALL.len()];
        Record { time: number, point, thread: number as u16, flow: !number as u32, values: [number * 3, !number] }
    }

    #[test]
    fn records_come_back_and_missed_ones_are_counted() {
        let log = Log::new();
        let (mut cursor, mut got) = (log.end(), Vec::new());
        (0..10).for_each(|number| log.push(record(number)));
        assert_eq!(log.read(&mut cursor, 4, &mut got), 0);
        assert_eq!(log.read(&mut cursor, usize::MAX, &mut got), 0);
        assert_eq!(got, (0..10).map(record).collect::<Vec<_>>());
        got.clear();
        let many = RECORDS as u64 + 100;
        (10..10 + many).for_each(|number| log.push(record(number)));
        let missed = log.read(&mut cursor, usize::MAX, &mut got);
        assert_eq!(missed + got.len() as u64, many);
        assert_eq!(got, (10 + missed..10 + many).map(record).collect::<Vec<_>>());
        assert_eq!((log.read(&mut cursor, usize::MAX, &mut got), cursor), (0, 10 + many));
    }

    #[test]
    fn a_reader_beside_the_writer_sees_whole_records_only() {
        const COUNT: u64 = 2_000_000;
        let log = Arc::new(Log::new());
        let writer = {
            let log = Arc::clone(&log);
            std::thread::spawn(move || (0..COUNT).for_each(|number| log.push(record(number))))
        };
        let (mut cursor, mut seen, mut missed, mut got) = (0, 0, 0, Vec::new());
        while cursor < COUNT {
            got.clear();
            let before = cursor;
            let lost = log.read(&mut cursor, 1000, &mut got);
            assert_eq!(lost + got.len() as u64, cursor - before);
            for (at, read) in got.iter().enumerate() {
                assert_eq!(*read, record(before + lost + at as u64));
            }
            seen += got.len() as u64;
            missed += lost;
        }
        writer.join().unwrap();
        assert_eq!(seen + missed, COUNT);
    }
}
