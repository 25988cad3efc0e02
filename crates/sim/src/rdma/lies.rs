//! The judge finds what is wrong: an engine that lies in one completion, or writes where it may not.
use super::judge::Lie;
use super::link::Link;
use super::plan::{LinkKind, LinkPlan};
use crate::generate::generate;
use crate::plan::Plan;
use crate::world::{Lying, run_lying};
use ::verbs::{Completion, CompletionFlags, Status};

impl Link {
    /// What is reported to a program of a completion; the first one of the second program is lied about.
    pub(super) fn reported(&mut self, side: usize, done: Completion) -> Result<Vec<Completion>, String> {
        let of_receive = matches!(self.judge.lie, Some(Lie::Queue | Lie::Key)) || !self.judge.lanes[side].is_empty();
        let is_it = side == 1 && done.status == Status::Success && (done.is_receive() || !of_receive);
        let lie = if is_it { self.judge.lie.take() } else { None };
        match lie {
            None => return Ok(vec![done]),
            Some(Lie::Twice) => return Ok(vec![done, done]),
            Some(Lie::LeftOut) => return Ok(Vec::new()),
            Some(Lie::Status) => return Ok(vec![Completion { status: Status::RemoteAccess, ..done }]),
            Some(Lie::Key) => {
                return Ok(vec![Completion { flags: CompletionFlags::INVALIDATED, immediate: 1, ..done }]);
            }
            Some(Lie::Queue) => return Ok(vec![Completion { remote_qp: 1 - done.remote_qp, ..done }]),
            Some(Lie::Early) => self.judge.memories.iter().try_for_each(super::memory::Memory::spoil)?,
            Some(Lie::Outside) => {
                let memory = &self.judge.memories[0];
                memory.write(memory.target.place(0) - 1, &[0])?;
            }
        }
        Ok(vec![done])
    }
}

/// A scenario in which nothing but the lie goes wrong.
fn plan(kind: LinkKind) -> Plan {
    let fits = |plan: &Plan| {
        let busy = |works: [usize; 2]| works.iter().all(|count| *count > 15);
        let link = plan.links.first().filter(|link| link.kind == kind && busy(link.works));
        let is_fit = |link: &LinkPlan| link.breaks.is_empty() && link.vanishes.is_none() && link.xrc_queues != 1;
        plan.loses_nothing() && link.is_some_and(is_fit)
    };
    let mut plan = (0..).map(generate).find(fits).unwrap();
    plan.links.truncate(1);
    plan.talks.clear();
    // The next completion of the same queue reveals that one is left out.
    (plan.links[0].receives, plan.links[0].shared_receives) = (32, false);
    let Plan { calls, cuts, jumps, takeovers, kills, aim, .. } = &mut plan;
    calls.clear();
    cuts.clear();
    jumps.clear();
    takeovers.clear();
    kills.clear();
    *aim = None;
    plan
}

#[test]
fn each_lie_is_found() {
    let lies = [
        (Lie::Twice, &["what is not outstanding"][..]),
        (Lie::LeftOut, &["left out", "stuck", "out of order"]),
        (Lie::Early, &["before"]),
        (Lie::Status, &["the wrong status"]),
        (Lie::Outside, &["a byte outside was written"]),
    ];
    find_each(LinkKind::Reliable, &lies);
}

#[test]
fn lies_about_extended_connections_are_found() {
    let lies = [
        (Lie::Twice, &["what is not outstanding"][..]),
        (Lie::Early, &["before"]),
        (Lie::Outside, &["a byte outside was written"]),
        (Lie::Queue, &["the wrong shared receive queue"]),
    ];
    find_each(LinkKind::Extended, &lies);
}

#[test]
fn lies_about_windows_are_found() {
    let lies = [
        (Lie::Twice, &["what is not outstanding"][..]),
        (Lie::LeftOut, &["left out", "stuck", "out of order"]),
        (Lie::Outside, &["a byte outside was written"]),
        (Lie::Key, &["invalidate"]),
    ];
    find_each(LinkKind::Windowed, &lies);
}

#[test]
fn lies_about_raw_packets_are_found() {
    let lies = [
        (Lie::Twice, &["what is not outstanding"][..]),
        (Lie::LeftOut, &["left out"]),
        (Lie::Early, &["before its data"]),
        (Lie::Status, &["the wrong status"]),
        (Lie::Outside, &["a byte outside was written"]),
    ];
    find_each(LinkKind::Raw, &lies);
}

/// The judge finds each of these, and its error has one of the words.
fn find_each(kind: LinkKind, lies: &[(Lie, &[&str])]) {
    let plan = plan(kind);
    let found =
        |lie| run_lying(&plan, Lying::Rdma(lie)).map(|figures| figures.operations).map_err(|failure| failure.what);
    assert!(found(None).unwrap() > 30, "without a lie it passes");
    for (lie, words) in lies {
        let what = found(Some(*lie)).expect_err("the judge finds it");
        assert!(words.iter().any(|word| what.contains(word)), "{lie:?}: {what}");
    }
}
