//! `opentoe why PID [FD]`: sockets of a process, on which stack each one is, and why. The kernel's tables have which
//! descriptors there are now; what libtoe reported of a number may be of a socket that had it before.
use crate::flow;
use crate::kernel_sockets::{self, KernelSocket, Kind as KernelKind, Target};
use crate::locate;
use crate::ls::{full, list};
use crate::program::{self, Kind, Remark};
use crate::table::{Table, cell, print_json, print_line, red};
use crate::units::several;
use crate::zeronic;
use context::attach::{INTERCEPT_VARIABLE, SYMBOLS, own_descriptors};
use daemon::client;
use daemon::protocol::Question;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Lists all, or explains one. Fails with the reason where the process has no context at the named daemon, or at any
/// where none is named.
pub(crate) fn why(named: Option<&Path>, pid: i32, fd: Option<u32>, as_json: bool) -> Result<(), String> {
    let place = PathBuf::from(format!("/proc/{pid}"));
    if !place.exists() {
        return Err(format!("there is no process {pid}"));
    }
    let socket = locate::daemon_of(named, pid).map_err(|error| format!("{error}: {}", reason(&place)))?;
    let name = fs::read_to_string(place.join("comm")).unwrap_or_default();
    let process = format!("{pid} ({})", name.trim());
    let zeronic = match fd {
        Some(_) => None,
        None => zeronic::of_process(&client::ask(&socket, &Question::Ls)?, pid),
    };
    let answer = match client::ask(&socket, &Question::Descriptors { pid, fd }) {
        Ok(answer) => answer,
        // A program of `toe_comm_*` without sockets.
        Err(_) if zeronic.is_some() => {
            no_sockets(&process, &zeronic.unwrap_or_default(), as_json);
            return Ok(());
        }
        Err(error) if error.contains("has no context") => return Err(format!("{error}: {}", reason(&place))),
        Err(error) => return Err(error),
    };
    let sockets = Sockets::of(&place, &answer)?;
    match fd {
        Some(fd) => sockets.explain(fd, &process, as_json),
        None => {
            sockets.list(&process, &zeronic.unwrap_or_default(), as_json);
            Ok(())
        }
    }
}

fn no_sockets(process: &str, zeronic: &[Value], as_json: bool) {
    if as_json {
        return print_json(&json!({ "host": null, "context": null, "sockets": [], "zeronic": zeronic }));
    }
    let count = several(zeronic.len() as u64, "connection");
    print_line(&format!("process {process} has no socket on OpenTOE, and {count} of toe_comm_*"));
    zeronic.iter().for_each(zeronic::explain);
}

/// Why a process has no context.
fn reason(place: &Path) -> String {
    let Ok(maps) = fs::read_to_string(place.join("maps")) else {
        return "it may not be read; ask as its user or as root".into();
    };
    let file = fs::read_link(place.join("exe")).unwrap_or_default();
    let remarks = program::inspect(&file).unwrap_or_default();
    let text = |is: &dyn Fn(&Remark) -> bool| remarks.iter().find(|one| is(one)).map(|one| one.text.clone());
    if maps.contains("/libtoe.so") {
        let unseen = if by_symbols(place) { text(&|one| one.what == program::GO) } else { None };
        return unseen.unwrap_or_else(|| {
            "libtoe.so is loaded, but it has made no TCP socket yet, or it is on another daemon".into()
        });
    }
    text(&|one| one.kind == Kind::Not || one.what == program::STATIC).unwrap_or_else(|| {
        "libtoe.so is not loaded: it was not started by opentoe run, or by a program that left OpenTOE".into()
    })
}

