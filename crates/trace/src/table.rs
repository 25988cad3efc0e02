//! The table in docs/TRACEPOINTS.md.
use crate::points::{Kind, Point};
use std::fmt::Write;

const HEAD: &str = "# Tracepoints

Made from `crates/trace/src/points.rs` by `cargo run -p trace --example table > docs/TRACEPOINTS.md`; a test holds it up
to date.

A tracepoint is off until it is requested: `opentoe trace PATTERN` streams it, `opentoe stats --enable PATTERN` counts
it. An *event* is counted; of a *histogram*, the distribution of its first argument is kept. In Prometheus' metrics
`flextoe.protocol.rtt` is `toe_trace_flextoe_protocol_rtt`. Events add `_total`, and values `_seconds` or `_bytes` where
that is the unit. `flextoe.ring.*`, `flextoe.sequencer.*` and `flextoe.netif.*` exist where modules have threads of
their own (`[host.mapping] threads = true`). With all modules on one thread, `flextoe.*.batch` has how much lies between
two modules.

| name | kind | arguments | meaning |
|---|---|---|---|
";

/// The whole page.
pub fn markdown() -> String {
    let mut page = String::from(HEAD);
    for point in Point::ALL {
        let kind = if point.kind() == Kind::Event { "event" } else { "histogram" };
        let arguments: Vec<String> =
            point.arguments().iter().map(|(name, unit)| format!("{name} ({})", unit.name())).collect();
        let _ = writeln!(page, "| `{}` | {kind} | {} | {} |", point.name(), arguments.join(", "), point.sentence());
    }
    page
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/TRACEPOINTS.md");
        let page = std::fs::read_to_string(path).unwrap_or_default();
        assert!(page == super::markdown(), "run: cargo run -p trace --example table > docs/TRACEPOINTS.md");
    }
}
