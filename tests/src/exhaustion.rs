//! Faults: what the machine takes away from a running daemon.
use crate::cases::{Bench, app, number_after};
use crate::hostile::{Attachment, echoes, own_memory, requests_a_second};
use crate::lab::DEVICE;
use crate::report::Outcome;
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::fs;
use std::net::Ipv4Addr;
use std::time::Duration;

/// The device of a host is deleted in the middle of a transfer: the daemon answers on, and does not spin. The
/// next daemon makes the device again, and the transfer goes on.
pub(crate) fn port_gone(bench: &Bench) -> Outcome {
    let daemon = bench.lab.daemon.as_ref().ok_or("there is no daemon")?;
    let echo = bench.python_server("asyncio_echo.py", &["serve", &bench.port()])?;
    bench.python_client("asyncio_echo.py", &["call", &bench.address(), &bench.port(), "2", "3"])?;
    let place = bench.on_another_port();
    let (address, port) = (place.address(), place.port());
    let mut server = place.server(place.lab.on_server(&app("stream")), &["-l", "-p", &port, "-n", "1"])?;
    let much = ["-c", &address, "-p", &port, "-u", "1000000000", "-d", "1000000000"];
    let mut client = place.client_in_background(&app("stream"), &much)?;
    bench.session.until("the transfer", || Ok(daemon.established("server")? >= 1))?;
    bench.lab.near.ip(&["link", "delete", DEVICE])?;
    bench.session.pause(Duration::from_millis(500))?;
    let before = ticks(daemon.id())?;
    bench.session.pause(Duration::from_secs(1))?;
    let used = ticks(daemon.id())? - before;
    let reports = [["ls"], ["why"], ["doctor"]].map(|words| bench.session.run(daemon.toe(&words)));
    for report in reports {
        let report = report?;
        if !report.contains("was deleted") {
            return Err(format!("the device is not reported: {report}"));
        }
    }
    if used >= 50 {
        return Err(format!("without its device the daemon used {used} ticks of 10 ms in a second"));
    }
    let (mut new, words) = daemon.take_over(bench.lab)?;
    client.succeed()?;
    server.succeed()?;
    bench.python_client("asyncio_echo.py", &["call", &bench.address(), &bench.port(), "2", "3"])?;
    drop(echo);
    daemon.finish_successor(&mut new)?;
    Ok(format!("ls, why and doctor report it; {used} ticks of 10 ms in a second; {words}, and a transfer went on"))
}

/// The daemon has no descriptor left: attached programs are served on, new ones are refused in one sentence, and served
/// when there are descriptors again.
pub(crate) fn no_descriptors(bench: &Bench) -> Outcome {
    let daemon = bench.lab.daemon.as_ref().ok_or("there is no daemon")?;
    let _server = bench.server(bench.lab.on_server(&app("echo_server")), &["-p", &bench.port()])?;
    let mut bystanders = echoes(bench, "5")?;
    bench.session.until("the bystanders' connections", || Ok(daemon.established("server")? >= 8))?;
    // Room for some of what an application takes, then for none.
    let lowest = lowest_free(daemon.id())?;
    let before = limit_descriptors(daemon.id(), Some(lowest + 3))?;
    let some = refused(bench);
    limit_descriptors(daemon.id(), Some(lowest))?;
    let none = refused(bench);
    limit_descriptors(daemon.id(), before)?;
    let refusals = [some?, none?].join(" / ");
    let served = requests_a_second(&mut bystanders).map_err(|error| format!("bystanders noticed: {error}"))?;
    requests_a_second(&mut echoes(bench, "1")?).map_err(|error| format!("afterwards: {error}"))?;
    Ok(format!("bystanders had {served:.0} requests/s; newcomers read: {refusals}"))
}

/// More connections than the memory is for that is left, or was given back by an allocator that may take it again: of
/// one program, and how many programs open them.
const MOST_CONNECTIONS: (u32, usize) = (4000, 6);

