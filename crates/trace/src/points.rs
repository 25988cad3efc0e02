//! The one list of tracepoints.

/// What a number of a tracepoint means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A number of things: works, frames, flows.
    Count,
    /// Bytes.
    Bytes,
    /// Nanoseconds.
    Nanoseconds,
    /// Bytes a second; 0 for no limit.
    Rate,
    /// A TCP sequence number.
    Sequence,
    /// A stream position: payload bytes since the connection began, modulo 2^32.
    Position,
    /// A drop reason, by its number in the registry.
    Drop,
    /// Why a frame is the control plane's: see [`Unit::words`].
    Exception,
    /// Which timer: see [`Unit::words`].
    Timer,
    /// Which request of an application: see [`Unit::words`].
    Request,
    /// A context of the host.
    Context,
    /// A process.
    Process,
    /// An error number of the system.
    Error,
    /// An IPv4 address and a port: `address << 16 | port`.
    Endpoint,
}

impl Unit {
    /// What follows a number of this unit in text.
    pub fn suffix(self) -> &'static str {
        match self {
            Unit::Bytes => " B",
            Unit::Nanoseconds => " ns",
            Unit::Rate => " B/s",
            _ => "",
        }
    }

    /// The words that numbers of this unit stand for, from 0 on; none where they are numbers.
    pub fn words(self) -> &'static [&'static str] {
        match self {
            Unit::Exception => &["foreign", "no_flow", "redirected"],
            Unit::Timer => {
                &["handshake", "flow", "time_wait", "arp", "fork", "splice", "reassign", "survivors", "syn_ack"]
            }
            Unit::Request => &[
                "bind",
                "listen",
                "connect",
                "info",
                "claim",
                "fork",
                "arm",
                "cancel",
                "unbind",
                "close",
                "set",
                "label",
                "splice",
                "rest",
                "open_log",
                "join_log",
                "pass",
                "adopt",
                "withdraw",
                "take",
                "loopback",
                "exec",
                "carry",
                "syn_data",
                "fast_open",
                "syn_retries",
                "segment_size",
            ],
            _ => &[],
        }
    }

    /// The word for docs.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Count => "count",
            Unit::Bytes => "bytes",
            Unit::Nanoseconds => "ns",
            Unit::Rate => "bytes/s",
            Unit::Sequence => "sequence number",
            Unit::Position => "stream position",
            Unit::Drop => "drop reason",
            Unit::Exception | Unit::Timer | Unit::Request => "word",
            Unit::Context => "context",
            Unit::Process => "process",
            Unit::Error => "errno",
            Unit::Endpoint => "address:port",
        }
    }
}

/// What sort of thing a tracepoint is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Something happened: it is counted.
    Event,
    /// Something was measured, the first argument: its distribution is kept.
    Histogram,
}

macro_rules! points {
    ($($(#[doc = $text:literal])+ $name:ident = $label:literal, $kind:ident($($arg:ident: $unit:ident),*);)+) => {
        /// A tracepoint.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Point { $($(#[doc = $text])+ $name,)+ }

        impl Point {
            /// Every tracepoint.
            pub const ALL: &'static [Point] = &[$(Point::$name,)+];

            /// Its name: `flextoe.protocol.out_of_order`.
            pub fn name(self) -> &'static str {
                match self { $(Point::$name => $label,)+ }
            }

            /// Its meaning.
            pub fn sentence(self) -> &'static str {
                match self { $(Point::$name => concat!($($text),+).trim_ascii(),)+ }
            }

            /// What sort of thing it is.
            pub fn kind(self) -> Kind {
                match self { $(Point::$name => Kind::$kind,)+ }
            }

            /// Its arguments, at most two: names and units.
            pub fn arguments(self) -> &'static [(&'static str, Unit)] {
                match self { $(Point::$name => &[$((stringify!($arg), Unit::$unit)),*],)+ }
            }
        }
    };
}

