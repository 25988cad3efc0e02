//! Option `--so_flags`: words `key=value`, separated by commas.
use control::{Ecn, HostConfig, Offers, TcpConfig};
use engines::{EngineKind, Mapping};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use tcp::congestion::CongestionName;
use wire::IpAddress;

/// What `engine=threads` stands for.
const REPLICATED: Mapping = Mapping { threads: true, preprocess: 2, flow_groups: 2, postprocess: 2, dma: 2 };

/// A host and its engine.
#[derive(Debug, Clone, PartialEq)]
pub struct Flags {
    /// Its engine: `engine=flextoe`, `laminar`; or `threads`: FlexTOE with replicated modules, which take turns here.
    pub engine: EngineKind,
    /// The replication of its modules.
    pub mapping: Mapping,
    /// A file of later changes (`changes`): lines `key=value` that scripts append while they run, read before each
    /// call. The keys are `timestamps`, `sack`, `ecn` and `fast_open`; `ecn=accept` is Linux' `tcp_ecn=2`.
    pub changes: Option<PathBuf>,
    /// Explicit Congestion Notification of connections (`ecn`).
    pub ecn: Ecn,
    /// The host. `address` (192.168.0.2), `gateway` (192.168.0.1), `address6` (fd00::2), `gateway6` (fe80::1), `mtu`
    /// (1500), `rx_bytes`, `tx_bytes`, `small_bytes`, `long_path_bytes`, `min_rto_ms`, `tail_probe_ms` (0),
    /// `nagle`, `congestion`.
    pub host: HostConfig,
    /// Connections use timestamps where the peer does, as Linux's `tcp_timestamps` has it (`timestamps`).
    pub timestamps: bool,
    /// Connections use SACK where the peer does, as Linux's `tcp_sack` has it (`sack`).
    pub sack: bool,
    /// Of the host's section `tcp`: `tail_probe_ack_delay_ms`, `slow_start_after_idle_ms`, `black_hole_detection`
    /// (false).
    pub tcp: TcpConfig,
    /// Most payload bytes of a super-segment (`super_segment`), which comes out whole, as from a TUN device with
    /// segmentation offload; 0 for none.
    pub super_segment: u32,
    /// What Linux's `tcp_fastopen` and `tcp_fastopen_key` set for sockets: `fast_open`, `fast_open_key`.
    pub fast_open: FastOpen,
}

/// Fast Open of sockets for which a script sets no option.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FastOpen {
    /// Bits of Linux's `tcp_fastopen`.
    pub bits: u32,
    /// The key of listeners' cookies; else the host's own.
    pub key: Option<[u8; 16]>,
}

impl Default for FastOpen {
    /// As Linux begins: clients may, and listeners take nothing unless they ask for it.
    fn default() -> FastOpen {
        FastOpen { bits: 1, key: None }
    }
}

impl FastOpen {
    /// Clients may send data with their SYN.
    pub fn client(self) -> bool {
        self.bits & 1 != 0
    }

    /// Clients send data without a cookie.
    pub fn client_without_cookie(self) -> bool {
        self.bits & 4 != 0
    }

    /// Listeners take data without a cookie.
    pub fn listener_without_cookie(self) -> bool {
        self.bits & 0x200 != 0
    }

    /// Listeners take data that do not ask for it.
    pub fn every_listener(self) -> bool {
        self.bits & 0x400 != 0
    }

    /// A key as Linux writes it: four hexadecimal words, each the lowest byte first in the key.
    fn key(text: &str) -> Option<[u8; 16]> {
        let words: Vec<u32> =
            text.split('-').map(|word| u32::from_str_radix(word, 16)).collect::<Result<_, _>>().ok()?;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.try_into().ok()
    }
}

