//! The NIC's half with memory of a device, whose queue the test serves by hand: what is on its way is not placed yet.
#[path = "support/ends.rs"]
mod ends;
mod support;

use ends::{Below, DEVICE_AT as FIRST, End, Habit, carry_out, device_in};
use engines::EngineKind;
use memory::{DmaCopy, DmaQueue, DmaServer, Fault, Key, Limits as MemoryLimits, MemoryTable};
use port::FabricConfig;
use std::sync::Arc;
use support::{DOMAIN, small_limits, tuple};
use wire::Seq;
use zeronic::{Arrival, Event, FlowId, Kind, Mark, Nic, Payload, Segment};

const LEN: usize = 1000;

/// A flow that receives into a device's memory, and the device.
struct Device {
    nic: Nic,
    id: FlowId,
    table: MemoryTable,
    queue: Arc<DmaQueue>,
    server: DmaServer,
    memory: Vec<u8>,
    key: Key,
}

impl Device {
    fn new(kind: Kind) -> Device {
        let table = MemoryTable::new(MemoryLimits::default()).unwrap();
        let (queue, server, key) = device_in(&table, DOMAIN, LEN, 100);
        let mut nic = Nic::new(small_limits());
        let id = nic.add(tuple(1), DOMAIN, kind).unwrap();
        nic.begin_receiving(id, Seq(0));
        nic.begin_sending(id, Seq(0));
        Device { nic, id, table, queue, server, memory: vec![0; LEN], key }
    }

    fn segment(&self, offset: u64, len: u64) -> Segment {
        Segment { key: self.key, offset, len }
    }

    fn orders(&mut self) -> Vec<DmaCopy> {
        std::iter::from_fn(|| self.server.take()).collect()
    }

    /// Makes a copy, and has the data-path see it.
    fn make(&mut self, copy: DmaCopy) {
        carry_out(&mut self.server, &copy, &mut self.memory);
        assert_eq!(self.table.devices().poll(1), 1);
    }

    fn frontier(&self) -> Seq {
        self.nic.positions(self.id).unwrap().frontier
    }
}

#[test]
fn bytes_on_their_way_are_a_hole() {
    let mut device = Device::new(Kind::Stream);
    for (offset, len) in [(10, 4), (100, 8)] {
        device.nic.post_receive(device.id, device.segment(offset, len)).unwrap();
    }
    // Across two segments: two copies, which end in the other order.
    let arrival = device.nic.place(device.id, Seq(0), &[1, 2, 3, 4, 5, 6], &device.table);
    assert_eq!(arrival, Arrival::Placing { skip: 0, len: 6 });
    let transfers = device.nic.take_started();
    assert_eq!((transfers.len(), device.nic.take_started().len()), (2, 0));
    // A transport that lies moves nothing.
    assert_eq!((device.nic.advance(device.id, Seq(6)), device.frontier()), (0, Seq(0)));
    let orders = device.orders();
    assert_eq!(orders.iter().map(|copy| (copy.address - FIRST, copy.len)).collect::<Vec<_>>(), [(10, 4), (100, 2)]);
    device.make(orders[1]);
    assert_eq!(transfers.iter().map(|transfer| transfer.result()).collect::<Vec<_>>(), [None, Some(Ok(()))]);
    device.make(orders[0]);
    assert!(transfers.iter().all(|transfer| transfer.result() == Some(Ok(()))));
    device.nic.has_landed(device.id, Seq(0), 6);
    assert_eq!((device.frontier(), device.nic.advance(device.id, Seq(6))), (Seq(6), 6));
    assert_eq!((&device.memory[10..14], &device.memory[100..102]), (&[1, 2, 3, 4][..], &[5, 6][..]));
    // A late one of what is done does not count twice.
    device.nic.has_landed(device.id, Seq(0), 6);
    assert_eq!((device.frontier(), device.nic.advance(device.id, Seq(12))), (Seq(6), 0));
}

#[test]
fn a_message_on_its_way_is_not_done() {
    let mut device = Device::new(Kind::Messages);
    device.nic.post_receive(device.id, device.segment(500, 100)).unwrap();
    let mark = Mark { number: 0, start: Seq(0), len: 3 };
    let arrival = device.nic.place_part(device.id, Seq(0), mark, Payload::Bytes(&[7, 8, 9]), &device.table);
    assert_eq!(arrival, Arrival::Placing { skip: 0, len: 3 });
    assert_eq!((device.nic.advance(device.id, Seq(3)), device.nic.take_message(device.id)), (0, None));
    let orders = device.orders();
    device.make(orders[0]);
    device.nic.has_landed(device.id, Seq(0), 3);
    assert_eq!((device.nic.advance(device.id, Seq(3)), device.nic.take_message(device.id)), (3, Some(3)));
    assert_eq!(device.memory[500..503], [7, 8, 9]);
}

