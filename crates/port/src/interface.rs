//! The kernel's network interfaces: addresses, state, and what they leave to hardware. No outside program is run.
//!
//! Everything acts in the calling thread's network namespace; see [`crate::Netns::run`].
use crate::netlink::{AddressMessage, LinkMessage, RouteMessage, request};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use wire::{IpAddress, Mac};

/// An interface of the kernel, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface(String);

/// What the kernel leaves to an interface's hardware and so does not do in software. All of it must be off on the peer
/// of an AF_XDP port on a veth pair: its frames arrive without passing hardware.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offloads {
    /// Transport checksums of frames sent.
    pub tx_checksum: bool,
    /// Cutting of TCP super-segments sent (TSO).
    pub tso: bool,
    /// Cutting of super-segments late, in software (GSO).
    pub gso: bool,
    /// Merging of segments received (GRO).
    pub gro: bool,
}

impl Interface {
    /// The interface with this name, which exists.
    pub fn named(name: &str) -> Result<Interface, String> {
        let interface = Interface::unchecked(name)?;
        interface.index()?;
        Ok(interface)
    }

    fn unchecked(name: &str) -> Result<Interface, String> {
        if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains(['/', '\0', ' ']) {
            return Err(format!("`{}` is no name for an interface: 1 to 15 characters", name.escape_debug()));
        }
        Ok(Interface(name.into()))
    }

    /// Makes a veth pair; the second end goes to `peer_netns` where given.
    pub fn create_veth(name: &str, peer: &str, peer_netns: Option<BorrowedFd<'_>>) -> Result<Interface, String> {
        let interface = Interface::unchecked(name)?;
        Interface::unchecked(peer)?;
        let message = LinkMessage::veth(name, peer, peer_netns.map(|netns| netns.as_raw_fd()));
        request(&message).map_err(|e| format!("cannot make the veth pair {name}, {peer}: {e}"))?;
        Ok(interface)
    }

    /// Deletes the interface; the other end of a veth pair goes with it.
    pub fn delete(&self) -> Result<(), String> {
        request(&LinkMessage::delete(self.index()?)).map_err(|e| format!("cannot delete {}: {e}", self.0))
    }

