//! Modules of operators in the running engine: what they see and may do, both with all modules on one thread and
//! with replicas.
mod common;

use common::solo::{ACK, FLOW, START, Seg, Solo, seg};
use common::{Config, Lab};
use engine::{Changes, FlowId, Verdict};
use engine::{
    DropReason, Exception, Frame, LoadedModule, Module, ModuleFigures, ModuleId, ModuleSource, Packet, Stage,
};
use flextoe::Mapping;
use flextoe::native::{Classifier, Meter, Metered};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use wire::Seq;
use wire::predicted::PredictedV4;

/// A module made of a function that makes its replicas.
struct Source<F> {
    stage: Stage,
    whole: bool,
    changes: Changes,
    make: F,
}

impl<F: Fn(u32) -> Box<dyn Module> + Send + Sync> ModuleSource for Source<F> {
    fn name(&self) -> &str {
        "test"
    }
    fn stage(&self) -> Stage {
        self.stage
    }
    fn whole_frames(&self) -> bool {
        self.whole
    }
    fn changes(&self) -> Changes {
        self.changes
    }
    fn replica(&self, index: u32) -> Box<dyn Module> {
        (self.make)(index)
    }
}

struct Body<P>(P);

impl<P: FnMut(Packet<'_>) -> Verdict + Send> Module for Body<P> {
    fn process(&mut self, segment: Packet<'_>) -> Verdict {
        (self.0)(segment)
    }
}

fn loaded(id: u32, source: impl ModuleSource + 'static) -> LoadedModule {
    LoadedModule { id: ModuleId(id), source: Arc::new(source), figures: Arc::default(), ticks: || 0 }
}

/// A module without state.
fn simple(id: u32, stage: Stage, whole: bool, body: fn(Packet<'_>) -> Verdict) -> LoadedModule {
    let changes = if stage == Stage::Flow { Changes::Nothing } else { Changes::Anything };
    loaded(id, Source { stage, whole, changes, make: move |_| Box::new(Body(body)) as Box<dyn Module> })
}

fn counted(figures: &ModuleFigures) -> ([u64; 5], u64) {
    (figures.verdicts.each_ref().map(|count| count.load(Relaxed)), figures.runs.load(Relaxed))
}

fn mappings() -> [Mapping; 2] {
    let threads = Mapping { threads: true, preprocess: 3, flow_groups: 2, postprocess: 2, dma: 3 };
    [Mapping { flow_groups: 2, ..Mapping::default() }, threads]
}

/// Polls until everything is through, workers in random order.
fn settle(solo: &mut Solo) -> Vec<Box<Frame>> {
    let mut rng = common::Rng(7);
    let mut out = Vec::new();
    for _ in 0..50 {
        solo.now += 1;
        solo.side.poll(solo.now);
        if !solo.side.workers.is_empty() {
            solo.side.poll_workers(solo.now, &mut rng);
        }
        out.append(&mut solo.side.tx);
    }
    out
}

/// Frames come in with the next round.
fn arrive(solo: &mut Solo, segments: &[Seg]) {
    for segment in segments {
        let frame = solo.frame(segment);
        solo.side.rx.push(frame);
    }
}

fn solo(mapping: Mapping) -> Solo {
    Solo::new(Config { timestamps: false, mss: 1000, rx_bytes: 65536, wscale: 0, mapping, ..Config::clean(1) })
}

#[test]
fn a_meter_counts_each_flow_and_metadata_reaches_it() {
    for mapping in mappings() {
        for seed in 0..20 {
            let mut lab = Lab::new(Config { mapping: mapping.clone(), ..Config::random(seed) });
            let meter = Arc::new(Meter::new(16));
            let seat = |id, source| LoadedModule { id: ModuleId(id), source, figures: Arc::default(), ticks: || 0 };
            let list = [seat(1, Arc::new(Classifier) as Arc<dyn ModuleSource>), seat(2, Arc::clone(&meter) as _)];
            lab.sides[0].load(&list);
            lab.finish(20);
            let (metered, figures) = (meter.read(FLOW), lab.sides[0].stats.read());
            assert_eq!(metered.segments, figures.rx_segments, "each received segment, once");
            assert_eq!(metered.classes.iter().sum::<u64>(), metered.segments);
            assert!(metered.bytes >= figures.rx_bytes, "payload and headers");
            assert!(lab.config.sack || metered.classes[0] == 0, "without SACK blocks, all are plain");
            assert_eq!(meter.read(FlowId(4)), Metered::default());
            assert_eq!(counted(&list[1].figures), ([metered.segments, 0, 0, 0, 0], metered.segments));
        }
    }
}

/// Puts a VLAN tag into a frame.
fn push_tag(segment: Packet<'_>) -> Verdict {
    segment.frame.grow_front(4);
    let bytes = segment.frame.bytes_mut();
    bytes.copy_within(4..16, 0);
    bytes[12..16].copy_from_slice(&[0x81, 0, 0, 42]);
    Verdict::Pass
}

/// Takes it out; a frame without it is none of ours.
fn strip_tag(segment: Packet<'_>) -> Verdict {
    if segment.frame.bytes()[12..16] != [0x81, 0, 0, 42] {
        return Verdict::Drop;
    }
    segment.frame.bytes_mut().copy_within(0..12, 4);
    segment.frame.strip_front(4);
    Verdict::Pass
}

/// Moves all sequence numbers that leave, and the window with them, so that both checksums change.
fn shift(segment: Packet<'_>, by: u32) -> Verdict {
    let bytes = segment.frame.bytes_mut();
    let at = 14 + 20 + 4;
    let seq = u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()).wrapping_add(by);
    bytes[at..at + 4].copy_from_slice(&seq.to_be_bytes());
    bytes[14 + 8] = bytes[14 + 8].wrapping_add(by as u8);
    Verdict::Pass
}

