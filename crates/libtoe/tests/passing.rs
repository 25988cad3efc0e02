//! Sockets that pass to other processes, with a stand-in for the daemon.
mod fixture;
mod loop_host;

use fixture::{Fixture, Running, run, text};
use loop_host::ADDRESS;
use std::process::{Command, Stdio};

/// A listener, connections and a bound socket go to another process, and a connection comes back.
#[test]
fn sockets_pass_over_unix_sockets() {
    let fixture = Fixture::new("passing");
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
    std::fs::write(fixture.folder.join("child.py"), child).unwrap();
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
    assert_eq!(text(fixture.command("python3").args(["-c", &script])), "passed\n");
    fixture.finish();
}

/// Who is at the other end of a UNIX socket with a name can be seen. A message to a program that is not on OpenTOE is
/// refused.
#[test]
fn passing_a_socket_to_a_kernel_program_is_refused() {
    let fixture = Fixture::new("outside");
    let outside = "import socket; s = socket.socket(socket.AF_UNIX); s.bind('outside'); s.listen()
c = s.accept()[0]; print(c.recv(100).decode(), end='')";
    let mut command = Command::new("python3");
    command.args(["-c", outside]).current_dir(&fixture.folder).stdout(Stdio::piped());
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
    let output = run(fixture.command("python3").args(["-c", &script]));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors.matches("cannot be passed to a process that is not").count(), 1, "{errors}");
    drop(other);
    fixture.finish();
}

/// The receiver of a message over a pair of sockets cannot be seen. It has an idle kernel socket, and no memory: that
/// comes from the daemon.
#[test]
fn a_message_that_passes_a_connection_has_no_memory_in_it() {
    let fixture = Fixture::new("no-memory");
    let outside = "import array, os, socket, stat, sys
s = socket.socket(fileno=int(sys.argv[1]))
envelope = socket.socket(fileno=socket.recv_fds(s, 1, 1)[1][0])
data, control, _, _ = envelope.recvmsg(65536, socket.CMSG_SPACE(64))
fds = array.array('i')
for level, kind, bytes in control: fds.frombytes(bytes)
print(len(fds), [stat.S_ISSOCK(os.fstat(fd).st_mode) for fd in fds])";
    let script = format!(
        "import os, socket, subprocess, sys
l = socket.create_server(('{ADDRESS}', 0)); l.settimeout(0.01)
try: l.accept()
except TimeoutError: l.settimeout(60)
c = socket.create_connection(l.getsockname()); a = l.accept()[0]
here, there = socket.socketpair()
child = subprocess.Popen([sys.executable, '-c', sys.argv[1], str(there.fileno())], pass_fds=[there.fileno()],
    env={{'TOE_SOCKET': '', 'PATH': os.environ['PATH']}}, stdout=subprocess.PIPE, text=True)
socket.send_fds(here, [b'x'], [a.fileno()])
print(child.communicate()[0], end='')"
    );
    let found = text(fixture.command("python3").args(["-c", &script, outside]));
    // The stand-in holds for ever what nobody adopts.
    assert_eq!(found, "1 [True]\n", "one descriptor, and it is a socket");
}

/// A receiver of a connection would see the bytes of all the sender's.
#[test]
fn passing_a_connection_to_another_user_is_refused() {
    let fixture = Fixture::new("other-user");
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
    let output = run(fixture.command("python3").args(["-c", &script]));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    // SAFETY: a number.
    if unsafe { libc::geteuid() } == 0 {
        assert_eq!(errors.matches("cannot be passed to a process of another user").count(), 1, "{errors}");
    }
    fixture.finish();
}
