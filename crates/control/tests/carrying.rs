//! exec: the new program gets what was named to the control plane, and nothing else.
mod support;

use context::{Reply, Request, Slot, Unaccelerated};
use engine::ContextId;
use support::programs::flextoe_net;
use support::*;

/// Node 0 serves at port 80, node 1 is the client. Gives the server's slots of two connections.
fn two_connections(net: &mut Net, client: &mut App, server: &mut App) -> [Slot; 2] {
    [(); 2].map(|()| {
        let tag = client.connect(ip_of(0), 80, 0);
        net.settle();
        client.connected(tag).unwrap().unwrap();
        let slot = server.accepted().unwrap();
        server.ask(Request::Label { fd: 5, reason: Unaccelerated::No, slot: Some(slot), binding: 0 });
        slot
    })
}

fn token(app: &mut App, net: &mut Net) -> u64 {
    let tag = app.next_tag();
    app.ask(Request::Exec { tag });
    net.settle();
    app.expect(|reply| if let Reply::Forked { token, .. } = *reply { Some(token) } else { None })
}

fn carry(app: &mut App, net: &mut Net, token: u64, flow: Option<(ContextId, Slot)>, binding: u32) -> Result<(), u16> {
    let (tag, flow) = (app.next_tag(), flow.map(|(context, slot)| (context.0, slot)));
    app.ask(Request::Carry { tag, token, flow, binding });
    net.settle();
    app.expect(|reply| match *reply {
        Reply::Done { tag: of } if of == tag => Some(Ok(())),
        Reply::Failed { tag: of, errno } if of == tag => Some(Err(errno)),
        _ => None,
    })
}

fn established(net: &Net) -> usize {
    net.states(0).iter().filter(|state| **state == "ESTABLISHED").count()
}

/// The process of a program is gone.
fn go(net: &mut Net, app: &App) {
    net.nodes[0].host.use_base(net.now, |tcp, context| tcp.detach(context, app.id));
    net.run_for(SECOND / 100);
}

#[test]
fn what_is_not_carried_ends_with_the_old_program() {
    let mut net = flextoe_net();
    let (mut old, mut client) = (net.attach(0), net.attach(1));
    let kept = old.serve(&mut net, 81);
    old.serve(&mut net, 80);
    let [carried, other] = two_connections(&mut net, &mut client, &mut old);
    let token = token(&mut old, &mut net);
    let flow = Some((old.id, carried));
    assert_eq!(carry(&mut old, &mut net, token, flow, 0), Ok(()));
    assert_eq!(carry(&mut old, &mut net, token, flow, 0), Ok(()), "twice is once");
    assert_eq!(carry(&mut old, &mut net, token, None, kept), Ok(()));
    let mut new = net.attach_as(0, 0, Some(token)).unwrap();
    go(&mut net, &old);
    assert_eq!(net.nodes[0].host.base().bindings().len(), 1, "the other listener is gone");
    assert_eq!(established(&net), 1);
    assert!(new.claim(&mut net, old.id, other).is_err());
    let claimed = new.claim(&mut net, old.id, carried).unwrap();
    // It runs another program itself, which gets what it inherited by its old name as well as by its own.
    for name in [(old.id, carried), (new.id, claimed)] {
        let token = self::token(&mut new, &mut net);
        assert_eq!(carry(&mut new, &mut net, token, Some(name), 0), Ok(()));
        new.ask(Request::Withdraw { token });
        net.settle();
        assert!(net.attach_as(0, 0, Some(token)).is_err(), "withdrawn");
    }
    assert_eq!(established(&net), 1);
    new.close(claimed, 0, 0, false);
    net.settle();
    assert_eq!(established(&net), 0);
    net.end_all(vec![new, client]);
}

#[test]
fn a_program_carries_only_what_it_has() {
    let mut net = flextoe_net();
    let (mut app, mut other, mut client) = (net.attach(0), net.attach(0), net.attach(1));
    let binding = app.serve(&mut net, 80);
    let [slot, _] = two_connections(&mut net, &mut client, &mut app);
    let flow = Some((app.id, slot));
    let own = token(&mut app, &mut net);
    let foreign = token(&mut other, &mut net);
    let no_such = Err(libc::EBADF as u16);
    assert_eq!(carry(&mut other, &mut net, foreign, flow, 0), no_such, "another one's connection");
    assert_eq!(carry(&mut other, &mut net, foreign, None, binding), no_such, "another one's address");
    assert_eq!(carry(&mut app, &mut net, foreign, flow, 0), no_such, "another one's token");
    assert_eq!(carry(&mut app, &mut net, 1, flow, 0), no_such, "no token");
    let passed = app.pass(&mut net, Some(slot), 0).unwrap();
    assert_eq!(carry(&mut app, &mut net, passed, None, binding), no_such, "what is passed is one thing");
    // Another program takes nothing back.
    other.ask(Request::Withdraw { token: own });
    net.settle();
    assert_eq!(carry(&mut app, &mut net, own, flow, 0), Ok(()));
    net.end_all(vec![app, other, client]);
}
