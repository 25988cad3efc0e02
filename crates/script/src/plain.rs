//! An engine whose segments carry no timestamps: what Linux's `tcp_timestamps` switches off.
use engine::stream::{Features as StreamFeatures, Stream};
use engine::{Burst, Engine, Features, Nanos, ProgramSource, Registers, Worker};

type Boxed = Box<dyn Engine<Stream>>;

/// The engine, which says that it carries none: so none are negotiated.
pub(crate) struct WithoutTimestamps(pub Boxed);

impl Engine<Stream> for WithoutTimestamps {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn features(&self) -> Features<StreamFeatures> {
        let mut features = self.0.features();
        features.transport.carries.timestamps = false;
        features
    }

    fn poll(&mut self, now: Nanos, burst: &mut Burst<'_, Stream>) -> usize {
        self.0.poll(now, burst)
    }

    fn egress(&mut self, now: Nanos, from: usize, burst: &mut Burst<'_, Stream>) {
        self.0.egress(now, from, burst);
    }

    fn has_work(&self, now: Nanos) -> bool {
        self.0.has_work(now)
    }

    fn next_deadline(&self) -> Option<Nanos> {
        self.0.next_deadline()
    }

    fn workers(&mut self) -> Vec<Box<dyn Worker>> {
        self.0.workers()
    }

    fn rest(&mut self) {
        self.0.rest();
    }

    fn load(&mut self, program: &ProgramSource) -> Result<(), String> {
        self.0.load(program)
    }

    fn registers(&mut self) -> Option<&mut dyn Registers> {
        self.0.registers()
    }

    fn failure(&self) -> Option<String> {
        self.0.failure()
    }

    fn module_stats(&self) -> Vec<(String, &'static str, u64)> {
        self.0.module_stats()
    }
}
