//! nginx (a master, two workers) with wrk, ab and curl.
use super::requests::Requests;
use super::{Bench, LARGE, SMALL, number_after};
use crate::process::Process;
use crate::report::Outcome;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::Path;
use std::time::Duration;

fn server<'a>(bench: &Bench<'a>) -> Result<Process<'a>, String> {
    start(bench, "daemon off; user root;")
}

/// With workers that may not bind its port, as Debian's nginx has them.
pub(crate) fn unprivileged<'a>(bench: &Bench<'a>) -> Result<Process<'a>, String> {
    start(bench, "daemon off; user www-data;")
}

fn start<'a>(bench: &Bench<'a>, first: &str) -> Result<Process<'a>, String> {
    let (prefix, path) = configure(bench, first)?;
    bench.server(bench.lab.on_server("nginx"), &["-p", &prefix, "-c", &path, "-e", "stderr"])
}

/// Writes the configuration; returns nginx's folder and the file.
fn configure(bench: &Bench, first: &str) -> Result<(String, String), String> {
    let prefix = bench.session.dir().join("nginx");
    fs::create_dir_all(&prefix).map_err(|error| error.to_string())?;
    let root = bench.files.dir().display();
    let configuration = format!(
        "{first} worker_processes 2; pid {0}/pid; error_log stderr warn;
         events {{ worker_connections 1024; }}
         http {{
             access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000; default_type text/plain;
             client_body_temp_path {0}/body; proxy_temp_path {0}/proxy; fastcgi_temp_path {0}/fastcgi;
             uwsgi_temp_path {0}/uwsgi; scgi_temp_path {0}/scgi;
             server {{ listen {2}:{1} backlog=4096; root {root}; }}
         }}",
        prefix.display(),
        bench.port,
        bench.by_family("0.0.0.0", "[::]")
    );
    let path = prefix.join("nginx.conf");
    fs::write(&path, configuration).map_err(|error| error.to_string())?;
    Ok((prefix.display().to_string(), path.display().to_string()))
}

pub(super) fn keep_alive(bench: &Bench) -> Outcome {
    let _server = server(bench)?;
    wrk(bench, &[])
}

pub(super) fn connection_per_request(bench: &Bench) -> Outcome {
    let _server = server(bench)?;
    wrk(bench, &["-H", "Connection: close"])
}

fn wrk(bench: &Bench, options: &[&str]) -> Outcome {
    let url = bench.url(SMALL);
    let printed = bench.client("wrk", &[&["-t", "2", "-c", "64", "-d", "2s"], options, &[url.as_str()]].concat())?;
    for trouble in ["Socket errors", "Non-2xx"] {
        if let Some(line) = printed.lines().find(|line| line.contains(trouble)) {
            return Err(line.trim().into());
        }
    }
    let rate = number_after(&printed, "Requests/sec:")?;
    if rate > 0.0 { Ok(format!("{:.1} k/s", rate / 1e3)) } else { Err("no request was answered".into()) }
}

pub(super) fn ab(bench: &Bench) -> Outcome {
    let _server = server(bench)?;
    drive_ab(bench, 5000, &[])
}

pub(super) fn ab_keep_alive(bench: &Bench) -> Outcome {
    let _server = server(bench)?;
    drive_ab(bench, 20000, &["-k"])
}

pub(super) fn drive_ab(bench: &Bench, requests: u32, options: &[&str]) -> Outcome {
    let (number, url) = (requests.to_string(), bench.url(SMALL));
    let printed = bench.client("ab", &[&["-q", "-c", "32", "-n", &number], options, &[&url]].concat())?;
    let count = |label: &str| number_after(&printed, label);
    let (complete, failed) = (count("Complete requests:")?, count("Failed requests:")?);
    let bytes = count("HTML transferred:")?;
    if complete != f64::from(requests) || failed != 0.0 || bytes != f64::from(requests) * 1000.0 {
        return Err(format!("{complete} requests complete, {failed} failed, {bytes} bytes"));
    }
    Ok(format!("{requests} requests, {:.1} k/s", count("Requests per second:")? / 1e3))
}

pub(super) fn large_file(bench: &Bench) -> Outcome {
    let _server = server(bench)?;
    let script = format!("curl -sS --fail {} | sha256sum", bench.url(LARGE));
    bench.files.expect(LARGE, &bench.client("sh", &["-c", &script])?)?;
    Ok("SHA-256 equal".into())
}

