//! A connection in sentences.
use crate::table::{cell, print_line};
use crate::units::several;
use serde_json::Value;

/// What a connection is doing and what limits it.
pub(crate) fn explain(flow: &Value) {
    print_line(&format!("{} to {}, {}", cell(&flow["local"]), cell(&flow["remote"]), cell(&flow["state"])));
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
    print_line(&format!("  {limit}"));
    received(flow).iter().for_each(|line| print_line(line));
    referred(flow).iter().for_each(|line| print_line(line));
    losses(flow).iter().for_each(|line| print_line(line));
}

/// How received bytes came into the program's memory, and why so (docs/ZERONIC.md, "Direct receives").
fn received(flow: &Value) -> Option<String> {
    let figure = |name: &str| flow["figures"][name].as_u64();
    let all = figure("rx_bytes").filter(|bytes| *bytes > 0)?;
    let bytes = several(all, "byte");
    if has_no_line(flow) {
        return Some(format!(
            "  received: {bytes}, all copied by the transport, for the flow table had no line left \
             (memory.placed_connections)"
        ));
    }
    Some(match figure("landed_bytes").map(|landed| landed.min(all)) {
        None => format!("  received: {bytes}, copied out of the receive buffer, for the host has no memory.heap_bytes"),
        Some(0) => format!("  received: {bytes}, copied out of the receive buffer: no large buffer waited for them"),
        Some(landed) => format!(
            "  received: {bytes}; {landed} landed in the program's memory, {} were copied, for no buffer waited for them",
            all - landed
        ),
    })
}

/// The flow table had no line for the connection (docs/ZERONIC.md, "More connections than lines").
fn has_no_line(flow: &Value) -> bool {
    flow["figures"]["no_line"].as_u64().is_some()
}

/// How bytes went that the program wanted to send by reference, and why some were copied (docs/ZERONIC.md, "Sends by
/// reference").
fn referred(flow: &Value) -> Option<String> {
    let figure = |name: &str| flow["figures"][name].as_u64().unwrap_or(0);
    let barred = if has_no_line(flow) {
        "the flow table had no line left (memory.placed_connections)"
    } else {
        "another process may have the connection"
    };
    let reasons = [
        ("copied_outside", "their memory is not the heap's"),
        ("copied_short", "their buffers are short"),
        ("copied_crowded", "too many buffers were under way"),
        ("copied_barred", barred),
    ];
    let copied: Vec<_> =
        reasons.iter().map(|(name, why)| (figure(name), why)).filter(|(bytes, _)| *bytes > 0).collect();
    let by_reference = figure("referred_bytes");
    if by_reference == 0 && copied.is_empty() {
        return None;
    }
    let copied = copied.iter().map(|(bytes, why)| format!("; {bytes} were copied, for {why}"));
    let bytes = several(by_reference, "byte");
    Some(format!("  sent with MSG_ZEROCOPY: {bytes} by reference{}", copied.collect::<String>()))
}

/// What was sent again, and what was dropped.
fn losses(flow: &Value) -> Vec<String> {
    let figure = |name: &str| flow["figures"][name].as_u64().unwrap_or(0);
    let (again, fast) = (figure("retransmitted_segments"), figure("fast_retransmits"));
    let again = (again > 0).then(|| {
        let [again, fast] = [several(again, "segment"), several(fast, "time")];
        format!("  sent again: {again}, {fast} after duplicate acknowledgements")
    });
    let dropped = flow["last_drop"].as_str().map(|reason| {
        let drops = several(figure("drops"), "segment");
        format!("  dropped: {drops}, as a whole or in part; the last one because of {reason}")
    });
    again.into_iter().chain(dropped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn received_bytes_are_explained() {
        let of = |figures: Value| received(&json!({ "figures": figures })).unwrap_or_default();
        assert_eq!(of(json!({ "rx_bytes": 0, "landed_bytes": 0 })), "");
        assert!(of(json!({ "rx_bytes": 7 })).ends_with("for the host has no memory.heap_bytes"));
        assert!(of(json!({ "rx_bytes": 7, "landed_bytes": 0 })).contains("7 bytes, copied"));
        assert!(of(json!({ "rx_bytes": 9, "landed_bytes": 5 })).contains("5 landed in the program's memory, 4 were"));
    }

    #[test]
    fn a_connection_without_a_line_is_explained() {
        let figures = json!({ "rx_bytes": 7, "landed_bytes": 0, "no_line": 1, "copied_barred": 5 });
        let flow = json!({ "figures": figures });
        let reason = "for the flow table had no line left (memory.placed_connections)";
        assert_eq!(received(&flow).unwrap(), format!("  received: 7 bytes, all copied by the transport, {reason}"));
        assert!(referred(&flow).unwrap().ends_with(&format!("; 5 were copied, {reason}")));
    }

    #[test]
    fn sends_by_reference_are_explained() {
        let of = |figures: Value| referred(&json!({ "figures": figures }));
        assert_eq!(of(json!({ "tx_bytes": 9 })), None);
        assert_eq!(of(json!({ "referred_bytes": 0, "copied_short": 0 })), None);
        let sentence = of(json!({ "referred_bytes": 8, "copied_short": 3, "copied_outside": 2 })).unwrap();
        assert!(sentence.ends_with(
            "8 bytes by reference; 2 were copied, for their memory is not the heap's; 3 were \
                                    copied, for their buffers are short"
        ));
    }

    #[test]
    fn losses_are_counted_in_words() {
        let figures = json!({ "retransmitted_segments": 1, "fast_retransmits": 0, "drops": 1 });
        let expected = [
            "  sent again: 1 segment, 0 times after duplicate acknowledgements",
            "  dropped: 1 segment, as a whole or in part; the last one because of duplicate",
        ];
        assert_eq!(losses(&json!({ "figures": figures, "last_drop": "duplicate" })), expected);
        assert!(losses(&json!({ "figures": {}, "last_drop": null })).is_empty());
    }
}
