//! `toed --takeover`: a new daemon goes on with the hosts of the one that runs, connections and all. docs/TAKEOVER.md
//! is the page; here are the messages between the two, over a connection to the attach socket.
mod give;
mod take;

pub(crate) use give::{Giving, give};
pub(crate) use take::{TakenHosts, Taking};

use engine::Nanos;
use port::Port;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use shm::{ByteRing, PAGE, Region, handover};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use wire::Mac;

/// Version of all that is handed over. A daemon refuses another one's.
pub(crate) const VERSION: u32 = 14;
/// How long either waits for the other. Past it, the old daemon goes on.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The new daemon's first message.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Wish {
    /// [`VERSION`].
    pub(crate) takeover: u32,
}

/// What follows. Where descriptors come with a message, they are named.
#[derive(Debug, Serialize, Deserialize)]
enum Message {
    /// Old: it can be taken over; its clock, and the 0 of that on the system's monotonic clock. So many
    /// [`Message::Device`] follow.
    Ready { now: Nanos, origin: Nanos, devices: usize },
    /// Old: a device, with its descriptors: whose, and which of its ports or uplinks it is.
    Device { owner: Owner, at: usize, name: String, mac: Mac },
    /// New: it has made everything; stop now.
    Stop,
    /// Old: it has stopped. With the states of its hosts, of so many bytes, and its two listening sockets. So many
    /// [`Message::Context`] follow.
    Stopped { bytes: usize, contexts: usize },
    /// Old: a context, with region, both doorbells, and the connection to its process where that lives.
    Context { host: String, context: u32 },
    /// New: it goes on; the old daemon ends.
    Taken,
    /// Either: it is not to be, for this reason. The old daemon goes on.
    Refused(String),
}

/// The owner of a device.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Owner {
    /// A host: it is one of its ports.
    Host(String),
    /// A fabric: it is one of its uplinks.
    Fabric(String),
}

/// A device of the old daemon.
#[derive(Debug)]
pub(crate) struct Device {
    /// As [`port::Handover`] names it.
    pub(crate) name: String,
    /// The hardware address of what is behind it.
    pub(crate) mac: Mac,
    /// None where it was deleted.
    pub(crate) descriptors: Vec<OwnedFd>,
}

impl Device {
    /// The device of a port, where it has one.
    pub(crate) fn of(port: &dyn Port) -> io::Result<Option<Device>> {
        let Some(handover) = port.handover() else { return Ok(None) };
        let descriptors = handover.descriptors.iter().map(BorrowedFd::try_clone_to_owned).collect::<io::Result<_>>()?;
        Ok(Some(Device { name: handover.device, mac: port.mac(), descriptors }))
    }
}

/// The devices of one owner, by place among its ports or uplinks.
pub(crate) type Devices = HashMap<usize, Device>;

/// All devices that the old daemon passes on.
pub(crate) type AllDevices = HashMap<Owner, Devices>;

/// The connection between the two.
struct Line(OwnedFd);

impl Line {
    fn new(socket: OwnedFd) -> Result<Line, String> {
        for which in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&socket, which, Some(TIMEOUT)).map_err(|e| e.to_string())?;
        }
        Ok(Line(socket))
    }

    fn send(&self, word: &Message, fds: &[BorrowedFd<'_>]) -> Result<(), String> {
        let text = serde_json::to_vec(word).map_err(|e| e.to_string())?;
        handover::send(self.0.as_fd(), &text, fds).map_err(|e| format!("the other daemon is gone: {e}"))
    }

    fn recv(&self) -> Result<(Message, Vec<OwnedFd>), String> {
        let silent = |e: std::io::Error| format!("the other daemon does not answer: {e}");
        let (text, fds) = handover::recv(self.0.as_fd()).map_err(silent)?;
        if text.is_empty() {
            return Err("the other daemon is gone".into());
        }
        match read(&text)? {
            Message::Refused(sentence) => Err(sentence),
            word => Ok((word, fds)),
        }
    }
}

/// Refuses a daemon that may not take over, where it still listens.
pub(crate) fn refuse(socket: &OwnedFd, sentence: String) {
    tracing::warn!("a takeover was refused: {sentence}");
    let text = serde_json::to_vec(&Message::Refused(sentence)).unwrap_or_default();
    let _ = handover::send(socket.as_fd(), &text, &[]);
}

fn read<T: DeserializeOwned>(text: &[u8]) -> Result<T, String> {
    serde_json::from_slice(text).map_err(|e| format!("the other daemon's message is not of this protocol: {e}"))
}

fn strange() -> String {
    "the other daemon sent a message out of order".into()
}

/// A text of any length, in shared memory.
fn in_memory(text: &[u8]) -> Result<Arc<Region>, String> {
    let failed = |e: std::io::Error| format!("no memory for the hosts' states: {e}");
    let size = text.len().max(PAGE).next_power_of_two();
    let region = Arc::new(Region::create("takeover", size).map_err(failed)?);
    ByteRing::map(&region, 0, size).map_err(failed)?.write(0, text);
    Ok(region)
}

fn from_memory(fd: OwnedFd, len: usize) -> Result<Vec<u8>, String> {
    let failed = |e: std::io::Error| format!("the hosts' states cannot be read: {e}");
    let region = Arc::new(Region::from_fd(fd).map_err(failed)?);
    let byte_ring = ByteRing::map(&region, 0, region.len()).map_err(failed)?;
    if len > region.len() {
        return Err(strange());
    }
    let mut text = vec![0; len];
    byte_ring.read(0, &mut text);
    Ok(text)
}
