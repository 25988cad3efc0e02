//! Why a control request was not carried out.
use memory::{Fault, Refusal};
use std::fmt;
use verbs::control::Answer;

/// An error number as verbs return it, and a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// As verbs return it.
    pub errno: i32,
    /// What, why, and what to do.
    pub why: String,
}

impl Failure {
    /// With any error number.
    pub fn new(errno: i32, why: impl Into<String>) -> Failure {
        Failure { errno, why: why.into() }
    }

    /// EINVAL: the request makes no sense, or names what the program does not have.
    pub fn invalid(why: impl Into<String>) -> Failure {
        Failure::new(libc::EINVAL, why)
    }

    /// EBUSY: something of the program still uses the object.
    pub fn busy(why: impl Into<String>) -> Failure {
        Failure::new(libc::EBUSY, why)
    }

    /// ENOMEM: a limit is reached.
    pub fn limit(why: impl Into<String>) -> Failure {
        Failure::new(libc::ENOMEM, why)
    }

    /// EOPNOTSUPP: this device does not offer it.
    pub fn unsupported(why: impl Into<String>) -> Failure {
        Failure::new(libc::EOPNOTSUPP, why)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for Failure {}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure::new(refusal.errno(), refusal.to_string())
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Failure {
        Failure::invalid(fault.to_string())
    }
}

impl From<Failure> for Answer {
    fn from(failure: Failure) -> Answer {
        Answer::Failed { errno: failure.errno, why: failure.why }
    }
}
