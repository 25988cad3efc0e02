//! Faulty functions, and processes that are killed: programs beside them are not affected.
mod fixture;

use fixture::{Fixture, HostProgram, library, library_of, text, until};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Each of these has an opcode of its own.
const WRONG: &str = "#include <stdlib.h>\n#include <string.h>
static int word(offload_context *c, unsigned at, uint64_t *into) {
    if (c->request_size < 8 * (at + 1)) return -22;
    memcpy(into, (const char *)c->request + 8 * at, 8);
    return 0;
}
/* Reads 8 bytes at an address. */
static int peek(offload_context *c) {
    uint64_t at, *response = alloc_resp(c, 8);
    if (word(c, 0, &at)) return -22;
    if (wait_dma_finish(c, submit_dma(c, DMA_READ, at, response, 8))) return 5;
    return submit_resp(c, response, 8);
}
/* Writes there: the negative number that this gives, as a status. */
static int poke(offload_context *c) {
    uint64_t at, value = 7;
    if (word(c, 0, &at)) return -22;
    return -(int)submit_dma(c, DMA_WRITE, at, &value, 8);
}
static int crash(offload_context *c) { (void)c; __builtin_trap(); }
static int deep(offload_context *c) {
    volatile char stack[1 << 20];
    memset((char *)stack, 1, sizeof stack);
    return stack[c->opcode];
}
static int spin(offload_context *c) { for (volatile int i = 0;; i++) if (i == -1 && c->opcode == 0) return 0; }
/* Waits, but never ends. */
static int turn(offload_context *c) {
    uint64_t at, value;
    if (word(c, 0, &at)) return -22;
    for (;;) wait_dma_finish(c, submit_dma(c, DMA_READ, at, &value, 8));
}
/* As many operations at once as it gets: the number of the refusal, and how many there were. */
static int many(offload_context *c) {
    static uint8_t bytes[1 << 20];
    uint64_t at, *response = alloc_resp(c, 16);
    if (word(c, 0, &at)) return -22;
    response[0] = 0;
    for (; response[0] < 4096; response[0]++) {
        int64_t id = submit_dma(c, DMA_READ, at, bytes + response[0] % 16 * 65536, 65536);
        if (id < 0) { response[1] = (uint64_t)-id; break; }
    }
    return submit_resp(c, response, 16);
}
/* Memory until there is none. */
static int greedy(offload_context *c) {
    void *held = NULL, *next;
    (void)c;
    while ((next = malloc(1 << 20))) { memset(next, 1, 1 << 20); *(void **)next = held; held = next; }
    while (held) { next = *(void **)held; free(held); held = next; }
    return 9;
}
/* Responses that cannot be. */
static int responses(offload_context *c) {
    char *first, own[8];
    if (alloc_resp(c, 65537) || alloc_resp(c, 0) || !(first = alloc_resp(c, 65536)) || alloc_resp(c, 8)) return 1;
    if (submit_resp(c, own, 8) != -22 || submit_resp(c, first - 1, 8) != -22) return 2;
    if (submit_resp(c, first + 1, 65536) != -22) return 2;
    if (submit_dma(c, 4, 0, own, 8) != -22 || submit_dma(c, DMA_FETCH_ADD, 0, own, 4) != -22) return 3;
    if (wait_dma_finish(c, 77) != -22 || register_opcode(0x99, 0, responses) != -1) return 4;
    memset(first, 'x', 65536);
    return submit_resp(c, first + 65535, 1) || submit_resp(c, first, 1) != -22 ? 6 : 0;
}
int offload_init(void) {
    static int (*const all[])(offload_context *) = {peek, poke, crash, deep, spin, turn, many, greedy, responses};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        if (register_opcode(0x80 + i, OFFLOAD_EVERY_QP, all[i])) return -1;
    return 0;
}";

fn wrong(fixture: &Fixture) {
    fixture.load_examples();
    fixture.load("wrong", &wrong_library());
}

/// Each time a file of its own: tests run at the same time.
fn wrong_library() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    library_of(&format!("wrong-{}", COUNT.fetch_add(1, Relaxed)), WRONG)
}

/// A client that only reads by verbs, beside the fault.
struct Bystander(Child);

impl Bystander {
    fn start(fixture: &Fixture, host: &HostProgram, seconds: &str) -> Bystander {
        let mut command = fixture.client(host, &["list", "verbs", "4", seconds]);
        Bystander(command.stdout(Stdio::piped()).spawn().unwrap())
    }

    /// It noticed nothing.
    fn finish(self) {
        let output = self.0.wait_with_output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && printed.contains("\"errors\":0,\"wrong\":0"), "{} {printed}", output.status);
    }
}

