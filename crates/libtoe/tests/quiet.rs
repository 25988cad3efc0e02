//! Memory: of quiet connections, and of the address space, with a stand-in for the daemon.
mod fixture;
mod loop_host;

use fixture::{Fixture, run, text};
use loop_host::{ADDRESS, LoopHost};
use std::time::Duration;

/// A connection that was used keeps no memory when it is quiet, and goes on where it was. There are more of them than
/// the daemon's ring has room for requests.
#[test]
fn quiet_connections_give_their_memory_back() {
    let fixture = Fixture::new("resting");
    let script = format!(
        "import os, select, socket, threading
s = socket.create_server(('{ADDRESS}', 0)); s.settimeout(0.01)
try: s.accept()
except TimeoutError: s.settimeout(10)
def is_region(f):
    try: return 'memfd:loop' in os.readlink('/proc/self/fd/' + f)
    except FileNotFoundError: return False
def resident():
    regions = [f for f in os.listdir('/proc/self/fd') if is_region(f)]
    assert len(regions) == 1
    return os.stat('/proc/self/fd/' + regions[0]).st_blocks * 512
pairs = []
for i in range(40):
    c = socket.create_connection(s.getsockname()); pairs += [(c, s.accept()[0])]
def exchange(seed):
    global taken
    for i, (c, a) in enumerate(pairs):
        had = resident()
        for x, y in ((c, a), (a, c)):
            data = bytes((j * 7 + i + seed) % 251 for j in range(1000)) * 150
            t = threading.Thread(target=x.sendall, args=(data,)); t.start()
            got = b''
            while len(got) < len(data): got += y.recv(70000)
            t.join(); assert got == data
        taken += max(0, resident() - had)
before, taken = resident(), 0
for seed in range(3):
    exchange(seed)
    for round in range(120):
        select.select([pairs[0][0]], [], [], 0.5)
        if resident() < before + 80 * 4096: break
    else: raise SystemExit(f'{{before}} {{taken}} {{resident()}}')
assert taken > 40 * 4 * 60000, taken
print('rested')"
    );
    assert_eq!(text(fixture.command("python3").args(["-c", &script])), "rested\n");
    fixture.finish();
}

/// The answer to a parent that had asked to rest when it forked goes to the parent. The child does not wait for it.
#[test]
fn the_child_of_a_parent_that_was_about_to_rest_goes_on() {
    let fixture = Fixture::with("resting-parent", LoopHost::start_late);
    let script = format!(
        "import os, select, socket
s = socket.create_server(('{ADDRESS}', 0)); s.settimeout(0.01)
try: s.accept()
except TimeoutError: s.settimeout(10)
c = socket.create_connection(s.getsockname()); a = s.accept()[0]
def exchange():
    for x, y in ((c, a), (a, c)):
        x.sendall(b'hello'); assert y.recv(5) == b'hello'
exchange()
while not os.path.exists('asked'): select.select([c], [], [], 0.1)
child = os.fork()
if child == 0: exchange(); os._exit(0)
assert os.waitpid(child, 0)[1] == 0
exchange()
print('went on')"
    );
    let printed = std::thread::scope(|scope| {
        let parent = scope.spawn(|| text(fixture.command("python3").args(["-c", &script])));
        while fixture.host.shown().late < 2 && !parent.is_finished() {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::fs::write(fixture.folder.join("asked"), "").unwrap();
        parent.join().unwrap()
    });
    assert_eq!(printed, "went on\n");
    assert_eq!(fixture.host.shown().answered_late, 2);
    fixture.finish();
}

/// `RLIMIT_AS` is the program's: what the library maps does not count. Where it cannot be raised, a warning is printed.
#[test]
fn a_limit_of_address_space_is_the_programs_own() {
    let fixture = Fixture::new("address-space");
    let begin = "import mmap, os, resource, socket
def used(): return int(open('/proc/self/statm').read().split()[0]) * 4096
def limit(n): resource.setrlimit(resource.RLIMIT_AS, (n, n)); assert resource.getrlimit(resource.RLIMIT_AS)[0] == n
before = used(); most = before + (8 << 20)
";
    for script in [
        "s = socket.socket(); assert used() > most; limit(most); mmap.mmap(-1, 4 << 20)",
        "resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY)); s = socket.socket()
assert used() > most; mmap.mmap(-1, 4 << 20)",
        "s = socket.socket(); limit(most); child = os.fork()
if child == 0: socket.socket(); mmap.mmap(-1, 4 << 20); os._exit(0)
assert os.waitpid(child, 0)[1] == 0
try: mmap.mmap(-1, 1 << 30)
except OSError: raise SystemExit()
raise SystemExit('there is no limit')",
    ] {
        text(fixture.command("python3").args(["-c", &format!("{begin}{script}")]));
    }
    let refused = format!("{begin}limit(most); os.geteuid() or os.setuid(65534); socket.socket()");
    let output = run(fixture.command("python3").args(["-c", &refused]));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && errors.contains("RLIMIT_AS"), "{errors}");
    fixture.finish();
}
