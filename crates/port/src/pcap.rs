//! Writing what passes a port into a capture file, for tcpdump and Wireshark.
use crate::capture::pcapng::{self, About};
use crate::capture::{Direction, SNAPLEN, View, each_packet};
use crate::{Capabilities, Frame, FramePool, Handover, Nanos, Port, PortCounters, PortDrops};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wire::Mac;

/// A capture file of one port.
#[derive(Clone)]
pub struct Capture(Arc<Mutex<Writer>>);

/// How far a capture got.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CaptureFigures {
    /// Frames written.
    pub frames: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Frames not written: the file had reached its limit, or an error came.
    pub missed: u64,
    /// Why writing ended, where an error ended it.
    pub error: Option<String>,
}

struct Writer {
    file: BufWriter<File>,
    /// Unix time, in nanoseconds, of the port's time 0.
    epoch: Nanos,
    most: u64,
    block: Vec<u8>,
    figures: CaptureFigures,
}

impl Capture {
    /// Makes the file for the port of this name. `epoch` is the Unix time, in nanoseconds, at which the port's clock
    /// was 0; the file never grows beyond `most` bytes.
    pub fn create(path: &Path, port: &str, epoch: Nanos, most: u64) -> Result<Capture, String> {
        let failed = |e| format!("cannot write the capture file {}: {e}", path.display());
        let mut file = BufWriter::with_capacity(256 * 1024, File::create(path).map_err(failed)?);
        let mut block = Vec::new();
        pcapng::section(&mut block);
        pcapng::interface(&mut block, port, "", SNAPLEN);
        file.write_all(&block).and_then(|()| file.flush()).map_err(failed)?;
        let figures = CaptureFigures { bytes: block.len() as u64, ..CaptureFigures::default() };
        Ok(Capture(Arc::new(Mutex::new(Writer { file, epoch, most, block, figures }))))
    }

    /// Writes frames that passed at `now`, in order.
    pub fn write<'f>(&self, now: Nanos, direction: Direction, frames: impl IntoIterator<Item = &'f Frame>) {
        let (mut writer, mut packet) = (self.lock(), Vec::new());
        for frame in frames {
            each_packet(frame, &mut packet, |view| writer.write(now, direction, &view));
        }
    }

    /// Brings everything to the file.
    pub fn flush(&self) {
        let mut writer = self.lock();
        if let Err(error) = writer.file.flush() {
            writer.figures.error = Some(error.to_string());
        }
    }

    /// How far it got.
    pub fn figures(&self) -> CaptureFigures {
        self.lock().figures.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Writer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Writer {
    fn write(&mut self, now: Nanos, direction: Direction, view: &View<'_>) {
        let (time, len) = (self.epoch.saturating_add(now), view.len() as u32);
        let about = About { interface: 0, time, direction: Some(direction), len, comment: "" };
        self.block.clear();
        pcapng::packet(&mut self.block, &about, |into| view.copy(into));
        let size = self.block.len() as u64;
        if self.figures.error.is_some() || self.figures.bytes + size > self.most {
            self.figures.missed += 1;
            return;
        }
        match self.file.write_all(&self.block) {
            Ok(()) => {
                self.figures.frames += 1;
                self.figures.bytes += size;
            }
            Err(error) => {
                self.figures.missed += 1;
                self.figures.error = Some(error.to_string());
            }
        }
    }
}

/// A port whose frames are captured, both ways. Frames pass untouched: only the capture has copies.
pub struct Captured {
    port: Box<dyn Port>,
    capture: Capture,
}

impl Captured {
    /// Captures what passes `port`.
    pub fn new(port: Box<dyn Port>, capture: Capture) -> Captured {
        Captured { port, capture }
    }
}

impl Port for Captured {
    fn name(&self) -> String {
        self.port.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.port.capabilities()
    }

    fn mac(&self) -> Mac {
        self.port.mac()
    }

    fn receive(&mut self, now: Nanos, most: usize, pool: &mut FramePool, into: &mut Vec<Box<Frame>>) -> usize {
        let before = into.len();
        let count = self.port.receive(now, most, pool, into);
        if count > 0 {
            self.capture.write(now, Direction::In, into[before..].iter().map(|frame| &**frame));
        }
        count
    }

    fn send(&mut self, now: Nanos, frames: &mut Vec<Box<Frame>>, pool: &mut FramePool, drops: &mut PortDrops) {
        if !frames.is_empty() {
            self.capture.write(now, Direction::Out, frames.iter().map(|frame| &**frame));
        }
        self.port.send(now, frames, pool, drops);
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.port.wait_fd()
    }

    /// Nothing happens for a while: a good moment to bring the capture to the file, where somebody may be reading it.
    fn prepare_to_sleep(&self) {
        self.capture.flush();
        self.port.prepare_to_sleep();
    }

    fn awake(&self) {
        self.port.awake();
    }

    fn next_deadline(&self) -> Option<Nanos> {
        self.port.next_deadline()
    }

    fn has_work(&self, now: Nanos) -> bool {
        self.port.has_work(now)
    }

    fn handover(&self) -> Option<Handover<'_>> {
        self.port.handover()
    }

    fn counters(&self) -> PortCounters {
        self.port.counters()
    }

    fn failure(&self) -> Option<String> {
        self.port.failure()
    }
}
