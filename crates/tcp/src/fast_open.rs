//! TCP Fast Open (RFC 7413): a server's decision about a SYN, and a client's memory of cookies.
use crate::Nanos;
use std::collections::{BTreeMap, VecDeque};
use wire::IpAddress;
use wire::tcp::Cookie;

/// How long a reset before the handshake's end counts as a connection that is not open yet (RFC 7413 section 5.1). This
/// host's SYN-ACK may have gone to a host that had not asked for it. Linux has as long.
pub const RESET_COUNTS: Nanos = 60_000_000_000;

/// A listener's connections that began with data and whose handshake has not ended.
#[derive(Debug, Clone, Default)]
pub struct Queue {
    /// Most of them; 0 where the listener does without Fast Open.
    pub most: u32,
    open: u32,
    /// When those that were reset count no more, the oldest first.
    reset: VecDeque<Nanos>,
}

impl Queue {
    /// Of so many at most.
    pub fn new(most: u32) -> Queue {
        Queue { most, ..Queue::default() }
    }

    /// There is room for one more.
    // Meets RFC 7413: 5.1-a, 5.1-b.
    pub fn has_room(&mut self, now: Nanos) -> bool {
        while self.reset.front().is_some_and(|over| *over <= now) {
            self.reset.pop_front();
        }
        self.open + (self.reset.len() as u32) < self.most
    }

    /// One begins.
    pub fn begin(&mut self) {
        self.open += 1;
    }

    /// The handshake of one has ended, or it has failed.
    pub fn end(&mut self) {
        self.open = self.open.saturating_sub(1);
    }

    /// One was reset: it counts on for a while.
    pub fn reset(&mut self, now: Nanos) {
        self.end();
        // No more than there can be at once.
        if (self.reset.len() as u32) < self.most {
            self.reset.push_back(now + RESET_COUNTS);
        }
    }
}

/// A listener's decision about the option of a SYN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// An ordinary handshake.
    Ordinary,
    /// An ordinary handshake, whose SYN-ACK has this cookie.
    Offer(Cookie),
    /// The connection is open at once. The cookie was made with the backup key: the SYN-ACK has one of the primary.
    Open(Option<Cookie>),
}

/// Judges the option of a SYN. The right cookies are the primary key's, and then the backup key's. The answer has a
/// cookie in the option that the SYN has, as in Linux.
// Meets RFC 7413: 4.1.2-a, 4.2.2-a.
pub fn judge(option: Option<Cookie>, right: [Option<Cookie>; 2]) -> Verdict {
    let [primary, backup] = right;
    match (option, primary) {
        (None, _) | (_, None) => Verdict::Ordinary,
        (Some(cookie), Some(primary)) if cookie.is(&primary) => Verdict::Open(None),
        (Some(cookie), Some(primary)) if backup.is_some_and(|backup| backup.is(&cookie)) => {
            Verdict::Open(Some(primary.as_in(cookie)))
        }
        // Asked for, or wrong.
        (Some(cookie), Some(primary)) => Verdict::Offer(primary.as_in(cookie)),
    }
}

/// How long a path goes without Fast Open where it seems to lose what has it; doubled with each loss that follows.
const QUIET: Nanos = 60_000_000_000;
/// Most doublings: about an hour.
const MOST_DOUBLED: u32 = 6;

/// What a client remembers of a peer.
#[derive(Debug, Clone, Copy)]
struct CookieEntry {
    cookie: Option<Cookie>,
    /// Payload bytes that the peer takes in a segment.
    mss: u16,
    /// SYNs lost in a row, and until when there is no other one.
    lost: u32,
    quiet_until: Nanos,
    /// When something of it was learned: the oldest one goes first.
    learned: u64,
}

/// The first SYN to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum First {
    /// As without Fast Open: the path seems to lose other ones.
    Plain,
    /// It asks for a cookie.
    Asks,
    /// It has the cookie, and carries at most so many bytes.
    Carries(Cookie, u16),
}

