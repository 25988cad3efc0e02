//! A flow that goes on after a kill: what its program had written is taken for sent, and is more than the peer's window
//! ever held (docs/RESTART.md).
#[path = "common/mod.rs"]
mod common;

use common::Config;
use common::solo::{ACK, FLOW, START, Seg, Solo, acks, seg};
use engine::stream::{self, FlowEnd, Resume};
use tcp::State;

const S: u32 = START;
/// The peer's window.
const WINDOW: u32 = 4096;
const WRITTEN: u32 = 6000;

/// Restored with all that was written, and nothing received.
fn restored() -> Solo {
    let config = Config { timestamps: false, mss: 1000, rx_bytes: WINDOW, wscale: 0, ..Config::clean(1) };
    let mut s = Solo::new(config);
    s.write(WRITTEN, false);
    let (tx_pos, rx_pos, pending) = (0, 0, WRITTEN);
    let resume = Resume { tx_pos, rx_pos, pending, window: WINDOW, snd_wnd: WINDOW, state: State::Established };
    let (snd_una, rcv_nxt) = (s.own(S), s.theirs(S));
    let snd_nxt = snd_una + WRITTEN;
    let end = FlowEnd { snd_nxt, snd_una, rcv_nxt, unread: 0, ts_recent: 0, resume: Some(resume) };
    s.command(stream::Command::Resume(FLOW, end));
    s
}

fn open(segment: Seg) -> Seg {
    Seg { window: WINDOW as u16, ..segment }
}

#[test]
fn what_is_acknowledged_bears_a_number_that_the_peer_accepts() {
    let mut s = restored();
    let sent = s.receive(&[0, 1000].map(|at| open(seg(S + at, S, ACK, 1000))));
    assert_eq!(acks(&sent).last(), Some(&(S + 2000)));
    let bare = sent.iter().find(|segment| segment.len == 0).expect("an acknowledgement without payload");
    assert_eq!(bare.seq, S + WINDOW, "the right edge, and not {WRITTEN}");
}

/// The peer was restored, too: its number is what its program had written.
#[test]
fn an_acknowledgement_beyond_the_window_counts() {
    let mut s = restored();
    let sent = s.receive(&[open(seg(S + 2 * WINDOW, S + 3000, ACK, 0))]);
    let first = sent.iter().find(|segment| segment.len > 0).expect("the rest is sent");
    assert!(first.seq >= S + 3000, "{sent:?}");
    assert_eq!(s.completion().map(|(_, sent, _)| sent), Some(3000));
}
