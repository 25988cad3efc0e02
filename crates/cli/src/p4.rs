//! `opentoe p4`: whether a P4 program can be a pipeline and what it uses (thesis table 5.2); another one for a running
//! daemon.
use crate::arguments::{
    P4Arguments, P4CheckArguments, P4GetArguments, P4HostArguments, P4LoadArguments, P4RtlArguments, P4SetArguments,
    P4Verb,
};
use crate::locate;
use crate::ls::list;
use crate::table::{Table, cell, print_json, print_line};
use daemon::client;
use daemon::protocol::{ProgramFiles, Question, RegisterWish};
use rmt::ir::Gress;
use rmt::rtl::{Design, Timing};
use rmt::{Diagnostic, Loaded, PHV_BITS, STAGES};
use serde_json::{Value, json};
use std::path::Path;
use std::process::exit;

/// Exit status where the program was not read.
const NOT_READ: i32 = 2;

pub(crate) fn p4(arguments: &P4Arguments) -> Result<(), String> {
    match &arguments.verb {
        P4Verb::Check(arguments) => check(arguments),
        P4Verb::Rtl(arguments) => rtl(arguments),
        P4Verb::Load(arguments) => load(arguments),
        P4Verb::Registers(on) => {
            let answer = ask(on, RegisterWish::List)?;
            show(&answer, on.json, registers);
            Ok(())
        }
        P4Verb::Get(P4GetArguments { register, index, on }) => {
            let answer = ask(on, RegisterWish::Get { name: register.clone(), index: *index })?;
            show(&answer, on.json, entries);
            Ok(())
        }
        P4Verb::Set(P4SetArguments { register, index, words, host, daemon }) => {
            let wish = RegisterWish::Set { name: register.clone(), index: *index, words: words.clone() };
            let socket = locate::daemon(daemon.socket.as_deref())?;
            client::ask(&socket, &Question::Registers { host: host.clone(), wish }).map(drop)
        }
    }
}

fn ask(on: &P4HostArguments, wish: RegisterWish) -> Result<Value, String> {
    let socket = locate::daemon(on.daemon.socket.as_deref())?;
    client::ask(&socket, &Question::Registers { host: on.host.clone(), wish })
}

fn show(answer: &Value, as_json: bool, explain: fn(&Value)) {
    if as_json { print_json(answer) } else { explain(answer) }
}

fn registers(answer: &Value) {
    let mut table = Table::new(&["register", "entries", "words"]);
    for register in list(answer, "registers") {
        let words = list(register, "words").iter().map(|word| match cell(&word[0]).as_str() {
            "" => format!("{} bits", word[1]),
            name => format!("{name} {} bits", word[1]),
        });
        let words = words.collect::<Vec<_>>().join(", ");
        table.row([cell(&register["name"]), cell(&register["entries"]), words]);
    }
    table.print();
}

fn entries(answer: &Value) {
    let names = list(&answer["register"], "words").iter().map(|word| match cell(&word[0]) {
        name if name.is_empty() => "value".into(),
        name => name,
    });
    let heading: Vec<String> = [String::from("index")].into_iter().chain(names).collect();
    let heading: Vec<&str> = heading.iter().map(String::as_str).collect();
    let mut table = Table::new(&heading);
    for entry in answer["entries"].as_array().into_iter().flatten() {
        let words = entry[1].as_array().into_iter().flatten();
        table.row([&entry[0]].into_iter().chain(words).map(cell));
    }
    if table.is_empty() {
        print_line("All entries are zero.");
    } else {
        table.print();
    }
}

