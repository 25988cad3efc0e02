//! Unmodified programs under libtoe.so, with a stand-in for the daemon.
mod loop_host;

use loop_host::{ADDRESS, Leftovers, LoopHost};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long a program may take for a script, on a crowded machine as well.
const PATIENCE: Duration = Duration::from_secs(300);

/// A folder with the stand-in's socket, removed at the end.
struct Place {
    folder: PathBuf,
    host: LoopHost,
}

impl Place {
    fn new(name: &str) -> Place {
        Place::with(name, LoopHost::start)
    }

    fn with(name: &str, start: fn(&Path) -> LoopHost) -> Place {
        let folder = std::env::temp_dir().join(format!("libtoe-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let host = start(&folder.join("socket"));
        // Programs such as memcached give up root before they make their sockets.
        for path in [folder.as_path(), host.path()] {
            std::fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
        }
        Place { folder, host }
    }

    /// A program that is to run on the stand-in.
    fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.env("LD_PRELOAD", library()).env("TOE_SOCKET", self.host.path()).current_dir(&self.folder);
        command
    }

    /// Stops the stand-in once everything that programs had is given back.
    fn finish(mut self) {
        // What a killed process held is given back when the stand-in sees its end.
        let end = Instant::now() + PATIENCE;
        while self.host.shown().leftovers != Leftovers::default() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(self.host.stop(), Leftovers::default());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A program in the background, ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Builds something of this package in the way that this test was built; returns the folder. Cargo builds neither a
/// `cdylib` for integration tests nor, when one test is asked for, examples.
fn build(what: &[&str]) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let folder = own.parent().unwrap().parent().unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--package", "libtoe"]).args(what);
    cargo.env("CARGO_TARGET_DIR", folder.parent().unwrap());
    if folder.file_name().is_some_and(|name| name == "release") {
        cargo.args(["--profile", if cfg!(debug_assertions) { "bench" } else { "release" }]);
    }
    assert!(cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap().success());
    folder.to_path_buf()
}

/// libtoe.so, of the same build as this test.
fn library() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build(&["--lib"]).join("libtoe.so")).clone()
}

fn is_installed(program: &str) -> bool {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).exists()));
    if !found {
        eprintln!("skipped: {program} is not installed");
    }
    found
}