points! {
    /// A burst of frames came from the port.
    PortReceived = "port.received", Histogram(frames: Count);
    /// A burst of frames went to the port.
    PortSent = "port.sent", Histogram(frames: Count);
    /// The port dropped frames of a burst.
    PortDropped = "port.dropped", Event(reason: Drop, frames: Count);
    /// A round of the data-path thread in which something was done.
    RoundTime = "thread.round_time", Histogram(time: Nanoseconds);
    /// The data-path thread goes to sleep on its doorbells; 0 for no deadline.
    Asleep = "thread.asleep", Event(deadline: Nanoseconds);
    /// The data-path thread woke up: how long it slept.
    Awake = "thread.awake", Histogram(time: Nanoseconds);
    /// Doorbells, ports or another thread woke the data-path thread.
    Woken = "thread.woken", Event(reasons: Count);
    /// Another thread had the data-path thread do something.
    Action = "thread.action", Event();

    /// An application attached.
    Attached = "control.attached", Event(context: Context, process: Process);
    /// An application detached or ended.
    Detached = "control.detached", Event(context: Context);
    /// The control plane took a request of an application.
    Request = "control.request", Event(request: Request, context: Context);
    /// The control plane rang the doorbell of an application that sleeps.
    ControlBell = "control.bell", Event(context: Context);
    /// A frame came over the exception path.
    Exception = "control.exception", Event(why: Exception, frame: Bytes);
    /// The control plane dropped a frame of the exception path.
    ControlDropped = "control.dropped", Event(reason: Drop, frame: Bytes);
    /// A timer fired: how late.
    TimerLate = "control.timer.late", Histogram(late: Nanoseconds);
    /// A timer fired: which one.
    TimerFired = "control.timer.fired", Event(timer: Timer);
    /// A SYN came for a listener.
    SynReceived = "control.handshake.syn_received", Event(local: Endpoint, remote: Endpoint);
    /// A SYN or SYN-ACK was sent.
    SynSent = "control.handshake.syn_sent", Event(local: Endpoint, remote: Endpoint);
    /// Nobody answered a SYN or SYN-ACK: it is sent again.
    SynTimeout = "control.handshake.timeout", Event(remote: Endpoint, tries: Count);
    /// The handshake is done.
    Established = "control.handshake.established", Event(local: Endpoint, remote: Endpoint);
    /// A connection attempt failed.
    HandshakeFailed = "control.handshake.failed", Event(remote: Endpoint, error: Error);
    /// The engine is notified of a new flow.
    FlowInstalled = "control.flow.installed", Event(local: Endpoint, remote: Endpoint);
    /// The control plane removes a flow from the engine.
    FlowRemoved = "control.flow.removed", Event();
    /// A flow's completions go to another context from now on.
    FlowRenamed = "control.flow.renamed", Event(context: Context);
    /// A flow moves to another context with its buffers.
    FlowMoved = "control.flow.moved", Event(context: Context);
    /// The application closed the flow: FIN follows what it wrote.
    FlowClosed = "control.flow.closed", Event(tx_head: Position);
    /// The control plane begins to time a flow.
    FlowActive = "control.flow.active", Event();
    /// The control plane stops timing a flow that is quiet.
    FlowQuiet = "control.flow.quiet", Event();
    /// A flow's segments have another size from now on (path MTU discovery).
    FlowMss = "control.flow.mss", Event(mss: Bytes);
    /// A connection failed: nobody answers, or it was reset.
    FlowFailed = "control.flow.failed", Event(error: Error);
    /// The retransmission timer of a flow fired.
    RetransmissionTimeout = "control.retransmission_timeout", Event(rto: Nanoseconds, in_a_row: Count);
    /// A zero-window probe or a keepalive is due.
    ProbeDue = "control.probe_due", Event();
    /// Congestion control decided about a window.
    CongestionWindow = "control.congestion.window", Event(cwnd: Bytes, ssthresh: Bytes);
    /// Congestion control decided about a rate.
    CongestionRate = "control.congestion.rate", Event(rate: Rate);
    /// Smoothed round-trip time when congestion control updated a flow.
    CongestionRtt = "control.congestion.rtt", Histogram(time: Nanoseconds);

    /// Works that pre-processing took at once.
    PreprocessBatch = "flextoe.preprocess.batch", Histogram(works: Count);
    /// Time that pre-processing took for a batch; one in 8 is timed.
    PreprocessTime = "flextoe.preprocess.time", Histogram(time: Nanoseconds);
    /// Pre-processing dropped a frame.
    PreprocessDropped = "flextoe.preprocess.dropped", Event(reason: Drop, frame: Bytes);
    /// Pre-processing handed a frame to the control plane.
    PreprocessException = "flextoe.preprocess.exception", Event(why: Exception, frame: Bytes);
    /// Pre-processing found the flow of a segment.
    Identified = "flextoe.preprocess.identified", Event(seq: Sequence, payload: Bytes);

    /// Works that protocol processing took at once.
    ProtocolBatch = "flextoe.protocol.batch", Histogram(works: Count);
    /// Time that protocol processing took for a batch; one in 8 is timed.
    ProtocolTime = "flextoe.protocol.time", Histogram(time: Nanoseconds);
    /// Critical section for a received segment with payload; one work in 32 is timed.
    ReceiveDataTime = "flextoe.protocol.time.receive_data", Histogram(time: Nanoseconds);
    /// Critical section for a received segment without payload; one work in 32 is timed.
    ReceiveAckTime = "flextoe.protocol.time.receive_ack", Histogram(time: Nanoseconds);
    /// Critical section for a segment to send; one work in 32 is timed.
    TransmitTime = "flextoe.protocol.time.transmit", Histogram(time: Nanoseconds);
    /// Critical section for an application's positions; one work in 32 is timed.
    BumpTime = "flextoe.protocol.time.bump", Histogram(time: Nanoseconds);
    /// Critical section for a command of the control plane; one work in 32 is timed.
    OrderTime = "flextoe.protocol.time.order", Histogram(time: Nanoseconds);
    /// Critical section for the acknowledgements at the end of a batch; one work in 32 is timed.
    FlushTime = "flextoe.protocol.time.flush", Histogram(time: Nanoseconds);
    /// Payload came in order.
    InOrder = "flextoe.protocol.in_order", Event(seq: Sequence, delivered: Bytes);
    /// Payload came out of order and was kept.
    OutOfOrder = "flextoe.protocol.out_of_order", Event(seq: Sequence, payload: Bytes);
    /// All of a segment's payload was received before.
    Duplicate = "flextoe.protocol.duplicate", Event(seq: Sequence, payload: Bytes);
    /// Protocol processing dropped a segment, a part of it, or a descriptor.
    ProtocolDropped = "flextoe.protocol.dropped", Event(reason: Drop, seq: Sequence);
    /// The peer acknowledged bytes.
    Acked = "flextoe.protocol.acked", Event(ack: Sequence, acked: Bytes);
    /// A duplicate acknowledgement came.
    DuplicateAck = "flextoe.protocol.duplicate_ack", Event(ack: Sequence, outstanding: Bytes);
    /// An acknowledgement reports that something came twice (D-SACK).
    Dsack = "flextoe.protocol.dsack", Event(left: Sequence, right: Sequence);
    /// A loss was none: what was sent again came twice, or the first transmission was late. The window is restored.
    Undone = "flextoe.protocol.undone", Event(una: Sequence, outstanding: Bytes);
    /// A round-trip time was measured.
    Rtt = "flextoe.protocol.rtt", Histogram(time: Nanoseconds);
    /// The peer's receive window changed.
    WindowChanged = "flextoe.protocol.window_changed", Event(window: Bytes, before: Bytes);
    /// The peer closed its receive window.
    WindowClosed = "flextoe.protocol.window_closed", Event(ack: Sequence, unsent: Bytes);
    /// This host announces that its receive window is closed.
    OwnWindowClosed = "flextoe.protocol.own_window_closed", Event(ack: Sequence);
    /// A segment carried a congestion mark (CE).
    EcnMarked = "flextoe.protocol.ecn_marked", Event(seq: Sequence, payload: Bytes);
    /// An acknowledgement echoed a congestion mark (ECE).
    EcnEchoed = "flextoe.protocol.ecn_echoed", Event(ack: Sequence, acked: Bytes);
    /// A loss was found by what the peer has, or by a probe: sending again begins (fast retransmit).
    FastRetransmit = "flextoe.protocol.fast_retransmit", Event(una: Sequence, outstanding: Bytes);
    /// The control plane found a timeout: sending again begins (go-back-N).
    TimeoutRetransmit = "flextoe.protocol.timeout_retransmit", Event(una: Sequence, outstanding: Bytes);
    /// A segment with new payload or FIN is sent.
    Sent = "flextoe.protocol.sent", Event(seq: Sequence, payload: Bytes);
    /// A segment is sent again.
    SentAgain = "flextoe.protocol.sent_again", Event(seq: Sequence, payload: Bytes);
    /// A grant of the scheduler found nothing that may be sent.
    GrantUnused = "flextoe.protocol.grant_unused", Event(unsent: Bytes, usable: Bytes);
    /// An acknowledgement without payload is sent.
    AckSent = "flextoe.protocol.ack_sent", Event(ack: Sequence, window: Bytes);
    /// An application's positions came.
    Bump = "flextoe.protocol.bump", Event(tx_head: Position, rx_head: Position);
    /// The peer's FIN came in order.
    PeerFin = "flextoe.protocol.peer_fin", Event(rcv_nxt: Sequence);
    /// This host's FIN was acknowledged.
    FinAcked = "flextoe.protocol.fin_acked", Event(una: Sequence);
    /// A valid RST came.
    Reset = "flextoe.protocol.reset", Event(seq: Sequence);
    /// The congestion window takes effect.
    WindowSet = "flextoe.protocol.window_set", Event(cwnd: Bytes, outstanding: Bytes);

    /// Works that post-processing took at once.
    PostprocessBatch = "flextoe.postprocess.batch", Histogram(works: Count);
    /// Time that post-processing took for a batch; one in 8 is timed.
    PostprocessTime = "flextoe.postprocess.time", Histogram(time: Nanoseconds);
    /// Works that DMA took at once.
    DmaBatch = "flextoe.dma.batch", Histogram(works: Count);
    /// Time that DMA took for a batch; one in 8 is timed.
    DmaTime = "flextoe.dma.time", Histogram(time: Nanoseconds);
    /// DMA copied payload into an application's buffer.
    DmaPlaced = "flextoe.dma.placed", Histogram(payload: Bytes);
    /// DMA attached payload of an application's buffer to a frame.
    DmaAttached = "flextoe.dma.attached", Histogram(payload: Bytes);

    /// Descriptors that were taken from applications in a round.
    Descriptors = "flextoe.context_queue.descriptors", Histogram(descriptors: Count);
    /// An application got a completion.
    Completion = "flextoe.context_queue.completion", Event(rx_tail: Position, tx_tail: Position);
    /// An application's ring had no room for a completion.
    CompletionWaits = "flextoe.context_queue.completion_waits", Event(context: Context, waiting: Count);
    /// The engine rang the doorbell of an application that sleeps.
    ContextBell = "flextoe.context_queue.bell", Event(context: Context);
    /// The scheduler granted a flow segments.
    Grant = "flextoe.scheduler.grant", Event(segments: Count);
    /// How late a flow with a rate was granted segments.
    TurnLate = "flextoe.scheduler.late", Histogram(late: Nanoseconds);
    /// Flows that waited for a grant when the scheduler picked one.
    SchedulerWaiting = "flextoe.scheduler.waiting", Histogram(flows: Count);
    /// Works that waited to enter the pipeline; only with modules on threads of their own.
    SequencerWaiting = "flextoe.sequencer.waiting", Histogram(works: Count);
    /// Occupancy of a ring to a pre-processing module.
    PreprocessRing = "flextoe.ring.preprocess", Histogram(works: Count);
    /// Occupancy of the ring from pre-processing to the sequencer of the flow groups.
    SteerRing = "flextoe.ring.steer", Histogram(works: Count);
    /// Occupancy of a ring to a protocol module.
    ProtocolRing = "flextoe.ring.protocol", Histogram(works: Count);
    /// Occupancy of a ring to a post-processing module.
    PostprocessRing = "flextoe.ring.postprocess", Histogram(works: Count);
    /// Occupancy of a ring to a DMA module.
    DmaRing = "flextoe.ring.dma", Histogram(works: Count);
    /// Occupancy of the ring from DMA to netif.
    NetifRing = "flextoe.ring.netif", Histogram(works: Count);
    /// A work left the pipeline: how many were still inside.
    InFlight = "flextoe.netif.in_flight", Histogram(works: Count);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn declared_well() {
        assert!(Point::ALL.len() >= 48, "FlexTOE section 5.1");
        let names: BTreeSet<&str> = Point::ALL.iter().map(|point| point.name()).collect();
        assert_eq!(names.len(), Point::ALL.len(), "names are unique");
        for point in Point::ALL {
            let name = point.name();
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '.' || c == '_'), "{name}");
            assert!(point.sentence().ends_with('.') && !point.sentence().contains('\n'), "{name}");
            let most = if point.kind() == Kind::Histogram { 1..=1 } else { 0..=2 };
            assert!(most.contains(&point.arguments().len()), "{name}");
        }
    }
}
