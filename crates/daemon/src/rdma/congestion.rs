//! Congestion control of queue pairs, as the configuration names it.
use rdma::Congestion;
use serde::Deserialize;

/// How connected queue pairs of a host's RDMA device answer congestion (docs/RDMA.md, "Congestion").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RdmaCongestion {
    /// Not at all: they send as fast as they can.
    #[default]
    None,
    /// By DCQCN.
    Dcqcn,
}

impl RdmaCongestion {
    /// As the device has it; `line_rate`: bits a second of its port.
    pub(crate) fn on(self, line_rate: u64) -> Congestion {
        match self {
            RdmaCongestion::None => Congestion::None,
            RdmaCongestion::Dcqcn => Congestion::Dcqcn { line_rate },
        }
    }
}
