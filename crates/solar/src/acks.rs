//! Pending acknowledgements: each path's go back on that path, many in one packet.
use crate::packet::{Ack, Header, Kind, MOST_ACKS};
use crc32c::crc32c;

/// Those of one peer.
#[derive(Debug)]
pub(crate) struct Acks {
    by_path: Vec<Vec<Ack>>,
}

impl Acks {
    pub(crate) fn new(paths: u8) -> Acks {
        Acks { by_path: vec![Vec::new(); paths.max(1).into()] }
    }

    /// A packet has come, whole. One with a path that we do not have is not acknowledged.
    pub(crate) fn add(&mut self, header: &Header, marked: bool) {
        if let Some(acks) = self.by_path.get_mut(usize::from(header.path)) {
            acks.push(Ack { path: header.path, marked, sequence: header.sequence });
        }
    }

    /// Sends all, with what `header` has besides.
    pub(crate) fn flush(&mut self, header: Header, mut send: impl FnMut(&Header, &[u8])) {
        for (path, acks) in self.by_path.iter_mut().enumerate() {
            for some in acks.chunks(MOST_ACKS) {
                let payload: Vec<u8> = some.iter().flat_map(|ack| ack.write()).collect();
                let header = Header {
                    kind: Kind::Acknowledge,
                    path: path as u8,
                    crc: crc32c(&payload),
                    count: some.len() as u16,
                    ..header
                };
                send(&header, &payload);
            }
            acks.clear();
        }
    }
}
