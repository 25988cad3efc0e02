//! Programs at random: those that the check lets in do the same compiled and interpreted. The interpreter tests each
//! access, and finds nothing out of bounds that the check has proved.
mod common;
use common::*;
use engine::Verdict;
use proptest::prelude::*;
use xdp::insn::{Alu, Atomic, Cond, Insn, Operand, Swap};
use xdp::{MapDefinition, MapKind, Object, Program};

fn operand() -> impl Strategy<Value = Operand> {
    prop_oneof![
        (0_u8..10).prop_map(Operand::Reg),
        any::<i32>().prop_map(Operand::Imm),
        (-20_i32..20).prop_map(Operand::Imm)
    ]
}

fn alu() -> impl Strategy<Value = Alu> {
    prop::sample::select(vec![
        Alu::Add,
        Alu::Sub,
        Alu::Mul,
        Alu::Div,
        Alu::SignedDiv,
        Alu::Mod,
        Alu::SignedMod,
        Alu::Or,
        Alu::And,
        Alu::Xor,
        Alu::ShiftLeft,
        Alu::ShiftRight,
        Alu::ShiftRightSigned,
        Alu::Mov,
    ])
}

fn cond() -> impl Strategy<Value = Cond> {
    prop::sample::select(vec![
        Cond::Eq,
        Cond::Ne,
        Cond::Gt,
        Cond::Ge,
        Cond::Lt,
        Cond::Le,
        Cond::SignedGt,
        Cond::SignedGe,
        Cond::SignedLt,
        Cond::SignedLe,
        Cond::Set,
    ])
}

fn atomic() -> impl Strategy<Value = Atomic> {
    prop::sample::select(vec![
        Atomic::Add,
        Atomic::Or,
        Atomic::And,
        Atomic::Xor,
        Atomic::Exchange,
        Atomic::CompareExchange,
    ])
}

/// Registers that hold numbers at the start: 0, 2 to 5. 6 is the packet, 7 its end, 8 a map's value, 9 the packet and
/// an unknown distance.
fn reg() -> impl Strategy<Value = u8> {
    prop::sample::select(vec![0_u8, 2, 3, 4, 5, 0, 2, 3, 8, 9])
}

fn size() -> impl Strategy<Value = u8> {
    prop::sample::select(vec![1_u8, 2, 4, 8])
}

fn base() -> impl Strategy<Value = (u8, i16)> {
    prop_oneof![
        Just(6_u8).prop_flat_map(|base| (Just(base), -2_i16..70)),
        Just(9_u8).prop_flat_map(|base| (Just(base), -8_i16..20)),
        Just(8_u8).prop_flat_map(|base| (Just(base), 0_i16..24)),
        Just(10_u8).prop_flat_map(|base| (Just(base), prop::sample::select(vec![-8_i16, -16, -12, -4, -24]))),
    ]
}

/// An instruction; a branch has its distance.
fn insn() -> impl Strategy<Value = Insn> {
    prop_oneof![
        6 => (alu(), any::<bool>(), reg(), operand()).prop_map(|(op, wide, dst, src)| Insn::Alu { op, wide, dst, src }),
        1 => (any::<bool>(), reg()).prop_map(|(wide, dst)| Insn::Negate { wide, dst }),
        1 => (any::<bool>(), prop::sample::select(vec![8_u8, 16]), reg(), reg())
            .prop_map(|(wide, bits, dst, src)| Insn::MoveSigned { wide, bits, dst, src }),
        1 => (any::<bool>(), prop::sample::select(vec![16_u8, 32, 64]), reg()).prop_map(|(swap, bits, dst)| {
            Insn::ByteSwap { how: if swap { Swap::Swap } else { Swap::Cut }, bits, dst }
        }),
        4 => (size(), any::<bool>(), reg(), base())
            .prop_map(|(size, signed, dst, (base, off))| Insn::Load { size, signed: signed && size < 8, dst, base, off }),
        4 => (size(), base(), operand()).prop_map(|(size, (base, off), src)| Insn::Store { size, base, off, src }),
        2 => (atomic(), prop::sample::select(vec![4_u8, 8]), any::<bool>(), base(), reg()).prop_map(
            |(op, size, fetch, (base, off), src)| {
                let fetch = fetch || matches!(op, Atomic::Exchange | Atomic::CompareExchange);
                Insn::Atomic { op, size, fetch, base, off, src }
            }
        ),
        4 => (cond(), any::<bool>(), reg(), operand(), 0_usize..10)
            .prop_map(|(cond, wide, dst, src, target)| Insn::Branch { cond, wide, dst, src, target }),
    ]
}