/// A function that ends its process: its library is stopped, and the others serve again, with the same memory.
fn ends_its_worker(fixture: &Fixture, host: &HostProgram, opcode: &str, why: &str) {
    let before = fixture.view();
    let bystander = Bystander::start(fixture, host, "2");
    let output = fixture.client(host, &["call", opcode, "@list"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "the client gets the error");
    until("another worker", || fixture.view().worker.is_some_and(|worker| Some(worker) != before.worker));
    until("the libraries", || fixture.view().libraries.len() == before.libraries.len());
    let view = fixture.view();
    let stopped = view.libraries.iter().find(|library| library.name == "wrong").unwrap();
    assert!(stopped.stopped.as_ref().is_some_and(|reason| reason.contains(why)), "{view:?}");
    assert_eq!(view.libraries.iter().filter(|library| library.stopped.is_some()).count(), 1);
    assert_eq!(text(&mut fixture.client(host, &["until", "100"])), "begun\n100\n");
    assert_eq!(fixture.call(host, &[opcode, "0"]), "0xff00 \n");
    bystander.finish();
    fixture.load("wrong", &wrong_library());
    assert_eq!(fixture.call(host, &["0x80", "@list"]).len(), "0 ".len() + 16 + 1);
}

#[test]
fn only_the_function_that_crashes_or_hangs_is_stopped() {
    let fixture = Fixture::new(&["--turn-ms", "100"]);
    let host = fixture.host(7000, &[]);
    wrong(&fixture);
    ends_its_worker(&fixture, &host, "0x82", "signal 4");
    ends_its_worker(&fixture, &host, "0x83", "signal 11");
    ends_its_worker(&fixture, &host, "0x84", "more than 100 ms");
}

#[test]
fn memory_outside_of_its_regions_is_not_reached() {
    let fixture = Fixture::new(&[]);
    let (host, other) = (fixture.host(7000, &[]), fixture.host(7010, &[]));
    wrong(&fixture);
    let bystander = Bystander::start(&fixture, &host, "2");
    let peek = |host, at: &str| fixture.call(host, &["0x80", at]);
    assert!(peek(&host, "@list").starts_with("0 "));
    for at in ["0", "8", "0x400000", "0xffffffffffffffff", "0xfffffffffffffffc"] {
        assert_eq!(peek(&host, at), "0x5 \n", "{at}");
        assert_eq!(fixture.call(&host, &["0x81", at]), "0xe \n", "EFAULT at {at}");
    }
    // The first word of the other program's list is found through its port only.
    let shown = fixture.call(&other, &["0x12", "@table", "1"]);
    assert!(shown.starts_with("0 "));
    assert_eq!(fixture.view().restarts, 0);
    // A program that goes takes its memory along, and its port is free.
    drop(other.end());
    until("the program's end", || fixture.view().hosts.len() == 1);
    let again = fixture.host(7010, &[]);
    assert!(peek(&again, "@list").starts_with("0 "));
    bystander.finish();
}

#[test]
fn time_memory_and_operations_have_limits() {
    let fixture = Fixture::new(&["--memory", "64"]);
    let host = fixture.host(7000, &["kernel"]);
    wrong(&fixture);
    let begin = Instant::now();
    assert_eq!(fixture.call(&host, &["0x85", "@list"]), "0xff02 \n", "it is ended at its time limit");
    assert!(begin.elapsed() < Duration::from_secs(5));
    assert_eq!(fixture.call(&host, &["0x87"]), "0x9 \n", "malloc returned null");
    assert_eq!(fixture.call(&host, &["0x88"]), "0 78\n");
    // 64 operations through the kernel, then EAGAIN (11).
    assert_eq!(fixture.call(&host, &["0x86", "@block"]), "0 40000000000000000b00000000000000\n");
    let view = fixture.view();
    let library = view.libraries.iter().find(|library| library.name == "wrong").unwrap();
    assert_eq!((library.failed, view.restarts), (1, 0), "{view:?}");
    assert_eq!(text(&mut fixture.client(&host, &["until", "100"])), "begun\n100\n");
}

#[test]
fn killed_processes_come_back_or_are_missed_by_nobody() {
    let mut fixture = Fixture::new(&[]);
    let host = fixture.host(7000, &[]);
    fixture.load_examples();
    let bystander = Bystander::start(&fixture, &host, "3");
    for _ in 0..3 {
        let mut client = fixture.client(&host, &["until", "100000000"]).stdout(Stdio::piped()).spawn().unwrap();
        let before = fixture.view();
        until("calls", || fixture.view().libraries.iter().any(|library| library.calls > 100));
        let pid = rustix::process::Pid::from_raw(before.worker.unwrap() as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        assert_eq!(client.wait().unwrap().code(), Some(3));
        until("another worker", || fixture.view().worker.is_some_and(|worker| Some(worker) != before.worker));
        // The signal came from outside: no library is to blame.
        until("the libraries", || fixture.view().libraries.len() == fixture::EXAMPLES.len());
        assert!(fixture.view().libraries.iter().all(|library| library.stopped.is_none()));
        assert_eq!(text(&mut fixture.client(&host, &["until", "100"])), "begun\n100\n");
    }
    let worker = fixture.view().worker.unwrap();
    fixture.engine.kill().unwrap();
    fixture.engine.wait().unwrap();
    until("the worker's end", || !Path::new(&format!("/proc/{worker}")).exists());
    bystander.finish();
}

/// A response that is to be written where it must not be ends the client's connection, and nothing is written.
#[test]
fn what_a_client_did_not_let_be_written_stays_as_it_is() {
    let fixture = Fixture::new(&[]);
    let host = fixture.host(7000, &[]);
    fixture.load_examples();
    let bystander = Bystander::start(&fixture, &host, "3");
    for fault in ["key", "range", "right", "gone"] {
        let output = fixture.client(&host, &["written", "400", fault]).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(3), "{fault}: {printed}");
        let right: u64 = printed.trim_start_matches("begun\n").trim().parse().unwrap();
        assert!((200..400).contains(&right), "{fault}: {right}");
        assert_eq!(text(&mut fixture.client(&host, &["written", "50"])), "begun\n50\n", "others go on");
    }
    assert_eq!(fixture.view().restarts, 0);
    bystander.finish();
}

/// A worker that is killed while responses are written: what the client got is right.
#[test]
fn a_worker_killed_while_it_writes_leaves_nothing_wrong() {
    let fixture = Fixture::new(&[]);
    let host = fixture.host(7000, &[]);
    fixture.load_examples();
    for round in 0..5u64 {
        let mut client = fixture.client(&host, &["written", "100000000"]).stdout(Stdio::piped()).spawn().unwrap();
        let before = fixture.view();
        until("calls", || fixture.view().libraries.iter().any(|library| library.calls > 100 * round));
        let pid = rustix::process::Pid::from_raw(before.worker.unwrap() as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        assert_eq!(client.wait().unwrap().code(), Some(3), "1 would be a wrong response");
        until("another worker", || fixture.view().worker.is_some_and(|worker| Some(worker) != before.worker));
        until("the libraries", || fixture.view().libraries.len() == fixture::EXAMPLES.len());
    }
    assert_eq!(text(&mut fixture.client(&host, &["written", "100"])), "begun\n100\n");
}

#[test]
fn what_is_no_library_is_refused_in_a_sentence() {
    let fixture = Fixture::new(&["--turn-ms", "100"]);
    fixture.load_examples();
    let load = |name: &str, path: &Path| offload::client::load(&fixture.socket(), name, path).unwrap_err();
    let one = |name, text| library_of(name, text);
    assert!(load("x", Path::new("/etc/passwd")).contains("it cannot be loaded"));
    assert!(load("x", Path::new("/")).contains("no file"));
    let empty = one("empty", "int offload_init(void) { return 0; } void *use(void) { return &offload_calls; }");
    assert!(load("x", &empty).contains("no opcode"));
    let refuses = one("refuses", "int offload_init(void) { return register_opcode(0, 0, 0); }");
    assert!(load("x", &refuses).contains("returned -22"));
    let taken = library("taken", &Path::new(env!("CARGO_MANIFEST_DIR")).join("../../offload/list.c"));
    assert!(load("other", &taken).contains("library list has opcode 0x10"));
    assert!(offload::client::unload(&fixture.socket(), "other").unwrap_err().contains("no library is called other"));
    let crashes = one("crashes", "int offload_init(void) { if (offload_calls) __builtin_trap(); return 0; }");
    assert!(load("x", &crashes).contains("crashed"));
    until("another worker", || fixture.view().libraries.len() == fixture::EXAMPLES.len());
    let hangs = one("hangs", "int offload_init(void) { for (;;) if (!offload_calls) return 0; }");
    assert!(load("x", &hangs).contains("crashed"));
    until("another worker", || fixture.view().libraries.len() == fixture::EXAMPLES.len());
    assert_eq!(fixture.view().restarts, 2);
    offload::client::unload(&fixture.socket(), "list").unwrap();
    assert_eq!(fixture.view().libraries.len(), fixture::EXAMPLES.len() - 1);
}

#[test]
fn an_idle_engine_uses_no_core() {
    let fixture = Fixture::new(&["--threads", "2"]);
    let host = fixture.host(7000, &[]);
    fixture.load_examples();
    assert_eq!(text(&mut fixture.client(&host, &["until", "100"])), "begun\n100\n");
    let worker = fixture.view().worker.unwrap();
    let ticks = || {
        let stat = fs::read_to_string(format!("/proc/{worker}/stat")).unwrap();
        let fields: Vec<u64> = stat
            .rsplit_once(')')
            .unwrap()
            .1
            .split_whitespace()
            .skip(11)
            .take(2)
            .map(|word| word.parse().unwrap())
            .collect();
        fields[0] + fields[1]
    };
    until("an idle second", || {
        let before = ticks();
        std::thread::sleep(Duration::from_secs(1));
        ticks() - before <= 1
    });
}
