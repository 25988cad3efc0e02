//! Thesis table 5.1: out-of-order merge by pseudo segments, with the same losses, register by register.
use super::*;

/// A row: what arrives, and the registers after it (rx-next-seq, rx-avail, rx-ooo-tail, rx-ooo-head).
enum Row {
    /// Number, sequence number, payload.
    Segment(usize, u32, usize, [u32; 4]),
    /// The pseudo segment of a segment: its sequence number, its length.
    Pseudo(usize, u32, u32, [u32; 4]),
    /// It was lost in the traffic manager.
    Lost(usize, u32, u32),
}

const ROWS: &[Row] = &[
    Row::Segment(1, 1500, 500, [1000, 10000, 1000, 500]),
    Row::Segment(2, 1000, 500, [1500, 9500, 500, 0]),
    Row::Segment(3, 2000, 500, [1500, 9500, 1000, 0]),
    Row::Segment(4, 1500, 100, [1600, 9400, 900, 0]),
    Row::Pseudo(2, 1500, 500, [2000, 9000, 500, 0]),
    Row::Lost(3, 1500, 1000),
    Row::Segment(5, 2500, 100, [2000, 9000, 600, 0]),
    Row::Segment(6, 2000, 100, [2100, 8900, 500, 0]),
    Row::Segment(7, 3000, 100, [2100, 8900, 500, 0]),
    Row::Pseudo(4, 1600, 900, [2500, 8500, 100, 0]),
    Row::Pseudo(5, 2000, 600, [2600, 8400, 0, 0]),
    Row::Pseudo(6, 2100, 500, [2600, 8400, 0, 0]),
];

fn registers(m: &Machine) -> [u32; 4] {
    let window = register(m, "rx_window");
    let interval = register(m, "rx_ooo");
    [window[0], window[1].wrapping_sub(window[0]), interval[1], interval[0]]
}

/// Sequence number and length of a pseudo segment, out of its bytes (`seg_h`).
fn range(pseudo: &Queued) -> (u32, u32) {
    let word = |i: usize| u32::from_be_bytes(pseudo.data[i..i + 4].try_into().unwrap());
    (word(14), word(18) - word(14))
}

#[test]
fn every_register_after_every_segment() {
    let mut m = machine(10_000);
    assert_eq!(registers(&m), [1000, 10000, 0, 0]);
    let mut pseudo: Vec<Option<Queued>> = vec![None; 8];
    for row in ROWS {
        match row {
            Row::Segment(number, seq, len, expected) => {
                let (_, copy) = delivered(receive(&mut m, &Seg::data(*seq, *len)));
                pseudo[*number] = copy;
                assert_eq!(registers(&m), *expected, "after #{number}");
            }
            Row::Pseudo(number, seq, len, expected) => {
                let copy = pseudo[*number].take().expect("each segment leaves a pseudo segment");
                assert_eq!(range(&copy), (*seq, *len), "P#{number}");
                let ack = acknowledge(&mut m, &copy);
                assert_eq!(registers(&m), *expected, "after P#{number}");
                // #6 is fully duplicate and discarded; the others acknowledge what they merged.
                assert_eq!(ack.map(|a| a.ack), (*number != 6).then_some(seq + len), "P#{number}");
            }
            Row::Lost(number, seq, len) => {
                let copy = pseudo[*number].take().expect("each segment leaves a pseudo segment");
                assert_eq!(range(&copy), (*seq, *len), "P#{number}");
            }
        }
    }
}
