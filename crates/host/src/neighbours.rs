//! The neighbour table: of IPv4 by ARP (RFC 826; limits after RFC 1122 section 2.3.2), of IPv6 by Neighbor Discovery
//! (RFC 4861). One packet waits for each unresolved address.
use crate::packet::Packet;
use engine::Nanos;
use std::collections::BTreeMap;
use wire::{IpAddress, Mac};

/// The stations of the addresses on a link, as ARP (RFC 826) or Neighbor Discovery (RFC 4861) finds them.
pub trait Neighbours: Send {
    /// The station of an address, which is to be asked for where it is not there or too old.
    fn look_up(&mut self, now: Nanos, ip: IpAddress) -> Found;
    /// The station of an address, where it is known. Nothing is asked.
    fn station(&self, ip: IpAddress) -> Option<Mac>;
    /// Keeps a packet until the address answers. False where a packet was lost: the one that waited before, or this
    /// one, because the table is full.
    fn queue(&mut self, ip: IpAddress, packet: Packet) -> bool;
    /// Takes in that `ip` is at `mac`. An unknown peer is only added where `add` is set: otherwise any station could
    /// fill the table.
    fn learn(&mut self, now: Nanos, ip: IpAddress, mac: Mac, add: bool) -> Option<Learned>;
    /// An entry may be wrong: a connection through it gets no answers. Ask again at the next lookup.
    fn doubt(&mut self, now: Nanos, ip: IpAddress);
    /// The timer of an entry fired.
    fn expire(&mut self, now: Nanos, ip: IpAddress) -> Expiry;
    /// Addresses and their stations, where they are known.
    fn list(&self) -> Vec<(IpAddress, Option<Mac>)>;
}

/// Times of the table.
#[derive(Debug, Clone, Copy)]
pub struct NeighbourTiming {
    /// How long an answer is valid.
    pub reachable: Nanos,
    /// Between two requests.
    pub retry: Nanos,
    /// Requests before the neighbour is given up.
    pub tries: u32,
}

struct Entry {
    mac: Option<Mac>,
    /// Believed without asking until then.
    until: Nanos,
    /// Requests sent since the last answer.
    tries: u32,
    /// Looked up since the last answer.
    used: bool,
    queued: Option<Packet>,
}

/// Result of a lookup.
pub struct Found {
    /// The hardware address, where it is known.
    pub mac: Option<Mac>,
    /// Send a request, and come back at this time.
    pub ask_until: Option<Nanos>,
}

/// Changes by an answer.
pub struct Learned {
    /// The packet that waited for it.
    pub queued: Option<Packet>,
    /// Come back at this time.
    pub due: Nanos,
}

/// Action when an entry's timer fires.
pub enum Expiry {
    /// Send a request, and come back at this time.
    Ask(Nanos),
    /// The entry is gone, as it was not used.
    Unused,
    /// The entry is gone, as no answer came. The packet that waited is lost.
    Unreachable(Option<Packet>),
}

/// Addresses and their neighbours.
pub struct NeighbourTable {
    entries: BTreeMap<IpAddress, Entry>,
    most: usize,
    timing: NeighbourTiming,
}

impl NeighbourTable {
    /// An empty table for at most so many neighbours.
    pub fn new(most: u32, timing: NeighbourTiming) -> NeighbourTable {
        NeighbourTable { entries: BTreeMap::new(), most: most as usize, timing }
    }
}

impl Neighbours for NeighbourTable {
    fn look_up(&mut self, now: Nanos, ip: IpAddress) -> Found {
        let (full, retry) = (self.entries.len() >= self.most, now + self.timing.retry);
        match self.entries.get_mut(&ip) {
            Some(entry) => {
                entry.used = true;
                let ask = now >= entry.until && entry.tries == 0;
                entry.tries += ask as u32;
                Found { mac: entry.mac, ask_until: ask.then_some(retry) }
            }
            None if full => Found { mac: None, ask_until: None },
            None => {
                self.entries.insert(ip, Entry { mac: None, until: now, tries: 1, used: true, queued: None });
                Found { mac: None, ask_until: Some(retry) }
            }
        }
    }

