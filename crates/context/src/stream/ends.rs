//! The three ends of a context: the application's, the engine's and the control plane's.
use super::tables::Tables;
use crate::directory::{APP_BELL, COMPLETIONS_WAIT, DAEMON_BELL, LET_GO};
use crate::{DirectWords, Directory, Geometry, LogEnd, LogShape, SendWords, Slot};
use shm::{ByteRing, Consumer, Doorbell, Level, News, Producer, Region, Rings};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// The engine's end of the data pair.
pub struct EngineEnd {
    /// [`crate::Bump`]s from the application.
    pub bumps: Consumer<2>,
    /// [`crate::Completion`]s to the application.
    pub completions: Producer<2>,
    /// Wakes the application.
    pub app_bell: Arc<Doorbell>,
    region: Arc<Region>,
    geometry: Geometry,
    /// Completions wait for room, by the region's word.
    waits: bool,
}

impl EngineEnd {
    fn new(region: &Arc<Region>, g: &Geometry, app_bell: Arc<Doorbell>) -> EngineEnd {
        EngineEnd {
            bumps: Consumer::new(region, g.bumps_at(), g.data_entries),
            completions: Producer::new(region, g.completions_at(), g.data_entries),
            app_bell,
            region: Arc::clone(region),
            geometry: *g,
            waits: region.u32_at(COMPLETIONS_WAIT).load(Acquire) != 0,
        }
    }

    /// Reports whether completions wait for room in their ring, before anything that they report leaves the host.
    /// While they do, peers may be ahead of the application in the connections, and no daemon can go on with them after
    /// a kill (docs/RESTART.md).
    #[inline(always)]
    pub fn set_completions_wait(&mut self, wait: bool) {
        if wait != self.waits {
            self.waits = wait;
            self.region.u32_at(COMPLETIONS_WAIT).store(wait.into(), Release);
        }
    }

    /// The words about direct stretches, those of the first slot; none where the region has no heap.
    pub fn direct_words(&self) -> Option<DirectWords> {
        DirectWords::new(&self.region, &self.geometry, 0)
    }

    /// The words about sends by reference, those of the first slot; none where the region has no heap.
    pub fn send_words(&self) -> Option<SendWords> {
        SendWords::new(&self.region, &self.geometry, 0)
    }

    /// Reports which byte of what the connection in a slot receives is urgent; a completion of it follows
    /// ([`crate::Completion::urgent`]).
    pub fn report_urgent(&self, slot: u32, position: u32) {
        if slot < self.geometry.slots {
            self.region.u32_at(self.geometry.urgent_at(slot)).store(position, Release);
        }
    }

    /// Reports how far the connection in a slot has sent ([`crate::Bump::UNTIL_SENT`]); a completion of it follows.
    pub fn report_sent(&self, slot: u32, position: u32) {
        if slot < self.geometry.slots {
            self.region.u32_at(self.geometry.sent_at(slot)).store(position, Release);
        }
    }
}

/// The control plane's end of the control pair, with the buffers that it gives to connections.
pub struct ControlEnd {
    /// [`crate::Request`]s from the application.
    pub requests: Consumer<8>,
    /// [`crate::Reply`]s to the application.
    pub replies: Producer<8>,
    /// Wakes the application.
    pub app_bell: Arc<Doorbell>,
    /// Rung by the application; sleep on it when idle.
    pub daemon_bell: Doorbell,
    geometry: Geometry,
    region: Arc<Region>,
    region_number: u64,
    tables: Tables,
}

impl ControlEnd {
    /// The sizes of the region.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// A new end for an engine that takes over from another one, where that one stopped.
    pub fn engine_end(&self) -> EngineEnd {
        EngineEnd::new(&self.region, &self.geometry, Arc::clone(&self.app_bell))
    }