/// The cookies that a client has got, by the peer's address.
// Meets RFC 7413: 4.1.3-a, 4.1.3-b.
#[derive(Debug, Default)]
pub struct Cookies {
    peers: BTreeMap<IpAddress, CookieEntry>,
    by_age: BTreeMap<u64, IpAddress>,
    clock: u64,
    most: usize,
}

impl Cookies {
    /// Of so many peers at most.
    pub fn new(most: u32) -> Cookies {
        Cookies { most: most as usize, ..Cookies::default() }
    }

    /// The first SYN to a peer.
    pub fn first(&self, now: Nanos, peer: IpAddress) -> First {
        match self.peers.get(&peer) {
            Some(entry) if entry.quiet_until > now => First::Plain,
            Some(CookieEntry { cookie: Some(cookie), mss, .. }) => First::Carries(*cookie, *mss),
            _ => First::Asks,
        }
    }

    /// Payload bytes that a peer takes in a segment, where that is remembered.
    pub fn mss_of(&self, peer: IpAddress) -> Option<u16> {
        self.peers.get(&peer).map(|known| known.mss).filter(|mss| *mss > 0)
    }

    /// A peer that gets data without a cookie takes so much in a segment.
    pub fn met(&mut self, peer: IpAddress, mss: u16) {
        self.change(peer, |known| known.mss = mss);
    }

    /// The SYN-ACK to a SYN that asked or had a cookie, and came without having been sent again.
    pub fn answered(&mut self, peer: IpAddress, cookie: Option<Cookie>, mss: u16) {
        let cookie = cookie.filter(|cookie| !cookie.is_request());
        if cookie.is_none() && !self.peers.contains_key(&peer) {
            return;
        }
        self.change(peer, |entry| {
            (entry.lost, entry.mss) = (0, mss);
            entry.cookie = cookie.or(entry.cookie);
        });
    }

    /// A SYN with the option had to be sent again without it: for a time there is none on this path.
    // Meets RFC 7413: 4.1.3.1-b.
    pub fn lost(&mut self, now: Nanos, peer: IpAddress) {
        // Of several at once, the first one counts.
        if self.peers.get(&peer).is_some_and(|entry| entry.quiet_until > now) {
            return;
        }
        self.change(peer, |entry| {
            entry.quiet_until = now + (QUIET << entry.lost.min(MOST_DOUBLED));
            entry.lost += 1;
        });
    }

    fn change(&mut self, peer: IpAddress, change: impl FnOnce(&mut CookieEntry)) {
        if self.most == 0 {
            return;
        }
        self.clock += 1;
        let fresh = CookieEntry { cookie: None, mss: 0, lost: 0, quiet_until: 0, learned: 0 };
        let entry = self.peers.entry(peer).or_insert(fresh);
        self.by_age.remove(&entry.learned);
        entry.learned = self.clock;
        change(entry);
        self.by_age.insert(self.clock, peer);
        if self.peers.len() > self.most {
            if let Some((_, oldest)) = self.by_age.pop_first() {
                self.peers.remove(&oldest);
            }
        }
    }

