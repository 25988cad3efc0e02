//! The operating system: the library's system calls, and its access to the program's memory.
pub(crate) mod errno;
pub(crate) mod exclusive;
pub(crate) mod faults;
pub(crate) mod own_fd;
pub(crate) mod program;
pub(crate) mod real;
pub(crate) mod room;
pub(crate) mod sharing;
pub(crate) mod sleep_set;
pub(crate) mod stand_in;
pub(crate) mod waking;
pub(crate) mod warn;
