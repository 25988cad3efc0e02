//! The journal: a record of each connection in memory that outlives the daemon, so that the next one goes on with it
//! (docs/RESTART.md). It has both addresses, what both ends agreed on, and in which region its application has it. None
//! of that changes while the connection lasts; its positions are in that region.
use context::Slot;
use std::num::NonZeroU32;
use wire::tcp::Agreed;
use wire::{FourTuple, IpAddress, Ipv4Tuple, Mac, Seq};

/// Words of a record: one cache line.
pub const RECORD_WORDS: usize = 8;
/// Words of both addresses of a connection over IPv6, which do not fit in there.
pub const ADDRESS_WORDS: usize = 4;

/// Memory that outlives the daemon, for a host's records.
pub trait Records: Send {
    /// How many there is room for.
    fn count(&self) -> u32;
    /// Record `at`; its first word is 0 where there is none.
    fn load(&self, at: u32) -> [u64; RECORD_WORDS];
    /// The IPv6 addresses that were last stored with record `at`.
    fn load_addresses(&self, at: u32) -> [u64; ADDRESS_WORDS];
    /// Writes record `at`, with addresses where they are IPv6, its first word last: a daemon that is killed on the way
    /// leaves none.
    fn store(&mut self, at: u32, words: &[u64; RECORD_WORDS], addresses: Option<&[u64; ADDRESS_WORDS]>);
    /// There is no record `at` any more.
    fn clear(&mut self, at: u32);
}

/// Which record is a flow's: its place, plus one.
pub(crate) type RecordNumber = NonZeroU32;

/// Record of a connection for the next daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    /// The region of its application ([`shm::Region::number`]).
    pub region: u64,
    /// The slot there that has its buffers.
    pub slot: Slot,
    pub tuple: FourTuple,
    pub remote_mac: Mac,
    pub agreed: Agreed,
    pub iss: Seq,
    pub irs: Seq,
    /// The peer's TSval when the connection was opened: older than all that come.
    pub ts_recent: u32,
}

/// Flag of a first word: there is a record.
const VALID: u64 = 1 << 63;
const TIMESTAMPS: u64 = 1 << 8;
const SACK: u64 = 1 << 9;
const ECN: u64 = 1 << 10;
const IPV6: u64 = 1 << 11;

impl Record {
    fn load(records: &dyn Records, at: u32) -> Option<Record> {
        Record::from_words(records.load(at), || records.load_addresses(at))
    }

    fn store(self, records: &mut dyn Records, at: u32) {
        let addresses = self.tuple.as_v4().is_none().then(|| self.address_words());
        records.store(at, &self.to_words(), addresses.as_ref());
    }

    fn address_words(&self) -> [u64; ADDRESS_WORDS] {
        let [local, remote] = [self.tuple.local_ip, self.tuple.remote_ip].map(IpAddress::to_bits);
        [(local >> 64) as u64, local as u64, (remote >> 64) as u64, remote as u64]
    }

    fn to_words(self) -> [u64; RECORD_WORDS] {
        let Record { region, slot, tuple, remote_mac, agreed, iss, irs, ts_recent } = self;
        let flag = |is: bool, flag: u64| if is { flag } else { 0 };
        let v4 = tuple.as_v4();
        let addresses =
            |tuple: Ipv4Tuple| u64::from(u32::from(tuple.local_ip)) << 32 | u64::from(u32::from(tuple.remote_ip));
        let options = u64::from(agreed.snd_shift & 15)
            | u64::from(agreed.rcv_shift & 15) << 4
            | flag(agreed.ts_offset.is_some(), TIMESTAMPS)
            | flag(agreed.sack, SACK)
            | flag(agreed.ecn, ECN)
            | flag(v4.is_none(), IPV6);
        let mut mac = [0; 8];
        mac[..6].copy_from_slice(&remote_mac.0);
        [
            VALID | u64::from(slot.generation) << 32 | u64::from(slot.index),
            region,
            v4.map_or(0, addresses),
            u64::from(tuple.local_port) << 48
                | u64::from(tuple.remote_port) << 32
                | u64::from(agreed.mss) << 16
                | options,
            u64::from(iss.0) << 32 | u64::from(irs.0),
            u64::from(agreed.ts_offset.unwrap_or(0)) << 32 | u64::from(ts_recent),
            u64::from_le_bytes(mac),
            // Of link-local addresses: both have the same one.
            tuple.local_ip.zone().into(),
        ]
    }

    fn from_words(words: [u64; RECORD_WORDS], ipv6: impl FnOnce() -> [u64; ADDRESS_WORDS]) -> Option<Record> {
        let [name, region, addresses, packed, numbers, timestamps, mac, zone] = words;
        let mac = mac.to_le_bytes();
        let v4 = |bits: u64| IpAddress::v4((bits as u32).into());
        let v6 = |high: u64, low: u64| IpAddress::from_bits(u128::from(high) << 64 | u128::from(low), zone as u32);
        let ips = || match packed & IPV6 != 0 {
            true => {
                let [local, local_low, remote, remote_low] = ipv6();
                [v6(local, local_low), v6(remote, remote_low)]
            }
            false => [v4(addresses >> 32), v4(addresses)],
        };
        (name & VALID != 0).then(|| Record {
            region,
            slot: Slot { index: name as u32, generation: (name >> 32) as u16 },
            tuple: {
                let [local_ip, remote_ip] = ips();
                FourTuple { local_ip, remote_ip, local_port: (packed >> 48) as u16, remote_port: (packed >> 32) as u16 }
            },
            remote_mac: Mac(std::array::from_fn(|at| mac[at])),
            agreed: Agreed {
                mss: (packed >> 16) as u16,
                snd_shift: (packed & 15) as u8,
                rcv_shift: (packed >> 4 & 15) as u8,
                ts_offset: (packed & TIMESTAMPS != 0).then_some((timestamps >> 32) as u32),
                sack: packed & SACK != 0,
                ecn: packed & ECN != 0,
            },
            iss: Seq((numbers >> 32) as u32),
            irs: Seq(numbers as u32),
            ts_recent: timestamps as u32,
        })
    }
}

