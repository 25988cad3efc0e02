//! The event loop: virtual time goes from one event to the next, and nothing else decides anything.
use crate::app::{App, Purpose};
use crate::caller::Caller;
use crate::host::SimHost;
use crate::killed::Kills;
use crate::pair::{Pair, SideState};
use crate::plan::{AimAt, Plan};
use crate::random::Random;
use crate::rdma::device::SharedDevice;
use crate::rdma::link::Link;
use crate::rdma::plan::LinkPlan;
use crate::replies::GIVEN_UP;
use crate::scene::{Figures, Listening, Scene};
use crate::zeronic::talk::Talk;
use context::Request;
use port::{Capture, Fabric, FabricConfig, Nanos};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use trace::Traces;

/// Virtual time at which scenarios start, unless they aim at something.
const BASE: Nanos = 1_000_000_000_000;
/// Rounds of all hosts and applications in which nothing is read and no connection ends, after which a scenario counts
/// as endless.
const MOST_STEPS: u64 = 3_000_000;
const SECOND: Nanos = 1_000_000_000;

/// Why a scenario failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Virtual time since the start, nanoseconds.
    pub at: Nanos,
    /// What is wrong.
    pub what: String,
}

impl Failure {
    /// The words of its first part without numbers: equal for failures that are alike.
    pub fn kind(&self) -> String {
        let first = self.what.split('(').next().unwrap_or_default();
        first.chars().filter(|c| !c.is_ascii_digit()).take(60).collect()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "after {}.{:06} virtual s: {}", self.at / SECOND, self.at % SECOND / 1000, self.what)
    }
}

/// Runs a scenario to its end.
pub fn run(plan: &Plan) -> Result<Figures, Failure> {
    run_recorded(plan, Record::default())
}

/// What is recorded of a run.
#[derive(Default)]
pub struct Record<'r> {
    /// A line for each of the last segments is left there.
    pub trace: Option<&'r mut Vec<String>>,
    /// Frames are written there as hosts send them: those that the network loses, too.
    pub capture: Option<Capture>,
}

/// The same, with a record.
pub fn run_recorded(plan: &Plan, record: Record<'_>) -> Result<Figures, Failure> {
    let Record { trace, capture } = record;
    let failed = |what| Failure { at: 0, what };
    plan.check().map_err(failed)?;
    let mut start = BASE;
    if plan.aim.is_some() {
        start = aimed_start(plan).map_err(failed)?;
    }
    let mut world = World::new(plan, start, None).map_err(failed)?;
    (world.scene.inspector.tracing, world.scene.inspector.capture) = (trace.is_some(), capture);
    if trace.is_some() {
        world.talks.iter().for_each(Talk::keep_trace);
    }
    let result = world.run().map_err(|what| Failure { at: world.now - start, what });
    if let Some(trace) = trace {
        trace.extend(world.scene.inspector.trace.drain(..));
        world.talks.iter().for_each(|talk| trace.extend(talk.trace()));
    }
    result
}

/// As [`run`]; all hosts write to these tracepoints.
pub fn run_watched(plan: &Plan, traces: &Traces) -> Result<Figures, Failure> {
    let failed = |what| Failure { at: 0, what };
    plan.check().map_err(failed)?;
    let mut world = World::new(plan, BASE, Some(traces)).map_err(failed)?;
    world.run().map_err(|what| Failure { at: world.now - BASE, what })
}

/// What is wrong in [`run_lying`].
#[cfg(test)]
pub(crate) enum Lying {
    /// In the first link of RDMA programs.
    Rdma(Option<crate::rdma::judge::Lie>),
    /// In the first talk of ZeroNIC hosts.
    Zeronic(Option<crate::zeronic::judge::Lie>),
}

/// As [`run`], with something wrong.
#[cfg(test)]
pub(crate) fn run_lying(plan: &Plan, lie: Lying) -> Result<Figures, Failure> {
    let failed = |what| Failure { at: 0, what };
    let mut world = World::new(plan, BASE, None).map_err(failed)?;
    match lie {
        Lying::Rdma(lie) => world.links[0].judge.lie = lie,
        Lying::Zeronic(lie) => world.talks[0].lie = lie,
    }
    world.run().map_err(|what| Failure { at: world.now - BASE, what })
}

