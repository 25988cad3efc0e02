//! The application grid's cases: Debian's own programs and three small ones of ours.
//!
//! A case starts a server on one side of a [`Lab`], drives it from the other side, and checks the result. That is a
//! hash, the content of replies, counts, no errors.
mod brokers;
mod bulk;
mod echo;
pub(crate) mod fabrics;
mod go;
mod http;
mod iperf;
mod memcached;
pub(crate) mod nginx;
mod passing;
mod posix;
pub(crate) mod postgres;
mod raw_packets;
pub(crate) mod redis;
mod requests;
mod rsockets;
mod rsync;
mod runtimes;
mod services;
mod socat;
mod ssh;
mod static_programs;
mod stdio;
mod storage;
pub(crate) mod verbs;
mod waiting;
pub(crate) mod wheels;
pub(crate) mod zero_copy_sends;

use crate::lab::Lab;
use crate::process::{Process, Session};
use crate::report::Outcome;
use std::cell::Cell;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One line of the grid.
pub struct Case {
    /// Its name, for the report and `--filter`.
    pub name: &'static str,
    /// Most seconds it may take.
    pub limit: u64,
    /// It belongs to the short form.
    pub short: bool,
    /// It needs a kernel on one side of a TAP device.
    pub kernel: bool,
    /// It needs RDMA on both sides.
    pub rdma: bool,
    /// It may run over either version of IP.
    pub either: bool,
    /// What it does.
    pub run: fn(&Bench) -> Outcome,
}

impl Case {
    /// It moves [`HUGE`].
    pub fn is_huge(&self) -> bool {
        self.name.starts_with("1 GB")
    }
}

const fn case(name: &'static str, run: fn(&Bench) -> Outcome) -> Case {
    Case { name, limit: 40, short: false, kernel: false, rdma: false, either: false, run }
}

const fn short(name: &'static str, run: fn(&Bench) -> Outcome) -> Case {
    Case { name, limit: 60, short: true, kernel: false, rdma: false, either: false, run }
}

const fn lossy(name: &'static str, run: fn(&Bench) -> Outcome) -> Case {
    Case { name, limit: 120, short: false, kernel: true, rdma: false, either: false, run }
}

const fn rdma(name: &'static str, run: fn(&Bench) -> Outcome) -> Case {
    Case { rdma: true, ..case(name, run) }
}

/// A case that may run over either version of IP.
const fn either(case: Case) -> Case {
    Case { either: true, ..case }
}

