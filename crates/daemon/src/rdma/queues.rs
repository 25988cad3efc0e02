//! Regions of the queues of a program: sizes that it may have, and the daemon's ends.
use context::queues::{DaemonQueues, QueueSizes, RECEIVES_AT_ONCE};
use rdma::Failure;
use shm::Region;
use std::io;
use std::sync::Arc;
use verbs::Capacities;
use verbs::attach::Limits;

/// Elements of a queue at most.
const MOST: u64 = 1 << 20;
/// Elements of a completion queue at least: a line of the cache each.
const LEAST_COMPLETIONS: u32 = 4;

/// A fresh queue: its region, and the daemon's end.
pub(super) struct Fresh<E> {
    pub(super) region: Arc<Region>,
    pub(super) end: E,
    pub(super) entries: u32,
}

/// Elements of a completion queue that holds so many completions.
pub(super) fn completions(wanted: u32, limits: &Limits) -> Result<u32, Failure> {
    if wanted == 0 || wanted > limits.completions {
        return Err(Failure::invalid(format!("a completion queue has 1 to {} entries (max_cqe)", limits.completions)));
    }
    Ok(wanted.next_power_of_two().max(LEAST_COMPLETIONS))
}

/// Elements of a receive queue that holds so many work requests of so many entries each.
pub(super) fn receives(wanted: u32, pieces: u32, limits: &Limits) -> Result<u32, Failure> {
    if wanted > limits.work_requests || pieces > limits.pieces {
        let Limits { work_requests, pieces, .. } = limits;
        return Err(Failure::invalid(format!(
            "a receive queue has at most {work_requests} work requests of {pieces} entries (max_qp_wr, max_sge)"
        )));
    }
    let elements = u64::from(wanted.max(1)) * u64::from(pieces.max(1));
    let elements = elements.next_power_of_two().clamp(RECEIVES_AT_ONCE as u64, MOST);
    Ok(elements as u32)
}

/// What a queue pair may hold.
pub(super) fn check(capacities: &Capacities, limits: &Limits) -> Result<(), Failure> {
    let c = capacities;
    let beyond = [
        (c.send > limits.work_requests, "max_send_wr", limits.work_requests),
        (c.receive > limits.work_requests, "max_recv_wr", limits.work_requests),
        (c.send_pieces > limits.pieces, "max_send_sge", limits.pieces),
        (c.receive_pieces > limits.pieces, "max_recv_sge", limits.pieces),
        (c.inline > limits.inline, "max_inline_data", limits.inline),
    ];
    match beyond.iter().find(|(wrong, ..)| *wrong) {
        Some((_, name, most)) => Err(Failure::invalid(format!("{name} is at most {most} on this device"))),
        None => Ok(()),
    }
}

/// Makes the region of one queue; `end` takes the daemon's end of it.
pub(super) fn create<E>(sizes: QueueSizes, end: impl FnOnce(DaemonQueues) -> Option<E>) -> Result<Fresh<E>, Failure> {
    let failed = |e: io::Error| Failure::limit(format!("the daemon cannot make shared memory: {e}"));
    let (region, ends) = DaemonQueues::create("opentoe-verbs", sizes).map_err(failed)?;
    let end = end(ends).ok_or_else(|| Failure::invalid("a queue without entries"))?;
    Ok(Fresh { region, end, entries: sizes.completion.max(sizes.receive) })
}

/// Bytes of a queue's region, about.
pub(super) fn bytes(sizes: QueueSizes) -> u64 {
    let (lines, thin) = (u64::from(sizes.send) + u64::from(sizes.completion), u64::from(sizes.receive));
    shm::PAGE as u64 + (lines + 2) * 64 + thin * 16
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdma::LIMITS;

    #[test]
    fn queues_hold_what_is_asked_for_and_no_more_than_may_be() {
        assert_eq!(completions(100, &LIMITS).unwrap(), 128);
        assert_eq!(completions(1, &LIMITS).unwrap(), 4);
        assert!(completions(0, &LIMITS).is_err() && completions(u32::MAX, &LIMITS).is_err());
        assert_eq!(receives(100, 3, &LIMITS).unwrap(), 512);
        assert_eq!(receives(0, 0, &LIMITS).unwrap(), 4);
        assert_eq!(receives(LIMITS.work_requests, LIMITS.pieces, &LIMITS).unwrap(), 1 << 19);
        assert!(receives(1, LIMITS.pieces + 1, &LIMITS).is_err() && receives(u32::MAX, 1, &LIMITS).is_err());
        let most = Capacities { inline: LIMITS.inline, ..Capacities::default() };
        assert!(check(&most, &LIMITS).is_ok());
        let more = Capacities { inline: LIMITS.inline + 1, ..Capacities::default() };
        assert!(check(&more, &LIMITS).unwrap_err().why.contains("max_inline_data"));
    }

    #[test]
    fn a_regions_bytes_are_about_those_of_its_memory() {
        let sizes = QueueSizes { completion: 128, ..QueueSizes::default() };
        let made = create(sizes, |ends| ends.completion).unwrap();
        assert_eq!((made.region.len() as u64, made.entries), (bytes(sizes), 128));
    }
}
