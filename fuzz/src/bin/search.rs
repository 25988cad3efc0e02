//! Searches for inputs of one target that reach new code: libFuzzer's command line, with the target's name in
//! `FUZZ_TARGET`. `fuzz/run` builds and calls it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

static TARGET: OnceLock<fuzz::Target> = OnceLock::new();

fuzz_target!(|bytes: &[u8]| {
    let target = TARGET.get_or_init(|| {
        let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
        fuzz::target(&name).unwrap_or_else(|| panic!("FUZZ_TARGET={name}: there is no such target"))
    });
    target(bytes);
});
