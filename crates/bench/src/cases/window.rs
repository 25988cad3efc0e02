//! While clients measure: what the processes around them use.
use crate::lab::Lab;
use crate::process::Process;
use crate::report::Run;
use crate::sample::Sample;
use crate::tools::Tools;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long clients may take to connect, and longer than their duration.
const TIMEOUT: Duration = Duration::from_secs(60);

/// CPU seconds by process, in user and kernel mode.
pub(super) type CpuSeconds = BTreeMap<String, f64>;

/// The first line of JSON that a client prints (`apps/load.h`), nanoseconds of CLOCK_MONOTONIC.
#[derive(Debug, Deserialize)]
struct Announced {
    begin_ns: u64,
    end_ns: u64,
}

/// Lets a program run to its end; returns what it printed, and what was used, by `used`, while it measured.
pub(super) fn watch(
    tools: &Tools,
    programs: Vec<Process>,
    used: impl Fn() -> CpuSeconds,
) -> Result<(Vec<String>, CpuSeconds), String> {
    let (mut programs, mut begin, mut end) = (programs, 0, 0);
    for program in &mut programs {
        let announced = announced(tools, program)?;
        (begin, end) = (begin.max(announced.begin_ns), end.max(announced.end_ns));
    }
    tools.stop.sleep_until(Duration::from_nanos(begin))?;
    let before = used();
    tools.stop.sleep_until(Duration::from_nanos(end))?;
    let after = used();
    let finished = programs.into_iter().map(|program| program.finish(&tools.stop, TIMEOUT));
    let printed = finished.collect::<Result<Vec<_>, _>>()?;
    Ok((printed, since(&before, after)))
}

/// What was used between two readings.
pub(super) fn since(before: &CpuSeconds, after: CpuSeconds) -> CpuSeconds {
    let earlier = |name: &String| before.get(name).copied().unwrap_or(0.0);
    after.into_iter().map(|(name, seconds)| (name.clone(), seconds - earlier(&name))).collect()
}

/// What a server and the stack used so far.
pub(super) fn server_and_stack(servers: &[Process], lab: &dyn Lab) -> CpuSeconds {
    let stack = lab.stack_process().map(|process| ("toed".into(), process.cpu_s()));
    let server = ("server".into(), servers.iter().map(Process::cpu_s).sum());
    stack.into_iter().chain([server]).collect()
}

/// Requests and replies of a measurement, into its place.
pub(super) fn note(run: &mut Run, sample: &Sample, cpu_s: CpuSeconds) {
    run.ops_per_s = Some(sample.rate());
    run.latency_us = Some(sample.latency());
    run.errors = sample.errors;
    run.cpu_s.extend(cpu_s);
    run.cpu_s.insert("clients".into(), sample.cpu_s);
}

fn announced(tools: &Tools, program: &mut Process) -> Result<Announced, String> {
    let mut line = String::new();
    tools.stop.until("its connections", TIMEOUT, || {
        let output = program.output();
        // Other words may come first, and the last line may be a part of one.
        let whole = output.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let Some(found) = whole.lines().find(|line| line.starts_with('{')) else {
            program.alive()?;
            return Ok(false);
        };
        line = found.into();
        Ok(true)
    })?;
    serde_json::from_str(&line).map_err(|e| format!("the client printed {line}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_is_a_difference() {
        let at = |server: f64, toed: f64| CpuSeconds::from([("server".into(), server), ("toed".into(), toed)]);
        assert_eq!(since(&at(1.0, 2.0), at(1.5, 4.0)), at(0.5, 2.0));
        assert_eq!(since(&CpuSeconds::new(), at(1.5, 4.0)), at(1.5, 4.0));
    }
}
