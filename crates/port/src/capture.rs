//! Capturing frames on a running host: what a captured frame is recorded with, which frames are captured, and how the
//! copies reach the writer (FlexTOE section 3.3, thesis section 4.3.3: tcpdump).
//!
//! [`Recorder`] stands where frames leave a host's pipeline, [`Queue`] is what somebody else empties, and
//! [`pcapng`] is the form in which both pass frames on.
mod filter;
pub mod pcapng;
mod recorder;

pub use filter::{Filter, Instruction, MOST_INSTRUCTIONS};
pub use recorder::{Queue, Recorder};
pub(crate) use recorder::{View, each_packet};

use crate::drops::{Labels, Reason, Set};
use std::fmt;

/// Most bytes kept of a frame: more than a super-segment has.
pub const SNAPLEN: u32 = 262_144;

/// Which way a frame went, seen from the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Received.
    In,
    /// Sent.
    Out,
}

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Received and used: what it carried is where it belongs.
    Accepted,
    /// Received and kept until an application takes the connection.
    Held,
    /// Received, and sent out again by a module: as it was sent.
    Returned,
    /// Sent.
    Sent,
    /// Sent, and not for the first time.
    SentAgain,
    /// Dropped, or a part of it was: for these reasons, of which there is at least one.
    Dropped(Labels),
}

/// What is known of a frame where it is captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sight<'a> {
    /// Which way it went.
    pub direction: Direction,
    /// The flow's number in its engine, where it is one's.
    pub flow: Option<u32>,
    /// What decided its fate: a module of the engine, `control`, `fabric`.
    pub module: &'a str,
    /// What became of it.
    pub fate: Fate,
}

impl Fate {
    /// Of a received frame for which these drops were counted.
    pub fn of_received<R: Reason>(drops: Set<R>) -> Fate {
        if drops.is_empty() { Fate::Accepted } else { Fate::Dropped(drops.into()) }
    }

    /// Of a frame that was dropped for one reason.
    pub fn dropped<R: Reason>(reason: R) -> Fate {
        Fate::Dropped(Set::from(reason).into())
    }
}

impl Sight<'_> {
    /// Appends the capture's comment on the frame: `flow 3 protocol: dropped: outside_window`. For each frame, so
    /// without what formatting can do beyond.
    pub fn describe(&self, into: &mut String) {
        if let Some(flow) = self.flow {
            into.push_str("flow ");
            decimal(flow, into);
            into.push(' ');
        }
        into.push_str(self.module);
        into.push_str(match self.fate {
            Fate::Accepted => ": accepted",
            Fate::Held => ": held until accepted",
            Fate::Returned => ": returned",
            Fate::Sent => ": sent",
            Fate::SentAgain => ": sent again",
            Fate::Dropped(_) => ": dropped: ",
        });
        if let Fate::Dropped(reasons) = self.fate {
            for (number, reason) in reasons.iter().enumerate() {
                into.push_str(if number > 0 { ", " } else { "" });
                into.push_str(reason);
            }
        }
    }
}

impl fmt::Display for Sight<'_> {
    /// As [`Sight::describe`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.describe(&mut text);
        f.write_str(&text)
    }
}

fn decimal(mut number: u32, into: &mut String) {
    let (mut digits, mut from) = ([b'0'; 10], 10);
    loop {
        from -= 1;
        digits[from] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    into.extend(digits[from..].iter().map(|digit| char::from(*digit)));
}

/// Which frames somebody asked for, and how much of each.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Those that this program accepts.
    pub filter: Filter,
    /// Only those of this flow.
    pub flow: Option<u32>,
    /// Only those that were dropped.
    pub dropped: bool,
    /// Only those that went this way.
    pub direction: Option<Direction>,
    /// Most bytes to keep of each.
    pub snaplen: u32,
}

impl Wanted {
    /// Everything, whole.
    pub fn everything() -> Wanted {
        Wanted { filter: Filter::everything(), flow: None, dropped: false, direction: None, snaplen: SNAPLEN }
    }

    /// What is known of a frame does not exclude it.
    fn admits(&self, sight: &Sight<'_>) -> bool {
        self.flow.is_none_or(|flow| sight.flow == Some(flow))
            && (!self.dropped || matches!(sight.fate, Fate::Dropped(_)))
            && self.direction.is_none_or(|direction| sight.direction == direction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PortDrop;

    #[test]
    fn what_is_known_of_a_frame_in_words() {
        let sight = |flow, fate| Sight { direction: Direction::In, flow, module: "protocol", fate }.to_string();
        for flow in [0, 9, 10, 4_000_000_007, u32::MAX] {
            assert_eq!(sight(Some(flow), Fate::Sent), format!("flow {flow} protocol: sent"));
        }
        assert_eq!(sight(None, Fate::Held), "protocol: held until accepted");
        assert_eq!(sight(None, Fate::dropped(PortDrop::TooLong)), "protocol: dropped: too_long");
        let mut reasons = Set::from(PortDrop::FabricLoss);
        reasons.add(PortDrop::Ethernet);
        assert_eq!(sight(None, Fate::Dropped(reasons.into())), "protocol: dropped: ethernet, fabric_loss");
    }
}
