//! Ones' complement sums of parsers and deparsers, and what waits for them.
use super::expr::Packed;
use super::hold::reset;
use super::text::Text;
use super::timing::Timing;

/// Clocks that a sum takes.
pub(super) fn clocks(timing: Timing) -> u32 {
    match timing {
        Timing::Merged => 0,
        Timing::Split => 3,
    }
}

/// The struct that has waited so many clocks.
pub(super) fn holder(from: &str, waits: u32) -> String {
    if waits == 0 { from.into() } else { format!("d{waits}") }
}

/// Structs `d1`, `d2` and so on: a packet and what the control bus has, so many clocks later. `from` names both.
pub(super) fn delays(text: &mut Text, half: &str, kind: &str, from: [&str; 2], waits: u32) {
    if waits == 0 {
        return;
    }
    let list = |ending: &str| (1..=waits).map(|n| format!("d{n}{ending}")).collect::<Vec<_>>().join(", ");
    text.line(format!("{kind} {};", list("")));
    text.line(format!("{half}_pkg::control_t {};", list("_ctl")));
    text.line("always_ff @(posedge clk) begin");
    for n in 1..=waits {
        let [packet, control] =
            if n == 1 { from.map(String::from) } else { [format!("d{}", n - 1), format!("d{}_ctl", n - 1)] };
        text.line(format!("d{n} <= {packet};"));
        text.line(format!("d{n}_ctl <= {control};"));
    }
    let all: Vec<String> = (1..=waits).map(|n| format!("d{n}")).collect();
    reset(text, &all.iter().map(String::as_str).collect::<Vec<_>>());
    text.line("end");
}

/// The sum with this number, of whole words of 16 bits.
pub(super) fn sum(text: &mut Text, timing: Timing, number: usize, words: &Packed) {
    text.line(format!("logic [15:0] sum_{number};"));
    let (count, clocks) = (words.width / 16, clocks(timing));
    text.line(format!("rtl_sum #(.WORDS({count}), .CLOCKS({clocks})) sum_{number}_of ("));
    text.connect(&[".clk(clk)".into(), format!(".words({})", words.text), format!(".sum(sum_{number})")]);
}

/// The function that adds two sums.
pub(super) fn plus(text: &mut Text) {
    text.line("function automatic logic [15:0] plus(input logic [15:0] a, input logic [15:0] b);");
    text.line("logic [16:0] once;");
    text.line("once = {1'b0, a} + {1'b0, b};");
    text.line("plus = once[16] ? a + b + 16'd1 : once[15:0];");
    text.line("endfunction");
}

/// The sum of these as a tree of pairs: its depth is the logarithm of their number.
pub(super) fn tree(mut terms: Vec<String>) -> Option<String> {
    while terms.len() > 1 {
        let pair = |pair: &[String]| if pair.len() == 1 { pair[0].clone() } else { format!("({})", pair.join(" + ")) };
        terms = terms.chunks(2).map(pair).collect();
    }
    terms.pop()
}