    /// What another daemon needs to go on with this context: the region, its end of the application's doorbell, and its
    /// own doorbell.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        [self.region.fd(), self.app_bell.fd(), self.daemon_bell.fd()]
    }

    /// The number of the region, which no other one has ([`Region::number`]).
    pub fn region_number(&self) -> u64 {
        self.region_number
    }

    /// Marks that this daemon ends the application's connections, before the application can see it gone: no other
    /// daemon goes on with them.
    pub fn let_go(&self) {
        self.region.u32_at(LET_GO).store(1, Release);
    }

    /// Maps the receive and the transmit buffer of slot `index`, in this order: as far as its streams have grown.
    pub fn map_buffers(&self, index: u32) -> io::Result<(ByteRing, ByteRing)> {
        map_buffers(&self.region, &self.geometry, index)
    }

    /// Sets for slot `index`, before a connection is in it, whether its streams begin in the buffers or in small rings.
    pub fn begin(&self, index: u32, grown: bool) {
        // Those of an earlier connection, where somebody still referred to them when it ended. Memory that the system
        // does not take back now is taken back with the region.
        let _ = self.discard_large(index);
        for word in [self.geometry.rx_level_at(index), self.geometry.tx_level_at(index)] {
            self.region.u32_at(word).store(grown as u32, Release);
        }
        self.suggest(index, 0);
        // Of a connection that an earlier daemon ran here.
        let [_, read_for] = self.geometry.read_at(index);
        self.region.u32_at(read_for).store(0, Release);
    }

    /// A connection in a slot is about to wait there until the application accepts it.
    pub fn offer(&self, slot: Slot) {
        self.region.u32_at(self.geometry.offered_at(slot.index)).store(slot.mark(), Release);
    }

    /// Takes an offer back. False where the application was first: then it has accepted the connection.
    pub fn withdraw(&self, slot: Slot) -> bool {
        take(&self.region, &self.geometry, slot)
    }

    /// How far the application has read in a slot's connection, where it keeps that in the slot's state, as libtoe
    /// does.
    pub fn read_of(&self, slot: Slot) -> Option<u32> {
        let [read, read_for] = self.geometry.read_at(slot.index).map(|at| self.region.u32_at(at).load(Acquire));
        (read_for == slot.mark()).then_some(read)
    }

    /// Bytes that have landed in the program's memory, of the connection in slot `index`.
    pub fn landed_bytes(&self, index: u32) -> u64 {
        DirectWords::new(&self.region, &self.geometry, index).map_or(0, |words| words.landed_bytes())
    }

    /// Bytes that the program wanted to send by reference, of the connection in slot `index`, by the way they went
    /// ([`SendWords::counts`]).
    pub fn sent_counts(&self, index: u32) -> [u64; 5] {
        SendWords::new(&self.region, &self.geometry, index).map_or([0; 5], |words| words.counts())
    }

    /// The daemon's end of the context's log.
    ///
    /// # Errors
    /// The region has no room for a log of this shape, or the shape is none.
    pub fn open_log(&self, shape: LogShape) -> io::Result<LogEnd> {
        LogEnd::new(&self.region, &self.geometry, shape)
    }

    /// Gives the memory of a slot's receive buffer back to the system; it reads as zero. For a connection whose flow
    /// stands still with everything read.
    ///
    /// The small rings go both, for they share a page: nothing may be unacknowledged either.
    pub fn discard_received(&mut self, index: u32) -> io::Result<()> {
        let g = &self.geometry;
        discard_small(&self.region, g, index)?;
        let level = level(&self.region, g, g.rx_level_at(index));
        discard_large(&self.region, g.rx_large_at(index), g.large_len(index), level)?;
        if level > Level::Small {
            self.region.discard(g.rx_at(index), g.rx_len(index) as usize)?;
        }
        self.tables.reclaimed(&self.region, &self.geometry, index);
        Ok(())
    }

    /// Gives the memory of a slot's buffers back to the system, but for its large rings
    /// ([`ControlEnd::discard_large`]).
    pub fn discard_buffers(&self, index: u32) -> io::Result<()> {
        let g = &self.geometry;
        discard_small(&self.region, g, index)?;
        self.region.discard(g.rx_at(index), g.pair_len(index))
    }

    /// Gives the memory of the rings back in which a slot's streams went on, where they have outgrown their buffers.
    pub fn discard_large(&self, index: u32) -> io::Result<()> {
        let g = &self.geometry;
        let level = |word| level(&self.region, g, word);
        discard_large(&self.region, g.rx_large_at(index), g.large_len(index), level(g.rx_level_at(index)))?;
        discard_large(&self.region, g.tx_large_at(index), g.large_len(index), level(g.tx_level_at(index)))
    }

    /// Publishes how many bytes the path of slot `index` can have under way: its program may grow the transmit stream.
    pub fn suggest(&self, index: u32, bytes: u32) {
        self.region.u32_at(self.geometry.wanted_at(index)).store(bytes, Relaxed);
    }
}

