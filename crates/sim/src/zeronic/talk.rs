//! Talk: two ZeroNIC hosts, their programs, and what they do in turn.
use super::host::{SharedWatch, ZeroHost, address};
use super::judge::Sides;
use super::plan::{ShortagePlan, SidePlan, TalkPlan, Trouble, TroubleKind};
use super::program::{Conn, Posted, Program, RECEIVE};
use crate::pair::{CLIENT, Pair, SERVER};
use crate::plan::Plan;
use crate::random::{Random, Stream};
use crate::rdma::memory::GUARD;
use context::comm::{Completion, Order, Outcome};
use port::{Fabric, Nanos};
use std::net::SocketAddrV4;
use wire::Endpoint;

/// The port of the first connection; the next ones follow.
const PORT: u16 = 7000;
/// After trouble, programs give up what the news of it did not reach.
const SETTLE: Nanos = 3_000_000_000;
/// So long after its program has closed everything, a host has taken all that was posted.
const TAKEN: Nanos = 200_000_000;

/// A talk.
pub(crate) struct Talk {
    index: usize,
    plan: TalkPlan,
    hosts: [ZeroHost; 2],
    pub(super) programs: [Option<Program>; 2],
    watch: SharedWatch,
    streams: [Vec<Stream>; 2],
    /// When each program acts.
    wake_at: [Nanos; 2],
    has_begun: [bool; 2],
    trouble: Option<(Nanos, Trouble)>,
    spoiled_at: Option<Nanos>,
    /// When a program's connections were all closed, as its host knew it.
    closed_at: [Option<Nanos>; 2],
    /// Memory that nobody may touch any more, as it was when that began.
    frozen: [Option<Vec<u8>>; 2],
    /// The program that is gone had this memory.
    left: [Option<Program>; 2],
    damages: bool,
    /// When something happened last.
    pub(crate) progress_at: Nanos,
    /// Completions that were found right.
    pub(crate) judged: u64,
    #[cfg(test)]
    pub(crate) lie: Option<super::judge::Lie>,
}

impl Talk {
    /// Both hosts join the network, and their programs attach.
    pub(crate) fn new(plan: &Plan, index: usize, start: Nanos, fabric: &Fabric) -> Result<Talk, String> {
        let talk = plan.talks[index].clone();
        let mut random = Random::new(plan.seed ^ super::draw::OWN ^ (index as u64 + 1) << 48);
        let pairs: Vec<Pair> = (0..talk.connections).map(|at| Pair::new(random.bits(), at, 0, start)).collect();
        let streams = [CLIENT, SERVER].map(|side| pairs.iter().map(|pair| pair.halves[side].stream).collect());
        let watch = SharedWatch::new(pairs);
        let mut host = |side: usize| {
            let number = 2 * index + side;
            ZeroHost::new(&talk.sides[side], number, talk.connections, fabric, watch.clone(), start, &mut random)
        };
        let mut hosts = [host(0)?, host(1)?];
        let [one, other] = &mut hosts;
        let programs =
            [Program::new(&talk, 0, one, &mut random)?, Program::new(&talk, 1, other, &mut random)?].map(Some);
        let begin = start + talk.start_us * 1000;
        Ok(Talk {
            index,
            trouble: talk.trouble.map(|trouble| (start + trouble.at_us * 1000, trouble)),
            plan: talk,
            hosts,
            programs,
            watch,
            streams,
            // A connect finds a listener.
            wake_at: [begin + 1_000_000, begin],
            has_begun: [false; 2],
            spoiled_at: None,
            frozen: [None, None],
            closed_at: [None; 2],
            left: [None, None],
            damages: plan.fabric.corrupt > 0.0,
            progress_at: begin,
            judged: 0,
            #[cfg(test)]
            lie: None,
        })
    }

