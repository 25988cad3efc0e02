//! Direct receives: when a receive posts its buffer, and when it is taken back ([`crate::state::stream`], `direct`).
use crate::state::slab::Key;
use crate::state::socket::{Kind, Socket};
use crate::state::stream::Stream;
use crate::state::{Lib, Link};
use libc::iovec;

/// The part of a program's buffers in a row that follows `skip` bytes.
fn next_piece(buffers: &[iovec], mut skip: usize) -> Option<iovec> {
    buffers.iter().find_map(|buffer| {
        let cut = skip.min(buffer.iov_len);
        skip -= cut;
        let iov_base = buffer.iov_base.cast::<u8>().wrapping_add(cut).cast();
        (buffer.iov_len > cut).then_some(iovec { iov_base, iov_len: buffer.iov_len - cut })
    })
}

/// Before a call waits for bytes: what comes may land in its buffer.
pub(super) fn post(lib: &mut Lib, key: Key, into: &[iovec], done: usize) {
    let Lib { sockets, link: Link::Attached(context), .. } = lib else { return };
    if context.home.geometry.heap_bytes == 0 {
        return;
    }
    let Some(socket) = sockets.get_mut(key.index).filter(|socket| socket.id == key.id) else { return };
    let may = !socket.broken && socket.error == 0;
    let (Kind::Stream(stream), Some(piece)) = (&socket.kind, next_piece(into, done)) else { return };
    // One of several buffers in a row may be full.
    let is_free = !stream.has_posted() || stream.forget_full_post();
    if may && is_free && stream.home.context() == context.home.context() {
        stream.post(piece);
    }
}

/// The buffer of a call that reads, where that one is posted. Any other one is taken back first.
#[cold]
pub(super) fn own_piece(link: &mut Link, stream: &Stream, into: &[iovec], done: usize) -> Option<iovec> {
    let piece = next_piece(into, done).filter(|piece| stream.has_posted_at(*piece));
    if piece.is_none() {
        take_back_of(link, stream);
    }
    piece
}

/// After a call that may have posted its buffer.
pub(super) fn finish(lib: &mut Lib, key: Key) {
    if let Some((link, stream)) = posted(lib, key) {
        if !stream.forget_full_post() {
            take_back_of(link, stream);
        }
    }
}

/// Before a step on a connection that does not handle posted buffers.
pub(crate) fn take_back(lib: &mut Lib, key: Key) {
    if let Some((link, stream)) = posted(lib, key) {
        take_back_of(link, stream);
    }
}

/// The same for all connections: the process forks, or another program takes its place.
pub(crate) fn take_all_back(lib: &mut Lib) {
    let Lib { sockets, link, .. } = lib;
    if !matches!(link, Link::Attached(context) if context.home.geometry.heap_bytes > 0) {
        return;
    }
    for index in sockets.indices() {
        if let Some(Socket { kind: Kind::Stream(stream), .. }) = sockets.get_mut(index) {
            take_back_of(link, stream);
        }
    }
}

fn posted(lib: &mut Lib, key: Key) -> Option<(&mut Link, &mut Stream)> {
    let Lib { sockets, link, .. } = lib;
    match sockets.get_mut(key.index).filter(|socket| socket.id == key.id) {
        Some(Socket { kind: Kind::Stream(stream), .. }) if stream.has_posted() => Some((link, stream)),
        _ => None,
    }
}

fn take_back_of(link: &mut Link, stream: &Stream) {
    match link {
        Link::Attached(context) => context.take_back(stream),
        _ if stream.has_posted() => stream.abandon_post(),
        _ => {}
    }
}
