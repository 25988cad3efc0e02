//! Journal: a file beside the daemon's socket that outlives it, a record of each connection. The next daemon goes on
//! with them where this one is killed (docs/RESTART.md). It lies in memory, as /run does, and is of no use after a
//! reboot.
use crate::clock::Clock;
use crate::config::{Config, HostSection};
use control::{ADDRESS_WORDS, RECORD_WORDS, Records};
use rustix::fs::{Mode, OFlags, ftruncate, open};
use shm::{PAGE, Region};
use siphasher::sip::SipHasher24;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Version of the file's layout, and of the records'.
const LAYOUT: u32 = 2;
/// Where the digest of all that must be the same lies, and the clock's 0 on the machine's monotonic clock.
const DIGEST: usize = 0;
const ORIGIN: usize = 8;
/// Bytes of a record, and of the IPv6 addresses that go with one.
const RECORD: usize = RECORD_WORDS * 8;
const ADDRESSES: usize = ADDRESS_WORDS * 8;

/// The records of a daemon's hosts.
pub(crate) struct Journal {
    region: Arc<Region>,
    path: PathBuf,
    /// Its name until it takes the place of the last daemon's.
    temporary: Option<PathBuf>,
    areas: Vec<(String, Area)>,
}

/// Where the records of a host lie. Addresses lie apart: a host without IPv6 has no memory for them.
#[derive(Clone, Copy)]
struct Area {
    records: usize,
    addresses: usize,
    count: u32,
}

impl Area {
    /// The first one at or behind `from`, in whole pages.
    fn at(from: usize, count: u32) -> Area {
        Area { records: from, addresses: from + (count as usize * RECORD).next_multiple_of(PAGE), count }
    }

    fn end(&self) -> usize {
        self.addresses + (self.count as usize * ADDRESSES).next_multiple_of(PAGE)
    }
}

impl Journal {
    /// The file of the last daemon at this socket, where it had the same hosts; otherwise a fresh one. The error is a
    /// sentence: the daemon can do without.
    pub(crate) fn of(socket: &Path, config: &Config) -> Result<Journal, String> {
        let (path, areas, digest) = (path_of(socket), areas(config), digest(config));
        let existing = existing(&path).ok().filter(|region| region.len() == len(&areas));
        match existing.filter(|region| region.u64_at(DIGEST).load(Acquire) == digest) {
            Some(region) => Ok(Journal { region: Arc::new(region), path, temporary: None, areas }),
            None => Journal::fresh(socket, config),
        }
    }

    /// A fresh one, which takes the place of the last daemon's with [`Journal::publish`]: for a daemon that takes over.
    pub(crate) fn fresh(socket: &Path, config: &Config) -> Result<Journal, String> {
        let (path, areas) = (path_of(socket), areas(config));
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".new");
        let temporary = PathBuf::from(temporary);
        let region = made(&temporary, len(&areas)).map_err(|error| {
            format!("{} cannot be written ({error}): connections end where this daemon is killed", temporary.display())
        })?;
        region.u64_at(DIGEST).store(digest(config), Release);
        Ok(Journal { region: Arc::new(region), path, temporary: Some(temporary), areas })
    }

    /// The clock of this daemon: it goes on from the last one's where connections of that one may go on, since peers
    /// drop timestamps that go back (RFC 7323 section 5.3).
    pub(crate) fn clock(&self) -> Clock {
        match self.region.u64_at(ORIGIN).load(Relaxed) {
            0 => Clock::start(),
            origin => Clock::go_on(0, origin),
        }
    }

    /// The next daemon finds the file from now on, and this daemon's clock in it.
    pub(crate) fn publish(&mut self, clock: Clock) {
        self.region.u64_at(ORIGIN).store(clock.origin(), Relaxed);
        let renamed = self.temporary.take().map(|temporary| std::fs::rename(temporary, &self.path));
        if let Some(Err(error)) = renamed {
            let path = self.path.display();
            tracing::warn!("connections end where this daemon is killed: {path} cannot be written ({error})");
        }
    }

    /// The records of a host.
    pub(crate) fn records(&self, host: &str) -> Option<Box<dyn Records>> {
        let (_, area) = self.areas.iter().find(|(name, _)| name == host)?;
        Some(Box::new(HostRecords { region: Arc::clone(&self.region), area: *area }))
    }

    /// The daemon ends in order, and with it all connections.
    pub(crate) fn end(self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.temporary.iter().for_each(|path| drop(std::fs::remove_file(path)));
    }
}

