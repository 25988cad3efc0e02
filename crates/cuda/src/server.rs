//! A thread that makes a queue's copies by the CUDA driver.
use crate::driver::{Driver, Handle, NOT_READY};
use memory::{DmaCopy, DmaServer};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Copies that are ordered before one event stands for them.
const BATCH: usize = 16;
/// How long the thread polls for orders before it sleeps.
const POLL_INTERVAL: Duration = Duration::from_micros(100);

/// Copies of one direction, in their order.
struct Lane {
    stream: Handle,
    /// Numbers of orders, and the event that happens when they are done.
    under_way: VecDeque<(Vec<u64>, Handle)>,
    /// Ordered since the last event.
    open: Vec<u64>,
}

/// A queue's server, on its thread.
struct Server {
    driver: Driver,
    queue: DmaServer,
    /// Into the device, and out of it: each has an engine of its own there.
    lanes: [Lane; 2],
    /// Events to be used again.
    events: Vec<Handle>,
    /// The staging area is pinned.
    pinned: bool,
}

/// Serves a queue until it ends, or the driver refuses.
pub(crate) fn serve(driver: Driver, context: usize, queue: DmaServer) {
    let (at, len) = queue.staging();
    if !driver.enter(std::ptr::with_exposed_provenance_mut(context)) {
        return;
    }
    let (Some(inwards), Some(outwards)) = (driver.stream(), driver.stream()) else { return };
    let lane = |stream| Lane { stream, under_way: VecDeque::new(), open: Vec::new() };
    let pinned = driver.pin(at, len);
    Server { driver, queue, lanes: [lane(inwards), lane(outwards)], events: Vec::new(), pinned }.run();
}

impl Server {
    fn run(mut self) {
        let mut idle = None;
        loop {
            let moved = self.order() + self.complete();
            if moved > 0 {
                idle = None;
                continue;
            }
            std::thread::yield_now();
            let busy = self.lanes.iter().any(|lane| !lane.under_way.is_empty());
            let since = *idle.get_or_insert_with(Instant::now);
            if !busy && since.elapsed() >= POLL_INTERVAL {
                match self.queue.wait(None) {
                    Ok(true) => idle = None,
                    // The queue has ended.
                    _ => return,
                }
            }
        }
    }

    /// Takes orders. Returns how many.
    fn order(&mut self) -> usize {
        let mut taken = 0;
        while taken < BATCH {
            let Some(copy) = self.queue.take() else { break };
            taken += 1;
            self.start(copy);
        }
        for at in 0..self.lanes.len() {
            self.close(at);
        }
        taken
    }

    fn start(&mut self, copy: DmaCopy) {
        let DmaCopy { number, into_device, address, len, at } = copy;
        let place = self.queue.staging().0.wrapping_add(at);
        let lane = &mut self.lanes[usize::from(!into_device)];
        // SAFETY: `DmaServer::take` gives what lies in the staging area, which stays mapped as long as the queue, and
        // so until all copies are done (`Drop`).
        let ordered = unsafe {
            match into_device {
                true => self.driver.copy_in(address, place, len, lane.stream),
                false => self.driver.copy_out(place, address, len, lane.stream),
            }
        };
        match ordered {
            true => lane.open.push(number),
            false => self.queue.done(number, libc::EIO),
        }
    }

    /// An event stands for what was ordered since the last one.
    fn close(&mut self, at: usize) {
        let lane = &mut self.lanes[at];
        if lane.open.is_empty() {
            return;
        }
        let numbers = std::mem::take(&mut lane.open);
        let event = self.events.pop().or_else(|| self.driver.event());
        match event.filter(|event| self.driver.record(*event, lane.stream)) {
            Some(event) => lane.under_way.push_back((numbers, event)),
            None => numbers.into_iter().for_each(|number| self.queue.done(number, libc::EIO)),
        }
    }

    /// Reports what is done; returns of how many events.
    fn complete(&mut self) -> usize {
        let mut done = 0;
        for lane in &mut self.lanes {
            while let Some((_, event)) = lane.under_way.front() {
                let status = self.driver.query(*event);
                if status == NOT_READY {
                    break;
                }
                let Some((numbers, event)) = lane.under_way.pop_front() else { break };
                let error = if status == 0 { 0 } else { libc::EIO };
                numbers.into_iter().for_each(|number| self.queue.done(number, error));
                self.events.push(event);
                done += 1;
            }
        }
        done
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for lane in &mut self.lanes {
            for (_, event) in lane.under_way.drain(..) {
                while self.driver.query(event) == NOT_READY {
                    std::thread::yield_now();
                }
                self.driver.end_event(event);
            }
            self.driver.end_stream(lane.stream);
        }
        self.events.drain(..).for_each(|event| self.driver.end_event(event));
        if self.pinned {
            self.driver.unpin(self.queue.staging().0);
        }
    }
}
