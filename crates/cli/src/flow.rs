//! A connection in sentences.
use crate::table::{cell, say};
use serde_json::Value;

/// What a connection is doing and what limits it.
pub(crate) fn explain(flow: &Value) {
    say(&format!("{} to {}, {}", cell(&flow["local"]), cell(&flow["remote"]), cell(&flow["state"])));
    let figure = |name: &str| flow["figures"][name].as_u64().unwrap_or(0);
    let (unsent, outstanding) = (figure("unsent"), figure("outstanding"));
    let (window, cwnd) = (figure("snd_wnd"), flow["cwnd"].as_u64().unwrap_or(0));
    let limit = match (unsent, outstanding) {
        (0, 0) => "it has nothing to send: the application has written nothing that is not acknowledged".into(),
        (0, _) => format!("everything is sent; {outstanding} bytes wait for the peer's acknowledgement"),
        _ if window == 0 => {
            format!("{unsent} bytes wait because the peer's receive window is closed: its application does not read")
        }
        _ if outstanding >= window => {
            format!("{unsent} bytes wait because the peer's receive window ({window} bytes) is full")
        }
        _ if outstanding >= cwnd => format!("{unsent} bytes wait because the congestion window ({cwnd} bytes) is full"),
        _ if flow["rate"].as_u64().unwrap_or(0) > 0 => {
            format!("{unsent} bytes wait for their time: the rate is {} bytes/s", flow["rate"])
        }
        _ => format!("{unsent} bytes are about to be sent"),
    };
    say(&format!("  {limit}"));
    let (again, fast) = (figure("retransmitted_segments"), figure("fast_retransmits"));
    if again > 0 {
        say(&format!("  {again} segments were sent again, {fast} times after duplicate acknowledgements"));
    }
    if let Some(reason) = flow["last_drop"].as_str() {
        say(&format!("  {} segments or parts of them were dropped, the last one because of {reason}", figure("drops")));
    }
}
