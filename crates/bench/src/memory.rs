//! Memory of processes and of the kernel.
use std::collections::BTreeMap;
use std::ops::Sub;
use std::os::unix::fs::MetadataExt;

/// Bytes in memory, by sort.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Memory {
    /// Regions that programs share with the daemon: payload buffers and rings.
    pub regions: f64,
    /// Private memory of the processes.
    pub private: f64,
    /// Their page tables.
    pub page_tables: f64,
    /// The kernel's objects for sockets and descriptors, of the whole machine: connections, inodes, files, entries of
    /// epoll sets. Directory entries are not counted, because everything else on the machine moves their number.
    pub kernel: f64,
}

/// The kernel's objects that a connection has.
const OBJECTS: [&str; 4] = ["TCP", "sock_inode_cache", "filp", "eventpoll_epi"];

impl Memory {
    /// What these processes hold now.
    pub(crate) fn of(processes: &[u32]) -> Memory {
        let mut regions = BTreeMap::new();
        let mut sum = Memory { kernel: kernel(), ..Memory::default() };
        for pid in processes {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            sum.private += line(&status, "RssAnon:");
            sum.page_tables += line(&status, "VmPTE:");
            regions.extend(regions_of(*pid));
        }
        sum.regions = regions.values().sum();
        sum
    }

    /// All of it.
    pub(crate) fn total(self) -> f64 {
        self.regions + self.private + self.page_tables + self.kernel
    }

    /// A share of it.
    pub(crate) fn shared_by(self, count: f64) -> Memory {
        let share = |bytes: f64| bytes / count;
        Memory {
            regions: share(self.regions),
            private: share(self.private),
            page_tables: share(self.page_tables),
            kernel: share(self.kernel),
        }
    }
}

impl Sub for Memory {
    type Output = Memory;

    fn sub(self, less: Memory) -> Memory {
        Memory {
            regions: self.regions - less.regions,
            private: self.private - less.private,
            page_tables: self.page_tables - less.page_tables,
            kernel: self.kernel - less.kernel,
        }
    }
}

/// Bytes of a line like `RssAnon:   1448 kB`.
fn line(text: &str, name: &str) -> f64 {
    let rest = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    rest.split_whitespace().next().and_then(|word| word.parse::<f64>().ok()).unwrap_or(0.0) * 1024.0
}

/// The regions that a process has open, by inode: several processes have the same ones open.
fn regions_of(pid: u32) -> Vec<(u64, f64)> {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let ours = descriptors
        .map(|entry| entry.path())
        .filter(|path| std::fs::read_link(path).is_ok_and(|target| target.to_string_lossy().contains("memfd:opentoe")));
    ours.filter_map(|path| std::fs::metadata(path).ok())
        .map(|meta| (meta.ino(), meta.blocks() as f64 * 512.0))
        .collect()
}

/// Lines of `/proc/slabinfo`: name, objects in use, objects, bytes of each.
fn kernel() -> f64 {
    let slabs = std::fs::read_to_string("/proc/slabinfo").unwrap_or_default();
    let bytes = slabs.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let name = words.next()?;
        let (used, _, each) = (words.next()?.parse::<f64>().ok()?, words.next()?, words.next()?.parse::<f64>().ok()?);
        OBJECTS.contains(&name).then_some(used * each)
    });
    bytes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_holds_something() {
        let held = Memory::of(&[std::process::id()]);
        assert!(held.private > 0.0 && held.page_tables > 0.0, "{held:?}");
        assert_eq!((held - held).total(), 0.0);
        assert_eq!(held.shared_by(2.0).private * 2.0, held.private);
    }

    #[test]
    fn lines_are_kilobytes() {
        assert_eq!(line("VmRSS:\t   4 kB\nRssAnon:\t   3 kB\n", "RssAnon:"), 3072.0);
        assert_eq!(line("", "RssAnon:"), 0.0);
    }
}
