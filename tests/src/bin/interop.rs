//! RDMA between OpenTOE and Linux' own rxe, in a virtual machine: one line each, the count at the end.
use std::net::Ipv4Addr;
use std::time::Duration;
use tests::guest::{self, Guest};
use tests::lab::{DEVICE, Lab, Link};
use tests::leaks::Before;
use tests::process::{Process, Session};
use tests::report::{Outcome, Report};
use tests::{network, process};

const USAGE: &str = "usage: interop [--filter TEXT] [--list]
Runs Debian's RDMA programs between OpenTOE and Linux' rxe in a virtual machine, both ways.
  --filter TEXT    only the cases whose name contains TEXT
  --list           print the cases and run nothing";

/// Making the guest's files and booting it, in software emulation and beside other programs.
const BOOT_LIMIT: Duration = Duration::from_secs(180);
/// A case: the guest is slow.
const LIMIT: Duration = Duration::from_secs(90);
/// Datagrams that find the way for others at most.
const MOST_PLAIN: u64 = 20;
/// Tries of what Debian's program itself may fail.
const TRIES: u16 = 6;
/// The group of `mckey`, as `/proc/net/igmp` has it: in the order of its bytes in memory.
const GROUP: &str = "4A0107EF";
/// The kernel's own address on the link.
const NEAR: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);

/// A program, the options of both sides, and how a side gets its own address and its peer's.
struct Case {
    name: &'static str,
    program: &'static str,
    options: &'static str,
    ends: Ends,
}

/// How a program gets the addresses.
#[derive(Clone, Copy)]
enum Ends {
    /// It is a client where it gets a server's address.
    Peer,
    /// `-s`, or `-c`; the server's address with `-a`.
    Rping,
    /// The server's address: its own with `-b`, the peer's with `-s`.
    Bound,
    /// The same, of a program that has a port of its own.
    Fixed(u16),
    /// The same as `Bound`, of datagram rsockets: the server goes on when its client has ended. Linux' side needs
    /// `tests/guest/own_handles.c`. (With `-T e`, `udpong` repeats an old message for ever once one is lost.)
    Lasting,
    /// A group's address: the side without `-s` receives, and is there first.
    Group,
    /// A word, the server's address, its port: a program that is compiled for the guest, again of datagram rsockets.
    /// Its client tries what Linux' librdmacm does not promise.
    Words,
}

const fn case(name: &'static str, program: &'static str, options: &'static str) -> Case {
    Case { name, program, options, ends: Ends::Peer }
}

/// With connection management, and addresses as the program has them.
const fn managed(name: &'static str, program: &'static str, options: &'static str, ends: Ends) -> Case {
    Case { name, program, options, ends }
}

const CASES: &[Case] = &[
    case("RC pingpong", "ibv_rc_pingpong", "-g 1 -c -n 200"),
    case("RC pingpong, 64 KiB, MTU 1024", "ibv_rc_pingpong", "-g 1 -c -n 50 -s 65536 -m 1024"),
    case("RC pingpong with events", "ibv_rc_pingpong", "-g 1 -c -e -n 100"),
    case("UC pingpong", "ibv_uc_pingpong", "-g 1 -c -n 200"),
    case("UD pingpong", "ibv_ud_pingpong", "-g 1 -c -n 200 -s 1000"),
    case("SRQ pingpong", "ibv_srq_pingpong", "-g 1 -c -n 20 -q 4"),
    case("SEND", "ib_send_bw", "-x 1 -F -n 200 -s 5000"),
    case("WRITE, all sizes", "ib_write_bw", "-x 1 -F -n 20 -a"),
    case("READ, all sizes", "ib_read_bw", "-x 1 -F -n 20 -a"),
    case("fetch and add", "ib_atomic_bw", "-x 1 -F -n 200 -A FETCH_AND_ADD"),
    case("compare and swap", "ib_atomic_bw", "-x 1 -F -n 200 -A CMP_AND_SWAP"),
    case("SEND of datagrams", "ib_send_bw", "-x 1 -F -c UD -n 200 -s 1000"),
    managed("CM: rping", "rping", "-V -v -C 20 -S 1000", Ends::Rping),
    managed("CM: ucmatose, 8 connections", "ucmatose", "-c 8 -C 5 -S 500", Ends::Bound),
    managed("CM: udaddy (SIDR)", "udaddy", "-c 4 -C 5 -S 500", Ends::Fixed(7174)),
    case("CM: WRITE, perftest -R", "ib_write_bw", "-R -F -n 100 -s 5000"),
    case("CM: SEND, perftest -R", "ib_send_bw", "-R -F -n 100 -s 5000"),
    managed("multicast: mckey", "mckey", "-m 239.7.1.74 -C 20 -S 1000", Ends::Group),
    managed("datagram rsockets: udpong -T b", "udpong", "-T b -S 1000 -C 2000", Ends::Lasting),
    managed("datagram rsockets: udpong -T a", "udpong", "-T a -S 64 -C 2000", Ends::Lasting),
    managed("datagram rsockets: each byte compared", "datagrams", "", Ends::Words),
];