/// Whether its user wanted only symbols to be interposed.
fn by_symbols(place: &Path) -> bool {
    let wanted = format!("{INTERCEPT_VARIABLE}={SYMBOLS}");
    let environment = fs::read(place.join("environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
}

/// On which stack a socket is.
const OPENTOE: &str = "OpenTOE";
const KERNEL: &str = "kernel";
/// Of a socket that is on none.
const NONE: &str = "-";

#[derive(Debug, PartialEq, Eq)]
struct Row {
    fd: u32,
    stack: &'static str,
    what: String,
    why: String,
    flow: Option<u64>,
}

impl Row {
    fn json(&self) -> Value {
        json!({ "fd": self.fd, "stack": self.stack, "socket": self.what, "why": self.why, "flow": self.flow })
    }
}

/// What a process' sockets are, as the kernel lists them and as reported to the daemon.
struct Sockets<'a> {
    report: &'a Value,
    descriptors: BTreeMap<u32, Target>,
    kernel: BTreeMap<u64, KernelSocket>,
    /// Ports on which the process listens in the kernel.
    listens: BTreeSet<u16>,
    /// Numbers of descriptors among which are libtoe's own.
    own: Range<u64>,
}

impl<'a> Sockets<'a> {
    fn of(place: &Path, report: &'a Value) -> Result<Sockets<'a>, String> {
        let (descriptors, kernel) = (kernel_sockets::descriptors(place)?, kernel_sockets::listed(place));
        let own = descriptors.values().filter_map(|target| match target {
            Target::Socket(inode) => kernel.get(inode),
            Target::Other(_) => None,
        });
        let listens = own.filter(|socket| socket.kind == KernelKind::Listening).map(|socket| socket.port).collect();
        let own = own_descriptors(limit(place).unwrap_or(u64::MAX));
        Ok(Sockets { report, descriptors, kernel, listens, own })
    }

    /// A descriptor is libtoe's own: it lies where the library puts those, the program's do not reach so far, and it is
    /// no TCP socket that anybody has named.
    fn is_own(&self, fd: u32, inode: u64) -> bool {
        let below = u32::try_from(self.own.start).unwrap_or(u32::MAX).saturating_sub(1);
        let is_there = self.own.contains(&fd.into()) && !self.descriptors.contains_key(&below);
        let is_named = self.label(fd).is_some();
        is_there && !is_named && self.kernel.get(&inode).is_none_or(|socket| socket.kind == KernelKind::Other)
    }

    fn list(&self, process: &str, zeronic: &[Value], as_json: bool) {
        let sockets = self.descriptors.iter().filter_map(|(fd, target)| match target {
            Target::Socket(inode) => Some((*fd, *inode)),
            Target::Other(_) => None,
        });
        let (own, programs): (Vec<_>, Vec<_>) = sockets.partition(|(fd, inode)| self.is_own(*fd, *inode));
        let rows: Vec<Row> = programs.into_iter().map(|(fd, inode)| self.row(fd, inode)).collect();
        let (others, context) = (self.descriptors.len() - rows.len() - own.len(), &self.report["context"]);
        if as_json {
            let sockets: Vec<Value> = rows.iter().map(Row::json).collect();
            let host = &self.report["host"];
            let own = own.len();
            return print_json(&json!({
                "host": host, "context": context, "sockets": sockets, "own": own, "others": others, "zeronic": zeronic,
            }));
        }
        let (used, slots) = (&context["slots_used"], &context["slots"]);
        print_line(&format!(
            "process {process} on host {}: {used} of {slots} slots in use",
            cell(&self.report["host"])
        ));
        full(context).into_iter().for_each(|sentence| print_line(&red(&sentence)));
        let mut table = Table::new(&["fd", "stack", "socket", "why"]);
        rows.iter()
            .for_each(|row| table.row([row.fd.to_string(), row.stack.into(), row.what.clone(), row.why.clone()]));
        table.print();
        print_line(&format!("and {others} descriptors that are no sockets, and {} sockets of libtoe's own", own.len()));
        zeronic.iter().for_each(zeronic::explain);
    }

    fn explain(&self, fd: u32, process: &str, as_json: bool) -> Result<(), String> {
        let row = match self.descriptors.get(&fd) {
            None => return Err(format!("process {process} has no descriptor {fd}: it is closed, or never was")),
            Some(Target::Other(name)) => return Err(format!("descriptor {fd} of {process} is no socket, but {name}")),
            Some(Target::Socket(inode)) => self.row(fd, *inode),
        };
        let flow = row.flow.and_then(|number| self.flow(number));
        if as_json {
            print_json(&json!({ "host": self.report["host"], "descriptor": row.json(), "flow": flow }));
            return Ok(());
        }
        let place = match row.stack {
            OPENTOE => format!("on OpenTOE, host {}", cell(&self.report["host"])),
            KERNEL => "on the kernel".into(),
            _ => "on no stack".into(),
        };
        // A connection's ends are shown with it.
        let what = if row.what.is_empty() || flow.is_some() { String::new() } else { format!(": {}", row.what) };
        print_line(&format!("descriptor {fd} of {process} is {place}{what}"));
        print_line(&format!("  {}", row.why));
        flow.into_iter().for_each(flow::explain);
        Ok(())
    }

    fn flow(&self, number: u64) -> Option<&'a Value> {
        list(self.report, "flows").iter().find(|one| one["flow"].as_u64() == Some(number))
    }

    /// What libtoe reported last of a descriptor with this number.
    fn label(&self, fd: u32) -> Option<&'a Value> {
        list(self.report, "descriptors").iter().find(|label| label["fd"].as_u64() == Some(fd.into()))
    }

    fn row(&self, fd: u32, inode: u64) -> Row {
        let (label, kernel) = (self.label(fd), self.kernel.get(&inode));
        let accelerated = label.filter(|label| label["accelerated"] == true);
        let refused = label.and_then(|label| Some(label["reason"].as_str()?.strip_prefix("kernel: ")?.to_string()));
        let row = |stack, what: &str, why: String| Row { fd, stack, what: what.into(), why, flow: None };
        match kernel {
            Some(socket) if socket.kind == KernelKind::Other => {
                row(KERNEL, &socket.text, "only TCP sockets are accelerated".into())
            }
            // The kernel socket behind one of OpenTOE's has no peer.
            Some(socket) if socket.kind == KernelKind::Connected => {
                let why = match refused {
                    _ if self.listens.contains(&socket.port) => "accepted from the kernel".into(),
                    Some(reason) => reason,
                    None => "accepted from the kernel, or connected where libtoe does not intercept".into(),
                };
                row(KERNEL, &socket.text, why)
            }
            Some(socket) => self.bound(fd, accelerated, Some(socket)).unwrap_or_else(|| {
                row(KERNEL, &socket.text, refused.unwrap_or_else(|| "it listens in the kernel alone".into()))
            }),
            None => {
                let own = || accelerated.and_then(|label| self.connection(fd, label));
                own().or_else(|| self.bound(fd, accelerated, None)).unwrap_or_else(|| {
                    let why = match (accelerated, refused) {
                        (Some(_), _) => "its connection is over, or it is being opened".into(),
                        (None, Some(reason)) => format!("the last connection with this number: {reason}"),
                        (None, None) => "bind, listen or connect decide on which stack it will be".into(),
                    };
                    row(NONE, "not connected", why)
                })
            }
        }
    }

    /// A connection of OpenTOE's.
    fn connection(&self, fd: u32, label: &Value) -> Option<Row> {
        let number = label["flow"].as_u64()?;
        let what = self.flow(number).map_or(String::new(), |flow| {
            let [local, remote, state] = ["local", "remote", "state"].map(|key| cell(&flow[key]));
            format!("{local} to {remote}, {state}")
        });
        Some(Row { fd, stack: OPENTOE, what, why: format!("its connection is flow {number}"), flow: Some(number) })
    }

    /// A local address of the host's, with what the kernel has of it.
    fn bound(&self, fd: u32, label: Option<&Value>, kernel: Option<&KernelSocket>) -> Option<Row> {
        let number = label?["binding"].as_u64()?;
        let binding = list(self.report, "bindings").iter().find(|one| one["binding"].as_u64() == Some(number))?;
        let local = cell(&binding["local"]);
        let port = local.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        if kernel.is_some_and(|socket| Some(socket.port) != port) {
            return None;
        }
        let row = |what, why| Some(Row { fd, stack: OPENTOE, what, why, flow: None });
        match (binding["listening"] == true, kernel) {
            (true, Some(socket)) => row(
                format!("{local}, LISTEN"),
                format!("listens on {local}, and in the kernel: {}", socket.text.trim_end_matches(", LISTEN")),
            ),
            (true, None) => row(format!("{local}, LISTEN"), format!("listens on {local}")),
            (false, _) => row(local.clone(), format!("bound to {local}, neither listening nor connected")),
        }
    }
}