/// Runs a command to its end, which it must reach in time.
fn run(command: &mut Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let end = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            let _ = child.kill();
            panic!("{command:?} does not end: {:?}", child.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

/// Runs a command that must succeed; returns what it printed.
fn text(command: &mut Command) -> String {
    let output = run(command);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {:?} {errors}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// Starts a server; waits until a connection from a program on the stand-in succeeds.
fn serve(place: &Place, command: &mut Command, port: u16) -> Running {
    let child = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let script = format!("import socket; socket.create_connection(('{ADDRESS}', {port})).close()");
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if run(place.command("python3").args(["-c", &script])).status.success() {
            return child;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{command:?} does not listen");
}

fn compile(place: &Place, name: &str) -> PathBuf {
    compile_with(place, "cc", name, name, &["-pthread"])
}

/// A program of tests/ by a compiler, with its options.
fn compile_with(place: &Place, compiler: &str, name: &str, binary: &str, options: &[&str]) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (source, include) = (here.join("tests").join(format!("{name}.c")), here.join("../../include"));
    let binary = place.folder.join(binary);
    text(Command::new(compiler).arg("-O1").args(options).arg("-I").arg(include).arg("-o").arg(&binary).arg(source));
    binary
}

/// The same cases on the kernel's TCP and on OpenTOE.
#[test]
fn sockets_behave_as_on_linux() {
    let place = Place::new("posix");
    let posix = compile(&place, "posix");
    let on_kernel = text(Command::new(&posix).arg("127.0.0.1"));
    assert_eq!(text(place.command(&posix).arg(ADDRESS.to_string())), on_kernel);
    assert!(on_kernel.lines().count() >= 17);
    place.finish();
}

/// stdio, `posix_spawn`, `system`, `execl`, `daemon`, instructions of the program's own: on the kernel's TCP and on
/// OpenTOE, and not where only symbols are interposed.
#[test]
#[cfg(target_arch = "x86_64")]
fn system_calls_below_the_symbols_are_seen() {
    let place = Place::new("below");
    let below = compile(&place, "below");
    let on_kernel = text(Command::new(&below).arg("127.0.0.1"));
    assert!(on_kernel.lines().count() >= 11);
    let address = ADDRESS.to_string();
    assert_eq!(text(place.command(&below).arg(&address).env("TOE_INTERCEPT", "syscalls")), on_kernel);
    let symbols = run(place.command(&below).args([&address, "executed"]));
    assert!(!symbols.status.success(), "symbols are enough: {symbols:?}");
    place.finish();
}

/// The same program as a library that is loaded when another one runs: nothing of it can be rewritten before.
#[test]
#[cfg(target_arch = "x86_64")]
fn system_calls_of_code_that_is_loaded_later_are_seen() {
    let place = Place::new("late");
    let late = compile(&place, "late");
    let library = compile_with(&place, "cc", "below", "below.so", &["-pthread", "-shared", "-fPIC"]);
    let on_kernel = text(Command::new(&late).env("LATE", &library).arg("127.0.0.1"));
    assert!(on_kernel.lines().count() >= 13);
    let address = ADDRESS.to_string();
    let with_net = |command: &mut Command| text(command.env("LATE", &library).env("TOE_INTERCEPT", "syscalls"));
    assert_eq!(with_net(place.command(&late).arg(&address)), on_kernel);
    place.finish();
}

/// The same program without a dynamic linker: the library loads it itself.
#[test]
#[cfg(target_arch = "x86_64")]
fn system_calls_of_a_static_program_are_seen() {
    let place = Place::new("static");
    let below = compile_with(&place, "cc", "below", "below", &["-pthread", "-static"]);
    // Nothing can be rewritten before the program runs, as with code that is loaded later.
    let on_kernel = text(Command::new(&below).env("LATE", "").arg("127.0.0.1"));
    assert!(on_kernel.lines().count() >= 13);
    let address = ADDRESS.to_string();
    let mut command = place.command("/bin/true");
    command.arg(&address).env("LATE", "").env("TOE_INTERCEPT", "syscalls").env("TOE_PROGRAM", &below);
    assert_eq!(text(&mut command), on_kernel);
    place.finish();
}

/// What runs with symbols runs with system calls as well.
#[test]
#[cfg(target_arch = "x86_64")]
fn sockets_behave_as_on_linux_where_system_calls_are_rewritten() {
    let place = Place::new("rewritten");
    let posix = compile(&place, "posix");
    let on_kernel = text(Command::new(&posix).arg("127.0.0.1"));
    let rewritten = text(place.command(&posix).arg(ADDRESS.to_string()).env("TOE_INTERCEPT", "syscalls"));
    assert_eq!(rewritten, on_kernel);
    place.finish();
}

#[test]
fn the_zero_copy_interface_keeps_its_word() {
    let place = Place::new("zero-copy");
    let program = compile(&place, "zero_copy");
    assert_eq!(text(place.command(&program).arg(ADDRESS.to_string())), "zero-copy\n");
    // The same binary runs without the library, and sees that it is not there.
    let alone = run(Command::new(&program).arg(ADDRESS.to_string()));
    assert!(String::from_utf8_lossy(&alone.stderr).contains("toe_zc_reserve != NULL"));
    place.finish();
}

/// The example in Rust, which keeps messages in the receive buffer and frees them the other way round.
#[test]
fn zero_copy_is_there_for_rust_too() {
    let place = Place::new("zero-copy-rust");
    let example = build(&["--example", "zero_copy"]).join("examples/zero_copy");
    assert_eq!(text(place.command(&example).arg(ADDRESS.to_string())), "2000 messages\n");
    let alone = run(Command::new(&example).arg("127.0.0.1"));
    assert!(String::from_utf8_lossy(&alone.stderr).contains("libtoe.so is not loaded"));
    place.finish();
}

/// A connection that was used keeps no memory when it is quiet, and goes on where it was. There are more of them than the
/// daemon's ring has room for requests.
#[test]
fn quiet_connections_give_their_memory_back() {
    let place = Place::new("resting");
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
    for turn in range(120):
        select.select([pairs[0][0]], [], [], 0.5)
        if resident() < before + 80 * 4096: break
    else: raise SystemExit(f'{{before}} {{taken}} {{resident()}}')
assert taken > 40 * 4 * 60000, taken
print('rested')"
    );
    assert_eq!(text(place.command("python3").args(["-c", &script])), "rested\n");
    place.finish();
}

/// The answer to a parent that had asked to rest when it forked goes to the parent. The child does not wait for it.
#[test]
fn the_child_of_a_parent_that_was_about_to_rest_goes_on() {
    let place = Place::with("resting-parent", LoopHost::start_late);
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
        let parent = scope.spawn(|| text(place.command("python3").args(["-c", &script])));
        while place.host.shown().late < 2 && !parent.is_finished() {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::fs::write(place.folder.join("asked"), "").unwrap();
        parent.join().unwrap()
    });
    assert_eq!(printed, "went on\n");
    assert_eq!(place.host.shown().answered_late, 2);
    place.finish();
}

/// Loopback, and addresses that the host does not reach, stay with the kernel: also within one program.
#[test]
fn what_is_not_accelerated_passes_to_the_kernel() {
    let place = Place::new("kernel");
    let posix = compile(&place, "posix");
    text(place.command(&posix).arg("127.0.0.1"));
    place.finish();
}

#[test]
fn a_wildcard_listener_takes_both_kinds() {
    let place = Place::new("both");
    let script = format!(
        "import socket, sys
for family, any in ((socket.AF_INET, '0.0.0.0'), (socket.AF_INET6, '::')):
    s = socket.socket(family)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((any, 0)); s.listen(5); s.settimeout(0.01)
    try: s.accept()
    except TimeoutError: pass
    s.settimeout(10)
    port = s.getsockname()[1]
    for ip in ('127.0.0.1', '{ADDRESS}'):
        c = socket.create_connection((ip, port)); a, peer = s.accept()
        assert peer[0].endswith(ip), peer
        c.sendall(b'hello'); assert a.recv(5) == b'hello'
        a.close(); c.close()
    s.close()
print('both')"
    );
    assert_eq!(text(place.command("python3").args(["-c", &script])), "both\n");
    place.finish();
}

#[test]
fn asyncio_carries_many_streams() {
    let place = Place::new("asyncio");
    let script = format!(
        "import asyncio, os, hashlib
async def echo(r, w):
    while data := await r.read(70000):
        w.write(data); await w.drain()
    w.close()
async def client(port):
    data = os.urandom(300000)
    r, w = await asyncio.open_connection('{ADDRESS}', port)
    async def send():
        w.write(data); await w.drain(); w.write_eof()
    got, _ = await asyncio.gather(r.read(), send())
    assert got == data
    w.close()
async def main():
    server = await asyncio.start_server(echo, '{ADDRESS}', 0)
    port = server.sockets[0].getsockname()[1]
    await asyncio.gather(*(client(port) for _ in range(20)))
    server.close()
asyncio.run(asyncio.wait_for(main(), 50)); print('done')"
    );
    assert_eq!(text(place.command("python3").args(["-c", &script])), "done\n");
    place.finish();
}

/// A listener, connections and a bound socket go to another process, and a connection comes back.
#[test]
fn sockets_pass_over_unix_sockets() {
    let place = Place::new("passing");
    let child = "import socket, sys
s = socket.socket(fileno=int(sys.argv[1]))
l, c, b = [socket.socket(fileno=f) for f in socket.recv_fds(s, 10, 8)[1]]
for f in (l, c, b): f.settimeout(60)
assert c.recv(4) == b'over'; c.sendall(b'back')
d = l.accept()[0]; assert d.recv(5) == b'again'
b.listen(); s.sendall(b'%5d' % b.getsockname()[1]); e = b.accept()[0]; e.sendall(b'bound')
socket.send_fds(s, [b'x'], [d.fileno(), c.fileno()])
for f in (l, c, b, d, e): f.close()
s.recv(1)";
    std::fs::write(place.folder.join("child.py"), child).unwrap();
    let script = format!(
        "import os, socket, subprocess, sys
def server():
    s = socket.create_server(('{ADDRESS}', 0)); s.settimeout(0.01)
    try: s.accept()
    except TimeoutError: s.settimeout(60); return s
here, there = socket.socketpair(); here.settimeout(60)
child = subprocess.Popen([sys.executable, 'child.py', str(there.fileno())], pass_fds=[there.fileno()]); there.close()
l = server(); address = l.getsockname()
c = socket.create_connection(address); a = l.accept()[0]
b = socket.socket(); b.bind(('{ADDRESS}', 0))
socket.send_fds(here, [b'three'], [l.fileno(), a.fileno(), b.fileno()])
for f in (l, a, b): f.close()
c.settimeout(60); c.sendall(b'over'); assert c.recv(4) == b'back'
d = socket.create_connection(address); d.sendall(b'again')
e = socket.create_connection(('{ADDRESS}', int(here.recv(5)))); assert e.recv(5) == b'bound'
x, y = [socket.socket(fileno=f) for f in socket.recv_fds(here, 1, 2)[1]]
for peer, back in ((d, x), (c, y)):
    back.setblocking(True); back.sendall(b'home'); assert peer.recv(4) == b'home'
    peer.sendall(b'there'); assert back.recv(5) == b'there'
    back.close(); assert peer.recv(1) == b''
here.sendall(b'.'); assert child.wait(60) == 0
one, two = socket.socketpair()
l = server(); c = socket.create_connection(l.getsockname()); a = l.accept()[0]
socket.send_fds(one, [b'x'], [a.fileno(), l.fileno(), 0])
_, fds, _, _ = socket.recv_fds(two, 1, 3); os.close(fds[2])
m, k = [socket.socket(fileno=f) for f in fds[:2]]
a.close(); l.close(); m.sendall(b'still'); assert c.recv(5) == b'still'
d = socket.create_connection(k.getsockname()); k.accept()[0].sendall(b'also'); assert d.recv(4) == b'also'
one.setblocking(False)
try:
    while True: one.send(b'x')
except BlockingIOError: pass
try: socket.send_fds(one, [b'x'], [m.fileno()]); raise SystemExit('sent')
except BlockingIOError: pass
print('passed')"
    );
    assert_eq!(text(place.command("python3").args(["-c", &script])), "passed\n");
    place.finish();
}

/// Who is at the other end of a UNIX socket with a name can be seen: a message to a program that is not on OpenTOE is
/// refused.
#[test]
fn a_socket_for_a_program_that_is_not_on_opentoe_is_refused_with_a_sentence() {
    let place = Place::new("outside");
    let outside = "import socket; s = socket.socket(socket.AF_UNIX); s.bind('outside'); s.listen()
c = s.accept()[0]; print(c.recv(100).decode(), end='')";
    let mut command = Command::new("python3");
    command.args(["-c", outside]).current_dir(&place.folder).stdout(Stdio::piped());
    let other = Running(command.spawn().unwrap());
    let script = format!(
        "import errno, os, socket, time
l = socket.create_server(('{ADDRESS}', 0))
s = socket.socket(socket.AF_UNIX); end = time.monotonic() + 60
while s.connect_ex('outside') != 0: assert time.monotonic() < end; time.sleep(0.01)
for _ in range(2):
    try: socket.send_fds(s, [b'x'], [l.fileno()]); raise SystemExit('it was sent')
    except OSError as error: assert error.errno == errno.EOPNOTSUPP, error
socket.send_fds(s, [b'fine'], [0])"
    );
    let output = run(place.command("python3").args(["-c", &script]));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors.matches("cannot be passed to a process that is not").count(), 1, "{errors}");
    drop(other);
    place.finish();
}