/// The records of a host.
struct HostRecords {
    region: Arc<Region>,
    area: Area,
}

impl HostRecords {
    fn word(&self, record: u32, word: usize) -> &AtomicU64 {
        self.region.u64_at(self.area.records + record as usize * RECORD + word * 8)
    }

    fn address_word(&self, record: u32, word: usize) -> &AtomicU64 {
        self.region.u64_at(self.area.addresses + record as usize * ADDRESSES + word * 8)
    }
}

impl Records for HostRecords {
    fn count(&self) -> u32 {
        self.area.count
    }

    fn load(&self, at: u32) -> [u64; RECORD_WORDS] {
        let first = self.word(at, 0).load(Acquire);
        std::array::from_fn(|word| if word == 0 { first } else { self.word(at, word).load(Relaxed) })
    }

    fn load_addresses(&self, at: u32) -> [u64; ADDRESS_WORDS] {
        std::array::from_fn(|word| self.address_word(at, word).load(Relaxed))
    }

    fn store(&mut self, at: u32, words: &[u64; RECORD_WORDS], addresses: Option<&[u64; ADDRESS_WORDS]>) {
        for (word, value) in addresses.into_iter().flatten().enumerate() {
            self.address_word(at, word).store(*value, Relaxed);
        }
        for (word, value) in words.iter().enumerate().skip(1) {
            self.word(at, word).store(*value, Relaxed);
        }
        self.word(at, 0).store(words[0], Release);
    }

    fn clear(&mut self, at: u32) {
        self.word(at, 0).store(0, Release);
    }
}

/// The file beside a socket.
fn path_of(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(".flows");
    path.into()
}

fn areas(config: &Config) -> Vec<(String, Area)> {
    let mut from = PAGE;
    let area = |host: &HostSection| {
        let area = Area::at(from, host.stack.max_flows);
        from = area.end();
        (host.stack.name.clone(), area)
    };
    config.hosts.iter().map(area).collect()
}

fn len(areas: &[(String, Area)]) -> usize {
    areas.last().map_or(PAGE, |(_, area)| area.end())
}

/// Stands for all that must be the same for connections to go on: this boot of the machine, what the file and programs'
/// regions are like, and the hosts.
fn digest(config: &Config) -> u64 {
    let mut hasher = SipHasher24::new();
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    (boot, LAYOUT, context::VERSION).hash(&mut hasher);
    for host in &config.hosts {
        let stack = &host.stack;
        (&stack.name, stack.address, stack.ipv6.address, stack.max_flows).hash(&mut hasher);
        // Sizes of regions, engines and ports, as they are written.
        format!("{:?} {:?} {:?}", stack.memory, host.engine, host.ports).hash(&mut hasher);
    }
    hasher.finish().max(1)
}

/// The file at a path, where only this user can have written it.
fn existing(path: &Path) -> io::Result<Region> {
    let file = File::from(open(path, OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::RDWR, Mode::empty())?);
    let about = file.metadata()?;
    let own = about.uid() == rustix::process::geteuid().as_raw();
    if !own || !about.is_file() || about.mode() & 0o077 != 0 || about.len() == 0 {
        return Err(io::Error::other("it is not a file that only this user can write"));
    }
    Region::of_file(file.into())
}

fn made(path: &Path, len: usize) -> io::Result<Region> {
    let _ = std::fs::remove_file(path);
    let flags = OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
    let file = open(path, flags, Mode::from(0o600))?;
    // Holes: a record costs memory when it is first written.
    ftruncate(&file, len as u64)?;
    Region::of_file(file)
}
