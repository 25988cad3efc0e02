//! `opentoe why`: reasons, in sentences.
use crate::arguments::WhyArguments;
use crate::locate;
use crate::ls::{failures, list};
use crate::process;
use crate::table::{Table, cell, say, say_json, thousands};
use crate::volumes;
use daemon::client;
use daemon::protocol::Question;
use serde_json::Value;
use std::path::Path;

/// Explains drops, a descriptor, or a connection.
pub(crate) fn why(arguments: &WhyArguments) -> Result<(), String> {
    let socket = locate::daemon(arguments.daemon.socket.as_deref())?;
    let (answer, explain): (Value, fn(&Value)) = match (arguments.pid, arguments.fd, arguments.flow) {
        (Some(pid), Some(fd), _) => (client::ask(&socket, &Question::Descriptor { pid, fd })?, descriptor),
        (Some(pid), None, _) => return process::why(&socket, pid, arguments.json),
        (_, _, Some(flow)) => (client::ask(&socket, &Question::Stats { host: None, flow: Some(flow) })?, flows),
        _ => (client::ask(&socket, &Question::Drops)?, drops),
    };
    if arguments.json {
        say_json(&answer);
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
    let troubles = volumes::why(answer);
    match table.is_empty() {
        false => table.print(),
        true if troubles + failures == 0 => say("Nothing was dropped."),
        true => {}
    }
}

fn descriptor(answer: &Value) {
    let label = &answer["descriptor"];
    // Not the file: redis-server, for one, is a link to another program's name.
    let program =
        std::fs::read_to_string(Path::new("/proc").join(cell(&label["pid"])).join("comm")).unwrap_or_default();
    say(&format!(
        "descriptor {} of {} ({}) is {}",
        label["fd"],
        label["pid"],
        program.trim_end(),
        cell(&label["reason"])
    ));
    if let flow @ Value::Object(_) = &answer["flow"] {
        say(&format!("it is flow {} of host {}:", flow["flow"], cell(&answer["host"])));
        one_flow(flow);
    } else if let Some(binding) = label["binding"].as_u64() {
        say(&format!("it holds local address number {binding} of host {}", cell(&answer["host"])));
    }
}

fn flows(answer: &Value) {
    for host in list(answer, "hosts") {
        let name = cell(&host["name"]);
        list(host, "flows").iter().for_each(|flow| {
            say(&format!("flow {} of host {name}:", flow["flow"]));
            one_flow(flow);
        });
    }
}

/// What a connection is doing and what limits it.
fn one_flow(flow: &Value) {
    say(&format!("{} to {}, {}", cell(&flow["local"]), cell(&flow["remote"]), cell(&flow["state"])));
    let figure = |name: &str| flow["figures"][name].as_u64().unwrap_or(0);
    let (unsent, outstanding) = (figure("unsent"), figure("outstanding"));
    let (window, cwnd) = (figure("snd_wnd"), flow["cwnd"].as_u64().unwrap_or(0));
    let limit = match (unsent, outstanding) {
        (0, 0) => "it has nothing to send: the application has written nothing that is not acknowledged".into(),
        (0, _) => format!("everything is sent; {outstanding} bytes wait for the peer's acknowledgement"),
        _ if window == 0 => {
            format!("{unsent} bytes wait because the peer's receive window is closed: its application does not read")
        }
        _ if outstanding >= window => {
            format!("{unsent} bytes wait because the peer's receive window ({window} bytes) is full")
        }
        _ if outstanding >= cwnd => format!("{unsent} bytes wait because the congestion window ({cwnd} bytes) is full"),
        _ if flow["rate"].as_u64().unwrap_or(0) > 0 => {
            format!("{unsent} bytes wait for their time: the rate is {} bytes/s", flow["rate"])
        }
        _ => format!("{unsent} bytes are about to be sent"),
    };
    say(&format!("  {limit}"));
    let (again, fast) = (figure("retransmitted_segments"), figure("fast_retransmits"));
    if again > 0 {
        say(&format!("  {again} segments were sent again, {fast} times after duplicate acknowledgements"));
    }
    if let Some(reason) = flow["last_drop"].as_str() {
        say(&format!("  {} segments or parts of them were dropped, the last one because of {reason}", figure("drops")));
    }
}
