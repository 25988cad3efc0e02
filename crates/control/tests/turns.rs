//! A listener that several processes have: which of them gets a connection that one does not accept.
mod support;

use context::{Reply, Request, Slot};
use support::recording::{Recorded, Recording, Shared};
use support::*;

/// A parent that listens and polls, its child that takes connections as well, and a client.
struct Family {
    net: Net,
    log: Shared,
    parent: App,
    child: App,
    client: App,
    binding: u32,
}

impl Family {
    fn new() -> Family {
        let mut logs = Vec::new();
        let mut net = Net::new(vec![config(0), config(1)], |_, _| {
            let (engine, log) = Recording::boxed();
            logs.push(log);
            engine
        });
        let (mut parent, client) = (net.attach(0), net.attach(1));
        let binding = parent.serve(&mut net, 80);
        let token = parent.fork(&mut net);
        let child = net.attach_as(0, 0, Some(token)).unwrap();
        Family { net, log: logs.remove(0), parent, child, client, binding }
    }

    fn connect(&mut self) {
        self.client.connect(ip_of(0), 80, 0);
        self.net.settle();
    }

    fn arm_child(&mut self) {
        self.child.arm(&mut self.net, self.binding, 16);
    }

    /// The child accepts and finds nothing; gives what it got before the answer.
    fn child_takes(&mut self) -> Option<Slot> {
        let tag = self.child.next_tag();
        self.child.ask(Request::Take { tag, binding: self.binding, credits: 16 });
        self.net.settle();
        let slot = self.child.accepted();
        self.child.expect(|reply| (*reply == Reply::Done { tag }).then_some(()));
        slot
    }

    fn moved(&self) -> usize {
        let moved = |recorded: &&Recorded| matches!(recorded, Recorded::Move(..));
        self.log.lock().unwrap().commands.iter().filter(moved).count()
    }

    fn end(self) {
        let Family { mut net, parent, child, client, .. } = self;
        net.end_all(vec![parent, child, client]);
    }
}

#[test]
fn unaccepted_connections_go_to_another_process() {
    let mut family = Family::new();
    family.arm_child();
    family.connect();
    let slot = family.parent.offered().expect("the parent comes first");
    assert_eq!((family.parent.taken_back(), family.child.offered()), (None, None));
    family.net.run_for(30 * MS);
    assert_eq!(family.parent.taken_back(), Some(slot));
    assert!(!family.parent.end.accept(slot), "it cannot be accepted there any more");
    assert!(family.child.accepted().is_some());
    family.connect();
    assert!(family.child.accepted().is_some(), "the parent let its offer expire a moment ago");
    // Later, the parent may have changed its ways, and it has fewer connections.
    family.net.run_for(SECOND);
    family.connect();
    assert!(family.parent.accepted().is_some());
    family.net.run_for(SECOND);
    assert_eq!((family.parent.taken_back(), family.child.taken_back(), family.moved()), (None, None, 1));
    family.end();
}

#[test]
fn a_connection_waits_for_ever_where_no_other_process_takes_any() {
    let mut family = Family::new();
    family.connect();
    family.net.run_for(10 * SECOND);
    assert_eq!((family.parent.taken_back(), family.child.offered()), (None, None));
    // A child that comes later has it at once.
    family.arm_child();
    assert!(family.parent.taken_back().is_some() && family.child.accepted().is_some());
    family.end();
}

#[test]
fn an_acceptance_that_is_still_under_way_counts() {
    let mut family = Family::new();
    family.arm_child();
    family.connect();
    assert!(family.parent.accepted().is_some());
    family.net.run_for(10 * SECOND);
    assert_eq!((family.parent.taken_back(), family.child.offered(), family.moved()), (None, None, 0));
    assert_eq!(family.child_takes(), None);
    family.end();
}

#[test]
fn an_accepting_process_gets_what_waits_at_an_idle_one() {
    let mut family = Family::new();
    family.arm_child();
    family.connect();
    let slot = family.parent.offered().expect("the parent comes first");
    assert!(family.child_takes().is_some());
    assert_eq!((family.parent.taken_back(), family.child_takes()), (Some(slot), None));
    // A parent that accepts itself comes first again.
    family.net.run_for(SECOND);
    family.connect();
    assert!(family.parent.accepted().is_some());
    family.connect();
    let waiting = family.parent.offered().or(family.child.offered()).expect("one of them");
    let at_parent = family.parent.end.accept(waiting);
    assert_eq!(at_parent.then(|| family.child_takes()).flatten(), None);
    family.end();
}

#[test]
fn a_connection_that_ended_while_it_waited_is_nobodys() {
    let mut family = Family::new();
    family.arm_child();
    family.connect();
    let slot = family.parent.offered().expect("the parent comes first");
    let flow = *family.log.lock().unwrap().installed.keys().next().expect("it is there");
    let reset = engine::Event::Transport(engine::stream::Event::Reset(flow));
    family.log.lock().unwrap().events.push(reset);
    family.net.run_for(SECOND);
    assert_eq!((family.parent.taken_back(), family.child.offered(), family.moved()), (Some(slot), None, 0));
    assert!(family.net.states(0).is_empty());
    family.end();
}

#[test]
fn an_unaccepted_connection_goes_round_with_longer_waits() {
    let mut family = Family::new();
    family.arm_child();
    family.connect();
    family.net.run_for(10 * SECOND);
    let few = family.moved();
    assert!((4..20).contains(&few), "moved {few} times in ten seconds");
    let taken_back = |app: &mut App| std::iter::from_fn(|| app.taken_back()).count();
    assert_eq!(taken_back(&mut family.parent) + taken_back(&mut family.child), few);
    family.end();
}