/// Sends the program, with all that its folder holds of P4; the daemon checks and compiles it.
fn load(arguments: &P4LoadArguments) -> Result<(), String> {
    let file = &arguments.file;
    let with_context = |path: &Path, e: std::io::Error| format!("cannot read {}: {e}", path.display());
    let main = file.file_name().and_then(|name| name.to_str()).ok_or(format!("{} is no file", file.display()))?;
    let folder = file.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let mut files = vec![(main.to_string(), std::fs::read_to_string(file).map_err(|e| with_context(file, e))?)];
    for entry in std::fs::read_dir(folder).map_err(|e| with_context(folder, e))? {
        let path = entry.map_err(|e| with_context(folder, e))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.ends_with(".p4") && name != main {
            files.push((name.to_string(), std::fs::read_to_string(&path).map_err(|e| with_context(&path, e))?));
        }
    }
    let program = ProgramFiles { main: main.to_string(), files, defines: arguments.define.clone() };
    let body = serde_json::to_vec(&program).map_err(|e| e.to_string())?;
    let question = Question::Program { host: arguments.host.clone(), bytes: body.len() as u64 };
    let socket = locate::daemon(arguments.daemon.socket.as_deref())?;
    let answer = client::send(&socket, &question, &body)
        .map_err(|reason| format!("{} does not run, what ran before goes on:\n{reason}", file.display()))?;
    print_line(&format!("{} runs on host {}", file.display(), answer["host"].as_str().unwrap_or_default()));
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
            loaded.reads(&arguments.define)?;
            let native = rmt::native::Native::new(loaded.program.clone()).err().map(|refusal| refusal.to_string());
            if arguments.json {
                print_line(&accepted(&loaded, native.as_deref()).to_string());
            } else {
                loaded.report.warnings.iter().for_each(|warning| eprintln!("{warning}"));
                console::print(&loaded.report.to_string());
                print_line(&format!("\n{}", native.unwrap_or_else(|| "it is compiled to native code here".into())));
            }
            Ok(())
        }
        Err(list) => {
            if arguments.json {
                print_line(&json!({ "accepted": false, "errors": findings(&list) }).to_string());
                Err(refusal(file, &list))
            } else {
                Err(refused(file, &list))
            }
        }
    }
}

/// Prints what is wrong.
fn refused(file: &Path, list: &[Diagnostic]) -> String {
    list.iter().for_each(|error| eprintln!("{error}"));
    refusal(file, list)
}

fn refusal(file: &Path, list: &[Diagnostic]) -> String {
    let count = if list.len() == 1 { "one reason".into() } else { format!("{} reasons", list.len()) };
    format!("{} is refused, for {count}", file.display())
}

/// Each half's files, the order in which they are read, and the map of its control bus.
fn rtl(arguments: &P4RtlArguments) -> Result<(), String> {
    let file = &arguments.file;
    if let Err(error) = std::fs::File::open(file) {
        eprintln!("opentoe: cannot read {}: {error}", file.display());
        exit(NOT_READ);
    }
    let loaded = rmt::load(file, &arguments.define).map_err(|list| refused(file, &list))?;
    loaded.reads(&arguments.define)?;
    let wanted = |half: &Gress| arguments.half.as_ref().is_none_or(|name| *name == half.name());
    let timing = if arguments.merged { Timing::Merged } else { Timing::Split };
    let mut designs = Vec::new();
    for half in [Gress::Ingress, Gress::Egress].into_iter().filter(wanted) {
        designs.push(rmt::rtl::generate(&loaded, half, timing).map_err(|list| refused(file, &list))?);
    }
    if let Some(signal) = &arguments.explain {
        return explain(&loaded, &designs, signal);
    }
    for (design, out) in designs.iter().zip(arguments.out.iter().cycle()) {
        design.write(out)?;
        let (half, files, clocks) = (design.map.gress.name(), design.files.len(), design.map.latency);
        print_line(&format!("{half}: {files} files in {}, {clocks} clocks", out.display()));
    }
    if let (Ok(halves), Some(out)) = (<[Design; 2]>::try_from(designs), &arguments.out) {
        let around = rmt::rtl::Around::new(&halves);
        around.write(out)?;
        print_line(&format!("top: both, {} files in {}, with top.h and top.json", around.files.len(), out.display()));
    }
    Ok(())
}

/// Where a signal gets its value, half by half.
fn explain(loaded: &Loaded, designs: &[Design], signal: &str) -> Result<(), String> {
    let mut found = false;
    for design in designs {
        let Some(explained) = rmt::rtl::explain(loaded, design, signal) else { continue };
        found = true;
        let field = explained.field.map_or_else(String::new, |field| format!(", {field} of the program"));
        print_line(&format!("{signal} in {}{field}", design.map.gress.name()));
        if explained.set.is_empty() {
            print_line("  only passes through");
        }
        for set in &explained.set {
            let places: Vec<&str> = [&set.program, &set.action].into_iter().flatten().map(String::as_str).collect();
            print_line(&format!("  {:30} {}", set.at, places.join(", ")));
            print_line(&format!("    {}", set.text));
        }
    }
    let names = "names are those of the program, with _ for a dot";
    if found { Ok(()) } else { Err(format!("no half has a signal {signal}: {names}, as in hdr_seg_flow")) }
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
