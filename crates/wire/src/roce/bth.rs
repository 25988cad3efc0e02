//! The base transport header (IBTA 1.3, 9.2).
use super::opcode::Opcode;
use super::psn::Psn;
use crate::{Malformed, be16, be32};

/// Bytes of the header.
pub const BTH_LEN: usize = 12;
/// The default partition, full member (IBTA 1.3, 10.9.1.2): the only one of RoCE here.
pub const DEFAULT_PKEY: u16 = 0xffff;

/// Congestion marks of the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Congestion {
    /// The packet met congestion.
    pub forward: bool,
    /// Packets the other way met congestion.
    pub backward: bool,
}

/// Four of the seven reserved bits beside the acknowledge-request bit, which others send as zero and ignore (IBTA 1.3,
/// 9.2.7; docs/RDMA.md, "Loss" and "Spraying").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extension(u8);

impl Extension {
    /// Nothing.
    pub const NONE: Extension = Extension(0);

    /// The sender understands selective acknowledgements, and its packets with payload take 2^`spray` paths in turn, by
    /// their UDP source ports ([`sprayed_port`]); at most 7.
    pub const fn selective(spray: u8) -> Extension {
        Extension(1 | (spray & 7) << 1)
    }

    /// The sender understands selective acknowledgements.
    #[inline]
    pub fn is_selective(self) -> bool {
        self.0 & 1 != 0
    }

    /// The logarithm of its packets' paths.
    #[inline]
    pub fn spray(self) -> u8 {
        self.0 >> 1
    }
}

/// The base transport header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bth {
    /// What the packet is.
    pub opcode: Opcode,
    /// The receiver's completion is to be solicited.
    pub solicited: bool,
    /// Bytes of padding after the payload, at most 3.
    pub pad: u8,
    /// The partition.
    pub pkey: u16,
    /// Congestion met.
    pub congestion: Congestion,
    /// The queue pair to which it goes.
    pub qp: u32,
    /// The responder is to acknowledge at once.
    pub ack_request: bool,
    /// What the sender does beyond the architecture.
    pub extension: Extension,
    /// Its sequence number.
    pub psn: Psn,
}

impl Bth {
    /// A header without any of the flags.
    #[inline]
    pub const fn new(opcode: Opcode, qp: u32, psn: Psn) -> Bth {
        Bth {
            opcode,
            solicited: false,
            pad: 0,
            pkey: DEFAULT_PKEY,
            congestion: Congestion { forward: false, backward: false },
            qp,
            ack_request: false,
            extension: Extension::NONE,
            psn,
        }
    }

    /// Reads the header. Opcodes that are not of RC, UC, UD or congestion notification, and other versions than 0, are
    /// refused.
    // Meets IBTA: 9.2-a.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Bth, Malformed> {
        let Some(bytes) = bytes.first_chunk::<BTH_LEN>() else { return Err(Malformed::Truncated) };
        let opcode = Opcode::from_number(bytes[0]).ok_or(Malformed::Field)?;
        if bytes[1] & 0xf != 0 {
            return Err(Malformed::Field);
        }
        Ok(Bth {
            opcode,
            solicited: bytes[1] & 0x80 != 0,
            pad: bytes[1] >> 4 & 3,
            pkey: be16(bytes, 2),
            congestion: Congestion { forward: bytes[4] & 0x80 != 0, backward: bytes[4] & 0x40 != 0 },
            qp: be32(bytes, 4) & 0xff_ffff,
            ack_request: bytes[8] & 0x80 != 0,
            extension: Extension(bytes[8] & 0xf),
            psn: Psn::new(be32(bytes, 8)),
        })
    }

    /// Writes the header into the first [`BTH_LEN`] bytes.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        let flags = u8::from(self.solicited) << 7 | 1 << 6 | (self.pad & 3) << 4;
        let congestion = u32::from(self.congestion.forward) << 31 | u32::from(self.congestion.backward) << 30;
        let psn = u32::from(self.ack_request) << 31 | u32::from(self.extension.0) << 24 | self.psn.bits();
        (bytes[0], bytes[1]) = (self.opcode.number(), flags);
        bytes[2..4].copy_from_slice(&self.pkey.to_be_bytes());
        bytes[4..8].copy_from_slice(&(congestion | self.qp & 0xff_ffff).to_be_bytes());
        bytes[8..12].copy_from_slice(&psn.to_be_bytes());
    }
}

/// The UDP source port of packet `psn` of a queue pair that sprays: of the queue pair's own port, the lowest `spray`
/// bits are replaced. So networks that choose a path by addresses and ports send packets by 2^`spray` paths in turn.
#[inline]
pub fn sprayed_port(own: u16, spray: u8, psn: Psn) -> u16 {
    let path_bits = (1 << spray) - 1;
    own & !path_bits | psn.bits() as u16 & path_bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back() {
        let mut header = Bth::new(Opcode::UD_SEND, 0x12_3456, Psn::new(0xfe_dcba));
        for flags in 0..32u8 {
            let bit = |at: u8| flags >> at & 1 == 1;
            (header.solicited, header.ack_request) = (bit(0), bit(1));
            header.extension = if bit(2) { Extension::selective(flags & 7) } else { Extension::NONE };
            header.congestion = Congestion { forward: bit(3), backward: bit(4) };
            header.pad = flags & 3;
            let mut bytes = [0; BTH_LEN];
            header.emit(&mut bytes);
            assert_eq!(Bth::parse(&bytes), Ok(header));
        }
    }

    // Checks IBTA: 9.2-a.
    #[test]
    fn other_versions_and_opcodes_are_refused() {
        let mut bytes = [0; BTH_LEN];
        Bth::new(Opcode::ACKNOWLEDGE, 1, Psn::new(2)).emit(&mut bytes);
        assert_eq!(Bth::parse(&bytes[..11]), Err(Malformed::Truncated));
        bytes[1] |= 1;
        assert_eq!(Bth::parse(&bytes), Err(Malformed::Field));
        (bytes[0], bytes[1]) = (0x15, 0);
        assert_eq!(Bth::parse(&bytes), Err(Malformed::Field));
    }
}
