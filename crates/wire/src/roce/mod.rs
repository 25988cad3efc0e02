//! RoCEv2: InfiniBand's transport in UDP datagrams (IBTA Annex A17; headers: IBTA 1.3, chapter 9).
//!
//! A packet has an IP header, a UDP header, a base transport header ([`Bth`]), and the extended headers that its opcode
//! implies. Payload, up to three bytes of padding, and a checksum follow, over all that does not change on the way
//! ([`icrc`]).
mod bth;
pub mod cm;
mod extended;
mod icrc;
mod opcode;
mod packed;
mod packet;
mod psn;
mod rnr;
mod train;

pub use bth::{BTH_LEN, Bth, Congestion, DEFAULT_PKEY, Extension, sprayed_port};
pub use extended::{Aeth, AtomicEth, Deth, NakCode, Reth, Syndrome, XrcEth};
pub use icrc::{ICRC_LEN, icrc};
pub use opcode::{Opcode, Operation, Position, Service, Tail};
pub use packed::{Packed, Packing, is_packed};
pub use packet::{
    Datagram, HEADERS_AT, Headers, Inner, MOST_HEADERS, Packet, Path, Payload, behind_payload, destination_qp, finish,
    icrc_is_right, pad, seal,
};
pub use psn::Psn;
pub use rnr::{RNR_CODES, rnr_time};
pub use train::Train;

/// The UDP port to which RoCEv2 packets go (IBTA A17.3.1.1).
// Meets IBTA: A17.3.1-a.
pub const UDP_PORT: u16 = 4791;
/// The queue pair that congestion and connection management reach: the general services interface (IBTA 1.3, 3.5.4).
pub const GSI_QP: u32 = 1;
/// The number that stands for all queue pairs of a multicast group (IBTA 1.3, 10.5.1).
pub const MULTICAST_QP: u32 = 0xff_ffff;