#[test]
fn streams_survive_what_modules_change_on_the_way() {
    for whole in [false, true] {
        let on_the_way_out = [
            simple(1, Stage::Egress, whole, |segment| shift(segment, 1 << 30 | 3)),
            simple(2, Stage::Egress, false, push_tag),
        ];
        let on_the_way_in = [
            simple(3, Stage::Ingress, false, strip_tag),
            simple(4, Stage::Ingress, whole, |segment| shift(segment, (1u32 << 30 | 3).wrapping_neg())),
        ];
        let all: Vec<LoadedModule> = on_the_way_in.into_iter().chain(on_the_way_out).collect();
        for mapping in mappings() {
            for seed in 0..25 {
                // Marks would be put where the IPv4 header is without a tag.
                let config = Config { mapping: mapping.clone(), mark: 0, ..Config::random(seed) };
                let mut lab = Lab::new(config);
                lab.sides.iter_mut().for_each(|side| side.load(&all));
                lab.finish(20);
                for side in &lab.sides {
                    let strange =
                        [DropReason::Ip, DropReason::TcpChecksum, DropReason::TcpHeader, DropReason::ModuleDrop];
                    assert!(strange.iter().all(|reason| side.drops.get(*reason) == 0), "{:?}", side.drops);
                }
            }
        }
    }
}

#[test]
fn what_came_corrupt_is_found_out_after_a_module_changed_it() {
    for whole in [false, true] {
        for (at, reason) in [(60, DropReason::TcpChecksum), (40, DropReason::TcpChecksum), (24, DropReason::Ip)] {
            for mapping in mappings() {
                let mut solo = solo(mapping);
                solo.side.load(&[simple(1, Stage::Ingress, whole, |segment| shift(segment, 1))]);
                let data = seg(START - 1, START, ACK, 100);
                solo.receive_damaged(&data, at);
                settle(&mut solo);
                assert_eq!(solo.drops(reason), 1, "byte {at} was wrong");
                solo.receive(&[data]);
                settle(&mut solo);
                assert_eq!(solo.drops(reason), 1);
                assert_eq!(solo.completion().map(|(received, ..)| received), Some(100), "the right one arrives");
            }
        }
    }
}

#[test]
fn payload_may_change_where_whole_frames_are_asked_for() {
    let invert = simple(1, Stage::Ingress, true, |segment| {
        segment.frame.bytes_mut()[54..].iter_mut().for_each(|byte| *byte = !*byte);
        Verdict::Pass
    });
    for by_reference in [false, true] {
        for mapping in mappings() {
            let config = Config { by_reference, timestamps: false, sack: false, mapping, ..Config::clean(3) };
            let mut lab = Lab::new(config);
            lab.sides[0].app.expected.iter_mut().for_each(|byte| *byte = !*byte);
            lab.sides[0].load(std::slice::from_ref(&invert));
            lab.finish(0);
            assert_eq!(lab.sides[0].drops, Default::default());
        }
    }
}

