//! The judge finds what is wrong: an engine that lies in one completion, or writes where it may not.
use super::judge::Lie;
use super::link::Link;
use super::plan::LinkKind;
use crate::generate::generate;
use crate::plan::Plan;
use crate::world::{Lying, run_lying};
use ::verbs::{Completion, Status};

impl Link {
    /// What a program is told of a completion; the first one of the second program is lied about.
    pub(super) fn told(&mut self, side: usize, done: Completion) -> Result<Vec<Completion>, String> {
        let lie = if side == 1 && done.status == Status::Success { self.judge.lie.take() } else { None };
        match lie {
            None => return Ok(vec![done]),
            Some(Lie::Twice) => return Ok(vec![done, done]),
            Some(Lie::LeftOut) => return Ok(Vec::new()),
            Some(Lie::Status) => return Ok(vec![Completion { status: Status::RemoteAccess, ..done }]),
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
fn plan() -> Plan {
    let fits = |plan: &Plan| {
        let busy = |works: [usize; 2]| works.iter().all(|count| *count > 15);
        let link = plan.links.first().filter(|link| link.kind == LinkKind::Reliable && busy(link.works));
        plan.loses_nothing() && link.is_some_and(|link| link.breaks.is_empty() && link.vanishes.is_none())
    };
    let mut plan = (0..).map(generate).find(fits).unwrap();
    plan.links.truncate(1);
    plan.talks.clear();
    // The next completion of the same queue tells that one is left out.
    (plan.links[0].receives, plan.links[0].shared_receives) = (32, false);
    let Plan { calls, cuts, jumps, takeovers, aim, .. } = &mut plan;
    calls.clear();
    cuts.clear();
    jumps.clear();
    takeovers.clear();
    *aim = None;
    plan
}

#[test]
fn each_lie_is_found() {
    let plan = plan();
    let found =
        |lie| run_lying(&plan, Lying::Rdma(lie)).map(|figures| figures.operations).map_err(|failure| failure.what);
    assert!(found(None).unwrap() > 30, "without a lie it passes");
    let lies = [
        (Lie::Twice, &["what is not outstanding"][..]),
        (Lie::LeftOut, &["left out", "stuck", "out of order"]),
        (Lie::Early, &["before"]),
        (Lie::Status, &["the wrong status"]),
        (Lie::Outside, &["a byte outside was written"]),
    ];
    for (lie, words) in lies {
        let what = found(Some(lie)).expect_err("the judge finds it");
        assert!(words.iter().any(|word| what.contains(word)), "{lie:?}: {what}");
    }
}
