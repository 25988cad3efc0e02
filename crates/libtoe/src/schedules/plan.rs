//! Plans of an order: a plan names the steps at which the order differs from the ordinary one.
use std::fmt;

/// Which of several goes first where the ordinary order is left.
pub(super) type Choice = u32;

/// Steps at which the order differs.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// Nowhere.
    #[default]
    Ordinary,
    /// At these steps, in their order.
    At(Vec<(u32, Choice)>),
    /// At about one step of so many, by a seed.
    Random { seed: u64, one_of: u64 },
}

impl Plan {
    /// The plan's value for a step.
    pub(super) fn at(&self, step: u32) -> Option<Choice> {
        match self {
            Plan::Ordinary => None,
            Plan::At(steps) => steps.iter().find(|(at, _)| *at == step).map(|(_, choice)| *choice),
            Plan::Random { seed, one_of } => {
                let random = mix(seed.wrapping_add(mix(u64::from(step))));
                (random % one_of == 0).then_some((random >> 32) as Choice)
            }
        }
    }
}

/// SplitMix64's finalizer (Steele, Lea, Flood 2014).
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Plan::Ordinary => write!(f, "ordinary"),
            Plan::At(steps) => {
                let steps: Vec<_> = steps.iter().map(|(step, choice)| format!("{step}={choice}")).collect();
                write!(f, "{}", steps.join(","))
            }
            Plan::Random { seed, one_of } => write!(f, "random,{seed},{one_of}"),
        }
    }
}

/// Reads what `Display` writes.
pub(super) fn read(text: &str) -> Option<Plan> {
    if text == "ordinary" {
        return Some(Plan::Ordinary);
    }
    if let Some(rest) = text.strip_prefix("random,") {
        let (seed, one_of) = rest.split_once(',')?;
        return Some(Plan::Random { seed: seed.parse().ok()?, one_of: one_of.parse().ok()? });
    }
    let step = |text: &str| text.split_once('=').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    text.split(',').map(step).collect::<Option<Vec<_>>>().map(Plan::At)
}
