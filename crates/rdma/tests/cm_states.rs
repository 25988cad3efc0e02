//! The state machine of a connection: two sides over a wire that loses and repeats, and every state against every
//! message and command.
use proptest::prelude::*;
use rdma::cm::{Connection, Facts, Input, News, State, Step};
use verbs::connections::Parameters;
use verbs::{Mtu, QpState};
use wire::roce::cm::{
    About, Lookup, LookupReply, LookupStatus, Mad, Message, Pair, PrivateData, QueuePair, Reason, Reject, Reply,
    Request, Wait,
};

const ACTIVE_QP: u32 = 0x11;
const PASSIVE_QP: u32 = 0x22;

fn facts(local_qp: u32) -> Facts {
    Facts {
        local_qp,
        remote_qp: 0,
        send_psn: 5,
        receive_psn: 6,
        mtu: Mtu::B1024,
        responder_resources: 4,
        initiator_depth: 3,
        retries: 7,
        rnr_retries: 7,
        ack_timeout: 14,
        peer_timeout: 18,
        cm_retries: 3,
        unreliable: false,
        guid: 9,
    }
}

fn request() -> Request {
    Request { local: 1, mtu: 3, qp: QueuePair { number: ACTIVE_QP, ..QueuePair::default() }, ..Request::default() }
}

fn parameters() -> Parameters {
    Parameters { qp: PASSIVE_QP, responder_resources: 2, initiator_depth: 1, rnr_retries: 6, ..Parameters::default() }
}

fn active() -> (Connection, Step) {
    Connection::ask(0, facts(ACTIVE_QP), request(), 77)
}

fn passive() -> (Connection, Step) {
    Connection::asked(facts(0), Pair { local: 2, remote: 1 }, 77)
}

fn step(connection: &mut Connection, input: Input<'_>) -> (Step, bool) {
    let mut step = Step::default();
    let done = connection.step(0, input, &mut step);
    (step, done)
}

/// Hands messages over until neither side sends any more; events of the two sides.
fn exchange(sides: &mut [Connection; 2], from: usize, mads: &[Mad]) -> [Vec<News>; 2] {
    let mut news = [Vec::new(), Vec::new()];
    let mut wire: Vec<(usize, Mad)> = mads.iter().map(|mad| (1 - from, mad.clone())).collect();
    let mut handed = 0;
    while !wire.is_empty() {
        let (to, mad) = wire.remove(0);
        let (step, _) = step(&mut sides[to], Input::Message(&mad.message));
        news[to].extend(step.news().iter().cloned());
        wire.extend(step.mads().iter().map(|mad| (1 - to, mad.clone())));
        handed += 1;
        assert!(handed < 50, "the two talk for ever");
    }
    news
}

fn states(sides: &[Connection; 2]) -> [State; 2] {
    [sides[0].state(), sides[1].state()]
}

/// Two sides with a connection.
fn connected() -> [Connection; 2] {
    let mut sides = [active().0, passive().0];
    let mra = passive().1;
    exchange(&mut sides, 1, mra.mads());
    let (replied, _) = step(&mut sides[1], Input::Accept(&parameters()));
    // Each side gives the number at which the other one begins to send (IBTA 1.3, 12.7.31).
    let Message::Reply(reply) = &replied.mads()[0].message else { panic!("{replied:?}") };
    assert_eq!(reply.qp.first_psn, sides[1].facts().receive_psn);
    let news = exchange(&mut sides, 1, replied.mads());
    assert!(matches!(news[0][..], [News::Replied(_)]));
    let (ready, done) = step(&mut sides[0], Input::Establish);
    assert!(done);
    let news = exchange(&mut sides, 0, ready.mads());
    assert!(matches!(news[1][..], [News::Ready(_)]));
    assert_eq!(states(&sides), [State::Established; 2]);
    sides
}

// Checks IBTA: 12.9.8-b.
#[test]
fn a_connection_comes_and_goes() {
    let mut sides = connected();
    // What one side may have outstanding is what the other one takes.
    let [active, passive] = [0, 1].map(|side| sides[side].facts().clone());
    assert_eq!((active.remote_qp, active.send_psn), (PASSIVE_QP, passive.receive_psn));
    assert_eq!((active.initiator_depth, active.responder_resources, active.rnr_retries), (2, 1, 6));
    let attributes = sides[0].attributes(QpState::ReadyToReceive).unwrap();
    assert_eq!((attributes.remote_qp, attributes.responder_resources), (Some(PASSIVE_QP), Some(1)));
    let (ended, _) = step(&mut sides[1], Input::Disconnect);
    assert_eq!(states(&sides)[1], State::DreqSent);
    // The receiver's queue pair must be named.
    let (wrong, _) = step(
        &mut sides[0],
        Input::Message(&Message::Disconnect(Pair { local: 2, remote: 1 }, 0, PrivateData::default())),
    );
    assert!(wrong.mads().is_empty() && sides[0].state() == State::Established);
    let dreq = Message::Disconnect(Pair { local: 2, remote: 1 }, ACTIVE_QP, PrivateData::default());
    assert_eq!(ended.mads().len(), 1);
    let news = exchange(&mut sides, 1, &[Mad { transaction: 1, message: dreq.clone() }]);
    assert_eq!(news, [vec![News::Disconnected], vec![News::Disconnected]]);
    assert_eq!(states(&sides), [State::TimeWait; 2]);
    // Repeated: answered again, and reported once.
    let (again, _) = step(&mut sides[0], Input::Message(&dreq));
    assert!(matches!(again.mads()[0].message, Message::Disconnected(..)) && again.news().is_empty());
    for side in &mut sides {
        assert_eq!(step(side, Input::Timer).0.news(), [News::TimeWaitOver]);
        assert_eq!((side.state(), side.due()), (State::Idle, None));
    }
}

