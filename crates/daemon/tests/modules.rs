//! Modules of operators, as the management socket of a real `toed` loads, shows and unloads them.
mod common;

use common::Toed;
use common::application::until;
use daemon::client::{ask, send};
use daemon::protocol::{MAX_OBJECT, Question, Xdp};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;

const CONFIGURATION: &str = "log = \"warn\"\n[[host]]\nname = \"a\"\naddress = \"10.0.0.1\"\n\
                             [[host.module]]\nfile = \"native:classifier\"\nposition = 7\n\
                             [[host]]\nname = \"b\"\naddress = \"10.0.0.2\"\n\
                             mapping = { threads = true, preprocess = 2, flow_groups = 2 }\n";

fn load(host: &str, native: &str, name: Option<&str>, position: Option<u32>) -> Question {
    let (host, native) = (Some(host.into()), Some(native.into()));
    Question::Xdp(Xdp::Load { host, name: name.map(Into::into), position, native, program: None, bytes: 0 })
}

fn unload(host: Option<&str>, module: &str) -> Question {
    Question::Xdp(Xdp::Unload { host: host.map(Into::into), module: module.into() })
}

/// Host, stage, name and position of all modules.
fn modules(toed: &Toed) -> Vec<String> {
    let answer = toed.ask(&Question::Xdp(Xdp::Ls { host: None }));
    let text = |module: &Value| ["host", "stage", "name", "position"].map(|key| module[key].to_string()).join(" ");
    answer["modules"].as_array().unwrap().iter().map(|module| text(module).replace('"', "")).collect()
}

#[test]
fn modules_come_go_and_keep_their_order() {
    let mut toed = Toed::start(CONFIGURATION);
    assert_eq!(modules(&toed), ["a ingress classifier 7"]);
    toed.ask(&load("a", "classifier", Some("last"), None));
    toed.ask(&load("a", "meter", None, Some(8)));
    toed.ask(&load("a", "classifier", Some("first"), Some(0)));
    toed.ask(&load("b", "meter", None, None));
    let all = ["a ingress first 0", "a ingress classifier 7", "a flow meter 8", "a ingress last 17", "b flow meter 10"];
    assert_eq!(modules(&toed), all);
    let gone = toed.ask(&unload(Some("a"), "meter"));
    assert_eq!((&gone["name"], &gone["runs"]), (&json!("meter"), &json!(0)));
    toed.ask(&unload(None, "meter"));
    assert_eq!(modules(&toed), [all[0], all[1], all[3]]);
    assert!(toed.end().success());
}

/// Of modules in the configuration, too, the kernel verifier's report is logged, whatever it is.
#[test]
fn the_kernels_verdict_on_a_configured_module_is_stored() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../xdp/null.c");
    let object = std::env::temp_dir().join(format!("toed-null-{}.o", std::process::id()));
    let include = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let flags = ["-O2", "-g", "-target", "bpf", &include, "-c"];
    let made = Command::new("clang").args(flags).arg(source).arg("-o").arg(&object).status();
    assert!(made.expect("clang is installed by tests/setup").success());
    let more = format!("[[host.module]]\nfile = \"{}\"\nname = \"nothing\"\n", object.display());
    let toed = Toed::start(&CONFIGURATION.replace("[[host]]\nname = \"b\"", &format!("{more}[[host]]\nname = \"b\"")));
    let _ = fs::remove_file(&object);
    let answer = toed.ask(&Question::Xdp(Xdp::Ls { host: None }));
    let verdict_of = |name: &str| {
        let modules = answer["modules"].as_array().unwrap();
        modules.iter().find(|module| module["name"] == name).unwrap()["kernel"].clone()
    };
    assert_eq!(verdict_of("classifier"), Value::Null, "it is built in");
    let (verdict, reason) = (verdict_of("nothing")["verdict"].clone(), verdict_of("nothing")["reason"].clone());
    match verdict.as_str().unwrap() {
        "accepted" => assert_eq!(reason, Value::Null),
        "not_asked" => assert!(!reason.as_str().unwrap().is_empty()),
        other => panic!("{other}: {reason}"),
    }
}

