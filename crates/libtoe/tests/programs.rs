//! Unmodified programs under libtoe.so, with a stand-in for the daemon.
mod fixture;
mod loop_host;

use fixture::{Fixture, Running, compile, is_installed, library, run, serve, text};
use loop_host::ADDRESS;
use std::path::Path;
use std::process::{Command, Stdio};

/// Loopback, and addresses that the host does not reach, stay with the kernel: also within one program.
#[test]
fn what_is_not_accelerated_passes_to_the_kernel() {
    let fixture = Fixture::new("kernel");
    let posix = compile(&fixture, "posix");
    text(fixture.command(&posix).arg("127.0.0.1"));
    fixture.finish();
}

/// A wildcard listener is in the kernel's set and in the library's. An entry that reported on one half does not report
/// on the other, also where the descriptor of its entry is gone since. So it is with a set within a set.
#[test]
fn a_wildcard_listener_in_a_set_reports_once() {
    let fixture = Fixture::new("once");
    let script = format!(
        "import select, socket
s = socket.create_server(('0.0.0.0', 0))
e = select.epoll()
e.register(s, select.EPOLLIN | select.EPOLLONESHOT)
c = socket.create_connection(('{ADDRESS}', s.getsockname()[1]))
assert e.poll(5) == [(s.fileno(), select.EPOLLIN)]
other = s.dup()
s.close()
other.shutdown(socket.SHUT_RD)
assert e.poll(0.02) == []
e.close(); c.close(); other.close()

s = socket.create_server(('0.0.0.0', 0))
port = s.getsockname()[1]
inner = select.epoll(); inner.register(s, select.EPOLLIN)
for watched in (s, inner):
    for first, second in (('127.0.0.1', '{ADDRESS}'), ('{ADDRESS}', '127.0.0.1')):
        e = select.epoll()
        e.register(watched, select.EPOLLIN | select.EPOLLONESHOT)
        here = socket.create_connection((first, port))
        assert e.poll(5) == [(watched.fileno(), select.EPOLLIN)], first
        there = socket.create_connection((second, port))
        assert e.poll(0.02) == [], second
        s.accept()[0].close(); s.accept()[0].close()
        assert e.poll(0.02) == []
        e.modify(watched, select.EPOLLIN | select.EPOLLONESHOT)
        last = socket.create_connection((first, port))
        assert e.poll(5) == [(watched.fileno(), select.EPOLLIN)], first
        s.accept()[0].close()
        [one.close() for one in (e, here, there, last)]"
    );
    text(fixture.command("python3").args(["-c", &script]));
    fixture.finish();
}

