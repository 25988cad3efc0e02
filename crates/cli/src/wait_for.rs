//! `opentoe run --wait-for`: the program starts once its server listens.
//!
//! A server that takes one connection must not lose it to a waiting process. So listeners are looked up, on the
//! daemon's hosts and in the kernel's table; a connection is tried only where the address is another machine's.
use crate::table::list;
use daemon::client;
use daemon::protocol::Question;
use serde_json::Value;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time between two polls.
const PAUSE: Duration = Duration::from_millis(20);
/// How long another machine may take to answer.
const ROUND_TRIP: Duration = Duration::from_secs(1);

/// Waits until something listens at all of these addresses. Programs on the host `host` of the daemon at `socket` reach
/// it then.
///
/// # Errors
/// The time is over, or the daemon does not answer: a sentence.
pub(crate) fn listeners(addresses: &[SocketAddr], limit: Duration, socket: &Path, host: &str) -> Result<(), String> {
    let begin = Instant::now();
    for address in addresses.iter().map(reached) {
        let mut in_kernel = false;
        while !is_there(address, socket, host, &mut in_kernel)? {
            if begin.elapsed() >= limit {
                return Err(too_late(address, limit));
            }
            sleep(PAUSE);
        }
    }
    Ok(())
}

/// Something listens at the address. Between two polls, `in_kernel` keeps whether the kernel had a listener there.
fn is_there(address: SocketAddr, socket: &Path, host: &str, in_kernel: &mut bool) -> Result<bool, String> {
    let local = is_local(address.ip());
    // The kernel first: libtoe makes a listener on the host before the one on the kernel (`listen`).
    let earlier = std::mem::replace(in_kernel, local && in_kernel_tables(address));
    Ok(match place(&client::ask(socket, &Question::Ls)?, host, address) {
        AddressState::Listens => true,
        AddressState::NotYetListening => earlier && *in_kernel,
        AddressState::Quiet => false,
        AddressState::Elsewhere if local => *in_kernel,
        AddressState::Elsewhere => TcpStream::connect_timeout(&address, ROUND_TRIP).is_ok(),
    })
}

fn too_late(address: SocketAddr, limit: Duration) -> String {
    format!(
        "the program was not started: nothing listens at {address} after {} s; see `opentoe ls` and `ss -tln`, \
         start the server there, or wait longer with --wait-limit",
        limit.as_secs()
    )
}

/// A connection to the unspecified address goes to the loopback address.
fn reached(address: &SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => SocketAddr::from((Ipv4Addr::LOCALHOST, address.port())),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => SocketAddr::from((Ipv6Addr::LOCALHOST, address.port())),
        _ => *address,
    }
}

/// Place of an address, by a daemon's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AddressState {
    /// A host of the daemon takes connections there.
    Listens,
    /// The host has a listener of a loopback address that takes none yet. It may do so at once, or never, where the
    /// host leaves loopback to the kernel.
    NotYetListening,
    /// It is a host's address, and nobody listens there.
    Quiet,
    /// The kernel reaches it.
    Elsewhere,
}

fn place(inventory: &Value, host: &str, address: SocketAddr) -> AddressState {
    if address.ip().is_loopback() {
        let own = list(inventory, "hosts").iter().filter(|of| of["name"] == host);
        let mut found = own.flat_map(|of| list(of, "listeners")).filter(|listener| matches(listener, address));
        return match found.next() {
            None => AddressState::Elsewhere,
            Some(first) if [first].into_iter().chain(found).any(|one| one["loopback"] == true) => AddressState::Listens,
            Some(_) => AddressState::NotYetListening,
        };
    }
    let everywhere = list(inventory, "hosts").iter().chain(list(inventory, "zeronics"));
    let here: Vec<&Value> = everywhere.filter(|of| has_address(of, address.ip())).collect();
    match here.is_empty() {
        true => AddressState::Elsewhere,
        false if here.iter().any(|of| listens(of, address)) => AddressState::Listens,
        false => AddressState::Quiet,
    }
}

