//! Refusals: programs that do not load, and accesses that are stopped at run time.
mod common;
use common::*;
use engine::{ModuleSource, Verdict};
use xdp::insn::{Alu, Cond, Insn, Operand};
use xdp::{Object, Program};

/// `refused(BODY)` has all these words.
fn refused_with(body: &str, words: &[&str]) {
    let sentence = refused(body);
    for word in words {
        assert!(sentence.contains(word), "\"{sentence}\" lacks \"{word}\"");
    }
    assert!(!sentence.contains('\n'));
}

const COUNTS: &str = "struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 4); __type(key, __u32); \
                      __type(value, __u64); } counts SEC(\".maps\");\n";

#[test]
fn what_is_no_object_for_bpf() {
    let sentence = |bytes: &[u8]| Object::parse(bytes).err().unwrap();
    assert!(sentence(b"hello").contains("no ELF object"));
    let mut object = shipped("null");
    assert!(sentence(&object[..object.len() / 2]).contains("damaged"));
    object[18] = 62;
    assert!(sentence(&object).contains("x86-64"), "{}", sentence(&object));
    object[5] = 2;
    assert!(sentence(&object).contains("big-endian"));
    let body = "SEC(\"xdp\") int f(struct xdp_md *c) { return XDP_PASS; }";
    let sentence = load(&compile_with(body, &["-g0"])).err().unwrap();
    assert!(sentence.contains("BTF"), "{sentence}");
}

#[test]
fn damaged_objects_give_sentences_and_no_panic() {
    for name in ["firewall", "classify"] {
        let object = shipped(name);
        for at in (0..object.len()).step_by(3) {
            let mut damaged = object.clone();
            damaged[at] ^= 0x55;
            if let Err(sentence) = load(&damaged) {
                assert!(!sentence.is_empty());
            }
        }
    }
}

#[test]
fn which_program() {
    let program =
        |section: &str, name: &str| format!("SEC(\"{section}\") int {name}(struct xdp_md *c) {{ return XDP_PASS; }}\n");
    refused_with(&(program("xdp", "one") + &program("xdp", "two")), &["several programs", "one", "two"]);
    refused_with(&program("tc", "one"), &["\"tc\"", "SEC(\"xdp\")"]);
    refused_with("int x = 5;", &["no program"]);
    // One of several is chosen by its name, and what stands beside it does not matter then.
    let bytes = compile(&(program("xdp", "one") + &program("xdp/devmap", "two") + &program("tc", "three")));
    let chosen = |name: &str| Object::parse_program(&bytes, Some(name));
    assert_eq!(chosen("one").unwrap().stage, engine::Stage::Ingress);
    assert_eq!(chosen("two").unwrap().stage, engine::Stage::Egress);
    assert!(chosen("three").unwrap_err().contains("\"tc\""));
    assert_eq!(chosen("four").unwrap_err(), "the object has no program `four`: it has one, two");
}

#[test]
fn maps_and_helpers_that_are_not_there() {
    let map = "struct { __uint(type, BPF_MAP_TYPE_DEVMAP); __uint(max_entries, 4); __type(key, __u32); \
               __type(value, __u32); } ports SEC(\".maps\");\n";
    let calls = "SEC(\"xdp\") int f(struct xdp_md *c) { return bpf_redirect_map(&ports, 0, 0); }";
    refused_with(&format!("{map}{calls}"), &["\"ports\"", "device map", "supported"]);
    let fib = "SEC(\"xdp\") int f(struct xdp_md *c) { struct bpf_fib_lookup p = {}; \
               return bpf_fib_lookup(c, &p, sizeof p, 0); }";
    refused_with(fib, &["fib_lookup", "instruction", "module.c:"]);
    let huge = COUNTS.replace("max_entries, 4", "max_entries, 1 << 30");
    let uses = "SEC(\"xdp\") int f(struct xdp_md *c) { __u32 k = 0; return !bpf_map_lookup_elem(&counts, &k); }";
    refused_with(&format!("{huge}{uses}"), &["MiB", "limit"]);
}

#[test]
fn wrong_use_of_memory() {
    let body = |text: &str| {
        format!(
            "{COUNTS}SEC(\"xdp\") int f(struct xdp_md *c) {{ __u32 k = 0; __u64 *v = \
                                     bpf_map_lookup_elem(&counts, &k); {text} return XDP_PASS; }}"
        )
    };
    refused_with(&body("*v = 1;"), &["may be null", "module.c:"]);
    refused_with(&body("if (v) v[1] = 1;"), &["outside", "counts", "8 bytes"]);
    refused_with(&body("if (v) __sync_fetch_and_add((__u64 *)(long)c->data, 1);"), &["atomic"]);
    refused_with(
        "SEC(\"xdp\") int f(struct xdp_md *c) { c->rx_queue_index = 1; return XDP_PASS; }",
        &["writes to the context"],
    );
    refused_with("SEC(\"xdp\") int f(struct xdp_md *c) { return ((__u32 *)c)[9]; }", &["context", "36"]);
    refused_with("SEC(\"xdp\") int f(struct xdp_md *c) { return *(int *)(long)0x1234; }", &["a number"]);
    refused_with(
        "const volatile int limit = 1; SEC(\"xdp\") int f(struct xdp_md *c) { int *p = (int *)&limit; asm volatile(\"\" : \"+r\"(p)); *p = 2; return 2; }",
        &["constants"],
    );
    let stale = "SEC(\"xdp\") int f(struct xdp_md *c) { char *p = (void *)(long)c->data; \
                 if (bpf_xdp_adjust_head(c, 4)) return XDP_DROP; return *p; }";
    refused_with(stale, &["different things"]);
}