#[test]
fn a_wildcard_listener_takes_tcp_and_multipath_tcp() {
    let fixture = Fixture::new("both");
    let script = format!(
        "import socket, sys
for family, any, protocol in ((socket.AF_INET, '0.0.0.0', 0), (socket.AF_INET6, '::', 0), (socket.AF_INET, '0.0.0.0', 262)):
    s = socket.socket(family, socket.SOCK_STREAM, protocol)
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
    assert_eq!(text(fixture.command("python3").args(["-c", &script])), "both\n");
    fixture.finish();
}

/// A port that nobody asked for is free on both stacks: another program cannot have it in the kernel. Where the host
/// has in use what the kernel chooses, there is another one. Then a `connect` that the kernel has to do finds it.
#[test]
fn a_port_that_is_chosen_is_free_on_both_stacks() {
    let fixture = Fixture::new("chosen");
    let script = format!(
        "import os, socket, subprocess, sys
other = 'import socket, sys; socket.socket().bind((\"127.0.0.1\", int(sys.argv[1])))'
def is_free(port):
    plain = {{k: v for k, v in os.environ.items() if k != 'LD_PRELOAD'}}
    return subprocess.run([sys.executable, '-c', other, str(port)], env=plain, stderr=subprocess.DEVNULL).returncode == 0
bound, listening = socket.socket(), socket.socket()
bound.bind(('0.0.0.0', 0))
listening.listen()
for s in (bound, listening):
    port = s.getsockname()[1]
    assert port != 0 and not is_free(port), port
    s.close()
    assert is_free(port), port

held = [socket.socket() for _ in range(800)]
for s in held: s.bind(('{ADDRESS}', 0))
in_use = {{s.getsockname()[1] for s in held}}
for _ in range(300):
    s = socket.socket()
    s.bind(('0.0.0.0', 0))
    assert s.getsockname()[1] not in in_use
    assert s.connect_ex(('127.0.0.1', 1)) == 111
    s.close()"
    );
    text(fixture.command("python3").args(["-c", &script]));
    fixture.finish();
}

#[test]
fn asyncio_carries_many_streams() {
    let fixture = Fixture::new("asyncio");
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
    assert_eq!(text(fixture.command("python3").args(["-c", &script])), "done\n");
    fixture.finish();
}

#[test]
fn curl_fetches_a_file_from_python() {
    if !is_installed("curl") {
        return;
    }
    let fixture = Fixture::new("curl");
    let bytes: Vec<u8> = (0..3_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(fixture.folder.join("file"), &bytes).unwrap();
    let address = ADDRESS.to_string();
    let server =
        serve(&fixture, fixture.command("python3").args(["-m", "http.server", "8099", "--bind", &address]), 8099);
    let url = format!("http://{address}:8099/file");
    text(fixture.command("curl").args(["-sS", "-o", "fetched", &url]));
    assert!(std::fs::read(fixture.folder.join("fetched")).unwrap() == bytes, "the file is not what was sent");
    drop(server);
    fixture.finish();
}

#[test]
fn memcached_with_four_threads_answers() {
    if !is_installed("memcached") {
        return;
    }
    let fixture = Fixture::new("memcached");
    let address = ADDRESS.to_string();
    let mut command = fixture.command("memcached");
    let server =
        serve(&fixture, command.args(["-u", "nobody", "-U", "0", "-t", "4", "-l", &address, "-p", "11299"]), 11299);
    let script = format!(
        "import socket
cs = [socket.create_connection(('{ADDRESS}', 11299)) for _ in range(12)]
for n, c in enumerate(cs): c.sendall(b'set k%d 0 0 5\\r\\nv%04d\\r\\n' % (n, n))
for c in cs: assert c.recv(100) == b'STORED\\r\\n'
for n, c in enumerate(cs): c.sendall(b'get k%d\\r\\n' % n)
for n, c in enumerate(cs): assert b'v%04d' % n in c.recv(100)
print('stored')"
    );
    assert_eq!(text(fixture.command("python3").args(["-c", &script])), "stored\n");
    drop(server);
    fixture.finish();
}

#[test]
fn nginx_workers_share_listeners_and_reload() {
    if !is_installed("nginx") && !Path::new("/usr/sbin/nginx").exists() {
        return;
    }
    let fixture = Fixture::new("nginx");
    let folder = fixture.folder.display();
    let settings = format!(
        "worker_processes 2; daemon off; pid {folder}/pid; error_log {folder}/errors; events {{}}
         http {{ access_log off; client_body_temp_path {folder}/a; proxy_temp_path {folder}/b;
                 fastcgi_temp_path {folder}/c; uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
                 server {{ listen {ADDRESS}:8088; location / {{ return 200 'hello'; }} }} }}"
    );
    std::fs::write(fixture.folder.join("nginx.conf"), settings).unwrap();
    let path = if Path::new("/usr/sbin/nginx").exists() { "/usr/sbin/nginx" } else { "nginx" };
    let server = serve(&fixture, fixture.command(path).arg("-c").arg(fixture.folder.join("nginx.conf")), 8088);
    let script = format!(
        "import urllib.request, sys
for _ in range(20): assert urllib.request.urlopen('http://{ADDRESS}:8088/').read() == b'hello'
print('answered')"
    );
    assert_eq!(text(fixture.command("python3").args(["-c", &script])), "answered\n");
    // SAFETY: signals a process of this test.
    unsafe { libc::kill(server.0.id() as i32, libc::SIGHUP) };
    assert_eq!(text(fixture.command("python3").args(["-c", &script])), "answered\n");
    // SAFETY: as above; the master ends its workers.
    unsafe { libc::kill(server.0.id() as i32, libc::SIGTERM) };
    let mut server = server;
    server.0.wait().unwrap();
    fixture.finish();
}

#[test]
fn programs_run_on_opentoe_under_valgrind() {
    if !is_installed("valgrind") {
        return;
    }
    let fixture = Fixture::new("valgrind");
    let posix = compile(&fixture, "posix");
    let cases = ["names", "half_close", "epoll"];
    let mut command = fixture.command("valgrind");
    command.args(["--quiet", "--tool=none"]).arg(posix).arg(ADDRESS.to_string()).args(cases);
    assert_eq!(text(&mut command), cases.map(|case| format!("ok {case}\n")).concat());
    fixture.finish();
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
    let fixture = Fixture::new("refused");
    let refused = run(fixture.command("python3").args(["-c", script]).env("TOE_HOST", "nowhere"));
    assert_eq!(String::from_utf8_lossy(&refused.stderr), "libtoe: there is no host nowhere\n");
    assert_eq!(refused.status.code(), Some(1));
    // Without the variable the library does nothing.
    assert_eq!(text(Command::new("python3").args(["-c", script]).env("LD_PRELOAD", &library)), "before\nafter\n");
    fixture.finish();
}

/// With sockets: see the case `executed`. What it opens later is on OpenTOE as well; an empty variable leads out.
#[test]
fn a_program_run_with_an_environment_of_its_makers_own_stays() {
    let fixture = Fixture::new("environment");
    let binds = format!("import socket; socket.socket().bind(('{ADDRESS}', 0)); print('bound')");
    let runs = |environment: &str| {
        let script =
            format!("import os, sys; os.execve(sys.executable, ['python3', '-c', sys.argv[1]], {environment})");
        run(fixture.command("python3").args(["-c", &script, &binds]))
    };
    for environment in ["{}", "{'HOME': '/', 'LD_PRELOAD': ''}"] {
        let output = runs(environment);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "bound\n", "{environment}: {output:?}");
    }
    let left = runs("{'TOE_SOCKET': ''}");
    assert!(!left.status.success(), "the kernel does not have this address");
    fixture.finish();
}

/// A daemon that dies: calls that wait end, calls that come later fail, nothing hangs.
#[test]
fn the_daemons_death_resets_connections() {
    let mut fixture = Fixture::new("death");
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
    let mut command = fixture.command("python3");
    let mut child = Running(command.args(["-c", &script]).stdout(Stdio::piped()).spawn().unwrap());
    let mut output = std::io::BufReader::new(child.0.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    assert_eq!(line, "ready\n");
    fixture.host.stop();
    line.clear();
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    assert!(line.starts_with("survived"), "{line}");
    assert!(child.0.wait().unwrap().success());
}
