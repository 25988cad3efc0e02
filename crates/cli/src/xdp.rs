//! `opentoe xdp`: modules of operators in a running daemon.
use crate::arguments::{MapVerb, XdpArguments, XdpVerb};
use crate::locate;
use crate::ls::list;
use crate::table::{Table, cell, print_json, print_line, thousands};
use crate::units;
use daemon::client;
use daemon::protocol::{MAX_OBJECT, NATIVE, Question, Xdp};
use serde_json::Value;
use std::path::Path;

/// Loads, lists, unloads; shows maps and changes them.
pub(crate) fn xdp(arguments: &XdpArguments) -> Result<(), String> {
    let socket = locate::daemon(arguments.daemon.socket.as_deref())?;
    let host = arguments.host.clone();
    let ask = |question| client::ask(&socket, &Question::Xdp(question));
    let (answer, show): (Value, fn(&Value)) = match &arguments.verb {
        XdpVerb::Load { file, name, program, position } => {
            let (native, object) = read(file)?;
            let bytes = object.len() as u64;
            let (name, program) = (name.clone(), program.clone());
            let question = Xdp::Load { host, name, position: *position, native, program, bytes };
            (client::send(&socket, &Question::Xdp(question), &object)?, loaded)
        }
        XdpVerb::Ls => (ask(Xdp::Ls { host })?, modules),
        XdpVerb::Unload { module } => (ask(Xdp::Unload { host, module: module.clone() })?, unloaded),
        XdpVerb::Map { verb } => {
            let (question, show) = map(verb, host);
            (ask(question)?, show)
        }
    };
    if arguments.json {
        print_json(&answer);
    } else {
        show(&answer);
    }
    Ok(())
}

/// The module's bytes, or the name of one that is built in.
fn read(file: &Path) -> Result<(Option<String>, Vec<u8>), String> {
    if let Some(native) = file.to_str().and_then(|name| name.strip_prefix(NATIVE)) {
        return Ok((Some(native.into()), Vec::new()));
    }
    let failed = |e: std::io::Error| format!("cannot read {}: {e}", file.display());
    let about = std::fs::metadata(file).map_err(failed)?;
    if !about.is_file() {
        return Err(format!("{} is no file", file.display()));
    }
    if about.len() > MAX_OBJECT {
        return Err(format!("{} is too large for a module: {} MiB are the limit", file.display(), MAX_OBJECT >> 20));
    }
    Ok((None, std::fs::read(file).map_err(failed)?))
}

fn map(verb: &MapVerb, host: Option<String>) -> (Xdp, fn(&Value)) {
    match verb.clone() {
        MapVerb::Ls { module } => (Xdp::Maps { host, module }, maps),
        MapVerb::Dump { module, map } => (Xdp::Dump { host, module, map }, entries),
        MapVerb::Get { module, map, key } => (Xdp::Get { host, module, map, key }, value),
        MapVerb::Set { module, map, key, value } => (Xdp::Set { host, module, map, key, value }, nothing),
        MapVerb::Delete { module, map, key } => (Xdp::Delete { host, module, map, key }, nothing),
    }
}

fn loaded(module: &Value) {
    let [name, host, stage] = ["name", "host", "stage"].map(|key| cell(&module[key]));
    print_line(&format!("module {name} runs on host {host}, {stage} stage, position {}", module["position"]));
    kernel(&module["kernel"], "it").iter().for_each(|sentence| print_line(sentence));
}

/// The judgement of the kernel's verifier, in a sentence; none of what is no eBPF.
fn kernel(judgement: &Value, called: &str) -> Option<String> {
    let reason = cell(&judgement["reason"]);
    Some(match judgement["verdict"].as_str()? {
        "accepted" => format!("the kernel's verifier accepts {called} too"),
        "refused" => format!("the kernel's verifier would refuse {called}: {reason}"),
        _ => format!("the kernel's verifier was not asked about {called}: {reason}"),
    })
}