fn code(code: Vec<Insn>) -> Result<std::sync::Arc<Program>, String> {
    Program::load(Object::from_code("test", code, Vec::new()), &limits())
}

fn mov(dst: u8, imm: i32) -> Insn {
    Insn::Alu { op: Alu::Mov, wide: true, dst, src: Operand::Imm(imm) }
}

#[test]
fn instructions_that_no_compiler_makes() {
    let refused_with = |insns: Vec<Insn>, word: &str| {
        let sentence = code(insns).err().expect(word);
        assert!(sentence.contains(word), "\"{sentence}\" lacks \"{word}\"");
    };
    refused_with(vec![Insn::Exit], "nothing that was ever written");
    refused_with(vec![mov(0, 1)], "falls off the end");
    refused_with(vec![mov(0, 1), Insn::Exit, mov(0, 2), Insn::Exit], "never reached");
    refused_with(vec![mov(0, 1), Insn::Jump { target: 77 }], "jumps out");
    refused_with(vec![mov(10, 1), mov(0, 1), Insn::Exit], "r10");
    let load = Insn::Load { size: 8, signed: false, dst: 0, base: 10, off: -8 };
    refused_with(vec![load, Insn::Exit], "never written");
    let load = Insn::Load { size: 8, signed: false, dst: 0, base: 10, off: -520 };
    refused_with(vec![load, Insn::Exit], "outside the stack");
    refused_with(vec![mov(0, 1), Insn::CallFunction { target: 0 }, Insn::Exit], "recursion");
    let middle = vec![
        mov(0, 0),
        Insn::Branch { cond: Cond::Eq, wide: true, dst: 0, src: Operand::Imm(0), target: 3 },
        Insn::Constant { dst: 0, value: 1 },
        Insn::Second,
        Insn::Exit,
    ];
    refused_with(middle, "middle of a 64-bit constant");
    refused_with(
        vec![Insn::Alu { op: Alu::Mov, wide: true, dst: 0, src: Operand::Reg(1) }, Insn::Exit],
        "instead of a number",
    );
}

#[test]
fn a_record_that_is_not_given_back() {
    let ring = "struct { __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, 4096); } ring SEC(\".maps\");\n";
    let leak = "SEC(\"xdp\") int f(struct xdp_md *c) { __u64 *r = bpf_ringbuf_reserve(&ring, 8, 0); \
                if (r) *r = 1; return XDP_PASS; }";
    refused_with(&format!("{ring}{leak}"), &["neither submitted nor discarded"]);
}

#[test]
fn what_cannot_be_proved_is_checked_and_ends_the_run() {
    // No comparison with data_end at all: in bounds or not depends on the frame.
    let program =
        program("SEC(\"xdp\") int f(struct xdp_md *c) { return *((__u8 *)(long)c->data + 20) ? XDP_DROP : XDP_PASS; }");
    for mut replica in [program.replica(0), program.interpreted(0)] {
        assert_eq!(run(&mut *replica, &mut frame(&[1; 21])), Verdict::Drop);
        assert_eq!(run(&mut *replica, &mut frame(&[1; 20])), Verdict::Aborted);
        assert_eq!(run(&mut *replica, &mut frame(&[])), Verdict::Aborted);
        assert_eq!(run(&mut *replica, &mut frame(&[0; 21])), Verdict::Pass);
    }
    let faults = program.faults();
    assert_eq!(faults.counts[0], ("out of bounds", 4));
    assert!(faults.last.unwrap().contains("ended the run"));
}

#[test]
fn a_loop_for_ever_is_ended() {
    let program =
        program("SEC(\"xdp\") int f(struct xdp_md *c) { volatile int x = 1; while (x) x++; return XDP_PASS; }");
    let endless = |replica: &mut dyn engine::Module| run(replica, &mut frame(&[0; 60]));
    assert_eq!(endless(&mut *program.replica(0)), Verdict::Aborted);
    assert_eq!(endless(&mut *program.interpreted(0)), Verdict::Aborted);
    assert_eq!(program.faults().counts[1], ("too many instructions", 2));
}

#[test]
fn a_map_is_not_left_at_run_time() {
    let values = COUNTS.replace("__u64", "__u8[24]");
    let body = "SEC(\"xdp\") int f(struct xdp_md *c) { __u32 k = 1; __u8 *v = bpf_map_lookup_elem(&counts, &k); \
                __u8 *p = (void *)(long)c->data; if (!v || (void *)(p + 1) > (void *)(long)c->data_end) return XDP_ABORTED; \
                v[*p] = 7; return XDP_PASS; }";
    let program = program(&format!("{values}{body}"));
    for mut replica in [program.replica(0), program.interpreted(0)] {
        assert_eq!(run(&mut *replica, &mut frame(&[23; 60])), Verdict::Pass);
        // From the second of four values of 24 bytes: another value of the map may be hit, nothing else.
        assert_eq!(run(&mut *replica, &mut frame(&[72; 60])), Verdict::Aborted);
        assert_eq!(run(&mut *replica, &mut frame(&[255; 60])), Verdict::Aborted);
    }
    assert!(program.get("counts", "1").unwrap()["value"].as_str().unwrap().ends_with("07"));
}
