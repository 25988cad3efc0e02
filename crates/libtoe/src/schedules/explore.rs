//! Exploration of orders: all that differ from the ordinary one at one step, and random ones.
use super::controller::{Act, Controller, LoopHost, Run, TIME_OVER, me};
use super::plan::{self, Plan};
use super::scenarios::{self, ALL, Scenario};
use crate::table::{self, Entry};
use context::attach::SOCKET_VARIABLE;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Most that time may leap in all: a follower naps for a millisecond at a time ([`crate::wait::follower`]).
const MOST_IDLE: Duration = Duration::from_millis(40);
/// The same for each daemon that dies: a program tries to attach to the next one after 20 ms.
const IDLE_OF_A_DEATH: Duration = Duration::from_millis(20);
/// How many random orders of each scenario: `SCHEDULES=20000` for more.
const RANDOM: u64 = 100;
/// Of the steps of the ordinary order, one of so many is tried as the one that differs: `SCHEDULES_EVERY=1` for all.
const EVERY: u32 = 6;

fn number(name: &str, ordinary: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(ordinary)
}

/// The library has one state for a process, so what is explored has a process of its own. `SCHEDULE=SCENARIO:PLAN` runs
/// one order, as a failure prints it; `SCHEDULES_OF=SCENARIO` those of one scenario.
#[test]
fn no_wake_up_is_lost_in_any_order() {
    alone("orders");
}

/// What the kernel wakes comes to look at once in those orders, but may come late under load.
#[test]
fn whoever_sees_the_end_of_the_daemon_wakes_the_others() {
    alone("sleepers");
}

/// Runs one of the tests below in a process of its own.
fn alone(test: &str) {
    let folder = std::env::temp_dir().join(format!("libtoe-{test}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut explorer = Command::new(std::env::current_exe().unwrap());
    explorer.args(["--exact", &format!("schedules::explore::{test}"), "--ignored", "--nocapture"]);
    let output = explorer.env(SOCKET_VARIABLE, folder.join("socket")).output().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && printed.contains("test result: ok. 1 passed"), "{printed}");
    println!("{printed}");
}

#[test]
#[ignore = "whoever_sees_the_end_of_the_daemon_wakes_the_others runs it in a process of its own"]
fn sleepers() {
    let path = std::env::var_os(SOCKET_VARIABLE).expect("the daemon's socket");
    let _host = LoopHost::start(path.as_ref());
    let (socket, member) = scenarios::pair();
    let set = scenarios::set_with(member);
    let [waits_for_socket, waits_for_set] = [(); 2].map(|()| scenarios::event());
    let mut lib = crate::lock::lock().unwrap();
    let Entry::Socket(index) = table::get(socket) else { panic!("no socket of ours") };
    lib.sockets.get_mut(index).unwrap().waiters.push(waits_for_socket);
    let (key, bells) = (lib.set_of(set).unwrap(), lib.link.bells());
    let set = lib.set(key).unwrap();
    set.waiters.push(waits_for_set);
    set.add_sleeper();
    let sleeps = set.make_sleep_set(bells).unwrap().set.fd();
    let awake = || [waits_for_socket, waits_for_set, sleeps].map(scenarios::is_readable);
    assert_eq!(awake(), [false; 3]);
    lib.daemon_died();
    assert_eq!(awake(), [true; 3], "whoever waits for the socket, for the set and others, and in the set");
}

#[test]
#[ignore = "no_wake_up_is_lost_in_any_order runs it in a process of its own"]
fn orders() {
    extern "C" fn nothing(_: libc::c_int) {}
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("thread {:?}: {panic}", me());
        std::process::abort();
    }));
    // SAFETY: a handler that does nothing; without SA_RESTART.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        libc::sigaction(TIME_OVER, &action, std::ptr::null_mut());
    }
    let path = std::env::var_os(SOCKET_VARIABLE).expect("the daemon's socket");
    let mut explorer = Explorer { host: LoopHost::start_with_tickets(path.as_ref()) };
    crate::daemon::attach::ensure(&mut crate::lock::lock().unwrap());
    explorer.host.pause();
    if let Ok(one) = std::env::var("SCHEDULE") {
        let (name, order) = one.split_once(':').unwrap();
        let scenario = ALL.iter().find(|scenario| scenario.name == name).unwrap();
        let run = explorer.run(scenario, &plan::read(order).unwrap());
        return println!("{} steps, {:?} idle", run.steps, run.idle);
    }
    let only = std::env::var("SCHEDULES_OF").unwrap_or_default();
    for scenario in ALL.iter().filter(|scenario| only.is_empty() || scenario.name == only) {
        println!("{} orders of {}", explorer.explore(scenario), scenario.name);
    }
}

struct Explorer {
    host: LoopHost,
}

impl Explorer {
    fn explore(&mut self, scenario: &Scenario) -> u64 {
        let ordinary = self.run(scenario, &Plan::Ordinary);
        let (mut orders, every) = (1, number("SCHEDULES_EVERY", EVERY.into()) as u32);
        for step in (0..ordinary.steps).step_by(every.max(1) as usize) {
            // Who goes first differs from step to step: as many choices as there turn out to be.
            let mut choice = 0;
            loop {
                let run = self.run(scenario, &Plan::At(vec![(step, choice)]));
                (choice, orders) = (choice + 1, orders + 1);
                if choice >= run.alternatives {
                    break;
                }
            }
        }
        let random = number("SCHEDULES", RANDOM);
        for seed in 0..random {
            self.run(scenario, &Plan::Random { seed, one_of: 2 << (seed % 5) });
        }
        orders + random
    }

    fn run(&mut self, scenario: &Scenario, plan: &Plan) -> Run {
        let made = Arc::new(Mutex::new(Vec::new()));
        let (make, makes) = (scenario.make, Arc::clone(&made));
        let setup: Act = Box::new(move || *makes.lock().unwrap() = make());
        let run = Controller::run(&mut self.host, vec![setup], &Plan::Ordinary);
        assert!(!run.stuck, "{} cannot make its sockets", scenario.name);
        let acts = std::mem::take(&mut *made.lock().unwrap());
        let run = Controller::run(&mut self.host, acts, plan);
        let name = scenario.name;
        assert!(!run.stuck, "SCHEDULE={name}:{plan}: everybody sleeps for ever");
        let most_idle = MOST_IDLE + IDLE_OF_A_DEATH * scenario.deaths;
        assert!(run.idle < most_idle, "SCHEDULE={name}:{plan}: nobody could run for {:?}", run.idle);
        assert_eq!(self.host.shown_now().connections, 0, "SCHEDULE={name}:{plan} leaves connections");
        run
    }
}