/// The application's ends of both pairs.
pub struct AppEnd {
    /// [`crate::Bump`]s to the engine.
    pub bumps: Producer<2>,
    /// [`crate::Completion`]s from the engine.
    pub completions: Consumer<2>,
    /// [`crate::Request`]s to the control plane.
    pub requests: Producer<8>,
    /// [`crate::Reply`]s from the control plane.
    pub replies: Consumer<8>,
    /// Rung by the daemon; sleep on it when there is nothing to do.
    pub app_bell: Doorbell,
    /// Wakes the daemon: ring it after publishing bumps or requests.
    pub daemon_bell: Doorbell,
    /// The region: slot states are read and written through it.
    pub region: Arc<Region>,
    /// The sizes of the region.
    pub geometry: Geometry,
    tables: Tables,
}

impl AppEnd {
    /// The engine's last published position up to which the connection in a slot has sent. It is a word to write, too,
    /// when the slot is used again.
    pub fn sent(&self, slot: u32) -> &AtomicU32 {
        self.region.u32_at(self.geometry.sent_at(slot))
    }

    /// Which byte of what the connection in a slot receives is urgent, where a completion had that.
    pub fn urgent(&self, slot: u32) -> u32 {
        self.region.u32_at(self.geometry.urgent_at(slot)).load(Acquire)
    }

    /// The application's end of a region received in [`crate::attach::Welcome`].
    ///
    /// # Errors
    /// A sentence: the region's directory cannot be read, or is not that of these sizes.
    pub fn new(region: Arc<Region>, geometry: Geometry, app_bell: OwnedFd, daemon_bell: OwnedFd) -> io::Result<AppEnd> {
        let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        let directory = Directory::read(&region).map_err(wrong)?;
        if !geometry.is_valid() || directory != geometry.directory() {
            return Err(wrong("the daemon's region is not laid out by its geometry".into()));
        }
        let g = &geometry;
        let mut daemon_bell = Doorbell::new(&region, DAEMON_BELL, daemon_bell);
        daemon_bell.rely_on_barrier();
        Ok(AppEnd {
            bumps: Producer::new(&region, g.bumps_at(), g.data_entries),
            completions: Consumer::new(&region, g.completions_at(), g.data_entries),
            requests: Producer::new(&region, g.requests_at(), g.control_entries),
            replies: Consumer::new(&region, g.replies_at(), g.control_entries),
            app_bell: Doorbell::new(&region, APP_BELL, app_bell),
            daemon_bell,
            tables: Tables::new(&geometry),
            geometry,
            region,
        })
    }

    /// The application accepts a connection that waits. False where the control plane has just taken it back
    /// ([`crate::Reply::Unaccept`] has it as well).
    pub fn accept(&self, slot: Slot) -> bool {
        take(&self.region, &self.geometry, slot)
    }

    /// Whether another daemon can go on with the connections of this one, which is gone (docs/RESTART.md).
    ///
    /// Not where it detached the application. Nor where completions had found no room when it ended: the peers may have
    /// more of the connections than this side.
    pub fn can_go_on(&self) -> bool {
        [LET_GO, COMPLETIONS_WAIT].into_iter().all(|word| self.region.u32_at(word).load(Acquire) == 0)
    }

    /// For polls without the ends whether the daemon has sent something.
    pub fn news(&self) -> [News; 2] {
        [self.completions.news(), self.replies.news()]
    }

    /// Both buffers of a slot have been given back.
    pub fn reclaimed(&mut self, slot: Slot) {
        self.tables.reclaimed(&self.region, &self.geometry, slot.index);
    }

    /// Gives the memory of a slot's transmit buffer back to the system; it reads as zero. The application owns what is
    /// not between what was acknowledged and what it has written: for a connection with everything acknowledged. Small
    /// rings are the daemon's to give back.
    pub fn discard_sent(&self, slot: Slot) -> io::Result<()> {
        let (g, index) = (&self.geometry, slot.index);
        let level = level(&self.region, g, g.tx_level_at(index));
        discard_large(&self.region, g.tx_large_at(index), g.large_len(index), level)?;
        if level > Level::Small { self.region.discard(g.tx_at(index), g.tx_len(index) as usize) } else { Ok(()) }
    }

    /// Maps the receive and the transmit buffer of a slot, in this order.
    pub fn map_buffers(&self, slot: Slot) -> io::Result<(ByteRing, ByteRing)> {
        map_buffers(&self.region, &self.geometry, slot.index)
    }
}

