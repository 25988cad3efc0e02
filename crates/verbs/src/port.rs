//! The port of a device, in the numbers and words that programs find: from libibverbs, and in files below `/sys/class`.

/// `IBV_PORT_CM_SUP` and `IBV_PORT_IP_BASED_GIDS`.
pub const FEATURES: u32 = 1 << 16 | 1 << 26;
/// The partition to which all belong.
pub const PARTITION: u16 = 0xffff;
/// Major and minor number of the node `/dev/infiniband/uverbs0` (Documentation/admin-guide/devices.txt).
pub const NODE: [u32; 2] = [231, 192];

/// How fast a port is: so many lanes of one speed (IBTA 1.3, table 155).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Lanes: 1 or 4.
    pub lanes: u8,
    /// The code of a lane's speed, as `ibv_port_attr` has it.
    pub speed: u8,
    /// Both together, as Linux calls them.
    pub rate: &'static str,
}

const fn link(lanes: u8, speed: u8, rate: &'static str) -> Link {
    Link { lanes, speed, rate }
}

/// The slowest, which stands for everything below the others.
const SLOWEST: Link = link(1, 1, "2.5 Gb/sec (1X SDR)");
/// The others, by the Gbit/s that they have at least.
const LINKS: [(u32, Link); 6] = [
    (400, link(4, 128, "400 Gb/sec (4X NDR)")),
    (200, link(4, 64, "200 Gb/sec (4X HDR)")),
    (100, link(4, 32, "100 Gb/sec (4X EDR)")),
    (40, link(4, 8, "40 Gb/sec (4X FDR10)")),
    (25, link(1, 32, "25 Gb/sec (1X EDR)")),
    (10, link(1, 8, "10 Gb/sec (1X FDR10)")),
];

impl Link {
    /// The fastest that a port of so many Gbit/s is at least.
    pub fn of(gbit: u32) -> Link {
        LINKS.iter().find(|(speed, _)| gbit >= *speed).map_or(SLOWEST, |(_, link)| *link)
    }

    /// The code of its width, as `ibv_port_attr` has it: 1 for one lane, 2 for four.
    pub fn width(self) -> u8 {
        if self.lanes == 4 { 2 } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_between_two_speeds_has_the_slower_one() {
        assert_eq!((Link::of(400).rate, Link::of(399).rate), ("400 Gb/sec (4X NDR)", "200 Gb/sec (4X HDR)"));
        assert_eq!((Link::of(26).width(), Link::of(26).speed), (1, 32));
        assert_eq!((Link::of(9), Link::of(0)), (SLOWEST, SLOWEST));
    }
}