    /// Moves the interface to another namespace.
    pub fn move_to(&self, netns: impl AsFd) -> Result<(), String> {
        request(&LinkMessage::move_to(self.index()?, netns.as_fd().as_raw_fd()))
            .map_err(|e| format!("cannot move {}: {e}", self.0))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// The kernel's number for it.
    pub fn index(&self) -> Result<u32, String> {
        let mut request = self.request();
        self.ioctl(libc::SIOCGIFINDEX, &mut request).map_err(|e| format!("no interface {}: {e}", self.0))?;
        // SAFETY: the kernel filled this variant.
        Ok(unsafe { request.ifr_ifru.ifru_ifindex } as u32)
    }

    /// Its hardware address.
    pub fn mac(&self) -> Result<Mac, String> {
        let mut request = self.request();
        self.ioctl(libc::SIOCGIFHWADDR, &mut request).map_err(|e| self.failed("read the address of", e))?;
        // SAFETY: the kernel filled this variant.
        let data = unsafe { request.ifr_ifru.ifru_hwaddr.sa_data };
        Ok(Mac(std::array::from_fn(|i| data[i] as u8)))
    }

    /// Sets its hardware address.
    pub fn set_mac(&self, mac: Mac) -> Result<(), String> {
        let mut request = self.request();
        let mut data = [0; 14];
        data.iter_mut().zip(mac.0).for_each(|(to, from)| *to = from as libc::c_char);
        request.ifr_ifru.ifru_hwaddr = libc::sockaddr { sa_family: libc::ARPHRD_ETHER, sa_data: data };
        self.ioctl(libc::SIOCSIFHWADDR, &mut request).map_err(|e| self.failed(&format!("set the address {mac} of"), e))
    }

    /// Most bytes of an IP packet.
    pub fn mtu(&self) -> Result<u16, String> {
        let mut request = self.request();
        self.ioctl(libc::SIOCGIFMTU, &mut request).map_err(|e| self.failed("read the MTU of", e))?;
        // SAFETY: the kernel filled this variant.
        Ok(unsafe { request.ifr_ifru.ifru_mtu }.clamp(0, u16::MAX.into()) as u16)
    }

    /// Sets the MTU, where it is not that already.
    pub fn set_mtu(&self, mtu: u16) -> Result<(), String> {
        if self.mtu()? == mtu {
            return Ok(());
        }
        let mut request = self.request();
        request.ifr_ifru.ifru_mtu = mtu.into();
        self.ioctl(libc::SIOCSIFMTU, &mut request).map_err(|e| self.failed(&format!("set the MTU to {mtu} of"), e))
    }

    /// Sets how many frames may wait in its queue.
    pub fn set_queue_len(&self, frames: u32) -> Result<(), String> {
        let mut request = self.request();
        request.ifr_ifru.ifru_metric = frames as libc::c_int;
        self.ioctl(libc::SIOCSIFTXQLEN, &mut request).map_err(|e| self.failed("set the queue length of", e))
    }

    /// Whether it is up.
    pub fn is_up(&self) -> Result<bool, String> {
        let flags = self.flags().map_err(|error| self.failed("read the state of", error))?;
        Ok(flags & libc::IFF_UP != 0)
    }

    /// Switches it on, where it is not already.
    pub fn set_up(&self) -> Result<(), String> {
        let remedy = || format!("ip link set {} up", self.0);
        self.set_flags(libc::IFF_UP, true).map_err(|error| self.refused("switch on", error, remedy))
    }

    /// Switches it off.
    pub fn set_down(&self) -> Result<(), String> {
        self.set_flags(libc::IFF_UP, false).map_err(|error| self.failed("switch off", error))
    }

    /// Has it receive frames for any station, until the returned descriptor is closed.
    pub fn promiscuous(&self) -> Result<OwnedFd, String> {
        self.membership(libc::PACKET_MR_PROMISC)
    }

    /// Has it receive frames for all groups of stations, until the returned descriptor is closed.
    pub fn all_groups(&self) -> Result<OwnedFd, String> {
        self.membership(libc::PACKET_MR_ALLMULTI)
    }

    fn membership(&self, kind: libc::c_int) -> Result<OwnedFd, String> {
        let membership = libc::packet_mreq {
            mr_ifindex: self.index()? as libc::c_int,
            mr_type: kind as libc::c_ushort,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        let failed = |e| self.failed("receive frames for other stations on", e);
        // A packet socket of no protocol: it only holds the membership (packet(7)).
        let socket = socket(libc::AF_PACKET, libc::SOCK_RAW).map_err(failed)?;
        let (at, len) = ((&raw const membership).cast(), size_of_val(&membership) as libc::socklen_t);
        let (level, name) = (libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP);
        // SAFETY: reads a whole packet_mreq, with its size.
        let done = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, at, len) };
        if done == 0 { Ok(socket) } else { Err(failed(io::Error::last_os_error())) }
    }

    /// Sets its IPv4 address, or adds an IPv6 address, with the length of the network's prefix, in bits. Does nothing
    /// where it has that already: a device which was made for this user needs no privilege.
    pub fn set_address(&self, address: impl Into<IpAddress>, prefix: u8) -> Result<(), String> {
        let address = address.into();
        if self.has_address(address, prefix) {
            return Ok(());
        }
        match address.ip() {
            IpAddr::V4(address) => self.set_ipv4(address, prefix),
            IpAddr::V6(address) => self.add_ipv6(address, prefix),
        }
        .map_err(|error| {
            let remedy = || format!("ip addr add {address}/{prefix} dev {}", self.0);
            self.refused(&format!("give {address}/{prefix} to"), error, remedy)
        })
    }

