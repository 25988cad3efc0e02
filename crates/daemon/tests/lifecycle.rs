//! A real `toed` on a fabric, which needs no privilege: attaching, refusals and their reasons, what is left when an
//! application or the daemon ends.
mod common;

use common::application::{TIMEOUT, attach, listen, until};
use common::{Toed, toed};
use context::attach::Answer;
use daemon::client::{ask, is_running, open};
use daemon::management_path;
use daemon::protocol::{Capture, Question};
use port::capture::pcapng::{self, Block};
use serde_json::{Value, json};
use shm::handover;
use std::fs;
use std::io::{BufRead, BufReader, Read, read_to_string};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const CONFIGURATION: &str = "log = \"warn\"\n[[host]]\nname = \"a\"\naddress = \"10.0.0.1\"\nprefix_len = 24\n\
                             [[host]]\nname = \"b\"\naddress = \"10.0.0.2\"\nprefix_len = 24\nport = { kind = \"fabric\" }\n";

fn send_hello(socket: &Path, hello: &Value) -> Answer {
    let connection = handover::connect(socket).unwrap();
    handover::send(connection.as_fd(), hello.to_string().as_bytes(), &[]).unwrap();
    serde_json::from_slice(&handover::recv(connection.as_fd()).unwrap().0).unwrap()
}

#[test]
fn a_library_of_another_version_is_refused_with_a_sentence() {
    let toed = Toed::start(CONFIGURATION);
    // Of another version only the version is read: all else may differ.
    let answer = send_hello(&toed.socket(), &json!({ "version": context::VERSION + 1, "colour": "blue" }));
    let Answer::Refused(sentence) = answer else { panic!("{answer:?}") };
    assert!(sentence.contains(&format!("version {}", context::VERSION + 1)), "{sentence}");
    assert!(sentence.contains(&format!("version {}", context::VERSION)), "{sentence}");
    let unknown = json!({ "version": context::VERSION, "host": "c", "command": "test", "token": null });
    let Answer::Refused(sentence) = send_hello(&toed.socket(), &unknown) else { panic!("attached to no host") };
    assert_eq!(sentence, "this daemon has no host `c`; it has a, b");
    let Answer::Refused(_) = send_hello(&toed.socket(), &json!("?")) else { panic!("a malformed hello was accepted") };
    assert!(toed.contexts().is_empty());
}

/// Whoever reads what the command prints reads to its end, which comes while the daemon runs on.
#[test]
fn a_daemon_in_the_background_holds_no_pipe_of_its_command() {
    let directory = std::env::temp_dir().join(format!("toed-background-{}", std::process::id()));
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("toed.toml"), CONFIGURATION.replace("\"warn\"", "\"info\"")).unwrap();
    let socket = directory.join("toed.sock");
    let mut command =
        toed(&directory).arg("--background").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (out, err) = (command.stdout.take().unwrap(), command.stderr.take().unwrap());
    let reader = std::thread::spawn(move || [read_to_string(out).unwrap(), read_to_string(err).unwrap()]);
    until("the end of what the command prints", || reader.is_finished());
    let [printed, errors] = reader.join().unwrap();
    assert!(command.wait().unwrap().success(), "{errors}");
    assert!(is_running(&socket), "{printed}{errors}");
    let log = directory.join("toed.log");
    assert!(printed.contains(&format!("the daemon logs to {}", log.display())), "{printed}");
    ask(&socket, &Question::Stop).unwrap();
    until("the end", || !is_running(&socket));
    assert!(errors.contains("applications attach at"), "the start is reported to the command: {errors}");
    until("its last line", || fs::read_to_string(&log).unwrap().contains("end"));
    println!("{}", fs::read_to_string(&log).unwrap());
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_second_daemon_on_the_same_socket_is_refused() {
    let mut first = Toed::start(CONFIGURATION);
    let second = toed(&first.directory).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    let sentence = String::from_utf8(second.stderr).unwrap();
    assert!(sentence.contains("another toed is running at"), "{sentence}");
    assert!(is_running(&first.socket()), "the first one was disturbed");
    // One that was killed disturbs no other: its sockets are stale.
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    assert!(first.socket().exists());
    let mut third = toed(&first.directory).spawn().unwrap();
    until("the third daemon", || is_running(&first.socket()));
    ask(&first.socket(), &Question::Stop).unwrap();
    assert_eq!(third.wait().unwrap().code(), Some(0));
}

