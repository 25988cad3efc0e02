//! Contexts of tests: a region with both sides' ends.

use context::{AppEnd, ControlEnd, EngineEnd, Geometry, daemon_ends};
use shm::{ByteRing, Doorbell};
use std::sync::Arc;

/// A context of its own region: the application's end, the engine's, and the engine's mappings of slot 0.
pub(crate) fn make_context(rx_bytes: u32, tx_bytes: u32) -> (AppEnd, EngineEnd, Arc<ByteRing>, Arc<ByteRing>) {
    make_growing_context(rx_bytes, tx_bytes, 0)
}

/// The same with streams that grow to `most`.
pub(crate) fn make_growing_context(
    rx_bytes: u32,
    tx_bytes: u32,
    most: u32,
) -> (AppEnd, EngineEnd, Arc<ByteRing>, Arc<ByteRing>) {
    let (app, engine_end, control_end) = make_sized_context(4, rx_bytes, tx_bytes, most);
    let (rx, tx) = control_end.map_buffers(0).unwrap();
    (app, engine_end, Arc::new(rx), Arc::new(tx))
}

/// A context with `slots` slots: all three ends.
pub(crate) fn make_large_context(slots: u32, rx_bytes: u32, tx_bytes: u32) -> (AppEnd, EngineEnd, ControlEnd) {
    make_sized_context(slots, rx_bytes, tx_bytes, 0)
}

fn make_sized_context(slots: u32, rx_bytes: u32, tx_bytes: u32, most: u32) -> (AppEnd, EngineEnd, ControlEnd) {
    let (data_entries, control_entries, full_slots, log_bytes, long) = (64, 64, slots, 0, context::LongPaths::NONE);
    let (growing, small_bytes) = if most > 0 { (slots, 2048) } else { (0, 0) };
    let geometry = Geometry {
        slots,
        long,
        growing: context::Growing { slots: growing, bytes: most },
        data_entries,
        control_entries,
        rx_bytes,
        tx_bytes,
        full_slots,
        small_bytes,
        log_bytes,
        heap_bytes: 65_536,
    };
    let region = Arc::new(geometry.create_region("flextoe-test").unwrap());
    let (app_fd, daemon_fd) = (Doorbell::eventfd().unwrap(), Doorbell::eventfd().unwrap());
    let fds = (app_fd.try_clone().unwrap(), daemon_fd.try_clone().unwrap());
    let (engine_end, control_end) = daemon_ends(&region, geometry, app_fd, daemon_fd);
    (AppEnd::new(region, geometry, fds.0, fds.1).unwrap(), engine_end, control_end)
}
