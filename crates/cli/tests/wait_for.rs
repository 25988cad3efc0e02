//! `opentoe run --wait-for` with a daemon that it starts: a server on the kernel, and one that does not come. The grid
//! has servers on OpenTOE ("opentoe run --wait-for").
mod scratch;

use scratch::{Scratch, any_library, error};
use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// `opentoe run --wait-for` of this port, with a daemon for the program alone.
fn waiting(scratch: &Scratch, port: u16, options: &[&str]) -> Command {
    let configuration = scratch.0.join("lab.toml");
    fs::write(&configuration, "[[host]]\nname = \"a\"\naddress = \"10.0.0.1\"\nprefix_len = 24\n").unwrap();
    let mut command = scratch.command();
    command.args(["run", "--lib", &any_library(), "--config", configuration.to_str().unwrap()]);
    command.args(["--wait-for", &format!("127.0.0.1:{port}")]).args(options).args(["--", "echo", "started"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A port that is bound and not listened at.
fn bound() -> (rustix::fd::OwnedFd, u16) {
    use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &std::net::SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = std::net::SocketAddrV4::try_from(getsockname(&socket).unwrap()).unwrap().port();
    (socket, port)
}

#[test]
fn a_program_starts_when_its_server_listens() {
    let scratch = Scratch::new();
    let (socket, port) = bound();
    let mut child = waiting(&scratch, port, &[]).spawn().unwrap();
    // Long enough for the daemon to be there and for some polls. A program that is started too early ends here.
    while scratch.entries() < 2 {
        sleep(Duration::from_millis(10));
    }
    sleep(Duration::from_millis(500));
    assert!(child.try_wait().unwrap().is_none(), "the program did not wait");
    rustix::net::listen(&socket, 1).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"started\n"[..]), "{}", error(&output));
    let listener = TcpListener::from(socket);
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "the wait itself connected");
    fs::remove_file(scratch.0.join("lab.toml")).unwrap();
    scratch.becomes_empty();
}

#[test]
fn without_its_server_a_program_is_not_started() {
    let scratch = Scratch::new();
    let (_socket, port) = bound();
    let output = waiting(&scratch, port, &["--quiet", "--wait-limit", "1"]).output().unwrap();
    assert_eq!((output.status.code(), &*output.stdout), (Some(1), &b""[..]));
    assert_eq!(
        error(&output),
        format!(
            "opentoe: the program was not started: nothing listens at 127.0.0.1:{port} after 1 s; see `opentoe ls` \
             and `ss -tln`, start the server there, or wait longer with --wait-limit\n"
        )
    );
    fs::remove_file(scratch.0.join("lab.toml")).unwrap();
    scratch.becomes_empty();
}

#[test]
fn what_is_no_address_is_wrong_usage() {
    let scratch = Scratch::new();
    for word in ["6379", "127.0.0.1", "127.0.0.1:port"] {
        let output = scratch.toe(&["run", "--wait-for", word, "--", "true"]);
        assert_eq!(output.status.code(), Some(2), "{word}: {}", error(&output));
        assert!(error(&output).contains("such as 127.0.0.1:6379"), "{}", error(&output));
    }
}
