//! Reasons for which a responder refuses a request (NAK codes).
use engine::DropReason;
use verbs::Status;
use wire::roce::NakCode;

/// Why a request is not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// No receive work request is there.
    NotReady,
    /// It is wrong, and the queue pair fails; `own`: how the receive work request that it holds ends, where not by the
    /// flush.
    Nak { code: NakCode, own: Option<Status> },
}

impl Refused {
    const fn peer(code: NakCode) -> Refused {
        Refused::Nak { code, own: None }
    }

    /// Of an unreliable connection, which drops what it does not carry out: as what that counts.
    pub(crate) fn as_drop(self) -> DropReason {
        match self {
            Refused::NotReady => DropReason::NoReceive,
            Refused::Nak { own: Some(Status::LocalLength), .. } => DropReason::MessageIncomplete,
            Refused::Nak { .. } => DropReason::RequestRefused,
        }
    }
}

pub(crate) const INVALID: Refused = Refused::peer(NakCode::InvalidRequest);
pub(crate) const ACCESS: Refused = Refused::peer(NakCode::RemoteAccess);
