//! `opentoe run`: the program takes this process's place, with libtoe in front of the C library, and our libraries for
//! verbs in place of the system's.
use crate::arguments::RunArguments;
use crate::private::{self, Embedded, Private};
use crate::{library, locate, shared, sysfs, wait_for};
use context::attach::{HOST_VARIABLE, INTERCEPT_VARIABLE, PROGRAM_VARIABLE, SOCKET_VARIABLE, SYMBOLS};
use context::linkage::{Linkage, linkage};
use daemon::client;
use daemon::protocol::Question;
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Runs the program; returns only where it could not be started.
pub(crate) fn run(arguments: &RunArguments) -> Result<(), String> {
    let library = library::find(arguments.lib.as_deref())?;
    let program = find_program(&arguments.command[0])?;
    let (socket, host) = match running_daemon(arguments)? {
        Some(socket) => {
            let host = check(&socket, arguments)?;
            (socket, host)
        }
        None => own_daemon(arguments)?,
    };
    if arguments.sysfs {
        return Err(sysfs::enter(arguments, &socket, &host));
    }
    if arguments.in_namespace {
        sysfs::show(&client::ask(&socket, &Question::Ls)?, &host)?;
    }
    wait_for::listeners(&arguments.wait_for, Duration::from_secs(arguments.wait_limit), &socket, &host)?;
    // A ZeroNIC host carries verbs; sockets stay on the kernel's TCP.
    let only_verbs = is_zeronic(&client::ask(&socket, &Question::Hello)?, &host);
    let way = if only_verbs { Injection::Preloaded } else { injection(&program, arguments) };
    let mut command = match &way {
        // libtoe loads it, into a process that the dynamic linker makes.
        Injection::Loaded => Command::new("/proc/self/exe"),
        Injection::Preloaded => Command::new(&program),
    };
    if matches!(way, Injection::Loaded) {
        command.env(PROGRAM_VARIABLE, &program);
    }
    command.arg0(&arguments.command[0]).args(&arguments.command[1..]);
    let mut preloaded = if only_verbs { Vec::new() } else { vec![library.clone()] };
    if arguments.heap {
        preloaded.push(library::heap(&library)?);
    }
    if let Some(verbs) = library::verbs(&library) {
        preloaded.push(verbs.join(library::VERBS));
        command.env("LD_LIBRARY_PATH", in_front(&verbs)?);
    } else if only_verbs {
        return Err(format!("{} has no libraries of verbs beside it: build them with make build", library.display()));
    }
    command.env("LD_PRELOAD", preload(&preloaded)?).env(SOCKET_VARIABLE, socket).env(HOST_VARIABLE, host);
    command.env(INTERCEPT_VARIABLE, &arguments.intercept);
    // The program takes this process's place: signals, exit status and process number are its own.
    let error = command.exec();
    Err(format!("cannot run {}: {error}", arguments.command[0].to_string_lossy()))
}

/// How libtoe comes into a program.
enum Injection {
    /// The dynamic linker loads it.
    Preloaded,
    /// It loads the program.
    Loaded,
}

/// How libtoe comes into this program. Reports where it cannot: the program then runs on the kernel's TCP.
fn injection(program: &Path, arguments: &RunArguments) -> Injection {
    let linkage = linkage(program);
    match linkage.obstacle(arguments.intercept == SYMBOLS) {
        Some(why) => eprintln!("opentoe: {} stays on the kernel's TCP: it {why}", program.display()),
        None if linkage == Linkage::Static => return Injection::Loaded,
        None => {}
    }
    Injection::Preloaded
}

/// The daemon to attach to, where one is named or running.
fn running_daemon(arguments: &RunArguments) -> Result<Option<PathBuf>, String> {
    let own = [arguments.config.is_some(), arguments.network.is_some(), arguments.waveform.is_some()];
    if arguments.private || own.contains(&true) {
        return Ok(None);
    }
    Ok(locate::named(arguments.daemon.socket.as_deref()).or_else(locate::running))
}

/// Checks a daemon before the program is started: it answers, has the host and the library's version, and lets
/// this user attach. Returns the host's name.
fn check(socket: &Path, arguments: &RunArguments) -> Result<String, String> {
    let hello = client::ask(socket, &Question::Hello)?;
    if hello["attach_version"] != context::VERSION {
        return Err(format!(
            "the daemon at {} has version {} of the attach protocol and this toe version {}: restart it",
            socket.display(),
            hello["attach_version"],
            context::VERSION
        ));
    }
    let host = pick(&hello, arguments.host.as_deref())?;
    if let Some(engine) = arguments.engine.as_deref().filter(|engine| host["engine"] != *engine) {
        return Err(format!(
            "host `{}` runs on engine {}, not {engine}: change it in the daemon's configuration, or leave --engine out",
            text(&host["name"]),
            text(&host["engine"])
        ));
    }
    if let Some(backend) = arguments.backend.as_deref().filter(|backend| host["backend"] != *backend) {
        return Err(format!(
            "host `{}` runs on backend {}, not {backend}: change it in the daemon's configuration, or leave --backend \
             out",
            text(&host["name"]),
            text(&host["backend"])
        ));
    }
    if arguments.heap && host["heap_bytes"].as_u64().is_none_or(|bytes| bytes == 0) {
        return Err(format!(
            "host `{}` has no heap: set memory.heap_bytes in the daemon's configuration, or leave --heap out",
            text(&host["name"])
        ));
    }
    shm::handover::connect(socket).map_err(|e| format!("cannot attach at {}: {e}", socket.display()))?;
    Ok(text(&host["name"]))
}

