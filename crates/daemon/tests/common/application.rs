//! An application without libtoe.
use context::attach::{Answer, Hello};
use context::{AppEnd, Congestion, Endpoint, Reply, Request};
use shm::{Region, handover};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long something that must happen may take.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !so() {
        assert!(begin.elapsed() < TIMEOUT, "{what} did not happen");
        sleep(Duration::from_millis(5));
    }
}

/// An application without libtoe: the socket, and its end of the context.
pub(crate) fn attach(socket: &Path, host: &str) -> (OwnedFd, AppEnd) {
    let (connection, end, _) = attach_numbered(socket, host);
    (connection, end)
}

/// The same, with the context's number.
pub(crate) fn attach_numbered(socket: &Path, host: &str) -> (OwnedFd, AppEnd, u32) {
    let connection = handover::connect(socket).unwrap();
    let hello = Hello {
        version: context::VERSION,
        host: Some(host.into()),
        command: "test".into(),
        token: None,
        ticket: None,
        returns: false,
    };
    handover::send(connection.as_fd(), &serde_json::to_vec(&hello).unwrap(), &[]).unwrap();
    let (message, fds) = handover::recv(connection.as_fd()).unwrap();
    let Answer::Welcome(welcome) = serde_json::from_slice(&message).unwrap() else { panic!("refused") };
    let [region, app, bell] = <[OwnedFd; 3]>::try_from(fds).unwrap();
    let region = Arc::new(Region::from_fd(region).unwrap());
    (connection, AppEnd::new(region, welcome.geometry, app, bell).unwrap(), welcome.context)
}

/// Listens on a port.
pub(crate) fn listen(app: &mut AppEnd, port: u16) {
    let local = Endpoint::v4(Ipv4Addr::UNSPECIFIED, port);
    let bind = Request::Bind { tag: 1, local, reuse_address: false, reuse_port: false, dual_stack: false };
    let Reply::Bound { binding, .. } = request(app, bind) else { panic!("not bound") };
    assert_eq!(request(app, Request::Listen { tag: 2, binding, backlog: 8 }), Reply::Done { tag: 2 });
}

/// What `a` is answered that connects to a port of 10.0.0.2.
pub(crate) fn connect_to(a: &mut AppEnd, port: u16) -> Reply {
    let remote = Endpoint::v4(Ipv4Addr::new(10, 0, 0, 2), port);
    let connect = Request::Connect {
        tag: 3,
        binding: 0,
        remote,
        congestion: Congestion::DEFAULT,
        mss: 0,
        early: context::EarlyData::No,
    };
    assert!(matches!(request(a, connect), Reply::Connecting { tag: 3, .. }));
    reply(a)
}

/// Has host `a` connect to a port of host `b`, 10.0.0.2; all is over when this returns.
pub(crate) fn connect(socket: &Path, port: u16) {
    let (_server, mut b) = attach(socket, "b");
    listen(&mut b, port);
    let (_client, mut a) = attach(socket, "a");
    assert!(matches!(connect_to(&mut a, port), Reply::Connected { tag: 3, .. }));
}

pub(crate) fn request(app: &mut AppEnd, request: Request) -> Reply {
    app.requests.push(request.to_words()).unwrap();
    app.daemon_bell.ring();
    reply(app)
}

/// The next reply.
pub(crate) fn reply(app: &mut AppEnd) -> Reply {
    let mut reply = None;
    until("the reply", || {
        reply = app.replies.pop().unwrap().and_then(Reply::from_words);
        reply.is_some()
    });
    reply.unwrap()
}
