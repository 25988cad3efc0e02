//! Restart: listeners come back to the next daemon (docs/RESTART.md).
mod common;

use common::Toed;
use common::application::{attach_numbered, listen, until};
use context::attach::{Answer, Ask, Asked, Hello, Ticket, return_path};
use shm::handover;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const CONFIGURATION: &str = "log = \"warn\"\n[[host]]\nname = \"a\"\naddress = \"10.0.0.1\"\nprefix_len = 24\n\
                             [[host]]\nname = \"b\"\naddress = \"10.0.0.2\"\nprefix_len = 24\n";

fn ask(socket: &OwnedFd, ask: &Ask) -> Asked {
    handover::send(socket.as_fd(), &serde_json::to_vec(ask).unwrap(), &[]).unwrap();
    serde_json::from_slice(&handover::recv(socket.as_fd()).unwrap().0).unwrap()
}

fn listen_again(socket: &OwnedFd, ticket: &Ticket) -> Asked {
    ask(socket, &Ask::Listen { ticket: ticket.clone(), backlog: 8 })
}

/// A listener on port 9000 of host a, and its ticket.
fn listener(toed: &Toed) -> (OwnedFd, Ticket) {
    let (socket, mut end, _) = attach_numbered(&toed.socket(), "a");
    listen(&mut end, 9000);
    let Asked::Ticket(ticket) = ask(&socket, &Ask::Ticket { binding: 1 }) else { panic!("there is no ticket") };
    assert_eq!(ask(&socket, &Ask::Ticket { binding: 2 }), Asked::Refused);
    (socket, ticket)
}

/// Sends a hello to a socket; the welcome's host, or the refusal.
fn hello(at: &Path, host: &str, ticket: Option<Ticket>) -> (OwnedFd, Result<String, String>) {
    let socket = handover::connect(at).unwrap();
    let hello = Hello {
        version: context::VERSION,
        host: Some(host.into()),
        command: "test".into(),
        token: None,
        ticket,
        returns: false,
    };
    handover::send(socket.as_fd(), &serde_json::to_vec(&hello).unwrap(), &[]).unwrap();
    let (answer, _) = handover::recv(socket.as_fd()).unwrap();
    let answer = match serde_json::from_slice(&answer).unwrap() {
        Answer::Welcome(welcome) => Ok(welcome.host),
        Answer::Refused(sentence) => Err(sentence),
    };
    (socket, answer)
}

fn listening(toed: &Toed) -> Vec<(u64, usize)> {
    let answer = toed.ask(&daemon::protocol::Question::Ls);
    let listeners = answer["hosts"][0]["listeners"].as_array().unwrap();
    listeners.iter().map(|one| (one["port"].as_u64().unwrap(), one["pids"].as_array().unwrap().len())).collect()
}

#[test]
fn those_that_share_a_listener_share_it_again_in_any_order() {
    let mut toed = Toed::start(CONFIGURATION);
    let (_first, ticket) = listener(&toed);
    toed.kill_and_restart();
    let (one, _, _) = attach_numbered(&toed.socket(), "a");
    let (two, _, _) = attach_numbered(&toed.socket(), "a");
    let Asked::Listens(binding) = listen_again(&one, &ticket) else { panic!("it is not back") };
    assert_eq!(listen_again(&two, &ticket), Asked::Listens(binding), "it joins");
    assert_eq!(listening(&toed).len(), 1);
    drop(one);
    until("the first one's end", || toed.contexts().len() == 1);
    assert_eq!(listening(&toed), [(9000, 1)], "the other one has it");
    // Another restart: a ticket is good for every successor, and a listener that came back has one.
    let Asked::Ticket(again) = ask(&two, &Ask::Ticket { binding }) else { panic!("there is no ticket") };
    assert_eq!(again, ticket);
}

#[test]
fn a_ticket_is_for_one_address_of_one_host() {
    let mut toed = Toed::start(CONFIGURATION);
    let (_first, ticket) = listener(&toed);
    toed.kill_and_restart();
    let (socket, _, _) = attach_numbered(&toed.socket(), "a");
    let (elsewhere, _, _) = attach_numbered(&toed.socket(), "b");
    let of_another_user = Ticket { uid: ticket.uid + 1, ..ticket.clone() };
    assert_eq!(listen_again(&socket, &of_another_user), Asked::Failed(libc::EACCES));
    // Sealed for host a, it is worth no more at host b than what a process may bind by itself.
    assert_eq!(listen_again(&elsewhere, &of_another_user), Asked::Failed(libc::EACCES));
    let mut nowhere = ticket.clone();
    nowhere.local.port = 0;
    assert_eq!(listen_again(&socket, &nowhere), Asked::Failed(libc::EINVAL));
    // Another program was faster.
    let (_other, mut end, _) = attach_numbered(&toed.socket(), "a");
    listen(&mut end, 9000);
    assert_eq!(listen_again(&socket, &ticket), Asked::Failed(libc::EADDRINUSE));
}

#[test]
fn the_return_socket_accepts_only_a_ticket() {
    let mut toed = Toed::start(CONFIGURATION);
    let (_first, ticket) = listener(&toed);
    toed.kill_and_restart();
    let door = return_path(&toed.socket());
    assert_eq!(fs::metadata(&door).unwrap().permissions().mode() & 0o777, 0o666);
    let refused = |host, ticket| hello(&door, host, ticket).1.unwrap_err();
    assert!(refused("a", None).contains("may not attach"));
    assert!(refused("b", Some(ticket.clone())).contains("may not attach"));
    assert!(refused("a", Some(Ticket { seal: ticket.seal ^ 1, ..ticket.clone() })).contains("may not attach"));
    let (socket, welcome) = hello(&door, "a", Some(ticket.clone()));
    assert_eq!(welcome, Ok("a".into()));
    assert!(matches!(listen_again(&socket, &ticket), Asked::Listens(_)));
    // A new daemon does not come in here.
    let unknown = handover::connect(&door).unwrap();
    handover::send(unknown.as_fd(), b"{\"takeover\":1}", &[]).unwrap();
    let answer = handover::recv_bytes(unknown.as_fd()).unwrap();
    assert!(String::from_utf8_lossy(&answer).contains("no hello"), "{answer:?}");
}

#[test]
fn the_key_goes_with_the_last_program() {
    let mut toed = Toed::start(CONFIGURATION);
    let key = toed.directory.join("toed.sock.key");
    let (socket, _) = listener(&toed);
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let before = fs::read(&key).unwrap();
    assert!(toed.end().success());
    assert_eq!(fs::read(&key).unwrap(), before, "a program may come back");
    drop(socket);
    toed.kill_and_restart();
    assert_eq!(fs::read(&key).unwrap(), before);
    assert!(toed.end().success());
    assert!(!key.exists(), "no listener is left that could come back");
}