#[test]
fn a_daemon_that_ends_leaves_nothing() {
    let mut toed = Toed::start(CONFIGURATION);
    let (_connection, mut app) = attach(&toed.socket(), "a");
    listen(&mut app, 8080);
    let ls = toed.ask(&Question::Ls);
    assert_eq!(ls["hosts"][0]["listeners"][0]["port"], 8080);
    assert_eq!(ls["hosts"][0]["listeners"][0]["pids"][0], std::process::id());
    assert!(toed.socket().exists() && management_path(&toed.socket()).exists());
    assert_eq!(toed.end().code(), Some(0));
    let left: Vec<_> = fs::read_dir(&toed.directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["toed.toml"]);
}

#[test]
fn a_daemon_that_serves_has_given_up_what_it_does_not_need() {
    let seen = |configuration: &str| {
        let toed = Toed::start(configuration);
        // It gives up system calls last, when it can be attached to already.
        let status = || fs::read_to_string(format!("/proc/{}/status", toed.child.id())).unwrap();
        let value = |status: &str, key: &str| {
            status.lines().find_map(|line| line.strip_prefix(key)).map(|value| value.trim().to_string()).unwrap()
        };
        if !configuration.contains("confine = false") {
            until("the filter", || value(&status(), "Seccomp:") == "2");
        }
        let _attached = attach(&toed.socket(), "a");
        let status = status();
        ["Seccomp:", "NoNewPrivs:", "CapEff:"].map(|key| value(&status, key))
    };
    assert_eq!(seen(CONFIGURATION), ["2", "1", "0000000000000000"]);
    let free = seen(&format!("confine = false\n{CONFIGURATION}"));
    assert_eq!(free[..2], ["0", "0"]);
}

