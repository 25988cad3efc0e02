//! A program with memory of every kind, for the tests of RDMA: `crates/memory/examples/registrant.rs`, made here once
//! more, because a test finds the examples of its own crate.
#[path = "../../memory/examples/registrant.rs"]
mod registrant;

fn main() {
    registrant::main();
}