/// A receiver of a connection would see the bytes of all the sender's.
#[test]
fn a_connection_for_a_process_of_another_user_is_refused_with_a_sentence() {
    let place = Place::new("other-user");
    let script = format!(
        "import errno, os, socket
if os.geteuid() != 0: raise SystemExit()
s = socket.socket(socket.AF_UNIX); s.bind('other')
ready, go = os.pipe()
child = os.fork()
if child == 0:
    os.setuid(65534); s.listen(); os.write(go, b'x')
    s.accept()[0].recv(1); os._exit(0)
os.read(ready, 1); s.close()
s = socket.socket(socket.AF_UNIX); s.connect('other')
l = socket.create_server(('{ADDRESS}', 0)); l.settimeout(0.01)
try: l.accept()
except TimeoutError: l.settimeout(60)
c = socket.create_connection(l.getsockname()); a = l.accept()[0]
for _ in range(2):
    try: socket.send_fds(s, [b'x'], [l.fileno(), a.fileno()]); raise SystemExit('it was sent')
    except OSError as error: assert error.errno == errno.EOPNOTSUPP, error
a.sendall(b'still'); assert c.recv(5) == b'still'
s.sendall(b'x'); assert os.waitpid(child, 0)[1] == 0"
    );
    let output = run(place.command("python3").args(["-c", &script]));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    // SAFETY: a number.
    if unsafe { libc::geteuid() } == 0 {
        assert_eq!(errors.matches("cannot be passed to a process of another user").count(), 1, "{errors}");
    }
    place.finish();
}

