//! Generator of a scenario from a seed: small and large, gentle and rough, so that each corner is met often.
use crate::plan::{
    Aim, AimAt, AppPlan, CallPlan, Cut, Ending, HostPlan, Jump, Kill, ListenPlan, Midst, Plan, Script, Takeover, Turns,
};
use crate::random::Random;
use crate::rdma;
use crate::zeronic;
use control::TcpConfig;
use engine::Backend;
use engines::{EngineKind, Mapping};
use port::FabricConfig;
use tcp::congestion::KINDS;

/// Most bytes that the applications of a generated scenario send in all.
const MOST_BYTES: u64 = 600_000;

/// The smallest receive buffer whose window does not fit into 16 bits.
const SCALED: u32 = 128 << 10;

/// A scenario of ZeroNIC hosts alone, on the network of the seed's scenario.
pub fn generate_talks(seed: u64) -> Plan {
    let mut plan = generate(seed);
    zeronic::draw::draw(&mut plan);
    plan.leave_talks();
    plan
}

/// The scenario of a seed, all of whose hosts have this engine, if one is named.
pub fn generate_on(seed: u64, engine: Option<EngineKind>) -> Plan {
    let mut plan = scenario(seed);
    if let Some(engine) = engine {
        plan.hosts.iter_mut().for_each(|host| host.engine = engine);
    }
    choose_families(&mut plan);
    choose_nagle(&mut plan);
    choose_tcp(&mut plan);
    choose_lines(&mut plan);
    plan
}

/// The scenario of a seed.
pub fn generate(seed: u64) -> Plan {
    generate_on(seed, None)
}

/// All of a scenario but the families of its calls, which depend on its hosts' versions of IP.
fn scenario(seed: u64) -> Plan {
    let mut random = Random::new(seed);
    let random = &mut random;
    let hosts: Vec<HostPlan> = (0..random.spread(2, 6)).map(|_| host(random)).collect();
    let fabric = fabric(random);
    let rough = random.one_in(3);
    let apps: Vec<AppPlan> = (0..random.between(2, 5))
        .map(|index| {
            app(
                random,
                if index < 2 { index as usize } else { random.clone().up_to(hosts.len() as u64 - 1) as usize },
                rough,
            )
        })
        .collect();
    let listens: Vec<ListenPlan> =
        (0..random.spread(1, 4)).map(|index| listen(random, index, apps.len(), rough)).collect();
    let listens = share_ports(random, &apps, listens);
    let mut left = random.spread(20_000, MOST_BYTES);
    if random.one_in(30) {
        left *= 10;
    }
    let calls = (0..random.spread(1, 4)).map(|_| call(random, &apps, &listens, &hosts, rough, &mut left)).collect();
    let cuts = if random.one_in(8) { vec![cut(random, hosts.len())] } else { Vec::new() };
    let mut hosts = hosts;
    hosts.iter_mut().for_each(|host| host.mtu = host.mtu.min(fabric.mtu));
    let (jumps, takeovers, kills) = (Vec::new(), Vec::new(), Vec::new());
    let (links, talks, aim) = (Vec::new(), Vec::new(), aim(random));
    let mut plan = Plan { seed, aim, fabric, hosts, apps, listens, calls, links, talks, cuts, jumps, takeovers, kills };
    separate_ports(&mut plan);
    widen_backlogs(&mut plan);
    fill_tables(random, &mut plan);
    leap(random, &mut plan);
    take_over(random, &mut plan);
    send_cookies(random, &mut plan);
    plan.apps.iter_mut().for_each(|app| app.rests = random.one_in(5));
    plan.hosts.iter_mut().for_each(|host| share_memory(random, host));
    rdma::draw::draw(&mut plan);
    kill(random, &mut plan);
    plan
}

/// A third of the calls are over IPv6, where both hosts have it. All else about a scenario is as without.
fn choose_families(plan: &mut Plan) {
    let mut random = Random::new(plan.seed ^ u64::from(u32::from_be_bytes(*b"IPv6")));
    for at in 0..plan.calls.len() {
        let call = &plan.calls[at];
        let ends = [plan.apps[call.app].host, plan.apps[plan.listens[call.to].app].host];
        plan.calls[at].v6 = random.one_in(3) && ends.into_iter().all(|host| plan.speaks_v6(host));
    }
}

/// Every third host collects short segments. What else a seed decides does not depend on it.
fn choose_nagle(plan: &mut Plan) {
    let mut random = Random::new(plan.seed ^ u64::from(u32::from_be_bytes(*b"Nagl")));
    plan.hosts.iter_mut().for_each(|host| host.nagle = random.one_in(3));
}

