//! A small load for memcached, in its text protocol: each connection asks, waits for the answer, and asks again.
use crate::arguments::MemloadArguments;
use rustix::event::epoll;
use serde_json::json;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Keys in use.
const KEYS: u64 = 1000;
/// Bytes of a value.
const VALUE: usize = 64;
/// One request in this many is a set.
const SETS: u64 = 10;
/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Loads a server and writes rate and percentiles as JSON.
pub(crate) fn main(arguments: &MemloadArguments) -> Result<(), String> {
    let failed = |e: io::Error| format!("memcached at {}: {e}", arguments.server);
    let mut load = Load::connect(arguments.server, arguments.connections).map_err(failed)?;
    load.fill().map_err(failed)?;
    let (elapsed, mut times) = load.run(Duration::from_secs(arguments.seconds.into())).map_err(failed)?;
    times.sort_unstable();
    let at = |share: f64| times.get((times.len() as f64 * share) as usize).map_or(0.0, |nanos| *nanos as f64 / 1000.0);
    let rate = times.len() as f64 / elapsed.as_secs_f64();
    crate::table::print_line(&json!({ "ops_per_s": rate, "p50_us": at(0.5), "p99_us": at(0.99) }).to_string());
    Ok(())
}

struct Connection {
    stream: TcpStream,
    asked: Instant,
    /// The request out is a set.
    set: bool,
    answer: Vec<u8>,
}

struct Load {
    connections: Vec<Connection>,
    /// Requests made so far: which key is next, and whether it is set.
    count: u64,
}

impl Load {
    fn connect(server: SocketAddr, connections: usize) -> io::Result<Load> {
        let connect = |_| {
            let stream = TcpStream::connect(server)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            Ok(Connection { stream, asked: Instant::now(), set: false, answer: Vec::new() })
        };
        Ok(Load { connections: (0..connections.max(1)).map(connect).collect::<io::Result<_>>()?, count: 0 })
    }

    /// Stores all keys.
    fn fill(&mut self) -> io::Result<()> {
        let connection = &mut self.connections[0];
        for key in 0..KEYS {
            connection.ask(key, true)?;
            while !connection.receive()? {}
        }
        Ok(())
    }

    /// Asks for a while; returns how long, and the time of each answer in nanoseconds.
    fn run(&mut self, duration: Duration) -> io::Result<(Duration, Vec<u64>)> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (at, connection) in self.connections.iter().enumerate() {
            epoll::add(&epoll, &connection.stream, epoll::EventData::new_u64(at as u64), epoll::EventFlags::IN)?;
        }
        let mut times = Vec::with_capacity(1 << 20);
        let begin = Instant::now();
        (0..self.connections.len()).try_for_each(|at| self.next(at))?;
        let mut events = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 64];
        let time_limit = rustix::event::Timespec { tv_sec: TIMEOUT.as_secs() as i64, tv_nsec: 0 };
        while begin.elapsed() < duration {
            let ready = epoll::wait(&epoll, &mut events[..], Some(&time_limit))?;
            if ready == 0 {
                return Err(io::Error::new(ErrorKind::TimedOut, "no connection is answered any more"));
            }
            for event in &events[..ready] {
                let at = event.data.u64() as usize;
                if self.connections[at].receive()? {
                    times.push(self.connections[at].asked.elapsed().as_nanos() as u64);
                    self.next(at)?;
                }
            }
        }
        Ok((begin.elapsed(), times))
    }

    fn next(&mut self, at: usize) -> io::Result<()> {
        self.count += 1;
        // A step that has no common divisor with the number of keys visits them all.
        self.connections[at].ask(self.count.wrapping_mul(7919) % KEYS, self.count % SETS == 0)
    }
}

impl Connection {
    fn ask(&mut self, key: u64, set: bool) -> io::Result<()> {
        let request = match set {
            true => format!("set key{key:04} 0 0 {VALUE}\r\n{}\r\n", "v".repeat(VALUE)),
            false => format!("get key{key:04}\r\n"),
        };
        (self.set, self.asked) = (set, Instant::now());
        self.answer.clear();
        self.stream.write_all(request.as_bytes())
    }

    /// Takes what has come; `true` once the answer is whole.
    fn receive(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 1024];
        let bytes = self.stream.read(&mut buffer)?;
        if bytes == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.answer.extend_from_slice(&buffer[..bytes]);
        let end: &[u8] = if self.set { b"STORED\r\n" } else { b"\r\nEND\r\n" };
        let whole = self.answer.ends_with(end);
        let strange = ["ERROR", "CLIENT_ERROR", "SERVER_ERROR", "END\r\n"];
        if !whole && strange.iter().any(|word| self.answer.starts_with(word.as_bytes())) {
            return Err(io::Error::new(ErrorKind::InvalidData, String::from_utf8_lossy(&self.answer).into_owned()));
        }
        Ok(whole)
    }
}