    fn station(&self, ip: IpAddress) -> Option<Mac> {
        self.entries.get(&ip)?.mac
    }

    // Meets RFC 4861: 7.2.2-b.
    fn queue(&mut self, ip: IpAddress, packet: Packet) -> bool {
        match self.entries.get_mut(&ip) {
            Some(entry) => entry.queued.replace(packet).is_none(),
            None => false,
        }
    }

    fn learn(&mut self, now: Nanos, ip: IpAddress, mac: Mac, add: bool) -> Option<Learned> {
        let until = now + self.timing.reachable;
        if !self.entries.contains_key(&ip) {
            if !add || self.entries.len() >= self.most {
                return None;
            }
            self.entries.insert(ip, Entry { mac: None, until, tries: 0, used: false, queued: None });
        }
        let entry = self.entries.get_mut(&ip)?;
        *entry = Entry { mac: Some(mac), until, tries: 0, used: false, queued: entry.queued.take() };
        Some(Learned { queued: entry.queued.take(), due: until })
    }

    fn doubt(&mut self, now: Nanos, ip: IpAddress) {
        if let Some(entry) = self.entries.get_mut(&ip) {
            entry.until = entry.until.min(now);
        }
    }

    // Meets RFC 4861: 7.3-a.
    fn expire(&mut self, now: Nanos, ip: IpAddress) -> Expiry {
        let NeighbourTiming { retry, tries, .. } = self.timing;
        let Some(entry) = self.entries.get_mut(&ip) else { return Expiry::Unused };
        let idle = entry.tries == 0 && !entry.used;
        if !idle && entry.tries < tries {
            entry.tries += 1;
            return Expiry::Ask(now + retry);
        }
        let queued = self.entries.remove(&ip).and_then(|entry| entry.queued);
        if idle { Expiry::Unused } else { Expiry::Unreachable(queued) }
    }

    fn list(&self) -> Vec<(IpAddress, Option<Mac>)> {
        self.entries.iter().map(|(ip, entry)| (*ip, entry.mac)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const IP: IpAddress = IpAddress::v4(Ipv4Addr::new(10, 0, 0, 7));
    const MAC: Mac = Mac([2, 0, 0, 0, 0, 7]);

    fn table(most: u32) -> NeighbourTable {
        NeighbourTable::new(most, NeighbourTiming { reachable: 1000, retry: 10, tries: 2 })
    }

    #[test]
    fn asks_once_and_again_and_gives_up() {
        let mut table = table(8);
        let first = table.look_up(0, IP);
        assert_eq!((first.mac, first.ask_until), (None, Some(10)));
        assert_eq!(table.look_up(1, IP).ask_until, None, "one request is on its way");
        assert!(matches!(table.expire(10, IP), Expiry::Ask(20)));
        assert!(matches!(table.expire(20, IP), Expiry::Unreachable(None)));
        assert_eq!(table.list(), []);
    }

    // Checks RFC 4861: 7.3-a.
    #[test]
    fn an_answer_is_believed_for_a_while_and_then_checked() {
        let mut table = table(8);
        table.look_up(0, IP);
        assert_eq!(table.learn(5, IP, MAC, false).unwrap().due, 1005);
        assert_eq!((table.look_up(6, IP).mac, table.look_up(7, IP).ask_until), (Some(MAC), None));
        assert!(matches!(table.expire(1005, IP), Expiry::Ask(1015)));
        assert_eq!(table.look_up(1006, IP).mac, Some(MAC), "the old address serves meanwhile");
        table.learn(1007, IP, MAC, false);
        assert!(matches!(table.expire(2007, IP), Expiry::Unused), "nobody used it");
    }

    #[test]
    fn unknown_peers_do_not_fill_the_table() {
        let mut table = table(1);
        assert!(table.learn(0, IP, MAC, false).is_none());
        assert!(table.learn(0, IP, MAC, true).is_some());
        assert!(table.learn(0, Ipv4Addr::new(10, 0, 0, 8).into(), MAC, true).is_none(), "full");
    }
}