/// The records of a host's connections. Without memory that outlives the daemon, there are none.
#[derive(Default)]
pub(crate) struct Journal {
    records: Option<Box<dyn Records>>,
    /// Places that were given back.
    free: Vec<u32>,
    /// Places from here on were never used.
    next: u32,
}

impl Journal {
    /// Records lie there from now on. Gives those that an earlier daemon left.
    pub(crate) fn keep(&mut self, records: Box<dyn Records>) -> Vec<(RecordNumber, Record)> {
        let places = 0..records.count();
        let found = |at| Some((RecordNumber::new(at + 1)?, Record::load(&*records, at)?));
        let found: Vec<_> = places.filter_map(found).collect();
        let mut used = found.iter().map(|(number, _)| number.get() - 1).peekable();
        self.next = found.last().map_or(0, |(number, _)| number.get());
        self.free = (0..self.next).filter(|at| used.next_if_eq(at).is_none()).collect();
        self.records = Some(records);
        found
    }

    /// Writes the record of a new connection. `None` where records are not kept, or there is no room.
    pub(crate) fn add(&mut self, record: Record) -> Option<RecordNumber> {
        let records = self.records.as_mut()?;
        let at = self.free.pop().or_else(|| (self.next < records.count()).then_some(self.next))?;
        self.next = self.next.max(at + 1);
        record.store(&mut **records, at);
        RecordNumber::new(at + 1)
    }

    /// The connection has moved to another region or slot.
    pub(crate) fn moved(&mut self, number: Option<RecordNumber>, region: u64, slot: Slot) {
        let (Some(records), Some(number)) = (&mut self.records, number) else { return };
        let at = number.get() - 1;
        if let Some(record) = Record::load(&**records, at) {
            records.clear(at);
            Record { region, slot, ..record }.store(&mut **records, at);
        }
    }

    /// The connection is over, or cannot go on.
    pub(crate) fn remove(&mut self, number: Option<RecordNumber>) {
        let (Some(records), Some(number)) = (&mut self.records, number) else { return };
        records.clear(number.get() - 1);
        self.free.push(number.get() - 1);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::records::RecordsInMemory;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn record(region: u64) -> Record {
        Record {
            region,
            slot: Slot { index: u32::MAX, generation: u16::MAX },
            tuple: FourTuple {
                local_ip: Ipv4Addr::new(10, 0, 0, 1).into(),
                remote_ip: Ipv4Addr::new(255, 0, 0, 2).into(),
                local_port: 80,
                remote_port: u16::MAX,
            },
            remote_mac: Mac([1, 2, 3, 4, 5, 0xff]),
            agreed: Agreed {
                mss: 1448,
                snd_shift: 14,
                rcv_shift: 7,
                ts_offset: Some(u32::MAX),
                sack: true,
                ecn: false,
            },
            iss: Seq(u32::MAX),
            irs: Seq(7),
            ts_recent: 9,
        }
    }

    #[test]
    fn a_record_comes_back() {
        let full = record(u64::MAX);
        let plain = Agreed { ts_offset: None, sack: false, ecn: true, ..full.agreed };
        let over_ipv6 = |local: &str, remote: &str| {
            let [local_ip, remote_ip] = [local, remote].map(|ip| IpAddress::v6(ip.parse::<Ipv6Addr>().unwrap(), 7));
            Record { tuple: FourTuple { local_ip, remote_ip, ..full.tuple }, ..full }
        };
        let (global, local) = (over_ipv6("2001:db8::1", "ffff::2"), over_ipv6("fe80::1", "fe80::ffff:2"));
        let plain = Record { agreed: plain, slot: Slot::default(), ..full };
        let mut memory = RecordsInMemory::new(1);
        for record in [full, global, plain, local, plain] {
            record.store(&mut memory, 0);
            assert_eq!(Record::load(&memory, 0), Some(record));
        }
        memory.clear(0);
        assert_eq!(Record::load(&memory, 0), None);
    }

    #[test]
    fn the_next_journal_has_what_the_last_one_left() {
        let memory = RecordsInMemory::new(4);
        let mut journal = Journal::default();
        assert_eq!(journal.add(record(1)), None, "nothing is kept");
        assert_eq!(journal.keep(Box::new(memory.clone())), []);
        let numbers: Vec<_> = (1..=4).map(|region| journal.add(record(region))).collect();
        assert_eq!(journal.add(record(5)), None, "no room");
        journal.remove(numbers[0]);
        journal.remove(numbers[2]);
        journal.moved(numbers[1], 20, Slot::default());
        let mut next = Journal::default();
        let found = next.keep(Box::new(memory.clone()));
        let moved = Record { slot: Slot::default(), ..record(20) };
        assert_eq!(found, [(numbers[1].unwrap(), moved), (numbers[3].unwrap(), record(4))]);
        let mut new = [next.add(record(6)), next.add(record(7))];
        new.sort();
        assert_eq!((new, next.add(record(8))), ([numbers[0], numbers[2]], None));
    }
}
