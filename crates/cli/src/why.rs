//! `opentoe why`: reasons, in sentences.
use crate::arguments::WhyArguments;
use crate::flow;
use crate::functions;
use crate::locate;
use crate::ls::{failures, list, only};
use crate::process;
use crate::table::{Table, cell, print_json, print_line, thousands};
use crate::volumes;
use daemon::client;
use daemon::protocol::Question;
use serde_json::Value;

/// Explains drops, a descriptor, or a connection.
pub(crate) fn why(arguments: &WhyArguments) -> Result<(), String> {
    let named = arguments.daemon.socket.as_deref();
    if let Some(pid) = arguments.pid {
        return process::why(named, pid, arguments.fd, arguments.json);
    }
    let (socket, host) = (locate::daemon(named)?, arguments.host.clone());
    let (answer, explain): (Value, fn(&Value)) = match arguments.flow {
        Some(flow) => (client::ask(&socket, &Question::Stats { host, flow: Some(flow) })?, flows),
        None => (only(client::ask(&socket, &Question::Drops)?, host.as_deref())?, drops),
    };
    if arguments.json {
        print_json(&answer);
    } else {
        explain(&answer);
    }
    Ok(())
}

fn drops(answer: &Value) {
    let failures = failures(answer);
    let mut table = Table::new(&["host", "drops", "reason", "meaning"]);
    for host in list(answer, "hosts") {
        for drop in list(host, "drops") {
            let count = thousands(drop["count"].as_u64().unwrap_or(0));
            table.row([cell(&host["name"]), count, cell(&drop["reason"]), cell(&drop["sentence"])]);
        }
    }
    let troubles = volumes::why(answer) + functions::why(answer);
    match table.is_empty() {
        false => table.print(),
        true if troubles + failures == 0 => print_line("Nothing was dropped."),
        true => {}
    }
}

fn flows(answer: &Value) {
    for host in list(answer, "hosts") {
        let name = cell(&host["name"]);
        list(host, "flows").iter().for_each(|flow| {
            print_line(&format!("flow {} of host {name}:", flow["flow"]));
            flow::explain(flow);
        });
    }
}
