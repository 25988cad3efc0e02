//! Interfaces of the host, as programs find them in lists of interfaces beside the kernel's. Programs that give their
//! peers an address of their own take it from there (docs/POSIX.md).
pub(crate) mod netlink;

use crate::daemon::attach;
use crate::lock;
use crate::system::{real, waking};
use context::IpAddress;
use context::attach::{Interface, Network};
use libc::{c_int, c_uint, sockaddr_in, sockaddr_in6};

/// What names begin with; behind it a number.
const NAME: &str = "opentoe";
/// The number of the first one: far beyond those that the kernel gives. Open MPI keeps 16 bits of them.
const FIRST: c_uint = 0x7e0e;
/// Bytes of a name, with the zero at its end.
pub(crate) const NAME_LEN: usize = libc::IFNAMSIZ;

/// The interface is up, it can broadcast, and something answers there.
pub(crate) const FLAGS: c_int =
    libc::IFF_UP | libc::IFF_BROADCAST | libc::IFF_RUNNING | libc::IFF_MULTICAST | libc::IFF_LOWER_UP;

/// An interface for a port of the host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shown {
    /// Its number, as `if_nametoindex` gives it.
    pub index: c_uint,
    /// Its name, filled up with zeros.
    pub name: [u8; NAME_LEN],
    /// The daemon's description of it.
    pub port: Interface,
}

/// An address with its family's layout: the bytes of a `sockaddr_in` or `sockaddr_in6`, and how many there are.
pub(crate) type SocketAddress = ([u8; size_of::<sockaddr_in6>()], usize);

impl Shown {
    fn new(at: usize, port: Interface) -> Shown {
        let mut name = [0; NAME_LEN];
        let text = format!("{NAME}{at}");
        name[..text.len()].copy_from_slice(text.as_bytes());
        Shown { index: FIRST + at as c_uint, name, port }
    }

    /// The name without the zeros.
    pub(crate) fn short_name(&self) -> &[u8] {
        self.name.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    /// Its networks: the one of IPv4, and that of IPv6, where there is one.
    pub(crate) fn networks(&self) -> impl Iterator<Item = Shape> {
        let Interface { address, prefix_len, ipv6, .. } = self.port;
        [Network { address, prefix_len }].into_iter().chain(ipv6).map(Shape::of)
    }

    /// As `sockaddr` has it, with port 0.
    pub(crate) fn socket_address(ip: IpAddress) -> SocketAddress {
        let mut bytes = [0; size_of::<sockaddr_in6>()];
        let family = if ip.is_v4() { libc::AF_INET } else { libc::AF_INET6 } as u16;
        bytes[..2].copy_from_slice(&family.to_ne_bytes());
        match ip.as_v4() {
            Some(v4) => {
                bytes[4..8].copy_from_slice(&v4.octets());
                (bytes, size_of::<sockaddr_in>())
            }
            None => {
                bytes[8..24].copy_from_slice(&ip.to_bits().to_be_bytes());
                bytes[24..28].copy_from_slice(&ip.zone().to_ne_bytes());
                (bytes, size_of::<sockaddr_in6>())
            }
        }
    }
}

/// An address with what follows from its network.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// The address.
    pub address: IpAddress,
    /// Bits of its network part.
    pub prefix_len: u8,
    /// Those bits, as an address.
    pub mask: IpAddress,
    /// The broadcast address; IPv6 has none.
    pub broadcast: Option<IpAddress>,
}

impl Shape {
    fn of(Network { address, prefix_len }: Network) -> Shape {
        let width = u32::from(address.width());
        let host = width.saturating_sub(u32::from(prefix_len));
        let all = u128::MAX >> (128 - width);
        let below = if host == 0 { 0 } else { u128::MAX >> (128 - host) };
        // An IPv4 address has its mapping's bits in front, which stay.
        let family = address.to_bits() & !all;
        let mask = family | (all & !below);
        let broadcast = address.is_v4().then(|| IpAddress::from_bits(address.to_bits() | below, 0));
        Shape { address, prefix_len, mask: IpAddress::from_bits(mask, 0), broadcast }
    }
}

/// The host's interfaces that the kernel does not have; none where the process does not run on OpenTOE, or the host has
/// no neighbours. Attaches.
pub(crate) fn all() -> Vec<Shown> {
    if !attach::is_enabled() {
        return Vec::new();
    }
    let ports = {
        let Ok(mut lib) = lock::lock() else { return Vec::new() };
        // A filter of the program's own may forbid what is needed.
        if !waking::is_confined() {
            attach::if_possible(&mut lib);
        }
        lib.context().map(|context| context.welcome.interfaces.clone()).unwrap_or_default()
    };
    let shown = ports.into_iter().enumerate().filter(|(_, port)| !is_kernels(port.address));
    shown.map(|(at, port)| Shown::new(at, port)).collect()
}

/// The one of a name.
pub(crate) fn named(name: &[u8]) -> Option<Shown> {
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    // Most names are others: nobody attaches for them.
    if !name.starts_with(NAME.as_bytes()) {
        return None;
    }
    all().into_iter().find(|shown| shown.short_name() == name)
}

/// The one of a number.
pub(crate) fn numbered(index: c_uint) -> Option<Shown> {
    if index < FIRST {
        return None;
    }
    all().into_iter().find(|shown| shown.index == index)
}

/// The kernel has the address as well: ports of AF_XDP may share one with their device. Then its own list shows it.
fn is_kernels(ip: IpAddress) -> bool {
    let (address, len) = Shown::socket_address(ip);
    let family = if ip.is_v4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: a socket of this function's own, and a local address.
    unsafe {
        let fd = real::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return false;
        }
        let bound = real::bind(fd, address.as_ptr().cast(), len as u32) == 0;
        real::close(fd);
        bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(address: &str, prefix_len: u8) -> Shown {
        let address = address.parse().unwrap();
        let ipv6 = Some(Network { address: "fd00::5".parse().unwrap(), prefix_len: 64 });
        Shown::new(3, Interface { address, prefix_len, ipv6, mac: [2, 0, 0, 0, 0, 1], mtu: 1500 })
    }

    #[test]
    fn masks_and_broadcast_addresses_follow_from_the_length() {
        for (address, len, mask, broadcast) in [
            ("10.1.2.3", 24, "255.255.255.0", "10.1.2.255"),
            ("10.1.2.3", 32, "255.255.255.255", "10.1.2.3"),
            ("10.1.2.3", 0, "0.0.0.0", "255.255.255.255"),
        ] {
            let [v4, v6] = shown(address, len).networks().collect::<Vec<_>>()[..] else { panic!("two networks") };
            let wanted = (mask.parse().unwrap(), Some(broadcast.parse().unwrap()));
            assert_eq!((v4.mask, v4.broadcast), wanted, "{address}/{len}");
            assert_eq!((v6.mask, v6.broadcast), ("ffff:ffff:ffff:ffff::".parse().unwrap(), None));
        }
        let one = shown("10.1.2.3", 24);
        assert_eq!((one.short_name(), one.index), (&b"opentoe3"[..], FIRST + 3));
    }

    #[test]
    fn nothing_is_shown_without_a_daemon() {
        assert!(all().is_empty() && named(b"opentoe0\0").is_none() && numbered(FIRST).is_none());
    }
}
