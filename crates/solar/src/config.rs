//! Configuration of both ends of Solar.
use tcp::congestion::{self, CongestionName};
use tcp::{Nanos, RtoBounds};

const MS: Nanos = 1_000_000;

/// Paths and their timers.
#[derive(Debug, Clone)]
pub struct PathConfig {
    /// Paths to a peer, 1 to 255: each is a UDP source port of its own, so that routers hash them apart.
    pub paths: u8,
    /// Bounds of the time-out of a packet.
    pub rto: RtoBounds,
    /// So many time-outs in a row, without an acknowledgement, and a path has failed.
    pub failures: u32,
    /// A failed path is probed after this time, nanoseconds, then after twice as much, up to `probe_most`.
    pub probe: Nanos,
    /// Longest time between two probes, nanoseconds.
    pub probe_most: Nanos,
    /// The congestion policy of a path.
    pub congestion: CongestionName,
    /// Most packets in flight on a path.
    pub most_in_flight: u32,
}

impl Default for PathConfig {
    /// Four paths, as in the paper (From Luna to Solar, section 4.5). The least time-out is what bounds a stall.
    fn default() -> PathConfig {
        PathConfig {
            paths: 4,
            rto: RtoBounds::new(2 * MS, 50 * MS),
            failures: 2,
            probe: 10 * MS,
            probe_most: 1000 * MS,
            congestion: congestion::DCTCP,
            most_in_flight: 256,
        }
    }
}

/// A client.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// Its paths to the server.
    pub path: PathConfig,
    /// An opening is sent again after this time, nanoseconds.
    pub open_again: Nanos,
    /// A client that waits for results, and has received nothing for this time, nanoseconds, asks whether the server is
    /// there. So a server that was started again is noticed.
    pub ask: Nanos,
    /// An idle client asks after this time, nanoseconds: less than the server's `silence`.
    pub keep_alive: Nanos,
    /// Nothing was received from the server for this time, nanoseconds: outstanding operations fail.
    pub give_up: Nanos,
    /// Payload is copied to a buffer in between and its checksum is computed anew, as where nothing refers to memory
    /// and no checksum is used again (SmartNS, section 5.7): for comparison.
    pub staged: bool,
}

impl Default for ClientConfig {
    fn default() -> ClientConfig {
        ClientConfig {
            path: PathConfig::default(),
            open_again: 20 * MS,
            ask: 100 * MS,
            keep_alive: 10_000 * MS,
            give_up: 30_000 * MS,
            staged: false,
        }
    }
}

/// A server.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Its paths to each client; a client that uses fewer has fewer.
    pub path: PathConfig,
    /// Most operations of a session that are outstanding.
    pub most_outstanding: u16,
    /// Most sessions.
    pub most_sessions: usize,
    /// A session without a packet from its client for this time, nanoseconds, ends.
    pub silence: Nanos,
    /// Payload is copied to a buffer in between and its checksum is computed anew, as where nothing refers to memory
    /// and no checksum is used again (SmartNS, section 5.7): for comparison.
    pub staged: bool,
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        ServerConfig {
            path: PathConfig::default(),
            most_outstanding: 1024,
            most_sessions: 1024,
            silence: 60_000 * MS,
            staged: false,
        }
    }
}
