//! Programs of verbs, as Debian ships them: queries, the ping-pong examples, perftest. Both sides are on OpenTOE: the
//! kernel's own verbs need a module that these machines lack.
use super::{Bench, number_after};
use crate::report::Outcome;
use std::path::Path;
use std::process::Command;

/// The port of `udaddy`, which has no option for another one.
const UDADDY: u16 = 7174;
/// The GID that is the host's IPv4 address.
const GID: [&str; 2] = ["-g", "1"];

/// `ibv_devices` and `ibv_devinfo -v` show the device.
pub(super) fn devices(bench: &Bench) -> Outcome {
    let list = bench.client("ibv_devices", &[])?;
    let all = bench.client("ibv_devinfo", &["-v"])?;
    let expected = ["hca_id:\ttoe0", "PORT_ACTIVE (4)", "link_layer:\t\tEthernet", "RoCE v2"];
    if let Some(missing) = expected.iter().find(|words| !all.contains(**words)) {
        return Err(format!("ibv_devinfo -v does not print '{missing}':\n{all}"));
    }
    if !list.contains("toe0") {
        return Err(format!("ibv_devices does not list toe0:\n{list}"));
    }
    let gids = all.lines().filter(|line| line.contains("GID[")).count();
    Ok(format!("toe0, {gids} GIDs"))
}

/// Programs that search below `/sys/class/infiniband` find the device there, and what the kernel has in other classes.
pub(super) fn sysfs(bench: &Bench) -> Outcome {
    let mut command = bench.lab.with_sysfs_on_client("sh");
    command.args(["-ec", "PATH=$PATH:/usr/sbin; ibstat; ibstatus; ibv_devices; cat /sys/class/net/lo/mtu"]);
    let printed = bench.session.run(command)?;
    let expected = ["CA 'toe0'", "State: Active", "Link layer: Ethernet", "4: ACTIVE", "100 Gb/sec (4X EDR)", "65536"];
    match expected.iter().find(|words| !printed.contains(**words)) {
        Some(missing) => Err(format!("ibstat, ibstatus and others do not print '{missing}':\n{printed}")),
        None if Path::new("/sys/class/infiniband/toe0").exists() => Err("the device stands outside as well".into()),
        None => Ok("ibstat and ibstatus show toe0".into()),
    }
}

pub(super) fn reliable(bench: &Bench) -> Outcome {
    pingpong(bench, "ibv_rc_pingpong", &["-c"])
}

pub(super) fn reliable_events(bench: &Bench) -> Outcome {
    pingpong(bench, "ibv_rc_pingpong", &["-c", "-e"])
}

pub(super) fn reliable_new_calls(bench: &Bench) -> Outcome {
    pingpong(bench, "ibv_rc_pingpong", &["-c", "-N", "-t"])
}

pub(super) fn unreliable(bench: &Bench) -> Outcome {
    pingpong(bench, "ibv_uc_pingpong", &["-c"])
}

pub(super) fn datagrams(bench: &Bench) -> Outcome {
    pingpong(bench, "ibv_ud_pingpong", &["-c", "-s", "1000"])
}

pub(super) fn shared_receives(bench: &Bench) -> Outcome {
    pingpong(bench, "ibv_srq_pingpong", &["-c"])
}

pub(super) fn shared_receives_events(bench: &Bench) -> Outcome {
    pingpong(bench, "ibv_srq_pingpong", &["-c", "-e"])
}

/// Extended reliable connections: one server with three clients. The example compares no bytes.
pub(super) fn extended(bench: &Bench) -> Outcome {
    extended_pingpong(bench, 3, &["-n", "50"])
}

pub(super) fn extended_events(bench: &Bench) -> Outcome {
    extended_pingpong(bench, 1, &["-n", "50", "-e"])
}

/// The file that the programs make to name their domain of XRCs, and leave behind.
const XRC_DOMAIN: &str = "/tmp/xrc_domain";

/// Removes that file in the end, unless it was there before.
struct XrcFile {
    was_there: bool,
}

impl XrcFile {
    fn stat() -> XrcFile {
        XrcFile { was_there: Path::new(XRC_DOMAIN).exists() }
    }
}

impl Drop for XrcFile {
    fn drop(&mut self) {
        if !self.was_there {
            let _ = std::fs::remove_file(XRC_DOMAIN);
        }
    }
}

fn extended_pingpong(bench: &Bench, clients: usize, options: &[&str]) -> Outcome {
    let _file = XrcFile::stat();
    let (program, port, count) = ("ibv_xsrq_pingpong", bench.port(), clients.to_string());
    let common = [&["-p", &port][..], &GID, options].concat();
    let serving = [&common[..], &["-c", &count]].concat();
    let mut server = bench.server(bench.lab.on_server(program), &serving)?;
    let address = bench.address();
    let mut all = Vec::new();
    for _ in 0..clients {
        let mut client = bench.lab.on_client(program);
        client.args(&common).arg(&address);
        all.push(bench.session.spawn(client)?);
    }
    for client in &mut all {
        client.succeed()?;
    }
    server.succeed()?;
    Ok(format!("{clients} clients"))
}