fn main() {
    let mut words = std::env::args().skip(1);
    let (mut filter, mut list) = (String::new(), false);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--filter" => filter = words.next().unwrap_or_default(),
            "--list" => list = true,
            "--help" | "-h" => return println!("{USAGE}"),
            other => {
                eprintln!("interop: unknown option {other}\n{USAGE}");
                std::process::exit(2);
            }
        }
    }
    if list {
        return CASES.iter().for_each(|case| println!("{}", case.name));
    }
    match run(&filter) {
        Ok(true) => {}
        Ok(false) => std::process::exit(1),
        Err(error) => {
            eprintln!("interop: {error}");
            std::process::exit(1);
        }
    }
}

fn run(filter: &str) -> Result<bool, String> {
    network::sweep();
    process::sweep();
    let session = Session::new()?;
    let mut report = Report::default();
    let before = Before::snapshot();
    session.begin_case(BOOT_LIMIT);
    let lab = Lab::new(&session, Link::TapServer, "flextoe")?;
    let guest = Guest::boot(&session, &lab.near, DEVICE, NEAR, lab.client.address)?;
    for (number, case) in CASES.iter().filter(|case| case.name.contains(filter)).enumerate() {
        let port = 20_000 + 2 * number as u16;
        let bench = Bench { session: &session, lab: &lab, guest: &guest };
        if !matches!(case.ends, Ends::Words) {
            let name = format!("client in Linux  {}", case.name);
            report.case(&session, &name, LIMIT, || explained(&guest, bench.serve(case, port)));
        }
        report.case(&session, &format!("server in Linux  {}", case.name), LIMIT, || {
            let call = || bench.again(case, port + 1, |port| bench.call(case, port));
            explained(&guest, bench.by_queue_pairs(case, call))
        });
    }
    drop(guest);
    report.case(&session, "nothing left behind", LIMIT, || end(&session, lab, &before));
    Ok(report.finish(&session))
}

/// A failure, and what the guest's kernel printed.
fn explained(guest: &Guest, outcome: Outcome) -> Outcome {
    outcome.map_err(|error| error + &guest.complaint())
}

fn end(session: &Session, mut lab: Lab, before: &Before) -> Outcome {
    let daemon = lab.daemon.take().map_or(Ok(String::new()), |daemon| daemon.finish(session));
    drop(lab);
    let machine = before.compare()?;
    daemon.map(|words| format!("{words}; {machine}"))
}

struct Bench<'a, 'g> {
    session: &'a Session,
    lab: &'a Lab<'a>,
    guest: &'g Guest<'a>,
}

impl Case {
    /// Arguments of the server at this address.
    fn serving(&self, port: u16, own: Ipv4Addr) -> String {
        match self.ends {
            Ends::Peer => format!("{} -p {port}", self.options),
            Ends::Rping => format!("-s -a {own} {} -p {port}", self.options),
            Ends::Bound | Ends::Lasting => format!("-b {own} {} -p {port}", self.options),
            Ends::Fixed(_) | Ends::Group => format!("-b {own} {}", self.options),
            Ends::Words => format!("serve {own} {port}"),
        }
    }

    /// The program in the guest.
    fn in_guest(&self) -> String {
        let before = if self.is_of_datagrams() { "LD_PRELOAD=/own_handles.so " } else { "" };
        format!("{before}{}", self.program())
    }

    fn program(&self) -> String {
        match self.ends {
            Ends::Words => guest::folder().join(self.program).display().to_string(),
            _ => self.program.into(),
        }
    }

    /// It is one of datagram rsockets.
    fn is_of_datagrams(&self) -> bool {
        matches!(self.ends, Ends::Lasting | Ends::Words)
    }

    /// The port on which its server listens.
    fn port(&self, given: u16) -> u16 {
        if let Ends::Fixed(port) = self.ends { port } else { given }
    }

