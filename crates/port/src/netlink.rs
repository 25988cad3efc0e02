//! The few messages of rtnetlink(7) that there is no ioctl for.
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Bytes of a message's header, and of a link's and a route's fixed part.
const HEADER: usize = 16;
const VETH_INFO_PEER: u16 = 1;

/// A message, without its header.
pub(crate) struct Message {
    kind: u16,
    flags: u16,
    body: Vec<u8>,
}

/// Messages about interfaces.
pub(crate) struct LinkMessage;

impl LinkMessage {
    pub(crate) fn veth(name: &str, peer: &str, peer_netns: Option<RawFd>) -> Message {
        let mut body = link(0);
        put(&mut body, libc::IFLA_IFNAME, &zero_terminated(name));
        let mut other = link(0);
        put(&mut other, libc::IFLA_IFNAME, &zero_terminated(peer));
        if let Some(fd) = peer_netns {
            put(&mut other, libc::IFLA_NET_NS_FD, &fd.to_ne_bytes());
        }
        let mut data = Vec::new();
        put(&mut data, VETH_INFO_PEER, &other);
        let mut info = Vec::new();
        put(&mut info, libc::IFLA_INFO_KIND, b"veth");
        put(&mut info, libc::IFLA_INFO_DATA, &data);
        put(&mut body, libc::IFLA_LINKINFO, &info);
        Message { kind: libc::RTM_NEWLINK, flags: (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16, body }
    }

    pub(crate) fn delete(index: u32) -> Message {
        Message { kind: libc::RTM_DELLINK, flags: 0, body: link(index) }
    }

    pub(crate) fn move_to(index: u32, netns: RawFd) -> Message {
        let mut body = link(index);
        put(&mut body, libc::IFLA_NET_NS_FD, &netns.to_ne_bytes());
        Message { kind: libc::RTM_NEWLINK, flags: 0, body }
    }
}

/// Messages about addresses.
pub(crate) struct AddressMessage;

impl AddressMessage {
    /// Where it is there already, it stays, and that is no error.
    pub(crate) fn add(index: u32, address: Ipv6Addr, prefix: u8) -> Message {
        // struct ifaddrmsg of linux/if_addr.h.
        let (flags, scope) = (libc::IFA_F_NODAD as u8, libc::RT_SCOPE_UNIVERSE);
        let mut body = vec![libc::AF_INET6 as u8, prefix, flags, scope];
        body.extend_from_slice(&index.to_ne_bytes());
        put(&mut body, libc::IFA_LOCAL, &address.octets());
        put(&mut body, libc::IFA_ADDRESS, &address.octets());
        Message { kind: libc::RTM_NEWADDR, flags: (libc::NLM_F_CREATE | libc::NLM_F_REPLACE) as u16, body }
    }
}

/// Messages about routes.
pub(crate) struct RouteMessage;

impl RouteMessage {
    pub(crate) fn add(index: u32, network: Ipv4Addr, prefix: u8, gateway: Option<Ipv4Addr>) -> Message {
        let scope = if gateway.is_some() { libc::RT_SCOPE_UNIVERSE } else { libc::RT_SCOPE_LINK };
        // struct rtmsg of linux/rtnetlink.h.
        let mut body =
            vec![libc::AF_INET as u8, prefix, 0, 0, libc::RT_TABLE_MAIN, libc::RTPROT_STATIC, scope, libc::RTN_UNICAST];
        body.extend_from_slice(&0u32.to_ne_bytes());
        put(&mut body, libc::RTA_DST, &network.octets());
        put(&mut body, libc::RTA_OIF, &index.to_ne_bytes());
        if let Some(gateway) = gateway {
            put(&mut body, libc::RTA_GATEWAY, &gateway.octets());
        }
        Message { kind: libc::RTM_NEWROUTE, flags: (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16, body }
    }
}

/// Sends a message and waits for the kernel's answer.
pub(crate) fn request(message: &Message) -> io::Result<()> {
    let socket = socket()?;
    let mut bytes = Vec::with_capacity(HEADER + message.body.len());
    let flags = message.flags | (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
    bytes.extend_from_slice(&((HEADER + message.body.len()) as u32).to_ne_bytes());
    bytes.extend_from_slice(&message.kind.to_ne_bytes());
    bytes.extend_from_slice(&flags.to_ne_bytes());
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&message.body);
    let mut answer = [0u8; 4096];
    // SAFETY: sends from and receives into buffers that live here, with their lengths.
    let got = unsafe {
        if libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) < 0 {
            return Err(io::Error::last_os_error());
        }
        libc::recv(socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0)
    };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    // The answer is a header and then struct nlmsgerr, which begins with the negative error number.
    match answer[..got as usize].get(HEADER..HEADER + 4) {
        Some(&[a, b, c, d]) => match i32::from_ne_bytes([a, b, c, d]) {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(-error)),
        },
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn socket() -> io::Result<OwnedFd> {
    // SAFETY: a plain system call; the result is checked and owned at once.
    let fd = unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fd is fresh and valid.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// struct ifinfomsg of linux/rtnetlink.h.
fn link(index: u32) -> Vec<u8> {
    let mut body = vec![0; 16];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    body
}

/// Appends an attribute, padded to four bytes.
fn put(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
    body.extend_from_slice(&kind.to_ne_bytes());
    body.extend_from_slice(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

fn zero_terminated(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    bytes
}
