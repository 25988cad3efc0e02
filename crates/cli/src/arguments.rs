//! The command line.
mod offload;
mod p4;
mod top;

pub(crate) use offload::*;
pub(crate) use p4::*;
pub(crate) use top::*;

use crate::private_daemon::PrivateArguments;
use clap::{Args, Parser, Subcommand};
use context::attach;
use port::capture::{Direction, SNAPLEN};
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

/// OpenTOE: runs unmodified programs on a TCP data-path of their own.
#[derive(Parser)]
#[command(
    name = "opentoe",
    version,
    propagate_version = true,
    after_help = "Examples:
  opentoe doctor                             what this machine offers
  opentoe demo                               memcached, redis and nginx on OpenTOE and on the kernel
  opentoe run -- redis-server --protected-mode no
  opentoe ls                                 what is running there"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Run a program on OpenTOE
    #[command(
        after_help = "Where a daemon is running, the program attaches to it. Otherwise one is started: a host on an
embedded fabric, joined to the kernel by a TAP device where the privilege is there. Programs that the same user starts
in the same network namespace share it, and it ends some seconds after the last of them. The exit status is the
program's; it is 1 where the program was not started.

Examples:
  opentoe run -- memcached -l 0.0.0.0 -u nobody
  opentoe run --host a -- redis-server --protected-mode no
  opentoe run --wait-for 127.0.0.1:6379 redis-benchmark -t get,set
  opentoe run --config config/lab.toml --host b -- curl http://10.77.0.2/"
    )]
    Run(RunArguments),
    /// Run real programs on OpenTOE and on the kernel, side by side
    #[command(after_help = "Needs root: it makes network namespaces of its own, which go when it ends.

Examples:
  opentoe demo
  opentoe demo --only redis --json demo.json")]
    Demo(DemoArguments),
    /// Measure: the same programs on OpenTOE and on the kernel, and the papers' experiments
    #[command(after_help = "Needs root: it makes network namespaces of its own, which go when it ends.

Examples:
  opentoe bench echo --conns 1,128 --linux cubic,polling
  opentoe bench stream --size 1448,65536 --port fabric,tap --pairs 3
  opentoe bench all --directory results; opentoe bench report results
  opentoe bench incast --json incast.json --plots plots
  opentoe bench paper; opentoe bench paper flextoe-figure-15")]
    Bench {
        #[command(subcommand)]
        case: bench::command::Verb,
    },
    /// List hosts, attached programs, connections and listeners
    #[command(after_help = "Examples:
  opentoe ls
  opentoe ls --host a
  opentoe ls --json | jq '.hosts[].flows[]'")]
    Ls(LsArguments),
    /// Show counters
    #[command(after_help = "Examples:
  opentoe stats
  opentoe stats --host a --flow 3
  opentoe stats --enable 'flextoe.protocol.*'      count these tracepoints from now on
  opentoe stats --trace                            what tracepoints counted")]
    Stats(StatsArguments),
    /// Explain what was dropped, and why a socket is or is not accelerated
    #[command(after_help = "Examples:
  opentoe why                  what was dropped, by reason
  opentoe why 4711             sockets of process 4711, and its connections of toe_comm_*
  opentoe why 4711 8           its descriptor 8
  opentoe why --flow 3         what a connection is waiting for")]
    Why(WhyArguments),
    /// Watch hosts, modules, drops and connections live
    #[command(after_help = "Keys: q ends, s sorts, h shows the next host, / filters, p pauses, ? explains the columns.
With --once one picture is printed as text, with --json one object a line; rates are over the interval.

Examples:
  opentoe top
  opentoe top --host a --sort rtt
  opentoe top --once --filter redis
  opentoe top --json --interval 5 | jq '.hosts[].rx_bits'")]
    Top(TopArguments),
    /// Stream tracepoints: what happens inside, as it happens
    #[command(after_help = "PATTERN is a name, in which * and ? stand for any characters, or a part such as
