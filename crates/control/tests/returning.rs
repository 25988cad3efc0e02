//! Listeners of an earlier daemon come back with tickets (docs/RESTART.md).
mod support;

use context::attach::Ticket;
use control::ShownTicket;
use support::programs::mapped_net;
use support::*;

const PRIVILEGED: u16 = 80;

/// An application listens again.
fn show(net: &mut Net, app: &App, ticket: &Ticket, sealed: bool) -> Result<u32, i32> {
    let (now, id, shown) = (net.now, app.id, ShownTicket { ticket: ticket.clone(), sealed });
    net.nodes[0].host.use_base(now, |tcp, context| tcp.listen_again(context, id, &shown, 8))
}

/// The ticket of a listener of root's, which a host before this one had.
fn ticket(port: u16) -> Ticket {
    let mut net = mapped_net(Default::default());
    let mut app = net.attach_as(0, 0, None).unwrap();
    let binding = app.serve(&mut net, port);
    let (now, id) = (net.now, app.id);
    let ticket = net.nodes[0].host.use_base(now, |tcp, context| tcp.ticket(context, id, binding)).unwrap();
    assert_eq!(net.nodes[0].host.use_base(now, |tcp, context| tcp.ticket(context, id, binding + 1)), None);
    ticket
}

#[test]
fn a_sealed_ticket_stands_for_the_right_to_the_port() {
    let (ticket, mut net) = (ticket(PRIVILEGED), mapped_net(Default::default()));
    let [root, worker] = [0, 33].map(|uid| net.attach_as(0, uid, None).unwrap());
    assert_eq!(show(&mut net, &worker, &ticket, false), Err(libc::EACCES));
    let binding = show(&mut net, &worker, &ticket, true).unwrap();
    assert_eq!(show(&mut net, &root, &ticket, true), Ok(binding), "it joins");
    net.end_all(vec![root, worker]);
}

#[test]
fn a_number_alone_is_no_right_to_join_another_users_listener() {
    let (ticket, mut net) = (ticket(9000), mapped_net(Default::default()));
    let [root, other] = [0, 33].map(|uid| net.attach_as(0, uid, None).unwrap());
    let binding = show(&mut net, &root, &ticket, false).unwrap();
    let made_up = Ticket { uid: 33, ..ticket.clone() };
    assert_eq!(show(&mut net, &other, &made_up, false), Err(libc::EACCES));
    assert_eq!(show(&mut net, &root, &ticket, false), Ok(binding));
    net.end_all(vec![root, other]);
}