/// The whole grid, in the order of the report.
pub const ALL: &[Case] = &[
    either(short("memcached -t 1", memcached::one_thread)),
    either(case("memcached -t 4", memcached::four_threads)),
    either(case("redis-cli", redis::cli)),
    either(case("redis-benchmark", redis::benchmark)),
    either(case("redis-benchmark -P 16", redis::pipelined)),
    either(case("nginx, wrk keep-alive", nginx::keep_alive)),
    either(case("nginx, wrk connection per request", nginx::connection_per_request)),
    either(case("nginx, ab", nginx::ab)),
    either(case("nginx, ab keep-alive", nginx::ab_keep_alive)),
    either(short("nginx, 100 MB by curl", nginx::large_file)),
    either(case("nginx, reload under load", nginx::reload)),
    case("nginx, binary upgrade under load", nginx::upgrade),
    either(case("iperf3", iperf::forward)),
    either(case("iperf3 -R", iperf::reverse)),
    either(case("iperf3 -P 4", iperf::parallel)),
    either(case("iperf3 -P 4 -R", iperf::parallel_reverse)),
    either(short("curl", http::curl)),
    either(case("python3 http.server", http::module)),
    either(case("python3 asyncio streams", echo::asyncio)),
    either(case("socat fork", socat::fork)),
    either(case("socat EXEC", socat::exec)),
    either(case("socat EXEC nofork", socat::exec_nofork)),
    either(case("rsync", rsync::tree)),
    Case { limit: 80, ..either(case("OpenSSH", ssh::login)) },
    either(case("OpenSSH, sftp", ssh::sftp)),
    case("OpenSSH, -L and -R", ssh::forwarding),
    either(case("git daemon", stdio::git)),
    case("nuttcp", stdio::nuttcp),
    case("MSG_ZEROCOPY without a heap", zero_copy_sends::copies),
    case("Erlang gen_tcp", runtimes::erlang),
    either(case("Node.js http, connection per request", runtimes::node)),
    case("Open MPI, btl tcp", runtimes::open_mpi),
    case("Node.js cluster", passing::node_cluster),
    case("python3 multiprocessing, connections passed", passing::python),
    case("haproxy, reload under load", passing::haproxy),
    case("a parent polls a listener, its child accepts", passing::watching),
    case("a parent and its program wait for a connection", passing::two_waiters),
    case("vsftpd", services::vsftpd),
    case("python3 uvloop", services::uvloop),
    case("dovecot", services::dovecot),
    either(case("PostgreSQL, pgbench", postgres::pgbench)),
    case("gRPC, python3", brokers::grpc),
    Case { limit: 80, ..case("RabbitMQ, python3 pika", brokers::rabbitmq) },
    case("Go: scep, static", go::scep),
    case("Go: prometheus", go::prometheus),
    Case { limit: 150, ..case("Go: net/http, static", go::alone) },
    Case { limit: 150, ..case("Go: net/http, with cgo", go::with_c) },
    case("C with musl, static: echo", static_programs::musl),
    case("Rust, static: echo", static_programs::rust),
    either(case("socket calls, each as on the kernel", posix::calls)),
    either(case("1 GB to the server, python3 sendfile", bulk::put)),
    either(case("1 GB from the server, python3 sendfile", bulk::get)),
    lossy("1 GB to the server, 1% loss", bulk::put_lossy),
    lossy("1 GB from the server, 1% loss", bulk::get_lossy),
    either(case("100 MB, nc to socat", bulk::nc)),
    case("1 GB each way at once, stream", bulk::stream),
    case("fio to nbd_ram, freed out of order", storage::fio),
    case("nbdkit, nbdcopy", storage::nbdkit),
    case("echo 64 B, 64 connections, depth 4", echo::small),
    case("echo 20 kB, 8 connections, depth 3", echo::large),
    case("echo, 48 threads that block", echo::threads),
    case("opentoe run --wait-for", waiting::for_the_server),
    rdma("ibv_devices, ibv_devinfo -v", verbs::devices),
    rdma("ibstat, ibstatus: run --sysfs", verbs::sysfs),
    rdma("ibv_rc_pingpong -c", verbs::reliable),
    rdma("ibv_rc_pingpong -c -e", verbs::reliable_events),
    rdma("ibv_rc_pingpong -c -N -t", verbs::reliable_new_calls),
    rdma("ibv_uc_pingpong -c", verbs::unreliable),
    rdma("ibv_ud_pingpong -c", verbs::datagrams),
    rdma("ibv_srq_pingpong -c", verbs::shared_receives),
    rdma("ibv_srq_pingpong -c -e", verbs::shared_receives_events),
    rdma("ibv_xsrq_pingpong -c 3", verbs::extended),
    rdma("ibv_xsrq_pingpong -e", verbs::extended_events),
    rdma("ib_send_bw -a", verbs::send_bandwidth),
    rdma("ib_send_bw -e", verbs::send_bandwidth_events),
    rdma("ib_send_bw --use-srq -q 4", verbs::send_bandwidth_shared),
    rdma("ib_send_bw -b", verbs::send_bandwidth_both_ways),
    rdma("ib_send_lat -a", verbs::send_latency),
    rdma("ib_write_bw -a", verbs::write_bandwidth),
    rdma("ib_write_bw -b", verbs::write_bandwidth_both_ways),
    rdma("ib_write_lat -a", verbs::write_latency),
    rdma("ib_read_bw -a", verbs::read_bandwidth),
    rdma("ib_read_lat -a", verbs::read_latency),
    rdma("ib_atomic_bw", verbs::atomic_bandwidth),
    rdma("ib_atomic_lat", verbs::atomic_latency),
    rdma("perftest -c XRC", verbs::extended_perftest),
    rdma("XRC, each byte compared", verbs::extended_compared),
    rdma("raw_ethernet_bw", raw_packets::frames),
    rdma("raw_ethernet_bw, UDP", raw_packets::datagrams),
    rdma("raw_ethernet_fs_rate", raw_packets::rules),
    rdma("rping -V", verbs::rping),
    rdma("ucmatose", verbs::ucmatose),
    rdma("udaddy", verbs::udaddy),
    rdma("mckey", verbs::multicast),
    rdma("memory windows", verbs::windows),
    rdma("event channels destroyed", verbs::channels),
    rdma("rdma_server, rdma_client", verbs::endpoints),
    rdma("rstream -T v", rsockets::stream),
    rdma("rstream -T b -T v", rsockets::stream_blocking),
    rdma("rstream -T a -T v", rsockets::stream_polled),
    rdma("riostream -T v", rsockets::placed),
    rdma("rcopy", rsockets::copy),
    rdma("udpong -T n -T e", rsockets::datagrams),
    rdma("udpong -T b -T e", rsockets::datagrams_blocking),
    rdma("udpong -T a -T e", rsockets::datagrams_polled),
    rdma("udpong -T b", rsockets::datagrams_one_way),
    rdma("datagram rsockets, compared", rsockets::datagrams_compared),
    rdma("librspreload, curl", rsockets::curl),
    rdma("librspreload, iperf3", rsockets::iperf),
    rdma("librspreload, Python, datagrams", rsockets::python_datagrams),
    rdma("ucx_perftest rc_verbs tag_lat", fabrics::ucx_reliable_latency),
    rdma("ucx_perftest rc_verbs tag_bw", fabrics::ucx_reliable_bandwidth),
    rdma("ucx_perftest ud_verbs tag_lat", fabrics::ucx_datagrams_latency),
    rdma("ucx_perftest ud_verbs tag_bw", fabrics::ucx_datagrams_bandwidth),
    rdma("fi_pingpong -p verbs -e msg", fabrics::libfabric_connections),
    rdma("fi_pingpong -p verbs;ofi_rxm -e rdm", fabrics::libfabric_messages),
    rdma("Open MPI, UCX over verbs", runtimes::open_mpi_verbs),
    rdma("Mooncake's transfer engine, from PyPI", wheels::mooncake),
    rdma("NIXL, from PyPI", wheels::nixl),
    rdma("fio, engine rdma", storage::fio_rdma),
    rdma("ib_write_bw -R", verbs::write_bandwidth_managed),
    rdma("ib_send_lat -R", verbs::send_latency_managed),
];

