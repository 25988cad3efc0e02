//! Host programs: they open a port of an offload engine, and register DMA regions.
use crate::client::ask_on;
use crate::protocol::{Answer, Request};
use memory::{Registrar, Rights};
use shm::handover;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// A program's tie to an offload engine. Its DMA regions are gone with it.
pub struct Host {
    socket: OwnedFd,
    registrar: Registrar,
    handed_over: bool,
}

/// What offload functions may do with a DMA region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum For {
    /// Read it.
    Reading,
    /// Read it, write it, and do atomics.
    All,
}

impl Host {
    /// Opens a port: clients that connect to it reach this program's regions, and no other's.
    ///
    /// # Errors
    /// There is no engine, or it refuses: EADDRINUSE, where another program has the port.
    pub fn open(socket: &Path, port: u16) -> io::Result<Host> {
        let host = Host { socket: handover::connect(socket)?, registrar: Registrar::new(), handed_over: false };
        host.ask(&Request::Open { port }, &[])?;
        Ok(host)
    }

    /// Registers memory of this process.
    ///
    /// # Errors
    /// It is not mapped (EFAULT), is in a region already (EEXIST), or there are too many.
    pub fn register(&mut self, address: u64, len: u64, what: For) -> io::Result<()> {
        let remote = match what {
            For::Reading => Rights::REMOTE_READ,
            For::All => Rights::ALL,
        };
        let prepared = self.registrar.prepare(address, len, remote);
        let prepared = prepared.map_err(|refusal| io::Error::from_raw_os_error(refusal.errno()))?;
        if !self.handed_over {
            let space = self.registrar.address_space();
            let space = space.map_err(|refusal| io::Error::from_raw_os_error(refusal.errno()))?;
            self.ask(&Request::Space, &[space.as_fd()])?;
            self.handed_over = true;
        }
        let files: Vec<BorrowedFd<'_>> = prepared.files.iter().map(AsFd::as_fd).collect();
        self.ask(&Request::Region(prepared.description), &files)
    }

    fn ask(&self, request: &Request, files: &[BorrowedFd<'_>]) -> io::Result<()> {
        match ask_on(&self.socket, request, files)? {
            Answer::Refused { errno, .. } => Err(io::Error::from_raw_os_error(errno)),
            _ => Ok(()),
        }
    }
}
