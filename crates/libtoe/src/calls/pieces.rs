//! The buffers of a call, one after the other, for the common case (`data_fast_path`): one, or a list of the program's.
//! A call that sends goes through the whole list, and so reads it as it goes.
use crate::system::user_memory;
use libc::iovec;
use std::iter::{Copied, Once, once};
use std::slice::Iter;

/// As many as Linux takes.
const MOST: usize = 1024;

/// Buffers of a call that receives.
pub(crate) trait Pieces: Iterator<Item = iovec> {
    /// Whether there is room for a byte in them.
    fn have_bytes(self) -> bool;
}

/// The only buffer of a call.
#[inline(always)]
pub(crate) fn one(base: *const libc::c_void, len: usize) -> Once<iovec> {
    once(iovec { iov_base: base.cast_mut(), iov_len: len })
}

impl Pieces for Once<iovec> {
    fn have_bytes(mut self) -> bool {
        self.next().is_some_and(|piece| piece.iov_len > 0)
    }
}

/// A list of a program that sends. Under the library's lock a buffer that cannot be read has no bytes, and
/// [`user_memory::faulted`] reports it.
pub(crate) struct List {
    next: *const iovec,
    end: *const iovec,
}

impl List {
    /// Some buffers, and not too many.
    #[inline(always)]
    pub(crate) fn new(first: *const iovec, count: usize) -> Option<List> {
        (1..=MOST).contains(&count).then(|| List { next: first, end: first.wrapping_add(count) })
    }
}

impl Iterator for List {
    type Item = iovec;

    #[inline(always)]
    fn next(&mut self) -> Option<iovec> {
        if self.next == self.end {
            return None;
        }
        let piece = user_memory::piece_at(self.next);
        self.next = self.next.wrapping_add(1);
        Some(piece)
    }
}

/// A list that was found readable as a whole: what came may end before it does.
impl Pieces for Copied<Iter<'_, iovec>> {
    fn have_bytes(mut self) -> bool {
        self.any(|piece| piece.iov_len > 0)
    }
}
