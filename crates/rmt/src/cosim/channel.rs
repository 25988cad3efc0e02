//! The process that simulates both halves, and its protocol: requests one behind the other, answers in the same order,
//! over a socket. All numbers are little endian.
//!
//! - `T`, `I` or `E` is a packet through both halves, or through one. It has u16 port, u8 queue, u64 time, u32 length,
//!   u16 count and so many bytes. The answer: u8 half that it left, u8 flags (1: dropped, 2: past egress), u16 port, u8
//!   queue, u32 offset of the payload. Then, for copies: u16 port, u8 queue, u8 with a bit for each copy. For each copy
//!   there is u8 session, u16 count, and the bytes in front of it. Last come u16 count, and the headers.
//! - `W` is an operation of the control bus that writes: u8 half, u8 target, u32 index, data. It has no answer.
//! - `R` is one that reads: u8 half, u8 target, u32 index. The answer is the data.
//!
//! It sends `!` when it is ready. It ends when the socket closes.
use super::build::Executable;
use crate::native::Input;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// No answer takes longer, however busy the machine is: what takes longer does not come.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Operations are sent at the latest when they are so many bytes.
const BLOCK: usize = 32 << 10;
/// How often, every ten milliseconds, a process that was asked to end is checked before it is killed.
const CHECKS: u32 = 200;

/// So many bytes of what the process prints of a failure are reported.
const MOST_PRINTED: u64 = 1000;

/// A running simulation.
pub(super) struct Channel {
    child: Child,
    socket: UnixStream,
    requests: Vec<u8>,
    answers: Vec<u8>,
    /// What of the answers was taken.
    at: usize,
    /// Why nothing works any more.
    failure: Option<String>,
}

/// Result for a packet, before its copies and headers.
#[derive(Default)]
pub(super) struct Answer {
    pub egress: bool,
    pub dropped: bool,
    pub bypass: bool,
    pub port: u16,
    pub queue: u8,
    pub payload_at: usize,
    pub copy_port: u16,
    pub copy_queue: u8,
    pub copies: u8,
}

