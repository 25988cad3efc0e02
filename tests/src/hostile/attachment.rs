//! Attachment without libtoe: the daemon's protocol, for programs that break it.
use context::attach::{Answer, Hello, Welcome};
use context::{AppEnd, Bump, Completion, Congestion, Endpoint, Reply, Request, Slot};
use shm::{ByteRing, Region, handover};
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// How long an answer may take: far longer than a daemon that lives needs.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A context of this process.
pub(crate) struct Attachment {
    /// Its ends.
    pub end: AppEnd,
    _socket: OwnedFd,
    tag: u32,
    completions: HashMap<Slot, Completion>,
}

/// Connects and sends nothing.
pub(super) fn connect(socket: &Path) -> Result<OwnedFd, String> {
    handover::connect(socket).map_err(|e| format!("{}: {e}", socket.display()))
}

impl Attachment {
    /// Attaches, as libtoe does.
    pub(crate) fn new(path: &Path, host: &str) -> Result<Attachment, String> {
        let socket = connect(path)?;
        let (welcome, fds) = introduce(&socket, host)?;
        let [region, app_bell, daemon_bell]: [OwnedFd; 3] = fds.try_into().map_err(|_| "three descriptors come")?;
        let broken = |e: std::io::Error| e.to_string();
        let region = Arc::new(Region::from_fd(region).map_err(broken)?);
        let end = AppEnd::new(region, welcome.geometry, app_bell, daemon_bell).map_err(broken)?;
        Ok(Attachment { end, _socket: socket, tag: 0, completions: HashMap::new() })
    }

    /// Leaves a request; waits where the ring is full.
    pub(crate) fn request(&mut self, request: Request) -> Result<(), String> {
        let begin = Instant::now();
        while self.end.requests.push(request.to_words()).is_err() {
            patient(begin, "room for a request")?;
        }
        self.end.daemon_bell.ring_always();
        Ok(())
    }

    fn next_tag(&mut self) -> u32 {
        self.tag += 1;
        self.tag
    }

    /// Waits for a reply that `wanted` takes; others are forgotten.
    pub(crate) fn reply<T>(&mut self, what: &str, mut wanted: impl FnMut(Reply) -> Option<T>) -> Result<T, String> {
        let begin = Instant::now();
        loop {
            let words = self.end.replies.pop().map_err(|_| "the daemon's ring is corrupt")?;
            match words.and_then(Reply::from_words).map(&mut wanted) {
                Some(Some(found)) => return Ok(found),
                Some(None) => {}
                None => patient(begin, what)?,
            }
        }
    }

    /// Listens on a port.
    pub(crate) fn listen(&mut self, port: u16) -> Result<(), String> {
        let local = Endpoint::v4(Ipv4Addr::UNSPECIFIED, port);
        let tag = self.next_tag();
        self.request(Request::Bind { tag, local, reuse_address: true, reuse_port: true, dual_stack: false })?;
        let binding = self.reply("an address", |reply| match reply {
            Reply::Bound { tag: answered, binding, .. } if answered == tag => Some(Ok(binding)),
            Reply::Failed { tag: answered, errno } if answered == tag => Some(Err(format!("bind: errno {errno}"))),
            _ => None,
        })??;
        let tag = self.next_tag();
        self.request(Request::Listen { tag, binding, backlog: 64 })?;
        self.request(Request::Arm { binding, credits: 64 })
    }

    /// Opens a connection.
    pub(crate) fn connect(&mut self, to: (Ipv4Addr, u16)) -> Result<Slot, String> {
        let tag = self.ask_to_connect(to)?;
        self.reply("a connection", |reply| match reply {
            Reply::Connected { tag: answered, slot, .. } if answered == tag => Some(Ok(slot)),
            Reply::Failed { tag: answered, errno } if answered == tag => Some(Err(format!("connect: errno {errno}"))),
            _ => None,
        })?
    }

    fn ask_to_connect(&mut self, to: (Ipv4Addr, u16)) -> Result<u32, String> {
        let tag = self.next_tag();
        let remote = Endpoint::v4(to.0, to.1);
        self.request(Request::Connect {
            tag,
            binding: 0,
            remote,
            congestion: Congestion::DEFAULT,
            mss: 0,
            early: context::EarlyData::No,
        })?;
        Ok(tag)
    }

    /// Opens connections until one is refused, at most so many; returns how many were opened.
    pub(crate) fn connect_many(&mut self, to: (Ipv4Addr, u16), most: u32) -> Result<u32, String> {
        for opened in 0..most {
            if self.connect(to).is_err() {
                return Ok(opened);
            }
        }
        Ok(most)
    }

    /// Reserves addresses until one is refused.
    pub(crate) fn bind_many(&mut self, most: u32) -> Result<u32, String> {
        let local = Endpoint::v4(Ipv4Addr::UNSPECIFIED, 0);
        self.until_refused(most, |tag| Request::Bind {
            tag,
            local,
            reuse_address: false,
            reuse_port: false,
            dual_stack: false,
        })
    }

