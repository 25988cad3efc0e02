//! Who may take a daemon over: one of the same version, and no other.
mod common;

use common::{Toed, toed};
use daemon::client::ask;
use daemon::protocol::Question;
use serde_json::json;
use shm::handover;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::process::Stdio;

const CONFIGURATION: &str = "log = \"error\"\n[[host]]\nname = \"a\"\naddress = \"10.0.0.1\"\nprefix_len = 24\n";

/// What a daemon of another version is told that wants to take this one over.
fn refusal(toed: &Toed, version: u64) -> String {
    let connection = handover::connect(&toed.socket()).unwrap();
    handover::send(connection.as_fd(), json!({ "takeover": version }).to_string().as_bytes(), &[]).unwrap();
    let (message, fds) = handover::recv(connection.as_fd()).unwrap();
    assert!(fds.is_empty(), "no descriptor goes to a daemon that is refused");
    let answer: serde_json::Value = serde_json::from_slice(&message).unwrap();
    answer["Refused"].as_str().unwrap_or_else(|| panic!("{answer}")).to_string()
}

#[test]
fn the_version_before_is_refused_in_one_sentence_and_the_same_one_takes_over() {
    let mut old = Toed::start(CONFIGURATION);
    let sentence = refusal(&old, 0);
    let words: Vec<&str> = sentence.split([' ', ',']).collect();
    let version: u64 = words[words.iter().position(|word| *word == "version").unwrap() + 1].parse().unwrap();
    let told = |other: u64| format!("the daemon that runs hands over in version {version}, not {other}");
    assert_eq!(sentence, told(0));
    for other in [version - 1, version + 1] {
        assert_eq!(refusal(&old, other), told(other));
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
