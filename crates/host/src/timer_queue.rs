//! Timer queue for many things with small numbers, such as flows: a calendar queue (Brown 1988). Tens of thousands of
//! flows have a timer each, and each is set anew many times a second. So what is not due soon waits in lists, one for
//! each day, and only the present day is sorted.
use engine::Nanos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A day is 2^20 ns, about a millisecond.
const DAY_SHIFT: u32 = 20;
/// Days that have lists: about a second.
const DAYS: u64 = 1024;
/// Entries of the heap out of date that are no reason yet to make it anew.
const STALE: usize = 1024;

/// In place of a number: the end of a list.
const END: u32 = u32::MAX;
/// In place of the number before: it is in no list.
const UNLISTED: u32 = u32::MAX - 1;

/// What is known of one of them.
#[derive(Clone, Copy)]
struct TimerEntry {
    /// When its timer is due; `Nanos::MAX` for no timer.
    at: Nanos,
    /// Its neighbours in a day's list.
    before: u32,
    after: u32,
}

const NOWHERE: TimerEntry = TimerEntry { at: Nanos::MAX, before: UNLISTED, after: END };

/// The timers of things of one kind.
pub struct TimerQueue {
    places: Vec<TimerEntry>,
    /// Timers that are set.
    count: usize,
    /// What is due before the first day that has a list, and what is due after the last one. An entry is out of date
    /// where its place has another time. The first entry is true, and due before everything in a list.
    heap: BinaryHeap<Reverse<(Nanos, u32)>>,
    /// First numbers of the days' lists, by day modulo their number; and a bit for each that has any.
    days: Vec<u32>,
    listed: [u64; DAYS as usize / 64],
    /// The first day that has a list.
    first_day: u64,
}

impl Default for TimerQueue {
    fn default() -> TimerQueue {
        let (places, heap, days) = (Vec::new(), BinaryHeap::new(), vec![END; DAYS as usize]);
        TimerQueue { places, count: 0, heap, days, listed: [0; DAYS as usize / 64], first_day: 0 }
    }
}

impl TimerQueue {
    /// Timers that are set.
    #[inline]
    pub fn len(&self) -> usize {
        self.count
    }

    /// No timer is set.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Sets the timer of a number, in place of an earlier one.
    pub fn set(&mut self, key: u32, at: Nanos) {
        let (index, at) = (key as usize, at.min(Nanos::MAX - 1));
        if self.places.len() <= index {
            self.places.resize(index + 1, NOWHERE);
        }
        let before = self.places[index].at;
        if before == at {
            return;
        }
        self.unlist(key);
        self.count += (before == Nanos::MAX) as usize;
        self.places[index].at = at;
        let day = at >> DAY_SHIFT;
        if (self.first_day..self.first_day + DAYS).contains(&day) {
            self.list(key, day);
        } else {
            self.heap.push(Reverse((at, key)));
        }
        self.tidy();
    }

    /// A number has no timer any more.
    pub fn cancel(&mut self, key: u32) {
        if self.places.get(key as usize).is_some_and(|place| place.at != Nanos::MAX) {
            self.unlist(key);
            self.places[key as usize].at = Nanos::MAX;
            self.count -= 1;
            self.tidy();
        }
    }

    /// The timer that is due first.
    #[inline]
    pub fn first(&self) -> Option<(Nanos, u32)> {
        self.heap.peek().map(|Reverse(first)| *first)
    }

    /// Some whose timers are due soon, in no order: a hint.
    #[inline]
    pub fn soon(&self, most: usize) -> impl Iterator<Item = u32> {
        self.heap.iter().take(most).map(|Reverse((_, key))| *key)
    }

    /// Days that are over need no lists: later ones have them instead.
    #[inline]
    pub fn advance(&mut self, now: Nanos) {
        let today = now >> DAY_SHIFT;
        if today > self.first_day {
            self.first_day = self.next_day().map_or(today, |day| day.min(today));
        }
    }

    fn list(&mut self, key: u32, day: u64) {
        let slot = (day % DAYS) as usize;
        let after = std::mem::replace(&mut self.days[slot], key);
        self.listed[slot / 64] |= 1 << (slot % 64);
        if let Some(next) = self.places.get_mut(after as usize) {
            next.before = key;
        }
        let place = &mut self.places[key as usize];
        (place.before, place.after) = (END, after);
    }

