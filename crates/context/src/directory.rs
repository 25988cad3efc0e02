//! The directory of a region: which typed areas it has, and where they lie.
//!
//! The daemon writes the directory once, before anybody else has the region, and uses its own copy. The application
//! checks it once, when it attaches. Afterwards each holds ends of its own, and nobody reads the directory again: who
//! overwrites one hurts only itself.
use shm::{CACHE_LINE, PAGE, Region, pipe_bytes, ring_bytes};
use std::io;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// First word of every region: "OpenTOE" and a zero, as bytes.
const MAGIC: u64 = u64::from_le_bytes(*b"OpenTOE\0");
/// Where the version and the number of areas stand.
const COUNT_AT: usize = 8;
/// The doorbell word of the application: how many of its threads sleep.
pub(crate) const APP_BELL: usize = 4 * CACHE_LINE;
/// The doorbell word of the daemon.
pub(crate) const DAEMON_BELL: usize = 5 * CACHE_LINE;
/// The word that reports whether completions wait for room in their ring.
pub(crate) const COMPLETIONS_WAIT: usize = 6 * CACHE_LINE;
/// The word that marks that the daemon detached the application: its connections end.
pub(crate) const LET_GO: usize = COMPLETIONS_WAIT + 4;
/// Where the areas stand: behind the lines of the doorbells.
const AREAS_AT: usize = 8 * CACHE_LINE;
/// Bytes of an area's entry.
const AREA_BYTES: usize = 32;
/// Areas that a directory can have.
pub const MOST_AREAS: usize = (PAGE - AREAS_AT) / AREA_BYTES;

/// Kind of an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum AreaKind {
    /// Ring of [`crate::Bump`]s: 16 bytes each.
    Bumps = 1,
    /// Ring of [`crate::Completion`]s: 16 bytes each.
    Completions = 2,
    /// Ring of [`crate::Request`]s: 64 bytes each.
    Requests = 3,
    /// Ring of [`crate::Reply`]s: 64 bytes each.
    Replies = 4,
    /// The application's states of its streams ([`crate::SLOT_STATE_BYTES`]), one for each slot.
    StreamStates = 5,
    /// Small rings of streams, a pair for each slot.
    SmallRings = 6,
    /// Buffers of streams, a pair for each slot. Their sizes differ ([`crate::Geometry`]): an entry has 0 bytes.
    Buffers = 7,
    /// A shared log, in bytes.
    Log = 8,
    /// Rings of transmit streams that have outgrown their buffers.
    LargeRings = 9,
    /// Memory of the program's in which received bytes may land directly, in bytes.
    Heap = 10,
    /// Words about what streams send by reference ([`crate::SendWords`]), one row for each slot.
    Sends = 11,
    /// Pipe of work requests to send: 64 bytes each.
    SendQueue = 16,
    /// Pipe of work requests to receive: 16 bytes each.
    ReceiveQueue = 17,
    /// Pipe of completions: 64 bytes each.
    CompletionQueue = 18,
}

impl AreaKind {
    fn from_code(code: u32) -> Option<AreaKind> {
        use AreaKind::*;
        let all = [Bumps, Completions, Requests, Replies, StreamStates, SmallRings, Buffers, Log, LargeRings, Heap];
        let queues = [Sends, SendQueue, ReceiveQueue, CompletionQueue];
        all.into_iter().chain(queues).find(|kind| *kind as u32 == code)
    }

    /// Bytes that so many entries take; `None` for entries of a size that the kind does not have.
    fn bytes(self, entries: u32, entry_bytes: u32) -> Option<usize> {
        use AreaKind::*;
        let fits = match self {
            Bumps | Completions | ReceiveQueue => entry_bytes == 16,
            Requests | Replies | SendQueue | CompletionQueue => entry_bytes == 64,
            StreamStates | SmallRings | Log | LargeRings | Heap | Sends => entry_bytes > 0,
            Buffers => entry_bytes == 0,
        };
        let ring = !matches!(self, StreamStates | SmallRings | Buffers | Log | LargeRings | Heap | Sends);
        let sound = entries > 0 && (!ring || (entries.is_power_of_two() && entries <= 1 << 20));
        (fits && sound).then_some(())?;
        Some(match self {
            Bumps | Completions => ring_bytes::<2>(entries),
            Requests | Replies => ring_bytes::<8>(entries),
            ReceiveQueue => pipe_bytes::<2>(entries),
            SendQueue | CompletionQueue => pipe_bytes::<8>(entries),
            StreamStates | SmallRings | Buffers | Log | LargeRings | Heap | Sends => {
                entries as usize * entry_bytes as usize
            }
        })
    }
}

