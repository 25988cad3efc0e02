//! Errors of an access, and of a registration.
use std::fmt;
use std::io;

/// Why an access was not made. A transport answers with its own status: verbs with a local protection error, a local
/// access error or a remote access error, by the requester (docs/REGISTERED-MEMORY.md has the table).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// No region has this key, or it belongs to another protection domain, or it has been deregistered.
    Key,
    /// The region does not grant the right.
    Rights,
    /// Some bytes lie outside the region.
    Bounds,
    /// An atomic operation on an address that is not a multiple of 8.
    Alignment,
    /// The program no longer has memory there that allows the access, or the program has ended. Bytes before the place
    /// may have been transferred.
    Unmapped,
    /// The memory is a device's: bytes of it are had by [`crate::Lease::start_read`] and [`crate::Lease::start_write`]
    /// only.
    Device,
    /// The device has as much to copy as its queue holds: later.
    Busy,
    /// The device is gone, or did not do its work in time.
    Lost,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::Key => "no region of this protection domain has the key",
            Fault::Rights => "the region does not grant this access",
            Fault::Bounds => "the access leaves the region",
            Fault::Alignment => "an atomic operation needs an address that is a multiple of 8",
            Fault::Unmapped => "the program has no memory there that allows the access",
            Fault::Device => "the memory is a device's, and the access cannot wait for it",
            Fault::Lost => "the device is gone, or did not do its work in time",
            Fault::Busy => "the device has as much to copy as its queue holds",
        })
    }
}

impl std::error::Error for Fault {}

/// Why memory was not registered.
#[derive(Debug)]
pub enum Refusal {
    /// The program asks for something that makes no sense; the sentence names it.
    Invalid(&'static str),
    /// A part of the range is not mapped, or not mapped for the access that is to be granted.
    NotMapped {
        /// The first address of that part.
        address: u64,
    },
    /// A descriptor that the program sent is not what it has to be.
    Descriptor(&'static str),
    /// A limit is reached; the sentence names it.
    Limit(&'static str),
    /// A system call failed.
    System(io::Error),
}

impl Refusal {
    /// The error number that `ibv_reg_mr` sets.
    pub fn errno(&self) -> i32 {
        match self {
            Refusal::Invalid(_) | Refusal::Descriptor(_) => libc::EINVAL,
            Refusal::NotMapped { .. } => libc::EFAULT,
            Refusal::Limit(_) => libc::ENOMEM,
            Refusal::System(error) => error.raw_os_error().unwrap_or(libc::EINVAL),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Invalid(what) => write!(f, "memory cannot be registered: {what}"),
            Refusal::NotMapped { address } => {
                write!(f, "memory cannot be registered: at {address:#x} nothing is mapped that allows the access")
            }
            Refusal::Descriptor(what) => write!(f, "memory cannot be registered: {what}"),
            Refusal::Limit(what) => write!(f, "no more memory can be registered: {what}; deregister some first"),
            Refusal::System(error) => write!(f, "memory cannot be registered: {error}"),
        }
    }
}

impl std::error::Error for Refusal {}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Refusal {
        Refusal::System(error)
    }
}

impl From<rustix::io::Errno> for Refusal {
    fn from(error: rustix::io::Errno) -> Refusal {
        Refusal::System(error.into())
    }
}
