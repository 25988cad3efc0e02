//! ARP for IPv4 over Ethernet (RFC 826).
use crate::{Mac, Malformed, be16, ip_at};
use std::net::Ipv4Addr;

/// Bytes of an ARP packet.
pub const LEN: usize = 28;

/// Request or reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Request for the station of the target address.
    Request,
    /// The sender has.
    Reply,
}

/// An ARP packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Request or reply.
    pub operation: Operation,
    /// Sender's hardware address.
    pub sender_mac: Mac,
    /// Sender's IPv4 address.
    pub sender_ip: Ipv4Addr,
    /// Target's hardware address; zero in a request.
    pub target_mac: Mac,
    /// Target's IPv4 address.
    pub target_ip: Ipv4Addr,
}

impl Packet {
    /// Reads a packet; bytes after it (Ethernet padding) are ignored.
    pub fn parse(bytes: &[u8]) -> Result<Packet, Malformed> {
        if bytes.len() < LEN {
            return Err(Malformed::Truncated);
        }
        let (hardware, protocol) = (be16(bytes, 0), be16(bytes, 2));
        if hardware != 1 || protocol != 0x0800 || bytes[4] != 6 || bytes[5] != 4 {
            return Err(Malformed::Field);
        }
        let operation = match be16(bytes, 6) {
            1 => Operation::Request,
            2 => Operation::Reply,
            _ => return Err(Malformed::Field),
        };
        let mac = |at: usize| Mac(bytes[at..at + 6].try_into().expect("six bytes"));
        Ok(Packet {
            operation,
            sender_mac: mac(8),
            sender_ip: ip_at(bytes, 14),
            target_mac: mac(18),
            target_ip: ip_at(bytes, 24),
        })
    }

    /// Writes the packet into the first [`LEN`] bytes.
    pub fn emit(&self, bytes: &mut [u8]) {
        bytes[0..6].copy_from_slice(&[0, 1, 8, 0, 6, 4]);
        let operation: u16 = match self.operation {
            Operation::Request => 1,
            Operation::Reply => 2,
        };
        bytes[6..8].copy_from_slice(&operation.to_be_bytes());
        bytes[8..14].copy_from_slice(&self.sender_mac.0);
        bytes[14..18].copy_from_slice(&self.sender_ip.octets());
        bytes[18..24].copy_from_slice(&self.target_mac.0);
        bytes[24..28].copy_from_slice(&self.target_ip.octets());
    }
}
