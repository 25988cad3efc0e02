//! Confinement of the daemon: what it gives up is gone, for this whole process, so there is one test here.
use daemon::confine;
use std::fs;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::process::Command;
use std::thread;

fn status(key: &str) -> String {
    let text = fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).unwrap();
    line.trim().into()
}

#[test]
fn what_is_given_up_is_refused_and_the_rest_works() {
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    // A thread that runs already is confined as well.
    let earlier = thread::spawn(move || {
        receiver.recv().unwrap();
        (UdpSocket::bind("127.0.0.1:0").map(drop).map_err(|e| e.kind()), status("Seccomp"))
    });
    confine::drop_capabilities().unwrap();
    assert_eq!(
        (status("CapEff"), status("CapPrm"), status("NoNewPrivs")),
        ("0".repeat(16), "0".repeat(16), "1".into())
    );
    confine::filter_system_calls().unwrap();
    sender.send(()).unwrap();
    assert_eq!(earlier.join().unwrap(), (Err(ErrorKind::PermissionDenied), "2".into()));
    assert_eq!(UdpSocket::bind("127.0.0.1:0").unwrap_err().kind(), ErrorKind::PermissionDenied);
    assert_eq!(Command::new("true").spawn().unwrap_err().kind(), ErrorKind::PermissionDenied);
    assert_eq!(fs::hard_link("/proc/self/status", "/tmp/no-link").unwrap_err().kind(), ErrorKind::PermissionDenied);
    // What it lives on.
    assert_eq!(thread::spawn(|| vec![1u8; 10 << 20].len()).join().unwrap(), 10 << 20);
    let region = shm::Region::create("test", 1 << 20).unwrap();
    region.discard(0, 1 << 20).unwrap();
    assert!(shm::Doorbell::eventfd().is_ok() && shm::Doorbell::pair().is_ok());
}
