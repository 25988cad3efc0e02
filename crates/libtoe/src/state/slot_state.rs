//! State of a connection in the region, for all processes that share it.
use std::mem::offset_of;
use std::sync::atomic::Ordering::{AcqRel, Acquire, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};

/// The application's state of a slot, in the region: processes that share a connection after fork share it. The daemon
/// reads `rx_head`, `read_for` and `tx_level`, and writes `rx_level` and `tx_wanted`; all else is libtoe's. Positions
/// count bytes since the connection began, modulo 2^32.
#[repr(C, align(64))]
pub(crate) struct SlotState {
    /// Received in order, as of the latest completion.
    pub(super) rx_tail: AtomicU32,
    /// Acknowledged by the peer, as of the latest completion.
    pub(super) tx_tail: AtomicU32,
    /// Read by the program.
    pub(super) rx_head: AtomicU32,
    /// Written by the program.
    pub(super) tx_head: AtomicU32,
    /// `rx_head` in the last bump to the engine.
    pub(super) rx_reported: AtomicU32,
    /// [`RX_FIN`] and those after it.
    pub(super) flags: AtomicU32,
    /// The context that gets the completions (low half), and by which claim (high half; 0 where nobody had to claim).
    pub(super) owner: AtomicU64,
    /// Process that is copying, where several share the connection.
    pub(super) lock: AtomicU32,
    /// The urgent byte's position, and what became of it ([`super::stream`], `urgent`).
    pub(super) mark: AtomicU32,
    pub(super) urgency: AtomicU32,
    _free: [u32; 5],
    /// Both sides': the stretch that lands in the program's memory ([`context::DirectWords`]).
    _direct: [u32; 9],
    /// The engine's: which received byte is urgent, of the connection that is called by this slot.
    _urgent: u32,
    /// The control plane's: how many bytes the path can have under way.
    pub(super) tx_wanted: AtomicU32,
    /// The engine's: how far was sent, where it was asked, of the connection that is called by this slot.
    _sent: u32,
    /// Both sides': the side that has the connection, as long as it waits to be accepted.
    _offered: u32,
    /// The use of the slot that `rx_head` is about.
    pub(super) read_for: AtomicU32,
    /// The ring in which the received stream is ([`shm::Level`]); the engine sets it.
    pub(super) rx_level: AtomicU32,
    /// That of what is written.
    pub(super) tx_level: AtomicU32,
}

impl SlotState {
    /// Whether completions go to the context, as last reported.
    pub(crate) fn is_owned_by(&self, context: u32) -> bool {
        self.owner.load(Acquire) as u32 == context
    }

    /// The control plane answered a context's claim. Answers may be taken in in another order than they were given. An
    /// older one changes nothing, and its context finds that it has lost the connection again.
    pub(crate) fn claimed(&self, context: u32, claim: u32) {
        let _ = self.owner.fetch_update(AcqRel, Acquire, |owner| {
            let last = (owner >> 32) as u32;
            let later = last == 0 || claim.wrapping_sub(last) as i32 > 0;
            later.then_some((claim as u64) << 32 | context as u64)
        });
        // Before positions are read: see `share`.
        fence(SeqCst);
    }
}

const _: () = assert!(size_of::<SlotState>() == context::SLOT_STATE_BYTES);
const _: () = assert!(offset_of!(SlotState, rx_head) == context::READ_AT);
const _: () = assert!(offset_of!(SlotState, _direct) == context::DIRECT_AT);
const _: () = assert!(offset_of!(SlotState, _offered) == context::OFFERED_AT);
const _: () = assert!(offset_of!(SlotState, _urgent) == context::URGENT_AT);
const _: () = assert!(offset_of!(SlotState, _sent) == context::SENT_AT);
const _: () = assert!(offset_of!(SlotState, tx_wanted) == context::WANTED_AT);
const _: () = assert!(offset_of!(SlotState, read_for) == context::READ_FOR_AT);
const _: () = assert!(offset_of!(SlotState, rx_level) == context::SLOT_STATE_BYTES - 8);

/// The peer's FIN arrived: nothing comes after `rx_tail`.
pub(crate) const RX_FIN: u32 = 1;
/// The program shut down its sending side.
pub(crate) const SHUT_WRITE: u32 = 2;
/// The program shut down its receiving side.
pub(crate) const SHUT_READ: u32 = 4;
/// It is joined with another connection: the program neither reads nor writes it, but is notified of its end.
pub(crate) const SPLICED: u32 = 8;
/// A process that has it waits for more than a byte (`SO_RCVLOWAT`): nothing about it goes the short way.
pub(crate) const LOW_MARK: u32 = 16;
/// A process that has it writes only while little is unsent (`TCP_NOTSENT_LOWAT`): likewise.
pub(crate) const UNSENT_MARK: u32 = 32;
/// An urgent byte is announced or there, and the program has not read beyond it: likewise.
pub(crate) const URGENT: u32 = 64;
/// A receive has posted its buffer: what comes may lie there, and no other call finds all of it in the ring.
pub(crate) const DIRECT: u32 = 128;
