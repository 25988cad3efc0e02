//! An engine that carries less than it could: what Linux's `tcp_timestamps` and `tcp_sack` switch off.
use engine::stream::{Features as StreamFeatures, Stream};
use engine::{Burst, Engine, Features, Nanos, ProgramSource, Registers, Worker};

type Boxed = Box<dyn Engine<Stream>>;

/// The engine, and whether segments may have timestamps and SACK blocks. What it does not carry is not negotiated.
pub(crate) struct Plain {
    pub engine: Boxed,
    /// Segments may have timestamps.
    pub timestamps: bool,
    /// Segments may have SACK blocks.
    pub sack: bool,
}

impl Engine<Stream> for Plain {
    fn name(&self) -> &'static str {
        self.engine.name()
    }

    fn features(&self) -> Features<StreamFeatures> {
        let mut features = self.engine.features();
        let carries = &mut features.transport.carries;
        carries.timestamps &= self.timestamps;
        carries.sack &= self.sack;
        features
    }

    fn poll(&mut self, now: Nanos, burst: &mut Burst<'_, Stream>) -> usize {
        self.engine.poll(now, burst)
    }

    fn egress(&mut self, now: Nanos, from: usize, burst: &mut Burst<'_, Stream>) {
        self.engine.egress(now, from, burst);
    }

    fn has_work(&self, now: Nanos) -> bool {
        self.engine.has_work(now)
    }

    fn next_deadline(&self) -> Option<Nanos> {
        self.engine.next_deadline()
    }

    fn workers(&mut self) -> Vec<Box<dyn Worker>> {
        self.engine.workers()
    }

    fn rest(&mut self) {
        self.engine.rest();
    }

    fn load(&mut self, program: &ProgramSource) -> Result<(), String> {
        self.engine.load(program)
    }

    fn registers(&mut self) -> Option<&mut dyn Registers> {
        self.engine.registers()
    }

    fn failure(&self) -> Option<String> {
        self.engine.failure()
    }

    fn module_stats(&self) -> Vec<(String, &'static str, u64)> {
        self.engine.module_stats()
    }
}
