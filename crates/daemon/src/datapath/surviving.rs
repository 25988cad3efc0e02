//! Connections that outlive the daemon (docs/RESTART.md).
use super::DataPath;
use context::Slot;
use context::attach::SurvivingConnection;
use control::Records;
use engine::ContextId;

impl DataPath {
    /// A host's connections have records there from now on. Returns how many an earlier daemon left.
    pub(crate) fn keep_records(&mut self, host: usize, records: Box<dyn Records>) -> usize {
        let Some((now, seat)) = self.seat(host) else { return 0 };
        seat.host.use_base(now, |tcp, net| tcp.keep_records(net, records))
    }

    /// An earlier daemon left connections that are in this region.
    pub(crate) fn has_survivors_in(&self, host: usize, region: u64) -> bool {
        self.hosts.get(host).is_some_and(|seat| seat.host.base().has_survivors_in(region))
    }

    /// Connections of a context go on that came back with its region. Returns those that do.
    pub(crate) fn go_on_with(
        &mut self,
        host: usize,
        context: ContextId,
        survivors: &[SurvivingConnection],
    ) -> Vec<Slot> {
        let Some((now, seat)) = self.seat(host) else { return Vec::new() };
        seat.host.use_base(now, |tcp, net| tcp.go_on_with(net, context, survivors))
    }
}
