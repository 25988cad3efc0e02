//! `opentoe` as users meet it: exit status, sentences, and that nothing is left behind.
mod scratch;

use scratch::{Scratch, any_library, error};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

#[test]
fn a_write_error_counts_and_a_reader_that_left_does_not() {
    let scratch = Scratch::new();
    for arguments in [&["completions", "bash"][..], &["trace", "--list"], &["trace", "--list", "--json"]] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = scratch.command().args(arguments).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(error(&output).contains("standard output cannot be written"), "{}", error(&output));
        let (reader, writer) = UnixStream::pair().unwrap();
        drop(reader);
        let output = scratch.command().args(arguments).stdout(OwnedFd::from(writer)).output().unwrap();
        assert_eq!((output.status.code(), error(&output)), (Some(0), String::new()), "{arguments:?}");
    }
}

#[test]
fn a_program_needs_no_dashes_before_it_and_keeps_its_own() {
    let scratch = Scratch::new();
    let library = any_library();
    for dashes in [&["--"][..], &[]] {
        let run =
            [&["run", "--quiet", "--lib", &library], dashes, &["sh", "-c", "echo \"$@\"", "sh", "--host", "--", "b"]];
        let output = scratch.toe(&run.concat());
        assert_eq!(String::from_utf8_lossy(&output.stdout), "--host -- b\n", "{}", error(&output));
    }
    scratch.becomes_empty();
}

