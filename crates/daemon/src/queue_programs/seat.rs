//! Seat: a place for programs with queues, at a ZeroNIC host or a volume.
use crate::domains::Domains;
use context::ProgramQueues;
use context::comm::Answer;
use memory::{Domain, MemoryTable};
use serde::de::DeserializeOwned;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A program.
pub(crate) struct Who {
    pub(crate) pid: u32,
    pub(crate) uid: u32,
    pub(crate) command: String,
}

/// A Linux error number and a sentence.
pub(crate) type Failure = (i32, String);

/// Where a program has its place: a ZeroNIC host, or a volume.
pub(crate) trait Seat: Send {
    /// Registered memory of its programs.
    fn table(&self) -> &Arc<MemoryTable>;
    /// Numbers of programs in that table.
    fn domains(&self) -> &Domains;
    /// The program, whose memory is in this domain, has the place from now on; `watched` is the eventfd that it rings.
    /// Returns the answer to its first message.
    fn attach(&mut self, who: Who, domain: Domain, queues: ProgramQueues, watched: OwnedFd) -> Result<Answer, Failure>;
    /// It is gone: afterwards nothing uses its queues, or begins to use its memory.
    fn detach(&mut self);
    /// How long a copy by a device may take, nanoseconds; `None` where there are no devices.
    fn device_timeout(&self) -> Option<u64> {
        None
    }
}

/// The first message of a library of this version: of one of another, only that is read.
pub(crate) fn hello<T: DeserializeOwned>(message: &[u8], version: Option<u32>, ours: u32) -> Result<T, Failure> {
    let invalid = |sentence: String| (libc::EPROTO, sentence);
    if version != Some(ours) {
        return Err(invalid(format!(
            "libtoe has version {} of these queues and the daemon version {ours}: use the libtoe.so that came with this \
             daemon",
            version.unwrap_or_default()
        )));
    }
    serde_json::from_slice(message).map_err(|e| invalid(format!("this is no hello: {e}")))
}