/// Every fourth host is without some of TCP's options, or receives as FlexTOE did when it was published. What else a
/// seed decides does not depend on it.
fn choose_tcp(plan: &mut Plan) {
    let mut random = Random::new(plan.seed ^ u64::from(u32::from_be_bytes(*b"Opts")));
    for host in &mut plan.hosts {
        let [sack, timestamps, delayed_acks] = [(); 3].map(|()| random.one_in(2));
        let intervals = random.pick(&[0, 1, 1, 2, 32]);
        if random.one_in(4) {
            host.tcp = TcpConfig { sack, timestamps, delayed_acks, intervals, ..TcpConfig::default() };
        }
    }
}

/// Of some hosts that place payload, the flow table has fewer lines than there are connections.
fn choose_lines(plan: &mut Plan) {
    let mut random = Random::new(plan.seed ^ u64::from(u32::from_be_bytes(*b"Line")));
    for host in &mut plan.hosts {
        let lines = random.pick(&[0, 0, 1, 4]);
        host.lines = if host.engine.lands_directly() { lines } else { 0 };
    }
}

/// Mostly the default engine.
fn engine(random: &mut Random) -> EngineKind {
    match EngineKind::ALL {
        [_, only] if random.one_in(4) => *only,
        [_, others @ ..] if others.len() > 1 && random.one_in(4) => random.pick(others),
        _ => EngineKind::ALL[0],
    }
}

fn host(random: &mut Random) -> HostPlan {
    let tiny = random.one_in(5);
    let slots = random.pick(&[2, 8, 64, 64, 256]);
    let large = if tiny { 1 } else { random.between(0, if slots > 64 { 3 } else { 8 }) };
    HostPlan {
        engine: engine(random),
        backend: Backend::Native,
        mapping: mapping(random),
        mtu: if random.one_in(6) { random.between(576, 1500) as u16 } else { 0 },
        rx_bytes: 4096 << random.up_to(large),
        tx_bytes: 4096 << random.up_to(large),
        long_path_bytes: 0,
        most_bytes: 0,
        context_bytes: 0,
        small_bytes: 0,
        slots,
        flows: 1024,
        max_time_wait: 1024,
        data_entries: random.pick(&[64, 64, 1024]),
        control_entries: random.pick(&[64, 64, 1024]),
        ecn: random.one_in(2),
        nagle: false,
        tcp: TcpConfig::default(),
        lines: 0,
        congestion: random.pick(&congestion_names()).into(),
        min_rto_ms: random.pick(&[1, 10, 10, 200]),
        max_rto_ms: random.pick(&[500, 2000, 4000]),
        time_wait_ms: random.pick(&[1, 100, 10_000]),
        poll_ns: random.pick(&[200, 2_000, 20_000]),
        stall: random.pick(&[0.0, 0.0, 0.001, 0.02]),
        stall_ns: random.pick(&[100_000, 15_000_000]),
        burst: random.pick(&[1, 8, 64, 256]),
        syn_backlog: None,
        selective_repeat: false,
        spray: 0,
        dcqcn_bps: 0,
    }
}

/// Some hosts have full buffers for an application's first connections only.
fn share_memory(random: &mut Random, host: &mut HostPlan) {
    if random.one_in(3) {
        host.context_bytes = u64::from(host.rx_bytes + host.tx_bytes) << random.up_to(3);
    }
    if random.one_in(2) {
        host.long_path_bytes = host.rx_bytes.max(host.tx_bytes) << random.up_to(5);
    }
    if random.one_in(2) {
        // The least ones are outgrown most often.
        if !random.one_in(3) {
            (host.rx_bytes, host.tx_bytes) = (4096, 4096);
        }
        host.most_bytes = host.rx_bytes.max(host.tx_bytes) << random.between(1, 4);
    }
    // Fits every buffer there is.
    host.small_bytes = if random.one_in(4) { 0 } else { 2048 };
}

fn mapping(random: &mut Random) -> Mapping {
    if !random.one_in(3) {
        return Mapping::default();
    }
    let mut replicas = || random.between(1, 3) as u8;
    Mapping { threads: true, preprocess: replicas(), flow_groups: replicas(), postprocess: replicas(), dma: replicas() }
}