flextoe.protocol; all where there is none. One line a record: time in UTC, host, flow with its addresses, name, arguments.
What was turned on is off again when this ends, however it ends. A reader that is too slow misses records, is shown how
many, and holds nobody up. docs/TRACEPOINTS.md explains all tracepoints.

Examples:
  opentoe trace --list
  opentoe trace '*.dropped' control.handshake
  opentoe trace flextoe.protocol --host a --flow 3 --seconds 5
  opentoe trace control.congestion.window --json | jq .args.cwnd")]
    Trace(TraceArguments),
    /// Capture frames as they pass, with what became of each
    #[command(
        after_help = "FILTER is tcpdump's language (man pcap-filter). Without --write one line a frame is printed:
time in UTC, host, direction, the packet with absolute sequence numbers, and in brackets its flow, the module,
and what became of it. Frames are captured where they leave the data-path, so those that it dropped are there too, with
the reason; what the emulated network dropped comes from an interface of its own. Checksums that are left to the port
are completed in the copy. Ends on Ctrl-C; exit status 2 where the filter does not parse.

Examples:
  opentoe pcap tcp port 80
  opentoe pcap --dropped --host a
  opentoe pcap --flow 3 -c 100 -w flow3.pcapng
  opentoe pcap -w - 'tcp[tcpflags] & tcp-rst != 0' | wireshark -k -i -"
    )]
    Pcap(PcapArguments),
    /// Add modules to the data-path of a running daemon, list them, take them out
    #[command(
        after_help = "A module is an eBPF object made by clang (SEC(\"xdp\") or SEC(\"xdp.frags\") for received frames,
SEC(\"xdp/devmap\") for frames that leave), or one that is built in: native:meter, native:classifier. Changes take
effect at once, under traffic; where something is refused, nothing changes.

Examples:
  opentoe xdp load firewall.o --position 10
  opentoe xdp ls
  opentoe xdp map set firewall rules 192.0.2.0/24 '{\"action\": 1}'
  opentoe xdp map dump firewall rules --json
  opentoe xdp unload firewall"
    )]
    Xdp(XdpArguments),
    /// Load functions that run beside the transport of verbs, and list them
    #[command(after_help = "An engine is started by the program opentoe-offload; docs/OFFLOAD.md has everything.

Examples:
  opentoe offload load target/offload/list.so
  opentoe offload ls
  opentoe offload unload list")]
    Offload(OffloadArguments),
    /// Check P4 programs for match-action pipelines, run changed ones, and show their registers
    P4(P4Arguments),
    /// Replay or search simulated faults by seed
    #[command(
        disable_help_flag = true,
        disable_version_flag = true,
        after_help = "Runs the program opentoe-sim, which stands beside opentoe; `opentoe sim --help` shows its options.

Examples:
  opentoe sim --seed 4711                    that scenario again
  opentoe sim --hours 8 --jobs 2             go on searching, with a progress line"
    )]
    Sim(SimArguments),
    /// Show what this machine offers, what is missing, and what to do about it
    Doctor(DoctorArguments),
    /// Print what a shell needs to complete this command's words
    #[command(after_help = "Examples:
  opentoe completions bash > /etc/bash_completion.d/opentoe
  opentoe completions fish > ~/.config/fish/completions/opentoe.fish")]
    Completions(CompletionsArguments),
    /// Write the manual pages
    #[command(hide = true)]
    Manual(ManualArguments),
    /// The daemon of one program
    #[command(hide = true)]
    PrivateDaemon(PrivateArguments),
    /// A small load for memcached
    #[command(hide = true)]
    Memload(MemloadArguments),
}

