//! Description of memory that a program registers. Untrusted until it is checked.
use crate::fault::Refusal;
use crate::rights::Rights;
use serde::{Deserialize, Serialize};
use shm::PAGE;

/// Most extents of a region. Memory that is more scattered is reached through the kernel, which needs one extent only.
pub const MAX_EXTENTS: usize = 64;
/// Most descriptors of one description: with the address space's they fit in one message ([`shm::handover::MAX_FDS`]).
pub const MAX_FILES: usize = shm::handover::MAX_FDS - 1;

/// A range of a program's memory, and how the data-path reaches each part of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// Its first byte, as an address of the program.
    pub address: u64,
    /// What is granted.
    pub rights: Rights,
    /// Its parts, one after the other, without gaps.
    pub extents: Vec<Extent>,
}

/// A part of the range that is reached in one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Bytes.
    pub len: u64,
    /// How it is reached.
    pub way: AccessPath,
}

/// How the data-path reaches memory of a program (docs/REGISTERED-MEMORY.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccessPath {
    /// Through the kernel, by the program's addresses.
    Kernel,
    /// A sealed memfd that the data-path maps.
    Shared {
        /// Which of the descriptors that come with the description.
        file: u32,
        /// Where in the file the extent begins.
        offset: u64,
    },
}

impl Description {
    /// Bytes of all extents. `None` beyond what an address can name.
    pub fn len(&self) -> Option<u64> {
        let sum = self.extents.iter().try_fold(0u64, |sum, extent| sum.checked_add(extent.len))?;
        let end = self.address.checked_add(sum)?;
        // Offsets in files are signed.
        i64::try_from(end).is_ok().then_some(sum)
    }

    /// It describes no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Checks everything that can be checked without its descriptors, of which there are `files`, and returns its
    /// length.
    ///
    /// Inside the range, ways change at page borders only, and a file's page shows at a page of the program. A true
    /// description is always so; for the data-path it means that an aligned word lies in one extent and stays aligned.
    pub fn check(&self, files: usize) -> Result<u64, Refusal> {
        let page = PAGE as u64;
        let len = self.len().ok_or(Refusal::Invalid("it ends beyond the last address"))?;
        if len == 0 {
            return Err(Refusal::Invalid("it has no bytes"));
        }
        if self.extents.len() > MAX_EXTENTS || files > MAX_FILES {
            return Err(Refusal::Invalid("it has too many parts"));
        }
        if !self.rights.are_consistent() {
            return Err(Refusal::Invalid("remote write and atomic need local write"));
        }
        let mut at = self.address;
        for (index, extent) in self.extents.iter().enumerate() {
            if extent.len == 0 || (index > 0 && at % page != 0) {
                return Err(Refusal::Invalid("a part of it does not begin at a page"));
            }
            if let AccessPath::Shared { file, offset } = extent.way {
                let ends = offset.checked_add(extent.len).is_some_and(|end| i64::try_from(end).is_ok());
                if file as usize >= files || offset % page != at % page || !ends {
                    return Err(Refusal::Invalid("a part of it lies at an impossible place of its file"));
                }
            }
            at += extent.len;
        }
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn described(address: u64, extents: Vec<Extent>) -> Description {
        Description { address, rights: Rights::LOCAL_WRITE, extents }
    }

    fn shared(len: u64, offset: u64) -> Extent {
        Extent { len, way: AccessPath::Shared { file: 0, offset } }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let kernel = |len| Extent { len, way: AccessPath::Kernel };
        assert_eq!(described(5, vec![kernel(7)]).check(0).unwrap(), 7);
        assert_eq!(described(4000, vec![kernel(96), shared(10, 8192)]).check(1).unwrap(), 106);
        for (wrong, files) in [
            (described(5, vec![]), 0),
            (described(5, vec![kernel(0)]), 0),
            (described(u64::MAX, vec![kernel(2)]), 0),
            (described(1, vec![kernel(u64::MAX), kernel(u64::MAX)]), 0),
            (described(4000, vec![kernel(90), shared(10, 8192)]), 1),
            (described(4000, vec![kernel(96), shared(10, 8192)]), 0),
            (described(4096, vec![shared(10, 1)]), 1),
            (described(4096, vec![shared(4096, u64::MAX - 4095)]), 1),
            (described(0, vec![kernel(4096); MAX_EXTENTS + 1]), 0),
        ] {
            assert!(wrong.check(files).is_err(), "{wrong:?}");
        }
        let rights = Rights::REMOTE_WRITE;
        assert!(Description { address: 5, rights, extents: vec![kernel(7)] }.check(0).is_err());
    }

    fn way() -> impl Strategy<Value = AccessPath> {
        prop_oneof![
            Just(AccessPath::Kernel),
            (0u32..5, any::<u64>()).prop_map(|(file, offset)| AccessPath::Shared { file, offset })
        ]
    }

    proptest! {
        #[test]
        fn whatever_is_accepted_can_be_computed_with(
            address: u64,
            extents in prop::collection::vec((prop_oneof![0u64..20_000, any::<u64>()], way()), 0..6),
            files in 0usize..5,
        ) {
            let extents = extents.into_iter().map(|(len, way)| Extent { len, way }).collect();
            let described = described(address, extents);
            if let Ok(len) = described.check(files) {
                prop_assert!(len > 0 && address.checked_add(len).is_some());
                for extent in &described.extents {
                    if let AccessPath::Shared { file, offset } = extent.way {
                        prop_assert!((file as usize) < files && offset.checked_add(extent.len).is_some());
                    }
                }
            }
        }
    }
}
