//! Program replacement under traffic (`opentoe p4 load`).
use crate::Laminar;
use crate::program::Program;
use engine::{Backend, ProgramSource, Runner};

impl Laminar {
    /// From now on another program runs, with the flows of the present one.
    pub(crate) fn exchange(&mut self, source: &ProgramSource) -> Result<(), String> {
        let next = self.successor(source)?;
        self.switch.replace(next);
        for (id, rate) in self
            .paced
            .iter()
            .map(|id| (*id, self.flows[*id as usize].as_ref().map_or(0, |f| f.rate)))
            .collect::<Vec<_>>()
        {
            self.set_rate(id, rate);
        }
        Ok(())
    }

    fn successor(&self, source: &ProgramSource) -> Result<Program, String> {
        let present = &self.switch.program;
        if present.backend() == Backend::Rtl {
            return Err("this host's program is RTL, whose model is made when it starts".into());
        }
        let mut next = Program::new(&self.limits, self.rx_scale, source, &Runner::default())?;
        for (there, here, name) in
            [(present.has_sack(), next.has_sack(), "SACK"), (present.has_timestamps(), next.has_timestamps(), "TIMELY")]
        {
            if there && !here {
                return Err(format!(
                    "this host's connections negotiated what the extension {name} does, and the program lacks it: load it with -D {name}"
                ));
            }
        }
        if self.logs.numbers().next().is_some() && !next.has_logs() {
            return Err("an application of this host has a shared log, and the program has no places for its records: load it with -D SHARED_LOG".into());
        }
        for (number, tail) in self.logs.tails() {
            next.set_log_tail(number, tail);
        }
        for (id, flow) in self.flows.iter().enumerate().filter_map(|(id, flow)| Some((id as u32, flow.as_deref()?))) {
            next.take_over(present, id);
            next.set_largest_window(id, flow.max_wnd);
            let shown = flow.frozen || (next.show(&flow.params, flow.rx_base) && next.own(&flow.params, flow.tx_base));
            let logged = flow.member.as_ref().is_none_or(|member| {
                let first = flow.rx_base + member.start;
                self.logs.record_of(member.log).is_some_and(|record| next.join_log(id, member.log, first, record))
            });
            if !shown || !logged || !next.set_headers(&flow.params, flow.clock.unwrap_or(0)) {
                return Err(format!("the program's tables have no room for flow {id}"));
            }
        }
        Ok(next)
    }
}