#[derive(Args)]
pub(crate) struct SocketArguments {
    /// The daemon's attach socket; otherwise $TOE_SOCKET, $XDG_RUNTIME_DIR/toe/toed.sock, /run/toe/toed.sock, or the
    /// only daemon of opentoe run
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct CompletionsArguments {
    /// Which one
    pub shell: clap_complete::Shell,
}

#[derive(Args)]
pub(crate) struct ManualArguments {
    /// Where they go
    pub directory: PathBuf,
}

#[derive(Args)]
pub(crate) struct RunArguments {
    /// Host to attach to; otherwise the daemon's first
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Engine of a daemon that is started for it; otherwise flextoe, with --backend laminar
    #[arg(long, value_name = "ENGINE")]
    pub engine: Option<String>,
    /// What runs the P4 program of its engine: the processor, or its RTL, simulated (docs/RTL.md)
    #[arg(long, value_name = "BACKEND", value_parser = ["native", "rtl"])]
    pub backend: Option<String>,
    /// Write the waveform of its simulated RTL to this file (VCD), from a new daemon that later programs join
    #[arg(long, value_name = "FILE", requires = "backend", conflicts_with_all = ["socket", "config"])]
    pub waveform: Option<PathBuf>,
    /// Start a daemon for this program alone, whatever runs already
    #[arg(long, conflicts_with = "socket")]
    pub private: bool,
    /// Start a private daemon with this configuration
    #[arg(long, value_name = "FILE", conflicts_with_all = ["socket", "engine", "backend"])]
    pub config: Option<PathBuf>,
    /// Start a private daemon with this network; otherwise the first of 10.77.0.0/24, 10.77.1.0/24, ... that is free
    #[arg(long, value_name = "NETWORK/24", conflicts_with_all = ["socket", "config"])]
    pub network: Option<String>,
    /// Start the program once something listens at this address, on a host of the daemon or on the kernel (may be
    /// repeated)
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = endpoint)]
    pub wait_for: Vec<SocketAddr>,
    /// How long --wait-for waits at most; then the program is not started
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub wait_limit: u64,
    /// Where calls are seen: only at the C library's functions, at system calls as well (docs/SYSTEM-CALLS.md), or as
    /// each program needs it: static programs and those in Go the latter, all others the former
    #[arg(long, value_name = "LAYER", value_parser = attach::LAYERS, default_value = attach::AUTO)]
    pub intercept: String,
    /// Show the host's RDMA device below /sys/class/infiniband, for programs that read it themselves (ibstat)
    #[arg(long)]
    pub sysfs: bool,
    /// The same, in the namespace that was made for it
    #[arg(long, hide = true)]
    pub in_namespace: bool,
    /// Large allocations lie where received bytes can land directly, on a host whose configuration has
    /// memory.heap_bytes (docs/ZERONIC.md)
    #[arg(long)]
    pub heap: bool,
    /// libtoe.so, where it is not beside this program
    #[arg(long, value_name = "FILE")]
    pub lib: Option<PathBuf>,
    /// Print nothing about the daemon that was started or joined
    #[arg(long, short)]
    pub quiet: bool,
    #[command(flatten)]
    pub daemon: SocketArguments,
    /// The program and its arguments; what follows its name is its own
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// An address and a port. Of a name that has several addresses the first of IPv4 counts, since OpenTOE serves those.
fn endpoint(word: &str) -> Result<SocketAddr, String> {
    let addresses: Vec<SocketAddr> = word.to_socket_addrs().into_iter().flatten().collect();
    let first = addresses.iter().find(|address| address.is_ipv4()).or(addresses.first());
    first.copied().ok_or_else(|| "it is an address and a port, such as 127.0.0.1:6379".into())
}

