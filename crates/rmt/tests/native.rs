//! Native code against the interpreter, packet by packet: the same outputs, and the same registers and counters.
mod support;

use proptest::prelude::*;
use rmt::interp::{EgressOut, IngressOut, Machine, Queued, Sent, Session};
use rmt::ir::{Gress, Program, mask};
use rmt::native::{Batch, EntryKey, Input, Mirrored, Native, Output, Through};
use support::*;

/// Both forms of one program, the compiled one in halves and joined.
struct Both {
    machine: Machine,
    native: Native,
    batch: Batch,
    joined: Native,
    head: Vec<u8>,
    /// Packets that went through joined code to the end.
    crossed: usize,
}

impl Both {
    fn new(program: Program) -> Both {
        let native = Native::new(program.clone()).unwrap_or_else(|e| panic!("{e}"));
        let (joined, head) = (native.fresh(), vec![0; native.room()]);
        let machine = Machine::new(program);
        let mut both = Both { machine, native, batch: Batch::default(), joined, head, crossed: 0 };
        for id in 0..=2 {
            let session = Session { port: 7, truncate: 10 * id as usize };
            both.machine.set_session(id, session);
            both.native.set_session(id, session);
            both.joined.set_session(id, session);
        }
        both
    }

    fn data(&self, output: &Output, packet: &[u8]) -> Vec<u8> {
        [self.batch.head(output), &packet[output.payload_at..]].concat()
    }

    fn copies(mirrors: &[Mirrored], original: &[u8]) -> Vec<Queued> {
        let copy = |m: &Mirrored| {
            let data = [m.front(), &original[..original.len().min(m.truncate)]].concat();
            Queued { port: m.port, queue: m.queue, bypass: false, data }
        };
        mirrors.iter().map(copy).collect()
    }

    fn ingress(&mut self, port: u16, packet: &[u8]) -> IngressOut {
        let expected = self.machine.ingress(port, packet);
        self.native.ingress([Input::whole(port, packet)], &mut self.batch);
        let output = self.batch.outputs[0];
        let queued = output.forwarded.then(|| Queued {
            port: output.port,
            queue: output.queue,
            bypass: output.bypass,
            data: self.data(&output, packet),
        });
        let mirrored = Both::copies(self.batch.mirrors(&output), packet);
        let seen = IngressOut { queued, mirrored, ..IngressOut::default() };
        assert_eq!(seen, expected, "ingress of {packet:02x?}");
        expected
    }

    fn egress(&mut self, packet: &Queued) -> EgressOut {
        let expected = self.machine.egress(packet);
        let input = Input { queue: packet.queue, ..Input::whole(packet.port, &packet.data) };
        self.native.egress([input], &mut self.batch);
        let output = self.batch.outputs[0];
        let data = self.data(&output, &packet.data);
        let mirrored = Both::copies(self.batch.mirrors(&output), &data);
        let sent = output.forwarded.then_some(Sent { port: packet.port, data });
        assert_eq!(EgressOut { sent, mirrored }, expected, "egress of {packet:02x?}");
        expected
    }

    /// Egress of the joined code's program, alone.
    fn egress_of_joined(&mut self, packet: &Queued, expected: &EgressOut) {
        let input = Input { queue: packet.queue, ..Input::whole(packet.port, &packet.data) };
        let output = self.joined.one(Gress::Egress, input, &mut self.head);
        let data = [&self.head[..output.head_len()], &packet.data[output.payload_at..]].concat();
        let mirrored = Both::copies(&self.joined.mirrored().collect::<Vec<_>>(), &data);
        let sent = output.forwarded.then_some(Sent { port: packet.port, data });
        assert_eq!(EgressOut { sent, mirrored }, *expected, "egress of {packet:02x?} by the joined program");
    }