/// A host has the address, on any of its ports.
fn has_address(host: &Value, ip: IpAddr) -> bool {
    let is = |value: &Value| {
        let text = value.as_str().and_then(|text| text.split('/').next());
        text.and_then(|text| text.parse().ok()) == Some(ip)
    };
    let has = |of: &Value| is(&of["address"]) || is(&of["address6"]);
    has(host) || list(host, "ports").iter().any(has)
}

/// A host takes connections at the address, by TCP, by RDMA's connection management, or for programs of `toe_comm_*`.
fn listens(host: &Value, address: SocketAddr) -> bool {
    let identifiers = list(&host["rdma"], "programs").iter().flat_map(|program| list(program, "ids"));
    let mut managed = identifiers.filter(|id| id["state"] == "LISTEN").filter_map(|id| id["local"].as_str());
    let ports = list(host, "listeners");
    ports.iter().any(|listener| matches(listener, address) || *listener == address.port())
        || managed.any(|local| local.parse().is_ok_and(|local: SocketAddr| covers(local, address)))
}

/// A TCP listener takes connections to this address.
fn matches(listener: &Value, address: SocketAddr) -> bool {
    let ip = listener["address"].as_str().and_then(|ip| ip.parse().ok());
    let port = listener["port"].as_u64().and_then(|port| u16::try_from(port).ok());
    let takes_family = |ip: IpAddr| ip.is_ipv4() == address.is_ipv4() || listener["dual_stack"] != false;
    ip.zip(port)
        .is_some_and(|(ip, port): (IpAddr, u16)| takes_family(ip) && covers(SocketAddr::from((ip, port)), address))
}

/// What listens at `local` takes connections to `address`. One of any IPv6 address takes those of IPv4, too.
fn covers(local: SocketAddr, address: SocketAddr) -> bool {
    let any = local.ip().is_unspecified() && (local.is_ipv6() || address.is_ipv4());
    local.port() == address.port() && (any || local.ip().to_canonical() == address.ip().to_canonical())
}

/// The kernel has the address: only then a socket can be bound to it.
fn is_local(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

/// The kernel's tables name a listener that takes connections to this address.
fn in_kernel_tables(address: SocketAddr) -> bool {
    // The thread's, not the process's: a thread can be in another network namespace than the first one.
    ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"].iter().any(|table| {
        let text = fs::read_to_string(table).unwrap_or_default();
        text.lines().filter_map(kernel_listener).any(|local| covers(local, address))
    })
}