#[test]
fn a_refusal_is_one_sentence_and_changes_nothing() {
    let mut toed = Toed::start(CONFIGURATION);
    toed.ask(&load("b", "classifier", None, None));
    let before = modules(&toed);
    let refused = |question: &Question, part: &str| {
        let sentence = ask(&toed.socket(), question).unwrap_err();
        assert!(sentence.contains(part) && !sentence.contains('\n'), "{sentence}");
        assert_eq!(modules(&toed), before);
    };
    refused(&load("a", "classifier", None, None), "host a runs a module called `classifier` already");
    refused(&load("c", "meter", None, None), "no host `c`");
    refused(&load("a", "mirror", None, None), "no native module is called `mirror`");
    refused(&unload(None, "meter"), "no module is called `meter`");
    refused(&unload(None, "classifier"), "name one with --host");
    let map = |key: &str| {
        let (host, module, map) = (Some("a".into()), "classifier".into(), "flows".into());
        Question::Xdp(Xdp::Get { host, module, map, key: key.into() })
    };
    refused(&map("1"), "has no maps");
    let large = Question::Xdp(Xdp::Load {
        host: Some("a".into()),
        name: None,
        position: None,
        native: None,
        program: None,
        bytes: MAX_OBJECT + 1,
    });
    refused(&large, "too large");
    for number in 0..31 {
        toed.ask(&load("a", "classifier", Some(&format!("m{number}")), None));
    }
    let sentence = ask(&toed.socket(), &load("a", "classifier", Some("one more"), None)).unwrap_err();
    assert!(sentence.contains("which is the limit"), "{sentence}");
    assert!(toed.end().success());
}

/// What is no object of clang's for eBPF.
#[test]
fn bytes_that_are_no_module_are_refused() {
    let mut toed = Toed::start(CONFIGURATION);
    let before = modules(&toed);
    let own = fs::read(std::env::current_exe().unwrap()).unwrap();
    for bytes in [&b""[..], b"not an object", &own[..own.len().min(1 << 20)]] {
        let (host, bytes_len) = (Some("a".into()), bytes.len() as u64);
        let question = Question::Xdp(Xdp::Load {
            host,
            name: None,
            position: None,
            native: None,
            program: None,
            bytes: bytes_len,
        });
        let sentence = send(&toed.socket(), &question, bytes).unwrap_err();
        assert!(!sentence.is_empty() && !sentence.contains('\n'), "{sentence}");
        assert_eq!(modules(&toed), before);
    }
    assert!(toed.end().success());
}

#[test]
fn a_thousand_loads_leave_nothing_behind() {
    let mut toed = Toed::start(CONFIGURATION);
    let count = || {
        let list = |what: &str| fs::read_dir(format!("/proc/{}/{what}", toed.id())).unwrap().count();
        let maps = fs::read_to_string(format!("/proc/{}/maps", toed.id())).unwrap().lines().count();
        (list("fd"), maps)
    };
    let load_and_unload = || {
        for host in ["a", "b"] {
            toed.ask(&load(host, "meter", None, None));
            toed.ask(&unload(Some(host), "meter"));
        }
    };
    // The first ones make what later ones use again.
    (0..20).for_each(|_| load_and_unload());
    let before = count();
    (0..500).for_each(|_| load_and_unload());
    // A connection that asked is closed by a thread of its own, some time after the answer.
    let mut after = count();
    until("the end of what a thousand loads had", || {
        after = count();
        eprintln!("descriptors, mappings: {before:?}, then {after:?}");
        after.0 <= before.0 && after.1 <= before.1 + 16
    });
    assert!(toed.end().success());
}

#[test]
fn a_configuration_that_names_no_module_is_refused() {
    let configuration = CONFIGURATION.replace("native:classifier", "/nowhere/firewall.o");
    let (status, output) = common::refused(&configuration);
    assert!(!status.success() && output.contains("/nowhere/firewall.o"), "{output}");
}