impl Flags {
    /// Reads the text; the error is a sentence.
    pub fn parse(text: &str) -> Result<Flags, String> {
        let mut host = HostConfig {
            name: "script".into(),
            address: Ipv4Addr::new(192, 168, 0, 2).into(),
            prefix_len: 16,
            gateway: Some(Ipv4Addr::new(192, 168, 0, 1).into()),
            max_flows: 128,
            mtu: 1500,
            unprivileged_port_start: 0,
            ..HostConfig::default()
        };
        host.ipv6.address = Some(IpAddress::v6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2), 0));
        host.ipv6.gateway = Some(IpAddress::v6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1), 0));
        host.memory.slots = 64;
        host.memory.rx_bytes = 1 << 16;
        host.memory.tx_bytes = 1 << 16;
        // Scripts set what the host allows with a `sysctl` of the kernel.
        host.limits.fast_open_server = true;
        // Scripts have round trips as they like, and expect windows of one size.
        host.memory.long_path_bytes = 0;
        // They know no probe of a lone segment that comes before RFC 8985 lets it.
        host.timers.tail_probe_ms = 0;
        let (engine, mapping) = (EngineKind::default(), Mapping::default());
        let mut flags = Flags {
            engine,
            mapping,
            host,
            timestamps: true,
            sack: true,
            // As Linux begins (`tcp_mtu_probing`): scripts expect segments of one size.
            tcp: TcpConfig { black_hole_detection: false, ..TcpConfig::default() },
            ecn: Ecn::Off,
            super_segment: 0,
            fast_open: FastOpen::default(),
            changes: None,
        };
        for word in text.split([',', ' ']).filter(|word| !word.is_empty()) {
            let (key, value) = word.split_once('=').ok_or_else(|| format!("`{word}` is not key=value"))?;
            flags.set(key, value)?;
        }
        flags.host.validate()?;
        Ok(flags)
    }

    /// What connections offer to their peers and accept.
    pub(crate) fn offers(&self) -> Offers {
        let Flags { timestamps, sack, ecn, .. } = *self;
        Offers { timestamps, sack, ecn, ..Offers::of(&self.host) }
    }

    /// Takes a line of the file of changes.
    pub(crate) fn change(&mut self, line: &str) -> Result<(), String> {
        match line.split_once('=') {
            Some((key @ ("timestamps" | "sack" | "ecn" | "fast_open"), value)) => self.set(key, value),
            _ => Err(format!("`{line}` is no change of a setting")),
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let refused = || format!("{key}={value}: this is no value for {key}");
        let address = || value.parse::<Ipv4Addr>().map(IpAddress::from).map_err(|_| refused());
        let number = || value.parse::<u32>().map_err(|_| refused());
        match key {
            "engine" => {
                let threads = value == "threads";
                self.engine = EngineKind::of_name(if threads { "flextoe" } else { value }).ok_or_else(refused)?;
                self.mapping = if threads { REPLICATED } else { Mapping::default() };
            }
            "address" => self.host.address = address()?,
            "gateway" => self.host.gateway = Some(address()?),
            "gateway6" => self.host.ipv6.gateway = Some(value.parse().map_err(|_| refused())?),
            "address6" => self.host.ipv6.address = Some(value.parse().map_err(|_| refused())?),
            "mtu" => self.host.mtu = value.parse().map_err(|_| refused())?,
            "rx_bytes" => self.host.memory.rx_bytes = number()?,
            "tx_bytes" => self.host.memory.tx_bytes = number()?,
            "small_bytes" => self.host.memory.small_bytes = number()?,
            "long_path_bytes" => self.host.memory.long_path_bytes = number()?,
            "min_rto_ms" => self.host.timers.min_rto_ms = number()?,
            "tail_probe_ms" => self.host.timers.tail_probe_ms = number()?,
            "tail_probe_ack_delay_ms" => self.tcp.tail_probe_ack_delay_ms = number()?,
            "slow_start_after_idle_ms" => self.tcp.slow_start_after_idle_ms = number()?,
            "black_hole_detection" => self.tcp.black_hole_detection = value.parse().map_err(|_| refused())?,
            "nagle" => self.host.limits.nagle = value.parse().map_err(|_| refused())?,
            "super_segment" => self.super_segment = number()?,
            "timestamps" => self.timestamps = value.parse().map_err(|_| refused())?,
            "sack" => self.sack = value.parse().map_err(|_| refused())?,
            "fast_open" => {
                let bits = value.strip_prefix("0x").map_or_else(|| value.parse(), |hex| u32::from_str_radix(hex, 16));
                self.fast_open.bits = bits.map_err(|_| refused())?;
                let limits = &mut self.host.limits;
                limits.fast_open_client = self.fast_open.bits & 1 != 0;
                limits.fast_open_server = self.fast_open.bits & 2 != 0;
            }
            "fast_open_key" => self.fast_open.key = Some(FastOpen::key(value).ok_or_else(refused)?),
            "ecn" => {
                self.ecn = match value {
                    "true" => Ecn::On,
                    "accept" => Ecn::Accepted,
                    "false" => Ecn::Off,
                    _ => return Err(refused()),
                };
                self.host.ecn = self.ecn != Ecn::Off;
            }
            "changes" => self.changes = Some(value.into()),
            "congestion" => {
                self.host.congestion = Some(CongestionName::named(value)?);
            }
            _ => return Err(format!("{key} is no flag of this library")),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_and_wrong_ones_named() {
        let flags = Flags::parse("engine=laminar,address=10.0.0.1, min_rto_ms=200").unwrap();
        assert_eq!((flags.engine, flags.host.timers.min_rto_ms), (EngineKind::Laminar, 200));
        assert_eq!(flags.host.address, Ipv4Addr::new(10, 0, 0, 1));
        let flags = Flags::parse("fast_open=0x403,fast_open_key=00010203-04050607-08090a0b-0c0d0e0f").unwrap();
        assert!(flags.fast_open.every_listener() && !flags.fast_open.client_without_cookie());
        assert_eq!(flags.fast_open.key.unwrap()[..5], [3, 2, 1, 0, 7]);
        for (wrong, says) in [("engine=tofino", "engine=tofino"), ("speed=9", "speed"), ("ecn", "key=value")] {
            assert!(Flags::parse(wrong).unwrap_err().contains(says), "{wrong}");
        }
        assert!(Flags::parse("rx_bytes=5000").is_err());
    }

    #[test]
    fn each_congestion_policy_is_taken() {
        for kind in tcp::congestion::KINDS {
            let flags = Flags::parse(&format!("congestion={}", kind.name)).unwrap();
            assert_eq!(flags.host.congestion.unwrap().name, kind.name);
        }
        assert!(Flags::parse("congestion=reno2").unwrap_err().contains(&CongestionName::list()));
    }
}