    /// Arguments of the client of this address; `own` is its own.
    fn calling(&self, port: u16, address: Ipv4Addr, own: Ipv4Addr) -> String {
        match self.ends {
            Ends::Peer => format!("{} -p {port} {address}", self.options),
            Ends::Rping => format!("-c -a {address} {} -p {port}", self.options),
            Ends::Bound | Ends::Lasting => format!("-s {address} {} -p {port}", self.options),
            Ends::Fixed(_) => format!("-s {address} {}", self.options),
            Ends::Group => format!("-b {own} {} -s", self.options),
            Ends::Words => format!("ask {address} {port}"),
        }
    }
}

impl<'a> Bench<'a, '_> {
    /// The server on OpenTOE, the client in the guest.
    fn serve(&self, case: &Case, port: u16) -> Outcome {
        let mut server = self.start(case, &case.serving(port, self.lab.server.address))?;
        self.session.until("the server to listen", || {
            server.running()?;
            match case.ends {
                Ends::Group => self.has_datagrams(),
                _ => self.lab.listens(case.port(port)),
            }
        })?;
        let calling = case.calling(port, self.lab.server.address, self.guest.address);
        let printed = self.guest.run(&format!("{} {calling}", case.in_guest()))?;
        match case.ends {
            Ends::Lasting => server.running().map(|()| summary(&printed)),
            _ => server.succeed().map(|printed| summary(&printed)),
        }
    }

    /// The server in the guest, the client on OpenTOE.
    fn call(&self, case: &Case, port: u16) -> Outcome {
        let serve = format!("{} {}", case.in_guest(), case.serving(port, self.guest.address));
        let lasts = matches!(case.ends, Ends::Lasting);
        let mut server =
            self.guest.start(&if lasts { format!("{serve} & echo $! >/tmp/server; wait; true") } else { serve })?;
        self.session.until("the server to listen", || match case.ends {
            Ends::Group => self.guest.is_member(GROUP),
            _ => self.guest.listens(case.port(port)),
        })?;
        let mut client = self.start(case, &case.calling(port, self.guest.address, self.lab.server.address))?;
        let printed = client.succeed()?;
        if lasts {
            self.guest.run("kill $(cat /tmp/server)")?;
        }
        server.succeed()?;
        Ok(summary(&printed))
    }

    /// A program on OpenTOE has a queue pair of datagrams.
    fn has_datagrams(&self) -> Result<bool, String> {
        let daemon = self.lab.daemon.as_ref().ok_or("there is no daemon")?;
        Ok(daemon.ask("ls")?["hosts"].to_string().contains("\"UD\""))
    }

    /// perftest's `-R` closes its listener, and opens it again a second later on the same port; its client waits for a
    /// second, too. A client that comes first is refused by Linux, and perftest then uses an identifier that it has
    /// freed. So such a case is tried again.
    fn again<T>(&self, case: &Case, port: u16, run: impl Fn(u16) -> Result<T, String>) -> Result<T, String> {
        let tries = if case.options.starts_with("-R") { TRIES } else { 1 };
        let mut last = run(port);
        for attempt in 1..tries {
            if last.is_ok() {
                break;
            }
            last = run(port + 1000 * attempt);
        }
        last
    }

    /// Datagram rsockets use plain UDP to find each other, and then no more: each such datagram of OpenTOE's is
    /// answered by one of the guest's. The guest itself is slow to make an address handle, and sends many more until it
    /// has one.
    fn by_queue_pairs(&self, case: &Case, run: impl FnOnce() -> Outcome) -> Outcome {
        if !case.is_of_datagrams() {
            return run();
        }
        let sent = || -> Result<u64, String> {
            let printed = self.guest.run("awk '/^Udp: [0-9]/ { print $5 }' /proc/net/snmp")?;
            printed.trim().parse().map_err(|_| format!("/proc/net/snmp: {printed}"))
        };
        let before = sent()?;
        let outcome = run()?;
        match sent()? - before {
            count @ 1..=MOST_PLAIN => Ok(format!("{outcome}, {count} by UDP")),
            count => Err(format!("{count} datagrams went by UDP")),
        }
    }

    fn start(&self, case: &Case, arguments: &str) -> Result<Process<'a>, String> {
        let mut command = self.lab.on_server(&case.program());
        command.args(arguments.split_whitespace());
        self.session.spawn(command)
    }
}

/// The program's line of figures.
fn summary(printed: &str) -> String {
    let mut lines = printed.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('-'));
    lines.next_back().unwrap_or_default().trim().into()
}
