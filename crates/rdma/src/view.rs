//! Views of a device, for people.
use serde::Serialize;
use smartns::Sender;
use verbs::functions::Report;
use verbs::{QpKind, QpNumber, QpState};

/// A program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProgramView {
    /// Its process.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Its command line.
    pub command: String,
    /// How many queue pairs it has.
    pub qp_count: usize,
    /// The first of them.
    pub qps: Vec<QpView>,
    /// How many identifiers of connection management it has.
    pub id_count: usize,
    /// The first of them.
    pub ids: Vec<IdView>,
    /// What it reports of its functions, where it is an offload engine.
    pub functions: Option<Report>,
}

/// An identifier of connection management.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IdView {
    /// `TCP` or `UDP`: the port space.
    pub space: &'static str,
    /// `LISTEN`, or the state of its connection.
    pub state: &'static str,
    /// Its own address.
    pub local: Option<String>,
    /// Its peer's.
    pub remote: Option<String>,
}

/// A queue pair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QpView {
    /// Its number.
    pub number: QpNumber,
    /// `RC`, `UC`, `UD`, ...
    pub kind: &'static str,
    /// `RESET`, `INIT`, `RTR`, `RTS`, `SQD`, `SQE` or `ERR`.
    pub state: &'static str,
    /// Address of its peer, where it is connected.
    pub peer: Option<String>,
    /// The peer's queue pair.
    pub remote_qp: Option<QpNumber>,
    /// Its congestion control, where the host has any and the queue pair is connected.
    pub congestion: Option<CongestionView>,
}

/// Congestion control of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CongestionView {
    /// The rate at which it may send, bits a second, where that is below the line's.
    pub rate: Option<u64>,
    /// Congestion notifications that it sent to its peer.
    pub cnps_sent: u64,
    /// Those that it received and answered.
    pub cnps_received: u64,
}

impl From<Sender> for CongestionView {
    fn from(sender: Sender) -> CongestionView {
        CongestionView { rate: sender.rate, cnps_sent: sender.sent, cnps_received: sender.notified }
    }
}

pub(crate) fn kind(kind: QpKind) -> &'static str {
    match kind {
        QpKind::Rc => "RC",
        QpKind::Uc => "UC",
        QpKind::Ud => "UD",
        QpKind::RawPacket => "raw",
        QpKind::XrcSend => "XRC send",
        QpKind::XrcReceive => "XRC receive",
    }
}

pub(crate) fn state(state: QpState) -> &'static str {
    match state {
        QpState::Reset => "RESET",
        QpState::Init => "INIT",
        QpState::ReadyToReceive => "RTR",
        QpState::ReadyToSend => "RTS",
        QpState::SendQueueDrained => "SQD",
        QpState::SendQueueError => "SQE",
        QpState::Error => "ERR",
    }
}
