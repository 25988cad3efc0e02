//! Writes docs/TRACEPOINTS.md to standard output.
fn main() {
    print!("{}", trace::markdown());
}
