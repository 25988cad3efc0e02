//! Splices of a host that another daemon goes on with (docs/TAKEOVER.md). Its module is another one, with empty maps.
use super::table::{Splice, Splices, Totals};
use crate::connections::{Connections, Lifecycle};
use crate::outbox::Outbox;
use serde::{Deserialize, Serialize};

/// All splices of a host that stands still.
#[derive(Serialize, Deserialize)]
pub(crate) struct SplicesState {
    pairs: Vec<(u32, Splice)>,
    totals: Totals,
}

impl Splices {
    /// State for another daemon. The splices go on here, too, where that one does not.
    pub(crate) fn state(&self) -> SplicesState {
        let pair = |(key, splice): (u32, &Splice)| {
            let mut splice = *splice;
            for (at, side) in splice.sides.iter_mut().enumerate() {
                side.seen = self.seen(key, at);
            }
            (key, splice)
        };
        SplicesState { pairs: self.all.iter().map(pair).collect(), totals: self.totals }
    }

    /// They go on here: passed on by the control plane, until a module is loaded. Fails with a sentence.
    pub(crate) fn restore(
        &mut self,
        out: &mut Outbox<'_>,
        connections: &mut Connections,
        state: SplicesState,
    ) -> Result<(), String> {
        self.totals = state.totals;
        for (key, splice) in state.pairs {
            self.all.insert_at(key, splice).ok_or("limits.max_splices is smaller than what is joined")?;
            for (at, side) in splice.sides.iter().enumerate() {
                connections.set(side.tuple, Lifecycle::Splice(key, at));
                self.start_direction(key, at);
            }
            self.time(out, key);
        }
        Ok(())
    }
}