/// The start at which the number that the plan aims at is where it should be: found by looking where it is when the
/// same scenario starts at another time.
fn aimed_start(plan: &Plan) -> Result<Nanos, String> {
    let Some(aim) = plan.aim else { return Ok(BASE) };
    let mut world = World::new(plan, BASE, None)?;
    let index = usize::from(aim.at == AimAt::ServerSequence);
    while world.scene.inspector.first[index].is_none() {
        // A scenario that fails before it gets there fails again without aim.
        if world.now > BASE + 60 * SECOND || !matches!(world.step(), Ok(true)) {
            return Ok(BASE);
        }
    }
    let Some((isn, stamp)) = world.scene.inspector.first[index] else { return Ok(BASE) };
    let missing = |value: u32| Nanos::from(0u32.wrapping_sub(aim.before).wrapping_sub(value));
    Ok(match aim.at {
        // RFC 6528's clock ticks each 4 microseconds, that of timestamps each millisecond.
        AimAt::ClientSequence | AimAt::ServerSequence => BASE + missing(isn.0) * 4_000,
        AimAt::ClientTimestamp => BASE + missing(stamp) * 1_000_000,
    })
}

/// Everything that is simulated.
struct World {
    now: Nanos,
    start: Nanos,
    scene: Scene,
    hosts: Vec<SimHost>,
    apps: Vec<App>,
    links: Vec<Link>,
    talks: Vec<Talk>,
    /// Crashes to come: when, and which application of the plan.
    crashes: Vec<(Nanos, usize)>,
    kills: Kills,
    random: Random,
    /// Rounds since the last progress, and what had been done then.
    steps: u64,
    done: u64,
    next_check: Nanos,
    time_limit: Nanos,
    next_pid: u32,
}

impl World {
    fn new(plan: &Plan, start: Nanos, traces: Option<&Traces>) -> Result<World, String> {
        let mut random = Random::new(plan.seed);
        let fabric = Fabric::new(FabricConfig { seed: random.bits(), ..plan.fabric.clone() });
        let hosts = (0..plan.hosts.len()).map(|index| SimHost::new(plan, index, start, &fabric, (traces, &mut random)));
        let hosts: Vec<SimHost> = hosts.collect::<Result<_, String>>()?;
        let scene = Scene {
            plan: Arc::new(plan.clone()),
            start,
            pairs: Vec::new(),
            listening: vec![Listening::Before; plan.listens.len()],
            unknown_since: BTreeMap::new(),
            inspector: Default::default(),
            figures: Figures::default(),
        };
        let crash = |(index, app): (usize, &crate::plan::AppPlan)| Some((start + app.crash_us? * 1000, index));
        let crashes = plan.apps.iter().enumerate().filter_map(crash).collect();
        let time_limit = time_limit(plan);
        let mut world = World {
            now: start,
            start,
            scene,
            hosts,
            apps: Vec::new(),
            links: Vec::new(),
            talks: Vec::new(),
            crashes,
            kills: Kills::new(&plan.kills, start),
            random,
            steps: 0,
            done: 0,
            next_check: start + time_limit / 4,
            time_limit,
            next_pid: 100,
        };
        for (index, app) in plan.apps.iter().enumerate() {
            let (context, end) = world.hosts[app.host].attach(start, world.next_pid, None)?;
            world.next_pid += 1;
            let mut app = App::new(index, app.host, context, end, Caller::new(plan, index, start));
            app.listen(&world.scene);
            world.apps.push(app);
        }
        world.links = links(plan, start, &mut world.hosts)?;
        let talks = (0..plan.talks.len()).map(|index| Talk::new(plan, index, start, &fabric));
        world.talks = talks.collect::<Result<_, String>>()?;
        Ok(world)
    }