/// What a case works with.
pub struct Bench<'a> {
    /// Runs programs.
    pub session: &'a Session,
    /// Where.
    pub lab: &'a Lab<'a>,
    /// Data to move.
    pub files: &'a Files,
    /// A port of the server's side that no case of this session used before.
    pub port: u16,
    /// Over IPv6.
    pub v6: bool,
}

impl<'a> Bench<'a> {
    /// One with a port that no case used before, over IPv4.
    pub fn new(session: &'a Session, lab: &'a Lab<'a>, files: &'a Files) -> Bench<'a> {
        Bench { session, lab, files, port: files.fresh_port(), v6: false }
    }

    /// The same place, with another port.
    pub fn on_another_port(&self) -> Bench<'a> {
        Bench { port: self.files.fresh_port(), ..*self }
    }

    /// Starts a server and waits until it listens.
    pub fn server(&self, command: Command, arguments: &[&str]) -> Result<Process<'a>, String> {
        self.server_on(self.port, command, arguments)
    }

    /// The same of a server that has a port of its own choice.
    pub fn server_on(&self, port: u16, mut command: Command, arguments: &[&str]) -> Result<Process<'a>, String> {
        command.args(arguments);
        let mut process = self.session.spawn(command)?;
        self.session.until("the server to listen", || {
            process.running()?;
            self.lab.listens(port)
        })?;
        Ok(process)
    }

    /// Starts one of the Python programs in `tests/peers` as server.
    pub fn python_server(&self, script: &str, arguments: &[&str]) -> Result<Process<'a>, String> {
        let script = self.files.path(script);
        self.server(self.lab.on_server(PYTHON), &[&[script.as_str()], arguments].concat())
    }

    /// A program of the tests' own, made once in a session: `compiler` gets the file to make.
    pub fn made(&self, name: &str, compiler: impl FnOnce(&str) -> Command) -> Outcome {
        let program = self.files.path(name);
        if !Path::new(&program).exists() {
            self.session.run(compiler(&program))?;
        }
        Ok(program)
    }

    /// Runs a client to its end; its standard output.
    pub fn client(&self, program: &str, arguments: &[&str]) -> Outcome {
        let mut command = self.lab.on_client(program);
        command.args(arguments);
        self.session.run(command)
    }

    /// Starts a client and returns at once.
    pub fn client_in_background(&self, program: &str, arguments: &[&str]) -> Result<Process<'a>, String> {
        let mut command = self.lab.on_client(program);
        command.args(arguments);
        self.session.spawn(command)
    }

    /// Runs one of the Python programs in `tests/peers` as client.
    pub fn python_client(&self, script: &str, arguments: &[&str]) -> Outcome {
        let script = self.files.path(script);
        self.client(PYTHON, &[&[script.as_str()], arguments].concat())
    }

    /// The server's address, for a command line.
    pub fn address(&self) -> String {
        if self.v6 { self.lab.server.address6.to_string() } else { self.lab.server.address.to_string() }
    }

    /// The same where something follows a colon (RFC 3986 section 3.2.2).
    pub fn authority(&self) -> String {
        if self.v6 { format!("[{}]", self.address()) } else { self.address() }
    }

    /// Any address of the server's side, for servers.
    pub fn any(&self) -> &'static str {
        if self.v6 { "::" } else { "0.0.0.0" }
    }

    /// One of two words: for IPv4 and for IPv6.
    pub fn by_family<T>(&self, v4: T, v6: T) -> T {
        if self.v6 { v6 } else { v4 }
    }

    /// The port, for a command line.
    pub fn port(&self) -> String {
        self.port.to_string()
    }

    /// The URL of something on the server.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}:{}/{path}", self.authority(), self.port)
    }
}

