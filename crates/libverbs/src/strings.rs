//! Names of codes, for people.
use libc::{c_char, c_int};
use std::ffi::CStr;

/// Names by code, from 0 on.
fn name(names: &[&'static CStr], code: c_int) -> *const c_char {
    let known = usize::try_from(code).ok().and_then(|code| names.get(code));
    known.copied().unwrap_or(c"unknown").as_ptr()
}

/// `enum ibv_wc_status`, in the terms of IBTA 1.3, 10.10.3.
const STATUSES: [&CStr; 24] = [
    c"success",
    c"local length error",
    c"local QP operation error",
    c"local EE context operation error",
    c"local protection error",
    c"Work Request Flushed Error",
    c"memory management operation error",
    c"bad response error",
    c"local access error",
    c"remote invalid request error",
    c"remote access error",
    c"remote operation error",
    c"transport retry counter exceeded",
    c"RNR retry counter exceeded",
    c"local RDD violation error",
    c"remote invalid RD request",
    c"aborted error",
    c"invalid EE context number",
    c"invalid EE context state",
    c"fatal error",
    c"response timeout error",
    c"general error",
    c"TM error",
    c"TM software rendezvous",
];

/// `enum ibv_event_type`.
const EVENTS: [&CStr; 20] = [
    c"CQ error",
    c"local work queue catastrophic error",
    c"invalid request local work queue error",
    c"local access violation work queue error",
    c"communication established",
    c"send queue drained",
    c"path migrated",
    c"path migration request error",
    c"local catastrophic error",
    c"port active",
    c"port error",
    c"LID change",
    c"P_Key change",
    c"SM change",
    c"SRQ catastrophic error",
    c"SRQ limit reached",
    c"last WQE reached",
    c"client reregistration",
    c"GID change",
    c"work queue fatal error",
];

/// `enum ibv_node_type`, from `IBV_NODE_CA` on.
const NODES: [&CStr; 7] = [
    c"InfiniBand channel adapter",
    c"InfiniBand switch",
    c"InfiniBand router",
    c"iWARP NIC",
    c"usNIC",
    c"usNIC UDP",
    c"unspecified",
];

/// `enum ibv_port_state`.
const PORTS: [&CStr; 6] = [c"no state change (NOP)", c"down", c"init", c"armed", c"active", c"active defer"];

#[unsafe(no_mangle)]
extern "C" fn ibv_wc_status_str(status: c_int) -> *const c_char {
    name(&STATUSES, status)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_event_type_str(event: c_int) -> *const c_char {
    name(&EVENTS, event)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_node_type_str(node: c_int) -> *const c_char {
    name(&NODES, node.saturating_sub(1))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_port_state_str(state: c_int) -> *const c_char {
    name(&PORTS, state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_others_are_unknown() {
        // SAFETY: static strings.
        let read = |text| unsafe { CStr::from_ptr(text) };
        assert_eq!(read(ibv_wc_status_str(12)), c"transport retry counter exceeded");
        assert_eq!(read(ibv_node_type_str(1)), c"InfiniBand channel adapter");
        for none in [-1, 24, c_int::MAX, c_int::MIN] {
            assert_eq!(read(ibv_wc_status_str(none)), c"unknown");
            assert_eq!(read(ibv_node_type_str(none)), c"unknown");
        }
    }
}
