//! Messages over a stream (the paper's section 3.5). Each send is a message, and each message takes the next receive,
//! whether it fills that or not. A header's data about its message ([`Mark`]) are checked here against all others.
use std::collections::VecDeque;
use wire::Seq;

/// Of which message a payload is a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Messages of the stream before it, modulo 2^32.
    pub number: u32,
    /// Its begin in the stream.
    pub start: Seq,
    /// Its bytes.
    pub len: u32,
}

/// A message in a stream whose bytes are counted from its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extent {
    start: u64,
    len: u32,
}

impl Extent {
    fn end(&self) -> u64 {
        self.start + u64::from(self.len)
    }
}

/// The messages of a flow that are under way.
#[derive(Debug, Clone, Default)]
pub(super) struct Messages {
    sends: Outgoing,
    receives: Incoming,
}

#[derive(Debug, Clone, Default)]
struct Outgoing {
    /// The number of the first one.
    first: u32,
    extents: VecDeque<Extent>,
    end: u64,
    /// Bytes that the peer has acknowledged.
    una: u64,
}

#[derive(Debug, Clone, Default)]
struct Incoming {
    /// The number of the message that the first receive of the list is for, and where it begins.
    first: u32,
    start: u64,
    /// By receive: the extents of messages of which something came.
    extents: VecDeque<Option<Extent>>,
    /// Bytes behind the cursor.
    cursor: u64,
    /// Lengths of messages that are behind the cursor, and were not taken.
    done: VecDeque<u32>,
    /// Receives in the list.
    posted: usize,
}

impl Messages {
    /// A send was posted.
    pub(super) fn sends(&mut self, len: u32) {
        let start = self.sends.end;
        self.sends.extents.push_back(Extent { start, len });
        self.sends.end += u64::from(len);
    }

    /// The message that byte `seq` of the outgoing stream is in, and how many of its bytes are left from there on.
    /// `una` is the first byte that is not acknowledged; `None` for what is below it, or was not posted.
    pub(super) fn at(&self, seq: Seq, una: Seq) -> Option<(Mark, u32)> {
        let Outgoing { first, extents, una: done, .. } = &self.sends;
        let at = done + u64::try_from((seq - una) as i32).ok()?;
        let index = extents.partition_point(|extent| extent.end() <= at);
        let extent = extents.get(index)?;
        // The first one may begin below `una`.
        let start = Seq(una.0.wrapping_add(extent.start.wrapping_sub(*done) as u32));
        Some((Mark { number: first.wrapping_add(index as u32), start, len: extent.len }, (extent.end() - at) as u32))
    }

    /// Bytes that were posted, and that the peer has not acknowledged.
    pub(super) fn unacknowledged(&self) -> u64 {
        self.sends.end - self.sends.una
    }

    /// The place of a message among those that the peer does not have.
    pub(super) fn place_of(&self, mark: Mark) -> usize {
        mark.number.wrapping_sub(self.sends.first) as usize
    }

    /// The peer has so many bytes more. Returns how many messages it has.
    pub(super) fn acknowledged(&mut self, moved: u32) -> usize {
        let sends = &mut self.sends;
        let before = sends.first;
        sends.una += u64::from(moved);
        while sends.extents.front().is_some_and(|extent| extent.end() <= sends.una) {
            sends.extents.pop_front();
            sends.first = sends.first.wrapping_add(1);
        }
        sends.first.wrapping_sub(before) as usize
    }

    /// The receive of the list that a message takes. `None` where the mark contradicts other marks: each message has a
    /// byte at least, begins where the one before ends, and does not change.
    pub(super) fn receive_of(&self, mark: Mark, cursor: Seq) -> Option<usize> {
        let incoming = &self.receives;
        let index = usize::try_from(mark.number.wrapping_sub(incoming.first) as i32).ok()?;
        let extent = incoming.extent(mark, cursor)?;
        match incoming.extents.get(index) {
            Some(Some(known)) => (*known == extent).then_some(index),
            _ => incoming.has_room(index, extent).then_some(index),
        }
    }

