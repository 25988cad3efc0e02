//! No input makes the front end panic, hang or accept nonsense silently: every refusal has a sentence and a place.
use proptest::prelude::*;
use std::path::Path;

fn load(text: &str) -> Result<rmt::Loaded, Vec<rmt::Diagnostic>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = [root.join("tests/p4"), root.join("../../p4")];
    let read = |path: &Path| folders.iter().find_map(|f| std::fs::read_to_string(f.join(path.file_name()?)).ok());
    let result = rmt::load_text("case.p4", text.to_string(), &[], &read);
    if let Err(list) = &result {
        assert!(!list.is_empty() && list.iter().all(|d| !d.message.is_empty() && !d.file.is_empty()), "{list:?}");
    }
    result
}

/// A program that was accepted runs on any frames.
fn run(loaded: rmt::Loaded, seed: u64) {
    let mut machine = rmt::interp::Machine::new(loaded.program);
    (0..=255).for_each(|id| machine.set_session(id, rmt::interp::Session { port: 1, truncate: 8 }));
    let mut x = seed | 1;
    let mut random = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 33) as u8
    };
    for port in [0, 6, 64, 65, 66, 511] {
        let frame: Vec<u8> = (0..random() as usize).map(|_| random()).collect();
        machine.process(&[(port, &frame)]);
        machine.egress(&rmt::interp::Queued { port, queue: 0, bypass: false, data: frame });
    }
}

/// The whole Laminar program as one text.
fn laminar() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../p4");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let parts = ["headers.p4", "ingress.p4", "egress.p4"].map(read).concat();
    let pipe = "Pipeline(LaminarIngressParser(), LaminarIngress(), LaminarIngressDeparser(), LaminarEgressParser(), \
                LaminarEgress(), LaminarEgressDeparser()) pipe; Switch(pipe) main;";
    format!("#include <t2na.p4>\n{parts}\n{pipe}\n")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_text(text in "\\PC{0,400}") {
        let _ = load(&text);
    }

    #[test]
    fn any_words(words in prop::collection::vec(prop::sample::select(WORDS), 0..120)) {
        let _ = load(&words.join(" "));
    }
}

const WORDS: &[&str] = &[
    "control",
    "parser",
    "state",
    "start",
    "table",
    "action",
    "apply",
    "key",
    "actions",
    "=",
    "{",
    "}",
    "(",
    ")",
    "<",
    ">",
    ";",
    ",",
    ":",
    "bit",
    "int",
    "bool",
    "8",
    "32",
    "8w3",
    "-1",
    "x",
    "y",
    "hdr",
    ".",
    "if",
    "else",
    "transition",
    "select",
    "accept",
    "header",
    "struct",
    "enum",
    "typedef",
    "const",
    "#include <t2na.p4>\n",
    "#define x\n",
    "#ifdef x\n",
    "#endif\n",
    "#if x ==\n",
    "++",
    "&&&",
    "..",
    "|+|",
    "<<",
    "[",
    "]",
    "?",
    "!",
    "~",
    "Register",
    "RegisterAction",
    "Pipeline",
    "Switch",
    "main",
    "packet_in",
    "default",
    "_",
    "@",
    "\"s\"",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// Laminar with one word taken out, doubled, or replaced.
    #[test]
    fn laminar_with_a_mistake(at in any::<prop::sample::Index>(), what in 0..3u8, word in prop::sample::select(WORDS)) {
        let text = laminar();
        let mut words: Vec<&str> = text.split_inclusive([' ', '\n', ';', '(', ')', ',']).collect();
        let i = at.index(words.len());
        match what {
            0 => { words.remove(i); }
            1 => words.insert(i, words[i]),
            _ => words[i] = word,
        }
        if let Ok(loaded) = load(&words.concat()) {
            run(loaded, at.index(1 << 16) as u64);
        }
    }
}

#[test]
fn laminar_as_one_text_is_accepted() {
    assert!(load(&laminar()).is_ok());
}

fn refused(text: &str, words: &str) {
    let list = load(text).unwrap_err();
    assert!(list.iter().any(|d| d.message.contains(words)), "{words}: {list:?}");
}

#[test]
fn depth_is_limited() {
    refused(&format!("const bit<8> X = {}1{};", "(".repeat(5000), ")".repeat(5000)), "nested more than");
    refused(&format!("const bit<8> X = {}1;", "-".repeat(5000)), "nested more than");
    refused(&format!("const {}", "A<".repeat(5000)), "nested more than");
    refused(&format!("control C() {{ apply {}", "{".repeat(5000)), "nested more than");
    refused("#define A B B\n#define B A A\nA", "refers to itself");
    refused(&format!("#if {}1\n#endif", "!".repeat(5000)), "nested too deeply");
}

#[test]
fn size_is_limited() {
    let doubling: String = (0..40).map(|i| format!("#define X{} X{i} X{i}\n", i + 1)).collect();
    refused(
        &format!(
            "#define X0 1\n{doubling}X15 X15 X15 X15 X15 X15 X15 X15 X15 X15 X15 X15 X15 X15 X15 X15 X15 X15 \
        X15 X15 X15 X15 X15 X15 X15 X15 X15 X15 X15 X15 X15 X15 X15"
        ),
        "more than 1048576 tokens",
    );
    let applies = |n: usize| format!("c{n}.apply(hdr, meta); ").repeat(4);
    let mut text =
        String::from("#include \"frame.p4\"\ncontrol C0(inout headers_t hdr, inout metadata_t meta) { apply { } }\n");
    for i in 1..12 {
        let below = i - 1;
        text += &format!(
            "control C{i}(inout headers_t hdr, inout metadata_t meta) {{ C{below}() c{below}; apply {{ {} }} }}\n",
            applies(below)
        );
    }
    text += "control Body(inout headers_t hdr, inout metadata_t meta) { C11() c11; apply { c11.apply(hdr, meta); } }\n";
    refused(&(text + "#include \"pipe.p4\"\n"), "too many controls");
    let many = "if (hdr.seg.kind == 1) { meta.a = 1; }\n".repeat(1001);
    let text = format!(
        "#include \"frame.p4\"\ncontrol Body(inout headers_t hdr, inout metadata_t meta) {{ apply {{ {many} }} }}\n\
         #include \"pipe.p4\"\n"
    );
    refused(&text, "more than 1000 tables");
}

#[test]
fn files_that_include_themselves() {
    let list = rmt::load_text("a.p4", "#include \"a.p4\"\n".into(), &[], &|_| Some("#include \"a.p4\"\n".into()));
    assert!(list.unwrap_err()[0].message.contains("include each other too deeply"));
}

#[test]
fn unknown_names_from_outside_are_named() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../p4");
    let file = |path: &Path| std::fs::read_to_string(folder.join(path)).ok();
    let text = "#ifdef IN_MAIN\n#endif\n#include \"more.p4\"\n";
    let more = || Some("#if defined(IN_MORE)\n#endif\n".into());
    let read = |path: &Path| if path == Path::new("more.p4") { more() } else { file(path) };
    let defines = |names: &[&str]| names.iter().map(|name| (name.to_string(), String::new())).collect::<Vec<_>>();
    let unread = |names: &[&str]| {
        let whole = format!("{text}{}", file(Path::new("laminar.p4")).unwrap());
        let loaded = rmt::load_text("a.p4", whole, &defines(names), &read).expect("it is a program");
        loaded.reads(&defines(names))
    };
    assert_eq!(unread(&["IN_MAIN", "IN_MORE"]), Ok(()));
    assert_eq!(unread(&["IN_MIAN"]), Err("-D IN_MIAN does nothing: no file of the program has this name".into()));
}
