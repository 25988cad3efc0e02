//! The device's own limits on attributes of queue pairs.
use crate::failure::Failure;
use verbs::attach::Device as Stated;
use verbs::{Mtu, QpAttributes};

/// Limits of the device itself, beside the engine's.
pub(crate) fn check(attributes: &QpAttributes, stated: &Stated) -> Result<(), Failure> {
    let a = attributes;
    let eight = |value: Option<u8>| value.is_none_or(|value| value <= stated.limits.reads);
    let larger = |mtu: Mtu| mtu.bytes() > stated.mtu.bytes();
    let checks = [
        (a.partition_index.is_some_and(|index| index != 0), "pkey_index: there is only index 0"),
        (a.port.is_some_and(|port| port != 1), "port_num: there is only port 1"),
        (a.mtu.is_some_and(larger), "path_mtu is larger than the port's active MTU"),
        (!eight(a.responder_resources), "max_dest_rd_atomic is more than the device's max_qp_rd_atom"),
        (!eight(a.initiator_depth), "max_rd_atomic is more than the device's max_qp_init_rd_atom"),
    ];
    match checks.iter().find(|(wrong, _)| *wrong) {
        Some((_, why)) => Err(Failure::invalid(*why)),
        None => Ok(()),
    }
}
