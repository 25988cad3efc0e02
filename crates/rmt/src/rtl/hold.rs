//! Clocks of a stage in which what was decided is held: while memories of registers are read, and before it is acted
//! upon.
use super::text::{Text, logic};

/// Names in a clock of a stage, behind its look-ups.
#[derive(Clone, Copy)]
pub(super) struct Names {
    /// The struct that holds the fields.
    pub holder: &'static str,
    /// Of what was decided.
    pub ending: &'static str,
}

/// By how often what was decided was held.
pub(super) const HELD: [Names; 4] = [
    Names { holder: "m", ending: "" },
    Names { holder: "a", ending: "_q" },
    Names { holder: "b", ending: "_q_q" },
    Names { holder: "c", ending: "_q_q_q" },
];

/// A clock in which fields and what was decided are held. `half` is followed by the name of the fields' struct.
pub(super) fn hold(text: &mut Text, [half, kind]: [&str; 2], held: &[(String, u32)], clock: usize) {
    let (from, to) = (HELD[clock - 1].holder, HELD[clock].holder);
    text.line("");
    text.line(format!("{kind} {to};"));
    text.line(format!("{half}_pkg::control_t {to}_ctl;"));
    held.iter().for_each(|(name, bits)| text.line(format!("{} {name}_q;", logic(*bits))));
    text.line("always_ff @(posedge clk) begin");
    text.line(format!("{to} <= {from};"));
    text.line(format!("{to}_ctl <= {from}_ctl;"));
    held.iter().for_each(|(name, _)| text.line(format!("{name}_q <= {name};")));
    reset(text, &[to]);
    text.line("end");
    let names: String = held.iter().map(|(name, _)| format!(", {name}_q")).collect();
    text.line(format!("wire unused_{to} = &{{1'b0, {to}, {to}_ctl{names}}};"));
}

/// No packet and no operation is in these structs behind a reset.
pub(super) fn reset(text: &mut Text, holders: &[&str]) {
    text.line("if (rst) begin");
    for holder in holders {
        text.line(format!("{holder}.slot <= 1'b0;"));
        text.line(format!("{holder}.live <= 1'b0;"));
        text.line(format!("{holder}_ctl.valid <= 1'b0;"));
    }
    text.line("end");
}