/// Debian's Python, not one that a developer may have in front of it.
pub const PYTHON: &str = "/usr/bin/python3";
/// Name of the small file to move.
pub const SMALL: &str = "small.bin";
/// 100 MB.
pub const LARGE: &str = "100m.bin";
/// 1 GB and a bit, so that nothing divides it.
pub const HUGE: &str = "1g.bin";

/// Files to move, made once in a session, and their SHA-256.
pub struct Files {
    dir: PathBuf,
    digests: Vec<(&'static str, String)>,
    next_port: Cell<u16>,
}

impl Files {
    /// Writes the Python programs and the files to move; the huge one only where it is wanted.
    pub fn new(session: &Session, huge: bool) -> Result<Files, String> {
        let dir = session.dir().join("files");
        let mut files = Files { dir, digests: Vec::new(), next_port: Cell::new(20000) };
        fs::create_dir_all(&files.dir).map_err(|error| error.to_string())?;
        for (name, text) in [
            ("memcached_client.py", include_str!("../peers/memcached_client.py")),
            ("amqp.py", include_str!("../peers/amqp.py")),
            ("asyncio_echo.py", include_str!("../peers/asyncio_echo.py")),
            ("bulk.py", include_str!("../peers/bulk.py")),
            ("rsocket_http.py", include_str!("../peers/rsocket_http.py")),
            ("rsocket_datagrams.py", include_str!("../peers/rsocket_datagrams.py")),
            ("grpc_calls.py", include_str!("../peers/grpc_calls.py")),
            ("frames.py", include_str!("../peers/frames.py")),
            ("neighbour.py", include_str!("../peers/neighbour.py")),
            ("roce.py", include_str!("../peers/roce.py")),
            ("sockets.py", include_str!("../peers/sockets.py")),
            ("fast_open.py", include_str!("../peers/fast_open.py")),
            ("joined.py", include_str!("../peers/joined.py")),
            ("mooncake_transfer.py", include_str!("../peers/mooncake_transfer.py")),
            ("nixl_transfer.py", include_str!("../peers/nixl_transfer.py")),
            ("unknown_peers.py", include_str!("../peers/unknown_peers.py")),
            ("http_put.py", include_str!("../peers/http_put.py")),
            ("passing.py", include_str!("../peers/passing.py")),
            ("watching.py", include_str!("../peers/watching.py")),
            ("two_waiters.py", include_str!("../peers/two_waiters.py")),
        ] {
            fs::write(files.dir.join(name), text).map_err(|error| error.to_string())?;
        }
        let lengths = [(SMALL, 1000), (LARGE, 100_000_000), (HUGE, 1_000_000_007)];
        for (name, length) in lengths.into_iter().filter(|(name, _)| huge || *name != HUGE) {
            write_random(&files.dir.join(name), length).map_err(|error| format!("{name}: {error}"))?;
            files.digests.push((name, sha256(session, &files.dir.join(name))?));
        }
        Ok(files)
    }

