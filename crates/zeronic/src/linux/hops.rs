//! Next hops for datagrams. The namespace's kernel has routes and neighbours, and does ARP (RFC 826). So an empty
//! datagram of a UDP socket there is a question: its frame has the hardware addresses, and does not leave.
use crate::transport::NextHop;
use port::Frame;
use rustix::io::Errno;
use rustix::net::{SendFlags, sendto};
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use wire::{EtherType, Mac, Nanos, ethernet, ipv4};

/// An answer that is older is asked for again, and one that is much older is none.
const FRESH_NS: Nanos = 1_000_000_000;
const STALE_NS: Nanos = 5_000_000_000;
/// Two questions for an address are so far apart: the kernel repeats its own.
const AGAIN_NS: Nanos = 100_000_000;
/// Addresses that are kept.
const MOST: usize = 1024;
/// Where questions would go: the discard service (RFC 863).
const DISCARD: u16 = 9;

/// What is known of next hops.
pub(super) struct Hops {
    socket: OwnedFd,
    /// The socket's.
    port: u16,
    known: HashMap<Ipv4Addr, Hop>,
}

struct Hop {
    asked: Nanos,
    /// Hardware addresses, this host's first, and since when.
    answer: Option<([Mac; 2], Nanos)>,
}

impl Hops {
    /// The socket is a UDP socket of the namespace's, bound to this port.
    pub(super) fn new(socket: OwnedFd, port: u16) -> Hops {
        Hops { socket, port, known: HashMap::new() }
    }

    /// Where frames for an address go, as far as it is known.
    pub(super) fn find(&mut self, now: Nanos, remote: Ipv4Addr) -> NextHop {
        let found = self.known.get(&remote);
        let answer = found.and_then(|hop| hop.answer).filter(|(_, since)| now.saturating_sub(*since) < STALE_NS);
        let is_fresh = answer.is_some_and(|(_, since)| now.saturating_sub(since) < FRESH_NS);
        let was_asked = found.is_some_and(|hop| now.saturating_sub(hop.asked) < AGAIN_NS);
        if !is_fresh && !was_asked {
            if self.ask(remote).is_err_and(|error| error == Errno::NETUNREACH) {
                return NextHop::None;
            }
            if self.known.len() >= MOST {
                self.known.clear();
            }
            self.known.insert(remote, Hop { asked: now, answer });
        }
        answer.map_or(NextHop::Asked, |(link, _)| NextHop::Known(link))
    }

    fn ask(&self, remote: Ipv4Addr) -> Result<(), Errno> {
        let to = SocketAddrV4::new(remote, DISCARD);
        sendto(&self.socket, &[], SendFlags::DONTWAIT | SendFlags::NOSIGNAL, &to).map(drop)
    }

    /// A frame of the device's is a question: its addresses are kept, and it is not to leave.
    pub(super) fn takes(&mut self, now: Nanos, frame: &Frame) -> bool {
        let Some((remote, link)) = self.question(frame) else { return false };
        if let Some(hop) = self.known.get_mut(&remote) {
            hop.answer = Some((link, now));
        }
        true
    }

    fn question(&self, frame: &Frame) -> Option<(Ipv4Addr, [Mac; 2])> {
        if self.known.is_empty() {
            return None;
        }
        let bytes = frame.bytes();
        let ip_at = ethernet::payload_at(bytes, EtherType::Ipv4)?;
        let (ip, ip_len) = ipv4::Header::parse(&bytes[ip_at..], frame.len() - ip_at).ok()?;
        let ports = bytes.get(ip_at + ip_len..ip_at + ip_len + 4)?;
        let is_its = ip.protocol == ipv4::UDP && !ip.is_fragment && ports[..2] == self.port.to_be_bytes();
        let header = ethernet::Header::parse(bytes).ok().filter(|_| is_its)?;
        Some((ip.dst, [header.src, header.dst]))
    }
}
