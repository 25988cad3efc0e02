//! Requests and answers as messages, by `toe_comm` from Rust; `apps/comm_calls.c` is the same in C, and a peer of it.
//!
//! ```text
//! opentoe run --host HOST -- target/release/examples/comm_calls serve HOST PORT
//! opentoe run --host HOST -- target/release/examples/comm_calls call HOST ADDRESS PORT COUNT
//! ```
//!
//! The answer is the request with each bit turned. The caller compares each byte.
use std::io;
use std::net::SocketAddrV4;
use toe_api::{Buffer, Carries, Comm, ConnectionId, Event};

/// Calls under way, and most bytes of a request.
const CALLS: usize = 16;
const MOST: usize = 1 << 16;

fn main() -> io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let usage = || io::Error::other("usage: comm_calls serve HOST PORT | comm_calls call HOST ADDRESS PORT COUNT");
    match words[..] {
        ["serve", host, port] => serve(host, port.parse().map_err(|_| usage())?),
        ["call", host, address, port, count] => {
            let to = format!("{address}:{port}").parse().map_err(|_| usage())?;
            call(host, to, count.parse().map_err(|_| usage())?)
        }
        _ => Err(usage()),
    }
}

/// Buffers of one request each, in one registration.
fn buffers(comm: &Comm, count: usize) -> io::Result<Vec<Buffer>> {
    let mut rest = comm.buffer(count * MOST)?;
    let mut next = || {
        let later = rest.split_off(MOST);
        std::mem::replace(&mut rest, later)
    };
    Ok((0..count).map(|_| next()).collect())
}

fn receive(comm: &mut Comm, from: ConnectionId, mut buffer: Buffer) -> io::Result<()> {
    buffer.set_len(buffer.capacity());
    comm.receive(from, buffer, 0).map_err(|(error, _)| error)
}

fn unexpected(event: &Event) -> io::Error {
    io::Error::other(format!("this should not happen: {event:?}"))
}

/// Of one caller: its requests are answered, until it ends.
fn serve(host: &str, port: u16) -> io::Result<()> {
    let mut comm = Comm::open(Some(host))?;
    let mut free = buffers(&comm, CALLS)?;
    comm.listen(port, Carries::Messages, 0)?;
    let mut answers = 0;
    loop {
        for event in comm.wait(None)? {
            match event {
                Event::Listening { .. } => println!("listening"),
                Event::Accepted { connection, .. } => {
                    free.drain(..).try_for_each(|buffer| receive(&mut comm, connection, buffer))?;
                }
                // No request will come.
                Event::Received { buffer, .. } if buffer.is_empty() => {}
                Event::Received { connection, mut buffer, .. } => {
                    buffer.iter_mut().for_each(|byte| *byte = !*byte);
                    comm.send(connection, buffer, 0).map_err(|(error, _)| error)?;
                }
                Event::Sent { connection, buffer, .. } => {
                    answers += 1;
                    receive(&mut comm, connection, buffer)?;
                }
                Event::Ended { connection } => {
                    comm.end(connection)?;
                    println!("{answers} answers");
                    return Ok(());
                }
                other => return Err(unexpected(&other)),
            }
        }
    }
}

/// What a request has.
fn request(call: u64) -> Vec<u8> {
    let len = (call.wrapping_mul(2_654_435_761) % MOST as u64) as usize + 1;
    (0..len).map(|at| (call as usize * 31 + at * 7 + at / 251) as u8).collect()
}

/// The calls of one caller.
struct Caller {
    comm: Comm,
    connection: ConnectionId,
    asked: u64,
    answered: u64,
}

impl Caller {
    fn ask(&mut self, mut out: Buffer) -> io::Result<()> {
        let bytes = request(self.asked);
        out.set_len(bytes.len());
        out.copy_from_slice(&bytes);
        self.asked += 1;
        self.comm.send(self.connection, out, 0).map_err(|(error, _)| error)
    }

    fn check(&mut self, answer: &[u8]) -> io::Result<()> {
        let expected = request(self.answered);
        if answer.len() != expected.len() || answer.iter().zip(&expected).any(|(got, sent)| *got != !*sent) {
            return Err(io::Error::other(format!("answer {} is wrong", self.answered)));
        }
        self.answered += 1;
        Ok(())
    }
}

fn call(host: &str, to: SocketAddrV4, count: u64) -> io::Result<()> {
    let mut comm = Comm::open(Some(host))?;
    let (out, into) = (buffers(&comm, CALLS)?, buffers(&comm, CALLS)?);
    comm.connect(to, Carries::Messages, 0)?;
    let connection = match comm.wait(None)?.pop() {
        Some(Event::Connected { connection, .. }) => connection,
        other => return Err(io::Error::other(format!("no connection: {other:?}"))),
    };
    let mut caller = Caller { comm, connection, asked: 0, answered: 0 };
    into.into_iter().try_for_each(|buffer| receive(&mut caller.comm, connection, buffer))?;
    out.into_iter().take(count.min(CALLS as u64) as usize).try_for_each(|buffer| caller.ask(buffer))?;
    loop {
        for event in caller.comm.wait(None)? {
            match event {
                Event::Sent { buffer, .. } if caller.asked < count => caller.ask(buffer)?,
                Event::Sent { .. } => {}
                Event::Received { buffer, .. } if buffer.is_empty() => {}
                Event::Received { buffer, .. } => {
                    caller.check(&buffer)?;
                    receive(&mut caller.comm, connection, buffer)?;
                    if caller.answered == count {
                        caller.comm.end(connection)?;
                    }
                }
                Event::Ended { .. } => {
                    println!("{} calls", caller.answered);
                    return Ok(());
                }
                other => return Err(unexpected(&other)),
            }
        }
    }
}