    /// Through both halves, with all copies.
    fn process(&mut self, port: u16, packet: &[u8]) {
        let Through { crossed, output } = self.joined.through(Input::whole(port, packet), &mut self.head);
        let data = [&self.head[..output.head_len()], &packet[output.payload_at..]].concat();
        let copies: Vec<Mirrored> = self.joined.mirrored().collect();
        let ingress = self.ingress(port, packet);
        let mut queue: Vec<Queued> = ingress.queued.iter().cloned().chain(ingress.mirrored.iter().cloned()).collect();
        if crossed {
            self.crossed += 1;
            let queued = queue.pop().filter(|queued| !queued.bypass).expect("ingress lets it go to egress");
            let out = self.egress(&queued);
            match &out.sent {
                Some(sent) => assert_eq!((output.port, &data), (sent.port, &sent.data), "both halves of {packet:02x?}"),
                None => assert_eq!((output.port, output.head_len()), (queued.port, 0), "dropped: {packet:02x?}"),
            }
            assert_eq!(output.forwarded, out.sent.is_some(), "both halves of {packet:02x?}");
            // Of what was dropped, no headers were left that a copy could begin with.
            let original = if output.forwarded { &data[..] } else { &packet[output.payload_at..] };
            assert_eq!(Both::copies(&copies, original), out.mirrored, "both halves of {packet:02x?}");
            queue.extend(out.mirrored);
        } else {
            let queued = output.forwarded.then_some(Queued {
                port: output.port,
                queue: output.queue,
                bypass: output.bypass,
                data,
            });
            let seen = IngressOut { queued, mirrored: Both::copies(&copies, packet), ..IngressOut::default() };
            assert_eq!(seen, ingress, "ingress of {packet:02x?} by the joined program");
        }
        for _ in 0..8 {
            let Some(packet) = queue.pop() else { return };
            if !packet.bypass {
                let out = self.egress(&packet);
                self.egress_of_joined(&packet, &out);
                queue.extend(out.mirrored);
            }
        }
    }

    /// A packet for egress alone.
    fn egress_alone(&mut self, packet: &Queued) {
        let out = self.egress(packet);
        self.egress_of_joined(packet, &out);
    }

    fn same_state(&self) {
        let program = self.machine.program();
        for (number, info) in program.registers.iter().enumerate() {
            for index in 0..info.size {
                let expected = self.machine.register_read(&info.name, index).unwrap();
                for native in [&self.native, &self.joined] {
                    let seen = &native.read(number, index)[..expected.len()];
                    let same = seen.iter().zip(expected).all(|(s, e)| *s as u128 == *e);
                    assert!(same, "{} {index}: {seen:x?}", info.name);
                    assert_eq!(native.word(number, index), seen[0], "{} {index}", info.name);
                }
            }
        }
        for info in &program.counters {
            for index in 0..info.size {
                let expected = self.machine.counter_read(&info.name, index);
                assert_eq!(self.native.counter_read(&info.name, index), expected);
                assert_eq!(self.joined.counter_read(&info.name, index), expected);
            }
        }
    }

    /// The same change of a table to both.
    fn add(&mut self, table: &str, keys: &[EntryKey], priority: u32, action: &str, args: &[u128]) {
        let expected = self.machine.table_add(table, keys, priority, action, args);
        assert_eq!(self.native.table_add(table, keys, priority, action, args), expected);
        assert_eq!(self.joined.table_add(table, keys, priority, action, args), expected);
    }

    fn set_time(&mut self, now_ns: u64) {
        self.machine.set_time(now_ns);
        self.native.set_time(now_ns);
        self.joined.set_time(now_ns);
    }

    fn write(&mut self, register: usize, index: u32, words: [u32; 2]) {
        let info = &self.machine.program().registers[register];
        let (name, types) = (info.name.clone(), info.words.clone());
        let list: Vec<u128> = types.iter().zip(words).map(|(ty, w)| w as u128 & mask(ty.width())).collect();
        self.machine.register_write(&name, index, &list).unwrap();
        self.native.write(register, index, words);
        self.joined.write(register, index, words);
    }