    /// When something is to be done.
    pub(crate) fn next(&self, now: Nanos) -> Nanos {
        let hosts = self.hosts.iter().map(|host| host.next(now)).min().unwrap_or(Nanos::MAX);
        let trouble = self.trouble.map_or(Nanos::MAX, |(at, _)| at);
        let settled = self.spoiled_at.filter(|_| !self.is_over()).map_or(Nanos::MAX, |at| at + SETTLE);
        self.wake_at.into_iter().chain([hosts, trouble, settled]).min().unwrap_or(Nanos::MAX)
    }

    /// Nothing is left to do.
    pub(crate) fn is_over(&self) -> bool {
        let closed = |program: &Program| program.conns.iter().all(|conn| conn.is_closed);
        self.programs.iter().flatten().all(closed)
    }

    /// One step of the virtual time.
    pub(crate) fn step(&mut self, now: Nanos) -> Result<(), String> {
        for side in 0..2 {
            if self.hosts[side].next(now) <= now {
                self.hosts[side].poll(now).map_err(|what| format!("host z{side}: {what}"))?;
                self.after_round(now, side)?;
            }
        }
        self.make_trouble(now)?;
        for side in 0..2 {
            if self.wake_at[side] <= now {
                self.wake_at[side] = Nanos::MAX;
                self.act(now, side).map_err(|what| format!("program {side}: {what}"))?;
                self.hosts[side].nudge();
            }
        }
        self.settle(now)
    }

    fn after_round(&mut self, now: Nanos, side: usize) -> Result<(), String> {
        if side == CLIENT {
            self.register();
        }
        if self.programs[side].as_ref().is_some_and(Program::has_mail) {
            let at = now + 1 + self.plan.sides[side].latency_us * 1000;
            self.wake_at[side] = self.wake_at[side].min(at);
        }
        self.freeze(now, side)
    }

    /// The inspector finds which connection is which by the listener's port.
    fn register(&mut self) {
        let mut watch = self.watch.lock();
        for view in self.hosts[CLIENT].programs.stack().views(64) {
            let tuple = view.tuple;
            let at = usize::from(tuple.remote_port.wrapping_sub(PORT));
            let (client, server) =
                (Endpoint::v4(tuple.local_ip, tuple.local_port), Endpoint::v4(tuple.remote_ip, tuple.remote_port));
            if at < self.plan.connections && watch.inspector.pair_of(server, client).is_none() {
                watch.inspector.register(client, server, at);
            }
        }
    }

    /// Memory that is out of reach stays as it is.
    fn freeze(&mut self, now: Nanos, side: usize) -> Result<(), String> {
        let host = &self.hosts[side];
        let program = self.programs[side].as_ref().or(self.left[side].as_ref());
        let Some(program) = program.filter(|_| self.frozen[side].is_none()) else { return Ok(()) };
        let gone = self.programs[side].is_none() || program.is_unmapped;
        let out_of_reach = if gone {
            program.is_out_of_reach(host)
        } else if program.conns.iter().all(|conn| conn.is_closed) {
            now > *self.closed_at[side].get_or_insert(now) + TAKEN
        } else {
            false
        };
        if out_of_reach {
            self.frozen[side] = Some(program.memory.all()?);
        }
        Ok(())
    }

    fn make_trouble(&mut self, now: Nanos) -> Result<(), String> {
        let Some((_, trouble)) = self.trouble.filter(|(at, _)| *at <= now) else { return Ok(()) };
        self.trouble = None;
        let side = trouble.side;
        if self.is_over() {
            return Ok(());
        }
        self.spoil(now);
        let Some(program) = &mut self.programs[side] else { return Ok(()) };
        match trouble.kind {
            TroubleKind::Vanishes => {
                let id = program.id;
                self.left[side] = self.programs[side].take();
                self.hosts[side].programs.detach(id);
            }
            TroubleKind::Unmaps => {
                program.unmap(&self.hosts[side])?;
                // Posts that wait to be taken are refused: the stream ends without their bytes.
                self.watch.lock().pairs.iter_mut().for_each(|pair| pair.halves[side].unreported = true);
            }
            TroubleKind::Closes => (0..self.plan.connections).try_for_each(|at| program.close(at))?,
        }
        self.hosts[side].nudge();
        Ok(())
    }

