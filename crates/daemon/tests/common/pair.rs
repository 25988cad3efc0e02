//! A server's daemon and a client's, for tests that kill one of them.
use crate::common::Toed;
use crate::common::application::until;
use crate::common::store::Store;
use port::Netns;
use std::fs;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// How often each daemon is killed.
pub(crate) fn kills() -> u64 {
    std::env::var("BLOCK_KILLS").map_or(3, |count| count.parse().unwrap())
}

/// The server's daemon and the client's; the kernel of a namespace forwards between their TAP devices.
pub(crate) struct Pair {
    pub netns: Netns,
    pub server: Toed,
    pub client: Toed,
}

impl Pair {
    /// `None` where there is no privilege to make devices.
    pub(crate) fn start(store: &Store, size: u64) -> Option<Pair> {
        let Ok(netns) = Netns::create() else {
            println!("SKIPPED: a namespace needs privileges");
            return None;
        };
        netns.run(|| fs::write("/proc/sys/net/ipv4/ip_forward", "1")).unwrap().unwrap();
        let daemon = |name: &str, net: u8, section: String| {
            let place = netns.path();
            Toed::start(&format!(
                "log = \"warn\"\n[[host]]\nname = \"{name}\"\naddress = \"10.0.{net}.1\"\ngateway = \"10.0.{net}.100\"\n\
                 port = {{ kind = \"tap\", device = \"solar{net}\", netns = \"{place}\", mtu = 9000, \
                 kernel_address = \"10.0.{net}.100/24\" }}\n{section}"
            ))
        };
        let server = daemon("s", 0, store.volume("v", "s", &format!("size = {size}")));
        let client = daemon("c", 1, store.block("v", "c", "v.sock", "take_over = true"));
        Some(Pair { netns, server, client })
    }
}

impl Pair {
    /// Runs a program whose output is wanted, and kills the server's daemon again and again meanwhile: what came of the
    /// program, and how often.
    pub(crate) fn kill_server_under(&mut self, program: &mut Command, pauses: &mut Pauses) -> (Output, u64) {
        let (mut program, mut killed) = (program.spawn().unwrap(), 0);
        while program.try_wait().unwrap().is_none() {
            thread::sleep(Duration::from_millis(50 + pauses.below(200)));
            if program.try_wait().unwrap().is_none() {
                self.server.kill_and_restart();
                killed += 1;
            }
        }
        (program.wait_with_output().unwrap(), killed)
    }
}

/// Random pauses, the same in each run.
pub(crate) struct Pauses(pub u64);

impl Pauses {
    /// Knuth's generator for 64 bits (MMIX).
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    /// Waits until 200 more requests were answered, and then a while: whatever is under way then is cut.
    pub(crate) fn among(&mut self, answers: &AtomicU64) {
        let begin = answers.load(Ordering::SeqCst);
        until("requests to be answered", || answers.load(Ordering::SeqCst) >= begin + 200);
        thread::sleep(Duration::from_micros(self.below(20_000)));
    }
}
