//! Failures: what a data-path thread logs and does when a network or an engine is gone for good.
use super::{DataPath, ThreadFabric};
use crate::wake::watch;
use rustix::event::epoll;
use std::os::fd::{AsFd, OwnedFd};

impl DataPath {
    /// Reports once that a network is gone for good, and stops watching it: its descriptor would wake for ever. Without
    /// its data-path a host cannot even reset its connections, so then the daemon ends.
    pub(super) fn note_failures(&mut self) {
        for seat in &mut self.hosts {
            if let Some(sentence) = seat.host.base().failure().filter(|_| !seat.engine_failed) {
                seat.engine_failed = true;
                tracing::error!(host = seat.name, "{sentence}: the daemon ends");
                let _ = signal_hook::low_level::raise(signal_hook::consts::SIGTERM);
            }
            let ports = seat.ports.iter().zip(&mut seat.watched).zip(&mut seat.failed);
            for ((port, watched), failed) in ports.filter(|(_, failed)| !**failed) {
                let Some(sentence) = port.failure() else { continue };
                *failed = true;
                tracing::error!(host = seat.name, "{sentence}");
                if let Some(fd) = watched.take() {
                    let _ = epoll::delete(&self.epoll, fd);
                }
            }
        }
        for seat in &mut self.zeronics {
            if let Some(sentence) = seat.failed(&self.epoll) {
                tracing::error!("ZeroNIC: {sentence}: its connections are lost, and there are no others");
            }
        }
        for seat in &mut self.fabrics {
            let failures = seat.fabric.failures();
            if failures.len() > seat.failures {
                tracing::error!(fabric = seat.name, "{}", failures.join("; "));
                seat.failures = failures.len();
                seat.rewatch(&self.epoll);
            }
        }
    }
}

impl ThreadFabric {
    /// Watches only the uplinks that are still there.
    fn rewatch(&mut self, epoll: &OwnedFd) {
        self.fds.iter().for_each(|fd| {
            let _ = epoll::delete(epoll, fd);
        });
        self.fds = self.fabric.wait_fds().unwrap_or_default();
        self.fds.iter().for_each(|fd| {
            let _ = watch(epoll, fd.as_fd(), epoll::EventFlags::empty());
        });
    }
}
