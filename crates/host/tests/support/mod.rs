//! A toy transport: datagrams over UDP. An echo sends back what it gets; an asker sends what a test gives it.
use engine::Nanos;
use host::{Claim, Io, Packet, Received, Transport};
use port::Frame;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

/// Bytes of a UDP header.
const HEADER: usize = 8;

/// A datagram, with the other end.
pub(crate) type Datagram = (Ipv4Addr, u16, Vec<u8>);

/// What a test and its transport share.
#[derive(Default, Clone)]
pub(crate) struct Mailbox {
    pub to_send: Arc<Mutex<Vec<Datagram>>>,
    pub received: Arc<Mutex<Vec<Datagram>>>,
}

impl Mailbox {
    pub(crate) fn send(&self, to: Ipv4Addr, port: u16, payload: &[u8]) {
        self.to_send.lock().unwrap().push((to, port, payload.to_vec()));
    }

    pub(crate) fn take(&self) -> Vec<Datagram> {
        std::mem::take(&mut self.received.lock().unwrap())
    }
}

/// The transport of one UDP port.
pub(crate) struct Datagrams {
    pub port: u16,
    pub echoes: bool,
    pub mail: Mailbox,
}

impl Datagrams {
    fn answer(&mut self, now: Nanos, (to, to_port, payload): &Datagram, io: &mut Io<'_>) {
        let mut body = Vec::new();
        for word in [self.port, *to_port, (HEADER + payload.len()) as u16, 0] {
            body.extend(word.to_be_bytes());
        }
        body.extend(payload);
        io.net.send(now, Packet::new((*to).into(), wire::ipv4::UDP, body), io.drops);
    }
}

impl Transport for Datagrams {
    fn name(&self) -> &'static str {
        if self.echoes { "echo" } else { "asker" }
    }

    fn claims(&self) -> Vec<Claim> {
        vec![Claim::UdpPort(self.port)]
    }

    fn poll(&mut self, now: Nanos, rx: &mut Vec<Box<Frame>>, io: &mut Io<'_>) -> usize {
        let mut done = rx.len();
        for mut frame in rx.drain(..) {
            frame.flatten();
            if let Received::Packet(ip) = io.net.receive(now, &mut frame, io.drops) {
                let body = ip.body(&frame).expect("the claim has read the ports");
                let from = u16::from_be_bytes([body[0], body[1]]);
                let datagram = (ip.header.src.as_v4().expect("IPv4"), from, body[HEADER..].to_vec());
                if self.echoes {
                    self.answer(now, &datagram, io);
                }
                self.mail.received.lock().unwrap().push(datagram);
            }
            io.pool.put(frame);
        }
        let to_send = std::mem::take(&mut *self.mail.to_send.lock().unwrap());
        done += to_send.len();
        to_send.iter().for_each(|datagram| self.answer(now, datagram, io));
        done
    }

    fn has_work(&self, _now: Nanos) -> bool {
        !self.mail.to_send.lock().unwrap().is_empty()
    }

    fn next_deadline(&self) -> Option<Nanos> {
        None
    }
}
