//! Management socket: a short-lived thread for each connection.
use crate::access::Access;
use crate::capture::Captures;
use crate::modules::Modules;
use crate::owners::Owners;
use crate::programs;
use crate::protocol::{Answer, MAX_OBJECT, MAX_QUESTION, Question, RegisterWish, Xdp};
use crate::registers;
use crate::tracepoints::Tracepoints;
use crate::views::Observer;
use rustix::event::{EventfdFlags, eventfd};
use serde_json::Value;
use shm::handover;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

/// Most connections at the same time.
const MAX_CLIENTS: usize = 32;
/// How long somebody may keep a connection without asking, and an answer may wait to be read.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What the threads of the management socket share.
#[derive(Clone)]
pub(crate) struct Management {
    observer: Arc<Observer>,
    modules: Arc<Modules>,
    clients: Arc<AtomicUsize>,
    captures: Captures,
    tracepoints: Arc<Tracepoints>,
    /// Users who may do more than read.
    operators: Access,
    /// The processes for which the daemon was started, where it was.
    owners: Option<Arc<Owners>>,
    /// Readable once a client has asked the daemon to end.
    stop: Arc<OwnedFd>,
}

impl Management {
    pub(crate) fn new(
        observer: Arc<Observer>,
        modules: Modules,
        tracepoints: Arc<Tracepoints>,
        operators: Access,
        owners: Option<Arc<Owners>>,
    ) -> io::Result<Management> {
        let stop = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let (clients, captures) = (Arc::new(AtomicUsize::new(0)), Captures::default());
        let (modules, stop) = (Arc::new(modules), Arc::new(stop));
        Ok(Management { observer, modules, clients, captures, tracepoints, operators, owners, stop })
    }

