//! Arguments of `opentoe offload`.
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Args)]
pub(crate) struct OffloadArguments {
    /// The offload engine's socket; otherwise $TOE_OFFLOAD, or the usual place
    #[arg(long, value_name = "PATH", global = true)]
    pub(crate) socket: Option<PathBuf>,
    /// As JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) verb: OffloadVerb,
}

#[derive(Subcommand)]
pub(crate) enum OffloadVerb {
    /// Load a library of offload functions, in place of one of the same name
    #[command(after_help = "Calls that are under way end in the old library, and no request is lost.

Examples:
  opentoe offload load list.so
  opentoe offload load list-2.so --name list")]
    Load {
        /// The shared object
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Call it so; otherwise as the file is called, without its ending
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// List libraries, their opcodes and calls, and programs with DMA regions
    Ls,
    /// Unload a library
    Unload {
        /// Its name, as opentoe offload ls shows it
        #[arg(value_name = "NAME")]
        name: String,
    },
}
