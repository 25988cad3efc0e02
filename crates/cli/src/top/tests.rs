//! The layout at several sizes, the figures, and the keys, from answers as a daemon gives them.
use super::draw::{LEAST, Notes, draw};
use super::picture::Picture;
use super::sample::{Sample, add_modules, combine};
use super::state::{Next, State};
use crate::arguments::Sort;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Value, json};

const NOTES: Notes = Notes { interval: 1.0, colours: true, footer: "" };

fn flow(number: u64, port: u64, remote: &str, bytes: u64) -> Value {
    json!({
        "flow": number, "local": format!("10.77.0.2:{port}"), "remote": remote, "state": "ESTABLISHED", "pid": 41,
        "congestion": "dctcp", "mss": 1448, "cwnd": 14480 + number, "ssthresh": null, "rate": 0, "rtt_us": 35 + number,
        "rttvar_us": 4, "rto_us": 10_000, "ecn": true, "last_drop": "duplicate",
        "figures": {
            "rx_bytes": bytes, "tx_bytes": 10 * bytes, "retransmitted_segments": number, "fast_retransmits": 0,
            "snd_wnd": 262_144, "outstanding": 1448, "unsent": 0, "out_of_order": 2, "drops": 1,
        },
    })
}

fn host(name: &str, scale: u64, flows: Vec<Value>) -> Value {
    let module = |works: u64| json!({ "works": works * scale, "batches": works * scale / 8 });
    json!({
        "name": name, "engine": "flextoe", "thread": 0, "states": { "ESTABLISHED": flows.len() }, "flows": flows,
        "port": { "rx_frames": 1000 * scale, "rx_bytes": 1_000_000 * scale, "tx_frames": 0, "tx_bytes": 0 },
        "drops": { "fabric_loss": 20 * scale, "challenge_limit": 7 },
        "modules": {
            "preprocess": { "works": 4000 * scale, "batches": 500 * scale, "busy_ns": 250_000_000 * scale }, "protocol": module(4400), "postprocess": module(4400), "dma": module(4400),
            "context_queue": { "works": 0, "batches": 0, "waiting": 3 }, "scheduler": module(1200),
        },
    })
}

/// The daemon's answer when it has counted `scale` seconds of the same.
fn sample(scale: u64, hosts: usize, flows: u64) -> Sample {
    let of = |name: &str| {
        let many = (0..flows).map(|n| flow(n, 6379 + n, &format!("10.77.0.3:{}", 40_000 + n), 125 * scale * (n + 1)));
        host(name, scale, many.collect())
    };
    let names: Vec<String> = (0..hosts).map(|at| format!("h{at}")).collect();
    let stats = json!({
        "hosts": names.iter().map(|name| of(name)).collect::<Vec<_>>(),
        "threads": [{
            "thread": 0, "now_ns": (90_000 + scale) * 1_000_000_000, "cpu_ns": 530_000_000 * scale,
            "rounds": 1_000_000 * scale, "busy_rounds": 870_000 * scale, "asleep_ns": 120_000_000 * scale,
            "busy_ns": 430_000_000 * scale, "system_ns": 210_000_000 * scale,
        }],
    });
    let known = |name: &String| {
        json!({
            "name": name, "address": "10.77.0.2", "prefix_len": 24,
            "contexts": [{ "pid": 41, "command": "/usr/bin/redis-server *:6379" }],
        })
    };
    let ls = json!({ "version": "0.1.0", "pid": 7, "hosts": names.iter().map(known).collect::<Vec<_>>() });
    combine(stats, &ls).unwrap()
}

fn picture(hosts: usize, flows: u64) -> Picture {
    Picture::between(&sample(1, hosts, flows), &sample(2, hosts, flows))
}

fn screen(picture: &Picture, state: &State, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame.area(), frame.buffer_mut(), picture, state, &NOTES)).unwrap();
    super::lines_of(terminal.backend().buffer())
}

