use super::parts::BODY_LEN;
use super::*;
use crate::Ipv4Addr;
use proptest::prelude::*;

fn comes_back(message: Message) {
    let mad = Mad { transaction: 0x0102_0304_0506_0708, message };
    let bytes = mad.bytes();
    assert_eq!(Mad::parse(&bytes), Ok(mad));
    assert_eq!(Mad::parse(&bytes[..MAD_LEN - 1]), Err(Malformed::Truncated));
}

fn data(len: usize) -> PrivateData {
    PrivateData((0..len).map(|at| at as u8 ^ 0x5a).collect())
}

const PAIR: Pair = Pair { local: 0x1122_3344, remote: 0x5566_7788 };

const QP: QueuePair = QueuePair {
    number: 0xab_cdef,
    first_psn: 0x12_3456,
    responder_resources: 16,
    initiator_depth: 8,
    rnr_retries: 6,
    srq: true,
    flow_control: true,
    guid: 0x0a0b_0c0d_0e0f_1011,
};

fn request() -> Request {
    Request {
        local: PAIR.local,
        service: Service { space: PortSpace::Tcp, port: 7174 }.name(),
        qp: QP,
        transport: 1,
        remote_timeout: 18,
        local_timeout: 20,
        retries: 5,
        cm_retries: 15,
        pkey: 0xffff,
        mtu: 3,
        way: ConnectionPath {
            local: [1; 16],
            remote: [2; 16],
            flow_label: 0xf_edcb,
            traffic_class: 0x20,
            hop_limit: 64,
            service_level: 3,
            ack_timeout: 14,
            rate: 7,
        },
        has_alternate: false,
        data: data(Request::DATA),
    }
}

// Checks IBTA: 12.6-a.
#[test]
fn messages_come_back() {
    comes_back(Message::Request(Box::new(request())));
    comes_back(Message::Reply(Box::new(Reply { pair: PAIR, qp: QP, ack_delay: 15, data: data(Reply::DATA) })));
    comes_back(Message::Ready(PAIR, data(224)));
    comes_back(Message::Disconnect(PAIR, 0xab_cdef, data(220)));
    comes_back(Message::Disconnected(PAIR, data(224)));
    for about in [About::Request, About::Reply, About::Other] {
        comes_back(Message::Wait(Wait { pair: PAIR, about, timeout: 24, data: data(222) }));
        let (reason, detail) = (Reason::INVALID_MTU, vec![3; 72]);
        let reject = Reject { pair: PAIR, about, reason, detail, data: data(Reject::DATA) };
        comes_back(Message::Reject(Box::new(reject)));
    }
    let service = Service { space: PortSpace::Udp, port: 7 }.name();
    comes_back(Message::Lookup(Lookup { request: 9, pkey: 0xffff, service, data: data(Lookup::DATA) }));
    let data = data(LookupReply::DATA);
    let reply = LookupReply { request: 9, status: LookupStatus::NO_QP, qp: 0xff_fffe, service, key: 5, data };
    comes_back(Message::LookupReply(Box::new(reply)));
}

