//! The program's own mappings, as `/proc/self/maps` lists them.
use rustix::fs::{Mode, OFlags, open};
use rustix::io::read;
use std::io;

/// A mapping, or a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Map {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) shared: bool,
    /// Where in its file it begins.
    pub(crate) offset: u64,
    /// Major and minor number of the file's device, and its inode; 0 for anonymous memory.
    pub(crate) file: (u32, u32, u64),
}

/// All mappings, by address.
pub(crate) fn all() -> io::Result<Vec<Map>> {
    let file = open("/proc/self/maps", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let (mut text, mut block) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        match read(&file, &mut block) {
            Ok(0) => break,
            Ok(count) => text.extend_from_slice(&block[..count]),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // Names of files are bytes; what is read here is ASCII.
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| parse(&String::from_utf8_lossy(line)).ok_or(io::ErrorKind::InvalidData.into())).collect()
}

/// `start-end rwxs offset major:minor inode [name]`, see proc_pid_maps(5).
fn parse(line: &str) -> Option<Map> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let access = fields.next()?.as_bytes();
    let offset = fields.next()?;
    let (major, minor) = fields.next()?.split_once(':')?;
    let inode = fields.next()?;
    let hex = |digits: &str| u64::from_str_radix(digits, 16).ok();
    Some(Map {
        start: hex(start)?,
        end: hex(end)?,
        readable: access.first() == Some(&b'r'),
        writable: access.get(1) == Some(&b'w'),
        shared: access.get(3) == Some(&b's'),
        offset: hex(offset)?,
        file: (hex(major)? as u32, hex(minor)? as u32, inode.parse().ok()?),
    })
}

/// What of `maps` covers `[start, end)`, cut to it. The error is the first address that no mapping covers.
pub(crate) fn cover(maps: &[Map], start: u64, end: u64) -> Result<Vec<Map>, u64> {
    let (mut at, mut found) = (start, Vec::new());
    for map in maps.iter().filter(|map| map.end > start && map.start < end) {
        if map.start > at {
            return Err(at);
        }
        let (from, to) = (map.start.max(start), map.end.min(end));
        found.push(Map { start: from, end: to, offset: map.offset + (from - map.start), ..*map });
        at = to;
    }
    if at < end { Err(at) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
7f1000-7f3000 rw-s 00002000 fd:10 4711                       /tmp/a file (deleted)
7f3000-7f4000 r--p 00000000 00:00 0 
7f6000-7f8000 rw-p 00000000 00:00 0                          [heap]";

    #[test]
    fn lines_are_understood() {
        let maps: Vec<Map> = TEXT.lines().map(|line| parse(line).unwrap()).collect();
        assert_eq!(maps[0].file, (0xfd, 0x10, 4711));
        assert_eq!((maps[0].shared, maps[0].writable, maps[0].offset), (true, true, 0x2000));
        assert_eq!((maps[1].shared, maps[1].writable, maps[1].readable), (false, false, true));
        assert_eq!((parse("nonsense"), parse("1-2 r")), (None, None));
    }

    #[test]
    fn a_range_is_cut_at_its_mappings() {
        let maps: Vec<Map> = TEXT.lines().map(|line| parse(line).unwrap()).collect();
        let found = cover(&maps, 0x7f2fff, 0x7f3001).unwrap();
        assert_eq!((found[0].start, found[0].end, found[0].offset), (0x7f2fff, 0x7f3000, 0x3fff));
        assert_eq!((found[1].start, found[1].end), (0x7f3000, 0x7f3001));
        assert_eq!(cover(&maps, 0x7f3000, 0x7f6001), Err(0x7f4000));
        assert_eq!(cover(&maps, 0x7f0fff, 0x7f1001), Err(0x7f0fff));
        assert_eq!(cover(&maps, 0x7f7fff, 0x7f8001), Err(0x7f8000));
        assert_eq!(cover(&maps, 0x100, 0x200), Err(0x100));
    }

    #[test]
    fn this_process_has_mappings() {
        let (word, maps) = (17u64, all().unwrap());
        let at = &raw const word as u64;
        let found = cover(&maps, at, at + 8).unwrap();
        assert!(found[0].writable && !found[0].shared);
    }
}
