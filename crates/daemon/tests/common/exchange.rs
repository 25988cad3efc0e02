//! Streams that programs of ZeroNIC hosts and their peers exchange; every byte is compared.
use super::comm::{PIECE, Program, fill};
use context::comm::{Completion, Order, Outcome};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

/// One direction of a connection: its sender and its receiver, which use the slots of their memory in turn.
pub(crate) struct Flow {
    salt: u64,
    posted: u64,
    done: u64,
    total: u64,
}

impl Flow {
    pub(crate) fn new(salt: u64, total: u64) -> Flow {
        Flow { salt, posted: 0, done: 0, total }
    }

    /// Posts what there is room for. `first` is the first slot of four.
    fn send(&mut self, program: &mut Program, connection: u32, first: u64) {
        while self.posted < self.total && self.posted - self.done < 4 {
            let slot = first + self.posted % 4;
            let mut bytes = vec![0; PIECE];
            fill(self.posted * PIECE as u64, self.salt, &mut bytes);
            program.memory.write((slot * PIECE as u64) as u32, &bytes);
            program.post(self.posted, connection, Order::Send(program.piece(slot, PIECE)));
            self.posted += 1;
            if self.posted == self.total {
                program.post(0, connection, Order::End);
            }
        }
    }

    fn receive(&mut self, program: &mut Program, connection: u32, first: u64) {
        while self.posted < self.total && self.posted - self.done < 4 {
            let slot = first + self.posted % 4;
            program.post(self.posted, connection, Order::Receive(program.piece(slot, PIECE)));
            self.posted += 1;
        }
    }

    fn received(&mut self, program: &Program, completion: &Completion, first: u64) {
        assert_eq!((completion.id, completion.value), (self.done, PIECE as u64));
        let slot = first + self.done % 4;
        let (mut expected, mut got) = (vec![0; PIECE], vec![0; PIECE]);
        fill(self.done * PIECE as u64, self.salt, &mut expected);
        program.memory.read((slot * PIECE as u64) as u32, &mut got);
        assert!(expected == got, "receive {} has other bytes", self.done);
        self.done += 1;
    }
}

/// A program's part of an exchange: it sends from slots 0 to 3, and receives into the others.
pub(crate) fn exchange(program: &mut Program, connection: u32, out: &mut Flow, into: &mut Flow) {
    let mut ended = false;
    while !(ended && out.done == out.total && into.done == into.total) {
        out.send(program, connection, 0);
        into.receive(program, connection, 4);
        let completion = program.next();
        match completion.outcome {
            Outcome::Sent => out.done += 1,
            Outcome::Received => into.received(program, &completion, 4),
            Outcome::Ended => ended = true,
            _ => panic!("{completion:?}"),
        }
    }
}

/// What a stream of so many bytes has.
pub(crate) fn stream(salt: u64, pieces: u64) -> Vec<u8> {
    let mut bytes = vec![0; pieces as usize * PIECE];
    fill(0, salt, &mut bytes);
    bytes
}

/// An ordinary socket's part of an exchange: one thread sends, the other receives.
pub(crate) fn talk(socket: &TcpStream, out: &[u8], expected: &[u8]) {
    std::thread::scope(|scope| {
        scope.spawn(move || {
            (&*socket).write_all(out).unwrap();
            socket.shutdown(Shutdown::Write).unwrap();
        });
        let mut got = Vec::new();
        (&*socket).read_to_end(&mut got).unwrap();
        assert!(got == expected, "other bytes, {} of {}", got.len(), expected.len());
    });
}

/// A program and its ordinary peer exchange streams.
pub(crate) fn both(program: &mut Program, connection: u32, peer: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        scope.spawn(peer);
        exchange(program, connection, &mut Flow::new(3, 40), &mut Flow::new(7, 40));
    });
}