    /// Changes of tables and registers at random.
    fn disturb(&mut self, random: &mut Random) {
        let program = self.machine.program().clone();
        for table in &program.tables {
            let Change { keys, removes, priority, action, args } = Change::of(&program, table, random);
            match keys {
                None => {
                    let expected = self.machine.table_set_default(&table.name, &action, &args);
                    assert_eq!(self.native.table_set_default(&table.name, &action, &args), expected);
                    assert_eq!(self.joined.table_set_default(&table.name, &action, &args), expected);
                }
                Some(keys) if removes => {
                    let expected = self.machine.table_remove(&table.name, &keys);
                    assert_eq!(self.native.table_remove(&table.name, &keys), expected);
                    assert_eq!(self.joined.table_remove(&table.name, &keys), expected);
                }
                Some(keys) => self.add(&table.name, &keys, priority, &action, &args),
            }
            assert_eq!(self.native.table_len(&table.name), self.machine.table_len(&table.name));
        }
        for (number, info) in program.registers.iter().enumerate() {
            let index = random.below(info.size.min(8) as u64) as u32;
            self.write(number, index, [random.value(32) as u32, random.value(32) as u32]);
        }
    }
}

#[test]
fn every_accepted_program_agrees() {
    let mut count = 0;
    for path in accepted() {
        let mut both = Both::new(load(&path).program);
        let mut random = Random(count);
        for _ in 0..200 {
            both.disturb(&mut random);
            let packet = bytes(&mut random, 40);
            both.process(random.below(4) as u16, &packet);
            let queued = Queued { port: 1, queue: 2, bypass: false, data: bytes(&mut random, 60) };
            both.egress_alone(&queued);
        }
        both.same_state();
        count += 1;
    }
    assert!(count > 30, "there are programs");
}

/// Laminar with a few flows whose sequence numbers lie close together, so that random segments meet all cases.
fn laminar(extensions: &[&str]) -> Both {
    let loaded = rmt::load(&folder(LAMINAR), &laminar_defines(extensions)).unwrap_or_else(|list| panic!("{}", list[0]));
    let mut both = Both::new(loaded.program);
    laminar_entries(extensions, &mut |table, keys, action, args| both.add(table, keys, 0, action, args));
    both
}

fn small(decls: &str, apply: &str) -> Both {
    Both::new(small_program(decls, apply).program)
}