fn fabric(random: &mut Random) -> FabricConfig {
    let mut fabric = FabricConfig { mtu: random.pick(&[576, 1500, 1500, 9000]), ..FabricConfig::default() };
    fabric.delay_ns = random.pick(&[0, 1_000, 50_000, 1_000_000, 20_000_000]);
    if random.one_in(4) {
        return fabric;
    }
    let some = |random: &mut Random, most: f64| if random.one_in(3) { random.unit() * most } else { 0.0 };
    fabric.jitter_ns = if random.one_in(3) { random.spread(1000, 2_000_000) } else { 0 };
    fabric.loss = some(random, 0.1);
    fabric.burst_begin = some(random, 0.02);
    fabric.burst_end = 0.25 + random.unit() * 0.7;
    fabric.reorder = some(random, 0.2);
    fabric.reorder_delay_ns = random.spread(1000, 5_000_000);
    fabric.duplicate = some(random, 0.1);
    fabric.corrupt = some(random, 0.05);
    fabric.rate_bps = if random.one_in(3) { random.spread(20_000_000, 10_000_000_000) } else { 0 };
    fabric.ecn_threshold_bytes = if random.one_in(3) { random.spread(3000, 200_000) } else { 0 };
    fabric.buffer_bytes = random.spread(65_535, 16 << 20);
    fabric
}

fn app(random: &mut Random, host: usize, rough: bool) -> AppPlan {
    AppPlan {
        host,
        latency_us: random.pick(&[0, 1, 20, 1000]),
        crash_us: (rough && random.one_in(6)).then(|| random.spread(10, 200_000)),
        fork_us: random.one_in(8).then(|| random.spread(10, 100_000)),
        parent_leaves: random.one_in(2),
        rests: false,
    }
}

fn listen(random: &mut Random, index: u64, apps: usize, rough: bool) -> ListenPlan {
    ListenPlan {
        app: random.up_to(apps as u64 - 1) as usize,
        port: 5000 + index as u16,
        backlog: random.pick(&[1, 4, 128]),
        credits: random.pick(&[1, 4, 256]),
        close_us: (rough && random.one_in(5)).then(|| random.spread(10, 200_000)),
        reuse_port: false,
    }
}

/// Some listeners share the port of an earlier one on the same host.
fn share_ports(random: &mut Random, apps: &[AppPlan], mut listens: Vec<ListenPlan>) -> Vec<ListenPlan> {
    for index in 1..listens.len() {
        let host = |listen: &ListenPlan| apps[listen.app].host;
        let earlier = (0..index).find(|other| host(&listens[*other]) == host(&listens[index]));
        if let (Some(other), true) = (earlier, random.one_in(2)) {
            listens[index].port = listens[other].port;
            listens[index].reuse_port = true;
            listens[other].reuse_port = true;
        }
    }
    listens
}

fn call(
    random: &mut Random,
    apps: &[AppPlan],
    listens: &[ListenPlan],
    hosts: &[HostPlan],
    rough: bool,
    left: &mut u64,
) -> CallPlan {
    let to = random.up_to(listens.len() as u64 - 1) as usize;
    let app = random.up_to(apps.len() as u64 - 1) as usize;
    let storm = random.one_in(12);
    let count = if storm { random.spread(100, 400) as u32 } else { random.pick(&[1, 1, 2, 8, 30, 60]) };
    // One that also accepts must not fill its own slots with connections to itself.
    let accepts = listens.iter().any(|listen| listen.app == app);
    let slots = hosts[apps[app].host].slots / if accepts { 2 } else { 1 };
    let share = if storm { 100 } else { (*left / u64::from(count)).max(1) };
    let (mut client, mut server) = (script(random, share), script(random, share));
    let turns = random.one_in(3).then(|| turns(random, &mut client, &mut server));
    *left = left.saturating_sub((client.send + server.send) * u64::from(count)).max(1000);
    endings(random, &mut client, &mut server, rough);
    CallPlan {
        app,
        to,
        count,
        parallel: if storm { count } else { random.pick(&[1, 2, count]) }.min(if accepts { slots } else { slots + 1 }),
        start_us: random.spread(1, 50_000),
        gap_us: if storm { 0 } else { random.pick(&[0, 10, 1000]) },
        bind: if random.one_in(6) && !storm && !gives_up(&client) { 7000 } else { 0 },
        v6: false,
        turns,
        client,
        server,
    }
}

fn gives_up(script: &Script) -> bool {
    matches!(script.ending, Ending::Abort { .. } | Ending::Leave { .. })
}