/// A sentence for each judgement, with the names of all modules that have it.
fn verdicts_of_kernel(modules: &[&Value]) -> Vec<String> {
    let mut groups: Vec<(&Value, Vec<String>)> = Vec::new();
    for module in modules {
        let (judgement, name) = (&module["kernel"], cell(&module["name"]));
        match groups.iter_mut().find(|(known, _)| *known == judgement) {
            // Several hosts can have a module of one name.
            Some((_, names)) if names.contains(&name) => {}
            Some((_, names)) => names.push(name),
            None => groups.push((judgement, vec![name])),
        }
    }
    groups.iter().filter_map(|(judgement, names)| kernel(judgement, &names.join(", "))).collect()
}

fn unloaded(module: &Value) {
    let runs = module["runs"].as_u64().unwrap_or(0);
    let frames = if runs == 1 { "frame" } else { "frames" };
    let [name, host] = [&module["name"], &module["host"]].map(cell);
    print_line(&format!("module {name} is gone from host {host} after {} {frames}", thousands(runs)));
}

/// As modules' figures name them.
const VERDICTS: [&str; 5] = ["pass", "drop", "transmit", "redirect", "aborted"];

fn modules(answer: &Value) {
    let mut modules: Vec<&Value> = list(answer, "modules").iter().collect();
    // Each stage's in the order in which they run.
    let place = |module: &Value| {
        let [host, stage] = ["host", "stage"].map(|key| cell(&module[key]));
        (host, std::cmp::Reverse(stage), module["position"].as_u64())
    };
    modules.sort_by_key(|module| place(module));
    if modules.is_empty() {
        return print_line("No module is loaded: opentoe xdp load FILE");
    }
    // Verdicts that nobody gave would only make the table wide.
    let count = |module: &Value, verdict: &str| module["verdicts"][verdict].as_u64().unwrap_or(0);
    let given = |verdict: &&str| *verdict == "pass" || modules.iter().any(|module| count(module, verdict) > 0);
    let verdicts: Vec<&str> = VERDICTS.into_iter().filter(given).collect();
    let mut table = Table::new(&[&["host", "stage", "pos", "module", "kind", "frames", "ns"], &verdicts[..]].concat());
    for module in &modules {
        let row = ["host", "stage", "position", "name", "kind"].map(|key| cell(&module[key]));
        // To the last frame they are in the JSON; a terminal has 80 columns.
        let figures = [units::count(module["runs"].as_u64().unwrap_or(0)), cell(&module["ns_per_frame"])];
        let counts = verdicts.iter().map(|verdict| units::count(count(module, verdict)));
        table.row(row.into_iter().chain(figures).chain(counts));
    }
    table.print();
    for module in &modules {
        for (fault, count) in module["faults"].as_object().into_iter().flatten() {
            let times = units::several(count.as_u64().unwrap_or(0), "time");
            print_line(&format!("module {} failed {times}: {fault}", cell(&module["name"])));
        }
    }
    verdicts_of_kernel(&modules).iter().for_each(|sentence| print_line(sentence));
}

fn maps(answer: &Value) {
    let mut table = Table::new(&["map", "type", "key bytes", "value bytes", "entries", "at most"]);
    for map in answer.as_array().into_iter().flatten() {
        table.row(["name", "type", "key_size", "value_size", "entries", "max_entries"].map(|key| cell(&map[key])));
    }
    table.print();
}

fn entries(answer: &Value) {
    for entry in answer.as_array().into_iter().flatten() {
        print_line(&format!("{}  {}", cell(&entry["key"]), cell(&entry["value"])));
    }
}

fn value(answer: &Value) {
    print_line(&cell(answer));
}

fn nothing(_: &Value) {}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_judgement_of_several_modules_is_printed_once() {
        let module = |name: &str, kernel: Value| json!({ "name": name, "kernel": kernel });
        let unasked = json!({ "verdict": "unknown", "reason": "the daemon has no capability for it" });
        let all = [
            module("firewall", unasked.clone()),
            module("native:count", Value::Null),
            module("null", json!({ "verdict": "accepted", "reason": null })),
            module("vlan_push", unasked.clone()),
            module("firewall", unasked),
        ];
        let printed = verdicts_of_kernel(&all.iter().collect::<Vec<_>>());
        let expected = [
            "the kernel's verifier was not asked about firewall, vlan_push: the daemon has no capability for it",
            "the kernel's verifier accepts null too",
        ];
        assert_eq!(printed, expected);
    }
}
