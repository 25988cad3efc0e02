//! Refusals: one sentence with what is wrong, the right exit status, and nothing started.
use crate::daemon::beside;
use crate::process::{Process, Session};
use crate::report::Outcome;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// One refusal.
pub struct Refusal {
    /// Its name, for the report and `--filter`.
    pub name: &'static str,
    /// What is tried, and what must be printed.
    pub run: fn(&Session) -> Outcome,
}

/// All of them.
pub const ALL: &[Refusal] = &[
    Refusal { name: "configuration: unknown key", run: unknown_key },
    Refusal { name: "configuration: unknown value", run: unknown_value },
    Refusal { name: "configuration: two hosts of one name", run: same_name },
    Refusal { name: "configuration: not there", run: no_file },
    Refusal { name: "toed: wrong usage", run: usage },
    Refusal { name: "toed: TAP without privilege", run: no_privilege },
    Refusal { name: "toed: a second one on the same socket", run: second_daemon },
    Refusal { name: "opentoe run: no daemon at the socket", run: no_daemon },
    Refusal { name: "opentoe run: no host of that name", run: no_host },
    Refusal { name: "opentoe run: no such program", run: no_program },
    Refusal { name: "attach: a host for other users", run: not_named },
    Refusal { name: "opentoe xdp: by a user who may only read", run: not_an_operator },
];

const HOST: &str = "[[fabric]]\nname = \"lab\"\n[[host]]\nname = \"a\"\naddress = \"10.78.1.2\"\n";

fn unknown_key(session: &Session) -> Outcome {
    let text = HOST.replace("address", "adress");
    refused(session, toed(session, &text)?, 1, &[":6:", "adress", "did you mean `address`"])
}

fn unknown_value(session: &Session) -> Outcome {
    let text = format!("{HOST}port = {{ kind = \"tapp\" }}\n");
    refused(session, toed(session, &text)?, 1, &[":7:", "tapp", "did you mean `tap`"])
}

fn same_name(session: &Session) -> Outcome {
    refused(session, toed(session, &format!("{HOST}{}", &HOST[HOST.find("[[host").unwrap_or(0)..]))?, 1, &["`a`"])
}

fn no_file(session: &Session) -> Outcome {
    let mut command = Command::new(beside("toed"));
    command.args(["--config", "/nonexistent/toed.toml"]);
    refused(session, command, 1, &["/nonexistent/toed.toml", "No such file"])
}

fn usage(session: &Session) -> Outcome {
    let mut command = Command::new(beside("toed"));
    command.arg("--no-such-option");
    let mut process = session.spawn(command)?;
    expect_status(&mut process, 2)?;
    Ok("exit status 2".into())
}

fn no_privilege(session: &Session) -> Outcome {
    let text = format!("{HOST}port = {{ kind = \"tap\", device = \"toetest0\" }}\n");
    let daemon = toed(session, &text)?;
    // The socket must not be what fails.
    fs::set_permissions(session.dir(), fs::Permissions::from_mode(0o777)).map_err(|error| error.to_string())?;
    let mut command = Command::new("setpriv");
    command.args([
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
        "--no-new-privs",
        "--bounding-set",
        "-all",
    ]);
    command.arg(daemon.get_program()).args(daemon.get_args());
    refused(session, command, 1, &["host a: "])
}

fn second_daemon(session: &Session) -> Outcome {
    let _first = running(session)?;
    refused(session, toed(session, HOST)?, 1, &["toe-refusals"])
}

fn no_daemon(session: &Session) -> Outcome {
    let mut command = Command::new(beside("opentoe"));
    command.args(["run", "--socket", "/nonexistent/toe", "--", "echo", "started"]);
    refused(session, command, 1, &["/nonexistent/toe"])
}

fn no_host(session: &Session) -> Outcome {
    let _daemon = running(session)?;
    let mut command = toe_run(session);
    command.args(["--host", "nowhere", "--", "echo", "started"]);
    refused(session, command, 1, &["nowhere"])
}

fn no_program(session: &Session) -> Outcome {
    let _daemon = running(session)?;
    let mut command = toe_run(session);
    command.args(["--", "/nonexistent/program"]);
    refused(session, command, 1, &["/nonexistent/program"])
}

