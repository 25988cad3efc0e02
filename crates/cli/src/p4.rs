//! `toe p4 check`: whether a P4 program can be a pipeline, and what it uses (thesis table 5.2).
use crate::arguments::{P4Arguments, P4CheckArguments, P4Verb};
use rmt::{Diagnostic, Loaded, PHV_BITS, STAGES};
use serde_json::{Value, json};
use std::process::exit;

/// Exit status where the program was not looked at.
const NOT_READ: i32 = 2;

pub fn p4(arguments: &P4Arguments) -> Result<(), String> {
    match &arguments.verb {
        P4Verb::Check(arguments) => check(arguments),
    }
}

fn check(arguments: &P4CheckArguments) -> Result<(), String> {
    let file = &arguments.file;
    if let Err(error) = std::fs::File::open(file) {
        eprintln!("toe: cannot read {}: {error}", file.display());
        exit(NOT_READ);
    }
    match rmt::load(file, &arguments.define) {
        Ok(loaded) => {
            let native = rmt::native::Native::new(loaded.program.clone()).err().map(|refusal| refusal.to_string());
            if arguments.json {
                println!("{}", accepted(&loaded, native.as_deref()));
            } else {
                loaded.report.warnings.iter().for_each(|warning| eprintln!("{warning}"));
                print!("{}", loaded.report);
                println!("\n{}", native.unwrap_or_else(|| "it is compiled to native code here".into()));
            }
            Ok(())
        }
        Err(list) => {
            if arguments.json {
                println!("{}", json!({ "accepted": false, "errors": findings(&list) }));
            } else {
                list.iter().for_each(|error| eprintln!("{error}"));
            }
            let count = if list.len() == 1 { "one reason".into() } else { format!("{} reasons", list.len()) };
            Err(format!("{} is refused, for {count}", file.display()))
        }
    }
}

fn accepted(loaded: &Loaded, native: Option<&str>) -> Value {
    let report = &loaded.report;
    let shares: serde_json::Map<String, Value> =
        report.shares().into_iter().map(|(name, share)| (name.to_string(), share.into())).collect();
    json!({
        "accepted": true,
        "stages": report.stages.len(),
        "stages_available": STAGES,
        "latency_ns_estimate": report.latency_ns,
        "phv_bits": report.phv_bits,
        "phv_bits_available": PHV_BITS,
        "percent": shares,
        "warnings": findings(&report.warnings),
        "native_code": native.is_none(),
        "native_code_obstacle": native,
    })
}

fn findings(list: &[Diagnostic]) -> Vec<Value> {
    let one = |d: &Diagnostic| json!({ "file": d.file, "line": d.line, "column": d.col, "message": d.message, "help": d.help });
    list.iter().map(one).collect()
}
