//! The judge finds what is wrong: a host that lies in one completion, or writes where it may not.
use super::judge::Lie;
use super::plan::{ShortagePlan, TalkPlan};
use super::talk::Talk;
use crate::generate::generate_talks;
use crate::plan::Plan;
use crate::world::{Lying, run_lying};
use context::comm::{Completion, Outcome};

impl Talk {
    /// What is reported to a program; the first receive of the second program is lied about.
    pub(super) fn reported(&mut self, side: usize, done: Completion) -> Result<Vec<Completion>, String> {
        let lies = side == 1 && done.outcome == Outcome::Received;
        let Some(program) = &self.programs[side] else { return Ok(Vec::new()) };
        Ok(match self.lie.take_if(|_| lies) {
            None => vec![done],
            Some(Lie::Twice) => vec![done, done],
            Some(Lie::LeftOut) => Vec::new(),
            Some(Lie::Short) => vec![Completion { value: done.value - 1, ..done }],
            Some(Lie::Early) => {
                program.memory.spoil()?;
                vec![done]
            }
            Some(Lie::Outside) => {
                program.memory.write(program.memory.receive.place(0) - 1, &[0])?;
                vec![done]
            }
        })
    }
}

/// A scenario in which nothing but the lie goes wrong.
fn plan() -> Plan {
    let fits = |talk: &TalkPlan| {
        let defers = talk.sides.iter().all(|side| side.shortage == ShortagePlan::Defer && side.receives > 1);
        talk.trouble.is_none() && defers && talk.bytes[0] > 5 * u64::from(talk.sides[1].longest)
    };
    let mut plan = (0..)
        .map(generate_talks)
        .find(|plan| plan.loses_nothing() && plan.talks.first().is_some_and(fits))
        .expect("seeds go on for ever");
    plan.talks.truncate(1);
    plan
}

#[test]
fn each_lie_is_found() {
    let plan = plan();
    let found =
        |lie| run_lying(&plan, Lying::Zeronic(lie)).map(|figures| figures.posts).map_err(|failure| failure.what);
    assert!(found(None).unwrap() > 5, "without a lie it passes");
    let lies = [
        (Lie::Twice, &["out of order"][..]),
        (Lie::LeftOut, &["out of order"]),
        (Lie::Early, &["not in its place"]),
        (Lie::Short, &["not in its place"]),
        (Lie::Outside, &["a byte outside was written", "done"]),
    ];
    for (lie, words) in lies {
        let what = found(Some(lie)).expect_err("the judge finds it");
        assert!(words.iter().any(|word| what.contains(word)), "{lie:?}: {what}");
    }
}
