//! TCP outside the established common case (RFC 9293), as values: each state machine takes a segment or an event and
//! returns what is to be done about it. Nothing here sends, allocates a connection or knows an application.
mod closing;
pub(crate) mod cookie;
mod handshake;
mod negotiate;
mod reset;
mod wait;

pub(crate) use closing::{Closing, ClosingEvent, State};
pub(crate) use handshake::{Disposition, Established, Handshake};
pub(crate) use negotiate::{Agreed, Offer};
pub(crate) use reset::reset_for;
pub(crate) use wait::{Wait, WaitDisposition};