/// Everybody may open the sockets of this daemon; its host is for user 4711 and its management for group 4712.
const PARTITIONED: &str = "socket_mode = \"0666\"\nmanage_group = \"4712\"\n[[fabric]]\nname = \"lab\"\n[[host]]\n\
                           name = \"a\"\naddress = \"10.78.1.2\"\nusers = [\"4711\"]\n";

/// A program as another user and group, with the folder of the sockets open to everybody.
fn as_user(session: &Session, user: &str, group: &str, program: &str) -> Result<Command, String> {
    fs::set_permissions(session.dir(), fs::Permissions::from_mode(0o755)).map_err(|error| error.to_string())?;
    let mut command = Command::new("setpriv");
    command.args(["--reuid", user, "--regid", user, "--groups", group, &beside(program)]);
    Ok(command)
}

fn not_named(session: &Session) -> Outcome {
    let _daemon = running_with(session, PARTITIONED)?;
    let attach = |user: &str| {
        let mut command = as_user(session, user, user, "hostile")?;
        command.args(["replay", &socket(session), "a", "10.78.1.2", "1", "0", "1"]);
        Ok::<_, String>(command)
    };
    session.run(attach("4711")?)?;
    refused(session, attach("4713")?, 1, &["user 4713 may not attach to host `a`"])
}

fn not_an_operator(session: &Session) -> Outcome {
    let _daemon = running_with(session, PARTITIONED)?;
    let toe = |group: &str, arguments: &[&str]| {
        let mut command = as_user(session, "4713", group, "opentoe")?;
        command.args(arguments).args(["--socket", &socket(session)]);
        Ok::<_, String>(command)
    };
    session.run(toe("4713", &["ls"])?)?;
    let load = ["xdp", "load", "native:meter"];
    let words = refused(session, toe("4713", &load)?, 1, &["manage_group"])?;
    session.run(toe("4712", &load)?)?;
    Ok(words)
}

/// Runs a command that must print one line on standard error, with all of `words` in it, and print nothing else.
fn refused(session: &Session, command: Command, status: i32, words: &[&str]) -> Outcome {
    let mut process = session.spawn(command)?;
    expect_status(&mut process, status)?;
    let errors = process.stderr();
    let errors = errors.trim();
    if let Some(missing) = words.iter().find(|word| !errors.contains(**word)) {
        return Err(format!("'{missing}' is not in: {errors}"));
    }
    if errors.lines().count() != 1 || !process.stdout().is_empty() {
        return Err(format!("it must print one line, and start nothing: {errors}"));
    }
    Ok(errors.into())
}

fn expect_status(process: &mut Process, wanted: i32) -> Result<(), String> {
    let status = process.wait()?;
    if status.code() == Some(wanted) { Ok(()) } else { Err(format!("it ended with {status}, not {wanted}")) }
}

fn toed(session: &Session, text: &str) -> Result<Command, String> {
    let file = session.dir().join("refused.toml");
    let socket = socket(session);
    fs::write(&file, format!("socket = \"{socket}\"\n{text}")).map_err(|e| e.to_string())?;
    let mut command = Command::new(beside("toed"));
    command.arg("--config").arg(file);
    Ok(command)
}

fn toe_run(session: &Session) -> Command {
    let mut command = Command::new(beside("opentoe"));
    command.args(["run", "--socket", &socket(session)]);
    command
}

/// A daemon with one host on a fabric, ready.
fn running(session: &Session) -> Result<Process<'_>, String> {
    running_with(session, HOST)
}

fn running_with<'a>(session: &'a Session, configuration: &str) -> Result<Process<'a>, String> {
    let mut process = session.spawn(toed(session, configuration)?)?;
    session.until("toed's socket", || {
        process.running().map_err(|error| format!("{error}: {}", process.stderr().trim()))?;
        Ok(Path::new(&socket(session)).exists())
    })?;
    Ok(process)
}

fn socket(session: &Session) -> String {
    session.dir().join("toe-refusals").display().to_string()
}
