//! Description of the machine, which figures depend on besides the program.
use serde_json::{Value, json};

/// `24684096 kB`, as the kernel prints it.
fn bytes(text: &str) -> Option<u64> {
    text.strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Cores, processor, kernel, memory, the kernel's default congestion control and how busy the machine was before the
/// measurement.
pub fn facts() -> Value {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let value_of = |text: &str, key: &str| -> Option<String> {
        let line = text.lines().find(|line| line.starts_with(key))?;
        line.split_once(':').map(|(_, value)| value.trim().to_string())
    };
    let load = read("/proc/loadavg").split_whitespace().next().and_then(|word| word.parse::<f64>().ok());
    json!({
        "cores": std::thread::available_parallelism().map_or(1, usize::from),
        "cpu": value_of(&read("/proc/cpuinfo"), "model name"),
        "memory_bytes": value_of(&read("/proc/meminfo"), "MemTotal").and_then(|text| bytes(&text)),
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "tcp_congestion_control": read("/proc/sys/net/ipv4/tcp_congestion_control").trim(),
        "load_before": load,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_a_number() {
        assert_eq!((bytes("24684096 kB"), bytes("?")), (Some(24_684_096 << 10), None));
        let facts = facts();
        assert!(facts["memory_bytes"].as_u64() > Some(1 << 20) && facts["cores"].as_u64() > Some(0));
    }
}