#[test]
fn eighty_columns_and_twenty_four_lines() {
    let lines = screen(&picture(1, 2), &State::default(), 80, 24);
    let wanted = "\
toed 0.1.0 (pid 7)  up 1d 01:00:02  every second  all hosts
thread 0  cpu  53%  kernel  21%  polling  10%  asleep  12%  1.0M rounds/s
HOST ADDRESS      ENGINE  FLOWS TIME-WAIT IN/s bit/s OUT/s bit/s DROPS/s
h0   10.77.0.2/24 flextoe     2         0 1.0k  8.0M     0     0      20
MODULE         WORKS/s  BATCH  LOAD  QUEUE   DROPPED            /s  TOTAL
preprocess        4.0k      8   25%      -   fabric_loss        20     40
protocol          4.4k      8     -      -   challenge_limit     0      7
postprocess       4.4k      8     -      -
dma               4.4k      8     -      -
context_queue        0      -     -      3
scheduler         1.2k      8     -      -
FLOW LOCAL   REMOTE          PROGRAM      STATE   IN  OUT  RTT CWND RETX CC
   1 h0:6380 10.77.0.3:40001 redis-server ESTAB 2.0k  20k 36us  14k    1 dctcp
   0 h0:6379 10.77.0.3:40000 redis-server ESTAB 1.0k  10k 35us  14k    0 dctcp







flow 1 of h0:  10.77.0.2:6380 to 10.77.0.3:40001  redis-server (pid 41)
dctcp slow start  in flight 1.4k, unsent 0  rtt ±4us, rto 10ms  fast retx 0  ecn
q quit  s sort: rate  h host  / filter  p pause  ? help";
    assert_eq!(lines.join("\n"), wanted, "\n{}", lines.join("\n"));
}

/// Whatever the size, each word is whole or not there, and the last line is where it belongs.
#[test]
fn no_size_cuts_anything_off() {
    for (hosts, flows) in [(1, 0), (1, 1), (2, 30), (9, 4)] {
        let picture = picture(hosts, flows);
        for width in (LEAST.0..200).step_by(7) {
            for height in (LEAST.1..70).step_by(9) {
                let lines = screen(&picture, &State::default(), width, height);
                assert!(lines[height as usize - 1].starts_with("q quit"), "{width}x{height}: {lines:#?}");
                for word in lines.iter().flat_map(|line| line.split_whitespace()) {
                    let cut = |whole: &str| word.len() > 4 && word != whole && whole.starts_with(word);
                    assert!(!cut("redis-server") && !cut("10.77.0.3:40000"), "{width}x{height}: {word}");
                }
                assert_eq!(lines.iter().filter(|line| line.starts_with("flow ")).count() as u64, flows.min(1));
            }
        }
    }
    let small = screen(&picture(1, 1), &State::default(), LEAST.0 - 1, LEAST.1);
    assert_eq!(small[0], "opentoe top needs 60 columns and 16 lines");
}

fn press(state: &mut State, picture: &Picture, code: KeyCode) -> Next {
    state.key(KeyEvent::new(code, KeyModifiers::NONE), picture)
}

fn shown(state: &State, picture: &Picture) -> Vec<(String, u32)> {
    state.flows(picture).iter().map(|row| (row.host.clone(), row.flow.unwrap())).collect()
}

