//! What programs have posted and is not sent yet. With hardware it is on its way, so programs destroy what it names.
use crate::device::{Device, user};
use crate::failure::Failure;
use crate::user_context::ProgramId;
use verbs::QpNumber;

impl Device {
    /// Datagrams of the program were posted and are not sent yet.
    ///
    /// # Errors
    /// ENODEV: the program is not attached any more.
    pub fn has_datagrams(&mut self, id: ProgramId) -> Result<bool, Failure> {
        Ok(user(&mut self.users, id)?.shard.has_datagrams())
    }

    /// The program is about to destroy a queue pair. Returns whether something that was posted waits for its quantum.
    ///
    /// # Errors
    /// ENODEV: the program is not attached any more.
    pub fn await_quantum(&mut self, id: ProgramId, number: QpNumber) -> Result<bool, Failure> {
        Ok(user(&mut self.users, id)?.shard.await_quantum(number))
    }

    /// That quantum has not come yet.
    ///
    /// # Errors
    /// ENODEV: the program is not attached any more.
    pub fn awaits_quantum(&mut self, id: ProgramId, number: QpNumber) -> Result<bool, Failure> {
        Ok(user(&mut self.users, id)?.shard.awaits_quantum(number))
    }
}