/// Places of fields in IBTA 1.3, tables 85, 86, 88 and 92 (bytes of the message, which begins at byte 24).
// Checks IBTA: 12.6-a.
#[test]
fn fields_are_where_the_architecture_has_them() {
    let mad = Mad { transaction: 1, message: Message::Request(Box::new(request())) };
    let bytes = mad.bytes();
    assert_eq!(bytes[..4], [1, 7, 2, 3]);
    assert_eq!(bytes[16..18], [0, 0x10]);
    let body = &bytes[24..];
    assert_eq!(body[..4], PAIR.local.to_be_bytes());
    assert_eq!(body[8..16], [0, 0, 0, 0, 1, 6, 0x1c, 0x06]);
    assert_eq!(body[32..36], [0xab, 0xcd, 0xef, 16]);
    assert_eq!((body[39], body[43]), (8, 18 << 3 | 1 << 1 | 1));
    assert_eq!(body[44..52], [0x12, 0x34, 0x56, 20 << 3 | 5, 0xff, 0xff, 3 << 4 | 6, 15 << 4 | 1 << 3]);
    assert_eq!((body[56], body[72], body[92], body[93]), (1, 2, 0x20, 64));
    assert_eq!((&body[88..92], body[94], body[95]), (&[0xfe, 0xdc, 0xb0, 7][..], 3 << 4, 14 << 3));
    assert_eq!(body[140], 0x5a);
    let reply = Reply { pair: PAIR, qp: QP, ack_delay: 15, data: data(196) };
    let bytes = Mad { transaction: 1, message: Message::Reply(Box::new(reply)) }.bytes();
    let body = &bytes[24..];
    assert_eq!((&body[12..15], &body[20..23]), (&[0xab, 0xcd, 0xef][..], &[0x12, 0x34, 0x56][..]));
    assert_eq!(body[24..28], [16, 8, 15 << 3 | 1, 6 << 5 | 1 << 4]);
    let detail = vec![9, 8];
    let reject = Reject { pair: PAIR, about: About::Reply, reason: Reason::CONSUMER, detail, data: data(148) };
    let bytes = Mad { transaction: 1, message: Message::Reject(Box::new(reject)) }.bytes();
    assert_eq!(bytes[32..39], [1 << 6, 2 << 1, 0, 28, 9, 8, 0]);
    assert_eq!(bytes[24 + 84], 0x5a);
}

#[test]
fn other_messages_are_refused() {
    let good = Mad { transaction: 1, message: Message::Ready(PAIR, PrivateData::default()) }.bytes();
    for at in [0, 1, 2, 3, 16, 17] {
        let mut bytes = good;
        bytes[at] ^= 0x40;
        assert_eq!(Mad::parse(&bytes), Err(Malformed::Field), "byte {at}");
    }
    let mut unnamed = request();
    unnamed.local = 0;
    let bytes = Mad { transaction: 1, message: Message::Request(Box::new(unnamed)) }.bytes();
    assert_eq!(Mad::parse(&bytes), Err(Malformed::Field));
}

// Checks IBTA: A11-a.
#[test]
fn names_of_ports_and_their_header() {
    let service = Service { space: PortSpace::Udp, port: 0x1234 };
    assert_eq!(service.name(), 0x0000_0000_0111_1234);
    assert_eq!(Service::from_name(service.name()), Some(service));
    assert_eq!(Service::from_name(0x0000_0000_0107_1234), None);
    assert_eq!(Service::from_name(1 << 40 | service.name()), None);
    let (source, destination) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let named = Named { port: 4000, source, destination };
    let bytes = named.with(&[7, 8]);
    assert_eq!((bytes.len(), &bytes[..4], &bytes[16..20]), (38, &[0, 0x40, 15, 160][..], &[10, 0, 0, 1][..]));
    assert_eq!((&bytes[32..36], Named::parse(&bytes)), (&[10, 0, 0, 2][..], Some(named)));
    assert_eq!(Named::parse(&bytes[..35]), None);
    let mut six = bytes;
    six[1] = 6 << 4;
    assert_eq!(Named::parse(&six), None);
}

proptest! {
    /// Any bytes: read without harm, and what was read is written so that it is read the same.
    #[test]
    fn any_bytes(number in 0x0fu8..0x1a, body in prop::collection::vec(any::<u8>(), BODY_LEN)) {
        let mut bytes = [0u8; MAD_LEN];
        bytes[..4].copy_from_slice(&[1, 7, 2, 3]);
        bytes[17] = number;
        bytes[HEADER_LEN..].copy_from_slice(&body);
        if let Ok(mad) = Mad::parse(&bytes) {
            let mut again = Mad::parse(&mad.bytes()).unwrap();
            // The alternate path is seen, and never written.
            if let (Message::Request(again), Message::Request(first)) = (&mut again.message, &mad.message) {
                again.has_alternate = first.has_alternate;
            }
            prop_assert_eq!(again, mad);
        }
    }
}
