//! ZeroNIC scenarios. They have random numbers of their own: a seed's part about TCP and RDMA stays as it is.
use super::plan::{ShortagePlan, SidePlan, TalkPlan, Trouble, TroubleKind};
use crate::plan::Plan;
use crate::random::Random;
use engines::EngineKind;
use tcp::congestion::KINDS;
use zeronic::Carries;

/// Random numbers of its own.
pub(crate) const OWN: u64 = 0x5a45_524f_4e49_4300;

/// Bytes that a talk moves at most, and posts of a connection.
const MOST_BYTES: u64 = 400_000;
const MOST_POSTS: u64 = 300;
/// Of posts shorter than a segment where nothing is deferred, a talk has only so many: each may wait for a timer.
const SHORT_POSTS: u64 = 60;

/// One or two talks.
pub(crate) fn draw(plan: &mut Plan) {
    let mut random = Random::new(plan.seed ^ OWN);
    let random = &mut random;
    let count = random.pick(&[1, 1, 2]);
    plan.talks = (0..count).map(|_| talk(random)).collect();
    let mut random = Random::new(plan.seed ^ OWN ^ u64::from(u32::from_be_bytes(*b"Line")));
    for talk in plan.talks.iter_mut().filter(|talk| talk.carries == Carries::Stream) {
        let connections = talk.connections as u64;
        talk.sides
            .iter_mut()
            .for_each(|side| side.lines = random.one_in(3).then(|| random.up_to(connections) as usize));
    }
}

fn talk(random: &mut Random) -> TalkPlan {
    let carries = random.pick(&[Carries::Stream, Carries::Stream, Carries::Messages]);
    let sides = [side(random), side(random)];
    let connections = random.pick(&[1, 1, 1, 2, 4]);
    let mut bytes = [0, 0];
    for (from, bytes) in bytes.iter_mut().enumerate() {
        let (sender, receiver) = (&sides[from], &sides[1 - from]);
        // The window counts bytes, so more messages may come than there are receives.
        let crawls = carries == Carries::Messages || receiver.shortest < 3000;
        let short = receiver.shortage != ShortagePlan::Defer && crawls;
        let posts = if short { SHORT_POSTS } else { MOST_POSTS };
        let paced =
            |gap: u64, longest: u32| 500_000u64.checked_div(gap).map_or(MOST_BYTES, |posts| posts * u64::from(longest));
        let most = (MOST_BYTES / connections as u64)
            .min(posts * u64::from(receiver.shortest.midpoint(receiver.longest)))
            .min(MOST_POSTS * u64::from(sender.shortest.midpoint(sender.longest)))
            .min(paced(sender.send_gap_us, sender.longest))
            .min(paced(receiver.receive_gap_us, receiver.longest));
        *bytes = if random.one_in(5) { 0 } else { random.spread(1, most.max(2)) };
    }
    let trouble = random.one_in(4).then(|| Trouble {
        side: random.up_to(1) as usize,
        at_us: random.spread(10, 300_000),
        kind: random.pick(&[TroubleKind::Vanishes, TroubleKind::Unmaps, TroubleKind::Closes]),
    });
    TalkPlan { sides, carries, connections, bytes, start_us: random.spread(1, 50_000), trouble }
}

/// The host's default, and each policy.
fn congestion_names() -> Vec<&'static str> {
    [""].into_iter().chain(KINDS.iter().map(|kind| kind.name)).collect()
}

fn side(random: &mut Random) -> SidePlan {
    let longest = random.spread(1, 100_000) as u32;
    let shortest = if random.one_in(2) { longest } else { random.spread(1, longest.into()) as u32 };
    SidePlan {
        engine: random.pick(EngineKind::TRANSPORTS),
        shortage: random.pick(&[ShortagePlan::Drop, ShortagePlan::Buffer, ShortagePlan::Defer]),
        congestion: random.pick(&congestion_names()).into(),
        buffer_bytes: 4096 << random.up_to(8),
        min_rto_ms: random.pick(&[1, 10, 10, 200]),
        max_rto_ms: random.pick(&[500, 2000]),
        poll_ns: random.pick(&[200, 2_000, 20_000]),
        stall: random.pick(&[0.0, 0.0, 0.001, 0.02]),
        stall_ns: random.pick(&[100_000, 15_000_000]),
        entries: random.pick(&[16, 128, 8192]),
        lines: None,
        holes: random.pick(&[1, 4, 128]),
        shortest,
        longest,
        receives: random.pick(&[1, 2, 16, 40]),
        sends: random.pick(&[1, 2, 16]),
        receive_gap_us: random.pick(&[0, 0, 0, 10, 1000, 30_000]),
        send_gap_us: random.pick(&[0, 0, 0, 10, 1000]),
        latency_us: random.pick(&[0, 1, 20, 1000]),
    }
}
