//! Features of C that modules may use: calls, loops, atomics, maps of all kinds, helpers; compiled and interpreted
//! alike.
mod common;
use common::*;
use engine::{Changes, Front, ModuleSource, Verdict};
use std::sync::Arc;
use xdp::Program;

/// Runs a program both ways on one frame each, expects the same of both, and gives verdict and bytes.
fn both(program: &Arc<Program>, bytes: &[u8]) -> (Verdict, Vec<u8>) {
    let mut frames = (frame(bytes), frame(bytes));
    let native = run(&mut *program.replica(0), &mut frames.0);
    let plain = run(&mut *program.interpreted(0), &mut frames.1);
    assert_eq!(native, plain);
    assert_eq!(frames.0.bytes(), frames.1.bytes());
    assert_eq!(program.faults().last, None);
    (native, frames.0.bytes().to_vec())
}

#[test]
fn functions_loops_and_global_variables() {
    let body = "const volatile __u32 step = 3; __u64 total;\n\
        static __noinline __u64 sum(__u8 *p, __u32 n, __u8 *end) { __u64 s = 0; \
          for (__u32 i = 0; i < n && p + i + 1 <= end; i += step) s += p[i]; return s; }\n\
        SEC(\"xdp\") int f(struct xdp_md *c) { __u64 s = sum((void *)(long)c->data, 64, (void *)(long)c->data_end); \
          __sync_fetch_and_add(&total, s); return s == 6 ? XDP_DROP : XDP_PASS; }";
    let program = program(body);
    assert_eq!(both(&program, &[1, 0, 0, 2, 0, 0, 3, 9]).0, Verdict::Drop);
    assert_eq!(both(&program, &[1, 0, 0, 2, 0, 0, 4, 9]).0, Verdict::Pass);
    assert_eq!(program.get(".bss", "0").unwrap()["value"]["total"], 26);
}

