//! Takeover of a daemon: by one of the same version, and by no other.
mod common;

use common::application::TIMEOUT;
use common::{Toed, toed};
use daemon::client::ask;
use daemon::protocol::Question;
use serde_json::json;
use shm::handover;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;

const CONFIGURATION: &str = "log = \"error\"\n[[host]]\nname = \"a\"\naddress = \"10.0.0.1\"\nprefix_len = 24\n";

/// The answer to a daemon of another version that would take this one over.
fn refusal(toed: &Toed, version: u64) -> String {
    let connection = handover::connect(&toed.socket()).unwrap();
    handover::send(connection.as_fd(), json!({ "takeover": version }).to_string().as_bytes(), &[]).unwrap();
    let (message, fds) = handover::recv(connection.as_fd()).unwrap();
    assert!(fds.is_empty(), "no descriptor goes to a daemon that is refused");
    let answer: serde_json::Value = serde_json::from_slice(&message).unwrap();
    answer["Refused"].as_str().unwrap_or_else(|| panic!("{answer}")).to_string()
}

#[test]
fn only_the_same_version_takes_over() {
    let mut old = Toed::start(CONFIGURATION);
    let sentence = refusal(&old, 0);
    let words: Vec<&str> = sentence.split([' ', ',']).collect();
    let version: u64 = words[words.iter().position(|word| *word == "version").unwrap() + 1].parse().unwrap();
    let expected = |other: u64| format!("the daemon that runs hands over in version {version}, not {other}");
    assert_eq!(sentence, expected(0));
    for other in [version - 1, version + 1] {
        assert_eq!(refusal(&old, other), expected(other));
    }
    assert_eq!(old.ask(&Question::Ls)["hosts"][0]["name"], json!("a"), "it goes on");

    let mut new = toed(&old.directory).args(["--takeover", "--announce"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(new.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    assert!(old.child.wait().unwrap().success(), "the old daemon ends");
    assert_eq!(old.ask(&Question::Ls)["hosts"][0]["name"], json!("a"), "the new one answers");
    ask(&old.socket(), &Question::Stop).unwrap();
    assert!(new.wait().unwrap().success());
}

/// What a service manager's reload command is: it ends when programs can attach to the new daemon, which names
/// itself the service's main process.
#[test]
fn a_background_daemon_takes_over_as_the_main_process() {
    let mut old = Toed::start(CONFIGURATION);
    let place = std::env::temp_dir().join(format!("toed-main-process-{}", std::process::id()));
    let manager = UnixDatagram::bind(&place).unwrap();
    manager.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut reload = toed(&old.directory);
    reload.args(["--takeover", "--background"]).env("NOTIFY_SOCKET", &place);
    let output = reload.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let pid = printed.trim().rsplit(' ').next().unwrap();
    let mut word = [0; 64];
    let len = manager.recv(&mut word).unwrap();
    assert_eq!(String::from_utf8_lossy(&word[..len]), format!("MAINPID={pid}\nREADY=1"));
    assert!(old.child.wait().unwrap().success(), "the old daemon ends");
    assert_eq!(old.ask(&Question::Hello)["pid"].to_string(), pid);
    ask(&old.socket(), &Question::Stop).unwrap();
    std::fs::remove_file(place).unwrap();
}

/// The command fails where the daemon does, and the one that runs goes on.
#[test]
fn a_reload_that_is_refused_fails() {
    let old = Toed::start(CONFIGURATION);
    let other = CONFIGURATION.replace("\"a\"", "\"b\"");
    std::fs::write(old.directory.join("toed.toml"), other).unwrap();
    let mut reload = toed(&old.directory);
    let output = reload.args(["--takeover", "--background"]).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{errors}");
    assert!(errors.contains("has a host a, and this configuration none"), "{errors}");
    assert!(errors.contains("the daemon in the background did not start"), "{errors}");
    assert_eq!(old.ask(&Question::Ls)["hosts"][0]["name"], json!("a"), "it goes on");
}
