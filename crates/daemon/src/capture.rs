//! Captures of a running daemon's frames: what [`port::Recorder`] records in hosts, ZeroNIC hosts and fabrics, streamed
//! to the client. The data-path never waits for the reader: what it cannot keep is counted as lost.
use crate::datapath::{DataPath, Handle};
use crate::protocol::{self, no_host};
use crate::views::Observer;
use port::Nanos;
use port::capture::{Filter, Queue, Recorder, SNAPLEN, Wanted, pcapng};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde_json::{Value, json};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::time::SystemTime;

/// Captures that may go on at the same time: each keeps several MiB for each host.
const MOST: usize = 8;
/// How long frames may wait to be streamed where there are few.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// Not at all.
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Number of active captures.
#[derive(Clone, Default)]
pub(crate) struct Captures(Arc<AtomicUsize>);

impl Captures {
    /// Begins a capture; it ends when it is dropped. The error is a sentence, and nothing has changed then.
    pub(crate) fn begin(&self, observer: &Observer, wish: &protocol::Capture) -> Result<Capture, String> {
        let filter = Filter::new(&wish.program)?;
        let snaplen = if wish.snaplen == 0 { SNAPLEN } else { wish.snaplen.min(SNAPLEN) };
        let (flow, dropped, direction) = (wish.flow, wish.dropped, wish.direction);
        let wanted = Arc::new(Wanted { filter, flow, dropped, direction, snaplen });
        let places = places(observer, wish.host.as_deref())?;
        if let Some(flow) = flow {
            if places.iter().all(|(_, place)| matches!(place.at, At::Zeronic(_))) {
                return Err("connections of ZeroNIC hosts have no number: name their ports in the filter".into());
            }
            // One that is not there now never will be: numbers are given again, but to others.
            observer.stats(wish.host.as_deref(), Some(flow))?;
        }
        if self.0.fetch_add(1, SeqCst) >= MOST {
            self.0.fetch_sub(1, SeqCst);
            return Err(format!("{MOST} captures are going on already: end one of them first"));
        }
        let mut capture = Capture {
            going_on: self.clone(),
            sources: Vec::new(),
            filter: wish.filter.clone(),
            snaplen,
            left: wish.count.unwrap_or(u64::MAX),
        };
        for (name, place) in places {
            let (interface, wanted) = (capture.sources.len() as u32, Arc::clone(&wanted));
            let queue = place.with(move |recorder, epoch| recorder.start(&wanted, interface, epoch))?;
            capture.sources.push(Source { name, place, queue, blocks: Vec::new(), at: 0 });
        }
        Ok(capture)
    }
}

/// Where frames are recorded.
struct CapturePoint {
    handle: Handle,
    at: At,
}

/// The same, by index on its data-path thread.
#[derive(Clone, Copy)]
enum At {
    Host(usize),
    Zeronic(usize),
    Fabric(usize),
}

impl CapturePoint {
    /// Does something with the recorder there; the other argument is the Unix time of its clock's 0.
    fn with<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Recorder, Nanos) -> T + Send + 'static,
    ) -> Result<T, String> {
        let at = self.at;
        self.handle.ask(move |path: &mut DataPath| {
            let epoch = path.clock.epoch();
            match at {
                At::Host(index) => act(path.hosts[index].host.recorder(), epoch),
                At::Zeronic(index) => act(path.zeronics[index].recorder(), epoch),
                At::Fabric(index) => path.fabrics[index].fabric.with_recorder(|recorder| act(recorder, epoch)),
            }
        })
    }
}

/// The places to record, by name: one host, or all of them and the fabrics.
fn places(observer: &Observer, host: Option<&str>) -> Result<Vec<(String, CapturePoint)>, String> {
    let all = hosts(observer);
    if let Some(wanted) = host {
        let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
        if !names.contains(&wanted) {
            return Err(no_host(wanted, &names));
        }
    }
    let mut places: Vec<(String, CapturePoint)> =
        all.into_iter().filter(|(of, _)| host.is_none_or(|name| name == of)).collect();
    if host.is_none() {
        for handle in observer.handles() {
            let names = |path: &mut DataPath| path.fabrics.iter().map(|seat| seat.name.clone()).collect::<Vec<_>>();
            let fabrics = handle.ask(names)?.into_iter().enumerate();
            places.extend(fabrics.map(|(index, name)| {
                (format!("fabric {name}"), CapturePoint { handle: handle.clone(), at: At::Fabric(index) })
            }));
        }
    }
    Ok(places)
}

