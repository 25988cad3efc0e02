//! Shell completion of the command's words.
use crate::arguments::{Arguments, CompletionsArguments};
use clap::CommandFactory;

/// `opentoe completions SHELL`.
pub(crate) fn completions(arguments: &CompletionsArguments) -> Result<(), String> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "opentoe", &mut script);
    console::print(&String::from_utf8_lossy(&script));
    Ok(())
}
