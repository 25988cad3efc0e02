//! Sentences on standard error about what the library cannot do for the program: each once in a process.
use crate::system::real;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// What was printed already, a bit for each topic.
static PRINTED: AtomicU32 = AtomicU32::new(0);

/// Topic of a warning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Topic {
    /// A socket was to be passed to a process that does not run on OpenTOE.
    PassedOutside,
    /// A connection was to be passed to a process of another user.
    OtherUser,
    /// A socket was to be passed that cannot be: it is being connected, or the program filters its system calls.
    NotPassed,
    /// A socket that was passed was not taken.
    NotAdopted,
    /// A socket that came over a UNIX socket is not there any more.
    NotThere,
}

impl Topic {
    fn sentence(self) -> &'static str {
        match self {
            Topic::PassedOutside => {
                "a socket on OpenTOE cannot be passed to a process that is not: the message was refused; start the other \
                 program with `opentoe run` as well, or this one without"
            }
            Topic::OtherUser => {
                "a connection on OpenTOE cannot be passed to a process of another user: the message was refused; run both \
                 programs as one user, or pass the listener instead"
            }
            Topic::NotPassed => {
                "a socket that is being connected, or a socket of a program that filters its system calls, cannot be passed \
                 to another process: the message was refused; connect before passing, or run the program without OpenTOE"
            }
            Topic::NotAdopted => {
                "a socket that was passed to another process was not taken by it in time: it may not run on OpenTOE, where \
                 it has an idle socket of the kernel instead; start both programs with `opentoe run`"
            }
            Topic::NotThere => {
                "a socket that came over a UNIX socket cannot be used: it belongs to another daemon or host, is a \
                 connection of another user, or waited longer than pass_hold_ms; run both programs on one host as one user"
            }
        }
    }
}

/// Prints the warning of a topic, once.
#[cold]
pub(crate) fn once(topic: Topic) {
    let bit = 1 << topic as u32;
    if PRINTED.fetch_or(bit, Relaxed) & bit != 0 {
        return;
    }
    line(topic.sentence());
}

/// Prints something each time.
#[cold]
pub(crate) fn line(sentence: &str) {
    let line = format!("libtoe: {sentence}\n");
    // SAFETY: writes a local buffer. What cannot be written is lost.
    unsafe { real::write(2, line.as_ptr().cast(), line.len()) };
}
