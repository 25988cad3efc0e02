//! `opentoe why PID`: all sockets of a process, on which stack each one is, and why.
use crate::ls::{full, list};
use crate::program::{self, Kind, Remark};
use crate::table::{Table, cell, red, say, say_json};
use daemon::client;
use daemon::protocol::Question;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// Lists them. Fails with the reason where the process has no context.
pub(crate) fn why(socket: &Path, pid: i32, as_json: bool) -> Result<(), String> {
    let place = PathBuf::from(format!("/proc/{pid}"));
    if !place.exists() {
        return Err(format!("there is no process {pid}"));
    }
    let told = client::ask(socket, &Question::Descriptors { pid }).map_err(|error| match error {
        error if error.contains("has no context") => format!("{error}: {}", reason(&place)),
        error => error,
    })?;
    let (rows, others) = rows(&place, &told)?;
    if as_json {
        let sockets: Vec<Value> = rows.iter().map(Row::json).collect();
        let answer = json!({ "host": told["host"], "context": told["context"], "sockets": sockets, "others": others });
        say_json(&answer);
        return Ok(());
    }
    let name = fs::read_to_string(place.join("comm")).unwrap_or_default();
    let (used, slots) = (&told["context"]["slots_used"], &told["context"]["slots"]);
    say(&format!("process {pid} ({}) on host {}: {used} of {slots} slots in use", name.trim(), cell(&told["host"])));
    full(&told["context"]).into_iter().for_each(|sentence| say(&red(&sentence)));
    let mut table = Table::new(&["fd", "stack", "socket", "why"]);
    rows.iter().for_each(|row| table.row([row.fd.to_string(), row.stack.into(), row.what.clone(), row.why.clone()]));
    table.print();
    say(&format!("and {others} descriptors that are no sockets"));
    Ok(())
}

/// Why a process has no context.
fn reason(place: &Path) -> String {
    let Ok(maps) = fs::read_to_string(place.join("maps")) else {
        return "it may not be looked at; ask as its user or as root".into();
    };
    if maps.contains("/libtoe.so") {
        return "libtoe.so is loaded, but it has made no TCP socket yet, or it is on another daemon".into();
    }
    let file = fs::read_link(place.join("exe")).unwrap_or_default();
    let is_obstacle = |one: &Remark| one.kind == Kind::Not || one.what == "linking" && one.kind == Kind::Partly;
    let obstacle = program::look(&file).ok().and_then(|remarks| remarks.into_iter().find(is_obstacle));
    match obstacle {
        Some(remark) => remark.text,
        None => "libtoe.so is not loaded: it was not started by opentoe run, or by a program that left OpenTOE".into(),
    }
}

struct Row {
    fd: u32,
    stack: &'static str,
    what: String,
    why: String,
}

impl Row {
    fn json(&self) -> Value {
        json!({ "fd": self.fd, "stack": self.stack, "socket": self.what, "why": self.why })
    }
}

/// The sockets among a process' descriptors, and how many others there are.
fn rows(place: &Path, told: &Value) -> Result<(Vec<Row>, usize), String> {
    let entries = fs::read_dir(place.join("fd"))
        .map_err(|error| format!("its descriptors may not be looked at ({error}): ask as its user or as root"))?;
    let labels: BTreeMap<u64, &Value> =
        list(told, "descriptors").iter().filter_map(|label| Some((label["fd"].as_u64()?, label))).collect();
    let kernel = kernel_sockets(place);
    let (mut rows, mut others) = (Vec::new(), 0);
    for entry in entries.flatten() {
        let Ok(fd) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        // One that was closed meanwhile leads nowhere.
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        let target = target.to_string_lossy().into_owned();
        let inode = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        match inode.and_then(|inode| inode.parse::<u64>().ok()) {
            Some(inode) => rows.push(row(fd, labels.get(&u64::from(fd)).copied(), told, kernel.get(&inode))),
            None => others += 1,
        }
    }
    rows.sort_by_key(|row| row.fd);
    Ok((rows, others))
}

fn row(fd: u32, label: Option<&Value>, told: &Value, kernel: Option<&String>) -> Row {
    let seen = kernel.cloned().unwrap_or_default();
    let Some(label) = label else {
        let why = match kernel {
            Some(what) if what.starts_with("TCP") => "accepted from the kernel, or made where libtoe does not look",
            Some(_) => "only TCP sockets are accelerated",
            None => "libtoe has not said: it was not used yet, or is no TCP socket",
        };
        return Row { fd, stack: "kernel", what: seen, why: why.into() };
    };
    let sentence = cell(&label["reason"]);
    if label["accelerated"] != true {
        let why = sentence.strip_prefix("kernel: ").unwrap_or(&sentence).to_string();
        return Row { fd, stack: "kernel", what: seen, why };
    }
    let flow = label["flow"].as_u64();
    let found = flow.and_then(|flow| list(told, "flows").iter().find(|one| one["flow"].as_u64() == Some(flow)));
    let (what, why) = match (found, label["binding"].as_u64()) {
        (Some(flow), _) => {
            let [local, remote, state] = ["local", "remote", "state"].map(|key| cell(&flow[key]));
            (format!("{local} to {remote}, {state}"), format!("flow {}", flow["flow"]))
        }
        (None, Some(binding)) => (format!("local address {binding}"), "bound to the host, or listening there".into()),
        (None, None) => (String::new(), "its connection is over, or it is being opened".into()),
    };
    Row { fd, stack: "OpenTOE", what, why }
}