/// Entries of one kind that lie one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    /// What they are.
    pub kind: AreaKind,
    /// Byte of the region where the area starts: the begin of a line of the cache.
    pub at: usize,
    /// Bytes of the area.
    pub len: usize,
    /// How many entries.
    pub entries: u32,
    /// Bytes of an entry; 0 where they differ.
    pub entry_bytes: u32,
}

/// The areas of a region, in the order in which they lie.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Directory {
    areas: Vec<Area>,
}

impl Directory {
    /// A directory without areas.
    pub fn new() -> Directory {
        Directory::default()
    }

    /// Adds an area behind those that are there, and returns where it starts.
    ///
    /// # Panics
    /// Where the kind does not have such entries, or the directory is full: programming errors.
    pub fn add(&mut self, kind: AreaKind, entries: u32, entry_bytes: u32) -> usize {
        let len = kind.bytes(entries, entry_bytes).expect("entries that the kind can have");
        let at = self.end().next_multiple_of(CACHE_LINE);
        self.add_at(Area { kind, at, len, entries, entry_bytes });
        at
    }

    /// Adds an area behind those that are there.
    pub(crate) fn add_at(&mut self, area: Area) {
        assert!(self.areas.len() < MOST_AREAS && area.at >= self.end() && area.at % CACHE_LINE == 0);
        self.areas.push(area);
    }

    /// The first area of a kind.
    pub fn find(&self, kind: AreaKind) -> Option<Area> {
        self.all(kind).next()
    }

    /// All areas of a kind.
    pub fn all(&self, kind: AreaKind) -> impl Iterator<Item = Area> + '_ {
        self.areas.iter().copied().filter(move |area| area.kind == kind)
    }

    /// Bytes from the region's begin to the end of its last area.
    pub fn end(&self) -> usize {
        self.areas.last().map_or(PAGE, |area| area.at + area.len)
    }

    /// A sealed region with these areas, all zero, and this directory in its header.
    ///
    /// # Errors
    /// The system has no memory or no descriptor for it.
    pub fn create(&self, name: &str) -> io::Result<Region> {
        let region = Region::create(name, self.end())?;
        for (index, area) in self.areas.iter().enumerate() {
            let at = AREAS_AT + index * AREA_BYTES;
            region.u64_at(at).store(u64::from(area.kind as u32), Relaxed);
            region.u64_at(at + 8).store(area.at as u64, Relaxed);
            region.u64_at(at + 16).store(area.len as u64, Relaxed);
            region.u64_at(at + 24).store(u64::from(area.entries) | u64::from(area.entry_bytes) << 32, Relaxed);
        }
        region.u64_at(COUNT_AT).store(u64::from(crate::VERSION) | (self.areas.len() as u64) << 32, Relaxed);
        region.u64_at(0).store(MAGIC, Release);
        Ok(region)
    }

    /// Reads the directory of a region that somebody else made: copies each word once, then checks all of them.
    ///
    /// # Errors
    /// A sentence: it is of another version, or an area is not in the region, overlaps another one, or cannot be.
    pub fn read(region: &Region) -> Result<Directory, String> {
        if region.len() < PAGE || region.u64_at(0).load(Relaxed) != MAGIC {
            return Err("the region has no directory: it is not one of OpenTOE's contexts".into());
        }
        let count = region.u64_at(COUNT_AT).load(Relaxed);
        let (version, count) = (count as u32, (count >> 32) as usize);
        if version != crate::VERSION {
            return Err(format!("the region's directory has version {version}, not {}", crate::VERSION));
        }
        if count > MOST_AREAS {
            return Err(format!("the region's directory has {count} areas, more than the {MOST_AREAS} that fit"));
        }
        let mut directory = Directory::new();
        for index in 0..count {
            let area = read_area(region, index).ok_or_else(|| format!("area {index} of the region cannot be"))?;
            let inside =
                area.at >= directory.end() && area.at.checked_add(area.len).is_some_and(|end| end <= region.len());
            if !inside {
                return Err(format!("area {index} of the region overlaps another one or ends outside"));
            }
            directory.areas.push(area);
        }
        Ok(directory)
    }
}

