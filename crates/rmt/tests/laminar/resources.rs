//! Thesis table 5.2: what the program uses.
use super::*;

#[test]
fn fits_into_the_papers_fourteen_stages() {
    let report = program(&[]).report;
    assert!(report.stages.len() <= 14, "{report}");
    assert_eq!(report.warnings, []);
    // Of the SRAM, 14 points are IPv6's: its table, and wider data of the headers' one (docs/P4.md).
    let share = |name: &str| report.shares().iter().find(|s| s.0 == name).unwrap().1;
    assert!(share("SRAM") < 36.0 && share("Stateful ALU") <= 26.3 && share("TCAM") < 5.5, "{report}");
}

#[test]
fn serves_32_k_flows() {
    let program = program(&[]).program;
    assert!(program.registers.iter().all(|r| r.size == 32_768));
    assert!(program.tables.iter().filter(|t| t.name == "flows").all(|t| t.size == 32_768));
}

#[test]
fn ingress_changes_no_state() {
    let report = program(&[]).report;
    let writers: Vec<_> = report.tables.iter().filter(|t| !t.registers.is_empty()).map(|t| t.gress.name()).collect();
    assert!(writers.iter().all(|g| *g == "egress") && writers.len() == 9, "{writers:?}");
}

#[test]
fn the_report_has_the_rows_of_the_thesis() {
    let text = program(&[]).report.to_string();
    for row in ["Stages", "Processing Latency", "SRAM", "Map RAM", "TCAM", "VLIW Instruction", "Stateful ALU"] {
        assert!(text.lines().any(|l| l.starts_with(row)), "{row} in\n{text}");
    }
}
