//! Programs that send with `MSG_ZEROCOPY` (apps/zero_copy_send.c), and write to their memory once they are notified.
//! Their peers check every byte.
use super::{Bench, app};
use crate::process::Process;
use crate::report::Outcome;
use std::process::Command;

/// How the program sends (apps/zero_copy_send.c).
pub(crate) const WAYS: [&str; 5] = ["wait", "queue", "vector", "free", "fork"];
pub(crate) const STREAMS: u64 = 3;

/// A sender with a heap and a receiver of streams of so many bytes, whose connections are open.
pub(crate) fn transfer<'a>(bench: &Bench<'a>, way: &str, bytes: u64) -> Result<[Process<'a>; 2], String> {
    transfer_by(bench, bench.lab.with_heap_on_server(&app("zero_copy_send")), way, bytes)
}

/// The same with any sender.
fn transfer_by<'a>(bench: &Bench<'a>, sender: Command, way: &str, bytes: u64) -> Result<[Process<'a>; 2], String> {
    let numbers = [bytes, 1 << 20, STREAMS].map(|number| number.to_string());
    let (address, port) = (bench.address(), bench.port());
    let [bytes, buffer, streams] = [&numbers[0], &numbers[1], &numbers[2]].map(String::as_str);
    let mut words = ["send", &address, &port, way, bytes, buffer, streams];
    let sender = bench.server(sender, &words)?;
    words[0] = "receive";
    let mut receiver = bench.client_in_background(&app("zero_copy_send"), &words)?;
    bench.session.until("the transfer's begin", || {
        let begun = sender.stdout().contains("begun");
        if begun { Ok(true) } else { receiver.running().map(|()| false) }
    })?;
    Ok([sender, receiver])
}

/// The sender's report of its calls.
pub(crate) fn finish([mut sender, mut receiver]: [Process; 2]) -> Result<String, String> {
    // What the receiver complains about is why the sender fails.
    receiver.succeed()?;
    let printed = sender.succeed()?;
    Ok(printed.lines().last().unwrap_or_default().to_string())
}

/// Without a heap, OpenTOE copies all, and notifies the program all the same.
pub(super) fn copies(bench: &Bench) -> Outcome {
    let mut printed = Vec::new();
    for way in WAYS {
        let (bench, bytes) = (bench.on_another_port(), 8 << 20);
        let sender = bench.lab.on_server(&app("zero_copy_send"));
        let calls = finish(transfer_by(&bench, sender, way, bytes)?).map_err(|error| format!("{way}: {error}"))?;
        if bench.lab.daemon.is_some() && !calls.contains(" 0 by reference") {
            return Err(format!("{way}: calls went by reference: {calls}"));
        }
        printed.push(format!("{way} {calls}"));
    }
    Ok(format!("every byte as sent; {}", printed.join("; ")))
}
