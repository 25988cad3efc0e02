//! Sets in the reports of `opentoe bench` of which commit they are: `OPENTOE_COMMIT` where a packager sets it, or
//! git's.
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=OPENTOE_COMMIT");
    let given = std::env::var("OPENTOE_COMMIT").ok();
    // Its log changes with each commit and each change of branch.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|log| Path::new(log).exists()) {
        println!("cargo:rerun-if-changed={log}");
    } else {
        println!("cargo:rerun-if-changed=build.rs");
    }
    if let Some(commit) = given.or_else(|| git(&["rev-parse", "--short=12", "HEAD"])) {
        println!("cargo:rustc-env=OPENTOE_COMMIT={commit}");
    }
}

/// What git prints; none where there is no git, or no repository.
fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_string())
}
