//! The arguments of `opentoe p4`.
use super::SocketArguments;
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Args)]
pub(crate) struct P4Arguments {
    #[command(subcommand)]
    pub verb: P4Verb,
}

#[derive(Subcommand)]
pub(crate) enum P4Verb {
    /// Whether a P4 program can be a pipeline, and what it uses
    #[command(after_help = "The program is P4-16 for Tofino 2 (#include <t2na.p4>); docs/P4.md has which part of the
language and which limits. Prints the resources as thesis table 5.2 does, estimated, and what stands in each stage.
What is refused is named with file, line and column. Exit status: 0 accepted, 1 refused, 2 not readable.

Examples:
  opentoe p4 check p4/laminar.p4
  opentoe p4 check p4/laminar.p4 -D NOTIFY_ACKS -D FLOWS=1024
  opentoe p4 check p4/laminar.p4 --json | jq .percent")]
    Check(P4CheckArguments),
    /// SystemVerilog of a P4 program, for an FPGA or a simulation
    #[command(
        after_help = "Writes a module for each half, with its parser, stages, tables, registers and deparser, one
packet a clock; ingress.f and egress.f list the files in order, ingress.json and egress.json have what the control bus
reaches. Names are those of the program. docs/RTL.md describes the interface and what is refused; what is refused is
named with file, line and column.

Examples:
  opentoe p4 rtl p4/laminar.p4 -o rtl
  opentoe p4 rtl p4/laminar.p4 -o rtl --half egress -D FLOWS=1024 -D SACK
  opentoe p4 rtl p4/laminar.p4 --explain hdr_seg_ack_edge
  cd rtl && verilator --lint-only -Wall -f egress.f --top-module egress"
    )]
    Rtl(P4RtlArguments),
    /// Run a changed program on a host of a running daemon
    #[command(
        after_help = "The host's engine must be laminar. The program takes the place of the running one between two
segments, with all connections; p4/ is what to start from. Extensions are names: -D SACK -D DELAYED_ACKS are on in the
built-in one. What is refused is named with file, line and column, and the running program goes on.

Examples:
  opentoe p4 load p4/laminar.p4 -D SACK -D DELAYED_ACKS -D ACK_EVERY=4
  opentoe p4 load --host lab ./mine/laminar.p4 -D SACK"
    )]
    Load(P4LoadArguments),
    /// Registers of the running program
    Registers(P4HostArguments),
    /// Entries of a register that are not all zero, or one entry
    #[command(after_help = "Examples:\n  opentoe p4 get ce_count.marked\n  opentoe p4 get ce_count.marked 3")]
    Get(P4GetArguments),
    /// Set an entry of a register; of those that the built-in program has, connections depend on each
    #[command(after_help = "Example:\n  opentoe p4 set ce_count.marked 3 0")]
    Set(P4SetArguments),
}

#[derive(Args)]
pub(crate) struct P4HostArguments {
    /// The host; otherwise the only one
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    #[command(flatten)]
    pub daemon: SocketArguments,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub(crate) struct P4GetArguments {
    /// The register, as opentoe p4 registers names it
    #[arg(value_name = "REGISTER")]
    pub register: String,
    /// Which entry
    #[arg(value_name = "INDEX")]
    pub index: Option<u32>,
    #[command(flatten)]
    pub on: P4HostArguments,
}

#[derive(Args)]
pub(crate) struct P4SetArguments {
    /// The register, as opentoe p4 registers names it
    #[arg(value_name = "REGISTER")]
    pub register: String,
    /// Which entry
    #[arg(value_name = "INDEX")]
    pub index: u32,
    /// Its words: one or two
    #[arg(required = true, num_args = 1..=2, value_name = "WORD")]
    pub words: Vec<u32>,
    /// The host; otherwise the only one
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    #[command(flatten)]
    pub daemon: SocketArguments,
}

#[derive(Args)]
pub(crate) struct P4LoadArguments {
    /// The program's main file; it may include others of its folder
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Define a name for the preprocessor (may be repeated)
    #[arg(long, short = 'D', value_name = "NAME[=VALUE]", value_parser = define)]
    pub define: Vec<(String, String)>,
    /// The host; otherwise the only one
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    #[command(flatten)]
    pub daemon: SocketArguments,
}

#[derive(Args)]
pub(crate) struct P4CheckArguments {
    /// The program's main file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Define a name for the preprocessor (may be repeated)
    #[arg(long, short = 'D', value_name = "NAME[=VALUE]", value_parser = define)]
    pub define: Vec<(String, String)>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub(crate) struct P4RtlArguments {
    /// The program's main file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The folder that the files go to; it is made where it is missing
    #[arg(long, short = 'o', value_name = "DIR", required_unless_present = "explain")]
    pub out: Option<PathBuf>,
    /// Few clocks with much in each, as for a simulation: otherwise more, with less in each
    #[arg(long)]
    pub merged: bool,
    /// Write no files, but print which lines of the program this signal comes from: by its name in the RTL or the
    /// program
    #[arg(long, value_name = "SIGNAL", conflicts_with = "out")]
    pub explain: Option<String>,
    /// Only this half
    #[arg(long, value_name = "HALF", value_parser = ["ingress", "egress"])]
    pub half: Option<String>,
    /// Define a name for the preprocessor (may be repeated)
    #[arg(long, short = 'D', value_name = "NAME[=VALUE]", value_parser = define)]
    pub define: Vec<(String, String)>,
}

fn define(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if is_name { Ok((name.into(), value.into())) } else { Err("it is NAME or NAME=VALUE".into()) }
}
