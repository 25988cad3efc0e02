//! Scan for system call instructions that can be replaced by a jump. Pure: bytes in, places out.
//!
//! A jump takes five bytes, a system call instruction has two. So instructions beside it move into the stub with it.
//! Code is decoded from the beginning of a function on, so that bytes which only equal a system call inside
//! another instruction are none.
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess};
use iced_x86::{OpKind, Register};
use std::collections::BTreeSet;

/// Bytes of a jump with a 32-bit distance.
pub(crate) const JUMP: u64 = 5;
/// Bytes of a system call instruction.
pub(crate) const CALL: u64 = 2;
/// Longer stretches without the beginning of a function are not decoded.
const LONGEST: u64 = 1 << 16;
/// Instructions before and behind the system call that may move.
const BESIDE: usize = 3;

/// Instructions that move into a stub: from `start` on, behind `call` on, up to `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Site {
    /// The first instruction that moves.
    pub start: u64,
    /// The system call instruction.
    pub call: u64,
    /// Behind the last instruction that moves.
    pub end: u64,
}

/// Why an instruction stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It is in no function that the object names, or in one that is too long.
    NoFunction,
    /// The instructions beside it cannot move.
    Crowded,
    /// Something jumps between the instructions that would have to move, or may do so.
    JumpTarget,
    /// The system gives no memory near it, or does not let code be changed.
    Memory,
}

/// What is in a range of code.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// What to rewrite.
    pub sites: Vec<Site>,
    /// System calls whose number concerns nobody.
    pub of_no_concern: usize,
    /// What may concern somebody and cannot be rewritten.
    pub left: Vec<(u64, Reason)>,
}

/// A system call whose rewriting depends on jumps from elsewhere.
struct Candidate {
    call: u64,
    number: Option<usize>,
    site: Result<Site, Reason>,
    /// No jump may lead into this range: the number, and what the jump replaces.
    guarded: std::ops::Range<u64>,
}

/// Scans code at an address, with the beginnings of its functions in order.
pub(crate) fn scan(code: &[u8], base: u64, functions: &[u64], concerns: impl Fn(usize) -> bool) -> Found {
    let mut found = Found::default();
    let mut candidates = Vec::new();
    let mut done = base;
    for at in call_sites(code, base) {
        if at < done {
            continue;
        }
        let before = &code[..(at - base) as usize];
        if returns_from_signal(before) || loaded_number(before).is_some_and(|number| !concerns(number)) {
            found.of_no_concern += 1;
            continue;
        }
        let Some((first, last)) = function(at, base + code.len() as u64, functions) else {
            found.left.push((at, Reason::NoFunction));
            continue;
        };
        candidates.extend(in_function(code, base, first, last, functions));
        done = last;
    }
    let hit = targets_elsewhere(code, base, functions, &candidates);
    for mut candidate in candidates {
        if hit.range(candidate.guarded.clone()).next().is_some() {
            candidate.number = None;
            candidate.site = candidate.site.and_then(|site| check(site, |at| hit.contains(&at)));
        }
        match (candidate.number.is_some_and(|number| !concerns(number)), candidate.site) {
            (true, _) => found.of_no_concern += 1,
            (false, Ok(site)) => found.sites.push(site),
            (false, Err(reason)) => found.left.push((candidate.call, reason)),
        }
    }
    found
}

/// Where the two bytes of the instruction stand.
fn call_sites(code: &[u8], base: u64) -> Vec<u64> {
    let pairs = code.windows(2).enumerate();
    pairs.filter(|(_, pair)| *pair == [0x0f, 0x05]).map(|(offset, _)| base + offset as u64).collect()
}

/// The number that the five bytes in front of a system call load, where they have that form. Nearly all of the C
/// library's do, and need not be decoded.
fn loaded_number(before: &[u8]) -> Option<usize> {
    match before {
        [.., 0xb8, a, b, c, d] => Some(u32::from_le_bytes([*a, *b, *c, *d]) as usize),
        _ => None,
    }
}

/// Whether code that ends here loads the number of `rt_sigreturn`. Unwinders and debuggers recognise such code by its
/// bytes, and its description begins one byte early, in the middle of an instruction.
fn returns_from_signal(before: &[u8]) -> bool {
    const LOADS: [&[u8]; 2] = [&[0x48, 0xc7, 0xc0, 15, 0, 0, 0], &[0xb8, 15, 0, 0, 0]];
    LOADS.iter().any(|load| before.ends_with(load))
}