    /// Whether it has this address: of IPv4, as its first one.
    fn has_address(&self, address: IpAddress, prefix: u8) -> bool {
        match address.ip() {
            IpAddr::V4(address) => {
                let first = self.ipv4(libc::SIOCGIFADDR).ok();
                first == Some(address) && self.ipv4(libc::SIOCGIFNETMASK).ok() == Some(mask(prefix))
            }
            // Each line: the address, the interface's number, the prefix's length, scope and flags, all hexadecimal,
            // and the name.
            IpAddr::V6(address) => {
                let all = std::fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap_or_default();
                let wanted = (format!("{:032x}", address.to_bits()), format!("{prefix:02x}"));
                all.lines().any(|line| {
                    let words: Vec<&str> = line.split_whitespace().collect();
                    matches!(words[..], [address, _, prefix, _, _, name]
                        if address == wanted.0 && prefix == wanted.1 && name == self.0)
                })
            }
        }
    }

    /// An address that the kernel has for it, by SIOCGIFADDR or SIOCGIFNETMASK.
    fn ipv4(&self, code: libc::c_ulong) -> io::Result<Ipv4Addr> {
        let mut request = self.request();
        self.ioctl(code, &mut request)?;
        // SAFETY: the kernel filled this variant.
        let data = unsafe { request.ifr_ifru.ifru_addr.sa_data };
        // After the port, in sockaddr_in.
        Ok(Ipv4Addr::from([2, 3, 4, 5].map(|at| data[at] as u8)))
    }

    /// The address may be used at once: no other station is on the link that could have it (RFC 4862 section 5.4).
    fn add_ipv6(&self, address: Ipv6Addr, prefix: u8) -> io::Result<()> {
        // Where it is switched off for new devices, it is switched on for this one.
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{}/disable_ipv6", self.0), "0");
        let index = self.index().map_err(io::Error::other)?;
        request(&AddressMessage::add(index, address, prefix))
    }

    fn set_ipv4(&self, address: Ipv4Addr, prefix: u8) -> io::Result<()> {
        for (code, value) in [(libc::SIOCSIFADDR, address), (libc::SIOCSIFNETMASK, mask(prefix))] {
            let mut request = self.request();
            request.ifr_ifru.ifru_addr = socket_address(value);
            self.ioctl(code, &mut request)?;
        }
        Ok(())
    }

    /// Adds a route to `network`/`prefix` through this interface, by a gateway where given.
    pub fn add_route(&self, network: Ipv4Addr, prefix: u8, gateway: Option<Ipv4Addr>) -> Result<(), String> {
        let message = RouteMessage::add(self.index()?, network, prefix, gateway);
        request(&message).map_err(|e| self.failed(&format!("route {network}/{prefix} through"), e))
    }

    /// What is left to its hardware.
    pub fn offloads(&self) -> Result<Offloads, String> {
        Ok(Offloads {
            tx_checksum: self.ethtool_get(ETHTOOL_GTXCSUM)?,
            tso: self.ethtool_get(ETHTOOL_GTSO)?,
            gso: self.ethtool_get(ETHTOOL_GGSO)?,
            gro: self.ethtool_get(ETHTOOL_GGRO)?,
        })
    }

    /// Sets what is left to its hardware (`ethtool -K`).
    pub fn set_offloads(&self, offloads: Offloads) -> Result<(), String> {
        // Segmentation needs checksums: off in this order, on in the reverse one, so that no step is refused.
        let mut steps = [
            (ETHTOOL_STSO, offloads.tso),
            (ETHTOOL_SGSO, offloads.gso),
            (ETHTOOL_SGRO, offloads.gro),
            (ETHTOOL_STXCSUM, offloads.tx_checksum),
        ];
        if offloads.tx_checksum {
            steps.reverse();
        }
        for (command, on) in steps {
            self.ethtool(command, on).map_err(|e| self.failed("change the offloads of", e))?;
        }
        Ok(())
    }

