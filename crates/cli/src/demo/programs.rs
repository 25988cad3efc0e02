//! The servers of the demo and the load on each.
use super::lab::{Lab, Stack};
use bench::process::Process;
use serde::Deserialize;
use std::fmt;
use std::time::Duration;

/// Connections of each load.
const CONNECTIONS: u32 = 64;
/// Payload of memcached and redis, bytes.
const VALUE: u32 = 64;

/// A server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    Memcached,
    Redis,
    Nginx,
}

/// What one measurement gave.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct Sample {
    /// Requests answered a second.
    pub ops_per_s: f64,
    /// Median time of an answer, microseconds.
    pub p50_us: f64,
    /// 99th percentile of it.
    pub p99_us: f64,
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} requests/s, p50 {:.0} us, p99 {:.0} us", self.ops_per_s, self.p50_us, self.p99_us)
    }
}

impl Program {
    /// In the order of the table.
    pub const ALL: &'static [Program] = &[Program::Memcached, Program::Redis, Program::Nginx];

    /// Its name on the command line and in the table.
    pub fn name(self) -> &'static str {
        match self {
            Program::Memcached => "memcached",
            Program::Redis => "redis",
            Program::Nginx => "nginx",
        }
    }

    /// Executables that must be installed.
    pub fn needs(self) -> &'static [&'static str] {
        match self {
            Program::Memcached => &["memcached"],
            Program::Redis => &["redis-server", "redis-benchmark"],
            Program::Nginx => &["nginx", "wrk"],
        }
    }

    /// What the load is, in a few words.
    pub fn load_name(self) -> String {
        match self {
            Program::Memcached => format!("90% get, {VALUE} B, {CONNECTIONS} connections"),
            Program::Redis => format!("redis-benchmark get, {VALUE} B, {CONNECTIONS} connections"),
            Program::Nginx => format!("wrk, keep-alive, 100 B, {CONNECTIONS} connections"),
        }
    }

    fn port(self) -> u16 {
        match self {
            Program::Memcached => 11211,
            Program::Redis => 6379,
            Program::Nginx => 80,
        }
    }

    /// Starts the server.
    pub fn serve(self, lab: &Lab<'_>, stack: Stack) -> Result<Process, String> {
        let (address, port) = (stack.address(), self.port());
        let line = match self {
            Program::Memcached => format!("memcached -u root -l {address} -p {port} -U 0 -t 1 -m 64 -c 4096"),
            Program::Redis => format!(
                "redis-server --bind {address} --port {port} --protected-mode no --appendonly no --daemonize no \
                 --dir {} --save",
                lab.file("").display()
            ),
            Program::Nginx => {
                let file = lab.file(&format!("nginx-{}.conf", stack.name()));
                let content = nginx_configuration(lab, stack, port);
                std::fs::write(&file, content).map_err(|e| format!("cannot write {}: {e}", file.display()))?;
                format!("nginx -e stderr -c {}", file.display())
            }
        };
        let mut words = split(&line);
        if self == Program::Redis {
            // An empty list of save points: no snapshots.
            words.push(String::new());
        }
        lab.server(stack, &words, port)
    }

    /// Loads the server for a while.
    pub fn load(self, lab: &Lab<'_>, stack: Stack, seconds: u32) -> Result<Sample, String> {
        let (address, port) = (stack.address(), self.port());
        let patience = Duration::from_secs(u64::from(seconds) * 10 + 20);
        match self {
            Program::Memcached => {
                let own = std::env::current_exe().map_err(|e| e.to_string())?;
                let line = format!(
                    "{} memload {address}:{port} --connections {CONNECTIONS} --seconds {seconds}",
                    own.display()
                );
                let output = lab.client(&split(&line), patience)?;
                serde_json::from_str(&output).map_err(|e| format!("memload said {output}: {e}"))
            }
            Program::Redis => redis_load(lab, stack, seconds, patience),
            Program::Nginx => {
                let line = format!("wrk -t 1 -c {CONNECTIONS} -d {seconds}s --latency http://{address}:{port}/");
                wrk_sample(&lab.client(&split(&line), patience)?)
            }
        }
    }
}

fn split(line: &str) -> Vec<String> {
    line.split_whitespace().map(String::from).collect()
}