    fn run(&mut self) -> Result<Figures, String> {
        let over = |world: &World| world.links.iter().all(Link::is_over) && world.talks.iter().all(Talk::is_over);
        while !self.apps.iter().all(App::is_idle) || !over(self) {
            if !self.step()? {
                self.wait_in_vain()?;
            }
        }
        self.wind_up()?;
        let (resent, spoiled) = (self.scene.inspector.resent, self.scene.figures.spoiled);
        if resent > 0 && spoiled == 0 && self.scene.plan.is_gentle() {
            return Err(format!("{resent} segments are sent again on a network that loses nothing"));
        }
        let cookies = self.hosts.iter().map(SimHost::cookies).sum();
        let (operations, renewed) =
            self.links.iter().fold((0, 0), |sum, link| (sum.0 + link.judged(), sum.1 + link.renewals));
        let figures = &mut self.scene.figures;
        (figures.operations, figures.renewed) = (operations, renewed);
        figures.cookies = cookies;
        figures.frames = self.scene.inspector.frames;
        figures.resent = self.scene.inspector.resent;
        figures.digest = self.scene.inspector.digest;
        figures.virtual_ns = self.now - self.start;
        for talk in &self.talks {
            let (frames, resent, digest) = talk.figures();
            figures.posts += talk.judged;
            (figures.frames, figures.resent) = (figures.frames + frames, figures.resent + resent);
            figures.digest = figures.digest.rotate_left(7) ^ digest;
        }
        Ok(*figures)
    }

    /// Nothing will happen by itself any more: impatience is all that is left.
    fn wait_in_vain(&mut self) -> Result<(), String> {
        self.now += self.time_limit + 1;
        self.next_check = self.now;
        self.check_progress()?;
        match self.next_event() {
            Nanos::MAX => Err(format!("everybody sleeps, but {}", self.unfinished())),
            _ => Ok(()),
        }
    }

    /// Listeners are closed, processes end, and after a while nothing must be left.
    fn wind_up(&mut self) -> Result<(), String> {
        self.kills.clear();
        for app in &mut self.apps {
            app.ending = true;
            app.wake_at = self.now + 1;
        }
        // A side that has just closed waits for the acknowledgement of its FIN, which may be lost.
        let end = self.now + self.time_limit;
        self.run_until(self.now + SECOND)?;
        while self.now < end && !self.apps.iter().all(App::is_idle) {
            self.run_until(self.now + SECOND)?;
        }
        for app in std::mem::take(&mut self.apps) {
            if !app.is_idle() {
                return Err(format!("application {} got something after its end", app.index));
            }
            self.hosts[app.host].detach(self.now, app.context);
        }
        let waits = self.scene.plan.hosts.iter().map(|host| Nanos::from(host.time_wait_ms)).max().unwrap_or(0);
        self.run_until(self.now + waits * 1_000_000 + self.time_limit)?;
        self.hosts.iter().try_for_each(|host| host.leftover(self.now, &self.scene.plan))?;
        let finish = |(index, talk): (usize, &mut Talk)| talk.finish().map_err(|what| format!("talk {index}: {what}"));
        self.talks.iter_mut().enumerate().try_for_each(finish)
    }

    fn run_until(&mut self, end: Nanos) -> Result<(), String> {
        while self.next_event() <= end {
            self.step()?;
        }
        self.now = end;
        Ok(())
    }

    /// Goes on to the next event; false where there is none.
    fn step(&mut self) -> Result<bool, String> {
        let next = self.next_event();
        if next == Nanos::MAX {
            return Ok(false);
        }
        let figures = &self.scene.figures;
        let judged = self.links.iter().map(Link::judged).chain(self.talks.iter().map(|talk| talk.judged)).sum::<u64>();
        let done = figures.bytes + figures.completed + figures.spoiled + judged;
        self.steps = if done == self.done { self.steps + 1 } else { 0 };
        self.done = done;
        if self.steps > MOST_STEPS {
            return Err(format!("no end in sight after {MOST_STEPS} rounds in vain: {}", self.unfinished()));
        }
        self.now = self.now.max(next);
        self.crash_if_due();
        self.kills.carry_out(self.now, &mut self.hosts, &mut self.apps, &mut self.scene)?;
        self.poll_hosts()?;
        self.act()?;
        for (index, talk) in self.talks.iter_mut().enumerate().filter(|(_, talk)| talk.next(self.now) <= self.now) {
            talk.step(self.now).map_err(|what| format!("talk {index}: {what}"))?;
        }
        self.check_progress()?;
        Ok(true)
    }