#[derive(Args)]
pub(crate) struct DemoArguments {
    /// Only this program: memcached, redis or nginx (may be repeated)
    #[arg(long, value_name = "PROGRAM")]
    pub only: Vec<String>,
    /// Seconds that each measurement takes
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=60))]
    pub seconds: u32,
    /// Also write the results to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// libtoe.so, where it is not beside this program
    #[arg(long, value_name = "FILE")]
    pub lib: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct LsArguments {
    #[command(flatten)]
    pub daemon: SocketArguments,
    /// Only this host
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// All connections, however many, and those in TIME-WAIT
    #[arg(long, short)]
    pub all: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub(crate) struct StatsArguments {
    #[command(flatten)]
    pub daemon: SocketArguments,
    /// Only this host
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Only this connection, by the number in opentoe ls
    #[arg(long, value_name = "NUMBER")]
    pub flow: Option<u32>,
    /// What tracepoints counted and measured, instead
    #[arg(long, conflicts_with = "flow")]
    pub trace: bool,
    /// Also counters that are 0
    #[arg(long)]
    pub all: bool,
    /// Count these tracepoints from now on, and show them (may be repeated)
    #[arg(long, value_name = "PATTERN", conflicts_with = "flow")]
    pub enable: Vec<String>,
    /// Count these tracepoints no longer (may be repeated)
    #[arg(long, value_name = "PATTERN", conflicts_with = "flow")]
    pub disable: Vec<String>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub(crate) struct TraceArguments {
    #[command(flatten)]
    pub daemon: SocketArguments,
    /// Which tracepoints
    #[arg(value_name = "PATTERN")]
    pub patterns: Vec<String>,
    /// List tracepoints, with their meaning, instead
    #[arg(long)]
    pub list: bool,
    /// Only this host
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Only this connection, by the number in opentoe ls
    #[arg(long, value_name = "NUMBER")]
    pub flow: Option<u32>,
    /// End after so many records
    #[arg(long, short, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// End after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: Option<u64>,
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub(crate) struct WhyArguments {
    #[command(flatten)]
    pub daemon: SocketArguments,
    /// Process
    #[arg(value_name = "PID")]
    pub pid: Option<i32>,
    /// Its file descriptor; all of them without
    #[arg(value_name = "FD")]
    pub fd: Option<u32>,
    /// A connection, by the number in opentoe ls
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["pid", "fd"])]
    pub flow: Option<u32>,
    /// Only of this host
    #[arg(long, value_name = "NAME", conflicts_with_all = ["pid", "fd"])]
    pub host: Option<String>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub(crate) struct PcapArguments {
    #[command(flatten)]
    pub daemon: SocketArguments,
    /// Which frames, in tcpdump's language; all by default
    #[arg(value_name = "FILTER")]
    pub filter: Vec<String>,
    /// Write to this file (pcapng), or with - to standard output
    #[arg(long, short, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Only of this host
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Only of this connection, by the number in opentoe ls
    #[arg(long, value_name = "NUMBER")]
    pub flow: Option<u32>,
    /// Only frames that were dropped
    #[arg(long)]
    pub dropped: bool,
    /// End after so many frames
    #[arg(long, short, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Most bytes to keep of each frame
    #[arg(long, short, value_name = "BYTES", default_value_t = SNAPLEN, value_parser = clap::value_parser!(u32).range(14..=i64::from(SNAPLEN)))]
    pub snaplen: u32,
    /// Only frames that were received, or sent
    #[arg(long, value_name = "in|out", value_parser = direction)]
    pub direction: Option<Direction>,
}

fn direction(word: &str) -> Result<Direction, String> {
    match word {
        "in" => Ok(Direction::In),
        "out" => Ok(Direction::Out),
        _ => Err("it is `in` or `out`".into()),
    }
}

#[derive(Args)]
pub(crate) struct XdpArguments {
    #[command(flatten)]
    pub daemon: GlobalSocket,
    /// On this host; it may be left out where only one is meant
    #[arg(long, value_name = "NAME", global = true)]
    pub host: Option<String>,
    /// As JSON
    #[arg(long, global = true)]
    pub json: bool,
    #[command(subcommand)]
    pub verb: XdpVerb,
}

#[derive(Args)]
pub(crate) struct GlobalSocket {
    /// The daemon's attach socket; otherwise $TOE_SOCKET, $XDG_RUNTIME_DIR/toe/toed.sock, /run/toe/toed.sock, or the
    /// only daemon of opentoe run
    #[arg(long, value_name = "PATH", global = true)]
    pub socket: Option<PathBuf>,
}

#[derive(Subcommand)]
pub(crate) enum XdpVerb {
    /// Load a module
    #[command(after_help = "Two modules of a host cannot have one name: load the second one with --name.

Examples:
  opentoe xdp load null.o
  opentoe xdp load firewall.o --host a --position 5 --name edge
  opentoe xdp load lesson.o --program xdp_drop_func     of an object with several, as libxdp's
  opentoe xdp load native:meter")]
    Load {
        /// The object, or native:NAME
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Call it so; otherwise as its function is called
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// The function to load; it may be left out where the object has one program
        #[arg(long, value_name = "FUNCTION")]
        program: Option<String>,
        /// Modules of a stage run in the order of their positions; otherwise it runs last
        #[arg(long, value_name = "NUMBER")]
        position: Option<u32>,
    },
    /// List modules: where they stand, frames seen, time for each, verdicts
    Ls,
    /// Show a module's maps, and change them
    #[command(
        after_help = "Keys and values are written as numbers, as IPv4 addresses or prefixes, as bytes in hexadecimal
(0x0a000001), or as JSON by the names in the module's source; members that are left out keep what they had.

Examples:
  opentoe xdp map ls firewall
  opentoe xdp map dump firewall rules
  opentoe xdp map set firewall rules 192.0.2.0/24 '{\"action\": 1}'
  opentoe xdp map get classify classes 2
  opentoe xdp map delete firewall rules 192.0.2.0/24"
    )]
    Map {
        #[command(subcommand)]
        verb: MapVerb,
    },
    /// Unload a module
    Unload {
        /// Its name, as opentoe xdp ls shows it
        module: String,
    },
}