#[test]
fn each_verdict_is_carried_out_and_counted() {
    for mapping in mappings() {
        for stage in [Stage::Ingress, Stage::Flow] {
            let mut solo = solo(mapping.clone());
            let by_length = simple(1, stage, false, |segment| match segment.frame.len() - 54 {
                1 => Verdict::Drop,
                2 => Verdict::Transmit,
                3 => Verdict::Redirect,
                4 => Verdict::Aborted,
                _ => Verdict::Pass,
            });
            solo.side.load(std::slice::from_ref(&by_length));
            let segments: Vec<_> = [1, 2, 3, 4, 5].map(|len| seg(START, START, ACK, len)).into();
            arrive(&mut solo, &segments);
            assert!(settle(&mut solo).iter().any(|frame| frame.len() == 54 + 2), "sent out again");
            assert_eq!((solo.drops(DropReason::ModuleDrop), solo.drops(DropReason::ModuleAborted)), (1, 1));
            let redirected: Vec<_> = solo.side.exceptions.drain(..).map(|(why, frame)| (why, frame.len())).collect();
            assert_eq!(redirected, [(Exception::Redirected, 54 + 3)]);
            assert_eq!(counted(&by_length.figures), ([1, 1, 1, 1, 1], 5), "{stage:?}");
            assert_eq!(solo.completion().map(|(received, ..)| received), Some(5));
            let flow_drops = solo.side.stats.read().drops;
            assert_eq!(flow_drops, if stage == Stage::Flow { 2 } else { 0 }, "a flow's are counted there too");
        }
    }
}

#[test]
fn what_modules_send_out_again_keeps_its_order() {
    for mapping in mappings() {
        for stage in [Stage::Ingress, Stage::Flow] {
            let mut solo = solo(mapping.clone());
            solo.side.load(&[simple(1, stage, false, |segment| {
                let seq = PredictedV4::parse(segment.frame.bytes(), segment.frame.len()).unwrap().seq();
                if seq.0 % 3 == 0 { Verdict::Transmit } else { Verdict::Drop }
            })]);
            let segments: Vec<_> = (0..300).map(|at| seg(START + 10 * at, START, ACK, 10)).collect();
            arrive(&mut solo, &segments);
            let out = settle(&mut solo);
            let flow_command: Vec<Seq> =
                out.iter().map(|frame| PredictedV4::parse(frame.bytes(), frame.len()).unwrap().seq()).collect();
            assert!(flow_command.windows(2).all(|pair| pair[0].before(pair[1])), "{flow_command:?}");
            assert_eq!(flow_command.len(), 100);
        }
    }
}

/// What an old module sends out again meets no new one on the way out.
#[test]
fn a_change_waits_for_what_is_half_way() {
    for mapping in mappings() {
        let mut solo = solo(mapping);
        let (mismatches, seen) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let bounce = simple(1, Stage::Ingress, false, |_| Verdict::Transmit);
        for generation in 1..60 {
            let [mark, _, check] = pair(generation, &mismatches, &seen);
            solo.side.load(&[mark, bounce.clone(), check]);
            arrive(&mut solo, &[seg(START, START, ACK, 10); 20]);
            solo.side.poll(solo.now);
            if generation % 3 == 0 {
                settle(&mut solo);
            }
        }
        settle(&mut solo);
        assert_eq!((mismatches.load(Relaxed), seen.load(Relaxed)), (0, 59 * 20));
    }
}

/// A control plane that gives everything back is not asked again.
#[test]
fn redirecting_everything_makes_no_loop() {
    for mapping in mappings() {
        for stage in [Stage::Ingress, Stage::Flow] {
            let mut solo = solo(mapping.clone());
            let all = simple(1, stage, false, |_| Verdict::Redirect);
            solo.side.load(std::slice::from_ref(&all));
            solo.receive(&[seg(START, START, ACK, 100), seg(START + 100, START, ACK, 50)]);
            settle(&mut solo);
            assert_eq!(solo.side.exceptions.len(), 2);
            solo.side.back.append(&mut solo.side.exceptions);
            settle(&mut solo);
            assert_eq!(solo.completion().map(|(received, ..)| received), Some(150));
            assert_eq!(counted(&all.figures).1, 2);
        }
    }
}

