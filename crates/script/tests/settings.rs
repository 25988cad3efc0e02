//! What flags of the library switch off, and what sockets say of their buffers.
mod form;

use form::*;
use libc::{SO_RCVBUF, SO_SNDBUF, SOL_SOCKET};

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
