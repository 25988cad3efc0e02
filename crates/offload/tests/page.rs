//! docs/OFFLOAD.md as a new user has it: its blocks, pasted into a shell one after the other.
mod fixture;

use fixture::{Fixture, built};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The blocks of the first section, one after the other.
fn blocks() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/OFFLOAD.md");
    let page = fs::read_to_string(page).unwrap();
    let section = page.split("\n## ").find(|section| section.starts_with("The first one")).unwrap();
    section.split("```\n").skip(1).step_by(2).collect()
}

#[test]
fn the_page_leads_to_a_function_that_answers() {
    // It compiles what the page has from `make build`.
    drop(Fixture::new(&[]));
    let scratch = std::env::temp_dir().join(format!("offload-page-{}", std::process::id()));
    let target = scratch.join("checkout/target");
    fs::create_dir_all(&target).unwrap();
    let checkout = scratch.join("checkout");
    std::os::unix::fs::symlink(built(), target.join("release")).unwrap();
    let compiled = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for folder in ["apps", "offload"] {
        std::os::unix::fs::symlink(compiled, target.join(folder)).unwrap();
    }
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include");
    std::os::unix::fs::symlink(include, checkout.join("include")).unwrap();
    let script = format!("trap 'kill $(jobs -p); wait' EXIT\n{}", blocks());
    let script = script.replace("/tmp/offload", scratch.join("work").to_str().unwrap());
    let output = Command::new("timeout").args(["60", "bash", "-c", &script]).current_dir(&checkout).output().unwrap();
    let [printed, wrong] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(
        printed.contains("\nlibrary sum is loaded: opcodes 0x40\n") || printed.starts_with("library sum"),
        "{printed}{wrong}"
    );
    assert!(printed.contains("\n0 5613000000000000\n"), "{printed}{wrong}");
    assert!(printed.ends_with("list right\nreads right\nget right\ncrc right\nappend right\n"), "{printed}{wrong}");
    fs::remove_dir_all(scratch).unwrap();
}
