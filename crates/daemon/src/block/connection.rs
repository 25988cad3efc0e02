//! A connection of an NBD client: a thread reads its requests, another one writes the answers as they come.
use super::budget::{Budget, Share};
use super::gate::{Gate, cover};
use super::nbd::{self, Command, Export, MOST, Request};
use super::spare::SpareBuffers;
use solar::transport::Submission;
use solar::{BLOCK_LEN, Direction, Status};
use std::io::{self, BufReader, IoSlice, Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// Most bytes that a client's requests hold before it must take answers in.
const MOST_HELD: usize = 32 << 20;
/// So many bytes of requests are read at once, and of answers written.
const TOGETHER: usize = 256 << 10;
/// So many answers at most: the kernel takes 1,024 pieces at once (`IOV_MAX`), and each has two.
const MOST_TOGETHER: usize = 512;
/// What a request holds beside its data.
const REQUEST: usize = 256;

/// An answer that is to be sent.
struct Answer {
    handle: u64,
    error: u32,
    data: Vec<u8>,
    range: Range<usize>,
    /// Given back once it has been sent: a client that takes no answers in sends no more requests.
    _share: Share,
}

/// A client that waits for an answer.
struct Asker {
    handle: u64,
    answers: Sender<Answer>,
    share: Share,
}

impl Asker {
    fn answer(self, error: i32) {
        self.answer_with(error, Vec::new(), 0..0);
    }

    /// The writer ends only when no request waits for an answer any more, so it takes all.
    fn answer_with(self, error: i32, data: Vec<u8>, range: Range<usize>) {
        let answer = Answer { handle: self.handle, error: error as u32, data, range, _share: self.share };
        let _ = self.answers.send(answer);
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

/// Serves a client until it closes the connection.
pub(super) fn serve(mut stream: UnixStream, export: &Export, gate: &Arc<Gate>) -> io::Result<()> {
    if !nbd::negotiate(&mut stream, export)? {
        return Ok(());
    }
    let (answers, to_send) = channel();
    let writing = stream.try_clone()?;
    let spare = Arc::new(SpareBuffers::default());
    let returned = Arc::clone(&spare);
    let writer =
        thread::Builder::new().name("nbd-answers".into()).spawn(move || send_all(writing, &to_send, &returned))?;
    let served = serve_requests(&mut stream, export, Batch { gate, spare: &spare, waiting: Vec::new() }, &answers);
    drop(answers);
    // What is under way has its own way to the writer, which ends with the last one.
    let _ = writer.join();
    served
}

/// Answers that are there at the same time go in one system call, each from where it was read to.
fn send_all(mut stream: UnixStream, answers: &Receiver<Answer>, spare: &SpareBuffers) {
    let (mut gone, mut together) = (false, Vec::with_capacity(MOST_TOGETHER));
    while let Some(first) = next_answer(answers) {
        let (mut next, mut bytes) = (Some(first), 0);
        while let Some(answer) = next {
            bytes += nbd::REPLY_LEN + answer.range.len();
            together.push(answer);
            let more = bytes < TOGETHER && together.len() < MOST_TOGETHER;
            next = if more { answers.try_recv().ok() } else { None };
        }
        gone = gone || write_together(&mut stream, &together).is_err();
        together.drain(..).for_each(|answer| spare.keep(answer.data));
    }
}

fn write_together(stream: &mut UnixStream, answers: &[Answer]) -> io::Result<()> {
    let heads: Vec<_> = answers.iter().map(|answer| nbd::answer(answer.handle, answer.error)).collect();
    let of = |(answer, head)| -> [IoSlice<'_>; 2] {
        let (answer, head): (&Answer, &[u8; nbd::REPLY_LEN]) = (answer, head);
        [IoSlice::new(head), IoSlice::new(&answer.data[answer.range.clone()])]
    };
    let mut pieces: Vec<IoSlice<'_>> = answers.iter().zip(&heads).flat_map(of).collect();
    let mut left = &mut pieces[..];
    while !left.is_empty() {
        match stream.write_vectored(left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut left, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The next answer; `None` where there will be none. Waking a thread costs the data-path more than an answer does, so
/// this one gives way once before it sleeps: meanwhile others may come.
fn next_answer(answers: &Receiver<Answer>) -> Option<Answer> {
    if let Ok(answer) = answers.try_recv() {
        return Some(answer);
    }
    thread::yield_now();
    answers.try_recv().ok().or_else(|| answers.recv().ok())
}

/// Requests that were read, and are not on their way yet.
struct Batch<'g> {
    gate: &'g Gate,
    spare: &'g SpareBuffers,
    waiting: Vec<Submission>,
}

impl Batch<'_> {
    /// All go on their way: before anything waits.
    fn pass(&mut self) {
        if !self.waiting.is_empty() {
            self.gate.submit_all(std::mem::take(&mut self.waiting));
        }
    }

    fn read(&mut self, request: &Request, asker: Asker) {
        let len = request.len as usize;
        let (lba, skip, room) = cover(request.offset, len);
        let done = Box::new(move |status, data: Vec<u8>| match error_of(status) {
            0 => asker.answer_with(0, data, skip..skip + len),
            error => asker.answer(error),
        });
        self.waiting.push(Submission { direction: Direction::Read, lba, buffer: self.spare.take(room), done });
    }

    fn write(&mut self, request: &Request, data: Vec<u8>, asker: Asker) {
        if request.offset % BLOCK_LEN as u64 != 0 || data.len() % BLOCK_LEN != 0 {
            self.pass();
            return asker.answer(error_of(self.gate.write_within(request.offset, &data)));
        }
        let done = Box::new(move |status, data: Vec<u8>| asker.answer_with(error_of(status), data, 0..0));
        let lba = request.offset / BLOCK_LEN as u64;
        self.waiting.push(Submission { direction: Direction::Write, lba, buffer: data, done });
    }
}

fn serve_requests(
    stream: &mut UnixStream,
    export: &Export,
    mut batch: Batch<'_>,
    answers: &Sender<Answer>,
) -> io::Result<()> {
    let budget = Arc::new(Budget::default());
    let mut stream = BufReader::with_capacity(TOGETHER, stream);
    loop {
        if stream.buffer().len() < nbd::REQUEST_LEN {
            batch.pass();
        }
        let request = Request::read(&mut stream)?;
        let refused = refusal(&request, export);
        let data_len = match request.command {
            Command::Disconnect => {
                batch.pass();
                return Ok(());
            }
            Command::Write if request.len > MOST => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "an NBD write is longer than 32 MiB"));
            }
            Command::Read | Command::Write if request.len <= MOST => request.len as usize,
            _ => 0,
        };
        if budget.bytes() >= MOST_HELD {
            batch.pass();
            budget.wait_until(|held| held < MOST_HELD);
        }
        let asker = Asker { handle: request.handle, answers: answers.clone(), share: budget.take(REQUEST + data_len) };
        let mut data = Vec::new();
        if request.command == Command::Write {
            if stream.buffer().len() < data_len {
                batch.pass();
            }
            data = batch.spare.take(data_len);
            stream.read_exact(&mut data)?;
        }
        match (request.command, refused) {
            (_, Some(error)) => asker.answer(error),
            (Command::Read, _) => batch.read(&request, asker),
            (Command::Write, _) => batch.write(&request, data, asker),
            // What was answered is durable.
            _ => asker.answer(0),
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