/// Of both sides that claim a connection which was offered, one gets it.
fn take(region: &Region, g: &Geometry, slot: Slot) -> bool {
    region.u32_at(g.offered_at(slot.index)).compare_exchange(slot.mark(), 0, AcqRel, Acquire).is_ok()
}

fn map_buffers(region: &Arc<Region>, g: &Geometry, index: u32) -> io::Result<(ByteRing, ByteRing)> {
    let (first, small, small_at) = (g.first_at(index), g.small_bytes as usize, g.small_at(index));
    let rings = |begin: usize, full: (usize, u32), word: usize| Rings {
        small: g.has_small().then_some((begin, small)),
        full: (full.0, full.1 as usize),
        large: None,
        word,
    };
    let large = |at: Option<usize>| at.map(|at| (at, g.large_len(index) as usize));
    let rx = rings(small_at, (g.rx_at(index), g.rx_len(index)), g.rx_level_at(index));
    let tx = rings(small_at + small, (g.tx_at(index), g.tx_len(index)), g.tx_level_at(index));
    let (rx, tx) =
        (Rings { large: large(g.rx_large_at(index)), ..rx }, Rings { large: large(g.tx_large_at(index)), ..tx });
    let [rx, tx] = [rx, tx].map(|rings| ByteRing::map_first(region, rings));
    Ok((rx?.beginning_at(first), tx?.beginning_at(first)))
}

/// The ring in which the stream of this word is.
fn level(region: &Region, g: &Geometry, word: usize) -> Level {
    let level = Level::of(region.u32_at(word).load(Acquire));
    if g.has_small() { level } else { level.max(Level::Full) }
}

/// Gives the memory of the large ring `at` back, of `len` bytes, in which a stream of this level may have gone on.
fn discard_large(region: &Region, at: Option<usize>, len: u32, level: Level) -> io::Result<()> {
    let large = if level == Level::Large { at } else { None };
    large.map_or(Ok(()), |at| region.discard(at, len as usize))
}

fn discard_small(region: &Region, g: &Geometry, index: u32) -> io::Result<()> {
    if g.has_small() { region.discard(g.small_at(index), g.small_pair()) } else { Ok(()) }
}

/// The daemon's two ends of a fresh region, with its descriptors of the application's and of its own doorbell.
pub fn daemon_ends(
    region: &Arc<Region>,
    geometry: Geometry,
    app_bell: OwnedFd,
    daemon_bell: OwnedFd,
) -> (EngineEnd, ControlEnd) {
    let g = &geometry;
    let app_bell = Arc::new(Doorbell::new(region, APP_BELL, app_bell));
    let daemon_bell = Doorbell::new(region, DAEMON_BELL, daemon_bell);
    daemon_bell.promise_barrier();
    let engine = EngineEnd::new(region, g, Arc::clone(&app_bell));
    let control = ControlEnd {
        requests: Consumer::new(region, g.requests_at(), g.control_entries),
        replies: Producer::new(region, g.replies_at(), g.control_entries),
        app_bell,
        daemon_bell,
        geometry,
        region: Arc::clone(region),
        region_number: region.number(),
        tables: Tables::new(&geometry),
    };
    (engine, control)
}

