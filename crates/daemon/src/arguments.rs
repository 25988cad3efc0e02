//! The command line of `toed`: of the program, and of its manual page.
use clap::Parser;
use std::path::PathBuf;

/// The OpenTOE daemon: runs hosts, to which `opentoe run` attaches programs.
///
/// It ends on SIGTERM or SIGINT; connections then end in order where their peers answer at once.
#[derive(Parser)]
#[command(
    name = "toed",
    version,
    after_help = "Example:\n  toed --config config/lab.toml --background\n  opentoe run --host a -- redis-server --protected-mode no"
)]
pub struct Arguments {
    /// Configuration (TOML); samples are in config/
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Attach socket, instead of the configuration's
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Take the place of the daemon that runs at this socket, with its programs and connections (docs/TAKEOVER.md)
    #[arg(long)]
    pub takeover: bool,
    /// Return when programs can attach, and let the daemon go on in the background. It logs to a file beside its
    /// socket then, unless standard error is a file or the journal
    #[arg(long, conflicts_with_all = ["check", "announce"])]
    pub background: bool,
    /// Log to this file, instead of to standard error, from when programs can attach
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Only check the configuration, and that users, groups, modules and cores that it names are there
    #[arg(long)]
    pub check: bool,
    /// End when this process has ended and no program is attached any more
    #[arg(long, value_name = "PID")]
    pub owner: Option<i32>,
    /// Write a line to standard output when applications can attach
    #[arg(long)]
    pub announce: bool,
}