/// `RLIMIT_AS` is the program's: what the library maps does not count. Where it cannot be raised, a sentence says so.
#[test]
fn a_limit_of_address_space_is_the_programs_own() {
    let place = Place::new("address-space");
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
        text(place.command("python3").args(["-c", &format!("{begin}{script}")]));
    }
    let refused = format!("{begin}limit(most); os.geteuid() or os.setuid(65534); socket.socket()");
    let output = run(place.command("python3").args(["-c", &refused]));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && errors.contains("RLIMIT_AS"), "{errors}");
    place.finish();
}

#[test]
fn curl_fetches_a_file_from_python() {
    if !is_installed("curl") {
        return;
    }
    let place = Place::new("curl");
    let bytes: Vec<u8> = (0..3_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(place.folder.join("file"), &bytes).unwrap();
    let address = ADDRESS.to_string();
    let server = serve(&place, place.command("python3").args(["-m", "http.server", "8099", "--bind", &address]), 8099);
    let url = format!("http://{address}:8099/file");
    text(place.command("curl").args(["-sS", "-o", "fetched", &url]));
    assert!(std::fs::read(place.folder.join("fetched")).unwrap() == bytes, "the file is not what was sent");
    drop(server);
    place.finish();
}

#[test]
fn memcached_with_four_threads_answers() {
    if !is_installed("memcached") {
        return;
    }
    let place = Place::new("memcached");
    let address = ADDRESS.to_string();
    let mut command = place.command("memcached");
    let server =
        serve(&place, command.args(["-u", "nobody", "-U", "0", "-t", "4", "-l", &address, "-p", "11299"]), 11299);
    let script = format!(
        "import socket
cs = [socket.create_connection(('{ADDRESS}', 11299)) for _ in range(12)]
for n, c in enumerate(cs): c.sendall(b'set k%d 0 0 5\\r\\nv%04d\\r\\n' % (n, n))
for c in cs: assert c.recv(100) == b'STORED\\r\\n'
for n, c in enumerate(cs): c.sendall(b'get k%d\\r\\n' % n)
for n, c in enumerate(cs): assert b'v%04d' % n in c.recv(100)
print('stored')"
    );
    assert_eq!(text(place.command("python3").args(["-c", &script])), "stored\n");
    drop(server);
    place.finish();
}

#[test]
fn nginx_workers_share_listeners_and_reload() {
    if !is_installed("nginx") && !Path::new("/usr/sbin/nginx").exists() {
        return;
    }
    let place = Place::new("nginx");
    let folder = place.folder.display();
    let settings = format!(
        "worker_processes 2; daemon off; pid {folder}/pid; error_log {folder}/errors; events {{}}
         http {{ access_log off; client_body_temp_path {folder}/a; proxy_temp_path {folder}/b;
                 fastcgi_temp_path {folder}/c; uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
                 server {{ listen {ADDRESS}:8088; location / {{ return 200 'hello'; }} }} }}"
    );
    std::fs::write(place.folder.join("nginx.conf"), settings).unwrap();
    let path = if Path::new("/usr/sbin/nginx").exists() { "/usr/sbin/nginx" } else { "nginx" };
    let server = serve(&place, place.command(path).arg("-c").arg(place.folder.join("nginx.conf")), 8088);
    let script = format!(
        "import urllib.request, sys
for _ in range(20): assert urllib.request.urlopen('http://{ADDRESS}:8088/').read() == b'hello'
print('answered')"
    );
    assert_eq!(text(place.command("python3").args(["-c", &script])), "answered\n");
    // SAFETY: signals a process of this test.
    unsafe { libc::kill(server.0.id() as i32, libc::SIGHUP) };
    assert_eq!(text(place.command("python3").args(["-c", &script])), "answered\n");
    // SAFETY: as above; the master ends its workers.
    unsafe { libc::kill(server.0.id() as i32, libc::SIGTERM) };
    let mut server = server;
    server.0.wait().unwrap();
    place.finish();
}

#[test]
fn without_a_daemon_the_program_ends_with_a_sentence() {
    let script = "import socket; print('before', flush=True); socket.socket(); print('after')";
    let library = library();
    let output = run(Command::new("python3")
        .args(["-c", script])
        .env("LD_PRELOAD", &library)
        .env("TOE_SOCKET", "/nonexistent/toe"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b"before\n"[..]));
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains("no daemon answers at /nonexistent/toe"), "{errors}");
    let place = Place::new("refused");
    let refused = run(place.command("python3").args(["-c", script]).env("TOE_HOST", "nowhere"));
    assert_eq!(String::from_utf8_lossy(&refused.stderr), "libtoe: there is no host nowhere\n");
    assert_eq!(refused.status.code(), Some(1));
    // Without the variable the library does nothing.
    assert_eq!(text(Command::new("python3").args(["-c", script]).env("LD_PRELOAD", &library)), "before\nafter\n");
    place.finish();
}