#[test]
fn keys_choose_host_order_and_filter() {
    let picture = picture(2, 3);
    let mut state = State::default();
    let key = |state: &mut State, letter| assert_eq!(press(state, &picture, KeyCode::Char(letter)), Next::Stay);
    assert_eq!(shown(&state, &picture)[..2], [("h0".into(), 2), ("h1".into(), 2)], "the busiest first");
    key(&mut state, 'r');
    assert_eq!(shown(&state, &picture)[0], ("h1".into(), 0));
    key(&mut state, 'r');
    key(&mut state, 'h');
    assert_eq!(shown(&state, &picture), [("h0".into(), 2), ("h0".into(), 1), ("h0".into(), 0)]);
    key(&mut state, 'h');
    assert!(shown(&state, &picture).iter().all(|(host, _)| host == "h1"));
    key(&mut state, 'h');
    assert_eq!(shown(&state, &picture).len(), 6, "all of them again");
    (0..4).for_each(|_| key(&mut state, 's'));
    assert_eq!(state.sort, Sort::Flow);
    assert_eq!(shown(&state, &picture)[1], ("h0".into(), 1));
    "/40001 h1q".chars().for_each(|letter| key(&mut state, letter));
    assert!(shown(&state, &picture).is_empty());
    assert!(screen(&picture, &state, 80, 24)[23].starts_with("filter: 40001 h1q_"));
    press(&mut state, &picture, KeyCode::Backspace);
    assert_eq!(shown(&state, &picture), [("h1".into(), 1)]);
    press(&mut state, &picture, KeyCode::Enter);
    assert!(screen(&picture, &state, 80, 24)[23].contains("/ filter: 40001 h1"));
    press(&mut state, &picture, KeyCode::Esc);
    assert_eq!(shown(&state, &picture).len(), 6);
    key(&mut state, 'p');
    assert!(state.paused && screen(&picture, &state, 80, 24)[0].contains("PAUSED"));
    key(&mut state, '?');
    assert!(screen(&picture, &state, 80, 24).iter().any(|line| line.starts_with("RETX")));
    press(&mut state, &picture, KeyCode::Esc);
    assert!(!state.help);
    assert_eq!(press(&mut state, &picture, KeyCode::Char('q')), Next::Quit);
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(State { editing: true, ..State::default() }.key(interrupt, &picture), Next::Quit);
}

#[test]
fn the_selected_connection_is_in_sight_and_explained() {
    let picture = picture(1, 40);
    let mut state = State { sort: Sort::Flow, ..State::default() };
    for _ in 0..25 {
        press(&mut state, &picture, KeyCode::Down);
    }
    let lines = screen(&picture, &state, 80, 24);
    assert!(lines.iter().any(|line| line.starts_with("  25 h0:")), "{lines:#?}");
    assert!(lines[21].starts_with("flow 25 of h0:"), "{lines:#?}");
    for _ in 0..9 {
        press(&mut state, &picture, KeyCode::PageDown);
    }
    assert_eq!(state.selected, 39, "not beyond the last");
    assert!(screen(&picture, &state, 80, 24)[21].starts_with("flow 39 of h0:"));
}

#[test]
fn a_daemon_started_anew_and_one_without_time_have_no_rates() {
    let (before, now) = (sample(5, 1, 1), Sample { pid: 8, ..sample(1, 1, 1) });
    for picture in [Picture::between(&before, &now), Picture::between(&now, &now)] {
        assert_eq!((picture.hosts[0].rx_bits, picture.flows[0].rx_bits, picture.threads[0].cpu), (0.0, 0.0, 0.0));
        assert_eq!(picture.modules.iter().map(|row| row.works).sum::<f64>(), 0.0);
    }
}

#[test]
fn replicas_are_modules_and_hosts_are_added_up() {
    let picture = picture(3, 0);
    let modules = picture.modules_of(|_| true);
    assert_eq!(modules.iter().map(|row| row.name.as_str()).collect::<Vec<_>>()[..2], ["preprocess", "protocol"]);
    assert_eq!((modules[0].works, modules[4].waiting, modules[0].waiting), (12_000.0, Some(9), None));
    assert_eq!(picture.modules_of(|host| host == "h1")[0].works, 4_000.0);
    let (mut before, mut now) = (sample(1, 1, 0), sample(2, 1, 0));
    for (sample, runs) in [(&mut before, 100), (&mut now, 1_000_100)] {
        let firewall =
            json!({ "host": "h0", "name": "firewall", "stage": "ingress", "runs": runs, "ns_per_frame": 20.0 });
        add_modules(sample, &json!({ "modules": [firewall] }));
    }
    let modules = Picture::between(&before, &now).modules_of(|_| true);
    assert_eq!((modules[0].name.as_str(), modules[0].works, modules[0].load), ("ingress/firewall", 1e6, Some(0.02)));
    let drops = picture.drops_of(|_| true);
    assert_eq!((drops[0].reason.as_str(), drops[0].rate, drops[0].total), ("fabric_loss", 60.0, 120));
}
