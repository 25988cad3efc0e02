//! The operating system: the library's system calls, and its access to the program's memory.
pub(crate) mod address_space;
pub(crate) mod copy_lock;
pub(crate) mod errno;
pub(crate) mod faults;
pub(crate) mod own_fd;
pub(crate) mod owner;
pub(crate) mod placeholder;
pub(crate) mod real;
pub(crate) mod sharing;
pub(crate) mod sleep_set;
pub(crate) mod user_memory;
pub(crate) mod waking;
pub(crate) mod warn;