/// A host of this name is a ZeroNIC one.
fn is_zeronic(hello: &Value, name: &str) -> bool {
    let named = |key: &str| hello[key].as_array().is_some_and(|hosts| hosts.iter().any(|host| host["name"] == name));
    named("zeronics") && !named("hosts")
}

/// The host of this name; the first where none is asked for.
fn pick<'a>(hello: &'a Value, name: Option<&str>) -> Result<&'a Value, String> {
    let hosts: Vec<&Value> = ["hosts", "zeronics"].iter().filter_map(|key| hello[*key].as_array()).flatten().collect();
    let found = hosts.iter().find(|host| name.is_none_or(|name| host["name"] == name));
    found.copied().ok_or_else(|| {
        let names: Vec<String> = hosts.iter().map(|host| text(&host["name"])).collect();
        format!("the daemon has no host `{}`; it has {}", name.unwrap_or_default(), names.join(", "))
    })
}

/// A daemon for this program, or the one that the user's programs share.
fn own_daemon(arguments: &RunArguments) -> Result<(PathBuf, String), String> {
    let (host, engine) = (arguments.host.as_deref(), arguments.engine.as_deref());
    let (backend, waveform, heap) = (arguments.backend.as_deref(), arguments.waveform.as_deref(), arguments.heap);
    let Private { socket, sentences } = match (&arguments.config, arguments.network.as_deref()) {
        (Some(file), _) => private::from_file(file)?,
        (None, None) if !arguments.private => shared::join_or_start(arguments)?,
        (None, network) => {
            private::embedded(&Embedded { host, engine, backend, waveform, network, shared: false, heap })?
        }
    };
    if !arguments.quiet {
        sentences.iter().for_each(|sentence| eprintln!("opentoe: {sentence}"));
    }
    let host = check(&socket, arguments)?;
    Ok((socket, host))
}

/// Searches for the program as the shell does, before anything is started for it.
pub(crate) fn find_program(name: &OsString) -> Result<PathBuf, String> {
    let missing = || format!("cannot run {}: no such program", name.to_string_lossy());
    if Path::new(name).components().count() > 1 {
        return Path::new(name).exists().then(|| name.into()).ok_or_else(missing);
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    // Debian's ordinary users lack the directories where servers are.
    let all = std::env::split_paths(&path).chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from));
    let is_program = |path: &PathBuf| {
        use std::os::unix::fs::PermissionsExt;
        path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    all.map(|directory| directory.join(name)).find(is_program).ok_or_else(missing)
}

/// The libraries in front of what is already preloaded.
fn preload(libraries: &[PathBuf]) -> Result<OsString, String> {
    let before = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    // Nested: it is there already.
    let has = |library: &Path| before.to_string_lossy().split([' ', ':']).any(|one| Path::new(one) == library);
    let mut value = OsString::new();
    for library in libraries.iter().filter(|library| !has(library)) {
        add(&mut value, checked(library, "LD_PRELOAD")?);
    }
    add(&mut value, &before);
    Ok(value)
}

/// The folder in front of the library search path.
fn in_front(folder: &Path) -> Result<OsString, String> {
    let mut value = checked(folder, "LD_LIBRARY_PATH")?.to_owned();
    let before = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    if std::env::split_paths(&before).any(|one| one == folder) {
        return Ok(before);
    }
    add(&mut value, &before);
    Ok(value)
}

fn add(value: &mut OsString, next: &OsStr) {
    if !value.is_empty() && !next.is_empty() {
        value.push(":");
    }
    value.push(next);
}

fn checked<'a>(path: &'a Path, variable: &str) -> Result<&'a OsStr, String> {
    if path.to_string_lossy().contains([' ', ':']) {
        return Err(format!("the path {} has a space or colon: {variable} cannot name it", path.display()));
    }
    Ok(path.as_os_str())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_host_is_found_by_its_name_whatever_it_carries() {
        let hello = json!({ "hosts": [{ "name": "h" }], "zeronics": [{ "name": "z" }] });
        assert_eq!(pick(&hello, None).unwrap()["name"], "h");
        assert_eq!(pick(&hello, Some("z")).unwrap()["name"], "z");
        assert!(pick(&hello, Some("x")).unwrap_err().contains("h, z"));
        assert!(is_zeronic(&hello, "z") && !is_zeronic(&hello, "h"));
        assert_eq!(pick(&json!({ "hosts": [], "zeronics": [{ "name": "z" }] }), None).unwrap()["name"], "z");
    }
}
