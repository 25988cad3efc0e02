//! Volumes: the program's end of block storage that a host of the daemon uses (`context::volume`, docs/SOLAR.md).
use super::attached::{Attached, Event};
use crate::daemon::attach::command_line;
use crate::system::errno::Result;
use context::comm::{Answer, Piece};
use context::queues::COMPLETION_WORDS;
use context::volume::{Completion, Hello, Order, Post, VERSION};
use libc::c_int;

/// `struct toe_volume_event`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct VolumeEvent {
    id: u64,
    error: c_int,
    unused: u32,
}

impl Event for VolumeEvent {
    fn of(words: [u64; COMPLETION_WORDS]) -> Option<VolumeEvent> {
        let Completion { id, errno } = Completion::from_words(words);
        Some(VolumeEvent { id, error: errno as c_int, unused: 0 })
    }
}

/// A program's use of a volume.
pub(crate) struct Volume {
    attached: Attached,
    bytes: u64,
    read_only: bool,
}

impl Volume {
    /// Opens the volume of this name, as a host uses it: that of this name, or the first one that does.
    pub(crate) fn open(volume: String, host: Option<String>) -> Result<Volume> {
        let hello = Hello { volume_version: VERSION, volume, host, command: command_line() };
        let (attached, answer) = Attached::open(&hello)?;
        match answer {
            Answer::Volume { bytes, read_only } => Ok(Volume { attached, bytes, read_only }),
            _ => Err(libc::EPROTO),
        }
    }

    /// Its length.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its host only reads it.
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Readable when a request has ended, once [`Volume::take`] has found none.
    pub(crate) fn fd(&self) -> c_int {
        self.attached.fd()
    }

    /// Registers memory; returns its key.
    pub(crate) fn register(&mut self, address: u64, len: u64) -> Result<u32> {
        self.attached.register(address, len)
    }

    /// Ends a registration: afterwards no byte of it is touched.
    pub(crate) fn deregister(&mut self, key: u32) -> Result<()> {
        self.attached.deregister(key)
    }

    /// Asks for blocks, from byte `at` of the volume on.
    pub(crate) fn post(&mut self, order: Order, at: u64, memory: Piece, id: u64) -> Result<()> {
        self.attached.post(Post { id, order, at, memory }.to_words())
    }

    /// Takes ended requests. Where there are fewer than asked for, the descriptor is readable when the next one ends.
    pub(crate) fn take(&mut self, list: &mut [VolumeEvent]) -> usize {
        self.attached.take(list)
    }

    /// As [`Volume::take`], after waiting for the first one; at most `timeout` milliseconds where that is not negative.
    pub(crate) fn wait(&mut self, list: &mut [VolumeEvent], timeout: c_int) -> Result<usize> {
        self.attached.wait(list, timeout)
    }
}