    fn next_event(&self) -> Nanos {
        let hosts = self.hosts.iter().map(|host| host.next(self.now));
        let apps = self.apps.iter().map(|app| app.wake_at);
        let crashes = self.crashes.iter().map(|(at, _)| *at);
        let links = self.links.iter().map(|link| link.wake_at);
        let talks = self.talks.iter().map(|talk| talk.next(self.now));
        hosts
            .chain(apps)
            .chain(crashes)
            .chain([self.kills.next()])
            .chain(links)
            .chain(talks)
            .min()
            .unwrap_or(Nanos::MAX)
    }

    fn poll_hosts(&mut self) -> Result<(), String> {
        let first = self.random.up_to(self.hosts.len() as u64 - 1) as usize;
        for offset in 0..self.hosts.len() {
            let index = (first + offset) % self.hosts.len();
            if self.hosts[index].next(self.now) <= self.now {
                self.hosts[index].poll(self.now, &mut self.scene).map_err(|what| format!("host h{index}: {what}"))?;
                self.deliver_mail(index);
            }
        }
        Ok(())
    }

    /// Applications to which a host left something act a little later.
    fn deliver_mail(&mut self, host: usize) {
        for app in self.apps.iter_mut().filter(|app| app.host == host && app.has_mail()) {
            let latency = self.scene.plan.apps[app.index].latency_us * 1000;
            app.wake_at = app.wake_at.min(self.now + 1 + latency);
        }
        for link in self.links.iter_mut().filter(|link| link.has_mail(host)) {
            link.wake_at = link.wake_at.min(self.now + 1 + link.latency());
        }
    }

    fn act(&mut self) -> Result<(), String> {
        for index in 0..self.apps.len() {
            let app = &mut self.apps[index];
            if app.wake_at > self.now {
                continue;
            }
            if app.away_until.is_some_and(|back| back <= self.now) {
                let host = &mut self.hosts[app.host];
                app.come_back(self.now, host, self.next_pid, &mut self.scene)?;
                self.next_pid += 1;
            }
            app.act(self.now, &mut self.scene).map_err(|what| format!("application {}: {what}", app.index))?;
            if let Some(token) = app.token.take() {
                self.fork(index, token)?;
            }
        }
        self.apps.retain(|app| !app.gone);
        for (index, link) in self.links.iter_mut().enumerate().filter(|(_, link)| link.wake_at <= self.now) {
            link.act(self.now).map_err(|what| format!("RDMA link {index}: {what}"))?;
            link.hosts().into_iter().for_each(|host| self.hosts[host].nudge());
        }
        Ok(())
    }

    /// A child attaches and takes the connections over.
    fn fork(&mut self, index: usize, token: u64) -> Result<(), String> {
        let host = self.apps[index].host;
        let (context, end) = self.hosts[host].attach(self.now, self.next_pid, Some(token))?;
        self.next_pid += 1;
        let parent = &mut self.apps[index];
        let mut child = App::new(parent.index, host, context, end, Caller::none());
        parent.hand_over(&mut child, self.now);
        for held in &child.held {
            self.scene.listener_comes(held.listen);
            child.outbox.push_back(Request::Arm { binding: held.binding, credits: held.credits });
        }
        child.wake_at = self.now + 1;
        if self.scene.plan.apps[parent.index].parent_leaves {
            self.kill(index);
        }
        self.apps.push(child);
        Ok(())
    }

    fn crash_if_due(&mut self) {
        let now = self.now;
        let (due, later): (Vec<_>, Vec<_>) = self.crashes.drain(..).partition(|(at, _)| *at <= now);
        self.crashes = later;
        for (_, planned) in due {
            for index in 0..self.apps.len() {
                if self.apps[index].index == planned {
                    self.kill(index);
                }
            }
        }
        self.apps.retain(|app| !app.gone);
    }

