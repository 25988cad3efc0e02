//! Memory of a CUDA device behind a DMA queue, with a driver for tests (`fake_driver.c`) in place of CUDA's.
use cuda::DeviceMemory;
use memory::{Access, DmaQueue, DmaServer, Domain, Fault, Limits, MemoryTable, Rights, Transfer};
use shm::{Doorbell, handover};
use std::ffi::{CString, c_void};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const US: Domain = Domain(1);
const LEN: usize = 4 << 20;

/// The driver's library, loaded as CUDA's own would be.
struct Library(*mut c_void, PathBuf);

impl Library {
    fn load() -> Library {
        let place = std::env::temp_dir().join(format!("toe-cuda-{}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        let (made, source) =
            (place.join("libcuda.so.1"), format!("{}/tests/fake_driver.c", env!("CARGO_MANIFEST_DIR")));
        let options =
            ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-Wl,-soname,libcuda.so.1"];
        let status = Command::new("cc").args(options).arg("-o").arg(&made).arg(source).status().unwrap();
        assert!(status.success());
        let name = CString::new(made.to_str().unwrap()).unwrap();
        // SAFETY: a library of functions, without constructors.
        let found = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        assert!(!found.is_null());
        Library(found, place)
    }

    fn allocate(&self, bytes: usize) -> u64 {
        let mut address = 0u64;
        // SAFETY: the function has this type.
        unsafe {
            let function = libc::dlsym(self.0, c"cuMemAlloc_v2".as_ptr());
            let function: extern "C" fn(*mut u64, usize) -> i32 = std::mem::transmute(function);
            assert_eq!(function(&raw mut address, bytes), 0);
        }
        address
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.1);
    }
}

/// A table with the device's queue, and the time for it.
struct Host {
    table: MemoryTable,
    begun: Instant,
    /// The queue ends with it, and then the thread that serves it.
    socket: OwnedFd,
    server: JoinHandle<()>,
}

impl Host {
    fn wait(&self, transfers: &[Arc<Transfer>]) -> Vec<Result<(), Fault>> {
        loop {
            self.table.devices().poll(self.begun.elapsed().as_nanos() as u64);
            let ended: Vec<_> = transfers.iter().filter_map(|transfer| transfer.result()).collect();
            if ended.len() == transfers.len() {
                return ended;
            }
            assert!(self.begun.elapsed() < Duration::from_secs(60), "copies do not end");
            std::thread::yield_now();
        }
    }
}

fn served(memory: DeviceMemory) -> (Host, Arc<DmaQueue>) {
    let (queue, ends) = DmaQueue::create(Doorbell::eventfd().unwrap(), 60_000_000_000).unwrap();
    let (ours, its) = handover::pair().unwrap();
    ends.send(&ours).unwrap();
    let server = memory.serve(DmaServer::open(its).unwrap()).unwrap();
    let (queue, table) = (Arc::new(queue), MemoryTable::new(Limits::default()).unwrap());
    let host = Host { table, begun: Instant::now(), socket: ours, server };
    host.table.devices().add(&queue);
    (host, queue)
}

#[test]
fn bytes_go_to_a_device_and_come_back() {
    let local = [0u8; 16];
    assert!(DeviceMemory::find(local.as_ptr().expose_provenance() as u64, 16).is_none(), "no driver is loaded");
    let library = Library::load();
    assert!(DeviceMemory::find(local.as_ptr().expose_provenance() as u64, 16).is_none(), "it is no device's");
    let address = library.allocate(LEN);
    assert!(matches!(DeviceMemory::find(address + 1, LEN as u64), Some(Err(libc::EFAULT))));
    assert!(matches!(DeviceMemory::find(address, u64::MAX), Some(Err(libc::EFAULT))));
    let memory = DeviceMemory::find(address, LEN as u64).unwrap().unwrap();
    let (host, queue) = served(memory);
    let key = host.table.register_device(US, &queue, address, LEN as u64, Rights::LOCAL_WRITE).unwrap();
    let bytes: Vec<u8> = (0..LEN).map(|at| ((at * 0x9e37_79b9) >> 16) as u8).collect();
    // More than the queue takes at once, of many lengths.
    let (mut at, mut under_way, mut parts) = (0, Vec::new(), Vec::new());
    while at < LEN {
        let len = (1 + at * 7919 % 60_000).min(LEN - at);
        let lease = host.table.open(US, key, Access::LocalWrite).unwrap();
        assert!(lease.is_device() && lease.may_wait());
        match lease.start_write(at as u64, &bytes[at..at + len]) {
            Ok(transfer) => {
                under_way.extend(transfer);
                parts.push((at, len));
                at += len;
            }
            Err(fault) => {
                assert_eq!(fault, Fault::Busy);
                host.wait(&under_way).into_iter().for_each(|ended| assert_eq!(ended, Ok(())));
                under_way.clear();
            }
        }
    }
    host.wait(&under_way).into_iter().for_each(|ended| assert_eq!(ended, Ok(())));
    let lease = host.table.open(US, key, Access::LocalRead).unwrap();
    assert_eq!(lease.read(0, &mut [0; 4]), Err(Fault::Device));
    assert!(matches!(lease.start_read(LEN as u64 - 3, 4), Err(Fault::Bounds)));
    assert!(matches!(lease.start_write(0, &[1]), Err(Fault::Rights)));
    for (at, len) in parts {
        let read = lease.start_read(at as u64, len).unwrap().unwrap();
        assert!(read.span().is_none() || read.result().is_some());
        assert_eq!(host.wait(&[Arc::clone(&read)]), [Ok(())]);
        let mut got = Vec::new();
        read.span().unwrap().append(&mut got);
        assert!(got == bytes[at..at + len], "{len} bytes at {at}");
    }
    drop(lease);
    // What the driver refuses fails alone; then the region can go.
    let beyond = host.table.register_device(US, &queue, address + LEN as u64, 8, Rights::LOCAL_WRITE).unwrap();
    let refused = host.table.open(US, beyond, Access::LocalWrite).unwrap().start_write(0, &[1; 8]).unwrap().unwrap();
    assert_eq!(host.wait(&[refused]), [Err(Fault::Unmapped)]);
    host.table.deregister(US, key).unwrap();
    host.table.devices().remove(&queue);
    let lost = host.table.open(US, beyond, Access::LocalWrite).unwrap().start_write(0, &[1; 8]);
    assert!(matches!(lost, Err(Fault::Lost)));
    let Host { socket, server, .. } = host;
    drop(socket);
    server.join().unwrap();
}