    fn ethtool_get(&self, command: u32) -> Result<bool, String> {
        self.ethtool(command, false).map_err(|e| self.failed("read the offloads of", e))
    }

    /// One command of the kernel's ethtool interface with a value; returns the value.
    fn ethtool(&self, command: u32, on: bool) -> io::Result<bool> {
        // struct ethtool_value of linux/ethtool.h.
        let mut value = [command, u32::from(on)];
        let mut request = self.request();
        request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
        self.ioctl(libc::SIOCETHTOOL, &mut request)?;
        Ok(value[1] != 0)
    }

    fn flags(&self) -> io::Result<libc::c_int> {
        let mut request = self.request();
        self.ioctl(libc::SIOCGIFFLAGS, &mut request)?;
        // SAFETY: the kernel filled this variant.
        Ok(unsafe { request.ifr_ifru.ifru_flags }.into())
    }

    fn set_flags(&self, flags: libc::c_int, on: bool) -> io::Result<()> {
        let before = self.flags()?;
        let after = if on { before | flags } else { before & !flags };
        if before == after {
            return Ok(());
        }
        let mut request = self.request();
        request.ifr_ifru.ifru_flags = after as libc::c_short;
        self.ioctl(libc::SIOCSIFFLAGS, &mut request)
    }

    fn request(&self) -> libc::ifreq {
        // SAFETY: ifreq is plain data for which zero is valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(self.0.bytes()) {
            *to = from as libc::c_char;
        }
        request
    }

    fn ioctl(&self, code: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
        // Interface requests go through any socket of the namespace.
        let socket = socket(libc::AF_INET, libc::SOCK_DGRAM)?;
        // SAFETY: the request is a whole ifreq whose pointer, where the code uses one, is to a local of the caller's.
        let done = unsafe { libc::ioctl(socket.as_raw_fd(), code as _, std::ptr::from_mut(request)) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The same of what root may do, by this command.
    fn refused(&self, what: &str, error: io::Error, remedy: impl FnOnce() -> String) -> String {
        let is_right = matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES));
        let sentence = self.failed(what, error);
        if is_right { format!("{sentence}; root may: {}", remedy()) } else { sentence }
    }

    fn failed(&self, what: &str, error: io::Error) -> String {
        format!("cannot {what} {}: {error}", self.0)
    }
}

impl Offloads {
    /// Nothing is left to hardware.
    pub const NONE: Offloads = Offloads { tx_checksum: false, tso: false, gso: false, gro: false };
}

fn mask(prefix: u8) -> Ipv4Addr {
    Ipv4Addr::from(u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0))
}

// Commands of linux/ethtool.h.
const ETHTOOL_GTXCSUM: u32 = 0x16;
const ETHTOOL_STXCSUM: u32 = 0x17;
const ETHTOOL_GTSO: u32 = 0x1e;
const ETHTOOL_STSO: u32 = 0x1f;
const ETHTOOL_GGSO: u32 = 0x23;
const ETHTOOL_SGSO: u32 = 0x24;
const ETHTOOL_GGRO: u32 = 0x2b;
const ETHTOOL_SGRO: u32 = 0x2c;

fn socket(family: libc::c_int, kind: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: a plain system call; the result is checked and owned at once.
    let fd = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fd is fresh and valid.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn socket_address(ip: Ipv4Addr) -> libc::sockaddr {
    // SAFETY: sockaddr is plain data for which zero is valid.
    let mut address: libc::sockaddr = unsafe { std::mem::zeroed() };
    address.sa_family = libc::AF_INET as libc::sa_family_t;
    // A sockaddr_in: two bytes of port, then the address.
    for (to, from) in address.sa_data[2..6].iter_mut().zip(ip.octets()) {
        *to = from as libc::c_char;
    }
    address
}