// Checks IBTA: 12.9.8-a.
#[test]
fn what_is_lost_is_sent_again_and_given_up_in_the_end() {
    let (mut connection, first) = active();
    for _ in 0..facts(0).cm_retries {
        let (again, _) = step(&mut connection, Input::Timer);
        assert_eq!(again.mads(), first.mads());
        assert!(connection.due().is_some());
    }
    let (last, _) = step(&mut connection, Input::Timer);
    assert_eq!((last.news(), connection.state()), (&[News::TimedOut][..], State::Idle));
    assert!(matches!(&last.mads()[0].message, Message::Reject(reject) if reject.reason == Reason::TIMEOUT));
    // A lost RTU: the reply comes again, and so does the RTU.
    let mut sides = connected();
    let reply = Reply { pair: Pair { local: 2, remote: 1 }, ..Reply::default() };
    let (again, _) = step(&mut sides[0], Input::Message(&Message::Reply(Box::new(reply))));
    assert!(matches!(again.mads()[0].message, Message::Ready(..)));
}

// Checks IBTA: 12.9.8-a.
#[test]
fn a_peer_may_ask_for_longer_waits_only_so_often() {
    let (mut connection, _) = active();
    let wait =
        Wait { pair: Pair { local: 2, remote: 1 }, about: About::Request, timeout: 31, data: PrivateData::default() };
    let message = Message::Wait(wait);
    step(&mut connection, Input::Message(&message));
    assert_eq!(connection.state(), State::MraReqReceived);
    let longest = connection.due().unwrap();
    assert!(longest < 100_000_000_000, "{longest}");
    let mut honoured = 1;
    for _ in 0..20 {
        let due = connection.due();
        let mut step = Step::default();
        connection.step(due.unwrap(), Input::Message(&message), &mut step);
        honoured += u32::from(connection.due() != due);
    }
    assert!(honoured <= 4, "{honoured}");
}

/// A connection in each state, reached by the ordinary way.
fn in_state(state: State) -> Connection {
    let with = |mut connection: Connection, inputs: &[Input<'_>]| {
        inputs.iter().for_each(|input| drop(step(&mut connection, input.clone())));
        connection
    };
    let pair = Pair { local: 2, remote: 1 };
    let wait = |about| Message::Wait(Wait { pair, about, timeout: 20, data: PrivateData::default() });
    let (parameters, reply) = (parameters(), Message::Reply(Box::new(Reply { pair, ..Reply::default() })));
    let dreq = Message::Disconnect(pair, ACTIVE_QP, PrivateData::default());
    let (of_request, of_reply) = (wait(About::Request), wait(About::Reply));
    let (ready, accept) = (Input::Establish, Input::Accept(&parameters));
    let answered = [Input::Message(&reply)];
    let made = match state {
        State::ReqSent => active().0,
        State::MraReqReceived => with(active().0, &[Input::Message(&of_request)]),
        State::ReqReceived => passive().0,
        State::RepSent => with(passive().0, &[accept]),
        State::MraRepReceived => with(passive().0, &[accept, Input::Message(&of_reply)]),
        State::RepReceived => with(active().0, &answered),
        State::Established => with(active().0, &[answered[0].clone(), ready]),
        State::DreqSent => with(active().0, &[answered[0].clone(), ready, Input::Disconnect]),
        State::TimeWait => with(active().0, &[answered[0].clone(), ready, Input::Message(&dreq)]),
        State::Idle => with(passive().0, &[Input::Reject(&[])]),
    };
    assert_eq!(made.state(), state);
    made
}

