//! Packets with any numbers in them: nothing panics, and each end goes on.
mod world;

use crc32c::crc32c;
use solar::{Access, BLOCK_LEN, Direction, Header, Kind, Server, ServerConfig, Status};
use world::disk::Disk;
use world::{MS, Random, World};

const KINDS: [Kind; 12] = [
    Kind::Open,
    Kind::Ticket,
    Kind::Claim,
    Kind::Opened,
    Kind::Read,
    Kind::Data,
    Kind::Write,
    Kind::Done,
    Kind::Acknowledge,
    Kind::Probe,
    Kind::Stale,
    Kind::Close,
];

/// Numbers at the edges more often than others.
fn number(random: &mut Random) -> u64 {
    let edges = [0, 1, 255, u64::MAX, u64::MAX - 1, 1 << 63];
    if random.chance(600) { edges[random.below(6) as usize] } else { random.word() }
}

/// A packet that is well-formed, with checksums that are right, in the session of this number.
fn packet(random: &mut Random, session: u64) -> Vec<u8> {
    let kind = KINDS[random.below(12) as usize];
    let payload = match kind {
        Kind::Open | Kind::Claim => b"vol".to_vec(),
        Kind::Write | Kind::Data => vec![random.word() as u8; BLOCK_LEN],
        Kind::Acknowledge => (0..8 * random.below(64)).map(|_| random.word() as u8).collect(),
        _ => Vec::new(),
    };
    let count = if kind == Kind::Acknowledge { payload.len() as u64 / 8 } else { number(random) };
    let header = Header {
        path: random.below(6) as u8,
        sequence: number(random) as u32,
        crc: crc32c(&payload),
        session,
        op: number(random),
        lba: number(random),
        oldest: number(random),
        count: count as u16,
        ..Header::new(kind)
    };
    [&header.write()[..], &payload].concat()
}

#[test]
fn a_server_takes_any_numbers() {
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let mut disk = Disk::new(16, seed);
        let mut server: Server<u8> = Server::new(ServerConfig::default(), [seed, 1]);
        let mut session = begin(&mut server, &mut disk, number(&mut random));
        for round in 0..500 {
            let now = round * MS;
            server.receive(1, &packet(&mut random, session), random.chance(300), &mut disk, now);
            disk.work(now);
            disk.ended().into_iter().for_each(|(job, outcome)| server.finish(job, outcome));
            server.poll(now, |_, _, header, payload| {
                assert!(
                    Header::read(&[&header[..], &payload.to_vec()].concat()).is_some(),
                    "it sends what can be read"
                );
            });
            if server.sessions() == 0 {
                session = begin(&mut server, &mut disk, number(&mut random));
            }
        }
    }
}

/// A session that begins as it should, but for the oldest operation that its client names. Its number.
fn begin(server: &mut Server<u8>, disk: &mut Disk, oldest: u64) -> u64 {
    let ask = |server: &mut Server<u8>, disk: &mut Disk, header: Header| {
        let header = Header { access: Access::TakeOver, crc: crc32c(b"vol"), lba: 5, oldest, ..header };
        server.receive(1, &[&header.write()[..], b"vol"].concat(), false, disk, 0);
        let mut answer = None;
        server.poll(0, |_, _, header, payload| {
            let packet = [&header[..], &payload.to_vec()].concat();
            let (header, _) = Header::read(&packet).unwrap();
            answer = Some(header).filter(|header| matches!(header.kind, Kind::Ticket | Kind::Opened)).or(answer);
        });
        answer
    };
    let ticket = ask(server, disk, Header::new(Kind::Open)).expect("a ticket");
    // Until the disk has ended what an earlier session began.
    while let Some(at) = disk.deadline() {
        disk.work(at);
    }
    disk.work(0);
    disk.ended();
    let claim = Header { session: ticket.session, op: ticket.lba, ..Header::new(Kind::Claim) };
    let opened = ask(server, disk, claim).expect("a session");
    assert_eq!((opened.kind, opened.status), (Kind::Opened, Status::Ok));
    opened.session
}

#[test]
fn a_client_takes_any_numbers() {
    for seed in 0..40 {
        let mut world = World::new(seed, 16);
        let mut random = Random::new(seed);
        world.submit(Direction::Write, 0, 4);
        world.run_until_done(100 * MS);
        // A server that does not answer: all that comes is forged, in the client's own session.
        let session = world.session;
        world.kill_server();
        world.submit(Direction::Write, 4, 4);
        for _ in 0..500 {
            let mut forged = packet(&mut random, session);
            // Results with bytes that the judge has never seen are the server's right: they are left out.
            while Header::read(&forged).is_some_and(|(header, _)| matches!(header.kind, Kind::Data | Kind::Done)) {
                forged = packet(&mut random, session);
            }
            world.forge(&forged);
            world.run_until(world.now + MS / 10);
        }
    }
}
