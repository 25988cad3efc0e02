//! Attaching, as far as it is the same for programs of streams and of verbs.
use crate::build::HostPlace;
use crate::protocol::no_host;

/// Most characters kept of a program's command line.
const MAX_COMMAND: usize = 512;

/// The host of this name; the first one where none is named.
pub(crate) fn find<'h>(hosts: &'h [HostPlace], name: Option<&str>) -> Result<&'h HostPlace, String> {
    let found = hosts.iter().find(|place| name.is_none_or(|name| name == place.config.stack.name));
    found.ok_or_else(|| {
        let names: Vec<&str> = hosts.iter().map(|place| place.config.stack.name.as_str()).collect();
        no_host(name.unwrap_or_default(), &names)
    })
}

/// What an application says of itself is shown on terminals: no control characters, and not too much.
pub(crate) fn printable(command: &str) -> String {
    command.chars().filter(|c| !c.is_control()).take(MAX_COMMAND).collect()
}