/// The address of a listener, from its line in the kernel's table of TCP sockets.
fn kernel_listener(line: &str) -> Option<SocketAddr> {
    /// TCP_LISTEN of the kernel's states.
    const LISTEN: &str = "0A";
    let mut fields = line.split_whitespace().skip(1);
    let local = fields.next()?;
    if fields.nth(1)? != LISTEN {
        return None;
    }
    let (ip, port) = local.split_once(':')?;
    // Words of 32 bits, in network order in memory, printed as the processor reads them.
    let word = |at: usize| Some(u32::from_str_radix(ip.get(at * 8..at * 8 + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match ip.len() {
        8 => IpAddr::from(word(0)?),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            IpAddr::from(<[u8; 16]>::try_from(words.as_flattened()).ok()?)
        }
        _ => return None,
    };
    Some(SocketAddr::from((ip, u16::from_str_radix(port, 16).ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::net::TcpListener;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_listener_is_found_at_the_hosts_that_have_its_address() {
        let listener = |address, port| json!({ "address": address, "port": port, "loopback": false });
        let ids = json!([{ "state": "LISTEN", "local": "0.0.0.0:7174" }, { "state": "RTS", "local": "10.77.0.2:7175" },
            { "state": "LISTEN", "local": null }]);
        let only_v6 = json!({ "address": "::", "port": 84, "loopback": false, "dual_stack": false });
        let inventory = json!({
            "hosts": [
                { "name": "a", "address": "10.77.0.2", "address6": "2001:db8::2",
                    "ports": [{ "address": "10.77.0.2/24" }, { "address": "10.79.0.2/24" }],
                    "listeners": [listener("0.0.0.0", 80), listener("10.77.0.2", 81), listener("::", 83), only_v6],
                    "rdma": { "programs": [{ "ids": ids }] } },
                { "name": "b", "address": "10.77.0.3", "ports": [],
                    "listeners": [listener("10.77.0.3", 82)], "rdma": null },
            ],
            "zeronics": [{ "name": "z", "address": "10.77.1.1", "listeners": [9000] }],
        });
        for (address, expected) in [
            ("10.77.0.2:80", AddressState::Listens),
            ("10.79.0.2:80", AddressState::Listens),
            ("10.79.0.2:81", AddressState::Quiet),
            ("10.77.0.2:7174", AddressState::Listens),
            ("10.77.0.2:7175", AddressState::Quiet),
            ("10.77.0.3:82", AddressState::Listens),
            ("10.77.0.3:80", AddressState::Quiet),
            ("10.77.1.1:9000", AddressState::Listens),
            ("10.77.1.1:9001", AddressState::Quiet),
            ("10.77.0.1:80", AddressState::Elsewhere),
            ("[2001:db8::2]:80", AddressState::Quiet),
            ("[2001:db8::2]:83", AddressState::Listens),
            ("10.77.0.2:83", AddressState::Listens),
            ("[2001:db8::2]:84", AddressState::Listens),
            ("10.77.0.2:84", AddressState::Quiet),
            ("[2001:db8::3]:84", AddressState::Elsewhere),
        ] {
            assert_eq!(place(&inventory, "b", at(address)), expected, "{address}");
        }
    }

    #[test]
    fn loopback_is_that_of_the_programs_own_host() {
        let listener = |address, port, loopback| json!({ "address": address, "port": port, "loopback": loopback });
        let listeners =
            [listener("0.0.0.0", 80, true), listener("127.0.0.2", 81, true), listener("127.0.0.1", 82, false)];
        let inventory = json!({ "hosts": [{ "name": "a", "address": "10.77.0.2", "listeners": listeners }] });
        for (host, address, expected) in [
            ("a", "127.0.0.1:80", AddressState::Listens),
            ("a", "127.0.0.2:81", AddressState::Listens),
            ("a", "127.0.0.1:81", AddressState::Elsewhere),
            ("a", "127.0.0.1:82", AddressState::NotYetListening),
            ("b", "127.0.0.1:80", AddressState::Elsewhere),
            ("a", "[::1]:80", AddressState::Elsewhere),
        ] {
            assert_eq!(place(&inventory, host, at(address)), expected, "{host} {address}");
        }
    }

    #[test]
    fn only_listeners_of_the_kernel_are_found() {
        let [bound, any, six] = ["127.0.0.3:0", "0.0.0.0:0", "[::]:0"].map(TcpListener::bind);
        let (bound, any) = (bound.unwrap(), any.unwrap());
        let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
        assert!(in_kernel_tables(bound.local_addr().unwrap()));
        assert!(!in_kernel_tables(SocketAddr::from((Ipv4Addr::LOCALHOST, port(&bound)))), "of another address");
        assert!(in_kernel_tables(SocketAddr::from((Ipv4Addr::LOCALHOST, port(&any)))));
        // Where the kernel has IPv6.
        if let Ok(six) = six {
            assert!(in_kernel_tables(SocketAddr::from((Ipv4Addr::LOCALHOST, port(&six)))));
            assert!(in_kernel_tables(SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, port(&six)))));
        }
        let stream = TcpStream::connect(bound.local_addr().unwrap()).unwrap();
        assert!(!in_kernel_tables(stream.local_addr().unwrap()), "a connection is no listener");
    }

    #[test]
    fn addresses_of_this_machine_are_distinguished_from_others() {
        assert!(is_local(Ipv4Addr::LOCALHOST.into()) && is_local(Ipv4Addr::new(127, 1, 2, 3).into()));
        assert!(!is_local(Ipv4Addr::new(192, 0, 2, 1).into()), "a documentation address (RFC 5737)");
        assert_eq!(reached(&at("0.0.0.0:80")), at("127.0.0.1:80"));
    }
}
