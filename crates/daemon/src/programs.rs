//! P4 programs that take the place of a host's running one (docs/P4.md).
use crate::build::HostPlace;
use crate::protocol::ProgramFiles;
use crate::views::Observer;
use engine::ProgramSource;
use serde_json::{Value, json};

/// Loads a program: checked and compiled on this thread, so that the data-path only changes over. The error is a
/// sentence, or the places in the program; then the running one goes on.
pub(crate) fn load(observer: &Observer, host: Option<&str>, body: &[u8]) -> Result<Value, String> {
    let files: ProgramFiles =
        serde_json::from_slice(body).map_err(|e| format!("these are no files of a P4 program: {e}"))?;
    let place = only(observer, host)?;
    let stack = &place.config.stack;
    let source = ProgramSource { main: files.main, files: files.files, defines: files.defines };
    place.config.engine.prepare(stack, &source)?;
    observer.at(place, move |seat| seat.host.base_mut().load_program(&source))??;
    Ok(json!({ "host": stack.name }))
}

/// The host that is meant; it may be left out where there is only one.
pub(crate) fn only<'o>(observer: &'o Observer, host: Option<&str>) -> Result<&'o HostPlace, String> {
    let hosts = observer.hosts();
    match (host, hosts) {
        (Some(name), _) => {
            hosts.iter().find(|place| place.config.stack.name == name).ok_or(format!("there is no host {name}"))
        }
        (None, [one]) => Ok(one),
        (None, _) => Err("this daemon has several hosts: name one with --host".into()),
    }
}
