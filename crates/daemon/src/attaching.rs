//! Attaching, as far as it is the same for programs of streams and of verbs.
use crate::build::HostPlace;
use crate::protocol::no_host;
use serde_json::Value;

/// Most characters of a program's command line that are stored.
const MAX_COMMAND: usize = 512;

/// The host of this name; the first one where none is named.
pub(crate) fn find<'h>(hosts: &'h [HostPlace], name: Option<&str>) -> Result<&'h HostPlace, String> {
    let found = hosts.iter().find(|place| name.is_none_or(|name| name == place.config.stack.name));
    found.ok_or_else(|| {
        let names: Vec<&str> = hosts.iter().map(|place| place.config.stack.name.as_str()).collect();
        no_host(name.unwrap_or_default(), &names)
    })
}

/// The version of a library in its first message, under this key, which shows what it asks for. Of a library of another
/// version, only that is read.
pub(crate) fn version(message: &[u8], key: &str) -> Option<u32> {
    let hello: Value = serde_json::from_slice(message).ok()?;
    u32::try_from(hello.get(key)?.as_u64()?).ok()
}

/// Text of an application for terminals: without control characters, and cut.
pub(crate) fn printable(command: &str) -> String {
    command.chars().filter(|c| !c.is_control()).take(MAX_COMMAND).collect()
}
