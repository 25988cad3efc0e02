//! Ports of a device: the bindings in each of the two port spaces.
use crate::failure::Failure;
use std::collections::HashMap;
use wire::roce::cm::Service;

/// Ephemeral ports.
const FIRST: u16 = 32_768;
const COUNT: u16 = 28_232;

/// Owners of a port.
#[derive(Debug, Clone, Copy)]
struct Bound {
    users: u32,
    shared: bool,
}

/// The ports that somebody is bound to.
#[derive(Debug, Default)]
pub(crate) struct Ports(HashMap<Service, Bound>);

impl Ports {
    /// Binds to a port; 0 stands for any free one, searched from `begin` on. Returns the port.
    ///
    /// # Errors
    /// EADDRINUSE: another one has it, or all have somebody.
    pub(crate) fn bind(&mut self, service: Service, shared: bool, begin: u16) -> Result<u16, Failure> {
        let in_use = |why: String| Failure::new(libc::EADDRINUSE, why);
        if service.port == 0 {
            let free = (0..COUNT)
                .map(|step| Service { port: FIRST + (begin % COUNT + step) % COUNT, ..service })
                .find(|candidate| !self.0.contains_key(candidate));
            let free = free.ok_or_else(|| in_use("all ports for identifiers without one are in use".into()))?;
            self.0.insert(free, Bound { users: 1, shared });
            return Ok(free.port);
        }
        let bound = self.0.entry(service).or_insert(Bound { users: 0, shared });
        if bound.users > 0 && !(shared && bound.shared) {
            return Err(in_use(format!("port {} is in use by another identifier", service.port)));
        }
        bound.users += 1;
        Ok(service.port)
    }

    /// One is bound to it no longer.
    pub(crate) fn release(&mut self, service: Service) {
        if let Some(bound) = self.0.get_mut(&service) {
            bound.users -= 1;
            if bound.users == 0 {
                self.0.remove(&service);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::roce::cm::PortSpace;

    fn service(space: PortSpace, port: u16) -> Service {
        Service { space, port }
    }

    #[test]
    fn a_port_has_one_user_unless_all_share_it() {
        let mut ports = Ports::default();
        let of = |port| service(PortSpace::Tcp, port);
        assert_eq!(ports.bind(of(7), false, 0).unwrap(), 7);
        assert_eq!(ports.bind(of(7), true, 0).unwrap_err().errno, libc::EADDRINUSE);
        assert_eq!(ports.bind(service(PortSpace::Udp, 7), true, 0).unwrap(), 7);
        assert!(ports.bind(service(PortSpace::Udp, 7), true, 0).is_ok());
        ports.release(of(7));
        assert!(ports.bind(of(7), false, 0).is_ok());
        (0..2).for_each(|_| ports.release(service(PortSpace::Udp, 7)));
        ports.release(of(7));
        assert!(ports.0.is_empty());
    }

    #[test]
    fn any_port_is_a_free_one() {
        let mut ports = Ports::default();
        let any = service(PortSpace::Tcp, 0);
        for count in 0..COUNT {
            let port = ports.bind(any, false, count).unwrap();
            assert!((FIRST..FIRST + COUNT).contains(&port), "{count}: {port}");
        }
        assert_eq!(ports.bind(any, false, 1).unwrap_err().errno, libc::EADDRINUSE);
    }
}
