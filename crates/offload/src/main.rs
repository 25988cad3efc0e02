//! `opentoe-offload`: an offload engine for a host (docs/OFFLOAD.md).
#![deny(unsafe_code)]

fn main() -> std::process::ExitCode {
    offload::command::main()
}
