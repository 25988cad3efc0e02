//! `opentoe offload`: libraries of functions in a running offload engine.
use crate::arguments::{OffloadArguments, OffloadVerb};
use crate::table::{Table, print_json, print_line};
use crate::units;
use ::offload::client;
use ::offload::protocol::{Library, Opcode, View};
use serde::Serialize;

/// Loads, lists, unloads.
pub(crate) fn offload(arguments: &OffloadArguments) -> Result<(), String> {
    let socket = arguments.socket.clone().unwrap_or_else(client::default_socket);
    match &arguments.verb {
        OffloadVerb::Load { file, name } => {
            let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
            let name = name.clone().or(stem).ok_or_else(|| format!("{} is no file", file.display()))?;
            client::load(&socket, &name, file)?;
            let view = client::ls(&socket)?;
            match view.libraries.into_iter().find(|library| library.name == name) {
                Some(library) if arguments.json => json(&library),
                Some(library) => print_line(&format!("library {name} is loaded: opcodes {}", opcodes(&library))),
                None => return Err(format!("library {name} is gone again")),
            }
        }
        OffloadVerb::Unload { name } => {
            client::unload(&socket, name)?;
            if !arguments.json {
                print_line(&format!("library {name} is unloaded"));
            }
        }
        OffloadVerb::Ls => {
            let view = client::ls(&socket)?;
            if arguments.json { json(&view) } else { show(&view) }
        }
    }
    Ok(())
}

fn json(value: &impl Serialize) {
    print_json(&serde_json::json!(value));
}

fn opcodes(library: &Library) -> String {
    let word = |of: &Opcode| match of.port {
        0 => format!("{:#x}", of.opcode),
        port => format!("{:#x} of port {port}", of.opcode),
    };
    library.opcodes.iter().map(word).collect::<Vec<_>>().join(", ")
}

fn show(view: &View) {
    if view.libraries.is_empty() {
        print_line("No library is loaded: opentoe offload load FILE");
    } else {
        let mut table = Table::new(&["library", "opcodes", "calls", "failed", "state"]);
        for library in &view.libraries {
            let state = library.stopped.as_ref().map_or("runs".into(), |why| format!("stopped: {why}"));
            let counts = [library.calls, library.failed].map(units::count);
            table.row([library.name.clone(), opcodes(library)].into_iter().chain(counts).chain([state]));
        }
        table.print();
    }
    if !view.hosts.is_empty() {
        let mut table = Table::new(&["port", "pid", "DMA regions", "bytes", "connections"]);
        for host in &view.hosts {
            let counts = [host.regions as u64, host.bytes, host.connections as u64].map(|count| count.to_string());
            table.row([host.port.to_string(), host.pid.to_string()].into_iter().chain(counts));
        }
        table.print();
    }
    if view.restarts > 0 {
        let why = view.last_end.as_deref().unwrap_or_default();
        print_line(&format!(
            "the worker was started again {}; the last one: {why}",
            units::several(view.restarts, "time")
        ));
    }
}
