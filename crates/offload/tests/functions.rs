//! The examples, called by an ordinary verbs client over a reliable connection between two hosts, with a real daemon.
mod fixture;

use fixture::{EXAMPLES, Fixture, built, library_of, text};

const CHECKED: &str = "list right\nreads right\nget right\ncrc right\nappend right\n";

#[test]
fn every_example_finds_what_one_sided_verbs_find() {
    let fixture = Fixture::new(&[]);
    let host = fixture.host(7000, &[]);
    assert_eq!(fixture.call(&host, &["0x10", "@list", "1"]), "0xff00 \n", "nothing is loaded");
    fixture.load_examples();
    assert_eq!(text(&mut fixture.client(&host, &["check"])), CHECKED);
    let view = fixture.view();
    let names: Vec<&str> = view.libraries.iter().map(|library| library.name.as_str()).collect();
    assert_eq!(names.len(), EXAMPLES.len());
    assert!(view.libraries.iter().all(|library| library.calls > 0 && library.failed == 0), "{view:?}");
    assert_eq!((view.hosts.len(), view.hosts[0].port, view.hosts[0].pid), (1, 7000, host.child.id()));
    // What was appended by atomics, newest first.
    assert_eq!(host.end(), "102\n101\n100\n");
}

#[test]
fn memory_that_is_reached_through_the_kernel_serves_as_well() {
    let fixture = Fixture::new(&["--threads", "2"]);
    let host = fixture.host(7000, &["kernel"]);
    fixture.load_examples();
    let clients: Vec<_> = (0..3).map(|_| fixture.client(&host, &["until", "500"]).output()).collect();
    assert!(clients.iter().all(|output| output.as_ref().is_ok_and(|output| output.stdout == b"begun\n500\n")));
    assert_eq!(text(&mut fixture.client(&host, &["check"])), CHECKED);
    assert_eq!(host.end(), "102\n101\n100\n");
}

#[test]
fn functions_in_rust_and_opcodes_of_a_port() {
    let fixture = Fixture::new(&[]);
    let (one, other) = (fixture.host(7000, &[]), fixture.host(7010, &[]));
    fixture.load("words", &built().join("examples/libwords.so"));
    assert_eq!(fixture.call(&one, &["0x60", "@list"]).len(), "0 ".len() + 16 + 1);
    assert_eq!(fixture.call(&one, &["0x60", "8"]), "0xff01 \n", "EFAULT");
    let before = fixture.call(&one, &["0x61", "@append", "5"]);
    assert_eq!(fixture.call(&one, &["0x61", "@append", "5"]).len(), before.len());
    let port = |name: &str, port: u16, status: u16| {
        let text = format!(
            "static int f(offload_context *c) {{ return c->request_size ? {status} : 0; }}
            int offload_init(void) {{ return register_opcode(0x62, {port}, f); }}"
        );
        fixture.load(name, &library_of(name, &text));
    };
    port("every", 0, 1);
    port("one-port", 7000, 2);
    assert_eq!([&one, &other].map(|host| fixture.call(host, &["0x62", "1"])), ["0x2 \n", "0x1 \n"]);
    offload::client::unload(&fixture.socket(), "one-port").unwrap();
    assert_eq!(fixture.call(&one, &["0x62", "1"]), "0x1 \n");
}

/// Responses that are written to the client's memory: by batched READs of any sizes, beside each other.
#[test]
fn responses_are_written_to_the_memory_that_a_client_names() {
    let fixture = Fixture::new(&["--threads", "2"]);
    let (mapped, kernel) = (fixture.host(7000, &[]), fixture.host(7010, &["kernel"]));
    fixture.load_examples();
    for host in [&mapped, &kernel] {
        assert_eq!(text(&mut fixture.client(host, &["written", "300"])), "begun\n300\n");
    }
    fixture.load("written", &library_of("written", WRITTEN));
    // EINVAL (22): bytes that are not the response's room, a response after another one.
    assert_eq!(fixture.call(&mapped, &["0x63", "1", "2"]), "0x16 \n");
}

const WRITTEN: &str = "static int f(offload_context *c) {
    uint64_t own, *room = alloc_resp(c, 8);
    if (submit_resp_to(c, &own, 8, 0, 0) != -22 || submit_resp_to(c, room, 9, 0, 0) != -22) return 1;
    if (submit_resp(c, room, 0)) return 2;
    return -submit_resp_to(c, room, 8, 0, 0);
}
int offload_init(void) { return register_opcode(0x63, OFFLOAD_EVERY_QP, f); }";

/// A client may send as soon as it is accepted: the thread that is to serve it must have its queue pair by then.
#[test]
fn the_first_request_of_a_connection_is_answered() {
    let fixture = Fixture::new(&["--threads", "2"]);
    let host = fixture.host(7000, &[]);
    fixture.load_examples();
    // Many at once, so that threads are interrupted anywhere.
    let call = || assert!(fixture.call(&host, &["0x12", "@table", "1"]).starts_with("0 "));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..50).for_each(|_| call()));
        }
    });
}