pub(super) fn extended_perftest(bench: &Bench) -> Outcome {
    let _file = XrcFile::stat();
    let mut results = Vec::new();
    for program in ["ib_send_bw", "ib_write_bw", "ib_read_bw", "ib_atomic_bw"] {
        let bench = bench.on_another_port();
        results.push(format!("{program} {}", perftest(&bench, program, &["-c", "XRC", "-n", "500"])?));
    }
    Ok(results.join(", "))
}

/// One of the ping-pong examples, both sides with the same options. They check each byte that they receive.
fn pingpong(bench: &Bench, program: &str, options: &[&str]) -> Outcome {
    let port = bench.port();
    let common = [&["-p", &port][..], &GID, options].concat();
    let mut server = bench.server(bench.lab.on_server(program), &common)?;
    let printed = bench.client(program, &[&common[..], &[&bench.address()]].concat())?;
    let received = server.succeed()?;
    for text in [&printed, &received] {
        if text.contains("invalid data") {
            return Err(format!("{program}: {text}"));
        }
    }
    let usec = round_trip(&printed)?;
    Ok(format!("{usec:.1} us a round trip"))
}

/// Microseconds of a round trip, as the ping-pong examples print them; the line before has their bytes in a second.
pub(crate) fn round_trip(printed: &str) -> Result<f64, String> {
    let (_, line) = printed.split_once("iters in ").ok_or(format!("no iterations in the output:\n{printed}"))?;
    number_after(line, "seconds =")
}

pub(super) fn send_bandwidth(bench: &Bench) -> Outcome {
    perftest(bench, "ib_send_bw", &["-a", "-n", "20"])
}

pub(super) fn send_bandwidth_events(bench: &Bench) -> Outcome {
    perftest(bench, "ib_send_bw", &["-e", "-n", "1000"])
}

pub(super) fn send_bandwidth_shared(bench: &Bench) -> Outcome {
    perftest(bench, "ib_send_bw", &["--use-srq", "-q", "4", "-n", "1000"])
}

pub(super) fn send_bandwidth_both_ways(bench: &Bench) -> Outcome {
    perftest(bench, "ib_send_bw", &["-b", "-n", "1000"])
}

pub(super) fn send_latency(bench: &Bench) -> Outcome {
    perftest(bench, "ib_send_lat", &["-a", "-n", "20"])
}

pub(super) fn write_bandwidth(bench: &Bench) -> Outcome {
    perftest(bench, "ib_write_bw", &["-a", "-n", "20"])
}

pub(super) fn write_bandwidth_both_ways(bench: &Bench) -> Outcome {
    perftest(bench, "ib_write_bw", &["-b", "-n", "1000"])
}

pub(super) fn write_latency(bench: &Bench) -> Outcome {
    perftest(bench, "ib_write_lat", &["-a", "-n", "20"])
}

pub(super) fn read_bandwidth(bench: &Bench) -> Outcome {
    perftest(bench, "ib_read_bw", &["-a", "-n", "20"])
}

pub(super) fn read_latency(bench: &Bench) -> Outcome {
    perftest(bench, "ib_read_lat", &["-a", "-n", "20"])
}

pub(super) fn atomic_bandwidth(bench: &Bench) -> Outcome {
    perftest(bench, "ib_atomic_bw", &["-n", "1000"])
}

pub(super) fn atomic_latency(bench: &Bench) -> Outcome {
    perftest(bench, "ib_atomic_lat", &["-n", "1000", "-A", "CMP_AND_SWAP"])
}

pub(super) fn write_bandwidth_managed(bench: &Bench) -> Outcome {
    perftest(bench, "ib_write_bw", &["-R", "-n", "200"])
}

pub(super) fn send_latency_managed(bench: &Bench) -> Outcome {
    perftest(bench, "ib_send_lat", &["-R", "-n", "200"])
}

/// `rping -V` compares each byte that it reads and writes.
pub(super) fn rping(bench: &Bench) -> Outcome {
    let common = ["-V", "-v", "-C", "50", "-S", "4000"];
    let printed = managed(bench, "rping", &[&["-s"], &common[..]].concat(), "-c", "-a", &common)?;
    match printed.matches("rdma-ping-49").count() {
        1 => Ok("50 pings".into()),
        _ => Err(format!("rping did not print its last ping:\n{printed}")),
    }
}

pub(super) fn ucmatose(bench: &Bench) -> Outcome {
    let common = ["-c", "20", "-C", "10", "-S", "1000"];
    managed(bench, "ucmatose", &common, "", "-s", &common)?;
    Ok("20 connections, 10 messages each way".into())
}

pub(super) fn udaddy(bench: &Bench) -> Outcome {
    let common = ["-c", "8", "-C", "10", "-S", "1000"];
    let mut server = bench.server_on(UDADDY, bench.lab.on_server("udaddy"), &common)?;
    bench.client("udaddy", &[&common[..], &["-s", &bench.address()]].concat())?;
    server.succeed()?;
    Ok("8 lookups, 10 datagrams each way".into())
}