/// With sockets: see the case `executed`. What it opens later is on OpenTOE as well; an empty variable leads out.
#[test]
fn a_program_run_with_an_environment_of_its_makers_own_stays() {
    let place = Place::new("environment");
    let binds = format!("import socket; socket.socket().bind(('{ADDRESS}', 0)); print('bound')");
    let runs = |environment: &str| {
        let script =
            format!("import os, sys; os.execve(sys.executable, ['python3', '-c', sys.argv[1]], {environment})");
        run(place.command("python3").args(["-c", &script, &binds]))
    };
    for environment in ["{}", "{'HOME': '/', 'LD_PRELOAD': ''}"] {
        let output = runs(environment);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "bound\n", "{environment}: {output:?}");
    }
    let left = runs("{'TOE_SOCKET': ''}");
    assert!(!left.status.success(), "the kernel does not have this address");
    place.finish();
}

/// A daemon that dies: calls that wait end, calls that come later fail, nothing hangs.
#[test]
fn the_daemons_death_resets_connections() {
    let mut place = Place::new("death");
    let script = format!(
        "import socket, select, threading, os, errno
l = socket.socket(); l.bind(('{ADDRESS}', 0)); l.listen(5)
c = []
def connect(): c.append(socket.create_connection(l.getsockname()))
def pair():
    t = threading.Thread(target=connect); t.start(); a, _ = l.accept(); t.join(); return c[-1], a
a, b = pair(); x, y = pair(); p, q = pair()
a.sendall(b'left')
select.select([b], [], [])
errors = []
def reader(s):
    try: s.recv(1)
    except OSError as e: errors.append(e.errno)
def waiter():
    e = select.epoll(); e.register(y, select.EPOLLIN)
    errors.append(e.poll()[0][1] & select.EPOLLHUP)
ts = [threading.Thread(target=reader, args=(x,)), threading.Thread(target=waiter)]
[t.start() for t in ts]
print('ready', flush=True)
[t.join() for t in ts]
assert sorted(errors) == [select.EPOLLHUP, errno.ECONNRESET], errors
assert b.recv(10) == b'left'
for n in range(2):
    try: p.send(b'x'); assert False
    except (ConnectionResetError, BrokenPipeError): pass
try: socket.socket(); assert False
except OSError as e: assert e.errno == errno.ENETDOWN, e
assert not select.select([l], [], [], 0)[0], 'a server would turn for ever'
try: l.accept(); assert False
except OSError as e: print('survived', e.errno)"
    );
    let mut command = place.command("python3");
    let mut child = Running(command.args(["-c", &script]).stdout(Stdio::piped()).spawn().unwrap());
    let mut output = std::io::BufReader::new(child.0.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    assert_eq!(line, "ready\n");
    place.host.stop();
    line.clear();
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    assert!(line.starts_with("survived"), "{line}");
    assert!(child.0.wait().unwrap().success());
}
