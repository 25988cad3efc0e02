//! Bits of the packet header vector: headers that are never there at once share theirs.
use std::path::Path;

/// Bits of a program whose egress does this to two headers of 128 bits.
fn bits(decls: &str, apply: &str) -> u32 {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/p4");
    let read = |path: &Path| std::fs::read_to_string(folder.join(path)).ok();
    let text = format!(
        "#include \"frame.p4\"\nheader wide_h {{ bit<128> f; }}\n\
         control Body(inout headers_t hdr, inout metadata_t meta) {{\nwide_h a;\nwide_h b;\n{decls}\n\
         apply {{\n{apply}\n}}\n}}\n#include \"pipe.p4\"\n"
    );
    let loaded = rmt::load_text("case.p4", text, &[], &read);
    loaded.unwrap_or_else(|list| panic!("{}", list[0])).report.phv_bits
}

const EITHER: &str = "if (hdr.seg.kind == 1) { a.setValid(); a.f = 1; } else { b.setValid(); b.f = 1; }";

/// A table that writes to one of them, chosen by this key.
fn table(entries: &str) -> String {
    format!(
        "action to_a() {{ a.f = 2; }}\naction to_b() {{ b.f = 2; }}\n\
         table t {{ key = {{ a.isValid(): ternary; }} actions = {{ to_a; to_b; NoAction; }} \
         const entries = {{ {entries} }} const default_action = NoAction(); }}"
    )
}

#[test]
fn headers_that_exclude_each_other_share() {
    let none = bits("", "if (hdr.seg.kind == 1) { hdr.seg.word = 1; }");
    let more = |decls: &str, apply: &str| bits(decls, apply) - none;
    assert_eq!(more("", "a.setValid(); a.f = 1; b.setValid(); b.f = 1;"), 256);
    assert_eq!(more("", EITHER), 128);
    assert_eq!(more("", "a.setValid(); a.f = 1; a.setInvalid(); b.setValid(); b.f = 1;"), 128);
    let guarded = format!("{EITHER} if (a.isValid()) {{ a.f = 2; }} else {{ b.f = 2; }}");
    assert_eq!(more("", &guarded), 128);
    let applied = format!("{EITHER} t.apply();");
    assert_eq!(more(&table("true: to_a(); false: to_b();"), &applied), 128);
}

#[test]
fn what_is_written_without_being_there_takes_room() {
    let none = bits("", "if (hdr.seg.kind == 1) { hdr.seg.word = 1; }");
    let both = format!("{EITHER} a.f = 2;");
    assert_eq!(bits("", &both) - none, 256);
    let applied = format!("{EITHER} t.apply();");
    assert_eq!(bits(&table("true: to_a(); _: to_a();"), &applied) - none, 256);
}