impl Channel {
    /// Starts the process and waits until it is ready.
    pub(super) fn start(executable: &Executable) -> Result<Channel, String> {
        let failed = |e: io::Error| format!("cannot start the simulated model {}: {e}", executable.path.display());
        let (socket, theirs) = UnixStream::pair().map_err(failed)?;
        let both = theirs.try_clone().map_err(failed)?;
        socket.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
        socket.set_write_timeout(Some(TIMEOUT)).map_err(failed)?;
        let mut command = Command::new(&executable.path);
        command.args(&executable.waveform).env_clear();
        // Whoever reads what the starting process prints is not to wait for this one, which may outlive it.
        command
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(OwnedFd::from(both)))
            .stderr(Stdio::piped());
        // What ends this process from the terminal reaches the other one by the socket's end, so that it ends last.
        let child = command.process_group(0).spawn().map_err(failed)?;
        drop(command);
        let (requests, answers) = (Vec::with_capacity(BLOCK), Vec::with_capacity(BLOCK));
        let mut channel = Channel { child, socket, requests, answers, at: 0, failure: None };
        let ready = channel.take(1) == Some(&[b'!'][..]);
        if ready { Ok(channel) } else { Err(channel.failure.take().unwrap_or_default()) }
    }

    /// Why the simulation ended.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// The number of its process.
    pub(super) fn process(&self) -> u32 {
        self.child.id()
    }

    /// An operation of the control bus that writes.
    pub(super) fn write(&mut self, half: u8, target: u8, index: u32, data: &[u8]) {
        self.requests.extend([b'W', half, target]);
        self.requests.extend(index.to_le_bytes());
        self.requests.extend(data);
        if self.requests.len() >= BLOCK {
            self.send();
        }
    }

    /// One that reads; zeros where the simulation has ended.
    pub(super) fn read(&mut self, half: u8, target: u8, index: u32, bytes: usize) -> Vec<u8> {
        self.requests.extend([b'R', half, target]);
        self.requests.extend(index.to_le_bytes());
        self.send();
        self.take(bytes).map_or_else(|| vec![0; bytes], <[u8]>::to_vec)
    }

    /// A packet. Nothing, where the simulation has ended.
    pub(super) fn packet(&mut self, kind: u8, packet: &Input<'_>, most: usize, now_ns: u64) -> Option<Answer> {
        let bytes = &packet.bytes[..packet.bytes.len().min(most)];
        let request = &mut self.requests;
        request.push(kind);
        request.extend(packet.port.to_le_bytes());
        request.push(packet.queue);
        request.extend(now_ns.to_le_bytes());
        request.extend((packet.length as u32).to_le_bytes());
        request.extend((bytes.len() as u16).to_le_bytes());
        request.extend(bytes);
        self.send();
        let front: &[u8; 13] = self.take(13)?.first_chunk()?;
        let [half, flags, p0, p1, queue, r0, r1, r2, r3, c0, c1, copy_queue, copies] = *front;
        Some(Answer {
            egress: half == 1,
            dropped: flags & 1 == 1,
            bypass: flags & 2 == 2,
            port: u16::from_le_bytes([p0, p1]),
            queue,
            payload_at: u32::from_le_bytes([r0, r1, r2, r3]) as usize,
            copy_port: u16::from_le_bytes([c0, c1]),
            copy_queue,
            copies,
        })
    }

    /// One of its copies: session, bytes in front.
    pub(super) fn copy(&mut self) -> Option<(u8, &[u8])> {
        let [session, low, high] = *self.take(3)?.first_chunk()?;
        Some((session, self.take(u16::from_le_bytes([low, high]).into())?))
    }

    /// Its headers, which come last.
    pub(super) fn headers(&mut self) -> Option<&[u8]> {
        let count = u16::from_le_bytes(*self.take(2)?.first_chunk()?);
        self.take(count.into())
    }

    fn send(&mut self) {
        if self.failure.is_none() {
            if let Err(e) = self.socket.write_all(&self.requests) {
                self.fail(&e);
            }
        }
        self.requests.clear();
    }

    /// The next bytes of the answers.
    fn take(&mut self, count: usize) -> Option<&[u8]> {
        if self.failure.is_some() {
            return None;
        }
        if self.at == self.answers.len() {
            self.answers.clear();
            self.at = 0;
        }
        while self.answers.len() - self.at < count {
            if let Err(e) = self.receive() {
                self.fail(&e);
                return None;
            }
        }
        self.at += count;
        Some(&self.answers[self.at - count..self.at])
    }

    fn receive(&mut self) -> io::Result<()> {
        let mut block = [0; 4096];
        match self.socket.read(&mut block) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.answers.extend(&block[..count]);
                Ok(())
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(e) => Err(e),
        }
    }

    #[cold]
    fn fail(&mut self, error: &io::Error) {
        let why = match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                format!("did not answer for {} seconds", TIMEOUT.as_secs())
            }
            _ => match self.printed() {
                printed if printed.is_empty() => "has ended".into(),
                printed => format!("has ended ({printed})"),
            },
        };
        let process = self.child.id();
        self.failure = Some(format!("the process that simulates the RTL ({process}) {why}: start the host again"));
    }

    /// What the process, which has ended, printed of a failure.
    fn printed(&mut self) -> String {
        let mut printed = Vec::new();
        if let Some(error) = self.child.stderr.take() {
            // What cannot be read is not reported.
            let _ = error.take(MOST_PRINTED).read_to_end(&mut printed);
        }
        String::from_utf8_lossy(&printed).trim().replace('\n', "; ")
    }
}

impl Drop for Channel {
    /// The process ends by itself when the socket closes. A waveform has to be written to its end first. Where system
    /// calls are filtered, nothing can be waited for.
    fn drop(&mut self) {
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        for _ in 0..CHECKS {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(10)),
                _ => return,
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_printed_before_its_end_is_reported() {
        let executable = Executable { path: "/bin/ls".into(), waveform: Some("/no/such/file".into()) };
        let failure = Channel::start(&executable).map(drop).unwrap_err();
        assert!(failure.contains("has ended (") && failure.contains("/no/such/file"), "{failure}");
    }
}