fn messages() -> Vec<Message> {
    let pair = Pair { local: 2, remote: 1 };
    let none = PrivateData::default;
    let mut all = vec![
        Message::Request(Box::new(request())),
        Message::Reply(Box::new(Reply { pair, ..Reply::default() })),
        Message::Ready(pair, none()),
        Message::Disconnect(pair, ACTIVE_QP, none()),
        Message::Disconnect(pair, PASSIVE_QP, none()),
        Message::Disconnect(pair, 0xff_ffff, none()),
        Message::Disconnected(pair, none()),
        Message::Lookup(Lookup { request: 1, pkey: 0xffff, service: 1, data: none() }),
        Message::LookupReply(Box::new(LookupReply {
            request: 1,
            status: LookupStatus::VALID,
            qp: 1,
            service: 1,
            key: 1,
            data: none(),
        })),
    ];
    for about in [About::Request, About::Reply, About::Other] {
        all.push(Message::Wait(Wait { pair, about, timeout: 31, data: none() }));
        let reject = Reject { pair, about, reason: Reason::STALE, detail: Vec::new(), data: none() };
        all.push(Message::Reject(Box::new(reject)));
    }
    all
}

/// Where each state may lead by a message of the peer.
fn may_follow(from: State, to: State) -> bool {
    use State::*;
    from == to
        || match from {
            ReqSent | MraReqReceived => matches!(to, MraReqReceived | RepReceived | Idle),
            ReqReceived => to == Idle,
            RepSent | MraRepReceived => matches!(to, MraRepReceived | Established | TimeWait | Idle),
            RepReceived => to == Idle,
            Established | DreqSent => to == TimeWait,
            TimeWait | Idle => false,
        }
}

// Checks IBTA: 12.9.7-a.
#[test]
fn every_message_in_every_state() {
    for state in State::ALL {
        for message in messages() {
            let mut connection = in_state(state);
            let (first, _) = step(&mut connection, Input::Message(&message));
            let after = connection.state();
            assert!(may_follow(state, after), "{state:?} to {after:?} by {message:?}");
            assert!(first.mads().len() <= 1 && first.news().len() <= 1, "{state:?}: {message:?} is amplified");
            // Something is due in each state in which the peer has to send; else it would stay for ever.
            let waits = !matches!(after, State::ReqReceived | State::RepReceived | State::Established | State::Idle);
            assert_eq!(connection.due().is_some(), waits, "{state:?}, {after:?}, {message:?}");
            // Reported once, however often the peer sends it.
            let (second, _) = step(&mut connection, Input::Message(&message));
            if after != state {
                assert!(second.news().is_empty(), "{state:?}: {message:?} is reported twice");
            }
        }
    }
}

#[test]
fn every_command_in_every_state() {
    let parameters = parameters();
    for state in State::ALL {
        let commands = [Input::Accept(&parameters), Input::Establish, Input::Disconnect, Input::Reject(&[1])];
        for (number, command) in commands.into_iter().enumerate() {
            let mut connection = in_state(state);
            let (step, done) = step(&mut connection, command);
            if !done {
                assert_eq!((step.mads().len(), connection.state()), (0, state), "command {number} in {state:?}");
            }
        }
        // A program that goes away leaves nothing that lasts.
        let mut connection = in_state(state);
        step(&mut connection, Input::Disconnect);
        for _ in 0..100 {
            if connection.due().is_some() {
                step(&mut connection, Input::Timer);
            }
        }
        assert_eq!(connection.state(), State::Idle, "left behind from {state:?}");
    }
}

proptest! {
    /// Whatever a peer sends and a program asks for, in any order: never more than one datagram for one that came, and
    /// nothing that lasts once the program has gone.
    // Checks IBTA: 12.9.7-a.
    #[test]
    fn any_sequence_ends(
        asks in any::<bool>(),
        steps in prop::collection::vec((0u8..6, 0x10u8..0x19, prop::collection::vec(any::<u8>(), 24)), 0..40),
    ) {
        let parameters = parameters();
        let mut connection = if asks { active().0 } else { passive().0 };
        let mut now = 0;
        for (kind, number, head) in steps {
            let mut bytes = [0; 256];
            bytes[..4].copy_from_slice(&[1, 7, 2, 3]);
            bytes[17] = number;
            bytes[24..48].copy_from_slice(&head);
            let mad = Mad::parse(&bytes);
            let input = match (kind, &mad) {
                (0 | 1, Ok(mad)) => Input::Message(&mad.message),
                (2, _) => Input::Accept(&parameters),
                (3, _) => Input::Establish,
                (4, _) => Input::Timer,
                (5, _) => Input::Disconnect,
                _ => continue,
            };
            let mut step = Step::default();
            connection.step(now, input, &mut step);
            prop_assert!(step.mads().len() <= 1 && step.news().len() <= 1);
            now += 1_000_000;
            prop_assert!(connection.due().is_none_or(|due| due <= now + 100_000_000_000));
        }
        let mut step = Step::default();
        connection.step(now, Input::Disconnect, &mut step);
        let mut fired = 0;
        while let Some(due) = connection.due() {
            connection.step(due, Input::Timer, &mut step);
            fired += 1;
            prop_assert!(fired < 40);
        }
        prop_assert_eq!(connection.state(), State::Idle);
    }
}