/// The start that sets the registers up, the random part, and an end.
fn whole(body: &[Insn], known: i16) -> Vec<Insn> {
    let mov = |dst, src| Insn::Alu { op: Alu::Mov, wide: true, dst, src };
    let load = |dst, off| Insn::Load { size: 4, signed: false, dst, base: 1, off };
    let mut code = vec![
        load(6, 0),
        load(7, 4),
        Insn::Constant { dst: 3, value: 0x1234_5678_9abc_def0 },
        Insn::Second,
        mov(0, Operand::Imm(2)),
        mov(2, Operand::Reg(6)),
        Insn::Alu { op: Alu::Add, wide: true, dst: 2, src: Operand::Imm(known.into()) },
    ];
    // Where the packet is shorter than `known`: the end.
    code.push(Insn::Branch { cond: Cond::Gt, wide: true, dst: 2, src: Operand::Reg(7), target: usize::MAX });
    code.extend([
        Insn::Load { size: 1, signed: false, dst: 4, base: 6, off: 0 },
        Insn::Load { size: 2, signed: false, dst: 5, base: 6, off: 1 },
        mov(2, Operand::Imm(-7)),
        Insn::Store { size: 8, base: 10, off: -8, src: Operand::Reg(3) },
        Insn::Store { size: 8, base: 10, off: -16, src: Operand::Imm(1) },
        Insn::MapData { dst: 8, map: 0, off: 0 },
        Insn::Second,
        mov(9, Operand::Reg(6)),
        Insn::Alu { op: Alu::Add, wide: true, dst: 9, src: Operand::Reg(4) },
    ]);
    let (start, end) = (code.len(), code.len() + body.len());
    code.extend(body.iter().enumerate().map(|(at, insn)| match *insn {
        // Forward mostly; a few go back, and end by the budget.
        Insn::Branch { cond, wide, dst, src, target } => {
            let target = if target == 9 { start + at - at.min(3) } else { (start + at + 1 + target).min(end) };
            Insn::Branch { cond, wide, dst, src, target }
        }
        other => other,
    }));
    // What is in r0 may be anything but must be a number: it is cut to one of the verdicts.
    code.push(Insn::Exit);
    for insn in &mut code {
        if let Insn::Branch { target, .. } = insn {
            *target = (*target).min(end);
        }
    }
    code
}

fn globals() -> MapDefinition {
    let mut map = MapDefinition::plain("globals", MapKind::Data { read_only: false }, 4, 24, 1);
    map.initial = (1..=24).collect();
    map
}

/// Verdict, bytes and globals after a run on a frame.
type Outcome = (Verdict, Vec<u8>, serde_json::Value, Option<String>);

fn outcome(code: &[Insn], bytes: &[u8], native: bool) -> Option<Outcome> {
    let limits = xdp::Limits { instructions: 2_000, ..limits() };
    let object = Object::from_code("random", code.to_vec(), vec![globals()]);
    let program = Program::load(object, &limits).ok()?;
    let mut replica = if native { engine::ModuleSource::replica(&*program, 0) } else { program.interpreted(0) };
    let mut one = frame(bytes);
    let verdict = run(&mut *replica, &mut one);
    Some((verdict, one.bytes().to_vec(), program.dump("globals").unwrap(), program.faults().last))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 2_000, ..ProptestConfig::default() })]
    #[test]
    fn compiled_and_interpreted_do_the_same(
        body in prop::collection::vec(insn(), 1..14),
        known in 3_i16..60,
        bytes in prop::collection::vec(any::<u8>(), 14..80),
    ) {
        let code = whole(&body, known);
        if let Some(native) = outcome(&code, &bytes, true) {
            prop_assert_eq!(native, outcome(&code, &bytes, false).unwrap());
        }
    }
}

#[test]
fn many_of_these_programs_are_let_in() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let strategy = prop::collection::vec(insn(), 1..14);
    let tried = 300;
    let good = (0..tried).filter(|_| {
        let body = strategy.new_tree(&mut runner).unwrap().current();
        outcome(&whole(&body, 40), &[7; 60], false).is_some()
    });
    assert!(good.count() > tried / 6, "the test above tests nothing");
}