fn read_area(region: &Region, index: usize) -> Option<Area> {
    let word = |at: usize| region.u64_at(AREAS_AT + index * AREA_BYTES + at).load(Relaxed);
    let kind = AreaKind::from_code(u32::try_from(word(0)).ok()?)?;
    let (at, len) = (usize::try_from(word(8)).ok()?, usize::try_from(word(16)).ok()?);
    let (entries, entry_bytes) = (word(24) as u32, (word(24) >> 32) as u32);
    let needed = kind.bytes(entries, entry_bytes)?;
    (at % CACHE_LINE == 0 && needed <= len).then_some(Area { kind, at, len, entries, entry_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn directory() -> Directory {
        let mut directory = Directory::new();
        directory.add(AreaKind::SendQueue, 64, 64);
        directory.add(AreaKind::ReceiveQueue, 64, 16);
        directory.add(AreaKind::CompletionQueue, 128, 64);
        directory
    }

    #[test]
    fn a_directory_comes_back_from_its_region() {
        let region = directory().create("test").unwrap();
        let read = Directory::read(&region).unwrap();
        assert_eq!((&read, read.end()), (&directory(), region.len()));
        let areas = [AreaKind::SendQueue, AreaKind::ReceiveQueue].map(|kind| read.find(kind).unwrap());
        assert_eq!((areas[0].at, areas[0].entries, areas[0].entry_bytes), (PAGE, 64, 64));
        assert!(areas[1].at >= PAGE + areas[0].len && read.find(AreaKind::Log).is_none());
    }

    #[test]
    fn a_region_of_another_version_is_refused_in_a_sentence() {
        let region = directory().create("test").unwrap();
        region.u64_at(COUNT_AT).store(u64::from(crate::VERSION - 1), Relaxed);
        assert!(Directory::read(&region).unwrap_err().contains("version"));
        let strange = Region::create("test", PAGE).unwrap();
        assert!(Directory::read(&strange).unwrap_err().contains("no directory"));
        assert!(Directory::read(&Region::create("test", 64).unwrap()).is_err(), "shorter than a header");
    }

    #[test]
    fn areas_that_cannot_be_are_refused() {
        for (word, value) in [
            (0, 99),
            (1, 64),
            (1, PAGE as u64 + 8),
            (1, u64::MAX - 63),
            (2, 1),
            (2, u64::MAX),
            (3, 63 | 64 << 32),
            (3, 64 | 32 << 32),
            (3, 0),
            (5, PAGE as u64),
        ] {
            let region = directory().create("test").unwrap();
            region.u64_at(AREAS_AT + word * 8).store(value, Relaxed);
            assert!(Directory::read(&region).unwrap_err().starts_with("area"), "word {word} = {value}");
        }
        let region = directory().create("test").unwrap();
        region.u64_at(COUNT_AT).store(u64::from(crate::VERSION) | 113 << 32, Relaxed);
        assert!(Directory::read(&region).unwrap_err().contains("more than"));
    }

    proptest! {
        #[test]
        fn whatever_is_accepted_lies_in_the_region(
            writes in proptest::collection::vec((0..160usize, prop_oneof![any::<u64>(), 0..70_000u64]), 0..8),
        ) {
            let region = directory().create("test").unwrap();
            for (word, value) in writes {
                // The magic number and the version stay: all else is behind them.
                region.u64_at(if word == 0 { AREAS_AT } else { word * 8 }).store(value, Relaxed);
            }
            if let Ok(read) = Directory::read(&region) {
                let mut end = PAGE;
                for area in &read.areas {
                    prop_assert!(area.at >= end && area.at + area.len <= region.len());
                    end = area.at + area.len;
                }
            }
        }
    }
}