/// Descriptors that a process may have (`/proc/PID/limits`).
fn limit(place: &Path) -> Option<u64> {
    let limits = fs::read_to_string(place.join("limits")).ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: u16 = 6379;

    /// What is reported of descriptor 8, which leads to `kernel`, or to a socket that the kernel does not list.
    fn row(label: Option<Value>, kernel: Option<(KernelKind, &str, u16)>) -> Row {
        let flow = json!({ "flow": 3, "local": "10.0.0.1:80", "remote": "10.0.0.2:999", "state": "ESTABLISHED" });
        let bindings = json!([{ "binding": 7, "local": format!("0.0.0.0:{PORT}"), "listening": true },
            { "binding": 8, "local": "10.0.0.1:99", "listening": false }]);
        let report = json!({ "descriptors": label.as_slice(), "flows": [flow], "bindings": bindings });
        let socket = |(kind, text, port): (_, &str, _)| (77, KernelSocket { kind, text: text.into(), port });
        Sockets {
            report: &report,
            descriptors: [(8, Target::Socket(77))].into(),
            kernel: kernel.into_iter().map(socket).collect(),
            listens: [PORT].into(),
            own: own_descriptors(1024),
        }
        .row(8, 77)
    }

    #[test]
    fn sockets_of_the_library_are_distinguished_from_the_programs() {
        let label = json!({ "fd": 962, "accelerated": true, "reason": "accelerated" });
        let report = json!({ "descriptors": [label] });
        let other = |kind| KernelSocket { kind, text: "UNIX".into(), port: 0 };
        let mut sockets = Sockets {
            report: &report,
            descriptors: BTreeMap::new(),
            kernel: [(1, other(KernelKind::Other)), (2, other(KernelKind::Connected))].into(),
            listens: BTreeSet::new(),
            own: own_descriptors(1024),
        };
        assert!(sockets.is_own(960, 1) && sockets.is_own(961, 77));
        assert!(!sockets.is_own(8, 1) && !sockets.is_own(961, 2) && !sockets.is_own(962, 77));
        // The program's own reach so far.
        sockets.descriptors.insert(959, Target::Socket(1));
        assert!(!sockets.is_own(960, 1));
    }

    fn accelerated(flow: Option<u32>, binding: Option<u32>) -> Option<Value> {
        Some(json!({ "fd": 8, "accelerated": true, "reason": "accelerated", "flow": flow, "binding": binding }))
    }

    fn words(row: &Row) -> (&str, &str, &str) {
        (row.stack, &row.what, &row.why)
    }

    #[test]
    fn a_number_that_was_a_connections_is_what_the_kernel_has() {
        let peer = Some((KernelKind::Connected, "TCP 127.0.0.1:6379 to 127.0.0.1:5", PORT));
        for before in [accelerated(Some(3), None), accelerated(None, None), None] {
            let row = row(before, peer);
            assert_eq!(words(&row), ("kernel", "TCP 127.0.0.1:6379 to 127.0.0.1:5", "accepted from the kernel"));
            assert_eq!(row.flow, None);
        }
        let datagrams = row(accelerated(Some(3), None), Some((KernelKind::Other, "UDP 127.0.0.1:53", 53)));
        assert_eq!(words(&datagrams), ("kernel", "UDP 127.0.0.1:53", "only TCP sockets are accelerated"));
    }

    #[test]
    fn a_connection_of_the_kernels_has_the_reason_that_libtoe_gave() {
        let label = json!({ "fd": 8, "accelerated": false, "reason": "kernel: the host has no route to this peer" });
        let ends = (KernelKind::Connected, "TCP 192.168.0.1:5000 to 1.1.1.1:80", 5000);
        assert_eq!(row(Some(label.clone()), Some(ends)).why, "the host has no route to this peer");
        assert!(row(None, Some(ends)).why.contains("where libtoe does not intercept"));
        assert_eq!(words(&row(Some(label), None)).0, "-");
    }

    #[test]
    fn connections_and_listeners_are_named_by_their_addresses() {
        let connection = row(accelerated(Some(3), None), None);
        let ends = "10.0.0.1:80 to 10.0.0.2:999, ESTABLISHED";
        assert_eq!((words(&connection), connection.flow), (("OpenTOE", ends, "its connection is flow 3"), Some(3)));
        let listener = row(accelerated(None, Some(7)), None);
        assert_eq!(words(&listener), ("OpenTOE", "0.0.0.0:6379, LISTEN", "listens on 0.0.0.0:6379"));
        let both = row(accelerated(None, Some(7)), Some((KernelKind::Listening, "TCP 0.0.0.0:6379, LISTEN", PORT)));
        assert_eq!(both.why, "listens on 0.0.0.0:6379, and in the kernel: TCP 0.0.0.0:6379");
        let bound = row(accelerated(None, Some(8)), None);
        assert_eq!(bound.why, "bound to 10.0.0.1:99, neither listening nor connected");
    }

    #[test]
    fn a_listener_that_is_gone_is_not_reported() {
        let kernel = Some((KernelKind::Listening, "TCP 0.0.0.0:80, LISTEN", 80));
        assert_eq!(words(&row(accelerated(None, Some(7)), kernel)).0, "kernel", "another port than was reported");
        assert_eq!(words(&row(accelerated(None, Some(9)), kernel)).0, "kernel", "no such local address any more");
        assert_eq!(words(&row(accelerated(None, Some(9)), None)).0, "-");
        assert!(row(accelerated(None, None), None).why.contains("is over"));
        let closed = json!({ "fd": 8, "accelerated": false, "reason": "undecided: it is neither bound nor connected" });
        assert!([None, Some(closed)].into_iter().all(|label| row(label, None).why.contains("decide")));
    }

    #[test]
    fn a_process_without_a_context_has_a_reason() {
        assert!(reason(Path::new("/proc/self")).contains("libtoe.so is not loaded"));
    }
}
