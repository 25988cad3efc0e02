//! A connection: the state machine of one side (IBTA 1.3, 12.9.7, figures 123 and 124).
//!
//! | state | the side that asks | the side that is asked |
//! |---|---|---|
//! | `ReqSent`, `MraReqReceived` | REQ is sent, again until an answer comes | |
//! | `ReqReceived` | | the program has to answer; MRA reported that to the peer |
//! | `RepSent`, `MraRepReceived` | | REP is sent, again until RTU comes |
//! | `RepReceived` | the program's queue pair is being made ready | |
//! | `Established` | RTU is sent, again for each REP | |
//! | `DreqSent` | DREQ is sent, again until DREP comes | the same |
//! | `TimeWait` | DREQ is answered; packets may still be under way | the same |
//! | `Idle` | nothing is left | the same |
use super::timing;
use engine::Nanos;
use memory::Rights;
use verbs::connections::Parameters;
use verbs::{Mtu, QpAttributes, QpState};
use wire::roce::cm::{About, Mad, Message, Pair, PrivateData, QueuePair, Reason, Reject, Reply, Request, Wait};

/// MRAs that a peer may send for one message.
const MOST_WAITS: u8 = 4;

/// States, by the names of the architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum State {
    ReqSent,
    MraReqReceived,
    ReqReceived,
    RepSent,
    MraRepReceived,
    RepReceived,
    Established,
    DreqSent,
    TimeWait,
    Idle,
}

impl State {
    /// All of them.
    pub const ALL: [State; 10] = [
        State::ReqSent,
        State::MraReqReceived,
        State::ReqReceived,
        State::RepSent,
        State::MraRepReceived,
        State::RepReceived,
        State::Established,
        State::DreqSent,
        State::TimeWait,
        State::Idle,
    ];

    /// Its name, for people.
    pub const fn name(self) -> &'static str {
        match self {
            State::ReqSent => "REQ-SENT",
            State::MraReqReceived => "MRA-REQ-RCVD",
            State::ReqReceived => "REQ-RCVD",
            State::RepSent => "REP-SENT",
            State::MraRepReceived => "MRA-REP-RCVD",
            State::RepReceived => "REP-RCVD",
            State::Established => "ESTABLISHED",
            State::DreqSent => "DREQ-SENT",
            State::TimeWait => "TIME-WAIT",
            State::Idle => "IDLE",
        }
    }
}

/// What is known of a connection: what its queue pair needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The own queue pair; 0 before the program has named one.
    pub local_qp: u32,
    /// The peer's.
    pub remote_qp: u32,
    /// Sequence number of the first packet to send.
    pub send_psn: u32,
    /// Of the first one to receive.
    pub receive_psn: u32,
    /// Payload of a packet at most.
    pub mtu: Mtu,
    /// Reads and atomics taken at once.
    pub responder_resources: u8,
    /// Reads and atomics outstanding.
    pub initiator_depth: u8,
    /// Retransmissions.
    pub retries: u8,
    /// Retransmissions after RNR NAKs: what the peer asked for.
    pub rnr_retries: u8,
    /// Code of the time-out for an acknowledgement.
    pub ack_timeout: u8,
    /// How long the peer's control plane takes.
    pub peer_timeout: u8,
    /// How often a message is sent again.
    pub cm_retries: u8,
    /// An unreliable connection.
    pub unreliable: bool,
    /// The own adapter's GUID.
    pub guid: u64,
}