    fn unlist(&mut self, key: u32) {
        let TimerEntry { at, before, after } = self.places[key as usize];
        if before == UNLISTED {
            return;
        }
        if let Some(next) = self.places.get_mut(after as usize) {
            next.before = before;
        }
        match self.places.get_mut(before as usize) {
            Some(previous) => previous.after = after,
            None => {
                let slot = ((at >> DAY_SHIFT) % DAYS) as usize;
                self.days[slot] = after;
                if after == END {
                    self.listed[slot / 64] &= !(1 << (slot % 64));
                }
            }
        }
        self.places[key as usize].before = UNLISTED;
    }

    /// The first day whose list is not empty.
    fn next_day(&self) -> Option<u64> {
        let mut day = self.first_day;
        while day < self.first_day + DAYS {
            let slot = (day % DAYS) as usize;
            let word = self.listed[slot / 64] >> (slot % 64);
            if word != 0 {
                let found = day + u64::from(word.trailing_zeros());
                // Beyond the last day, the bits are those of the first ones, which have none.
                return (found < self.first_day + DAYS).then_some(found);
            }
            day += 64 - (slot as u64 % 64);
        }
        None
    }

    /// The heap's first entry is true, due before all that is listed, and there are not many others that are out of
    /// date. Mostly that is so without further ado.
    #[inline]
    fn tidy(&mut self) {
        let TimerQueue { places, heap, count, first_day, .. } = self;
        let is_first = |Reverse((due, key)): &Reverse<(Nanos, u32)>| {
            places[*key as usize].at == *due && due >> DAY_SHIFT < *first_day
        };
        if heap.len() > 2 * *count + STALE || !heap.peek().is_some_and(is_first) {
            self.restore();
        }
    }

    #[inline(never)]
    fn restore(&mut self) {
        loop {
            let TimerQueue { places, heap, count, .. } = self;
            let is_true = |Reverse((due, key)): &Reverse<(Nanos, u32)>| places[*key as usize].at == *due;
            while heap.peek().is_some_and(|first| !is_true(first)) {
                heap.pop();
            }
            if heap.len() > 2 * *count + STALE {
                heap.retain(is_true);
            }
            let first = heap.peek().map(|Reverse((due, _))| *due);
            if first.is_some_and(|due| due >> DAY_SHIFT < self.first_day) {
                return;
            }
            let Some(day) = self.next_day() else { return };
            if first.is_some_and(|due| due >> DAY_SHIFT < day) {
                return;
            }
            self.begin(day);
        }
    }

    /// What is listed for a day comes into the heap. The day is the first one that has any.
    fn begin(&mut self, day: u64) {
        let slot = (day % DAYS) as usize;
        let mut key = std::mem::replace(&mut self.days[slot], END);
        self.listed[slot / 64] &= !(1 << (slot % 64));
        self.first_day = day + 1;
        while let Some(place) = self.places.get_mut(key as usize) {
            let TimerEntry { at, after, .. } = *place;
            place.before = UNLISTED;
            self.heap.push(Reverse((at, key)));
            key = after;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Times from microseconds to minutes ahead, set again and cancelled, polled often and seldom. The result is the
    /// same as with a plain list, in the same order.
    #[test]
    fn agrees_with_a_list() {
        let (mut timers, mut list) = (TimerQueue::default(), BTreeMap::new());
        let (mut random, mut now) = (1u64, 0);
        for _ in 0..200_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let bits = random >> 24;
            let (what, key) = (bits % 16, (bits >> 4) as u32 % 50);
            let reach = [100, 30_000, 3_000_000, 300_000_000, 2_000_000_000, 90_000_000_000][(bits >> 12) as usize % 6];
            let later = (bits >> 16) % reach;
            match what {
                0..8 => {
                    timers.set(key, now + later);
                    list.insert(key, now + later);
                }
                8..10 => {
                    timers.cancel(key);
                    list.remove(&key);
                }
                // Mostly a little later, sometimes long after.
                10 => now += later,
                _ => now += later.min(2_000_000),
            }
            timers.advance(now);
            let first = list.iter().map(|(key, at)| (*at, *key)).min();
            assert_eq!((timers.first(), timers.len()), (first, list.len()));
            if let Some((at, key)) = first.filter(|(at, _)| *at <= now) {
                assert!(timers.soon(usize::MAX).any(|other| other == key), "due at {at}");
                timers.cancel(key);
                list.remove(&key);
            }
            assert!(timers.heap.len() <= 2 * timers.count + STALE + 1);
        }
    }
}
