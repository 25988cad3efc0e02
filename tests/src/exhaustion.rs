//! Faults: what the machine takes away from a running daemon.
use crate::cases::Bench;
use crate::lab::DEVICE;
use crate::report::Outcome;
use std::fs;
use std::time::Duration;

/// The device of a host is deleted: the daemon answers on, and does not turn for ever.
pub(crate) fn port_gone(bench: &Bench) -> Outcome {
    let daemon = bench.lab.daemon.as_ref().ok_or("there is no daemon")?;
    let _echo = bench.python_server("asyncio_echo.py", &["serve", &bench.port()])?;
    bench.python_client("asyncio_echo.py", &["call", &bench.address(), &bench.port(), "2", "3"])?;
    bench.lab.near.ip(&["link", "delete", DEVICE])?;
    bench.session.pause(Duration::from_millis(500))?;
    let before = ticks(daemon.id())?;
    bench.session.pause(Duration::from_secs(1))?;
    let used = ticks(daemon.id())? - before;
    daemon.ask("ls")?;
    match used {
        0..50 => Ok(format!("the daemon answers on, {used} ticks of 10 ms in a second")),
        _ => Err(format!("without its device the daemon used {used} ticks of 10 ms in a second")),
    }
}

/// Processor time of a process, in ticks of 10 ms.
fn ticks(id: u32) -> Result<u64, String> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).map_err(|error| error.to_string())?;
    let words = stat.rsplit(") ").next().unwrap_or_default().split(' ').skip(11).take(2);
    Ok(words.filter_map(|word| word.parse::<u64>().ok()).sum())
}
