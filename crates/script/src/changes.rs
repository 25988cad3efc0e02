//! The file to which a script's shell commands append settings while it runs ([`crate::flags::Flags::changes`]).
use crate::flags::Flags;

/// The settings, and how much of the file is read.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub flags: Option<Flags>,
    read: usize,
}

impl Changes {
    /// Nothing is read yet.
    pub(crate) fn to(flags: Flags) -> Changes {
        Changes { flags: Some(flags), read: 0 }
    }

    /// Lines that were appended since the last call. One that is not whole yet is read later.
    pub(crate) fn appended(&mut self) -> Vec<String> {
        let path = self.flags.as_ref().and_then(|flags| flags.changes.as_ref());
        let Some(text) = path.and_then(|path| std::fs::read_to_string(path).ok()) else { return Vec::new() };
        let whole = text.rfind('\n').map_or(0, |at| at + 1);
        let lines = text.get(self.read..whole).unwrap_or_default().lines().map(str::to_owned).collect();
        self.read = whole.max(self.read);
        lines
    }
}