    /// Announces children that never come until that is refused.
    pub(crate) fn fork_many(&mut self, most: u32) -> Result<u32, String> {
        self.until_refused(most, |tag| Request::Fork { tag })
    }

    fn until_refused(&mut self, most: u32, request: impl Fn(u32) -> Request) -> Result<u32, String> {
        for done in 0..most {
            let tag = self.next_tag();
            self.request(request(tag))?;
            let refused = self.reply("an answer", |reply| match reply {
                Reply::Bound { tag: answered, .. } | Reply::Forked { tag: answered, .. } if answered == tag => {
                    Some(false)
                }
                Reply::Failed { tag: answered, .. } if answered == tag => Some(true),
                _ => None,
            })?;
            if refused {
                return Ok(done);
            }
        }
        Ok(most)
    }

    /// A connection's buffers, as far as its streams have grown.
    fn buffers(&self, slot: Slot) -> (ByteRing, ByteRing) {
        self.end.map_buffers(slot).expect("a slot that the daemon named")
    }

    /// Writes bytes at a position of a connection and bumps it.
    pub(crate) fn write(&mut self, slot: Slot, at: u32, bytes: &[u8]) {
        let (head, tx) = (at + bytes.len() as u32, Arc::new(self.buffers(slot).1));
        // What was posted before this may all be under way.
        let tx = tx.holding(at.saturating_sub(tx.size()), head);
        tx.write(at, bytes);
        self.post(Bump { slot, tx_head: head, rx_head: 0, fin: false, ring: tx.number() });
    }

    /// Leaves a bump, where there is room.
    pub(crate) fn post(&mut self, bump: Bump) {
        let begin = Instant::now();
        while self.end.bumps.push(bump.to_words()).is_err() && begin.elapsed() < TIMEOUT {
            self.end.daemon_bell.ring_always();
            thread::yield_now();
        }
        self.end.daemon_bell.ring_always();
    }

    /// Waits for these bytes, from the begin of the connection on.
    pub(crate) fn expect(&mut self, slot: Slot, bytes: &[u8]) -> Result<(), String> {
        let begin = Instant::now();
        while self.completions.get(&slot).is_none_or(|completion| (completion.rx_tail as usize) < bytes.len()) {
            match self.end.completions.pop().map_err(|_| "the daemon's ring is corrupt")? {
                Some(words) => {
                    let completion = Completion::from_words(words);
                    self.completions.insert(completion.slot, completion);
                }
                None => patient(begin, "bytes that were sent")?,
            }
        }
        let mut found = vec![0; bytes.len()];
        self.buffers(slot).0.read(0, &mut found);
        if found == bytes { Ok(()) } else { Err("the bytes are not those that were sent".into()) }
    }

    /// Closes a connection and waits until its slot is free.
    pub(crate) fn close(&mut self, slot: Slot, tx_head: u32, rx_head: u32) -> Result<(), String> {
        self.request(Request::Close { slot, tx_head, rx_head, abort: true })?;
        self.completions.remove(&slot);
        self.reply("a slot to be free", |reply| (reply == Reply::Freed { slot }).then_some(()))
    }
}

fn introduce(socket: &OwnedFd, host: &str) -> Result<(Welcome, Vec<OwnedFd>), String> {
    let hello = Hello {
        version: context::VERSION,
        host: Some(host.into()),
        command: "hostile".into(),
        token: None,
        ticket: None,
        returns: false,
    };
    let hello = serde_json::to_vec(&hello).map_err(|e| e.to_string())?;
    let failed = |e: std::io::Error| format!("attach: {e}");
    handover::send(socket.as_fd(), &hello, &[]).map_err(failed)?;
    let (answer, fds) = handover::recv(socket.as_fd()).map_err(failed)?;
    match serde_json::from_slice(&answer).map_err(|e| format!("attach: {e}"))? {
        Answer::Welcome(welcome) => Ok((welcome, fds)),
        Answer::Refused(sentence) => Err(sentence),
    }
}

fn patient(begin: Instant, what: &str) -> Result<(), String> {
    if begin.elapsed() > TIMEOUT {
        return Err(format!("no sign of {what} for {} s", TIMEOUT.as_secs()));
    }
    thread::sleep(Duration::from_micros(50));
    Ok(())
}

/// Random numbers from a seed (xorshift64).
pub(crate) struct Dice(u64);

impl Dice {
    /// From a seed.
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number.
    #[allow(clippy::should_implement_trait)]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// A number that code tends to get wrong, in each half, or any.
    pub(crate) fn adversarial(&mut self) -> u64 {
        let half = |dice: &mut Dice| match dice.below(6) {
            0 => 0,
            1 => u32::MAX as u64,
            2 => 0x7fff_ffff + dice.below(3),
            3 => 1 << dice.below(32),
            4 => dice.below(70_000),
            _ => dice.next() & u32::MAX as u64,
        };
        half(self) | half(self) << 32
    }
}
