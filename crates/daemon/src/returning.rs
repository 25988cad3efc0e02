//! A process that comes back after an earlier daemon was killed brings the region that it had (docs/RESTART.md).
use context::attach::Hello;
use shm::{Region, handover};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The hello of such a process, and its region. Nothing of any other message, which stays. Where what came is no
/// region, the process attaches as any other.
pub(crate) fn hello(socket: BorrowedFd<'_>) -> Option<(Vec<u8>, Option<Region>)> {
    let message = handover::peek(socket).ok()?;
    serde_json::from_slice::<Hello>(&message).ok().filter(|hello| hello.returns)?;
    let (message, descriptors) = handover::recv(socket).ok()?;
    let (regions, others): (Vec<OwnedFd>, Vec<OwnedFd>) =
        descriptors.into_iter().partition(|descriptor| Region::is_sealed(descriptor.as_fd()));
    let_go(others);
    Some((message, regions.into_iter().next().and_then(|region| Region::from_fd(region).ok())))
}

/// Closing a file that an unknown peer chose may wait for its server: no other thread than this one does.
fn let_go(descriptors: Vec<OwnedFd>) {
    if !descriptors.is_empty() {
        // Without a thread to spare, they are closed here.
        let _ = std::thread::Builder::new().name("closing".into()).spawn(move || drop(descriptors));
    }
}
