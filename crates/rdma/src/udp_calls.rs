//! Requests of programs to UDP ports.
use crate::device::{Device, user};
use crate::failure::Failure;
use crate::udp::Wanted;
use crate::user_context::{EventPipe, ProgramId};
use std::net::SocketAddrV4;
use std::sync::Arc;
use verbs::control::Answer;
use verbs::udp::{self, Request};

impl Device {
    /// Binds a program to a UDP port of the host's address that no transport claims; `pipe` gets a byte for each
    /// datagram that comes.
    ///
    /// # Errors
    /// EOPNOTSUPP: over streams. EADDRNOTAVAIL, EADDRINUSE, ENOMEM: as `bind`(2) has them.
    pub fn bind_udp(
        &mut self,
        id: ProgramId,
        wanted: SocketAddrV4,
        pipe: Arc<dyn EventPipe>,
        is_claimed: impl Fn(u16) -> bool,
    ) -> Result<Answer, Failure> {
        user(&mut self.users, id)?;
        self.only_with_packets("UDP of datagram sockets (rsockets)")?;
        let begin = self.connections.draw() as u16;
        let wanted = Wanted { address: wanted, begin, is_claimed: &is_claimed };
        let bound = self.udp.bind(id, &wanted, pipe)?;
        Ok(Answer::Udp(udp::Answer::Bound(bound)))
    }

    /// Carries out a request about UDP ports.
    ///
    /// # Errors
    /// EINVAL: it names what the program does not have; or as [`Request`] has them.
    pub fn udp(&mut self, id: ProgramId, request: &Request) -> Result<Answer, Failure> {
        user(&mut self.users, id)?;
        match request {
            Request::Bind(_) => return Err(Failure::invalid("the port's pipe is missing")),
            Request::Release(port) => self.udp.release(id, *port)?,
            Request::Send { port, to, payload } => self.udp.push(id, *port, *to, payload)?,
            Request::Receive(port) => {
                let taken = self.udp.take(id, *port)?;
                return Ok(Answer::Udp(udp::Answer::Datagram(taken)));
            }
        }
        Ok(Answer::Done)
    }
}