    fn spoil(&mut self, now: Nanos) {
        self.spoiled_at.get_or_insert(now);
        self.progress_at = now;
        self.watch.lock().pairs.iter_mut().for_each(|pair| pair.spoil("trouble by plan"));
    }

    /// After trouble, what is left is given up.
    fn settle(&mut self, now: Nanos) -> Result<(), String> {
        if self.spoiled_at.is_none_or(|at| now < at + SETTLE) || self.is_over() {
            return Ok(());
        }
        for (side, program) in self.programs.iter_mut().enumerate() {
            if let Some(program) = program {
                (0..self.plan.connections).try_for_each(|at| program.close(at))?;
                self.hosts[side].nudge();
            }
        }
        Ok(())
    }

    fn act(&mut self, now: Nanos, side: usize) -> Result<(), String> {
        if self.programs[side].is_none() {
            return Ok(());
        }
        if !self.has_begun[side] {
            self.has_begun[side] = true;
            self.begin(side)?;
        }
        while let Some(done) = self.programs[side].as_mut().map_or(Ok(None), Program::completion)? {
            self.progress_at = now;
            for done in self.reported(side, done)? {
                self.take(side, &done).map_err(|what| format!("{what}: {done:?}"))?;
            }
        }
        for at in 0..self.plan.connections {
            self.go_on(now, side, at)?;
        }
        Ok(())
    }

    /// What is reported to a program.
    #[cfg(not(test))]
    fn reported(&mut self, _side: usize, done: Completion) -> Result<[Completion; 1], String> {
        Ok([done])
    }

    fn begin(&mut self, side: usize) -> Result<(), String> {
        let Some(program) = &mut self.programs[side] else { return Ok(()) };
        for at in 0..self.plan.connections as u16 {
            let order = match side {
                CLIENT => {
                    let ip = address(2 * self.index + SERVER);
                    Order::Connect(SocketAddrV4::new(ip, PORT + at), self.plan.carries)
                }
                _ => Order::Listen(PORT + at, self.plan.carries),
            };
            program.post(0, order)?;
        }
        Ok(())
    }

    fn take(&mut self, side: usize, done: &Completion) -> Result<(), String> {
        let Some(program) = &mut self.programs[side] else { return Ok(()) };
        let new = match done.outcome {
            Outcome::Listening => return Ok(()),
            // The posts of the first connections have the first numbers.
            Outcome::Connected => Some(done.id as usize - 1),
            Outcome::Accepted => Some(usize::from(done.value as u16 - PORT)),
            _ => None,
        };
        if let Some(at) = new {
            let conn: &mut Conn = program.conns.get_mut(at).ok_or("a connection that nobody asked for")?;
            if conn.number > 0 {
                return Err("a connection comes twice".into());
            }
            conn.number = done.connection;
            if conn.is_closed {
                return program.post(done.connection, Order::Close).map(drop);
            }
            return Ok(());
        }
        let number = |conn: &Conn| conn.number == done.connection;
        let at = program.conns.iter().position(number).ok_or("a completion of no connection")?;
        if program.conns[at].is_closed {
            // What was on its way when it was closed.
            return Ok(());
        }
        // Without a line, the transport's own buffer has what comes before its receive.
        let keeps = |side: &SidePlan| side.shortage == ShortagePlan::Defer || side.lines.is_some();
        let keeps = [0, 1].map(|side| keeps(&self.plan.sides[side]));
        let [one, other] = &self.streams;
        let is_spoiled = self.spoiled_at.is_some();
        let carries = self.plan.carries;
        let mut sides = Sides { programs: &mut self.programs, streams: [one, other], carries, keeps, is_spoiled };
        self.judged += u64::from(sides.judge(side, at, done)?);
        Ok(())
    }