    /// The message that byte `seq` of the incoming stream is in, the receive that it takes, and how many of its bytes
    /// are left from there on. `None` where nothing has come of it.
    pub(super) fn incoming_at(&self, seq: Seq, cursor: Seq) -> Option<(Mark, usize, u32)> {
        let incoming = &self.receives;
        let at = incoming.cursor.checked_add_signed(i64::from((seq - cursor) as i32))?;
        let holds = |extent: &&Option<Extent>| extent.is_some_and(|it| (it.start..it.end()).contains(&at));
        let index = incoming.extents.iter().position(|extent| holds(&extent))?;
        let extent = incoming.extents[index]?;
        let number = incoming.first.wrapping_add(index as u32);
        let start = seq + (extent.start.wrapping_sub(at)) as u32;
        Some((Mark { number, start, len: extent.len }, index, (extent.end() - at) as u32))
    }

    /// Something of the message came, for that receive.
    pub(super) fn came(&mut self, index: usize, mark: Mark, cursor: Seq) {
        let incoming = &mut self.receives;
        let extent = incoming.extent(mark, cursor);
        if incoming.extents.len() <= index {
            incoming.extents.resize(index + 1, None);
        }
        incoming.extents[index] = extent;
    }

    /// The cursor moved by so many bytes.
    pub(super) fn advanced(&mut self, moved: u32) {
        let incoming = &mut self.receives;
        incoming.cursor += u64::from(moved);
        while let Some(Some(extent)) = incoming.extents.front().copied() {
            if extent.end() > incoming.cursor {
                break;
            }
            incoming.extents.pop_front();
            // Operations of verbs are extents without receives here.
            incoming.posted = incoming.posted.saturating_sub(1);
            incoming.done.push_back(extent.len);
            (incoming.first, incoming.start) = (incoming.first.wrapping_add(1), extent.end());
        }
    }

    /// A receive was posted.
    pub(super) fn receives(&mut self) {
        self.receives.posted += 1;
    }

    /// Bytes from the cursor up to the end of the last message of which something came, and receives behind that.
    pub(super) fn expected(&self) -> (u64, usize) {
        let Incoming { extents, cursor, posted, .. } = &self.receives;
        let last = extents.iter().enumerate().rev().find_map(|(at, extent)| Some((at + 1, (*extent)?.end())));
        let (taken, end) = last.unwrap_or((0, *cursor));
        (end.saturating_sub(*cursor), posted.saturating_sub(taken))
    }

    /// The length of the next message that is in order, once.
    pub(super) fn take(&mut self) -> Option<u32> {
        self.receives.done.pop_front()
    }
}

impl Incoming {
    /// Where a message lies: `None` before the beginning of the first one that is not done.
    fn extent(&self, mark: Mark, cursor: Seq) -> Option<Extent> {
        let start = self.cursor.checked_add_signed(i64::from((mark.start - cursor) as i32))?;
        (start >= self.start && mark.len > 0).then_some(Extent { start, len: mark.len })
    }

    /// The extent fits between the nearest ones that are known, with a byte at least for each message between.
    fn has_room(&self, index: usize, extent: Extent) -> bool {
        let before = (0..index.min(self.extents.len())).rev().find_map(|at| self.extents[at].map(|it| (at, it)));
        let (least, between) = before.map_or((self.start, index), |(at, it)| (it.end(), index - at - 1));
        let fits_before = if between == 0 { extent.start == least } else { extent.start >= least + between as u64 };
        let after = (index + 1..self.extents.len()).find_map(|at| self.extents[at].map(|it| (at, it)));
        fits_before
            && after.is_none_or(|(at, it)| match (at - index - 1) as u64 {
                0 => extent.end() == it.start,
                between => extent.end() + between <= it.start,
            })
    }
}
