//! Views of a host: plain values. Its connections are in `flow_view`.
use crate::bindings::{Binding, Bindings};
use crate::contexts::{Context, Contexts, Holder};
use crate::labels::Label;
use context::Unaccelerated;
use engine::{DropCounts, DropReason};
use host::Net;
use serde::Serialize;
use std::net::SocketAddr;
use wire::IpAddress;

/// An attached application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ContextView {
    /// Number.
    pub context: u32,
    /// Process.
    pub pid: u32,
    /// User.
    pub uid: u32,
    /// Command line.
    pub command: String,
    /// Its process runs; otherwise what it left behind is being closed.
    pub alive: bool,
    /// Slots in use.
    pub slots_used: u32,
    /// Slots in all.
    pub slots: u32,
    /// Local addresses reserved.
    pub bindings: Vec<u32>,
}

/// A reserved local address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BindingView {
    /// Number.
    pub binding: u32,
    /// Address and port.
    pub local: SocketAddr,
    /// Connections are accepted.
    pub listening: bool,
    /// Of the unspecified IPv6 address, and also those over IPv4.
    pub dual_stack: bool,
    /// Also those to loopback addresses.
    pub loopback: bool,
    /// Most connections that wait.
    pub backlog: u32,
    /// Connections whose handshake is going on.
    pub half_open: u32,
    /// Open connections that wait for an application.
    pub waiting: u32,
    /// Contexts that share it.
    pub contexts: Vec<u32>,
}

/// A descriptor of an application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LabelView {
    /// Process.
    pub pid: u32,
    /// File descriptor.
    pub fd: u32,
    /// It is accelerated.
    pub accelerated: bool,
    /// Why, or why not.
    pub reason: &'static str,
    /// Its flow, where it has one.
    pub flow: Option<u32>,
    /// Its binding, where it has one.
    pub binding: Option<u32>,
}

/// A neighbour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ArpView {
    /// Address.
    pub ip: IpAddress,
    /// Hardware address; none while it is asked for.
    pub mac: Option<String>,
}

/// A drop reason that occurred.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DropView {
    /// Its name.
    pub reason: &'static str,
    /// Its meaning.
    pub sentence: &'static str,
    /// Its count.
    pub count: u64,
}

fn label_view(context: &Context, fd: u32, label: Label) -> LabelView {
    LabelView {
        pid: context.application.pid,
        fd,
        accelerated: label.reason == Unaccelerated::No,
        reason: label.reason.sentence(),
        flow: label.slot.and_then(|slot| context.slots.flow(slot)).map(|flow| flow.0),
        binding: (label.binding != 0).then_some(label.binding),
    }
}

impl Contexts {
    /// All of them.
    pub(crate) fn views(&self) -> Vec<ContextView> {
        let view = |(id, context): (u32, &Context)| ContextView {
            context: id,
            pid: context.application.pid,
            uid: context.application.uid,
            command: context.application.command.clone(),
            alive: context.alive(),
            slots_used: context.slots.used(),
            slots: context.end.geometry().slots,
            bindings: context.bindings.iter().copied().collect(),
        };
        self.iter().map(view).collect()
    }

    /// All labels that an application gave its descriptors, also of those that it has closed; none where it is not
    /// attached.
    pub(crate) fn label_views(&self, pid: u32) -> Option<Vec<LabelView>> {
        let mut contexts = self.iter().map(|(_, context)| context);
        let context = contexts.find(|context| context.alive() && context.application.pid == pid)?;
        Some(context.labels.iter().map(|(fd, label)| label_view(context, fd, label)).collect())
    }
}

impl Bindings {
    /// All of them.
    pub(crate) fn views(&self) -> Vec<BindingView> {
        let view = |(id, binding): (u32, &Binding)| {
            let listener = binding.listener.as_ref();
            BindingView {
                binding: id,
                local: binding.local.into(),
                listening: listener.is_some(),
                dual_stack: binding.dual_stack,
                loopback: listener.is_some_and(|listener| listener.loopback),
                backlog: listener.map_or(0, |listener| listener.backlog),
                half_open: listener.map_or(0, |listener| listener.half_open),
                waiting: listener.map_or(0, |listener| (listener.ready.len() + listener.parked.len()) as u32),
                contexts: binding
                    .holders
                    .iter()
                    .filter_map(|holder| match holder {
                        Holder::Context(id) => Some(id.0),
                        _ => None,
                    })
                    .collect(),
            }
        };
        self.iter().map(view).collect()
    }
}

impl ArpView {
    /// All neighbours.
    pub fn all(net: &Net) -> Vec<ArpView> {
        net.neighbours().into_iter().map(|(ip, mac)| ArpView { ip, mac: mac.map(|mac| mac.to_string()) }).collect()
    }
}

impl DropView {
    /// All that was dropped, by reason.
    pub fn all(drops: &DropCounts) -> Vec<DropView> {
        let view = |(reason, count): (DropReason, u64)| DropView {
            reason: reason.label(),
            sentence: reason.sentence(),
            count,
        };
        drops.iter().map(view).collect()
    }
}
