//! The same calls as on Linux, by symbol and by number, and those beyond POSIX, with a stand-in for the daemon.
mod fixture;
mod loop_host;

use fixture::{Fixture, build, compile, compile_with, run, text};
use loop_host::ADDRESS;
use std::process::Command;

/// The same cases on the kernel's TCP and on OpenTOE.
#[test]
fn sockets_behave_as_on_linux() {
    let fixture = Fixture::new("posix");
    let posix = compile(&fixture, "posix");
    let on_kernel = text(Command::new(&posix).arg("127.0.0.1"));
    assert_eq!(text(fixture.command(&posix).arg(ADDRESS.to_string()).env("GROWS", "")), on_kernel);
    assert!(on_kernel.lines().count() >= 17);
    fixture.finish();
}

/// stdio, `posix_spawn`, `system`, `execl`, `daemon`, instructions of the program's own: on the kernel's TCP and on
/// OpenTOE, and not where only symbols are interposed.
#[test]
#[cfg(target_arch = "x86_64")]
fn system_calls_below_the_symbols_are_seen() {
    let fixture = Fixture::new("below");
    let below = compile(&fixture, "below");
    let on_kernel = text(Command::new(&below).arg("127.0.0.1"));
    assert!(on_kernel.lines().count() >= 11);
    let address = ADDRESS.to_string();
    assert_eq!(text(fixture.command(&below).arg(&address).env("TOE_INTERCEPT", "syscalls")), on_kernel);
    let symbols = run(fixture.command(&below).args([&address, "executed"]));
    assert!(!symbols.status.success(), "symbols are enough: {symbols:?}");
    fixture.finish();
}

/// The same program as a library that is loaded when another one runs: nothing of it can be rewritten before.
#[test]
#[cfg(target_arch = "x86_64")]
fn system_calls_of_code_that_is_loaded_later_are_seen() {
    let fixture = Fixture::new("late");
    let late = compile(&fixture, "late");
    let library = compile_with(&fixture, "cc", "below", "below.so", &["-pthread", "-shared", "-fPIC"]);
    let on_kernel = text(Command::new(&late).env("LATE", &library).arg("127.0.0.1"));
    assert!(on_kernel.lines().count() >= 13);
    let address = ADDRESS.to_string();
    let with_net = |command: &mut Command| text(command.env("LATE", &library).env("TOE_INTERCEPT", "syscalls"));
    assert_eq!(with_net(fixture.command(&late).arg(&address)), on_kernel);
    fixture.finish();
}

/// The same program without a dynamic linker: the library loads it itself.
#[test]
#[cfg(target_arch = "x86_64")]
fn system_calls_of_a_static_program_are_seen() {
    let fixture = Fixture::new("static");
    let below = compile_with(&fixture, "cc", "below", "below", &["-pthread", "-static"]);
    // Nothing can be rewritten before the program runs, as with code that is loaded later.
    let on_kernel = text(Command::new(&below).env("LATE", "").arg("127.0.0.1"));
    assert!(on_kernel.lines().count() >= 13);
    let address = ADDRESS.to_string();
    let mut command = fixture.command("/bin/true");
    command.arg(&address).env("LATE", "").env("TOE_INTERCEPT", "syscalls").env("TOE_PROGRAM", &below);
    assert_eq!(text(&mut command), on_kernel);
    fixture.finish();
}

/// So it is where another program runs it: by its path, by its name, by `posix_spawn`.
#[test]
#[cfg(target_arch = "x86_64")]
fn a_static_program_that_another_one_runs_is_loaded_too() {
    let fixture = Fixture::new("static-child");
    compile_with(&fixture, "cc", "below", "below", &["-pthread", "-static"]);
    let on_kernel = text(Command::new(fixture.folder.join("below")).env("LATE", "").arg("127.0.0.1"));
    let address = ADDRESS.to_string();
    let spawn = "import os, sys
pid = os.posix_spawnp('below', ['below', sys.argv[1]], os.environ)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))";
    let path = format!("{}:{}", fixture.folder.display(), std::env::var("PATH").unwrap_or_default());
    let by = |program: &str, words: &[&str]| {
        let mut command = fixture.command(program);
        command.args(words).env("LATE", "").env("PATH", &path);
        command
    };
    assert_eq!(text(&mut by("sh", &["-c", "./below $0", &address])), on_kernel);
    assert_eq!(text(&mut by("env", &["below", &address])), on_kernel);
    assert_eq!(text(&mut by("python3", &["-c", spawn, &address])), on_kernel);
    // With symbols alone it is on the kernel, and that is reported.
    let output = run(by("env", &["below", "127.0.0.1"]).env("TOE_INTERCEPT", "symbols"));
    assert_eq!(String::from_utf8_lossy(&output.stdout), on_kernel);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(printed.contains("below stays on the kernel's TCP: it is linked statically"), "{printed}");
    fixture.finish();
}

/// What runs with symbols runs with system calls as well.
#[test]
#[cfg(target_arch = "x86_64")]
fn sockets_behave_as_on_linux_where_system_calls_are_rewritten() {
    let fixture = Fixture::new("rewritten");
    let posix = compile(&fixture, "posix");
    let on_kernel = text(Command::new(&posix).arg("127.0.0.1"));
    let rewritten = text(fixture.command(&posix).arg(ADDRESS.to_string()).env("TOE_INTERCEPT", "syscalls"));
    assert_eq!(rewritten, on_kernel);
    fixture.finish();
}

#[test]
fn the_zero_copy_interface_keeps_its_word() {
    let fixture = Fixture::new("zero-copy");
    let program = compile(&fixture, "zero_copy");
    assert_eq!(text(fixture.command(&program).arg(ADDRESS.to_string())), "zero-copy\n");
    // The same binary runs without the library, and sees that it is not there.
    let alone = run(Command::new(&program).arg(ADDRESS.to_string()));
    assert!(String::from_utf8_lossy(&alone.stderr).contains("toe_zc_reserve != NULL"));
    fixture.finish();
}

/// The example in Rust, which keeps messages in the receive buffer and frees them the other way round.
#[test]
fn zero_copy_is_there_for_rust_too() {
    let fixture = Fixture::new("zero-copy-rust");
    let example = build(&["--example", "zero_copy"]).join("examples/zero_copy");
    assert_eq!(text(fixture.command(&example).arg(ADDRESS.to_string())), "2000 messages\n");
    let alone = run(Command::new(&example).arg("127.0.0.1"));
    assert!(String::from_utf8_lossy(&alone.stderr).contains("libtoe.so is not loaded"));
    fixture.finish();
}

/// Go's stacks are too small for the library.
#[test]
#[cfg(target_arch = "x86_64")]
fn a_program_with_small_stacks_runs_as_dynamic_go_programs_do() {
    let fixture = Fixture::new("go");
    let program = compile(&fixture, "go");
    // Its system calls are intercepted without a word, and where they are not, it warns.
    assert_eq!(text(fixture.command(&program).arg(ADDRESS.to_string())), "ran\n");
    let output = run(fixture.command(&program).arg("127.0.0.1").env("TOE_INTERCEPT", "symbols"));
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && printed.contains("a program in Go stays on the kernel's TCP"), "{output:?}");
    fixture.finish();
}
