//! Programs in Go. They make system calls by instructions of their own, which `opentoe run` sees of itself.
use super::{Bench, number_after};
use crate::report::Outcome;
use crate::suites::compiler;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Debian's scep, linked statically: an HTTP server and its client.
pub(super) fn scep(bench: &Bench) -> Outcome {
    let place = bench.session.dir().join(format!("scep-{}", bench.port));
    fs::create_dir_all(&place).map_err(|error| error.to_string())?;
    let path = |name: &str| place.join(name).display().to_string();
    let (depot, port) = (path("depot"), bench.port());
    let mut make = Command::new("scepserver");
    make.args(["ca", "-init", "-depot", &depot, "-keySize", "2048"]);
    bench.session.run(make)?;
    let server = ["-depot", &depot, "-port", &port, "-challenge", "secret"];
    let _server = bench.server(bench.lab.on_server("scepserver"), &server)?;
    let url = bench.url("scep");
    for number in 0..3 {
        let mut client = bench.lab.on_client("scepclient");
        client.args(["-server-url", &url, "-challenge", "secret", "-keySize", "2048"]);
        // What it asks for stays beside its key, and is used once more there.
        let own = path(&format!("client-{number}"));
        fs::create_dir_all(&own).map_err(|error| error.to_string())?;
        let (key, certificate) = (own.clone() + "/key", own + "/certificate");
        client.args(["-private-key", &key, "-certificate", &certificate, "-cn", &format!("client {number}")]);
        bench.session.run(client)?;
        let written = fs::read_to_string(&certificate).unwrap_or_default();
        if !written.contains("BEGIN CERTIFICATE") {
            return Err(format!("client {number} has no certificate"));
        }
    }
    let load = bench.url("scep?operation=GetCACaps");
    for options in [&["-n", "3000"][..], &["-n", "10000", "-k"]] {
        let printed = bench.client("ab", &[&["-q", "-c", "32"], options, &[&load]].concat())?;
        let (complete, failed) =
            (number_after(&printed, "Complete requests:")?, number_after(&printed, "Failed requests:")?);
        if failed != 0.0 || options[1] != complete.to_string() || printed.contains("Non-2xx") {
            return Err(format!("{}: {complete} requests, {failed} failed", options.join(" ")));
        }
    }
    fs::remove_dir_all(&place).map_err(|error| error.to_string())?;
    Ok("three certificates; 3000 connections and 10000 requests, none failed".into())
}

/// Debian's prometheus, which reads its own metrics over and over, and its tool, which asks whether it does.
pub(super) fn prometheus(bench: &Bench) -> Outcome {
    let place = bench.session.dir().join(format!("prometheus-{}", bench.port));
    fs::create_dir_all(&place).map_err(|error| error.to_string())?;
    let path = |name: &str| place.join(name).display().to_string();
    let target = format!("{}:{}", bench.address(), bench.port);
    let jobs = format!(
        "global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}
scrape_configs: [{{job_name: itself, static_configs: [{{targets: ['{target}']}}]}}]
"
    );
    let (configuration, data) = (path("prometheus.yml"), path("data"));
    fs::write(&configuration, jobs).map_err(|error| error.to_string())?;
    let server = [
        &format!("--config.file={configuration}"),
        &format!("--storage.tsdb.path={data}"),
        &format!("--web.listen-address=0.0.0.0:{}", bench.port),
    ];
    let running = bench.server(bench.lab.on_server("prometheus"), &server.map(String::as_str))?;
    let url = bench.url("");
    let ask = |question: &str| bench.client("promtool", &["query", "instant", &url, question]);
    let mut answer = String::new();
    bench.session.until("prometheus to read its own metrics ten times", || {
        answer = ask("sum_over_time(up[1m]) >= 10").unwrap_or_default();
        Ok(answer.contains("itself"))
    })?;
    let failed = ask("count_over_time(up[1m]) - sum_over_time(up[1m])")?;
    let printed = bench.client("ab", &["-q", "-k", "-c", "16", "-n", "300", &bench.url("metrics")])?;
    let (complete, lost) = (number_after(&printed, "Complete requests:")?, number_after(&printed, "Failed requests:")?);
    drop(running);
    fs::remove_dir_all(&place).map_err(|error| error.to_string())?;
    // Metrics have no fixed length, which ab takes for a failure.
    if !failed.contains("=> 0 @") || complete != 300.0 || printed.contains("Non-2xx") {
        return Err(format!("reads that failed: {failed}; {complete} requests, {lost} of another length"));
    }
    Ok(format!("it reads itself ({}), 300 requests", answer.split("=>").nth(1).unwrap_or_default().trim()))
}

/// Go's standard library on both sides, linked statically.
pub(super) fn alone(bench: &Bench) -> Outcome {
    web(bench, "0")
}

/// The same with the C library beside it, which looks names up and makes the threads.
pub(super) fn with_c(bench: &Bench) -> Outcome {
    web(bench, "1")
}

fn web(bench: &Bench, cgo: &str) -> Outcome {
    let Some(program) = build(bench, cgo)? else {
        return Ok("left out: this machine has no Go compiler".into());
    };
    let _server = bench.server(bench.lab.on_server(&program), &["serve", &bench.port()])?;
    let mut client = bench.lab.on_client(&program);
    client.args(["call", &bench.url(""), "1000", "5"]);
    Ok(bench.session.run(client)?.trim().into())
}

/// The program; none where there is no compiler for it.
fn build(bench: &Bench, cgo: &str) -> Result<Option<String>, String> {
    let Some(mut compiler) = compiler(bench.session, cgo == "1") else { return Ok(None) };
    let program = bench.made(&format!("web-{cgo}"), |program| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/web.go");
        compiler.args(["build", "-o", program]).arg(source);
        compiler
    })?;
    Ok(Some(program))
}