#[test]
fn bytes_to_send_are_had_from_both_kinds_of_memory() {
    let mut device = Device::new(Kind::Stream);
    device.memory.iter_mut().zip(0..).for_each(|(byte, at)| *byte = (at % 251) as u8);
    for (offset, len) in [(0, 5), (300, 6)] {
        device.nic.post_send(device.id, device.segment(offset, len)).unwrap();
    }
    let mut reads = Vec::new();
    assert_eq!(device.nic.start_fetch(device.id, Seq(2), 7, &device.table, &mut reads), Ok(7));
    assert_eq!(reads.iter().map(|read| read.seq).collect::<Vec<_>>(), [Seq(2), Seq(5)]);
    assert!(reads[0].transfer.span().is_none() && !device.nic.fetched(device.id, Seq(0), 12), "more than was posted");
    for copy in device.orders() {
        device.make(copy);
    }
    let mut bytes = Vec::new();
    reads.iter().for_each(|read| read.transfer.span().unwrap().append(&mut bytes));
    assert_eq!(bytes, [2, 3, 4, 49, 50, 51, 52]);
    // Acknowledged is at most what was sent.
    assert_eq!(device.nic.acknowledged(device.id, Seq(9)), 0);
    assert!(device.nic.fetched(device.id, Seq(0), 9));
    assert_eq!(device.nic.acknowledged(device.id, Seq(9)), 9);
    assert!(!device.nic.fetched(device.id, Seq(8), 3), "the peer has some");
}

#[test]
fn a_full_queue_and_a_lost_device_are_told_apart() {
    let mut device = Device::new(Kind::Stream);
    device.nic.post_receive(device.id, device.segment(0, LEN as u64)).unwrap();
    let mut arrival = Arrival::Old;
    for at in 0..LEN as u32 {
        arrival = device.nic.place(device.id, Seq(at), &[1], &device.table);
        if arrival != (Arrival::Placing { skip: 0, len: 1 }) {
            break;
        }
    }
    assert_eq!(arrival, Arrival::Fault(Fault::Busy));
    assert!(device.nic.take_started().is_empty());
    // It does not do the oldest one in time.
    device.table.devices().poll(1);
    assert!(!device.queue.is_lost() && device.table.devices().next_deadline().is_some());
    assert!(device.table.devices().poll(1000) > 0 && device.queue.is_lost());
    assert_eq!(device.nic.place(device.id, Seq(0), &[1], &device.table), Arrival::Fault(Fault::Lost));
    device.nic.post_send(device.id, device.segment(0, 4)).unwrap();
    assert_eq!(device.nic.start_fetch(device.id, Seq(0), 4, &device.table, &mut Vec::new()), Err(Fault::Lost));
}

/// Every frame comes twice. The copy of the second one would overwrite memory that the program has again.
#[test]
fn a_receive_is_not_done_while_a_late_copy_is_on_its_way() {
    // A whole number of the window's units.
    const SENT: usize = 15 * 64;
    let habit = Habit { below: Below::Engine(EngineKind::Flextoe), least: SENT, most: SENT, ..Habit::default() };
    let config = FabricConfig { duplicate: 1.0, ..FabricConfig::default() };
    let [mut sender, receiver] = ends::pair("late copies", config, habit, [SENT as u64, 0]).unwrap();
    let End { mut stack, mut port, mut drops, .. } = receiver;
    let (_queue, mut server, key) = device_in(stack.memory(), ends::DOMAIN, LEN, u64::MAX);
    let (mut now, mut reported) = (1, Vec::new());
    let mut turns = |server: &mut DmaServer| {
        let mut orders = Vec::new();
        for _ in 0..100 {
            sender.turn_at(now);
            stack.poll(now, &mut port, &mut drops);
            now += 10_000;
            orders.extend(std::iter::from_fn(|| server.take()));
            while let Some(event) = stack.next_event() {
                match event {
                    Event::Accepted { connection, .. } => {
                        let segment = Segment { key, offset: 0, len: SENT as u64 };
                        stack.post_receive(connection, 7, segment).unwrap();
                    }
                    Event::Received { id, bytes, .. } => reported.push((id, bytes)),
                    _ => {}
                }
            }
        }
        (orders, reported.clone())
    };
    let (orders, reported) = turns(&mut server);
    assert_eq!(orders.iter().map(|copy| (copy.address, copy.len)).collect::<Vec<_>>(), [(FIRST, SENT); 2]);
    assert_eq!(reported, []);
    server.done(orders[0].number, 0);
    assert_eq!(turns(&mut server), (Vec::new(), Vec::new()));
    server.done(orders[1].number, 0);
    assert_eq!(turns(&mut server), (Vec::new(), vec![(7, SENT as u64)]));
}
