//! Settings that change while a script runs, as with `sysctl` on Linux. They count for connections that begin later.
use crate::changes::Changes;
use crate::flags::Flags;
use crate::sockets::Sockets;

/// The line that makes the host forget its peers, as `ip tcp_metrics flush` does.
const FORGETS: &str = "peers=forgotten";

impl Sockets {
    /// The same with these flags, and the file of changes that they name.
    pub fn with_flags(mut self, flags: Flags) -> Sockets {
        self.fast_open = flags.fast_open;
        self.changes = Changes::to(flags);
        self
    }

    /// Takes in what was appended to the file. A wrong line ends the process with a sentence, as wrong flags do.
    pub(crate) fn take_changes(&mut self) {
        let lines = self.changes.appended();
        let Some(flags) = self.changes.flags.as_mut().filter(|_| !lines.is_empty()) else { return };
        for line in lines {
            if line == FORGETS {
                self.stack.forget_peers();
            } else if let Err(sentence) = flags.change(&line) {
                eprintln!("libtoe_script.so: {sentence}");
                std::process::exit(1);
            }
        }
        self.fast_open = flags.fast_open;
        self.stack.set_offers(flags.offers());
    }
}
