//! The general services interface (queue pair 1) as its device has it: datagrams of connection management as frames.
use crate::address_resolution::{AddressResolution, Station, path};
use crate::cm::{DeviceIdentity, Letter, Manager};
use crate::config::Config;
use host::Io;
use verbs::{AddressVector, Mtu};
use wire::Mac;
use wire::roce::cm::{GSI_KEY, MAD_LEN};
use wire::roce::{Bth, Deth, GSI_QP, Headers, Opcode, Psn, finish};

/// What is reported to connection management of its device.
pub(crate) fn place(config: &Config, mtu: Mtu) -> DeviceIdentity {
    DeviceIdentity { address: config.address, guid: guid(config.mac), mtu, secret: config.secret }
}

/// A GUID made of a hardware address (EUI-64, as IBTA Annex A17 has it for RoCE).
fn guid(mac: Mac) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// Sends what waits, and returns how much that was. What has no next hop is dropped: it is sent again.
pub(crate) fn send(manager: &mut Manager, local: Station, resolution: &AddressResolution, io: &mut Io<'_>) -> usize {
    let letters = manager.take_letters();
    for letter in &letters {
        send_one(letter, local, resolution, io);
    }
    letters.len()
}

fn send_one(letter: &Letter, local: Station, resolution: &AddressResolution, io: &mut Io<'_>) {
    let Some(mac) = resolution.mac(letter.to).or(letter.next_hop) else { return };
    let remote = Station { mac, address: letter.to };
    let path = path(local, remote, &AddressVector::default(), GSI_QP);
    let deth = Deth { key: GSI_KEY, source: GSI_QP };
    let mut frame = io.pool.large();
    let bytes = frame.bytes_vec();
    // Receivers of datagrams do not check their sequence number (IBTA 1.3, 9.8.3).
    let bth = Bth::new(Opcode::UD_SEND, GSI_QP, Psn::new(0));
    path.emit(&bth, &Headers::NONE.with(deth.bytes()), MAD_LEN, bytes);
    bytes.extend_from_slice(&letter.mad.bytes());
    finish(bytes);
    io.tx.push(frame);
}