#[test]
fn usage_errors_exit_with_2() {
    let scratch = Scratch::new();
    for arguments in [
        &[][..],
        &["frobnicate"],
        &["run"],
        &["run", "--frob", "--", "true"],
        &["why", "twelve"],
        &["demo", "--seconds", "0"],
        &["stats", "--flow", "x"],
        &["pcap", "tcp", "prot", "80"],
        &["pcap", "--direction", "up"],
        &["pcap", "--count", "0"],
        &["trace", "--count", "0"],
        &["stats", "--flow", "1", "--trace"],
        &["top", "--interval", "0"],
        &["top", "--sort", "colour"],
        &["top"],
        &["run", "--config", "a", "--socket", "b", "--", "true"],
    ] {
        let output = scratch.toe(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", error(&output));
        assert!(!output.stderr.is_empty());
    }
}

#[test]
fn help_is_everywhere_with_examples() {
    let scratch = Scratch::new();
    for verb in ["run", "demo", "ls", "stats", "why", "pcap", "top", "trace", "offload"] {
        let output = scratch.toe(&[verb, "--help"]);
        assert_eq!(output.status.code(), Some(0));
        assert!(String::from_utf8_lossy(&output.stdout).contains("Example"), "{verb}");
    }
}

#[test]
fn an_offload_engine_that_is_not_there_is_one_sentence_and_1() {
    let scratch = Scratch::new();
    for arguments in [&["ls"][..], &["load", "/proc/version"], &["unload", "x"]] {
        let output = scratch.command().env("TOE_OFFLOAD", "/nobody").arg("offload").args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(error(&output).starts_with("opentoe: no offload engine answers at /nobody: "), "{}", error(&output));
    }
}

#[test]
fn a_daemon_that_is_not_there_is_one_sentence_and_1() {
    let scratch = Scratch::new();
    let socket = scratch.0.join("nobody.sock");
    let socket = socket.to_str().unwrap();
    for arguments in [
        &["ls"][..],
        &["stats"],
        &["pcap", "-w", "x"],
        &["top", "--once"],
        &["trace", "flextoe"],
        &["stats", "--trace"],
        &["why"],
        &["why", "1", "2"],
        &["run", "--lib", &any_library()],
    ] {
        let mut all = arguments.to_vec();
        all.extend(["--socket", socket]);
        if arguments[0] == "run" {
            all.extend(["--", "touch", "started"]);
        }
        let output = scratch.command().current_dir(&scratch.0).args(&all).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{all:?}");
        assert_eq!(
            error(&output),
            format!("opentoe: no daemon is running at {socket}: start one with toed --config FILE\n")
        );
    }
    assert!(!scratch.0.join("started").exists(), "the program was started");
    assert!(!scratch.0.join("x").exists(), "a capture was begun");
}

#[test]
fn a_capture_that_cannot_be_is_one_sentence_and_changes_nothing() {
    let scratch = Scratch::new();
    let configuration = scratch.0.join("lab.toml");
    fs::write(&configuration, "[[host]]\nname = \"a\"\naddress = \"10.0.0.1\"\nprefix_len = 24\n").unwrap();
    let old = scratch.0.join("old.pcapng");
    fs::write(&old, "old").unwrap();
    let (file, toe) = (old.to_str().unwrap(), env!("CARGO_BIN_EXE_opentoe"));
    let capture = |arguments: &[&str]| {
        let all =
            ["run", "-q", "--lib", &any_library(), "--config", configuration.to_str().unwrap(), "--", toe, "pcap"];
        let output = scratch.toe(&[&all[..], arguments].concat());
        assert_eq!(error(&output).lines().count(), 1, "{}", error(&output));
        (output.status.code(), error(&output))
    };
    let (status, sentence) = capture(&["-w", file, "tcp and"]);
    assert!(
        status == Some(2) && sentence.starts_with("opentoe: the filter `tcp and` is not understood: "),
        "{sentence}"
    );
    let no_host = "opentoe: this daemon has no host `c`; it has a\n";
    assert_eq!(capture(&["-w", file, "--host", "c"]), (Some(1), no_host.into()));
    let (status, sentence) = capture(&["-w", "/nonexistent/x.pcapng"]);
    assert!(status == Some(1) && sentence.starts_with("opentoe: cannot write /nonexistent/x.pcapng: "), "{sentence}");
    let (status, sentence) = capture(&["ip6 protochain 6"]);
    assert!(status == Some(1) && sentence.contains("jumps backwards"), "{sentence}");
    assert_eq!(fs::read(&old).unwrap(), b"old");
}

#[test]
fn what_cannot_be_run_is_reported_before_anything_starts() {
    let scratch = Scratch::new();
    let library = any_library();
    let refused = |arguments: &[&str], sentence: &str| {
        let output = scratch.toe(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(error(&output).contains(sentence), "{arguments:?}: {}", error(&output));
        assert_eq!(error(&output).lines().count(), 1, "{}", error(&output));
    };
    refused(&["run", "--lib", "/nonexistent.so", "--", "true"], "no library at /nonexistent.so");
    refused(&["run", "--lib", &library, "--", "no-such-program"], "no such program");
    refused(
        &["run", "--lib", &library, "--engine", "warp", "--", "true"],
        "there is no engine `warp`; known are flextoe",
    );
    refused(&["run", "--lib", &library, "--network", "10.0.0.0", "--", "true"], "is no network");
    refused(
        &["run", "--lib", &library, "--config", "/nonexistent.toml", "--", "true"],
        "cannot read /nonexistent.toml",
    );
    refused(&["demo", "--only", "emacs"], "no program `emacs`");
    scratch.becomes_empty();
}

#[test]
fn a_program_keeps_its_exit_status_and_its_daemon_ends() {
    let scratch = Scratch::new();
    let configuration = scratch.0.join("lab.toml");
    fs::write(&configuration, "[[host]]\nname = \"a\"\naddress = \"10.0.0.1\"\nprefix_len = 24\n").unwrap();
    let script = "echo $TOE_HOST; test -S \"$TOE_SOCKET\" || exit 9; exit 7";
    let run = |script: &str| {
        let configuration = configuration.to_str().unwrap();
        scratch.toe(&["run", "--lib", &any_library(), "--config", configuration, "--", "sh", "-c", script])
    };
    let output = run(script);
    assert_eq!(output.status.code(), Some(7), "{}", error(&output));
    assert_eq!(output.stdout, b"a\n");
    assert_eq!(error(&output), "opentoe: a private daemon was started: 'a' is 10.0.0.1\n");
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(run("kill -KILL $$").status.signal(), Some(9), "the signal is the program's own");
    // A wrong configuration: one sentence, and the program is not started.
    fs::write(&configuration, "[[host]]\nname = \"a\"\nadress = \"10.0.0.1\"\n").unwrap();
    let output = run("touch started");
    assert_eq!(output.status.code(), Some(1));
    assert!(error(&output).contains("lab.toml:3: unknown key `adress`; did you mean `address`?"), "{}", error(&output));
    fs::remove_file(&configuration).unwrap();
    scratch.becomes_empty();
}

#[test]
fn a_private_daemon_is_found_where_it_is_the_only_one() {
    let scratch = Scratch::new();
    let file = scratch.0.join("lab.toml");
    fs::write(&file, "[[host]]\nname = \"a\"\naddress = \"10.0.0.1\"\nprefix_len = 24\n").unwrap();
    let (file, toe, library) = (file.to_str().unwrap(), env!("CARGO_BIN_EXE_opentoe"), any_library());
    let listing = format!("unset TOE_SOCKET; {toe} ls");
    let run = |script: &str| scratch.toe(&["run", "-q", "--lib", &library, "--config", file, "--", "sh", "-c", script]);
    let one = run(&listing);
    let printed = String::from_utf8_lossy(&one.stdout).into_owned();
    assert!(printed.contains("10.0.0.1/24"), "{printed}{}", error(&one));
    let two = run(&format!("{toe} run -q --lib {library} --config {file} -- sh -c '{listing}'"));
    let sentence = error(&two);
    assert_eq!(two.status.code(), Some(1), "{sentence}");
    assert!(sentence.starts_with("opentoe: 2 daemons of opentoe run are there; name one:\n  --socket "), "{sentence}");
    assert_eq!(sentence.matches("   sh (process ").count(), 2, "{sentence}");
    fs::remove_file(file).unwrap();
    scratch.becomes_empty();
}

/// On a terminal that `script` makes: `typed` is what is typed there, by a shell command, in which `shows TEXT` waits
/// until the terminal has shown it.
fn top_on_a_terminal(scratch: &Scratch, typed: &str) -> String {
    let configuration = scratch.0.join("lab.toml");
    fs::write(&configuration, "[[host]]\nname = \"a\"\naddress = \"10.0.0.1\"\nprefix_len = 24\n").unwrap();
    let toe = env!("CARGO_BIN_EXE_opentoe");
    let inside = format!("stty cols 80 rows 24; {toe} top --interval 0.1; echo status $?; stty -a");
    let screen = scratch.0.join("screen");
    let script = format!(
        "SCREEN={}; rm -f $SCREEN
         shows() {{ for turn in $(seq 600); do grep -qs \"$1\" $SCREEN && return; sleep 0.1; done; }}
         DAEMON=$({toe} ls --json | sed -n 's/^  \"pid\": \\([0-9]*\\).*/\\1/p')
         ({typed}) | script -qfec '{inside}' $SCREEN",
        screen.display()
    );
    let all = ["run", "-q", "--lib", &any_library(), "--config", configuration.to_str().unwrap(), "--", "sh", "-c"];
    let output = scratch.toe(&[&all[..], &[&script]].concat());
    assert_eq!(error(&output), "");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_live_view_gives_the_terminal_back() {
    let scratch = Scratch::new();
    let quiet = top_on_a_terminal(&scratch, "shows 10.0.0.1/24; printf q; shows status.0");
    let (live, after) = quiet.split_once("\x1b[?1049l").unwrap_or_else(|| panic!("no way back: {quiet}"));
    assert!(live.contains("\x1b[?1049h") && live.contains("10.0.0.1/24"), "{live}");
    assert!(after.contains("status 0") && after.contains(" icanon") && after.contains(" echo "), "{after}");
    let gone = top_on_a_terminal(&scratch, "shows 10.0.0.1/24; kill $DAEMON; shows status.1");
    let (_, after) = gone.split_once("\x1b[?1049l").unwrap_or_else(|| panic!("no way back: {gone}"));
    assert!(after.contains("opentoe: the daemon has gone: "), "{after}");
    assert!(after.contains("status 1") && after.contains(" icanon"), "{after}");
}

#[test]
fn without_a_daemon_one_is_made_that_the_kernel_reaches() {
    let Ok(netns) = port::Netns::create() else {
        println!("skipped: network namespaces are not permitted here");
        return;
    };
    let scratch = Scratch::new();
    let mut command = scratch.command();
    command.args(["run", "--lib", &any_library(), "--", "cat", "/proc/net/route"]);
    netns.start_inside(&mut command).unwrap();
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", error(&output));
    assert_eq!(
        error(&output),
        "opentoe: host 'toe' is 10.77.0.2, reachable from the kernel through toe0 (10.77.0.1/24)\n"
    );
    // 10.77.0.0 as the kernel writes it.
    assert!(String::from_utf8_lossy(&output.stdout).contains("toe0\t00004D0A"));
    scratch.becomes_empty();
    let gone = netns.run(|| port::Interface::named("toe0").is_err()).unwrap();
    assert!(gone, "the TAP device is still there");
}

/// Before anything is searched, and before minutes of measuring.
#[test]
fn impossible_measurements_are_refused_by_option() {
    let scratch = Scratch::new();
    let words = [("--conns", "0"), ("--engine", "fast"), ("--stack", "bsd"), ("--port", "serial"), ("--duration", "0")];
    for (option, word) in words {
        let output = scratch.toe(&["bench", "echo", option, word]);
        assert_eq!(output.status.code(), Some(2), "{}", error(&output));
        assert!(error(&output).contains(&format!("invalid value '{word}' for '{option}")), "{}", error(&output));
    }
}

#[test]
fn the_doctor_reports_for_people_and_machines() {
    let scratch = Scratch::new();
    let library = any_library();
    let output = scratch.toe(&["doctor", "--lib", &library]);
    assert_eq!(output.status.code(), Some(0), "{}", error(&output));
    assert!(!String::from_utf8_lossy(&output.stdout).contains('\x1b'), "colour outside a terminal");
    let output = scratch.toe(&["doctor", "--json", "--lib", "/nonexistent.so"]);
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let library = report.as_array().unwrap().iter().find(|line| line["what"] == "libtoe.so").unwrap();
    assert_eq!(library["state"], "missing");
    assert!(Path::new("/proc/self/exe").exists());
}

/// A program is accepted with its resources, refused with file, line and column, or not readable: 0, 1, 2.
#[test]
fn p4_programs_are_checked() {
    let scratch = Scratch::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let program = |path: &str| root.join(path).to_string_lossy().into_owned();
    let good = scratch.toe(&["p4", "check", &program("p4/laminar.p4"), "-D", "FLOWS=1024"]);
    let text = String::from_utf8_lossy(&good.stdout).into_owned();
    assert_eq!(good.status.code(), Some(0), "{}", error(&good));
    for row in ["Stages", "SRAM", "Map RAM", "TCAM", "VLIW Instruction", "Stateful ALU", "Match Crossbar", "Gateway"] {
        assert!(text.contains(row), "{row}: {text}");
    }
    let bad = scratch.toe(&["p4", "check", &program("crates/rmt/tests/p4/refuse/three_operands.p4")]);
    assert_eq!(bad.status.code(), Some(1));
    assert!(error(&bad).contains("three_operands.p4:7:"), "{}", error(&bad));
    let json = scratch.toe(&["p4", "check", "--json", &program("crates/rmt/tests/p4/refuse/three_operands.p4")]);
    assert_eq!(json.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&json.stdout).contains("\"line\":7"), "{json:?}");
    let missing = scratch.toe(&["p4", "check", "/nonexistent.p4"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(error(&missing).contains("cannot read"), "{}", error(&missing));
    assert_eq!(scratch.toe(&["p4", "check"]).status.code(), Some(2));
}

/// A half's files are written, in a folder that is made; what RTL cannot be is refused with its place.
#[test]
fn p4_programs_become_rtl() {
    let scratch = Scratch::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let program = |path: &str| root.join(path).to_string_lossy().into_owned();
    let out = scratch.0.join("made/here");
    let folder = out.to_string_lossy().into_owned();
    let good =
        scratch.toe(&["p4", "rtl", &program("p4/laminar.p4"), "-o", &folder, "--half", "egress", "-D", "FLOWS=64"]);
    assert_eq!(good.status.code(), Some(0), "{}", error(&good));
    let list = std::fs::read_to_string(out.join("egress.f")).unwrap();
    assert!(list.lines().all(|file| out.join(file).is_file()) && list.ends_with("egress.sv\n"), "{list}");
    let map: serde_json::Value =
        serde_json::from_slice(&std::fs::read(out.join("egress.json")).unwrap()).expect("the map is JSON");
    let targets = map["targets"].as_array().unwrap();
    assert!(targets.iter().any(|t| t["name"] == "reassembly.rx_window" && t["entries"] == 64), "{map}");
    assert!(!out.join("ingress.sv").exists(), "only one half was asked for");
    let refused = program("crates/rmt/tests/p4/accept/parser_checksum.p4");
    let bad = scratch.toe(&["p4", "rtl", &refused, "-o", &folder]);
    assert_eq!(bad.status.code(), Some(1));
    assert!(error(&bad).contains("parser_checksum.p4:") && error(&bad).contains("docs/RTL.md"), "{}", error(&bad));
}