fn script(random: &mut Random, share: u64) -> Script {
    let slow = random.one_in(5);
    Script {
        send: if random.one_in(4) { 0 } else { random.spread(1, share) },
        write: random.pick(&[100, 1448, 10_000, 1 << 20]),
        write_gap_us: if slow { random.pick(&[10, 500]) } else { 0 },
        read: random.pick(&[100, 1448, 10_000, 1 << 20]),
        read_gap_us: if random.one_in(5) { random.pick(&[10, 500]) } else { 0 },
        keepalive: random.one_in(5),
        ending: Ending::Close,
    }
}

/// Makes both sides take turns.
fn turns(random: &mut Random, client: &mut Script, server: &mut Script) -> Turns {
    let rounds = random.spread(1, 30);
    let request = (client.send / rounds).max(1);
    let response = (server.send / rounds).max(1);
    client.send = request * rounds;
    server.send = response * rounds;
    Turns { request, response }
}

fn endings(random: &mut Random, client: &mut Script, server: &mut Script, rough: bool) {
    let all = client.send + server.send;
    let one = |random: &mut Random| match random.up_to(if rough { 7 } else { 5 }) {
        0..=2 => Ending::Shutdown,
        3 | 4 => Ending::Close,
        5 => Ending::AfterPeer,
        6 => Ending::Abort { after: random.up_to(all) },
        _ => Ending::Leave { after: random.up_to(all) },
    };
    client.ending = one(random);
    server.ending = one(random);
    // Somebody has to begin.
    if client.ending == Ending::AfterPeer && !matches!(server.ending, Ending::Shutdown | Ending::Close) {
        client.ending = Ending::Shutdown;
    }
    if server.ending == Ending::AfterPeer && !matches!(client.ending, Ending::Shutdown | Ending::Close) {
        server.ending = Ending::Shutdown;
    }
}

fn cut(random: &mut Random, hosts: usize) -> Cut {
    let from_us = random.spread(10, 100_000);
    let host = random.up_to(hosts as u64 - 1) as usize;
    Cut { host, from_us, until_us: from_us + random.spread(100, 3_000_000) }
}

/// A clock that leaps ahead ends TIME-WAIT early, which is there so that ports are not used again too soon.
fn leap(random: &mut Random, plan: &mut Plan) {
    if random.one_in(10) && plan.calls.iter().all(|call| call.bind == 0) {
        let host = random.up_to(plan.hosts.len() as u64 - 1) as usize;
        // Not so far that a fork or a connection being closed would rightly be given up.
        let most = if plan.apps.iter().any(|app| app.fork_us.is_some()) { 2_000 } else { 20_000 };
        let by_ms = random.spread(1, most) as i64;
        let by_ms = if random.one_in(3) { -by_ms } else { by_ms };
        plan.jumps.push(Jump { host, at_us: random.spread(10, 200_000), by_ms });
    }
}

/// Other daemons take hosts over, one to four times.
fn take_over(random: &mut Random, plan: &mut Plan) {
    if !random.one_in(6) {
        return;
    }
    for _ in 0..random.spread(1, 4) {
        let (mut host, mut at_us) = (random.up_to(plan.hosts.len() as u64 - 1) as usize, random.spread(10, 200_000));
        // Every other one in the middle of something, and with what is on its way.
        if random.one_in(2) {
            let call = &plan.calls[random.up_to(plan.calls.len() as u64 - 1) as usize];
            let app = if random.one_in(2) { call.app } else { plan.listens[call.to].app };
            (host, at_us) = (plan.apps[app].host, call.start_us + random.spread(1, 50_000));
        }
        let with = random.pick(&[None, Some(Midst::Unacknowledged), Some(Midst::Unread)]);
        let (refused, loses) = (random.one_in(4), random.one_in(2));
        let lost_us = if loses { random.spread(10, 100_000) } else { 0 };
        plan.takeovers.push(Takeover { host, at_us, with, refused, lost_us });
    }
}

/// Hosts are killed, one to six times: those whose programs have only connections of their own, and no RDMA.
fn kill(random: &mut Random, plan: &mut Plan) {
    if !random.one_in(4) {
        return;
    }
    for _ in 0..random.spread(1, 6) {
        let call = &plan.calls[random.up_to(plan.calls.len() as u64 - 1) as usize];
        let app = if random.one_in(2) { call.app } else { plan.listens[call.to].app };
        let (host, at_us) = (plan.apps[app].host, call.start_us + random.spread(1, 20_000));
        // Most in the middle of something: otherwise the time may come when all is over.
        let with = random.pick(&[None, Some(Midst::Unacknowledged), Some(Midst::Unread), Some(Midst::Unread)]);
        let (back_us, apart_us, loses) = (random.spread(1, 1_000_000), random.spread(1, 50_000), random.one_in(2));
        let lost_us = if loses { random.spread(10, 100_000) } else { 0 };
        let has_links = plan.links.iter().any(|link| link.hosts.contains(&host));
        if has_links {
            continue;
        }
        // What several processes have ends with its host.
        plan.apps.iter_mut().filter(|app| app.host == host).for_each(|app| app.fork_us = None);
        plan.kills.push(Kill { host, at_us, with, back_us, apart_us, lost_us });
    }
}

