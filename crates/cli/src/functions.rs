//! Offload functions of hosts, for `opentoe ls`, `stats` and `why`: what their engines report to the daemon.
use crate::table::{Table, cell, list, print_line, thousands};
use crate::units::{self, several};
use serde_json::Value;

/// Most characters of a name.
const NAME: usize = 20;

/// Libraries of all engines of a host, of `opentoe ls`.
pub(crate) fn ls(host: &Value) -> Table {
    let mut table = Table::new(&["library", "pid", "calls", "failed", "DMA"]);
    for program in list(&host["rdma"], "programs") {
        for library in list(&program["functions"], "libraries") {
            let counts = ["calls", "failed", "dma"].map(|key| units::count(count(&library[key])));
            table.row([name(library), cell(&program["pid"])].into_iter().chain(counts));
        }
    }
    table
}

/// The same with their time, of `opentoe stats`.
pub(crate) fn stats(host: &Value) {
    for engine in list(&host["rdma"], "offload") {
        let libraries = list(engine, "libraries");
        if !libraries.is_empty() {
            figures(libraries).print();
        }
        let (again, waits) = (count(&engine["restarts"]), count(&engine["outstanding_dma"]));
        let operations = several(waits, "DMA operation");
        let pid = cell(&engine["pid"]);
        let again = several(again, "time");
        print_line(&format!(
            "offload engine of process {pid}: its worker was started again {again}; {operations} outstanding"
        ));
    }
}

fn figures(libraries: &[Value]) -> Table {
    let mut table = Table::new(&["library", "calls", "failed", "timed out", "ns a call", "DMA"]);
    for library in libraries {
        let [calls, failed, late, busy, dma] =
            ["calls", "failed", "timed_out", "busy_ns", "dma"].map(|key| count(&library[key]));
        let each = busy.checked_div(calls).map_or("-".into(), thousands);
        table.row([name(library), thousands(calls), thousands(failed), thousands(late), each, thousands(dma)]);
    }
    table
}

/// Engines whose worker ended: how many sentences were printed.
pub(crate) fn why(answer: &Value) -> usize {
    let troubles = list(answer, "offload");
    for trouble in troubles {
        let [host, pid, sentence] = ["host", "pid", "sentence"].map(|key| cell(&trouble[key]));
        print_line(&format!("offload engine of process {pid} at host {host}: {sentence}"));
    }
    troubles.len()
}

fn name(library: &Value) -> String {
    cell(&library["name"]).chars().take(NAME).collect()
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn functions_fit_80_columns() {
        let most = 999_999_999_999u64;
        let library = json!({ "name": "x".repeat(64), "calls": most / 1000, "failed": 999_999, "timed_out": 999_999,
            "busy_ns": most, "dma": most / 100 });
        let program = json!({ "pid": 4_194_304, "functions": { "libraries": [library] } });
        let listed = ls(&json!({ "rdma": { "programs": [program, { "pid": 1, "functions": null }] } }));
        for table in [listed, figures(&[library])] {
            assert!(table.len() == 1 && table.widest() <= 80, "{}", table.widest());
        }
    }

    #[test]
    fn what_ended_is_reported() {
        let trouble = json!({ "host": "a", "pid": 7, "sentence": "its worker was started again" });
        assert_eq!((why(&json!({ "offload": [trouble] })), why(&json!({}))), (1, 0));
    }
}
