//! How a congestion window grows with acknowledgements.

/// How a congestion window grows with acknowledgements, until congestion control next decides. The crate `tcp` has the
/// rule (`FlightLimit`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Growth {
    /// The window grows up to so many bytes: a slow-start threshold, or as far as windows go. 0 where acknowledgements
    /// do not change it.
    pub until: u32,
    /// A full segment for so many bytes acknowledged. 0: as much as is acknowledged.
    pub per: u32,
}

impl Growth {
    /// Acknowledgements do not change the window.
    pub const NONE: Growth = Growth { until: 0, per: 0 };

    /// Slow start: as much as is acknowledged, up to a threshold (RFC 5681 section 3.1).
    pub const fn slow_start(ssthresh: u32) -> Growth {
        Growth { until: ssthresh, per: 0 }
    }
}
