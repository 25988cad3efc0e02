//! Drop reasons of ports, and the form that all registries of drop reasons have. A registry is a closed list of names,
//! each with a label, a sentence and a counter; sets of them are bit masks.
//!
//! [`PortDrop`] holds the reasons of ports; the registry of the whole host is `engine::DropReason`, which contains
//! them.
use std::fmt::Debug;
use std::marker::PhantomData;

/// Most reasons in one registry: a [`Set`] is one word.
pub const MOST: usize = 64;

/// A registry of drop reasons.
pub trait Reason: Copy + Eq + Debug + 'static {
    /// Every reason, in the order of [`Reason::index`].
    const ALL: &'static [Self];
    /// Every reason's name in metrics and on the command line, in the same order.
    const LABELS: &'static [&'static str];
    /// Its place in the registry, below [`MOST`].
    fn index(self) -> usize;
}

/// Declares a registry: an enum of reasons, each with its sentence (the doc comment) and its label. `with` names
/// another registry and those of its reasons that this one contains. `from` names an enum whose variants are reasons
/// here, too.
#[macro_export]
macro_rules! drop_reasons {
    (
        $(#[$meta:meta])+
        $name:ident { $($(#[doc = $text:literal])+ $own:ident = $label:literal,)+ }
        $(with $part:ident { $($shared:ident,)+ })?
        $(from $origin:ident { $($named:ident,)+ })?
    ) => {
        $(#[$meta])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name {
            $($(#[doc = $text])+ $own,)+
            $($(#[doc = concat!("As [`", stringify!($part), "::", stringify!($shared), "`].")] $shared,)+)?
        }

        impl $name {
            /// Every reason.
            pub const ALL: &'static [$name] = &[$($name::$own,)+ $($($name::$shared,)+)?];
            /// The name in metrics and on the command line.
            pub const fn label(self) -> &'static str {
                match self {
                    $($name::$own => $label,)+
                    $($($name::$shared => $part::$shared.label(),)+)?
                }
            }
            /// What it means, for `opentoe why`.
            pub const fn sentence(self) -> &'static str {
                match self {
                    $($name::$own => concat!($($text),+).trim_ascii(),)+
                    $($($name::$shared => $part::$shared.sentence(),)+)?
                }
            }
        }

        impl $crate::drops::Reason for $name {
            const ALL: &'static [$name] = $name::ALL;
            const LABELS: &'static [&'static str] = &[$($label,)+ $($($part::$shared.label(),)+)?];
            #[inline]
            fn index(self) -> usize {
                self as usize
            }
        }

        const _: () = assert!($name::ALL.len() <= $crate::drops::MOST);

        $(impl From<$part> for $name {
            fn from(reason: $part) -> $name {
                match reason { $($part::$shared => $name::$shared,)+ }
            }
        })?

        $(impl From<$origin> for $name {
            fn from(reason: $origin) -> $name {
                match reason { $($origin::$named => $name::$named,)+ }
            }
        })?
    };
}

drop_reasons! {
    /// Why a port did not pass a frame on.
    PortDrop {
        /// The Ethernet or ARP frame is too short, for another station, or of an unknown kind.
        Ethernet = "ethernet",
        /// The port's queue was full or the device refused the frame.
        PortQueue = "port_queue",
        /// The frame is longer than the port carries.
        TooLong = "too_long",
        /// The fabric dropped it: emulated loss.
        FabricLoss = "fabric_loss",
        /// The fabric's buffer for the receiving host was full.
        FabricQueue = "fabric_queue",
        /// The fabric has no host with this address.
        FabricUnknown = "fabric_unknown",
    }
}

/// What ports count.
pub type PortDrops = Counts<PortDrop>;

/// A set of reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Set<R>(u64, PhantomData<R>);

impl<R> Default for Set<R> {
    fn default() -> Set<R> {
        Set(0, PhantomData)
    }
}

impl<R: Reason> Set<R> {
    /// Adds a reason.
    #[inline]
    pub fn add(&mut self, reason: R) {
        self.0 |= 1 << reason.index();
    }
    /// There is none.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
    /// All of them, in the registry's order.
    pub fn iter(self) -> impl Iterator<Item = R> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let number = left.trailing_zeros();
            left &= left.wrapping_sub(1);
            R::ALL.get(number as usize).copied()
        })
    }
}

impl<R: Reason> From<R> for Set<R> {
    fn from(reason: R) -> Set<R> {
        Set(1 << reason.index(), PhantomData)
    }
}

/// A set of reasons of any registry, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Labels {
    members: u64,
    names: &'static [&'static str],
}

impl Labels {
    /// There is none.
    pub fn is_empty(self) -> bool {
        self.members == 0
    }
    /// Their names, in the registry's order.
    pub fn iter(self) -> impl Iterator<Item = &'static str> {
        let has = move |at: &usize| self.members >> at & 1 == 1;
        (0..self.names.len()).filter(has).map(move |at| self.names[at])
    }
}

impl<R: Reason> From<Set<R>> for Labels {
    fn from(set: Set<R>) -> Labels {
        Labels { members: set.0, names: R::LABELS }
    }
}

/// A counter for each reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counts<R>([u64; MOST], PhantomData<R>);

impl<R> Default for Counts<R> {
    fn default() -> Counts<R> {
        Counts([0; MOST], PhantomData)
    }
}

impl<R: Reason> Counts<R> {
    /// Counts one.
    #[inline]
    pub fn count(&mut self, reason: R) {
        self.0[reason.index()] += 1;
    }
    /// How many for a reason.
    #[inline]
    pub fn get(&self, reason: R) -> u64 {
        self.0[reason.index()]
    }
    /// The reasons that were counted more often than they were `before`.
    pub fn since(&self, before: &Counts<R>) -> Set<R> {
        let mut set = Set::default();
        let more = |reason: &&R| self.get(**reason) > before.get(**reason);
        R::ALL.iter().filter(more).for_each(|reason| set.add(*reason));
        set
    }
    /// Adds all of another's.
    pub fn merge(&mut self, other: &Counts<R>) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }
    /// The reasons that occurred, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (R, u64)> + '_ {
        R::ALL.iter().map(|reason| (*reason, self.get(*reason))).filter(|(_, count)| *count > 0)
    }
}
