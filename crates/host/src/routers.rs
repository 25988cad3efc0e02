//! Default router list of a host whose IPv6 address came from a router, and the lifetime of that address (RFC 4861
//! sections 6.3.4 to 6.3.6, RFC 4862 section 5.5.3 e).
use crate::autoconf::{Found, PREFIX_BITS, SECOND};
use crate::packet::zone_of;
use engine::Nanos;
use wire::router::RouterAdvertisement;
use wire::{IpAddress, Prefix};

/// Routers of the default router list at most. RFC 4861 section 6.3.4 asks for two at least.
pub(crate) const MOST_ROUTERS: usize = 8;
/// A lifetime that does not end (RFC 4861 section 4.6.2).
pub(crate) const INFINITE_S: u32 = u32::MAX;
/// An advertisement without authentication does not shorten a lifetime below this (RFC 4862 section 5.5.3 e).
pub(crate) const TWO_HOURS: Nanos = 7200 * SECOND;
/// The port whose routers count.
pub(crate) const PORT: usize = 0;

/// Default routers, and the lifetime of the address.
#[derive(Debug)]
pub(crate) struct Routers {
    /// The default router list; the first one is in use.
    list: Vec<DefaultRouter>,
    /// The prefix of the host's address, until when it is valid, and whether that time has passed.
    prefix: Prefix,
    valid_until: Nanos,
    invalid: bool,
}

#[derive(Debug, Clone, Copy)]
struct DefaultRouter {
    ip: IpAddress,
    until: Nanos,
}

impl Routers {
    pub(crate) fn new(now: Nanos, found: &Found) -> Routers {
        let Found { address, router, lifetime_s, valid_s, .. } = *found;
        let prefix = Prefix::new(address, PREFIX_BITS);
        let mut routers = Routers { list: Vec::new(), prefix, valid_until: end(now, valid_s), invalid: false };
        if let Some(router) = router {
            routers.on_router(now, router.in_zone(zone_of(PORT)), lifetime_s);
        }
        routers
    }

    /// The router in use.
    pub(crate) fn default_router(&self) -> Option<IpAddress> {
        self.list.first().map(|router| router.ip)
    }

    /// The address may not be used any more: without a source, nothing is reached.
    pub(crate) fn is_invalid(&self) -> bool {
        self.invalid
    }

    /// A router advertises for how long it forwards packets; 0: no longer.
    // Meets RFC 4861: 6.3.4-b.
    pub(crate) fn on_router(&mut self, now: Nanos, ip: IpAddress, lifetime_s: u16) {
        let until = end(now, lifetime_s.into());
        let at = self.list.iter().position(|router| router.ip == ip);
        match (at, lifetime_s) {
            (Some(at), 0) => drop(self.list.remove(at)),
            (Some(at), _) => self.list[at].until = until,
            (None, 0) => {}
            (None, _) if self.list.len() < MOST_ROUTERS => self.list.push(DefaultRouter { ip, until }),
            (None, _) => {}
        }
    }

    /// A router advertises for how long addresses of a prefix are valid.
    // Meets RFC 4862: 5.5.3-b.
    pub(crate) fn on_prefixes(&mut self, now: Nanos, advertisement: &RouterAdvertisement) {
        let of_address = advertisement.prefixes.iter().find(|prefix| {
            let advertised = Prefix::new(IpAddress::v6(prefix.prefix, 0), prefix.len);
            prefix.autonomous && prefix.preferred_s <= prefix.valid_s && advertised == self.prefix
        });
        let Some(advertised) = of_address else { return };
        let until = end(now, advertised.valid_s);
        let left = self.valid_until.saturating_sub(now);
        if until > now + TWO_HOURS || until > self.valid_until {
            self.valid_until = until;
        } else if left > TWO_HOURS {
            self.valid_until = now + TWO_HOURS;
        }
        self.invalid &= self.valid_until <= now;
    }

    /// The next time at which a lifetime ends.
    pub(crate) fn next_due(&self) -> Option<Nanos> {
        let address = Some(self.valid_until).filter(|_| !self.invalid);
        self.list.iter().map(|router| router.until).chain(address).filter(|until| *until != Nanos::MAX).min()
    }

    /// Lifetimes end.
    // Meets RFC 4861: 6.3.5-a.
    // Meets RFC 4862: 5.5.4-a.
    pub(crate) fn expire(&mut self, now: Nanos) {
        self.list.retain(|router| now < router.until);
        self.invalid = self.valid_until <= now;
    }

    /// A router does not answer: the next one is used (RFC 4861 section 6.3.6). True where there is one.
    // Meets RFC 4861: 6.3.6-a.
    pub(crate) fn pass_over(&mut self, ip: IpAddress) -> bool {
        let passes = self.list.len() > 1 && self.default_router() == Some(ip);
        if passes {
            self.list.rotate_left(1);
        }
        passes
    }
}

/// When a lifetime of so many seconds ends.
fn end(now: Nanos, lifetime_s: u32) -> Nanos {
    if lifetime_s == INFINITE_S { Nanos::MAX } else { now + Nanos::from(lifetime_s) * SECOND }
}

#[cfg(test)]
impl Routers {
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn valid_until(&self) -> Nanos {
        self.valid_until
    }
}