/// From the beginning of the function in front of an address to that of the next one: the C library ends the
/// description of `clone` in front of its system call.
fn function(at: u64, end: u64, functions: &[u64]) -> Option<(u64, u64)> {
    let next = functions.partition_point(|start| *start <= at);
    let first = functions[next.checked_sub(1)?];
    let last = functions.get(next).copied().unwrap_or(end).min(end);
    (last - first <= LONGEST).then_some((first, last))
}

fn decode(code: &[u8], base: u64, first: u64, last: u64) -> Vec<Instruction> {
    let Some(bytes) = code.get(first.wrapping_sub(base) as usize..last.wrapping_sub(base) as usize) else {
        return Vec::new();
    };
    let decoder = Decoder::with_ip(64, bytes, first, DecoderOptions::NONE);
    decoder.into_iter().take_while(|instruction| !instruction.is_invalid()).collect()
}

/// The system calls of a function.
fn in_function(code: &[u8], base: u64, first: u64, last: u64, functions: &[u64]) -> Vec<Candidate> {
    let all = decode(code, base, first, last);
    let own = targets(&all);
    // Short jumps from the neighbours; far ones are searched everywhere.
    let near = |address: u64| function(address, base + code.len() as u64, functions);
    let neighbours = || [near(first.wrapping_sub(1)), near(last)].into_iter().flatten();
    let with_neighbours = std::cell::OnceCell::new();
    let targets = |site: &Site| -> &BTreeSet<u64> {
        if all.iter().any(|one| one.ip() == site.start && one.len() as u64 >= JUMP) {
            return &own;
        }
        with_neighbours.get_or_init(|| {
            let theirs = neighbours().flat_map(|(first, last)| self::targets(&decode(code, base, first, last)));
            theirs.chain(own.iter().copied()).collect()
        })
    };
    let switches = all.iter().any(|one| one.flow_control() == FlowControl::IndirectBranch && !is_tail_call(one));
    let calls = all.iter().enumerate().filter(|(_, one)| one.code() == Code::Syscall);
    calls.map(|(index, _)| candidate(&all, index, &own, &targets, switches)).collect()
}

/// A jump through a fixed place in memory: another function.
fn is_tail_call(jump: &Instruction) -> bool {
    jump.is_ip_rel_memory_operand()
}

fn targets(all: &[Instruction]) -> BTreeSet<u64> {
    all.iter().map(Instruction::near_branch_target).filter(|target| *target != 0).collect()
}

fn candidate<'a>(
    all: &[Instruction],
    index: usize,
    own: &BTreeSet<u64>,
    targets: &dyn Fn(&Site) -> &'a BTreeSet<u64>,
    switches: bool,
) -> Candidate {
    let call = all[index].ip();
    let (number, from) = number(all, index, own);
    let site = site(all, index, targets, switches);
    let first = site.map_or(from, |site| site.start.min(from));
    let last = site.map_or(call + 1, |site| site.end);
    Candidate { call, number: number.filter(|_| !switches), site, guarded: first + 1..last }
}

/// The number of the call at an index, where the instructions before it load it, and where they begin.
fn number(all: &[Instruction], index: usize, targets: &BTreeSet<u64>) -> (Option<usize>, u64) {
    let mut factory = InstructionInfoFactory::new();
    for at in (0..index).rev() {
        let one = &all[at];
        if targets.contains(&all[at + 1].ip()) || one.flow_control() != FlowControl::Next {
            break;
        }
        let of_result = |used: &&iced_x86::UsedRegister| used.register().full_register() == Register::RAX;
        let reads_only = |used: &iced_x86::UsedRegister| matches!(used.access(), OpAccess::Read | OpAccess::CondRead);
        if factory.info(one).used_registers().iter().filter(of_result).all(reads_only) {
            continue;
        }
        let value = match one.code() {
            Code::Mov_r32_imm32 => Some(one.immediate32() as usize),
            Code::Mov_rm64_imm32 => Some(one.immediate32to64() as usize),
            _ if is_cleared(one) => Some(0),
            _ => None,
        };
        return (value, one.ip());
    }
    (None, all[index].ip())
}