fn nginx_configuration(lab: &Lab<'_>, stack: Stack, port: u16) -> String {
    let (address, body) = (stack.address(), "x".repeat(100));
    let (pid, temp) = (lab.file(&format!("nginx-{}.pid", stack.name())), lab.file(""));
    let (pid, temp) = (pid.display(), temp.display());
    format!(
        "daemon off;\nuser root;\nworker_processes 1;\npid {pid};\nerror_log stderr;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n  access_log off;\n  keepalive_requests 100000000;\n  client_body_temp_path {temp};\n\
         proxy_temp_path {temp};\n  fastcgi_temp_path {temp};\n  uwsgi_temp_path {temp};\n  scgi_temp_path {temp};\n\
         server {{ listen {address}:{port}; location / {{ return 200 \"{body}\"; }} }}\n}}\n"
    )
}

/// redis-benchmark counts requests, not time: a short run says how many fit.
fn redis_load(lab: &Lab<'_>, stack: Stack, seconds: u32, patience: Duration) -> Result<Sample, String> {
    let run = |test: &str, requests: u64| {
        let (address, port) = (stack.address(), Program::Redis.port());
        let line =
            format!("redis-benchmark -h {address} -p {port} -c {CONNECTIONS} -d {VALUE} -n {requests} -t {test} --csv");
        lab.client(&split(&line), patience)
    };
    let probe = redis_sample(&run("set", 10_000)?)?;
    redis_sample(&run("get", (probe.ops_per_s * f64::from(seconds)).max(1000.0) as u64)?)
}

/// The last line of redis-benchmark's table: test, rate, then average, least, p50, p95, p99 and most in milliseconds.
fn redis_sample(output: &str) -> Result<Sample, String> {
    let line = output.lines().rfind(|line| line.starts_with('"') && !line.contains("rps"));
    let fields: Vec<f64> =
        line.unwrap_or_default().split(',').skip(1).filter_map(|field| field.trim_matches('"').parse().ok()).collect();
    match fields[..] {
        [ops_per_s, _, _, p50, _, p99, _] => Ok(Sample { ops_per_s, p50_us: p50 * 1000.0, p99_us: p99 * 1000.0 }),
        _ => Err(format!("redis-benchmark said {output}")),
    }
}

/// Rate and percentiles of wrk's report. An answer with an error makes the measurement worthless.
fn wrk_sample(output: &str) -> Result<Sample, String> {
    if output.contains("Non-2xx") || output.contains("Socket errors") {
        return Err(format!("wrk met errors: {output}"));
    }
    let after = |word: &str| output.lines().find_map(|line| line.trim().strip_prefix(word)).map(str::trim);
    let sample = || {
        Some(Sample {
            ops_per_s: after("Requests/sec:")?.parse().ok()?,
            p50_us: microseconds(after("50%")?)?,
            p99_us: microseconds(after("99%")?)?,
        })
    };
    sample().ok_or_else(|| format!("wrk said {output}"))
}

fn microseconds(text: &str) -> Option<f64> {
    let number = text.trim_end_matches(char::is_alphabetic);
    let factor = match text.strip_prefix(number)? {
        "us" => 1.0,
        "ms" => 1000.0,
        "s" => 1_000_000.0,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_understood() {
        let redis = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\
                     \"p99_latency_ms\",\"max_latency_ms\"\n\
                     \"GET\",\"126582.27\",\"0.236\",\"0.088\",\"0.231\",\"0.327\",\"0.431\",\"1.503\"\n";
        assert_eq!(redis_sample(redis), Ok(Sample { ops_per_s: 126_582.27, p50_us: 231.0, p99_us: 431.0 }));
        let wrk = "  Latency Distribution\n     50%  513.00us\n     75%    0.6ms\n     90%  0.7ms\n     99%    1.50ms\n\
                   Requests/sec:  48211.22\nTransfer/sec:  11.59MB\n";
        assert_eq!(wrk_sample(wrk), Ok(Sample { ops_per_s: 48_211.22, p50_us: 513.0, p99_us: 1500.0 }));
        assert!(wrk_sample("  Socket errors: connect 0, read 5").is_err());
        assert!(redis_sample("Could not connect").is_err());
    }
}