/// Frames of flows that the engine did not have at the lookup have passed ingress modules, but no flow module.
#[test]
fn what_comes_back_for_another_reason_passes_flow_modules_once() {
    for mapping in mappings() {
        let mut solo = solo(mapping);
        let count = |id, stage| simple(id, stage, false, |_| Verdict::Pass);
        let list = [count(1, Stage::Ingress), count(2, Stage::Flow)];
        solo.side.load(&list);
        solo.receive(&[]);
        let frame = solo.frame(&seg(START, START, ACK, 9));
        solo.side.back.push((Exception::NoFlow, frame));
        settle(&mut solo);
        assert_eq!((counted(&list[0].figures).1, counted(&list[1].figures).1), (0, 1));
        assert_eq!(solo.completion().map(|(received, ..)| received), Some(9));
    }
}

/// Two modules that belong together: the second one counts what did not pass the first one of its own generation.
fn pair(generation: u32, mismatches: &Arc<AtomicU64>, seen: &Arc<AtomicU64>) -> [LoadedModule; 3] {
    let mark = move |_| {
        Box::new(Body(move |segment: Packet<'_>| {
            segment.frame.metadata = [generation, 0, 0, 0];
            Verdict::Pass
        })) as Box<dyn Module>
    };
    let (mismatches, seen) = (Arc::clone(mismatches), Arc::clone(seen));
    let check = move |_| {
        let (mismatches, seen) = (Arc::clone(&mismatches), Arc::clone(&seen));
        Box::new(Body(move |segment: Packet<'_>| {
            seen.fetch_add(1, Relaxed);
            mismatches.fetch_add((segment.frame.metadata[0] != generation) as u64, Relaxed);
            Verdict::Pass
        })) as Box<dyn Module>
    };
    let check_out = {
        let check = check.clone();
        move |index| {
            let mut inner: Box<dyn Module> = check(index);
            // What the engine itself sends has no metadata.
            Box::new(Body(
                move |segment: Packet<'_>| {
                    if segment.frame.metadata[0] == 0 { Verdict::Pass } else { inner.process(segment) }
                },
            )) as Box<dyn Module>
        }
    };
    let id = generation * 10;
    [
        loaded(id, Source { stage: Stage::Ingress, whole: false, changes: Changes::Nothing, make: mark }),
        loaded(id + 1, Source { stage: Stage::Flow, whole: false, changes: Changes::Nothing, make: check }),
        loaded(id + 2, Source { stage: Stage::Egress, whole: false, changes: Changes::Nothing, make: check_out }),
    ]
}

#[test]
fn a_change_under_traffic_is_atomic_and_keeps_state() {
    for mapping in mappings() {
        for seed in 0..6 {
            let config = Config { mapping: mapping.clone(), bytes: 60_000, ..Config::random(seed) };
            let mut lab = Lab::new(config);
            let (mismatches, seen) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
            let replicas = Arc::new(AtomicU64::new(0));
            let made = Arc::clone(&replicas);
            let stays = loaded(
                1,
                Source {
                    stage: Stage::Flow,
                    whole: false,
                    changes: Changes::Nothing,
                    make: move |_| {
                        made.fetch_add(1, Relaxed);
                        Box::new(Body(|_: Packet<'_>| Verdict::Pass)) as Box<dyn Module>
                    },
                },
            );
            let (mut generation, mut steps) = (1, 0);
            while !lab.is_done() && steps < 200_000 {
                if steps % 3 == 0 {
                    let mut list = pair(generation, &mismatches, &seen).to_vec();
                    list.push(stays.clone());
                    lab.sides[0].load(&list);
                    generation += 1;
                }
                lab.step(10);
                steps += 1;
            }
            assert!(lab.is_done(), "stuck");
            assert!(generation > 10 && seen.load(Relaxed) > 0);
            assert_eq!(mismatches.load(Relaxed), 0, "no segment met half of each of two lists");
            assert_eq!(replicas.load(Relaxed), 2, "one for each flow group, and never again");
            assert_eq!(counted(&stays.figures).1, lab.sides[0].stats.read().rx_segments);
        }
    }
}

#[test]
fn a_module_that_went_is_not_run_and_is_dropped() {
    for mapping in mappings() {
        let mut solo = solo(mapping);
        let module = simple(1, Stage::Ingress, false, |_| Verdict::Drop);
        solo.side.load(std::slice::from_ref(&module));
        solo.receive(&[seg(START, START, ACK, 10)]);
        settle(&mut solo);
        solo.side.load(&[]);
        solo.receive(&[seg(START, START, ACK, 10)]);
        settle(&mut solo);
        assert_eq!(solo.completion().map(|(received, ..)| received), Some(10));
        assert_eq!(counted(&module.figures).1, 1);
        assert_eq!(Arc::strong_count(&module.source), 1, "nobody holds it any more");
    }
}