#[test]
fn atomics_of_all_kinds() {
    let body = "struct v { __u64 a, b, c; __u32 d, e; };\n\
        struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 4); __type(key, __u32); __type(value, struct v); } m SEC(\".maps\");\n\
        SEC(\"xdp\") int f(struct xdp_md *c) { __u32 k = 5; struct v *v = bpf_map_lookup_elem(&m, &k); if (!v) return XDP_ABORTED; \
          __u64 x = __sync_fetch_and_add(&v->a, 5); __u64 y = __sync_lock_test_and_set(&v->b, 9); \
          __u64 z = __sync_val_compare_and_swap(&v->c, 3, 4); __u32 w = __sync_fetch_and_or(&v->d, 6); \
          __sync_fetch_and_xor(&v->e, 1); return x == 1 && y == 2 && z == 3 && w == 1 ? XDP_TX : XDP_DROP; }";
    let object = compile_with(body, &["-mcpu=v3"]);
    for which in 0..2 {
        let program = load(&object).unwrap();
        program.set("m", "5", r#"{"a": 1, "b": 2, "c": 3, "d": 1, "e": 1}"#).unwrap();
        let mut replica = if which == 0 { program.replica(0) } else { program.interpreted(0) };
        assert_eq!(run(&mut *replica, &mut frame(&[0; 60])), Verdict::Transmit);
        let value = program.get("m", "5").unwrap()["value"].clone();
        assert_eq!(value, serde_json::json!({"a": 6, "b": 9, "c": 4, "d": 7, "e": 0}));
    }
}

#[test]
fn the_ends_of_a_frame_move() {
    let body = "SEC(\"xdp\") int f(struct xdp_md *c) { if (bpf_xdp_adjust_head(c, -4) || bpf_xdp_adjust_tail(c, -10)) \
        return XDP_DROP; __u8 *p = (void *)(long)c->data; if ((void *)(p + 4) > (void *)(long)c->data_end) return XDP_ABORTED; \
        p[0] = 0xaa; p[3] = 0xbb; __u8 b[2]; if (bpf_xdp_load_bytes(c, 4, b, 2)) return XDP_ABORTED; b[0]++; \
        if (bpf_xdp_store_bytes(c, 20, b, 2)) return XDP_ABORTED; return bpf_xdp_get_buff_len(c) == 54 ? XDP_TX : XDP_PASS; }";
    let bytes: Vec<u8> = (0..60).collect();
    let (verdict, after) = both(&program(body), &bytes);
    assert_eq!(verdict, Verdict::Transmit);
    assert_eq!((after.len(), after[0], after[3], &after[4..8]), (54, 0xaa, 0xbb, &[0, 1, 2, 3][..]));
    assert_eq!(after[20..22], [1, 1]);
    assert_eq!(both(&program(body), &[0; 12]).0, Verdict::Drop);
}

/// Which part of a frame a program changes is known when it is loaded, since checksums follow from it.
#[test]
fn how_far_into_a_frame_a_program_writes() {
    let changes = |body: &str| {
        let start = "SEC(\"xdp\") int f(struct xdp_md *c) { __u8 *p = (void *)(long)c->data, *e = (void *)(long)c->data_end; \
            if (p + 64 > e) return XDP_PASS;";
        program(&format!("{start} {body} return XDP_PASS; }}")).changes()
    };
    let front = |below, strips| Changes::Front(Front { below, strips });
    assert_eq!(changes("if (p[3] == 1) return XDP_DROP;"), Changes::Nothing);
    assert_eq!(changes("p[5] = 1; if (p[9] == 3) *(__u16 *)(p + 12) = 7;"), front(14, 0));
    assert_eq!(
        changes("if (bpf_xdp_adjust_meta(c, -4)) return XDP_DROP; *(__u32 *)(long)c->data_meta = 5;"),
        Changes::Nothing
    );
    // Behind a front that moved, offsets count from there.
    let moved = "p = (void *)(long)c->data; e = (void *)(long)c->data_end; if (p + 9 > e) return XDP_DROP; p[8] = 1;";
    assert_eq!(changes(&format!("if (bpf_xdp_adjust_head(c, 4)) return XDP_DROP; {moved}")), front(13, 4));
    assert_eq!(changes(&format!("if (bpf_xdp_adjust_head(c, -4)) return XDP_DROP; {moved}")), front(9, 0));
    assert_eq!(changes("bpf_xdp_adjust_head(c, 4); bpf_xdp_adjust_head(c, 8);"), front(12, 12));
    // Whatever cannot be known counts as anything.
    let far = |changes| matches!(changes, Changes::Front(Front { below, .. }) if below > 2000);
    assert!(far(changes("bpf_xdp_adjust_head(c, p[0]);")));
    assert!(far(changes("bpf_xdp_adjust_tail(c, -4);")));
    assert!(far(changes("bpf_xdp_store_bytes(c, 0, \"x\", 1);")));
    assert_eq!(changes("bpf_xdp_load_bytes(c, 30, p + 40, 8);"), front(48, 0), "a helper writes, too");
    assert!(far(changes("int n = p[0]; for (int i = 0; i < n; i++) bpf_xdp_adjust_head(c, 2);")));
}

#[test]
fn records_reach_the_reader_in_order() {
    let body = "struct { __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, 4096); } ring SEC(\".maps\");\n\
        struct note { __u32 len; __u8 first; };\n\
        SEC(\"xdp\") int f(struct xdp_md *c) { __u8 *p = (void *)(long)c->data; if ((void *)(p + 1) > (void *)(long)c->data_end) return 0; \
          struct note *n = bpf_ringbuf_reserve(&ring, sizeof *n, 0); if (!n) return XDP_DROP; \
          n->len = bpf_xdp_get_buff_len(c); n->first = *p; if (*p == 9) { bpf_ringbuf_discard(n, 0); return XDP_PASS; } \
          bpf_ringbuf_submit(n, 0); return bpf_ringbuf_output(&ring, p, 1, 0) ? XDP_DROP : XDP_PASS; }";
    let program = program(body);
    let mut replica = program.replica(0);
    // Far more than its memory holds, taken out as they come.
    for round in 0..400_u32 {
        let first = [9, 1, 2][round as usize % 3];
        assert_eq!(run(&mut *replica, &mut frame(&[first; 60])), Verdict::Pass, "{round}");
        let records = program.read_ring("ring", 10).unwrap();
        match first {
            9 => assert!(records.is_empty()),
            _ => assert_eq!(records, [vec![60, 0, 0, 0, first, 0, 0, 0], vec![first]]),
        }
    }
    // Nobody reads: then there is no room, and the program gets an error.
    let verdicts: Vec<Verdict> = (0..400).map(|_| run(&mut *replica, &mut frame(&[1; 60]))).collect();
    assert!(verdicts.contains(&Verdict::Drop) && verdicts[0] == Verdict::Pass);
    assert!(program.read_ring("nothing", 1).unwrap_err().contains("it has ring"));
}

#[test]
fn an_lru_map_makes_room_and_keeps_what_is_used() {
    let body = "struct { __uint(type, BPF_MAP_TYPE_LRU_HASH); __uint(max_entries, 64); __type(key, __u32); __type(value, __u64); } m SEC(\".maps\");\n\
        SEC(\"xdp\") int f(struct xdp_md *c) { __u32 *p = (void *)(long)c->data; if ((void *)(p + 1) > (void *)(long)c->data_end) return 0; \
          __u32 favourite = 7; __u64 one = 1; if (!bpf_map_lookup_elem(&m, &favourite)) bpf_map_update_elem(&m, &favourite, &one, 0); \
          __u32 k = *p; return bpf_map_update_elem(&m, &k, &one, BPF_ANY) ? XDP_DROP : XDP_PASS; }";
    let program = program(body);
    let mut replica = program.replica(0);
    for key in 100..10_000_u32 {
        let mut bytes = [0; 60];
        bytes[..4].copy_from_slice(&key.to_le_bytes());
        assert_eq!(run(&mut *replica, &mut frame(&bytes)), Verdict::Pass);
        assert!(program.get("m", "7").is_ok(), "{key}");
    }
    assert_eq!(program.map_infos()[0].entries, 64);
}

#[test]
fn entries_can_be_replaced_and_removed_for_ever() {
    let program = program(
        "struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 16); __type(key, __u32); __type(value, __u64); } m SEC(\".maps\");\n\
        SEC(\"xdp\") int f(struct xdp_md *c) { __u32 k = 1; __u64 *v = bpf_map_lookup_elem(&m, &k); return v ? *v : 0; }",
    );
    let mut replica = program.replica(0);
    for round in 0..5_000_u32 {
        program.set("m", "1", &(round % 5).to_string()).unwrap();
        let wanted = [Verdict::Aborted, Verdict::Drop, Verdict::Pass, Verdict::Transmit, Verdict::Redirect];
        assert_eq!(run(&mut *replica, &mut frame(&[0; 60])), wanted[round as usize % 5]);
        if round % 3 == 0 {
            program.delete("m", "1").unwrap();
        }
    }
    (2..18).for_each(|key| {
        program.set("m", &key.to_string(), "1").or_else(|why| if key == 17 { Ok(()) } else { Err(why) }).unwrap()
    });
    assert!(program.set("m", "99", "1").unwrap_err().contains("full"));
}

#[test]
fn helpers_and_metadata_between_modules() {
    let writer = program(
        "SEC(\"xdp\") int f(struct xdp_md *c) { if (bpf_xdp_adjust_meta(c, -8)) return XDP_DROP; \
        __u32 *m = (void *)(long)c->data_meta; if ((void *)(m + 2) > (void *)(long)c->data) return XDP_ABORTED; \
        m[0] = bpf_ktime_get_ns(); m[1] = 77; bpf_printk(\"len %d\", (int)bpf_xdp_get_buff_len(c)); return bpf_redirect(3, 0); }",
    );
    let reader = program(
        "SEC(\"xdp\") int f(struct xdp_md *c) { __u32 *m = (void *)(long)c->data_meta; \
        if ((void *)(m + 2) > (void *)(long)c->data) return XDP_DROP; return m[0] == 1000 && m[1] == 77 ? XDP_TX : XDP_PASS; }",
    );
    let mut one = frame(&[0; 60]);
    assert_eq!(run(&mut *reader.replica(0), &mut one), Verdict::Drop, "there is none yet");
    assert_eq!(run(&mut *writer.replica(0), &mut one), Verdict::Redirect);
    assert_eq!(one.metadata, [1000, 77, 0, 0]);
    assert_eq!(run(&mut *reader.replica(0), &mut one), Verdict::Transmit);
    assert_eq!(run(&mut *reader.interpreted(0), &mut one), Verdict::Transmit);
    assert_eq!(writer.printed(), ["len 60"]);
}

#[test]
fn wrong_map_entries_have_an_explaining_error() {
    let program = load(&shipped("firewall")).unwrap();
    let wrong = |result: Result<(), String>, word: &str| {
        let sentence = result.unwrap_err();
        assert!(sentence.contains(word), "\"{sentence}\" lacks \"{word}\"");
    };
    wrong(program.set("rule", "10.0.0.0/8", "1"), "it has rules");
    wrong(program.set("rules", "10.0.0.0/40", "{}"), "0 to 32");
    wrong(program.set("rules", "10.0.0.0/8", "0x00"), "16 bytes");
    wrong(program.set("rules", "10.0.0.0/8", r#"{"akt": 1}"#), "no member \"akt\" among action");
    wrong(program.set("rules", "10.0.0.0/8", r#"{"action": 5000000000}"#), "does not fit");
    wrong(program.delete("rules", "10.0.0.0/8"), "has no entry");
    program.set("rules", "0x080000000a000000", "0x01000000000000000500000000000000").unwrap();
    assert_eq!(program.get("rules", "10.0.0.0/8").unwrap()["value"]["frames"], 5);
}
