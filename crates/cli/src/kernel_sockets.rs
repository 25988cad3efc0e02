//! The kernel's sockets of a process, as proc(5) shows them: which descriptors are sockets, and what each one is.
use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

/// Kernel's view of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// TCP, with a peer.
    Connected,
    /// TCP, listening.
    Listening,
    /// Of another kind than TCP.
    Other,
}

/// A socket that the kernel lists: one of TCP that is neither connected nor listening is in no list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KernelSocket {
    pub kind: Kind,
    /// Its kind and ends, for people.
    pub text: String,
    /// Its local port; 0 where it has none.
    pub port: u16,
}

/// Target of a descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// A socket, by its inode.
    Socket(u64),
    /// Something else, by its name.
    Other(String),
}

/// The descriptors of a process, by number. Fails with a sentence.
pub(crate) fn descriptors(place: &Path) -> Result<BTreeMap<u32, Target>, String> {
    let entries = fs::read_dir(place.join("fd"))
        .map_err(|error| format!("its descriptors may not be read ({error}): ask as its user or as root"))?;
    let target = |entry: fs::DirEntry| {
        let fd = entry.file_name().to_string_lossy().parse().ok()?;
        // One that was closed meanwhile leads nowhere.
        let name = fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned();
        let inode = name.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        Some((fd, inode.and_then(|inode| inode.parse().ok()).map_or(Target::Other(name), Target::Socket)))
    };
    Ok(entries.flatten().filter_map(target).collect())
}

/// The kernel's sockets of a process' network namespace, by inode.
pub(crate) fn listed(place: &Path) -> BTreeMap<u64, KernelSocket> {
    let lines = |file: &str| fs::read_to_string(place.join("net").join(file)).unwrap_or_default();
    let mut found = BTreeMap::new();
    for (file, name) in [("tcp", "TCP"), ("tcp6", "TCP"), ("udp", "UDP"), ("udp6", "UDP"), ("raw", "raw")] {
        found.extend(lines(file).lines().skip(1).filter_map(|line| internet(name, line)));
    }
    let other = |text: String| KernelSocket { kind: Kind::Other, text, port: 0 };
    found.extend(lines("unix").lines().skip(1).filter_map(|line| {
        let mut words = line.split_whitespace().skip(6);
        let inode = words.next()?.parse().ok()?;
        Some((inode, other(format!("UNIX {}", words.next().unwrap_or_default()).trim_end().into())))
    }));
    for (file, name) in [("netlink", "netlink"), ("packet", "packet")] {
        let inode = |line: &str| line.split_whitespace().last()?.parse().ok();
        found.extend(lines(file).lines().skip(1).filter_map(|line| Some((inode(line)?, other(name.into())))));
    }
    found
}

fn internet(name: &str, line: &str) -> Option<(u64, KernelSocket)> {
    /// Linux's TCP_LISTEN, in hexadecimal.
    const LISTEN: &str = "0A";
    let words: Vec<&str> = line.split_whitespace().collect();
    let (local, remote) = (endpoint(words.get(1)?)?, endpoint(words.get(2)?)?);
    let (kind, rest) = match (name, *words.get(3)?) {
        ("TCP", LISTEN) => (Kind::Listening, ", LISTEN".into()),
        ("TCP", _) => (Kind::Connected, format!(" to {remote}")),
        _ if remote.port() == 0 => (Kind::Other, String::new()),
        _ => (Kind::Other, format!(" to {remote}")),
    };
    let socket = KernelSocket { kind, text: format!("{name} {local}{rest}"), port: local.port() };
    Some((words.get(9)?.parse().ok()?, socket))
}

/// An address as the kernel writes it: words of the machine's byte order in hexadecimal, and the port.
fn endpoint(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let words: Vec<[u8; 4]> = (0..address.len() / 8)
        .map(|i| Some(u32::from_str_radix(address.get(i * 8..i * 8 + 8)?, 16).ok()?.to_ne_bytes()))
        .collect::<Option<_>>()?;
    let ip = match words.as_slice() {
        [one] => IpAddr::V4(Ipv4Addr::from(*one)),
        [_, _, _, _] => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(words.concat()).ok()?)),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::{AsRawFd, RawFd};

    #[test]
    fn sockets_of_a_process_are_known_by_their_descriptors() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let accepted = listener.accept().unwrap().0;
        let (datagrams, six) = (UdpSocket::bind("127.0.0.1:0").unwrap(), TcpListener::bind("[::1]:0"));
        let file = fs::File::open("/dev/null").unwrap();
        let place = Path::new("/proc/self");
        let (descriptors, listed) = (descriptors(place).unwrap(), listed(place));
        let of = |fd: RawFd| match &descriptors[&(fd as u32)] {
            Target::Socket(inode) => listed[inode].clone(),
            Target::Other(name) => panic!("{name}"),
        };
        let (here, there) = (accepted.local_addr().unwrap(), caller.local_addr().unwrap());
        let expected = |kind, text: String| KernelSocket { kind, text, port: here.port() };
        assert_eq!(of(accepted.as_raw_fd()), expected(Kind::Connected, format!("TCP {here} to {there}")));
        assert_eq!(of(listener.as_raw_fd()), expected(Kind::Listening, format!("TCP {here}, LISTEN")));
        assert_eq!(of(datagrams.as_raw_fd()).kind, Kind::Other);
        if let Ok(six) = six {
            assert_eq!(of(six.as_raw_fd()).text, format!("TCP {}, LISTEN", six.local_addr().unwrap()));
        }
        assert_eq!(descriptors[&(file.as_raw_fd() as u32)], Target::Other("/dev/null".into()));
    }
}
