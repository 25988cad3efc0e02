//! A connection in TIME-WAIT while its application still has the socket.
mod form;

use form::*;
use libc::SHUT_WR;

#[test]
fn what_lies_beyond_the_end_is_answered() {
    on_all("", |s| {
        let listener = s.listen();
        let fd = s.establish(listener);
        s.shutdown(fd, SHUT_WR).unwrap();
        s.expect(segment(FIN | ACK, 1, 1));
        s.send(segment(FIN | ACK, 1, 2));
        s.expect(segment(ACK, 2, 2));
        s.send(segment(ACK, 2, 2));
        s.silence(100);
        for beyond in [3, 20_000, 100_000] {
            s.send(segment(ACK, beyond, 2));
            s.expect(segment(ACK, 2, 2));
        }
        // Without an acknowledgement, it is dropped.
        s.send(segment(FIN, 3, 0));
        s.silence(100);
    });
}
