//! A connection of an NBD client: a thread reads its requests, another one writes the answers as they come.
use super::gate::{Gate, cover};
use super::nbd::{self, Command, Export, MOST, Request};
use solar::{BLOCK_LEN, Direction, Status};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// An answer that is to be sent.
struct Answer {
    handle: u64,
    error: u32,
    data: Vec<u8>,
    range: Range<usize>,
}

impl Answer {
    fn new(handle: u64, error: i32) -> Answer {
        Answer { handle, error: error as u32, data: Vec::new(), range: 0..0 }
    }
}

/// The error number of a status, among those that the protocol has; 0 for success.
fn error_of(status: Status) -> i32 {
    match status {
        Status::Ok => 0,
        Status::ReadOnly => libc::EPERM,
        Status::OutOfRange => libc::EINVAL,
        Status::NoSpace => libc::ENOSPC,
        Status::Fenced | Status::NoSession => libc::ESHUTDOWN,
        _ => libc::EIO,
    }
}

/// Serves a client until it goes.
pub(super) fn serve(mut stream: UnixStream, export: &Export, gate: &Arc<Gate>) -> io::Result<()> {
    if !nbd::negotiate(&mut stream, export)? {
        return Ok(());
    }
    let (answers, to_send) = channel();
    let writing = stream.try_clone()?;
    let writer = thread::Builder::new().name("nbd-answers".into()).spawn(move || send_all(writing, &to_send))?;
    let served = serve_requests(&mut stream, export, gate, &answers);
    drop(answers);
    // What is under way has its own way to the writer, which ends with the last one.
    let _ = writer.join();
    served
}

fn send_all(mut stream: UnixStream, answers: &Receiver<Answer>) {
    let mut gone = false;
    for answer in answers {
        let Answer { handle, error, data, range } = answer;
        gone = gone || nbd::answer(&mut stream, handle, error, &data[range]).is_err();
    }
}

fn serve_requests(
    stream: &mut UnixStream,
    export: &Export,
    gate: &Arc<Gate>,
    answers: &Sender<Answer>,
) -> io::Result<()> {
    loop {
        let request = Request::read(stream)?;
        let refused = refusal(&request, export);
        let data = match request.command {
            Command::Disconnect => return Ok(()),
            Command::Write if request.len > MOST => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "an NBD write is longer than 32 MiB"));
            }
            Command::Write => {
                let mut data = vec![0; request.len as usize];
                stream.read_exact(&mut data)?;
                data
            }
            _ => Vec::new(),
        };
        // The writer ends only after this loop.
        let answer = |answer| drop(answers.send(answer));
        match (request.command, refused) {
            (_, Some(error)) => answer(Answer::new(request.handle, error)),
            (Command::Read, _) => read(&request, gate, answers.clone()),
            (Command::Write, _) => write(&request, data, gate, answers.clone()),
            // What was answered is durable.
            _ => answer(Answer::new(request.handle, 0)),
        }
    }
}

/// Why a request is refused: an error number.
fn refusal(request: &Request, export: &Export) -> Option<i32> {
    let ends = request.offset.checked_add(request.len.into());
    match request.command {
        Command::Disconnect | Command::Flush => None,
        Command::Other => Some(libc::EINVAL),
        Command::Write if export.read_only => Some(libc::EPERM),
        Command::Write if ends.is_none_or(|end| end > export.bytes) => Some(libc::ENOSPC),
        _ if request.len == 0 || request.len > MOST => Some(libc::EINVAL),
        _ => ends.is_none_or(|end| end > export.bytes).then_some(libc::EINVAL),
    }
}

fn read(request: &Request, gate: &Gate, answers: Sender<Answer>) {
    let (handle, len) = (request.handle, request.len as usize);
    let (lba, skip, room) = cover(request.offset, len);
    let done = Box::new(move |status, data: Vec<u8>| {
        let error = error_of(status) as u32;
        let range = if error == 0 { skip..skip + len } else { 0..0 };
        let _ = answers.send(Answer { handle, error, data, range });
    });
    gate.submit(Direction::Read, lba, vec![0; room], done);
}

fn write(request: &Request, data: Vec<u8>, gate: &Gate, answers: Sender<Answer>) {
    let handle = request.handle;
    if request.offset % BLOCK_LEN as u64 != 0 || data.len() % BLOCK_LEN != 0 {
        let status = gate.write_within(request.offset, &data);
        let _ = answers.send(Answer::new(handle, error_of(status)));
        return;
    }
    let done = Box::new(move |status, _: Vec<u8>| {
        let _ = answers.send(Answer::new(handle, error_of(status)));
    });
    gate.submit(Direction::Write, request.offset / BLOCK_LEN as u64, data, done);
}