#[test]
fn sigterm_ends_it_too() {
    let mut toed = Toed::start(CONFIGURATION);
    let pid = rustix::process::Pid::from_child(&toed.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(toed.child.wait().unwrap().code(), Some(0));
    assert!(!toed.socket().exists() && !management_path(&toed.socket()).exists());
}

/// What [`a_killed_process_is_forgotten`] starts and kills; nothing by itself.
#[test]
fn attach_and_wait() {
    let Some(socket) = std::env::var_os("TOE_TEST_SOCKET").map(PathBuf::from) else { return };
    let (_connection, mut app) = attach(&socket, "a");
    listen(&mut app, 7000);
    // Until killed; or until the test that started it has gone without doing so.
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn a_killed_process_is_forgotten() {
    let toed = Toed::start(CONFIGURATION);
    let (_connection, mut other) = attach(&toed.socket(), "a");
    listen(&mut other, 8000);
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["attach_and_wait", "--exact"])
        .env("TOE_TEST_SOCKET", toed.socket())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let listeners = || toed.ask(&Question::Ls)["hosts"][0]["listeners"].as_array().unwrap().clone();
    until("the victim's listener", || listeners().iter().any(|listener| listener["port"] == 7000));
    assert_eq!(toed.contexts().len(), 2);
    victim.kill().unwrap();
    victim.wait().unwrap();
    until("the victim's context is freed", || toed.contexts().len() == 1);
    let left = listeners();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(left[0]["port"], 8000, "the other application noticed");
    // Its port is free again.
    listen(&mut other, 7000);
}

#[test]
fn an_idle_daemon_uses_no_cpu() {
    for threads in [false, true] {
        let mapping = format!("mapping = {{ threads = {threads}, preprocess = 2, dma = 2 }}\n");
        let toed = Toed::start(&format!("{CONFIGURATION}{mapping}"));
        let (_connection, mut app) = attach(&toed.socket(), "b");
        listen(&mut app, 8080);
        toed.comes_to_rest();
    }
}

#[test]
fn strange_questions_are_answered_and_harm_nobody() {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    let toed = Toed::start(CONFIGURATION);
    let mut stream = UnixStream::connect(management_path(&toed.socket())).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    for question in ["", "{}", "{\"ask\":\"nonsense\"}", "[1,2", "\u{0}\u{1}"] {
        stream.write_all(format!("{question}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        reader.read_line(&mut answer).unwrap();
        assert!(answer.starts_with("{\"error\":"), "{question}: {answer}");
    }
    // A line without end is cut off, not stored.
    let _ = stream.write_all(&vec![b'x'; 100_000]);
    assert_eq!(toed.ask(&Question::Hello)["hosts"][1]["name"], "b");
    assert!(
        ask(&toed.socket(), &Question::Descriptors { pid: 1, fd: Some(0) }).unwrap_err().contains("has no context")
    );
    assert!(
        ask(&toed.socket(), &Question::Stats { host: Some("x".into()), flow: None }).unwrap_err().contains("no host")
    );
}

fn capture(program: &[(u16, u8, u8, u32)], host: Option<&str>) -> Question {
    Question::Capture(Capture {
        host: host.map(String::from),
        flow: None,
        dropped: false,
        direction: None,
        count: Some(1),
        snaplen: 0,
        filter: "a test's".into(),
        program: program.to_vec(),
    })
}

#[test]
fn captures_are_refused_counted_and_ended() {
    let mut toed = Toed::start(CONFIGURATION);
    let everything = [(6, 0, 0, 1)];
    let refused = |program: &[(u16, u8, u8, u32)], host: Option<&str>| {
        ask(&toed.socket(), &capture(program, host)).expect_err("it was not refused")
    };
    assert_eq!(refused(&everything, Some("c")), "this daemon has no host `c`; it has a, b");
    assert!(refused(&[(5, 0, 0, 9), (6, 0, 0, 0)], None).contains("instruction 0 jumps"));
    assert!(refused(&[], None).contains("0 instructions"));
    let open = || open(&toed.socket(), &capture(&everything, None));
    let mut captures: Vec<_> = (0..8).map(|_| open().unwrap()).collect();
    assert_eq!(captures[0].0, json!({ "interfaces": ["a", "b", "fabric fabric"] }));
    assert!(open().unwrap_err().contains("8 captures are going on already"));
    // One that went makes room.
    captures.pop();
    until("room for another capture", || open().is_ok());
    // The others end when they are asked to, complete to the last block.
    let (_, mut stream) = captures.pop().unwrap();
    stream.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
    let mut blocks = Vec::new();
    while let Some(block) = pcapng::read(&mut stream).unwrap() {
        blocks.push(block);
    }
    assert_eq!(blocks.len(), 1 + 3 + 3, "section, interfaces, statistics: {blocks:?}");
    assert_eq!(blocks.last(), Some(&Block::Statistics(2, pcapng::Counts::default())));
    // A daemon that ends does not wait for readers.
    assert_eq!(toed.end().code(), Some(0));
}

/// sd_notify(3): readiness is reported once programs can attach, and lines carry the journal's priorities.
#[test]
fn a_service_manager_is_notified_of_readiness_and_the_end() {
    let place = std::env::temp_dir().join(format!("toed-notify-{}", std::process::id()));
    let manager = UnixDatagram::bind(&place).unwrap();
    manager.set_read_timeout(Some(TIMEOUT)).unwrap();
    let notification = || {
        let mut word = [0; 64];
        let len = manager.recv(&mut word).unwrap();
        String::from_utf8_lossy(&word[..len]).into_owned()
    };
    let mut toed = Toed::start_by(&CONFIGURATION.replace("warn", "info"), |directory| {
        let mut command = toed(directory);
        command.env("NOTIFY_SOCKET", &place).env("JOURNAL_STREAM", "8:1").stderr(Stdio::piped());
        command
    });
    assert_eq!(notification(), "READY=1");
    assert!(toed.end().success());
    assert_eq!(notification(), "STOPPING=1");
    let mut log = String::new();
    toed.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    assert!(!log.is_empty() && log.lines().all(|line| line.starts_with("<6>")), "{log}");
    assert!(log.contains("the daemon ends by request"), "{log}");
    fs::remove_file(place).unwrap();
}
