//! A server has room for so many sessions: those that only wait for their end make room for others.
mod world;

use crc32c::crc32c;
use solar::{Access, Header, Kind, Server, ServerConfig, Status};
use world::disk::Disk;

/// Opens a volume for a client at an address: how the server answers.
fn open(server: &mut Server<u8>, disk: &mut Disk, (peer, client, access): (u8, u64, Access), now: u64) -> Header {
    let mut ask = |header: Header| {
        let header = Header { access, crc: crc32c(b"vol"), lba: client, ..header };
        server.receive(peer, &[&header.write()[..], b"vol"].concat(), false, disk, now);
        let mut answer = None;
        server.poll(now, |to, _, header, payload| {
            let (header, _) = Header::read(&[&header[..], &payload.to_vec()].concat()).unwrap();
            let meant = to == peer && matches!(header.kind, Kind::Ticket | Kind::Opened);
            answer = Some(header).filter(|_| meant).or(answer);
        });
        answer.expect("an answer")
    };
    let ticket = ask(Header::new(Kind::Open));
    ask(Header { session: ticket.session, op: ticket.lba, ..Header::new(Kind::Claim) })
}

#[test]
fn clients_that_were_killed_leave_room_for_others() {
    for access in [Access::TakeOver, Access::Read] {
        let config = ServerConfig { most_sessions: 3, ..ServerConfig::default() };
        let (mut server, mut disk) = (Server::new(config, [1, 2]), Disk::new(16, 1));
        // Each is another client at the same address, as a daemon that was killed and started again.
        for client in 1..20 {
            let opened = open(&mut server, &mut disk, (1, client, access), client);
            assert_eq!((opened.kind, opened.status), (Kind::Opened, Status::Ok), "{access:?} of client {client}");
            assert!(server.sessions() <= 3);
        }
    }
}

#[test]
fn clients_that_are_there_keep_their_sessions() {
    let config = ServerConfig { most_sessions: 3, ..ServerConfig::default() };
    let (mut server, mut disk) = (Server::new(config, [1, 2]), Disk::new(16, 1));
    for peer in 1..=3 {
        assert_eq!(open(&mut server, &mut disk, (peer, peer.into(), Access::Read), 1).status, Status::Ok);
    }
    assert_eq!(open(&mut server, &mut disk, (4, 4, Access::Read), 2).status, Status::Busy);
    // One that takes the volume over from another has its place.
    let mut server: Server<u8> = Server::new(ServerConfig { most_sessions: 2, ..ServerConfig::default() }, [1, 2]);
    for peer in 1..=5 {
        let opened = open(&mut server, &mut disk, (peer, peer.into(), Access::TakeOver), peer.into());
        assert_eq!(opened.status, Status::Ok, "client {peer}");
    }
}
