//! Real servers and the clients that people load them with: their command lines, and their reports.
use serde_json::Value;
use std::path::Path;

/// Report of a client: requests a second and latencies in microseconds, as far as it reports them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClientReport {
    /// Requests answered a second.
    pub ops_per_s: f64,
    /// Median.
    pub p50_us: f64,
    /// 99 %.
    pub p99_us: f64,
    /// The largest, where it is printed.
    pub max_us: f64,
}

/// A command line as words.
pub fn split(line: &str) -> Vec<String> {
    line.split_whitespace().map(String::from).collect()
}

/// memcached with one worker thread.
pub fn memcached(address: &str, port: u16) -> Vec<String> {
    split(&format!("memcached -u root -l {address} -p {port} -U 0 -t 1 -m 64 -c 4096"))
}

/// redis-server that writes no files.
pub fn redis(address: &str, port: u16, directory: &Path) -> Vec<String> {
    let mut words = split(&format!(
        "redis-server --bind {address} --port {port} --protected-mode no --appendonly no --daemonize no --dir {} --save",
        directory.display()
    ));
    // An empty list of save points: no snapshots.
    words.push(String::new());
    words
}

/// nginx with one worker that answers 100 bytes; writes its configuration into the directory.
pub fn nginx(address: &str, port: u16, directory: &Path, name: &str) -> Result<Vec<String>, String> {
    let [file, pid] = ["conf", "pid"].map(|kind| directory.join(format!("nginx-{name}.{kind}")));
    let (pid, temp, body) = (pid.display(), directory.display(), "x".repeat(100));
    let content = format!(
        "daemon off;\nuser root;\nworker_processes 1;\npid {pid};\nerror_log stderr;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n  access_log off;\n  keepalive_requests 100000000;\n  client_body_temp_path {temp};\n\
         proxy_temp_path {temp};\n  fastcgi_temp_path {temp};\n  uwsgi_temp_path {temp};\n  scgi_temp_path {temp};\n\
         server {{ listen {address}:{port}; location / {{ return 200 \"{body}\"; }} }}\n}}\n"
    );
    std::fs::write(&file, content).map_err(|e| format!("cannot write {}: {e}", file.display()))?;
    Ok(split(&format!("nginx -e stderr -c {}", file.display())))
}

/// The last line of redis-benchmark's table: test, rate, then average, least, p50, p95, p99 and most in milliseconds.
pub fn redis_benchmark_report(output: &str) -> Result<ClientReport, String> {
    let line = output.lines().rfind(|line| line.starts_with('"') && !line.contains("rps"));
    let fields: Vec<f64> =
        line.unwrap_or_default().split(',').skip(1).filter_map(|field| field.trim_matches('"').parse().ok()).collect();
    match fields[..] {
        [ops_per_s, _, _, p50, _, p99, max] => {
            Ok(ClientReport { ops_per_s, p50_us: p50 * 1000.0, p99_us: p99 * 1000.0, max_us: max * 1000.0 })
        }
        _ => Err(format!("redis-benchmark printed {output}")),
    }
}

/// Rate and percentiles of wrk's report. An answer with an error makes the measurement worthless.
pub fn wrk_report(output: &str) -> Result<ClientReport, String> {
    if output.contains("Non-2xx") || output.contains("Socket errors") {
        return Err(format!("wrk met errors: {output}"));
    }
    let after = |word: &str| output.lines().find_map(|line| line.trim().strip_prefix(word)).map(str::trim);
    let parse = || {
        // "Latency   1.50ms  2.10ms  20.11ms  90.00%": average, deviation, most, share within the deviation.
        let most = output.lines().find_map(|line| line.trim().strip_prefix("Latency  "));
        let most = most.and_then(|rest| microseconds(rest.split_whitespace().nth(2)?));
        Some(ClientReport {
            ops_per_s: after("Requests/sec:")?.parse().ok()?,
            p50_us: microseconds(after("50%")?)?,
            p99_us: microseconds(after("99%")?)?,
            max_us: most.unwrap_or(f64::NAN),
        })
    };
    parse().ok_or_else(|| format!("wrk printed {output}"))
}

/// fio with blocks at random places of a disk of `megabytes`; `point` has `depth` and `size`.
pub fn fio(uri: &str, kind: &str, seconds: f64, megabytes: u64, point: &Value) -> Vec<String> {
    let (depth, size) = (&point["depth"], &point["size"]);
    let mut words = split(&format!(
        "fio --name=bench --ioengine=nbd --rw=rand{kind} --bs={size} --iodepth={depth} --size={megabytes}m --time_based \
         --norandommap --runtime={:.0}ms --thread --output-format=json",
        seconds * 1000.0
    ));
    words.push(format!("--uri={uri}"));
    words
}

/// Rate and completion latencies of fio's report.
pub fn fio_report(output: &str, kind: &str) -> Result<ClientReport, String> {
    let json = output.find('{').map_or("", |at| &output[at..]);
    let report: Value = serde_json::from_str(json).map_err(|error| format!("fio printed {output}: {error}"))?;
    let (job, side) = (&report["jobs"][0], &report["jobs"][0][kind]);
    let latency = &side["clat_ns"];
    let parse = || {
        let us = |value: &Value| Some(value.as_f64()? / 1000.0);
        Some(ClientReport {
            ops_per_s: side["iops"].as_f64().filter(|iops| *iops > 0.0 && job["error"] == 0)?,
            p50_us: us(&latency["percentile"]["50.000000"])?,
            p99_us: us(&latency["percentile"]["99.000000"])?,
            max_us: us(&latency["max"])?,
        })
    };
    parse().ok_or_else(|| format!("fio printed {output}"))
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
        let expected = ClientReport { ops_per_s: 126_582.27, p50_us: 231.0, p99_us: 431.0, max_us: 1503.0 };
        assert_eq!(redis_benchmark_report(redis), Ok(expected));
        let wrk = "    Latency   513.00us  100.00us   2.50ms   90.00%\n  Latency Distribution\n     50%  513.00us\n\
                   75%    0.6ms\n     90%  0.7ms\n     99%    1.50ms\nRequests/sec:  48211.22\nTransfer/sec:  11.59MB\n";
        let expected = ClientReport { ops_per_s: 48_211.22, p50_us: 513.0, p99_us: 1500.0, max_us: 2500.0 };
        assert_eq!(wrk_report(wrk), Ok(expected));
        assert!(wrk_report("  Socket errors: connect 0, read 5").is_err());
        assert!(redis_benchmark_report("Could not connect").is_err());
    }

    #[test]
    fn fio_is_understood() {
        let fio = r#"fio: connected to NBD server
            {"jobs": [{"error": 0, "write": {"iops": 1000.5, "clat_ns": {"max": 9000, "percentile": {"50.000000": 2500,
            "99.000000": 7000}}}}]}"#;
        let expected = ClientReport { ops_per_s: 1000.5, p50_us: 2.5, p99_us: 7.0, max_us: 9.0 };
        assert_eq!(fio_report(fio, "write"), Ok(expected));
        assert!(fio_report(&fio.replace("\"error\": 0", "\"error\": 5"), "write").is_err());
        assert!(fio_report("fio: no such host", "write").is_err() && fio_report(fio, "read").is_err());
    }

    #[test]
    fn redis_keeps_its_empty_word() {
        assert_eq!(redis("10.0.0.1", 6379, Path::new("/tmp")).last().map(String::as_str), Some(""));
    }
}