fn is_cleared(one: &Instruction) -> bool {
    let same = one.op_count() == 2 && one.op1_kind() == OpKind::Register && one.op0_register() == one.op1_register();
    matches!(one.mnemonic(), Mnemonic::Xor | Mnemonic::Sub) && same && one.op0_register() == Register::EAX
}

/// What moves with the call at an index: as few instructions as possible.
fn site<'a>(
    all: &[Instruction],
    index: usize,
    targets: &dyn Fn(&Site) -> &'a BTreeSet<u64>,
    switches: bool,
) -> Result<Site, Reason> {
    let mut reason = Reason::Crowded;
    for moved in 1..=2 * BESIDE {
        for before in (0..=moved.min(BESIDE)).rev() {
            let (Some(first), last) = (index.checked_sub(before), index + moved - before) else { continue };
            if last >= all.len() || !can_move(&all[first..index], &all[index + 1..=last]) {
                continue;
            }
            let site = Site { start: all[first].ip(), call: all[index].ip(), end: all[last].next_ip() };
            if site.end - site.start < JUMP {
                continue;
            }
            let replaced = all[first + 1..=last].iter().map(Instruction::ip).find(|at| *at - site.start < JUMP);
            match check(site, |at| targets(&site).contains(&at) || switches && replaced.is_some()) {
                Ok(site) => return Ok(site),
                Err(why) => reason = why,
            }
        }
    }
    Err(reason)
}

/// Nothing may jump behind the first byte of what the jump replaces.
fn check(site: Site, is_target: impl Fn(u64) -> bool) -> Result<Site, Reason> {
    let hit = (site.start + 1..site.start + JUMP).any(is_target);
    if hit { Err(Reason::JumpTarget) } else { Ok(site) }
}

/// Whether an instruction does the same elsewhere, and goes on behind itself.
pub(crate) fn does_the_same_elsewhere(one: &Instruction) -> bool {
    one.flow_control() == FlowControl::Next && !one.is_ip_rel_memory_operand() && one.code() != Code::Syscall
}

/// Whether instructions do the same elsewhere. Behind a return, only padding follows.
fn can_move(before: &[Instruction], behind: &[Instruction]) -> bool {
    let is_padding = |one: &Instruction| matches!(one.mnemonic(), Mnemonic::Nop | Mnemonic::Int3);
    let returns = behind.iter().position(|one| one.flow_control() == FlowControl::Return).unwrap_or(behind.len());
    let (first, others) = behind.split_at(returns);
    before.iter().all(does_the_same_elsewhere)
        && first.iter().all(does_the_same_elsewhere)
        && others.iter().skip(1).all(is_padding)
}

/// Whether a jump with a distance of 32 bits ends with these two bytes of opcode (Intel SDM vol. 2: JMP, Jcc).
pub(crate) fn is_jump(opcode: [u8; 2]) -> bool {
    opcode[1] == 0xe9 || opcode[0] == 0x0f && opcode[1] & 0xf0 == 0x80
}

/// Addresses within the candidates' ranges to which bytes of other functions lead that may be jumps: the compiler may
/// put rare parts of a function far away. More than there are, never fewer.
fn targets_elsewhere(code: &[u8], base: u64, functions: &[u64], candidates: &[Candidate]) -> BTreeSet<u64> {
    let mut guarded = vec![0u64; code.len() / 64 + 1];
    let offsets = candidates.iter().flat_map(|candidate| candidate.guarded.clone());
    offsets.map(|at| (at - base) as usize).for_each(|offset| guarded[offset / 64] |= 1 << (offset % 64));
    let mut hit = BTreeSet::new();
    if candidates.is_empty() {
        return hit;
    }
    for (offset, bytes) in code.windows(6).enumerate() {
        if !is_jump([bytes[0], bytes[1]]) {
            continue;
        }
        let distance = i32::from_le_bytes([bytes[2], bytes[3], bytes[4], bytes[5]]);
        let target = (offset + 6).wrapping_add_signed(distance as isize);
        if target < code.len() && guarded[target / 64] >> (target % 64) & 1 != 0 {
            let (from, target) = (base + offset as u64, base + target as u64);
            let own = function(target, base + code.len() as u64, functions);
            if own.is_none_or(|(first, last)| !(first..last).contains(&from)) {
                hit.insert(target);
            }
        }
    }
    hit
}