/// All hosts, by name.
fn hosts(observer: &Observer) -> Vec<(String, CapturePoint)> {
    let ordinary = observer.hosts().iter().map(|of| {
        let handle = observer.handles()[of.thread].clone();
        (of.config.stack.name.clone(), CapturePoint { handle, at: At::Host(of.index) })
    });
    let zeronics = observer.zeronics().iter().map(|of| {
        let handle = of.handle.clone();
        (of.section.name.clone(), CapturePoint { handle, at: At::Zeronic(of.index) })
    });
    ordinary.chain(zeronics).collect()
}

/// One place's part in a capture.
struct Source {
    name: String,
    place: CapturePoint,
    queue: Arc<Queue>,
    /// Taken from the queue, and where the next block in it begins.
    blocks: Vec<u8>,
    at: usize,
}

/// A capture that goes on.
pub(crate) struct Capture {
    going_on: Captures,
    sources: Vec<Source>,
    filter: String,
    snaplen: u32,
    /// Frames still wanted.
    left: u64,
}

impl Capture {
    /// What the answer begins with.
    pub(crate) fn interfaces(&self) -> Value {
        json!({ "interfaces": self.sources.iter().map(|source| &source.name).collect::<Vec<_>>() })
    }

    /// Streams until the asker has had enough, or has gone.
    pub(crate) fn stream(mut self, stream: &UnixStream) -> io::Result<()> {
        // A reader may pause without a limit: nothing else waits for it.
        stream.set_write_timeout(None)?;
        let mut out = BufWriter::with_capacity(256 * 1024, stream);
        let mut head = Vec::new();
        pcapng::section(&mut head);
        for source in &self.sources {
            pcapng::interface(&mut head, &source.name, &self.filter, self.snaplen);
        }
        out.write_all(&head)?;
        out.flush()?;
        let mut moved = false;
        while self.left > 0 && !has_enough(stream, if moved { &AT_ONCE } else { &PAUSE })? {
            moved = self.move_on(&mut out)?;
        }
        self.stop();
        self.move_on(&mut out)?;
        out.write_all(&self.statistics())?;
        out.flush()
    }

    /// Writes what waits, in the order of time; whether there was anything.
    fn move_on(&mut self, out: &mut impl Write) -> io::Result<bool> {
        for source in &mut self.sources {
            source.at = 0;
            source.queue.take(&mut source.blocks);
        }
        let mut moved = false;
        while self.left > 0 {
            let heads = self.sources.iter().enumerate();
            let heads = heads.filter_map(|(at, source)| Some((pcapng::first_packet(&source.blocks[source.at..])?, at)));
            let Some(((len, _), at)) = heads.min_by_key(|((_, time), _)| *time) else { break };
            let source = &mut self.sources[at];
            out.write_all(&source.blocks[source.at..source.at + len])?;
            source.at += len;
            self.left -= 1;
            moved = true;
        }
        if moved {
            out.flush()?;
        }
        Ok(moved)
    }

    /// Nothing more is recorded; what was is in the queues.
    fn stop(&self) {
        for source in &self.sources {
            let queue = Arc::clone(&source.queue);
            // A thread that has ended records nothing.
            let _ = source.place.with(move |recorder, _| recorder.stop(&queue));
        }
    }

    fn statistics(&self) -> Vec<u8> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos() as Nanos;
        let mut blocks = Vec::new();
        for (interface, source) in self.sources.iter().enumerate() {
            pcapng::statistics(&mut blocks, interface as u32, now, &source.queue.counts());
        }
        blocks
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.stop();
        self.going_on.0.fetch_sub(1, SeqCst);
    }
}

/// The client has shut its side down, or is gone; waits for that no longer than `timeout`.
fn has_enough(mut stream: &UnixStream, timeout: &Timespec) -> io::Result<bool> {
    let mut fds = [PollFd::new(&stream, PollFlags::IN)];
    match poll(&mut fds, Some(timeout)) {
        Ok(0) | Err(Errno::INTR) => return Ok(false),
        waited => waited?,
    };
    // Whatever else it sends has no meaning.
    Ok(stream.read(&mut [0; 256])? == 0)
}
