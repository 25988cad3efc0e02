//! What flags of the library switch off, and what sockets report of their buffers.
mod form;

use form::*;
use libc::{IPPROTO_TCP, SO_RCVBUF, SO_SNDBUF, SOL_SOCKET};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use wire::tcp::Cookie;

// Checks RFC 2018: 3-a.
#[test]
fn a_host_without_sack_neither_offers_nor_uses_it() {
    on_all("sack=false", |s| {
        let listener = s.listen();
        s.send(segment(SYN, 0, 0).mss(1000).sack_ok());
        assert!(!s.expect(segment(SYN | ACK, 0, 1)).sack_ok);
        s.send(segment(ACK, 1, 1));
        s.accept(listener).unwrap();
        s.send(segment(ACK, 101, 1).payload(&[7; 100]));
        assert_eq!(s.expect(segment(ACK, 1, 1)).sack, []);
    });
    on_all("sack=false", |s| {
        let _ = s.connect();
        assert!(!s.expect(segment(SYN, 0, 0)).sack_ok);
    });
}

#[test]
fn sockets_say_the_sizes_of_their_buffers() {
    on_all("rx_bytes=131072,tx_bytes=32768", |s| {
        let sizes = |s: &Script, fd| [SO_RCVBUF, SO_SNDBUF].map(|name| s.get(fd, SOL_SOCKET, name));
        let listener = s.listen();
        assert_eq!(sizes(s, listener), [131_072, 32_768]);
        let fd = s.establish(listener);
        assert_eq!(sizes(s, fd), [131_072, 32_768]);
    });
}

#[test]
fn a_port_that_is_bound_without_a_listener_refuses() {
    on_all("", |s| {
        let fd = s.socket();
        s.bind(fd);
        s.send(segment(SYN, 0, 0).mss(1000));
        s.expect(segment(RST | ACK, 0, 1));
        s.send(segment(ACK, 17, 34));
        s.expect(segment(RST, 34, 0));
        s.send(segment(RST, 17, 0));
        s.silence(100);
    });
}

/// A file of changes, which goes with its owner.
struct Changes(PathBuf);

impl Changes {
    fn new() -> Changes {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("changes-{}-{number}", std::process::id()));
        std::fs::write(&path, "").unwrap();
        Changes(path)
    }

    fn append(&self, line: &str) {
        let before = std::fs::read_to_string(&self.0).unwrap();
        std::fs::write(&self.0, format!("{before}{line}\n")).unwrap();
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// What a script sets of the kernel's settings while it runs counts for connections that begin later.
#[test]
fn settings_change_while_a_script_runs() {
    for engine in ["flextoe", "threads", "laminar,congestion=timely"] {
        let changes = Changes::new();
        let mut s = Script::new(&format!("engine={engine},changes={}", changes.0.display()), false);
        let has_timestamps = |s: &mut Script, listener| {
            s.next_peer();
            s.send(segment(SYN, 0, 0).mss(1000).timestamps());
            let found = s.expect(segment(SYN | ACK, 0, 1)).timestamps;
            s.send(segment(RST, 1, 0));
            (found, listener)
        };
        let listener = s.listen();
        assert!(has_timestamps(&mut s, listener).0);
        changes.append("timestamps=false");
        assert!(!has_timestamps(&mut s, listener).0);
        changes.append("timestamps=true");
        assert!(has_timestamps(&mut s, listener).0);
        let asks = |s: &mut Script| {
            let fd = s.next_client();
            assert_eq!(s.send_early(fd, b""), Err(libc::EINPROGRESS));
            let option = s.expect(segment(SYN, 0, 0)).fast_open.unwrap();
            s.send(segment(SYN | ACK, 0, 1).mss(1000).fast_open(Cookie::new(b"biscuits")));
            s.expect(segment(ACK, 1, 1));
            option.is_request()
        };
        assert!(asks(&mut s));
        changes.append("peers=forgotten");
        assert!(asks(&mut s), "the cookie is forgotten");
        changes.append("fast_open=0");
        let fd = s.next_client();
        assert_eq!(s.send_early(fd, b"question"), Err(libc::EOPNOTSUPP));
    }
}

/// Linux' `tcp_ecn`: 1 offers and accepts, 2 accepts, 0 does neither.
#[test]
fn ecn_is_accepted_without_being_offered() {
    for (value, offers, accepts) in [("true", true, true), ("accept", false, true), ("false", false, false)] {
        for is_v6 in [false, true] {
            let mut s = Script::new(&format!("ecn={value}"), is_v6);
            let listener = s.listen();
            s.send(segment(SYN | ECE | CWR, 0, 0).mss(1000));
            let answer = if accepts { SYN | ACK | ECE } else { SYN | ACK };
            s.expect(segment(answer, 0, 1));
            s.close(listener);
            let _ = s.connect();
            s.expect(segment(if offers { SYN | ECE | CWR } else { SYN }, 0, 0));
        }
    }
}

/// `TCP_MAXSEG` of a listener is what its SYN-ACKs offer, and its connections send no more.
// Checks RFC 9293: MUST-16.
#[test]
fn a_listener_has_segments_of_the_size_that_its_program_says() {
    on_all("", |s| {
        let listener = s.listen();
        s.set(listener, IPPROTO_TCP, libc::TCP_MAXSEG, &[700]);
        s.send(segment(SYN, 0, 0).mss(1000));
        assert_eq!(s.expect(segment(SYN | ACK, 0, 1)).mss, Some(700));
        s.send(segment(ACK, 1, 1));
        let fd = s.accept(listener).unwrap();
        assert_eq!(s.get(fd, IPPROTO_TCP, libc::TCP_MAXSEG), 700);
        s.write(fd, &[7; 1000]).unwrap();
        assert_eq!(s.next().payload.len(), 700);
    });
}