/// Hosts that remember few handshakes. A connection that came to be by a cookie exists for its client first, so its
/// client has to be the one that sends something. Or both wait for ever, without a fault.
fn send_cookies(random: &mut Random, plan: &mut Plan) {
    for index in 0..plan.hosts.len() {
        // A cookie is good for a time, by this host's clock.
        let steady = !plan.jumps.iter().any(|jump| jump.host == index && jump.by_ms < 0);
        let mine: Vec<usize> =
            (0..plan.listens.len()).filter(|it| plan.apps[plan.listens[*it].app].host == index).collect();
        if mine.is_empty() || !steady || !random.one_in(3) {
            continue;
        }
        // What waits for room for longer than a cookie is good for is refused, and rightly.
        let most = plan.calls.iter().filter(|call| mine.contains(&call.to)).map(|call| call.count).sum::<u32>();
        let host = &mut plan.hosts[index];
        if host.slots.min(host.flows) <= 2 * most {
            continue;
        }
        // Every other time all handshakes, from clients whose windows need a scale, which a cookie has to remember.
        let scaled = random.one_in(2);
        host.syn_backlog = Some(if scaled { 0 } else { random.pick(&[0, 1, 4]) });
        for number in &mine {
            let listen = &mut plan.listens[*number];
            (listen.backlog, listen.credits) = (listen.backlog.max(most + 1), listen.credits.max(most + 1));
        }
        for call in plan.calls.iter_mut().filter(|call| mine.contains(&call.to)) {
            call.client.send = call.client.send.max(1);
            // What its server has reset comes to be once more with a late acknowledgement, while the cookie is good:
            // the next one from the same port would be the same to the simulation.
            if gives_up(&call.server) {
                call.bind = 0;
            }
            let client = &mut plan.hosts[plan.apps[call.app].host];
            if scaled {
                client.rx_bytes = client.rx_bytes.max(SCALED << if client.slots > 64 { 0 } else { random.up_to(3) });
            }
        }
    }
}

fn aim(random: &mut Random) -> Option<Aim> {
    let at = random.pick(&[
        None,
        None,
        None,
        Some(AimAt::ClientSequence),
        Some(AimAt::ServerSequence),
        Some(AimAt::ClientTimestamp),
    ])?;
    let before = if at == AimAt::ClientTimestamp { random.up_to(50) } else { random.spread(1, 100_000) };
    Some(Aim { at, before: before as u32 })
}

/// Many clients of a listener with a short backlog are accepted one after the other, each when its SYN-ACK is sent
/// again. Whoever has closed meanwhile is given up after a minute, and rightly: so they do not wait that long.
fn widen_backlogs(plan: &mut Plan) {
    for (index, listen) in plan.listens.iter_mut().enumerate() {
        let at_once: u32 = plan.calls.iter().filter(|call| call.to == index).map(|call| call.parallel).sum();
        listen.backlog = listen.backlog.max(at_once / 8);
    }
}

/// Hosts that only accept may have small tables: others could fill theirs with what waits for each other.
fn fill_tables(random: &mut Random, plan: &mut Plan) {
    let callers: Vec<usize> = plan.calls.iter().map(|call| plan.apps[call.app].host).collect();
    for (index, host) in plan.hosts.iter_mut().enumerate() {
        if !callers.contains(&index) && random.one_in(3) {
            host.flows = random.pick(&[2, 16]);
        }
    }
}

/// Two groups of connections cannot use one local port at the same time.
fn separate_ports(plan: &mut Plan) {
    for (index, call) in plan.calls.iter_mut().enumerate().filter(|(_, call)| call.bind > 0) {
        call.bind += index as u16;
        call.parallel = 1;
        // TIME-WAIT is there so that the same ports are not used again while the peer may wait for an acknowledgement.
        plan.hosts.iter_mut().for_each(|host| host.time_wait_ms = host.time_wait_ms.max(10_000));
    }
}

/// Each policy, and the host's default more often.
fn congestion_names() -> Vec<&'static str> {
    ["", ""].into_iter().chain(KINDS.iter().map(|kind| kind.name)).collect()
}
