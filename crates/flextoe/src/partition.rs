//! A connection's state by module, beside the paper's (FlexTOE table 5, thesis table 4.1).
use crate::{context_queue, message, postprocess, preprocess, protocol, scheduler};
use engine::stream::FlowStats;

/// The bytes of a module in the page's table.
fn written(page: &str, module: &str) -> usize {
    let row = page.lines().find_map(|line| line.strip_prefix(&format!("| {module} | ")));
    let cells: Vec<&str> = row.unwrap_or_else(|| panic!("no row `{module}`")).split(" | ").collect();
    cells[1].parse().unwrap_or_else(|_| panic!("`{module}` has no number: {cells:?}"))
}

#[test]
fn docs_have_the_bytes_of_a_connection_by_module() {
    let page = include_str!("../../../docs/PAPERS.md");
    let parts = [
        ("pre-processing", preprocess::STATE),
        ("protocol", protocol::STATE),
        ("post-processing", postprocess::STATE),
        ("DMA", size_of::<Option<message::Buffers>>()),
        ("context queue", context_queue::STATE),
        ("flow scheduler", scheduler::STATE),
        ("counters", size_of::<FlowStats>()),
    ];
    let sum = ("all modules", parts.iter().map(|(_, bytes)| bytes).sum::<usize>());
    let work = ("a work, from module to module", size_of::<message::Work>());
    let all: Vec<(&str, usize)> = parts.into_iter().chain([sum, work]).collect();
    let page: Vec<(&str, usize)> = all.iter().map(|(module, _)| (*module, written(page, module))).collect();
    assert_eq!(page, all);
}