/// Three reloads while requests come in, each on a connection of its own, and while one download is under way:
/// the old workers finish what they have, the new ones take over the listening socket, nobody sees an error.
pub(super) fn reload(bench: &Bench) -> Outcome {
    let master = server(bench)?;
    let load = Requests::start(bench)?;
    let script = format!("curl -sS --fail --limit-rate 40M {} | sha256sum", bench.url(LARGE));
    let mut download = bench.client_in_background("sh", &["-c", &script])?;
    let worker_sets = reload_three_times(bench, &master)?;
    let complete = load.finish()?;
    bench.files.expect(LARGE, &download.succeed()?)?;
    let printed =
        bench.client("curl", &["-sS", "--fail", "-o", "/dev/null", "-w", "%{http_code}", &bench.url(SMALL)])?;
    match printed.as_str() {
        "200" => Ok(format!("{worker_sets} sets of workers, {complete} requests, a download under way intact")),
        other => Err(format!("after the reloads nginx answers {other}")),
    }
}

fn reload_three_times(bench: &Bench, master: &Process) -> Result<usize, String> {
    let mut sets = vec![workers(master.id())];
    for _ in 0..3 {
        bench.session.pause(Duration::from_millis(300))?;
        master.signal(Signal::HUP)?;
        let before = sets.last().cloned().unwrap_or_default();
        bench.session.until("new workers", || {
            Ok(workers(master.id()).iter().filter(|worker| !before.contains(worker)).count() >= 2)
        })?;
        sets.push(workers(master.id()));
    }
    Ok(sets.len())
}

/// Masters that have left their process group, as only such can upgrade; ended with this value.
struct Detached(Vec<u32>);

impl Drop for Detached {
    fn drop(&mut self) {
        for master in &self.0 {
            let children = workers(*master).into_iter().filter_map(|worker| worker.parse().ok());
            children.chain([*master]).filter(|process| is_nginx(*process)).for_each(|process| {
                let _ = send(process, Signal::KILL);
            });
        }
    }
}

fn is_nginx(process: u32) -> bool {
    fs::read_to_string(format!("/proc/{process}/comm")).is_ok_and(|name| name.trim() == "nginx")
}

fn send(process: u32, signal: Signal) -> Result<(), String> {
    let pid = Pid::from_raw(process as i32).ok_or("no process has the number 0")?;
    kill_process(pid, signal).map_err(|error| format!("signal to process {process}: {error}"))
}

/// The binary upgrade: a new master gets the listening socket over an exec, in an environment that nginx writes itself,
/// while requests come in; then the old master ends.
pub(super) fn upgrade(bench: &Bench) -> Outcome {
    let (prefix, path) = configure(bench, "daemon on; user root;")?;
    let pid_file = Path::new(&prefix).join("pid");
    let master = || fs::read_to_string(&pid_file).ok().and_then(|text| text.trim().parse::<u32>().ok());
    // The new binary is run by the path of the old one. A parent stays, as an administrator's shell does.
    let script = format!("$(command -v nginx) -p {prefix} -c {path} -e {prefix}/errors && exec sleep 60");
    let parent = bench.server(bench.lab.on_server("sh"), &["-c", &script])?;
    // As long as the process lives that went to the background, nginx ignores the signal (ngx_signal_handler).
    let has_started = || fs::read_to_string(format!("/proc/{}/comm", parent.id())).is_ok_and(|comm| comm == "sleep\n");
    bench.session.until("nginx in the background", || Ok(has_started()))?;
    let old = master().ok_or("nginx' pid file is gone")?;
    let mut masters = Detached(vec![old]);
    // Debian's nginx writes the pid file before the child that becomes the master blocks its signals. It blocks them
    // before it starts workers. A signal in between sets a flag only, and the master sleeps until the next one.
    bench.session.until("workers", || Ok(workers(old).len() >= 2))?;
    let load = Requests::start(bench)?;
    send(old, Signal::USR2)?;
    bench.session.until("a new master", || Ok(master().is_some_and(|new| new != old && workers(new).len() >= 2)))?;
    let new = master().ok_or("the new master's pid file is gone")?;
    masters.0.push(new);
    end(bench, old)?;
    let complete = load.finish()?;
    let url = bench.url(SMALL);
    let code = bench.client("curl", &["-sS", "--fail", "-o", "/dev/null", "-w", "%{http_code}", &url])?;
    end(bench, new)?;
    match code.as_str() {
        "200" => Ok(format!("{complete} requests during the upgrade, none failed")),
        other => Err(format!("the new binary answers {other}")),
    }
}

/// A master ends, after its workers have answered what they had begun.
fn end(bench: &Bench, master: u32) -> Result<(), String> {
    send(master, Signal::QUIT)?;
    bench.session.until("a master's end", || Ok(!is_nginx(master)))
}

pub(super) fn workers(master: u32) -> Vec<String> {
    let list = fs::read_to_string(format!("/proc/{master}/task/{master}/children")).unwrap_or_default();
    list.split_whitespace().map(String::from).collect()
}