    /// Peers in the cache.
    pub fn len(&self) -> usize {
        self.peers.len()
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn cookie(byte: u8) -> Cookie {
        Cookie::new(&[byte; 8]).expect("a cookie")
    }

    fn peer(number: u8) -> IpAddress {
        IpAddress::v4(Ipv4Addr::new(10, 0, 0, number))
    }

    // Checks RFC 7413: 4.1.2-a, 4.2.2-a.
    #[test]
    fn a_listener_accepts_its_cookies_and_offers_the_primary() {
        let (keys, old) = ([Some(cookie(1)), Some(cookie(2))], Cookie::EXPERIMENTAL_REQUEST);
        for (option, right, verdict) in [
            (None, keys, Verdict::Ordinary),
            (Some(cookie(1)), [None, None], Verdict::Ordinary),
            (Some(Cookie::REQUEST), keys, Verdict::Offer(cookie(1))),
            (Some(cookie(3)), keys, Verdict::Offer(cookie(1))),
            (Cookie::new(&[1; 4]), keys, Verdict::Offer(cookie(1))),
            (Some(cookie(1)), keys, Verdict::Open(None)),
            (Some(cookie(2)), keys, Verdict::Open(Some(cookie(1)))),
            (Some(cookie(2)), [keys[0], None], Verdict::Offer(cookie(1))),
            (Some(cookie(1).as_in(old)), keys, Verdict::Open(None)),
            (Some(cookie(2).as_in(old)), keys, Verdict::Open(Some(cookie(1).as_in(old)))),
            (Some(old), keys, Verdict::Offer(cookie(1).as_in(old))),
        ] {
            assert_eq!(judge(option, right), verdict, "{option:?}");
        }
    }

    // Checks RFC 7413: 5.1-a, 5.1-b.
    #[test]
    fn connections_that_were_reset_count_for_a_minute() {
        let mut queue = Queue::new(2);
        assert!(!Queue::new(0).has_room(0) && queue.has_room(0));
        queue.begin();
        assert!(queue.has_room(0));
        queue.begin();
        assert!(!queue.has_room(0));
        queue.end();
        assert!(queue.has_room(0));
        queue.begin();
        queue.reset(5);
        assert!(!queue.has_room(RESET_COUNTS + 4) && queue.has_room(RESET_COUNTS + 5));
        (0..10).for_each(|_| queue.reset(6));
        assert_eq!(queue.reset.len(), 2, "no more are remembered than may be open");
    }

    // Checks RFC 7413: 4.1.3-a, 4.1.3-b.
    #[test]
    fn cookies_are_kept_of_the_peers_that_were_met_last() {
        let mut cookies = Cookies::new(2);
        assert_eq!(cookies.first(0, peer(1)), First::Asks);
        cookies.answered(peer(1), None, 1460);
        assert!(cookies.is_empty(), "a peer without Fast Open is not worth a place");
        cookies.answered(peer(1), Some(cookie(1)), 1000);
        cookies.answered(peer(2), Some(cookie(2)), 1460);
        assert_eq!(cookies.first(0, peer(1)), First::Carries(cookie(1), 1000));
        cookies.answered(peer(1), None, 1400);
        assert_eq!(cookies.first(0, peer(1)), First::Carries(cookie(1), 1400), "it goes on with the cookie it has");
        cookies.answered(peer(3), Some(cookie(3)), 1460);
        assert_eq!((cookies.first(0, peer(2)), cookies.len()), (First::Asks, 2));
        cookies.answered(peer(1), Some(Cookie::REQUEST), 1400);
        assert_eq!(cookies.first(0, peer(1)), First::Carries(cookie(1), 1400), "an empty one is none");
        assert_eq!((cookies.mss_of(peer(1)), cookies.mss_of(peer(9))), (Some(1400), None));
        cookies.met(peer(9), 900);
        assert_eq!((cookies.mss_of(peer(9)), cookies.first(0, peer(9))), (Some(900), First::Asks));
        Cookies::new(0).answered(peer(1), Some(cookie(1)), 1000);
    }

    // Checks RFC 7413: 4.1.3.1-b.
    #[test]
    fn a_path_that_loses_syns_goes_without_for_longer_and_longer() {
        let mut cookies = Cookies::new(9);
        let mut now = 5;
        for _ in 0..10 {
            cookies.answered(peer(1), Some(cookie(1)), 1460);
            cookies.lost(now, peer(1));
            assert_eq!(cookies.first(now + QUIET - 1, peer(1)), First::Plain);
            assert_eq!(cookies.first(now + QUIET, peer(1)), First::Carries(cookie(1), 1460), "an answer forgives");
            now += QUIET;
        }
        for lost in 0..10 {
            cookies.lost(now, peer(2));
            cookies.lost(now, peer(2));
            let quiet = QUIET << lost.min(MOST_DOUBLED);
            assert_eq!(cookies.first(now + quiet - 1, peer(2)), First::Plain);
            assert_eq!(cookies.first(now + quiet, peer(2)), First::Asks);
            now += quiet;
        }
    }
}