    /// Path of one, for a command line.
    pub fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    /// The folder, for servers that serve all of it.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// SHA-256 in hexadecimal.
    pub fn digest(&self, name: &str) -> &str {
        self.digests.iter().find(|(known, _)| *known == name).map_or("", |(_, digest)| digest)
    }

    /// An error unless `found` is the digest of `name`.
    pub fn expect(&self, name: &str, found: &str) -> Result<(), String> {
        match found.split_whitespace().next() {
            Some(digest) if digest == self.digest(name) => Ok(()),
            other => Err(format!("SHA-256 is {}, not {}", other.unwrap_or("missing"), self.digest(name))),
        }
    }

    /// A port that was not used before.
    pub fn fresh_port(&self) -> u16 {
        self.next_port.replace(self.next_port.get() + 1)
    }
}

/// Bytes of xorshift64: the same in each run, and no two places alike.
fn write_random(path: &Path, length: usize) -> std::io::Result<()> {
    let mut file = std::io::BufWriter::with_capacity(1 << 20, fs::File::create(path)?);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut block = [0u8; 8192];
    let mut remaining = length;
    while remaining > 0 {
        for word in block.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        let count = remaining.min(block.len());
        file.write_all(&block[..count])?;
        remaining -= count;
    }
    file.flush()
}

/// Path of one of our own example programs: they lie beside the drivers' build.
pub(crate) fn app(name: &str) -> String {
    let driver = std::env::current_exe().unwrap_or_default();
    let target = driver.ancestors().nth(2).unwrap_or(Path::new("target"));
    target.join("apps").join(name).display().to_string()
}

fn sha256(session: &Session, path: &Path) -> Result<String, String> {
    let mut command = Command::new("sha256sum");
    command.arg(path);
    let output = session.run(command)?;
    output.split_whitespace().next().map(String::from).ok_or("sha256sum printed nothing".into())
}

/// The number after `label` in a program's output.
pub fn number_after(output: &str, label: &str) -> Result<f64, String> {
    let (_, rest) = output.split_once(label).ok_or_else(|| format!("no '{label}' in the output"))?;
    let word = rest.split_whitespace().next().unwrap_or_default();
    word.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().map_err(|_| format!("'{label}' is '{word}'"))
}
