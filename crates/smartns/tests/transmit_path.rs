//! Transmit path, payload into frames: by reference, or copied ("header-only TX", SmartNS sections 3.2 and 5.3).
mod support;

use smartns::TransmitPath;
use support::{Pair, SETTINGS, Settings, Wire};
use verbs::{Mtu, SendOpcode, Status};

/// WRITEs of `len` bytes that wait together, and a READ of as many. How many frames referred to their payload.
fn referred(transmit_path: TransmitPath, len: u32) -> u64 {
    const WRITES: u64 = 4;
    let settings = Settings { mtu: Mtu::B4096, transmit_path, ..SETTINGS };
    let mut pair = Pair::connected([settings; 2], Wire::perfect());
    let data: Vec<u8> = (0..len).map(|at| (at * 5 + at / 256) as u8).collect();
    let [one, other] = &mut pair.nodes;
    one.write(0, &data);
    for at in 0..WRITES {
        one.post(one.remote(SendOpcode::Write, other, at * u64::from(len)), &[one.piece(0, len)]);
    }
    one.post(one.remote(SendOpcode::Read, other, 0), &[one.piece(1 << 20, len)]);
    assert!(pair.completed(WRITES as usize + 1));
    let [one, other] = &pair.nodes;
    assert!(one.ended().iter().all(|(status, _)| *status == Status::Success));
    for at in 0..WRITES {
        assert!(other.read(at * u64::from(len), data.len()) == data, "{len} bytes, {transmit_path:?}");
    }
    assert!(one.read(1 << 20, data.len()) == data, "{len} bytes read, {transmit_path:?}");
    pair.wire.referred
}

#[test]
fn staged_payload_is_never_referred_to() {
    for len in [64, 2048, 4096, 6144, 100_000] {
        assert_eq!(referred(TransmitPath::Staged, len), 0, "{len}");
    }
}

#[test]
fn long_payload_is_referred_to_and_short_travel_together() {
    for len in [4097, 6144, 20_000] {
        assert_eq!(referred(TransmitPath::Auto, len), 5, "{len}: each of the messages is one frame");
        assert_eq!(referred(TransmitPath::HeaderOnly, len), 5, "{len}");
    }
    for len in [2048, 4096] {
        assert_eq!(referred(TransmitPath::Auto, len), 1, "{len}: that which was read");
        assert_eq!(referred(TransmitPath::HeaderOnly, len), 5, "{len}");
    }
    for path in [TransmitPath::Auto, TransmitPath::HeaderOnly] {
        assert_eq!(referred(path, 2047), 0, "{path:?}");
    }
}
