//! `opentoe p4`: whether a P4 program can be a pipeline and what it uses (thesis table 5.2); another one for a running
//! daemon.
use crate::arguments::{P4Arguments, P4CheckArguments, P4LoadArguments, P4Verb};
use crate::locate;
use daemon::client;
use daemon::protocol::{ProgramFiles, Question};
use rmt::{Diagnostic, Loaded, PHV_BITS, STAGES};
use serde_json::{Value, json};
use std::path::Path;
use std::process::exit;

/// Exit status where the program was not looked at.
const NOT_READ: i32 = 2;

pub fn p4(arguments: &P4Arguments) -> Result<(), String> {
    match &arguments.verb {
        P4Verb::Check(arguments) => check(arguments),
        P4Verb::Load(arguments) => load(arguments),
    }
}

/// Sends the program, with all that its folder holds of P4; the daemon checks and compiles it.
fn load(arguments: &P4LoadArguments) -> Result<(), String> {
    let file = &arguments.file;
    let said = |path: &Path, e: std::io::Error| format!("cannot read {}: {e}", path.display());
    let main = file.file_name().and_then(|name| name.to_str()).ok_or(format!("{} is no file", file.display()))?;
    let folder = file.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let mut files = vec![(main.to_string(), std::fs::read_to_string(file).map_err(|e| said(file, e))?)];
    for entry in std::fs::read_dir(folder).map_err(|e| said(folder, e))? {
        let path = entry.map_err(|e| said(folder, e))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.ends_with(".p4") && name != main {
            files.push((name.to_string(), std::fs::read_to_string(&path).map_err(|e| said(&path, e))?));
        }
    }
    let program = ProgramFiles { main: main.to_string(), files, defines: arguments.define.clone() };
    let body = serde_json::to_vec(&program).map_err(|e| e.to_string())?;
    let question = Question::Program { host: arguments.host.clone(), bytes: body.len() as u64 };
    let socket = locate::daemon(arguments.daemon.socket.as_deref())?;
    let answer = client::send(&socket, &question, &body)
        .map_err(|reason| format!("{} does not run, what ran before goes on:\n{reason}", file.display()))?;
    println!("{} runs on host {}", file.display(), answer["host"].as_str().unwrap_or_default());
    Ok(())
}

fn check(arguments: &P4CheckArguments) -> Result<(), String> {
    let file = &arguments.file;
    if let Err(error) = std::fs::File::open(file) {
        eprintln!("opentoe: cannot read {}: {error}", file.display());
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