    /// Readable once a client has asked the daemon to end.
    pub(crate) fn stop_fd(&self) -> BorrowedFd<'_> {
        self.stop.as_fd()
    }

    /// Serves a connection on a thread of its own, where there are not too many.
    pub(crate) fn serve(&self, stream: UnixStream) {
        let mine = self.clone();
        if self.clients.fetch_add(1, SeqCst) >= MAX_CLIENTS {
            let _ = write_answer(&stream, &Answer::Error("too many are asking at the same time: try again".into()));
            self.clients.fetch_sub(1, SeqCst);
            return;
        }
        let body = move || {
            // An error here is a client that is gone or silent: none is left for a report.
            let _ = mine.converse(&stream);
            mine.clients.fetch_sub(1, SeqCst);
        };
        if thread::Builder::new().name("manage".into()).spawn(body).is_err() {
            self.clients.fetch_sub(1, SeqCst);
        }
    }

    fn converse(&self, stream: &UnixStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let mut reader = BufReader::new(stream);
        loop {
            let mut line = String::new();
            (&mut reader).take(MAX_QUESTION).read_line(&mut line)?;
            if !line.ends_with('\n') {
                return Ok(());
            }
            let question = serde_json::from_str(&line);
            if question.as_ref().is_ok_and(changes) && !self.operators.may_manage(stream.as_fd()) {
                let sentence = "only root, the daemon's own user and manage_group may do this; others may read";
                // What follows the question, as an object does, is not read: so the conversation ends here.
                return write_answer(stream, &Answer::Error(sentence.into()));
            }
            let stops = matches!(question, Ok(Question::Stop));
            let answer = match question {
                Ok(Question::Capture(wish)) => match self.captures.begin(&self.observer, &wish) {
                    Ok(capture) => {
                        write_answer(stream, &Answer::Ok(capture.interfaces()))?;
                        return capture.stream(stream);
                    }
                    Err(sentence) => Answer::Error(sentence),
                },
                Ok(Question::Trace(wish)) => match self.tracepoints.begin(&wish) {
                    Ok(trace) => {
                        write_answer(stream, &Answer::Ok(trace.answer()))?;
                        return trace.run(stream);
                    }
                    Err(sentence) => Answer::Error(sentence),
                },
                Ok(Question::Xdp(question)) => match object(bytes_with(&question), &mut reader)? {
                    Some(object) => self.modules.answer(&question, &object).map_or_else(Answer::Error, Answer::Ok),
                    None => return write_answer(stream, &too_large("a module")),
                },
                Ok(Question::Program { host, bytes }) => match object(bytes, &mut reader)? {
                    Some(body) => {
                        programs::load(&self.observer, host.as_deref(), &body).map_or_else(Answer::Error, Answer::Ok)
                    }
                    None => return write_answer(stream, &too_large("a program")),
                },
                Ok(Question::Join) => self.join(stream).map_or_else(Answer::Error, Answer::Ok),
                Ok(question) => self.answer(question).map_or_else(Answer::Error, Answer::Ok),
                Err(error) => Answer::Error(format!("this is no question of this protocol: {error}")),
            };
            write_answer(stream, &answer)?;
            if stops {
                // Only now: the process may be gone before this thread runs again.
                rustix::io::write(&*self.stop, &1u64.to_ne_bytes())?;
            }
        }
    }

    fn hello(&self) -> Value {
        let mut hello = self.observer.hello();
        if let Some(owners) = &self.owners {
            hello["owners"] = owners.pids().into();
            hello["shared"] = owners.shared().into();
        }
        hello
    }

    /// The process at the other end keeps the daemon from now on.
    fn join(&self, stream: &UnixStream) -> Result<Value, String> {
        let owners = self.owners.as_ref().ok_or("this daemon ends only by a signal or a request")?;
        let peer = handover::credentials(stream.as_fd()).map_err(|e| format!("the asker cannot be seen: {e}"))?;
        owners.join(peer.pid)?;
        Ok(self.hello())
    }

    fn answer(&self, question: Question) -> Result<Value, String> {
        match question {
            Question::Hello => Ok(self.hello()),
            Question::Ls => self.observer.ls(),
            Question::Flows { host, from } => self.observer.flows(&host, from),
            Question::Stats { host, flow } => self.observer.stats(host.as_deref(), flow),
            Question::Drops => self.observer.drops(),
            Question::Descriptors { pid, fd } => self.observer.descriptors(pid, fd),
            Question::Tracepoints { host, enable, disable } => {
                self.tracepoints.figures(host.as_deref(), &enable, &disable)
            }
            Question::Registers { host, wish } => registers::answer(&self.observer, host.as_deref(), &wish),
            // Those that are more than an answer are handled before.
            Question::Stop
            | Question::Join
            | Question::Capture(_)
            | Question::Trace(_)
            | Question::Xdp(_)
            | Question::Program { .. } => Ok(Value::Null),
        }
    }
}

/// This request does more than read figures: it changes the daemon, or shows what programs send.
fn changes(question: &Question) -> bool {
    match question {
        Question::Hello
        | Question::Ls
        | Question::Flows { .. }
        | Question::Stats { .. }
        | Question::Drops
        | Question::Descriptors { .. } => false,
        Question::Tracepoints { enable, disable, .. } => !enable.is_empty() || !disable.is_empty(),
        Question::Registers { wish, .. } => matches!(wish, RegisterWish::Set { .. }),
        Question::Xdp(Xdp::Ls { .. } | Xdp::Maps { .. }) => false,
        Question::Xdp(_)
        | Question::Program { .. }
        | Question::Capture(_)
        | Question::Trace(_)
        | Question::Join
        | Question::Stop => true,
    }
}

/// How many bytes come with a question about modules.
fn bytes_with(question: &Xdp) -> u64 {
    if let Xdp::Load { bytes, .. } = question { *bytes } else { 0 }
}

/// The bytes that come with a question; none where they are too many.
fn object(bytes: u64, reader: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    if bytes > MAX_OBJECT {
        return Ok(None);
    }
    let mut object = vec![0; bytes as usize];
    reader.read_exact(&mut object)?;
    Ok(Some(object))
}

fn too_large(what: &str) -> Answer {
    Answer::Error(format!("the object is too large for {what}: {} MiB are the limit", MAX_OBJECT >> 20))
}

fn write_answer(mut stream: &UnixStream, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    stream.write_all(&line)
}
