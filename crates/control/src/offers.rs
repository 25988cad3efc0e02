//! What connections offer to their peers and accept from them, beside what the engine carries.
use crate::config::HostConfig;
use ::tcp::Offer;

/// Explicit Congestion Notification of connections (RFC 3168), as Linux' `tcp_ecn` numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ecn {
    /// 0: neither offered nor accepted.
    Off,
    /// 1: offered and accepted.
    On,
    /// 2: accepted, where the peer offers it.
    Accepted,
}

/// Extensions of later connections. Those that are open keep what they agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offers {
    /// The timestamps option (RFC 7323).
    pub timestamps: bool,
    /// Selective acknowledgements (RFC 2018).
    pub sack: bool,
    /// Explicit Congestion Notification.
    pub ecn: Ecn,
    /// Connections of this host's programs may send data with their SYN (RFC 7413).
    pub fast_open_client: bool,
    /// Listeners may take data of a SYN.
    pub fast_open_server: bool,
}

impl Offers {
    /// Those of a configuration.
    pub fn of(config: &HostConfig) -> Offers {
        let (fast_open_client, fast_open_server) = (config.limits.fast_open_client, config.limits.fast_open_server);
        let ecn = if config.ecn { Ecn::On } else { Ecn::Off };
        Offers { timestamps: true, sack: true, ecn, fast_open_client, fast_open_server }
    }

    /// An offer, or the answer to one, without what connections may not agree on.
    pub(crate) fn limit(&self, offer: Offer) -> Offer {
        Offer {
            timestamps: offer.timestamps && self.timestamps,
            sack: offer.sack && self.sack,
            ecn: offer.ecn && self.ecn != Ecn::Off,
            ..offer
        }
    }
}