    /// A process is gone, with all that it had.
    fn kill(&mut self, index: usize) {
        let (app, scene) = (&mut self.apps[index], &mut self.scene);
        app.gone = true;
        // Closes that found no room are not known any more either.
        let (mute, plan) = (!app.outbox.is_empty(), Arc::clone(&scene.plan));
        for pair in scene.pairs.iter_mut().filter(|_| mute) {
            let call = &plan.calls[pair.call];
            for (side, owner) in [call.app, plan.listens[call.to].app].into_iter().enumerate() {
                pair.halves[side].unreported |= owner == app.index;
            }
            if pair.halves.iter().any(|half| half.unreported) && !pair.is_over() {
                pair.spoil("one side's process went");
            }
        }
        for (_, connection) in std::mem::take(&mut app.connections) {
            scene.pairs[connection.pair].spoil("one side's process went");
            connection.give_up(self.now, &mut scene.pairs[connection.pair]);
            scene.pairs[connection.pair].halves[connection.side].unreported = connection.dirty;
        }
        for (_, purpose) in std::mem::take(&mut app.purposes) {
            match purpose {
                Purpose::BindCall(pair) | Purpose::Connect(pair, _) => {
                    scene.pairs[pair].spoil("one side's process went");
                    scene.pairs[pair].halves[0].stage = SideState::Closed;
                }
                Purpose::Claim(connection) => {
                    scene.pairs[connection.pair].spoil("one side's process went");
                    connection.give_up(self.now, &mut scene.pairs[connection.pair]);
                }
                // The daemon may have done so already, and a connection may wait there.
                Purpose::Listen(listen, _) => scene.listener_goes(listen),
                _ => {}
            }
        }
        for pair in app.caller.forget() {
            scene.pairs[pair].spoil("one side's process went");
            scene.pairs[pair].halves.iter_mut().for_each(|half| half.stage = SideState::Closed);
        }
        for held in std::mem::take(&mut app.held) {
            scene.listener_goes(held.listen);
        }
        // What it was about to listen on, nobody will.
        for (listen, plan) in scene.plan.listens.iter().enumerate() {
            if plan.app == app.index && scene.listening[listen] == Listening::Before {
                scene.listening[listen] = Listening::Over;
            }
        }
        // The host that took the place of a killed one does not have its context.
        if app.away_until.is_none() {
            self.hosts[app.host].detach(self.now, app.context);
        }
    }

    /// Nothing that could go on stands still.
    fn check_progress(&mut self) -> Result<(), String> {
        if self.now < self.next_check {
            return Ok(());
        }
        self.next_check = self.now + self.time_limit / 4;
        let (now, time_limit) = (self.now, self.time_limit);
        let given_up = |pair: &&mut Pair| !pair.is_over() && pair.may_be_given_up(now);
        self.scene.pairs.iter_mut().filter(given_up).for_each(|pair| pair.spoil(GIVEN_UP));
        // A spoiled connection gives up before it would count as stuck: others may wait
        // for its place.
        let waits = |pair: &Pair| if pair.spoiled.is_some() { time_limit / 4 } else { time_limit };
        let plan = Arc::clone(&self.scene.plan);
        let mut served = vec![0; plan.listens.len()];
        for pair in &self.scene.pairs {
            let served = &mut served[plan.calls[pair.call].to];
            *served = pair.progress_at.max(*served);
        }
        // A connection that has no place yet waits for those with one, where a table or a backlog is small.
        let waits_outside = |pair: &Pair| pair.halves.iter().any(|half| half.stage == SideState::Waiting);
        let progress_at =
            |pair: &Pair| if waits_outside(pair) { served[plan.calls[pair.call].to] } else { pair.progress_at };
        let stands = |pair: &Pair| !pair.is_over() && now.saturating_sub(progress_at(pair)) > waits(pair);
        let still: Vec<usize> = (0..self.scene.pairs.len()).filter(|pair| stands(&self.scene.pairs[*pair])).collect();
        let (spoiled, sound): (Vec<usize>, Vec<usize>) =
            still.into_iter().partition(|pair| self.scene.pairs[*pair].spoiled.is_some());
        // The news that one side is gone may have been lost: TCP then waits for ever, people do not.
        let mut given_up = false;
        for pair in spoiled {
            for app in &mut self.apps {
                given_up |= app.give_up(now, &mut self.scene, pair);
            }
        }
        let open = |pair: &Pair| pair.spoiled.is_some() && pair.halves.iter().any(|half| half.stage == SideState::Open);
        if !given_up && !sound.is_empty() && !self.scene.pairs.iter().any(open) {
            let pair = &self.scene.pairs[sound[0]];
            let stages = [&pair.halves[0].stage, &pair.halves[1].stage];
            return Err(format!("stuck: {}, whose sides are {stages:?}: {}", pair.name(), self.unfinished()));
        }
        // They may wait for a slot or a place in a table that one of those has.
        if given_up {
            sound.into_iter().for_each(|pair| self.scene.pairs[pair].progress_at = now);
        }
        let still = |link: &&Link| !link.is_over() && now.saturating_sub(link.progress_at) > time_limit;
        if let Some(link) = self.links.iter().find(still) {
            return Err(format!("stuck: RDMA: {}", link.unfinished()));
        }
        let still = |talk: &&mut Talk| !talk.is_over() && now.saturating_sub(talk.progress_at) > time_limit;
        if let Some(talk) = self.talks.iter_mut().find(still) {
            return Err(format!("stuck: {}", talk.unfinished()));
        }
        for app in &self.apps {
            if let Some((_, (slot, _))) =
                app.closing.iter().find(|(_, (_, since))| now.saturating_sub(*since) > time_limit)
            {
                return Err(format!("application {}: slot {} is given up but never freed", app.index, slot.index));
            }
        }
        Ok(())
    }

