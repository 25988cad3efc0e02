//! What stands around the command once it is installed: completions for shells, manual pages.
use crate::arguments::{Arguments, CompletionsArguments, ManualArguments};
use clap::CommandFactory;

/// `opentoe completions SHELL`.
pub(crate) fn completions(arguments: &CompletionsArguments) -> Result<(), String> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "opentoe", &mut script);
    console::print(&String::from_utf8_lossy(&script));
    Ok(())
}

/// A page for the command and one for each of its verbs: opentoe.1, opentoe-run.1, ...
pub(crate) fn manual(arguments: &ManualArguments) -> Result<(), String> {
    let directory = &arguments.directory;
    clap_mangen::generate_to(Arguments::command(), directory)
        .map_err(|error| format!("cannot write manual pages to {}: {error}", directory.display()))
}