#[derive(Clone, Subcommand)]
pub(crate) enum MapVerb {
    /// List a module's maps
    Ls {
        /// The module's name
        module: String,
    },
    /// Print all entries of a map
    Dump {
        /// The module's name
        module: String,
        /// The map's
        map: String,
    },
    /// Print one entry's value
    Get {
        /// The module's name
        module: String,
        /// The map's
        map: String,
        /// Which entry
        key: String,
    },
    /// Add or replace an entry
    Set {
        /// The module's name
        module: String,
        /// The map's
        map: String,
        /// Which entry
        key: String,
        /// What it is to be
        value: String,
    },
    /// Remove an entry
    Delete {
        /// The module's name
        module: String,
        /// The map's
        map: String,
        /// Which entry
        key: String,
    },
}

#[derive(Args)]
pub(crate) struct SimArguments {
    /// Arguments for opentoe-sim
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    pub arguments: Vec<OsString>,
}

#[derive(Args)]
pub(crate) struct DoctorArguments {
    #[command(flatten)]
    pub daemon: SocketArguments,
    /// Report of this program, beforehand, what will run on OpenTOE and what will not
    #[arg(value_name = "PROGRAM")]
    pub program: Option<OsString>,
    /// libtoe.so, where it is not beside this program
    #[arg(long, value_name = "FILE")]
    pub lib: Option<PathBuf>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub(crate) struct MemloadArguments {
    /// Where memcached listens
    pub server: SocketAddr,
    #[arg(long, default_value_t = 64)]
    pub connections: usize,
    #[arg(long, default_value_t = 2)]
    pub seconds: u32,
}

/// The network of a private daemon: its first address is the kernel's, the second the host's.
pub(crate) fn parse_network(text: &str) -> Result<(Ipv4Addr, u8), String> {
    let wrong = || format!("`{text}` is no network: write it as 10.77.0.0/24");
    let (address, bits) = text.split_once('/').ok_or_else(wrong)?;
    let address: Ipv4Addr = address.parse().map_err(|_| wrong())?;
    let bits: u8 = bits.parse().ok().filter(|bits| (8..=29).contains(bits)).ok_or_else(wrong)?;
    let mask = u32::MAX << (32 - u32::from(bits));
    Ok((Ipv4Addr::from(u32::from(address) & mask), bits))
}
