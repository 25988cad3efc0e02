//! Numbers of the messages (IBTA 1.3, table 308).
pub(super) const REQ: u16 = 0x10;
pub(super) const MRA: u16 = 0x11;
pub(super) const REJ: u16 = 0x12;
pub(super) const REP: u16 = 0x13;
pub(super) const RTU: u16 = 0x14;
pub(super) const DREQ: u16 = 0x15;
pub(super) const DREP: u16 = 0x16;
pub(super) const SIDR_REQ: u16 = 0x17;
pub(super) const SIDR_REP: u16 = 0x18;