    /// What is not done yet, for people.
    fn unfinished(&self) -> String {
        let mut lines = Vec::new();
        for app in self.apps.iter().filter(|app| !app.is_idle()) {
            lines.push(format!(
                "application {} on h{}: {} open, {} closing, {} requests unanswered, calls to begin: {}",
                app.index,
                app.host,
                app.connections.len(),
                app.closing.len(),
                app.purposes.len(),
                !app.caller.is_over()
            ));
            lines.extend(app.purposes.iter().take(3).map(|(tag, purpose)| format!("  tag {tag}: {purpose:?}")));
            lines.extend(app.connections.values().take(3).map(|connection| {
                let pair = &self.scene.pairs[connection.pair];
                format!("  {}: {:?}, now {:?}", pair.name(), connection, self.now)
            }));
        }
        for host in &self.hosts {
            lines.extend(host.host.base().flows().iter().take(4).map(|flow| format!("  {flow:?}")));
        }
        lines.extend(self.links.iter().filter(|link| !link.is_over()).map(Link::unfinished));
        lines.join("\n")
    }
}

/// The pairs of RDMA programs, and the devices of their hosts.
fn links(plan: &Plan, start: Nanos, hosts: &mut [SimHost]) -> Result<Vec<Link>, String> {
    if plan.links.is_empty() {
        return Ok(Vec::new());
    }
    let table = SharedDevice::table(plan.seed);
    for (index, host) in hosts.iter_mut().enumerate() {
        if plan.links.iter().any(|link| link.hosts.contains(&index)) {
            let mac = host.host.net().links()[0].mac;
            host.add_rdma(SharedDevice::new(plan, index, mac, &table)?)?;
        }
    }
    let device = |host: usize| hosts[host].rdma.clone().ok_or("a host without its device");
    let link = |(index, link): (usize, &LinkPlan)| {
        let devices = [device(link.hosts[0])?, device(link.hosts[1])?];
        Link::new(plan, index, start, devices, &table)
    };
    plan.links.iter().enumerate().map(link).collect()
}

/// How long nothing may happen on a connection: a hundred retransmission timeouts and more, and what the scenario
/// itself takes.
fn time_limit(plan: &Plan) -> Nanos {
    let of_talks = plan.talks.iter().flat_map(|talk| talk.sides.iter().map(|side| side.max_rto_ms));
    let rtos = plan.hosts.iter().map(|host| host.max_rto_ms).chain(of_talks);
    let rto = Nanos::from(rtos.max().unwrap_or(0)) * 1_000_000;
    let cuts = plan.cuts.iter().map(|cut| cut.until_us * 1000).max().unwrap_or(0);
    // A clock that leaps back stands still for as long.
    let back: Nanos = plan.jumps.iter().map(|jump| jump.by_ms.min(0).unsigned_abs() * 1_000_000).sum();
    120 * rto + cuts + back + 130 * SECOND
}