/// Debian's example of multicast, both ways: each of its datagrams comes, or `mckey` waits for ever.
pub(super) fn multicast(bench: &Bench) -> Outcome {
    let (client, server) = (bench.lab.on_client("mckey"), bench.lab.on_server("mckey"));
    multicast_to(bench, server, client)?;
    let (client, server) = (bench.lab.on_client("mckey"), bench.lab.on_server("mckey"));
    multicast_to(bench, client, server)?;
    Ok("20 datagrams each way".into())
}

fn multicast_to(bench: &Bench, mut receiver: Command, mut sender: Command) -> Result<(), String> {
    let common = ["-m", "239.7.1.74", "-C", "20", "-S", "1000"];
    let daemon = bench.lab.daemon.as_ref().ok_or("there is no daemon")?;
    receiver.args(common);
    let mut receiver = bench.session.spawn(receiver)?;
    bench.session.until("the receiver's queue pair", || {
        receiver.running()?;
        let all = daemon.ask("ls")?;
        let is_there = |host: &serde_json::Value| host["rdma"].to_string().contains("\"UD\"");
        Ok(all["hosts"].as_array().is_some_and(|hosts| hosts.iter().any(is_there)))
    })?;
    sender.args(common).arg("-s");
    let printed = bench.session.run(sender)?;
    let received = receiver.succeed()?;
    match [&printed, &received].iter().all(|text| text.contains("data transfers complete")) {
        true => Ok(()),
        false => Err(format!("mckey -s: {printed}; mckey: {received}")),
    }
}

/// Memory windows have no program in Debian: one of the tests' own, compiled with Debian's headers. Its two queue pairs
/// are on the client's host.
pub(super) fn windows(bench: &Bench) -> Outcome {
    let program = compiled(bench, "windows")?;
    Ok(bench.client(&program, &[])?.trim().to_string())
}

/// Neither Debian's example of extended reliable connections nor perftest compares bytes: a program of the tests' own.
pub(super) fn extended_compared(bench: &Bench) -> Outcome {
    let program = compiled(bench, "extended")?;
    Ok(bench.client(&program, &[])?.trim().to_string())
}

/// A thread waits for events while another one destroys the channel.
pub(super) fn channels(bench: &Bench) -> Outcome {
    let program = compiled(bench, "channels")?;
    Ok(bench.client(&program, &[&bench.address()])?.trim().to_string())
}

/// A C program of `peers`.
pub(super) fn compiled(bench: &Bench, name: &str) -> Result<String, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("peers/{name}.c"));
    bench.made(name, |program| {
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-Wall", "-Werror", "-o", program]).arg(source).args(["-lrdmacm", "-libverbs"]);
        compiler
    })
}

/// The programs that call `rdma_create_ep` and `rdma_get_request`.
pub(super) fn endpoints(bench: &Bench) -> Outcome {
    let mut server = bench.server(bench.lab.on_server("rdma_server"), &["-p", &bench.port()])?;
    let printed = bench.client("rdma_client", &["-s", &bench.address(), "-p", &bench.port()])?;
    let served = server.succeed()?;
    match (printed.contains("end 0"), served.contains("end 0")) {
        (true, true) => Ok("a message each way".into()),
        _ => Err(format!("rdma_server: {served}; rdma_client: {printed}")),
    }
}

/// A program whose client names the server with `option`; what the client printed.
fn managed(bench: &Bench, program: &str, serving: &[&str], role: &str, option: &str, calling: &[&str]) -> Outcome {
    let (port, address) = (bench.port(), bench.address());
    let mut server = bench.server(bench.lab.on_server(program), &[serving, &["-p", &port]].concat())?;
    let role: &[&str] = if role.is_empty() { &[] } else { &[role] };
    let printed = bench.client(program, &[role, calling, &["-p", &port, option, &address]].concat())?;
    server.succeed()?;
    Ok(printed)
}

/// One of perftest's programs, both sides with the same options; its last line of numbers.
fn perftest(bench: &Bench, program: &str, options: &[&str]) -> Outcome {
    let port = bench.port();
    // GID index; no complaint about the frequency of the processor.
    let common = [&["-p", &port, "-x", "1", "-F"][..], options].concat();
    let mut server = bench.server(bench.lab.on_server(program), &common)?;
    let printed = bench.client(program, &[&common[..], &[&bench.address()]].concat())?;
    server.succeed()?;
    result_line(program, &printed)
}

/// What the last line of numbers of one of perftest's programs has.
pub(crate) fn result_line(program: &str, printed: &str) -> Outcome {
    let numbers = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.len() > 3 && words.iter().all(|word| word.parse::<f64>().is_ok())
    };
    let last = printed.lines().rfind(numbers).ok_or(format!("{program} printed no result:\n{printed}"))?;
    let words: Vec<&str> = last.split_whitespace().collect();
    Ok(match program.ends_with("_lat") {
        true => format!("{} bytes: {} us", words[0], words[4]),
        false => format!("{} bytes: {} MB/s", words[0], words[3]),
    })
}