#[test]
fn laminar_agrees_on_recorded_segments() {
    for extensions in EXTENSIONS {
        let mut both = laminar(extensions);
        let mut random = Random(1);
        let segments = laminar_segments(&mut random, extensions, 2000);
        for (at, (port, frame)) in segments.iter().enumerate() {
            both.set_time(at as u64 * 50_000);
            both.process(*port, frame);
        }
        both.same_state();
        assert!(both.crossed > segments.len() / 2, "most go straight through: {} of 2000", both.crossed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Random registers, random segments, descriptors and noise.
    #[test]
    fn laminar_agrees_on_anything(seed in any::<u64>()) {
        let extensions = EXTENSIONS[(seed % 6) as usize];
        let mut both = laminar(extensions);
        let mut random = Random(seed);
        for (port, frame) in laminar_segments(&mut random, extensions, 100) {
            if random.below(10) == 0 {
                both.disturb(&mut random);
            }
            both.process(port, &frame);
            let noise = bytes(&mut random, 120);
            both.process([8, 64, 65, 66, 6][random.below(5) as usize], &noise);
            let queued = Queued { port: 8, queue: 0, bypass: false, data: bytes(&mut random, 60) };
            both.egress_alone(&queued);
        }
        both.same_state();
    }
}

#[test]
fn tables_of_all_kinds_and_externs_agree() {
    let set = "action set(bit<32> v) { hdr.seg.word = v; }\naction low(bit<8> v) { hdr.seg.word[7:0] = v; }\n";
    let table = |name: &str, keys: &str| {
        format!(
            "table {name} {{ key = {{ {keys} }} actions = {{ set; low; NoAction; }} default_action = set(9); size = 40; }}\n"
        )
    };
    let cases = [
        (table("t", "hdr.seg.seq: exact; hdr.seg.kind: exact;"), "t.apply();"),
        (table("t", "hdr.seg.seq: ternary; hdr.seg.small: exact;"), "t.apply();"),
        (table("t", "hdr.seg.seq: lpm;"), "if (t.apply().hit) { hdr.seg.ack = 1; } else { hdr.seg.ack = 2; }"),
        (table("t", "hdr.seg.len: range;"), "switch (t.apply().action_run) { set: { hdr.seg.ack = 3; } default: { exit; } }\nhdr.seg.len = 1;"),
        ("Hash<bit<16>>(HashAlgorithm_t.CRC16) h;\naction go() { hdr.seg.port = h.get({ hdr.seg.seq, hdr.seg.small, 3w5 }); }".into(), "go();"),
        ("Random<bit<16>>() r;\naction go() { hdr.seg.port = r.get(); }".into(), "go();"),
        ("Counter<bit<32>, bit<16>>(100, CounterType_t.PACKETS) c;\naction go() { c.count(hdr.seg.flow); }".into(), "go();"),
        ("Meter<bit<16>>(64, MeterType_t.BYTES) m;\naction go() { hdr.seg.kind = m.execute(hdr.seg.flow); }".into(), "go();"),
        ("action go() { hdr.seg.word = hdr.seg.seq |+| hdr.seg.ack; hdr.seg.len = hdr.seg.flow |-| hdr.seg.port; }".into(), "go();"),
        ("action go() { hdr.seg.word = (bit<32>)(int<32>)(int<8>)hdr.seg.kind; hdr.seg.small = hdr.seg.seq[20:13]; }".into(), "go();"),
        ("action go() { hdr.seg.seq[11:4] = hdr.seg.kind; hdr.seg.word = min(hdr.seg.word, hdr.seg.ack); }".into(), "go();"),
    ];
    for (number, (decls, apply)) in cases.iter().enumerate() {
        let mut both = small(&format!("{set}{decls}"), apply);
        let mut random = Random(number as u64);
        for index in 0..if decls.contains("Meter") { 64 } else { 0 } {
            let rates = rmt::Rates { committed: 9_000, committed_burst: 60, peak: 20_000, peak_burst: 100 };
            assert_eq!(both.machine.meter_set("m", index, Some(rates)), Ok(()));
            assert_eq!(both.native.meter_set("m", index, Some(rates)), Ok(()));
            assert_eq!(both.joined.meter_set("m", index, Some(rates)), Ok(()));
        }
        for step in 0..1500 {
            both.set_time(step * 100_000);
            both.disturb(&mut random);
            let packet = bytes(&mut random, 40);
            both.process(3, &packet);
        }
        both.same_state();
    }
}

/// Copies of what was matched make the entries of tables meet packets more often than chance.
#[test]
fn entries_are_met() {
    let set = "action set(bit<32> v) { hdr.seg.word = v; }\n";
    let decls = format!(
        "{set}table t {{ key = {{ hdr.seg.seq: exact; }} actions = {{ set; }} default_action = set(9); size = 500; }}"
    );
    let mut both = small(&decls, "t.apply();");
    for i in 0..400u32 {
        both.add("t", &[EntryKey::Exact(i as u128 * 7)], 0, "set", &[i as u128]);
    }
    for i in 0..3000u32 {
        let mut packet = vec![0; 24];
        packet[8..12].copy_from_slice(&i.to_be_bytes());
        both.process(1, &packet);
    }
}

#[test]
fn what_cannot_be_compiled_is_refused() {
    let deparser = "#define OWN_INGRESS_DEPARSER\ncontrol IngressDeparser(packet_out pkt, inout headers_t hdr, \
        in metadata_t meta, in ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md)\n{\n\
        Digest<seg_h>() d;\napply { if (ig_dprsr_md.digest_type == 1) { d.pack(hdr.seg); } } }\n";
    let ingress = ingress_control("action go() { ig_dprsr_md.digest_type = 1; }", "go();");
    let loaded = program_around(&format!("{ingress}{deparser}"));
    let refusal = Native::new(loaded.program).err().expect("digests are not compiled");
    assert_eq!(refusal.to_string(), "the program cannot be compiled to native code: a digest is not supported");
}
