//! Work of a data-path thread for ZeroNIC hosts, between two rounds.
use super::host_on_thread::ThreadZeronic;
use crate::datapath::DataPath;
use std::io;
use std::os::fd::OwnedFd;
use zeronic::{NewProgram, ProgramId};

impl DataPath {
    /// Serves a ZeroNIC host from now on.
    pub(crate) fn add_zeronic(&mut self, mut seat: ThreadZeronic) -> io::Result<()> {
        seat.watch(&self.epoll)?;
        self.zeronics.push(seat);
        Ok(())
    }

    /// A program comes to a ZeroNIC host.
    pub(crate) fn attach_zeronic(
        &mut self,
        index: usize,
        program: NewProgram,
        bell: OwnedFd,
    ) -> Result<ProgramId, String> {
        let seat = self.zeronics.get_mut(index).filter(|_| !self.paused);
        seat.ok_or("the ZeroNIC host is gone")?.attach(&self.epoll, program, bell)
    }

    /// A program of a ZeroNIC host is gone.
    pub(crate) fn detach_zeronic(&mut self, index: usize, id: ProgramId) {
        if let Some(seat) = self.zeronics.get_mut(index) {
            seat.detach(&self.epoll, id);
        }
    }
}
