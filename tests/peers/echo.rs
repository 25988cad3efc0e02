//! An echo server and its client, with a thread for each connection, on Rust's standard library alone.
//!
//! usage: `echo serve PORT`, or `echo call ADDRESS PORT CONNECTIONS MESSAGES`
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| words[at].parse::<u16>().expect("a number");
    match words[0].as_str() {
        "serve" => serve(number(1)),
        _ => call(&words[1], number(2), number(3), number(4)),
    }
}

fn serve(port: u16) {
    let listener = TcpListener::bind(("0.0.0.0", port)).expect("an address");
    for connection in listener.incoming() {
        let mut connection = connection.expect("a connection");
        std::thread::spawn(move || std::io::copy(&mut connection.try_clone().expect("a copy"), &mut connection));
    }
}

fn call(address: &str, port: u16, connections: u16, messages: u16) {
    let one = |number: u16| {
        let mut connection = TcpStream::connect((address, port)).expect("a connection");
        connection.set_nodelay(true).expect("no delay");
        connection.set_read_timeout(Some(Duration::from_secs(10))).expect("a time-out");
        for message in 0..messages {
            let sent: Vec<u8> = (0..1 + message % 3000).map(|at| (at ^ message ^ number) as u8).collect();
            connection.write_all(&sent).expect("room");
            let mut got = vec![0; sent.len()];
            connection.read_exact(&mut got).expect("an echo");
            assert!(got == sent, "connection {number}, message {message}: other bytes came back");
        }
    };
    std::thread::scope(|scope| (0..connections).for_each(|number| drop(scope.spawn(move || one(number)))));
    println!("{connections} connections, {messages} messages each");
}
