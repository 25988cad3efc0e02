//! Path MTUs, learned from routers, by destination (RFC 1191 section 6.2).
use engine::Nanos;
use std::collections::HashMap;
use wire::IpAddress;

/// How long a path MTU counts. Then a new connection tries the full size again (RFC 1191 section 6.3: ten minutes).
const LIFETIME: Nanos = 600_000_000_000;
/// Destinations at once. At the limit, the one that was learned first is forgotten: its next connection learns again.
const MOST: usize = 1024;

/// Path MTUs by destination.
#[derive(Default)]
pub struct PathMtus(HashMap<IpAddress, Learned>);

struct Learned {
    /// Most bytes of an IP packet.
    mtu: u16,
    at: Nanos,
}

impl PathMtus {
    /// A router reported how much it carries towards a destination.
    pub fn learn(&mut self, now: Nanos, dst: IpAddress, mtu: u16) {
        if self.0.len() >= MOST && !self.0.contains_key(&dst) {
            let oldest = self.0.iter().min_by_key(|(_, learned)| learned.at).map(|(dst, _)| *dst);
            oldest.and_then(|dst| self.0.remove(&dst));
        }
        self.0.insert(dst, Learned { mtu, at: now });
    }

    /// The path MTU of a destination, where it still counts.
    // Meets RFC 8201: 5.2-a.
    pub fn get(&self, now: Nanos, dst: IpAddress) -> Option<u16> {
        let learned = self.0.get(&dst)?;
        (now.saturating_sub(learned.at) < LIFETIME).then_some(learned.mtu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_when_there_are_too_many() {
        let mut mtus = PathMtus::default();
        let dst = |number: usize| IpAddress::from(std::net::Ipv4Addr::from(number as u32));
        (0..MOST).for_each(|number| mtus.learn(number as Nanos, dst(number), 1000));
        mtus.learn(MOST as Nanos, dst(0), 900);
        mtus.learn(MOST as Nanos, dst(MOST), 800);
        let now = MOST as Nanos;
        assert_eq!([0, 1, 2, MOST].map(|number| mtus.get(now, dst(number))), [Some(900), None, Some(1000), Some(800)]);
        assert_eq!(mtus.0.len(), MOST);
    }

    const LOCALHOST: IpAddress = IpAddress::v4(std::net::Ipv4Addr::LOCALHOST);

    // Checks RFC 8201: 5.2-a.
    #[test]
    fn what_was_learned_counts_for_ten_minutes() {
        let mut mtus = PathMtus::default();
        mtus.learn(5, LOCALHOST, 1000);
        assert_eq!(mtus.get(LIFETIME + 4, LOCALHOST), Some(1000));
        assert_eq!(mtus.get(LIFETIME + 5, LOCALHOST), None);
    }
}
