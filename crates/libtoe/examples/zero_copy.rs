//! Zero-copy from Rust: a server that answers each message from where it lies in the receive buffer, and a client that
//! checks. A message is a length of four bytes, then as many bytes. The last one of a group is answered first.
//!
//! ```text
//! opentoe run -- target/release/examples/zero_copy ADDRESS     (an address of the host)
//! ```
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use toe_api::{Connection, Reader, Room, Taken};

/// Messages that are kept before the last of them is answered.
const GROUP: usize = 5;
const MESSAGES: u32 = 2000;

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).ok_or_else(|| io::Error::other("usage: zero_copy ADDRESS"))?;
    toe_api::api_version()?;
    let listener = TcpListener::bind((address.as_str(), 0))?;
    // What is connected to its own host must be accepted by it, not by the kernel.
    listener.set_nonblocking(true)?;
    let _ = listener.accept();
    listener.set_nonblocking(false)?;
    let at = listener.local_addr()?;
    let server = std::thread::spawn(move || serve(listener.accept()?.0));
    let checked = ask(TcpStream::connect(at)?)?;
    server.join().map_err(|_| io::Error::other("the server panicked"))??;
    println!("{checked} messages");
    Ok(())
}

fn serve(stream: TcpStream) -> io::Result<()> {
    // SAFETY: the stream is this function's alone.
    let mut connection = unsafe { Connection::new(stream)? };
    let (mut reader, mut writer) = connection.halves();
    let mut group = Vec::new();
    while let Some(message) = receive(&mut reader)? {
        group.push(message);
        if group.len() == GROUP {
            while let Some(message) = group.pop() {
                let mut room = writer.reserve(4 + message.len())?;
                let [head, body] = [&(message.len() as u32).to_be_bytes()[..], &joined(&message)];
                put(&mut room, 0, head);
                put(&mut room, 4, body);
                room.commit(4 + body.len())?;
                // `message` is dropped here: its place is free before that of those that came earlier.
            }
        }
    }
    Ok(())
}

fn receive<'a>(reader: &mut Reader<'a>) -> io::Result<Option<Taken<'a>>> {
    let mut head = [0; 4];
    match reader.read_exact(&mut head) {
        Ok(()) => reader.take(u32::from_be_bytes(head) as usize).map(Some),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

fn joined(message: &Taken) -> Vec<u8> {
    message.pieces().concat()
}

/// Puts bytes at a place of the room.
fn put(room: &mut Room, at: usize, bytes: &[u8]) {
    let places = room.pieces().into_iter().flatten().skip(at);
    places.zip(bytes).for_each(|(place, byte)| *place = *byte);
}

/// The message of a number: its length depends on it, and so does each byte.
fn message(number: u32) -> Vec<u8> {
    (0..1 + number * 7919 % 3000).map(|at| (at + number) as u8).collect()
}

fn ask(mut stream: TcpStream) -> io::Result<u32> {
    let mut answers = stream.try_clone()?;
    let reader = std::thread::spawn(move || check(&mut answers));
    for number in 0..MESSAGES {
        let body = message(number);
        stream.write_all(&(body.len() as u32).to_be_bytes())?;
        stream.write_all(&body)?;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    reader.join().map_err(|_| io::Error::other("the client panicked"))?
}

fn check(answers: &mut TcpStream) -> io::Result<u32> {
    for first in (0..MESSAGES).step_by(GROUP) {
        for number in (first..first + GROUP as u32).rev() {
            let mut head = [0; 4];
            answers.read_exact(&mut head)?;
            let mut body = vec![0; u32::from_be_bytes(head) as usize];
            answers.read_exact(&mut body)?;
            if body != message(number) {
                return Err(io::Error::other(format!("message {number} came back changed")));
            }
        }
    }
    Ok(MESSAGES)
}