/// The kernel's sockets of a process' network namespace, by inode (proc(5)).
fn kernel_sockets(place: &Path) -> BTreeMap<u64, String> {
    let mut found = BTreeMap::new();
    for (file, name) in [("tcp", "TCP"), ("tcp6", "TCP"), ("udp", "UDP"), ("udp6", "UDP"), ("raw", "raw")] {
        let text = fs::read_to_string(place.join("net").join(file)).unwrap_or_default();
        found.extend(text.lines().skip(1).filter_map(|line| internet(name, line)));
    }
    let text = fs::read_to_string(place.join("net/unix")).unwrap_or_default();
    found.extend(text.lines().skip(1).filter_map(|line| {
        let mut words = line.split_whitespace().skip(6);
        let inode = words.next()?.parse().ok()?;
        Some((inode, format!("UNIX {}", words.next().unwrap_or_default()).trim_end().to_string()))
    }));
    found
}

fn internet(name: &str, line: &str) -> Option<(u64, String)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (local, remote) = (endpoint(words.get(1)?)?, endpoint(words.get(2)?)?);
    let peer = if remote.port() == 0 { String::new() } else { format!(" to {remote}") };
    let listening = if name == "TCP" && *words.get(3)? == "0A" { ", LISTEN" } else { "" };
    Some((words.get(9)?.parse().ok()?, format!("{name} {local}{peer}{listening}")))
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
    use std::os::fd::AsRawFd;

    #[test]
    fn all_sockets_of_a_process_are_listed_with_their_stack() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let accepted = listener.accept().unwrap().0;
        let (datagrams, six) = (UdpSocket::bind("127.0.0.1:0").unwrap(), TcpListener::bind("[::1]:0"));
        let fds = [listener.as_raw_fd(), caller.as_raw_fd(), accepted.as_raw_fd(), datagrams.as_raw_fd()];
        let told = json!({
            "descriptors": [
                { "fd": fds[0], "accelerated": true, "reason": "accelerated", "flow": null, "binding": 7 },
                { "fd": fds[1], "accelerated": false, "reason": "kernel: the host has no route to this peer" },
                { "fd": 900_000, "accelerated": true, "reason": "accelerated", "flow": 3 },
            ],
            "flows": [],
        });
        let (rows, others) = rows(Path::new("/proc/self"), &told).unwrap();
        let of = |fd: i32| rows.iter().find(|row| row.fd == fd as u32).unwrap();
        assert_eq!((of(fds[0]).stack, of(fds[0]).what.as_str()), ("OpenTOE", "local address 7"));
        assert_eq!((of(fds[1]).stack, of(fds[1]).why.as_str()), ("kernel", "the host has no route to this peer"));
        let ends = format!("TCP {} to {}", accepted.local_addr().unwrap(), accepted.peer_addr().unwrap());
        assert_eq!(
            (of(fds[2]).what.as_str(), of(fds[2]).why.contains("accepted from the kernel")),
            (ends.as_str(), true)
        );
        assert!(of(fds[3]).what.starts_with("UDP 127.0.0.1:"), "{}", of(fds[3]).what);
        if let Ok(six) = six {
            assert_eq!(of(six.as_raw_fd()).what, format!("TCP {}, LISTEN", six.local_addr().unwrap()));
        }
        assert!(rows.iter().all(|row| row.fd != 900_000) && others > 0);
    }

    #[test]
    fn connections_are_named_by_their_ends() {
        let flow = json!({ "flow": 3, "local": "10.0.0.1:80", "remote": "10.0.0.2:999", "state": "ESTABLISHED" });
        let label = json!({ "fd": 5, "accelerated": true, "reason": "accelerated", "flow": 3 });
        let row = row(5, Some(&label), &json!({ "flows": [flow] }), None);
        assert_eq!((row.what.as_str(), row.why.as_str()), ("10.0.0.1:80 to 10.0.0.2:999, ESTABLISHED", "flow 3"));
    }

    #[test]
    fn a_process_without_a_context_has_a_reason() {
        assert!(reason(Path::new("/proc/self")).contains("libtoe.so is not loaded"));
    }
}