/// What happens to a connection.
#[derive(Debug, Clone)]
pub enum Input<'a> {
    /// A message that names it came.
    Message(&'a Message),
    /// The program accepts.
    Accept(&'a Parameters),
    /// The program refuses, or nobody waits for it any more.
    Reject(&'a [u8]),
    /// The program's queue pair is ready.
    Establish,
    /// The program ends it.
    Disconnect,
    /// The time of [`Connection::due`] has come.
    Timer,
}

/// What a step leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// The peer accepted.
    Replied(Parameters),
    /// The peer is ready, too.
    Ready(Vec<u8>),
    /// The peer refused.
    Rejected {
        /// Why.
        reason: u16,
        /// Private data.
        data: Vec<u8>,
    },
    /// The peer did not answer.
    TimedOut,
    /// The connection has ended.
    Disconnected,
    /// Packets that were under way are gone.
    TimeWaitOver,
}

/// One side of a connection.
#[derive(Debug, Clone)]
pub struct Connection {
    state: State,
    pair: Pair,
    transaction: u64,
    facts: Facts,
    /// What is sent again.
    last: Option<Message>,
    /// How often it still is.
    left: u8,
    /// MRAs that the peer may still send.
    waits: u8,
    due: Option<Nanos>,
}

/// What a step adds to: messages for the peer, and news for the program.
#[derive(Debug, Default)]
pub struct Step {
    /// For the peer.
    pub(crate) mads: Vec<Mad>,
    /// For the program.
    pub(crate) news: Vec<News>,
}

impl Step {
    /// For the peer.
    pub fn mads(&self) -> &[Mad] {
        &self.mads
    }

    /// For the program.
    pub fn news(&self) -> &[News] {
        &self.news
    }
}

impl Connection {
    /// This side asks.
    pub fn ask(now: Nanos, facts: Facts, request: Request, transaction: u64) -> (Connection, Step) {
        let pair = Pair { local: request.local, remote: 0 };
        let left = facts.cm_retries;
        let mut connection = Connection {
            state: State::ReqSent,
            pair,
            transaction,
            facts,
            last: None,
            left,
            waits: MOST_WAITS,
            due: None,
        };
        let mut step = Step::default();
        connection.send_again(now, Message::Request(Box::new(request)), &mut step);
        (connection, step)
    }

    /// This side is asked; `local` is its number for the connection. The peer is notified that a program has to answer.
    pub fn asked(facts: Facts, pair: Pair, transaction: u64) -> (Connection, Step) {
        let connection = Connection {
            state: State::ReqReceived,
            pair,
            transaction,
            left: facts.cm_retries,
            facts,
            last: None,
            waits: MOST_WAITS,
            due: None,
        };
        let mut step = Step::default();
        connection.send(connection.mra(), &mut step);
        (connection, step)
    }

    /// Its state.
    pub fn state(&self) -> State {
        self.state
    }

    /// The numbers of the connection.
    pub fn pair(&self) -> Pair {
        self.pair
    }

    /// What is known of it.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// When [`Input::Timer`] is due.
    pub fn due(&self) -> Option<Nanos> {
        self.due
    }

    /// Takes an input. What has no meaning in its state changes nothing. False: a command that has no meaning now.
    pub fn step(&mut self, now: Nanos, input: Input<'_>, step: &mut Step) -> bool {
        match input {
            Input::Message(message) => self.receive(now, message, step),
            Input::Accept(parameters) => return self.accept(now, parameters, step),
            Input::Reject(data) => return self.refuse(data, step),
            Input::Establish => return self.establish(step),
            Input::Disconnect => return self.disconnect(now, step),
            Input::Timer => self.fire(now, step),
        }
        true
    }

    // Meets IBTA: 12.9.7-a.
    fn receive(&mut self, now: Nanos, message: &Message, step: &mut Step) {
        use State::*;
        match (message, self.state) {
            // A repeated one: the answer was lost.
            (Message::Request(_), ReqReceived) => self.send(self.mra(), step),
            (Message::Request(_), RepSent | MraRepReceived) => self.repeat(step),
            (Message::Wait(wait), ReqSent | MraReqReceived) if wait.about == About::Request => {
                self.wait(now, MraReqReceived, wait);
            }
            (Message::Wait(wait), RepSent | MraRepReceived) if wait.about == About::Reply => {
                self.wait(now, MraRepReceived, wait);
            }
            (Message::Reply(reply), ReqSent | MraReqReceived) => self.replied(reply, step),
            // The RTU was lost.
            (Message::Reply(_), Established) => self.send(Message::Ready(self.pair, PrivateData::default()), step),
            (Message::Ready(_, data), RepSent | MraRepReceived) => {
                self.enter_silent(Established);
                step.news.push(News::Ready(data.0.clone()));
            }
            (
                Message::Reject(reject),
                ReqSent | MraReqReceived | ReqReceived | RepSent | MraRepReceived | RepReceived,
            ) => {
                self.enter_silent(Idle);
                step.news.push(News::Rejected { reason: reject.reason.0, data: reject.data.0.clone() });
            }
            // The peer has forgotten the connection.
            (Message::Reject(_), Established | DreqSent) => self.ended(now, step),
            (Message::Disconnect(_, qp, _), RepSent | MraRepReceived | Established | DreqSent)
                if *qp == self.facts.local_qp =>
            {
                self.send(Message::Disconnected(self.pair, PrivateData::default()), step);
                self.ended(now, step);
            }
            (Message::Disconnect(..), TimeWait) => {
                self.send(Message::Disconnected(self.pair, PrivateData::default()), step);
            }
            (Message::Disconnected(..), DreqSent) => self.ended(now, step),
            _ => {}
        }
    }

    /// The peer accepts.
    fn replied(&mut self, reply: &Reply, step: &mut Step) {
        let QueuePair { number, first_psn, responder_resources, initiator_depth, rnr_retries, srq, .. } = reply.qp;
        self.pair.remote = reply.pair.local;
        // What the peer may have outstanding is what this side takes, and the other way round.
        self.facts = Facts {
            remote_qp: number,
            send_psn: first_psn,
            responder_resources: initiator_depth,
            initiator_depth: responder_resources,
            rnr_retries,
            ..self.facts.clone()
        };
        self.enter_silent(State::RepReceived);
        step.news.push(News::Replied(Parameters {
            data: reply.data.0.clone(),
            responder_resources: initiator_depth,
            initiator_depth: responder_resources,
            flow_control: reply.qp.flow_control,
            retries: self.facts.retries,
            rnr_retries,
            srq,
            qp: number,
            unreliable: self.facts.unreliable,
        }));
    }

    fn accept(&mut self, now: Nanos, parameters: &Parameters, step: &mut Step) -> bool {
        if self.state != State::ReqReceived {
            return false;
        }
        let p = parameters;
        self.facts.local_qp = p.qp;
        (self.facts.responder_resources, self.facts.initiator_depth) = (p.responder_resources, p.initiator_depth);
        let qp = QueuePair {
            number: p.qp,
            first_psn: self.facts.receive_psn,
            responder_resources: p.responder_resources,
            initiator_depth: p.initiator_depth,
            rnr_retries: p.rnr_retries,
            srq: p.srq,
            flow_control: p.flow_control,
            guid: self.facts.guid,
        };
        let data = PrivateData(p.data.clone());
        let reply = Reply { pair: self.pair, qp, ack_delay: 0, data };
        self.state = State::RepSent;
        self.send_again(now, Message::Reply(Box::new(reply)), step);
        true
    }

    /// Refuses, in every state in which the peer waits for this side.
    fn refuse(&mut self, data: &[u8], step: &mut Step) -> bool {
        let (about, reason) = match self.state {
            State::ReqSent | State::MraReqReceived => (About::Other, Reason::TIMEOUT),
            State::ReqReceived => (About::Request, Reason::CONSUMER),
            State::RepSent | State::MraRepReceived => (About::Other, Reason::CONSUMER),
            State::RepReceived => (About::Reply, Reason::CONSUMER),
            _ => return false,
        };
        let data = PrivateData(data.to_vec());
        let reject = Reject { pair: self.pair, about, reason, detail: Vec::new(), data };
        self.send(Message::Reject(Box::new(reject)), step);
        self.enter_silent(State::Idle);
        true
    }

    fn establish(&mut self, step: &mut Step) -> bool {
        match self.state {
            State::RepReceived => {
                self.enter_silent(State::Established);
                self.send(Message::Ready(self.pair, PrivateData::default()), step);
                true
            }
            // Data of the peer came before its RTU, and the program reports it (`rdma_notify`).
            State::RepSent | State::MraRepReceived => {
                self.enter_silent(State::Established);
                step.news.push(News::Ready(Vec::new()));
                true
            }
            state => state == State::Established,
        }
    }

    fn disconnect(&mut self, now: Nanos, step: &mut Step) -> bool {
        match self.state {
            State::Established => {
                (self.state, self.left) = (State::DreqSent, self.facts.cm_retries);
                let message = Message::Disconnect(self.pair, self.facts.remote_qp, PrivateData::default());
                self.send_again(now, message, step);
                true
            }
            State::DreqSent | State::TimeWait => true,
            _ => self.refuse(&[], step),
        }
    }

    // Meets IBTA: 12.9.8-a.
    fn fire(&mut self, now: Nanos, step: &mut Step) {
        self.due = None;
        match self.state {
            State::TimeWait => {
                self.enter_silent(State::Idle);
                step.news.push(News::TimeWaitOver);
            }
            // Whoever asked for a longer wait has had it: the message is sent again.
            _ if self.last.is_some() && self.left > 0 => {
                self.left -= 1;
                self.repeat(step);
                self.due = Some(now + timing::response(self.facts.peer_timeout));
            }
            State::ReqSent | State::MraReqReceived | State::RepSent | State::MraRepReceived => {
                let reject = Reject {
                    pair: self.pair,
                    about: About::Other,
                    reason: Reason::TIMEOUT,
                    detail: Vec::new(),
                    data: PrivateData::default(),
                };
                self.send(Message::Reject(Box::new(reject)), step);
                self.enter_silent(State::Idle);
                step.news.push(News::TimedOut);
            }
            State::DreqSent => self.ended(now, step),
            _ => {}
        }
    }

    /// The peer needs longer.
    fn wait(&mut self, now: Nanos, state: State, wait: &Wait) {
        if self.waits > 0 {
            self.waits -= 1;
            if wait.pair.local != 0 {
                self.pair.remote = wait.pair.local;
            }
            self.state = state;
            self.due = Some(now + timing::wait(wait.timeout));
        }
    }

    /// The connection has ended, in one of the two ways.
    // Meets IBTA: 12.9.8-b.
    fn ended(&mut self, now: Nanos, step: &mut Step) {
        self.enter_silent(State::TimeWait);
        self.due = Some(now + timing::time_wait(self.facts.ack_timeout));
        step.news.push(News::Disconnected);
    }

    /// Enters a state in which nothing is retransmitted.
    fn enter_silent(&mut self, state: State) {
        (self.state, self.last, self.due) = (state, None, None);
    }

    fn mra(&self) -> Message {
        let (about, timeout) = (About::Request, timing::PROGRAM);
        Message::Wait(Wait { pair: self.pair, about, timeout, data: PrivateData::default() })
    }

    fn send(&self, message: Message, step: &mut Step) {
        step.mads.push(Mad { transaction: self.transaction, message });
    }

    fn repeat(&self, step: &mut Step) {
        step.mads.extend(self.last.iter().map(|last| Mad { transaction: self.transaction, message: last.clone() }));
    }

    fn send_again(&mut self, now: Nanos, message: Message, step: &mut Step) {
        self.last = Some(message);
        self.repeat(step);
        self.due = Some(now + timing::response(self.facts.peer_timeout));
    }

    /// The attributes by which its queue pair goes to a state; `None` where they are not known yet. The path is the
    /// manager's.
    pub fn attributes(&self, state: QpState) -> Option<QpAttributes> {
        let (facts, reliable) = (&self.facts, !self.facts.unreliable);
        let known = !matches!(self.state, State::ReqSent | State::MraReqReceived | State::Idle);
        let only = |value: u8| reliable.then_some(value);
        match state {
            QpState::Init => Some(init(Some(facts.responder_resources > 0 && reliable))),
            QpState::ReadyToReceive if known => Some(QpAttributes {
                state: Some(state),
                mtu: Some(facts.mtu),
                remote_qp: Some(facts.remote_qp),
                receive_psn: Some(facts.receive_psn),
                responder_resources: only(facts.responder_resources),
                rnr_timer: only(RNR_TIMER),
                ..QpAttributes::default()
            }),
            QpState::ReadyToSend if known => Some(QpAttributes {
                state: Some(state),
                send_psn: Some(facts.send_psn),
                timeout: only(facts.ack_timeout),
                retries: only(facts.retries),
                rnr_retries: only(facts.rnr_retries),
                initiator_depth: only(facts.initiator_depth),
                ..QpAttributes::default()
            }),
            _ => None,
        }
    }
}

/// The attributes by which a queue pair of a connection goes to the initial state. What the peer may do is known only
/// once the two sides have agreed: `reads` reports whether it may read.
pub(crate) fn init(reads: Option<bool>) -> QpAttributes {
    let rights = match reads {
        None => Rights::NONE,
        Some(false) => Rights::REMOTE_WRITE,
        Some(true) => Rights::REMOTE_WRITE | Rights::REMOTE_READ | Rights::REMOTE_ATOMIC,
    };
    let (partition_index, port) = (Some(0), Some(1));
    QpAttributes { state: Some(QpState::Init), rights: Some(rights), partition_index, port, ..QpAttributes::default() }
}

/// What RNR NAKs ask for: 0.64 ms (IBTA 1.3, table 45).
const RNR_TIMER: u8 = 12;