    /// Posts more on a connection, or closes it when all is done.
    fn go_on(&mut self, now: Nanos, side: usize, at: usize) -> Result<(), String> {
        let Some(program) = &mut self.programs[side] else { return Ok(()) };
        let wake = program.work(now, at, self.streams[side][at], self.plan.bytes[side])?;
        let conn = &program.conns[at];
        let half = (conn.written, conn.is_ended);
        let done = conn.is_ended && conn.peer_ended && conn.sends.is_empty() && conn.receives.is_empty();
        if done && !conn.is_closed {
            program.close(at)?;
            self.progress_at = now;
        }
        self.wake_at[side] = self.wake_at[side].min(wake);
        let mut watch = self.watch.lock();
        let pair = &mut watch.pairs[at].halves[side];
        pair.written = half.0;
        pair.fin = half.1.then_some(half.0);
        Ok(())
    }

    /// What is not done yet, for people.
    pub(crate) fn unfinished(&mut self) -> String {
        let mut lines: Vec<String> = Vec::new();
        for side in 0..2 {
            let program = self.programs[side].as_ref().map_or("gone".into(), Program::describe);
            let stack = self.hosts[side].programs.stack();
            let (views, counters) = (stack.views(8), stack.counters());
            let flows = stack.transport().views(8);
            lines.push(format!("  ZeroNIC side {side}: {program}; {views:?}; {counters:?}; {flows:?}"));
        }
        lines.join("\n")
    }

    /// After the end: nothing is left, and nobody wrote where nobody may.
    pub(crate) fn finish(&mut self) -> Result<(), String> {
        for side in 0..2 {
            self.hosts[side].leftover(self.damages).map_err(|what| format!("host z{side}: {what}"))?;
            let program = self.programs[side].as_ref().or(self.left[side].as_ref());
            let Some(program) = program else { continue };
            let gone = self.programs[side].is_none() || program.is_unmapped;
            match &self.frozen[side] {
                Some(frozen) if *frozen != program.memory.all()? => {
                    return Err(format!("memory of side {side} was written after it was out of reach"));
                }
                None if gone => return Err(format!("memory of side {side} is still in use at the end")),
                _ => {}
            }
            // What was done after it was unmapped was not cleared.
            if !program.is_unmapped {
                self.check_memory(side, program)?;
            }
        }
        Ok(())
    }

    /// Each place of a receive has bytes of the stream or nobody's, and nothing stands around it.
    fn check_memory(&self, side: usize, program: &Program) -> Result<(), String> {
        let peer = self.programs[1 - side].as_ref().or(self.left[1 - side].as_ref());
        program.memory.check(|section, place| {
            let mut all = program.conns.iter().enumerate().flat_map(|(at, conn)| {
                let sends = conn.sends.iter().map(|posted| (0, side, posted.at, *posted));
                let mut from = conn.delivered;
                let lengths = peer.map_or(&[][..], |peer| &peer.conns[at].lengths);
                let receives = conn.receives.iter().enumerate().map(move |(nth, posted)| {
                    let len = conn.room(nth, posted.len, lengths);
                    from += len as u64;
                    (RECEIVE, 1 - side, from - len as u64, Posted { len, ..*posted })
                });
                sends.chain(receives).map(move |found| (at, found)).collect::<Vec<_>>()
            });
            let found = all.find(|(_, (of, _, _, posted))| *of == section && posted.place == place);
            found.map_or_else(Vec::new, |(at, (_, from_side, from, posted))| {
                let mut bytes = vec![GUARD; posted.len];
                self.streams[from_side][at].fill(from, &mut bytes);
                bytes
            })
        })
    }

    /// Frames, segments that were sent again, and a sum over all that was sent.
    pub(crate) fn figures(&self) -> (u64, u64, u64) {
        let watch = self.watch.lock();
        (watch.inspector.frames, watch.inspector.resent, watch.inspector.digest)
    }

    /// From now on it keeps a trace.
    pub(crate) fn keep_trace(&self) {
        self.watch.lock().inspector.tracing = true;
    }

    /// Lines of the trace.
    pub(crate) fn trace(&self) -> Vec<String> {
        self.watch.lock().inspector.trace.drain(..).collect()
    }
}