/// Makes the region of an application that comes back ready for [`daemon_ends`]. What an earlier daemon and the
/// application left in the rings is void, and no side sleeps on the bells. Fails where the region is not laid out so.
pub fn begin_anew(region: &Region, geometry: &Geometry) -> io::Result<()> {
    let g = geometry;
    let fits = region.len() == g.region_len() && Directory::read(region).is_ok_and(|found| found == g.directory());
    if !fits {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the region has another layout than the host's"));
    }
    for ring in [g.bumps_at(), g.completions_at(), g.requests_at(), g.replies_at()] {
        shm::empty_ring(region, ring);
    }
    for word in [APP_BELL, DAEMON_BELL, COMPLETIONS_WAIT, LET_GO] {
        region.u32_at(word).store(0, Release);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bump, Growing, LongPaths, Reply, Request};

    const SIZES: Geometry = Geometry {
        slots: 4,
        long: LongPaths::NONE,
        growing: Growing::NONE,
        data_entries: 64,
        control_entries: 64,
        rx_bytes: 8192,
        tx_bytes: 8192,
        full_slots: 4,
        small_bytes: 0,
        log_bytes: 0,
        heap_bytes: 0,
    };

    #[test]
    fn a_region_of_another_layout_is_refused() {
        let geometry = SIZES;
        let attach = |region: Region, geometry| {
            let bells = [Doorbell::eventfd().unwrap(), Doorbell::eventfd().unwrap()];
            let [app_bell, daemon_bell] = bells;
            AppEnd::new(Arc::new(region), geometry, app_bell, daemon_bell).map(drop).map_err(|error| error.to_string())
        };
        let region = || geometry.create_region("test").unwrap();
        assert_eq!(attach(region(), geometry), Ok(()));
        let more = Geometry { slots: 8, ..geometry };
        assert!(attach(region(), more).unwrap_err().contains("not laid out"));
        assert!(attach(Region::create("test", geometry.region_len()).unwrap(), geometry).is_err(), "no directory");
        let changed = region();
        changed.u64_at(512 + 8).store(8192, Release);
        assert!(attach(changed, geometry).is_err());
    }

    #[test]
    fn both_sides_speak_over_one_region() {
        let geometry = Geometry { small_bytes: 2048, ..SIZES };
        assert!(geometry.is_valid());
        let region = Arc::new(geometry.create_region("test").unwrap());
        let (app_fd, daemon_fd) = (Doorbell::eventfd().unwrap(), Doorbell::eventfd().unwrap());
        let (app_fd2, daemon_fd2) = (app_fd.try_clone().unwrap(), daemon_fd.try_clone().unwrap());
        let (mut engine, mut control) = daemon_ends(&region, geometry, app_fd, daemon_fd);
        let mut app = AppEnd::new(region, geometry, app_fd2, daemon_fd2).unwrap();

        let slot = Slot { index: 3, generation: 1 };
        let bump = Bump { slot, tx_head: 5, rx_head: 0, fin: false, ring: 0 };
        app.bumps.push(bump.to_words()).unwrap();
        app.requests.push(Request::Fork { tag: 1 }.to_words()).unwrap();
        control.daemon_bell.prepare_to_sleep();
        assert!(app.daemon_bell.ring());
        assert_eq!(Bump::from_words(engine.bumps.pop().unwrap().unwrap()), bump);
        assert_eq!(Request::from_words(control.requests.pop().unwrap().unwrap()), Some(Request::Fork { tag: 1 }));
        control.replies.push(Reply::Done { tag: 1 }.to_words()).unwrap();
        assert!(!control.app_bell.ring(), "nobody sleeps there");
        assert_eq!(Reply::from_words(app.replies.pop().unwrap().unwrap()), Some(Reply::Done { tag: 1 }));

        let (_, tx) = app.map_buffers(slot).unwrap();
        tx.write(4094, b"hello");
        let (_, seen) = control.map_buffers(3).unwrap();
        let mut back = [0; 5];
        seen.read(4094, &mut back);
        assert_eq!((&back, seen.size(), seen.most()), (b"hello", 2048, 8192));

        Arc::new(tx).grow(4094);
        let (rx, seen) = control.map_buffers(3).unwrap();
        seen.read(4094, &mut back);
        assert_eq!((&back, seen.size(), rx.size()), (b"hello", 8192, 2048));
        let [read, read_for] = geometry.read_at(3).map(|at| app.region.u32_at(at));
        read.store(77, Release);
        assert_eq!(control.read_of(slot), None);
        read_for.store(slot.mark(), Release);
        assert_eq!((control.read_of(slot), control.read_of(Slot { generation: 2, ..slot })), (Some(77), None));
        control.offer(slot);
        assert!(!app.accept(Slot { generation: 2, ..slot }), "an earlier use of the slot");
        assert!(app.accept(slot) && !control.withdraw(slot) && !app.accept(slot), "the application was first");
        control.offer(slot);
        assert!(control.withdraw(slot) && !app.accept(slot), "the control plane was first");
        control.begin(3, false);
        assert!(control.map_buffers(3).unwrap().1.is_small(), "the next connection in this slot");
        control.discard_received(3).unwrap();
        control.begin(3, true);
        let (rx, tx) = app.map_buffers(slot).unwrap();
        assert_eq!((rx.size(), tx.size()), (8192, 8192));
        tx.read(4094, &mut back);
        assert_eq!(&back, b"hello", "it was not in the small rings");
        app.discard_sent(slot).unwrap();
        tx.read(4094, &mut back);
        assert_eq!(back, [0; 5]);
    }
}