/// The daemon gets no more memory: connections are refused with an error number, newcomers in one sentence, what is
/// connected is served on, and when there is memory again, so is everybody.
pub(crate) fn no_memory(bench: &Bench) -> Outcome {
    let daemon = bench.lab.daemon.as_ref().ok_or("there is no daemon")?;
    let _server = bench.server(bench.lab.on_server(&app("echo_server")), &["-p", &bench.port()])?;
    let greedy: Result<Vec<Attachment>, String> =
        (0..MOST_CONNECTIONS.1).map(|_| Attachment::new(daemon.socket(), "client")).collect();
    let mut greedy = greedy?;
    let mut bystanders = echoes(bench, "8")?;
    bench.session.until("the bystanders' connections", || Ok(daemon.established("server")? >= 8))?;
    let to = (bench.lab.server.address, bench.port);
    let slot = greedy[0].connect(to)?;
    let before = limit(daemon.id(), Resource::Data, Some(private_memory(daemon.id())?))?;
    let (opened, mut why) = until_refused(&mut greedy, to)?;
    let errno = format!("errno {}", Errno::NOMEM.raw_os_error());
    // Where the last memory goes between a request and its SYN, the listener drops the SYN, as a listener without
    // memory does, and that request waits. The next one is refused at once.
    if !why.ends_with(&errno) && daemon.drops_named(&["no_memory"]).is_ok() {
        let next = greedy[0].connect(to).err();
        why = next.ok_or("without memory, a connection was opened after one that was not answered")?;
    }
    if !why.ends_with(&errno) {
        return Err(format!("connection {opened} was refused, but: {why}"));
    }
    let refusal = refused(bench)?;
    greedy[0].write(slot, 0, b"served on");
    greedy[0].expect(slot, b"served on")?;
    limit(daemon.id(), Resource::Data, before)?;
    let served = requests_a_second(&mut bystanders).map_err(|error| format!("bystanders noticed: {error}"))?;
    greedy[0].connect(to).map_err(|error| format!("with memory again: {error}"))?;
    drop(greedy);
    requests_a_second(&mut echoes(bench, "1")?).map_err(|error| format!("afterwards: {error}"))?;
    let held = own_memory(daemon)?;
    Ok(format!(
        "{opened} connections, then {why}; bystanders had {served:.0} requests/s; the daemon has {held} KiB; others: {refusal}"
    ))
}

/// Opens connections until one is refused: how many there were, and why.
fn until_refused(greedy: &mut [Attachment], to: (Ipv4Addr, u16)) -> Result<(u32, String), String> {
    let mut opened = 0;
    for program in greedy.iter_mut().rev() {
        for _ in 0..MOST_CONNECTIONS.0 {
            if let Err(why) = program.connect(to) {
                return Ok((opened, why));
            }
            opened += 1;
        }
    }
    Err(format!("without memory, {opened} connections were opened"))
}

/// Private memory that a process may write, bytes.
fn private_memory(id: u32) -> Result<u64, String> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).map_err(|error| error.to_string())?;
    let kib = number_after(&status, "VmData:")?;
    Ok(kib as u64 * 1024)
}

/// Somebody new is not let in: the answer.
fn refused(bench: &Bench) -> Outcome {
    let mut command = bench.lab.on_server(&app("echo_server"));
    command.args(["-p", &bench.on_another_port().port()]);
    let mut newcomer = bench.session.spawn(command)?;
    let status = newcomer.wait()?;
    let printed = newcomer.stderr();
    match (status.code(), printed.trim().lines().count()) {
        (Some(1), 1) => Ok(printed.trim().into()),
        _ => Err(format!("a newcomer ended with {status} and printed: {printed}")),
    }
}

/// The number that the next descriptor of a process would have.
fn lowest_free(id: u32) -> Result<u64, String> {
    let open = fs::read_dir(format!("/proc/{id}/fd")).map_err(|error| error.to_string())?;
    let open: Vec<u64> = open.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    Ok((0..).find(|number| !open.contains(number)).unwrap_or(0))
}

/// Sets how many descriptors a process may have; returns how many it might before.
fn limit_descriptors(id: u32, most: Option<u64>) -> Result<Option<u64>, String> {
    limit(id, Resource::Nofile, most)
}

/// Sets how much of something a process may have; returns how much it might before.
fn limit(id: u32, what: Resource, most: Option<u64>) -> Result<Option<u64>, String> {
    let now = rustix::process::getrlimit(what);
    let limit = Rlimit { current: most, maximum: now.maximum };
    Ok(prlimit(Pid::from_raw(id as i32), what, limit).map_err(|error| error.to_string())?.current)
}

/// Processor time of a process, in ticks of 10 ms.
fn ticks(id: u32) -> Result<u64, String> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).map_err(|error| error.to_string())?;
    let words = stat.rsplit(") ").next().unwrap_or_default().split(' ').skip(11).take(2);
    Ok(words.filter_map(|word| word.parse::<u64>().ok()).sum())
}
