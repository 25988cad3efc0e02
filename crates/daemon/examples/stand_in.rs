//! Stand-in for an accelerator: memory that only this process maps, and which the daemon reaches by a DMA
//! queue only. `stand_in PATH` meets the test at that socket and does what messages order:
//!
//! - `serve HOW`, with a queue's descriptor: serves the queue from now on, see [`How`];
//! - `read AT LEN` answers those bytes; `write AT`, with bytes behind a newline, puts them there;
//! - `copies` answers how many copies were made.
use memory::{DmaCopy, DmaServer};
use shm::handover;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// The device's addresses begin here: they are no addresses of any process.
const FIRST: u64 = 0x7000_0000_0000_0000;
const BYTES: usize = 8 << 20;

/// How a queue is served.
#[derive(Clone, Copy)]
enum How {
    /// Each copy after so many microseconds.
    After(u64),
    /// Copies are made, and completed, in another order than they were ordered.
    Shuffled,
    /// Orders are taken, and nothing is done.
    Silent,
    /// The process ends with this copy.
    Dying(u64),
    /// Each copy fails.
    Failing,
}

fn how(words: &[&str]) -> How {
    let number = || words[1].parse().expect("a number");
    match words[0] {
        "after" => How::After(number()),
        "shuffled" => How::Shuffled,
        "silent" => How::Silent,
        "dying" => How::Dying(number()),
        "failing" => How::Failing,
        other => panic!("{other} is no way to serve"),
    }
}

struct Device {
    memory: Mutex<Vec<u8>>,
    copies: AtomicU64,
}

impl Device {
    /// What is asked for, where it is within the device: 0, or an error number.
    fn copy(&self, queue: &DmaServer, copy: DmaCopy) -> i32 {
        let DmaCopy { into_device, address, len, at, .. } = copy;
        let Some(begin) = address.checked_sub(FIRST).map(|begin| begin as usize) else { return libc::EFAULT };
        let mut memory = self.memory.lock().expect("no thread panics");
        let Some(bytes) = memory.get_mut(begin..begin.saturating_add(len)) else { return libc::EFAULT };
        if into_device {
            queue.read(at, bytes);
        } else {
            queue.write(at, bytes);
        }
        self.copies.fetch_add(1, Relaxed);
        0
    }

    fn serve(&self, mut queue: DmaServer, how: How) {
        loop {
            let mut taken = Vec::new();
            while let Some(copy) = queue.take() {
                taken.push(copy);
            }
            if taken.is_empty() && !queue.wait(None).expect("a wait") {
                return;
            }
            if matches!(how, How::Shuffled) {
                // The others come while these wait.
                thread::sleep(Duration::from_micros(200));
                taken.extend(std::iter::from_fn(|| queue.take()));
                taken.sort_by_key(|copy| copy.number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 7);
            }
            for copy in taken {
                match how {
                    How::After(micros) if micros > 0 => thread::sleep(Duration::from_micros(micros)),
                    How::Silent => continue,
                    How::Dying(last) if self.copies.load(Relaxed) >= last => std::process::exit(0),
                    _ => {}
                }
                let error = if matches!(how, How::Failing) { libc::EIO } else { self.copy(&queue, copy) };
                queue.done(copy.number, error);
            }
        }
    }
}

fn main() {
    let path = std::env::args().nth(1).expect("the path of a socket");
    let socket = handover::connect(path.as_ref()).expect("the test");
    let device = Arc::new(Device { memory: Mutex::new(vec![0; BYTES]), copies: AtomicU64::new(0) });
    while let Ok((message, files)) = handover::recv(socket.as_fd()) {
        if message.is_empty() {
            break;
        }
        let answer = answer(&device, &message, files);
        handover::send(socket.as_fd(), &answer, &[]).expect("the test listens");
    }
}

fn answer(device: &Arc<Device>, message: &[u8], files: Vec<OwnedFd>) -> Vec<u8> {
    let line = message.iter().position(|byte| *byte == b'\n').unwrap_or(message.len());
    let words = std::str::from_utf8(&message[..line]).expect("words");
    let words: Vec<&str> = words.split(' ').collect();
    let number = |at: usize| words[at].parse::<usize>().expect("a number");
    match words[0] {
        "serve" => {
            let [queue] = <[OwnedFd; 1]>::try_from(files).expect("a queue");
            let (queue, how, device) = (DmaServer::open(queue).expect("a queue"), how(&words[1..]), Arc::clone(device));
            thread::spawn(move || device.serve(queue, how));
            b"served".to_vec()
        }
        "read" => device.memory.lock().expect("no thread panics")[number(1)..number(1) + number(2)].to_vec(),
        "write" => {
            let (at, bytes) = (number(1), &message[line + 1..]);
            device.memory.lock().expect("no thread panics")[at..at + bytes.len()].copy_from_slice(bytes);
            b"written".to_vec()
        }
        "copies" => device.copies.load(Relaxed).to_string().into_bytes(),
        other => panic!("{other} is no command"),
    }
}
