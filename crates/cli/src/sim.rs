//! `opentoe sim`: runs `opentoe-sim`. The simulation is a program of its own because it is not linked into the product.
use crate::arguments::SimArguments;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const NAME: &str = "opentoe-sim";

/// Becomes `opentoe-sim` with the arguments given; returns only where that is not possible, with a sentence.
pub(crate) fn sim(arguments: &SimArguments) -> Result<(), String> {
    let program = find();
    let error = Command::new(&program).args(&arguments.arguments).exec();
    Err(format!("cannot run {}: {error}; build it with cargo build --release -p sim", program.display()))
}

/// The one that was built or installed together with this program, else that of the search path.
fn find() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let beside = program.parent().unwrap_or(Path::new("/")).join(NAME);
    if beside.is_file() { beside } else { PathBuf::from(NAME) }
}
