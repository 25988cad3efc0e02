//! What a packet-script runner sees of the library beside packets: calls that wait, time, and libc's own functions.
mod form;

use form::*;
use libc::{IPPROTO_TCP, SOL_SOCKET};

#[test]
fn a_call_that_waits_goes_on_when_a_packet_comes() {
    on_all("", |s| {
        let listener = s.listen();
        let fd = s.establish(listener);
        s.set_blocking(fd, true);
        let script: &Script = s;
        let read = std::thread::scope(|scope| {
            let reader = scope.spawn(move || script.read(fd));
            script.sleep_ms(10);
            script.send(segment(PSH | ACK, 1, 1).payload(b"there"));
            reader.join().unwrap()
        });
        assert_eq!(read.unwrap(), b"there");
        assert_eq!(s.read(fd), Err(libc::EDEADLK), "nothing will ever happen");
    });
}

#[test]
fn getsockopt_of_libc_asks_the_preloaded_table() {
    on_all("", |s| {
        let state = |fd| Script::libc_get(fd, IPPROTO_TCP, libc::TCP_INFO)[0];
        let listener = s.listen();
        // LISTEN and ESTABLISHED, as Linux numbers them.
        assert_eq!(state(listener), 10);
        let fd = s.establish(listener);
        assert_eq!(state(fd), 1);
        s.send(segment(PSH | ACK, 1, 1).payload(b"hello"));
        s.expect(segment(ACK, 1, 6));
        let words = Script::libc_get(fd, SOL_SOCKET, libc::SO_MEMINFO);
        assert_eq!((words.len(), words[0]), (36, 5), "five bytes are unread");
        assert!(Script::libc_get(fd, IPPROTO_TCP, libc::TCP_CC_INFO).is_empty());
    });
    // Any other descriptor is the kernel's.
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let kind = Script::libc_get(std::os::fd::AsRawFd::as_raw_fd(&socket), SOL_SOCKET, libc::SO_TYPE);
    assert_eq!(kind, libc::SOCK_STREAM.to_ne_bytes());
}

#[test]
fn a_call_that_waits_sees_no_time_that_nobody_let_pass() {
    on_all("min_rto_ms=200", |s| {
        let listener = s.listen();
        let fd = s.establish(listener);
        s.set_blocking(fd, true);
        // A retransmission is due: time that passed by itself would go on to it.
        s.write(fd, b"never acknowledged").unwrap();
        let script: &Script = s;
        let (begin, begun) = (script.now_us(), std::sync::Barrier::new(2));
        let end = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                // The library counts this thread among those that act before time may pass.
                assert!(script.now_us() - begin < 10);
                begun.wait();
                (script.read(fd).unwrap(), script.now_us())
            });
            begun.wait();
            // This thread has something else to do, and comes back by itself.
            std::thread::sleep(std::time::Duration::from_millis(200));
            assert!(script.now_us() - begin < 10, "time has passed");
            script.sleep_ms(10);
            script.send(segment(PSH | ACK, 1, 1).payload(b"there"));
            // The reader has returned and seen the time before it goes on.
            script.sleep_ms(500);
            let (read, end) = reader.join().unwrap();
            assert_eq!(read, b"there");
            end
        });
        assert!((10_000..10_010).contains(&(end - begin)), "the call ended after {} us", end - begin);
    });
}

#[test]
fn poll_ends_when_its_time_is_over() {
    on_all("min_rto_ms=200", |s| {
        let listener = s.listen();
        let fd = s.establish(listener);
        s.write(fd, b"a timer is due after it").unwrap();
        let script: &Script = s;
        let begin = script.now_us();
        assert_eq!(script.poll_for(fd, libc::POLLIN, 30), 0);
        let alone = script.now_us() - begin;
        assert!((30_000..30_010).contains(&alone), "{alone} us");
        let begun = std::sync::Barrier::new(2);
        let beside = std::thread::scope(|scope| {
            let poller = scope.spawn(|| {
                let begin = script.now_us();
                begun.wait();
                (script.poll_for(fd, libc::POLLIN, 30), script.now_us() - begin)
            });
            // No time passes before the poller waits; one sleep, since many would outlive the connection.
            begun.wait();
            script.sleep_ms(1000);
            poller.join().unwrap()
        });
        assert_eq!(beside.0, 0);
        assert!((30_000..30_010).contains(&beside.1), "{} us", beside.1);
    });
}
