//! A call of an offload function, as functions in Rust use it.
use crate::abi::{Calls, Context, Table, dma};
use std::ffi::c_int;
use std::sync::atomic::Ordering::Acquire;

/// A call that is under way.
pub struct Call<'a> {
    context: *mut Context,
    calls: &'a Calls,
}

/// Runs a function in Rust for the engine.
///
/// # Safety
/// The context is of a call that is under way, and the engine has set the table.
pub unsafe fn enter(
    context: *mut Context,
    table: &'static Table,
    function: fn(&mut Call<'_>) -> Result<(), i32>,
) -> c_int {
    // SAFETY: as the caller guarantees.
    let calls = unsafe { &*table.load(Acquire) };
    match function(&mut Call { context, calls }) {
        Ok(()) => 0,
        Err(number) => -number,
    }
}

impl<'a> Call<'a> {
    /// The request's bytes.
    pub fn request(&self) -> &'a [u8] {
        // SAFETY: the engine leaves them as they are until the function has returned.
        unsafe {
            std::slice::from_raw_parts((*self.context).request.cast::<u8>(), (*self.context).request_size as usize)
        }
    }

    /// Room for the response. A call has one response, so a second one is refused.
    ///
    /// # Errors
    /// ENOMEM: it is too long; EBUSY: there is one.
    pub fn alloc_resp(&mut self, size: usize) -> Result<&'a mut [u8], i32> {
        // SAFETY: the context is of a call that is under way.
        let room = unsafe { (self.calls.alloc_resp)(self.context, size) };
        if room.is_null() {
            return Err(12);
        }
        // SAFETY: so many bytes are this call's until its end, and are given once.
        Ok(unsafe { std::slice::from_raw_parts_mut(room.cast::<u8>(), size) })
    }

    /// Reads the host's memory, and waits for it.
    ///
    /// # Errors
    /// EFAULT: it is in no DMA region; EACCES: the region is not for this; ETIME: the call's time is over.
    pub fn read(&mut self, host_addr: u64, into: &mut [u8]) -> Result<(), i32> {
        // SAFETY: the bytes are borrowed until the operation has ended.
        let id = unsafe { self.submit_dma(dma::READ, host_addr, into.as_mut_ptr(), into.len()) }?;
        self.wait_dma_finish(id)
    }

    /// Writes the host's memory, and waits for it.
    ///
    /// # Errors
    /// As [`Call::read`].
    pub fn write(&mut self, host_addr: u64, from: &[u8]) -> Result<(), i32> {
        // SAFETY: the bytes are borrowed until the operation has ended, which only reads them.
        let id = unsafe { self.submit_dma(dma::WRITE, host_addr, from.as_ptr().cast_mut(), from.len()) }?;
        self.wait_dma_finish(id)
    }

    /// Adds to a word of the host's memory: what it was.
    ///
    /// # Errors
    /// As [`Call::read`]; EINVAL where the address is not aligned.
    pub fn fetch_add(&mut self, host_addr: u64, addend: u64) -> Result<u64, i32> {
        let mut word = addend;
        // SAFETY: the word is borrowed until the operation has ended.
        let id = unsafe { self.submit_dma(dma::FETCH_ADD, host_addr, (&raw mut word).cast(), 8) }?;
        self.wait_dma_finish(id).map(|()| word)
    }

    /// Replaces a word of the host's memory where it is as expected: what it was.
    ///
    /// # Errors
    /// As [`Call::fetch_add`].
    pub fn compare_swap(&mut self, host_addr: u64, expected: u64, new: u64) -> Result<u64, i32> {
        let mut words = [expected, new];
        // SAFETY: the words are borrowed until the operation has ended.
        let id = unsafe { self.submit_dma(dma::COMPARE_SWAP, host_addr, words.as_mut_ptr().cast(), 16) }?;
        self.wait_dma_finish(id).map(|()| words[0])
    }

    /// Submits an operation: its number for [`Call::wait_dma_finish`].
    ///
    /// # Safety
    /// The bytes at `at` are valid, and nobody uses them, until the operation has been waited for.
    ///
    /// # Errors
    /// As [`Call::read`]; EAGAIN: as many are outstanding as may be.
    pub unsafe fn submit_dma(&mut self, op: c_int, host_addr: u64, at: *mut u8, len: usize) -> Result<i64, i32> {
        // SAFETY: the context is of a call that is under way; the bytes are as the caller guarantees.
        let id = unsafe { (self.calls.submit_dma)(self.context, op, host_addr, at.cast(), len) };
        if id < 0 { Err(-id as i32) } else { Ok(id) }
    }

    /// Waits for an operation.
    ///
    /// # Errors
    /// As [`Call::read`].
    pub fn wait_dma_finish(&mut self, id: i64) -> Result<(), i32> {
        // SAFETY: the context is of a call that is under way.
        match unsafe { (self.calls.wait_dma_finish)(self.context, id) } {
            0 => Ok(()),
            number => Err(-number),
        }
    }

    /// As [`Call::submit_resp`], but the bytes are written to the client's memory: an RDMA WRITE with immediate data to
    /// this address, under this remote key, which the client's request names.
    ///
    /// # Errors
    /// As [`Call::submit_resp`]; ENOSYS where the engine is older.
    pub fn submit_resp_to(&mut self, bytes: &[u8], client_addr: u64, client_key: u32) -> Result<(), i32> {
        if self.calls.version < 2 {
            return Err(38);
        }
        let at = bytes.as_ptr().cast();
        // SAFETY: the context is of a call that is under way; the engine checks the bytes' place.
        match unsafe { (self.calls.submit_resp_to)(self.context, at, bytes.len(), client_addr, client_key) } {
            0 => Ok(()),
            number => Err(-number),
        }
    }

    /// The response is these bytes of what [`Call::alloc_resp`] gave. They leave when the function has returned.
    ///
    /// # Errors
    /// EINVAL: they are others, or there is a response.
    pub fn submit_resp(&mut self, bytes: &[u8]) -> Result<(), i32> {
        // SAFETY: the context is of a call that is under way; the engine checks the bytes' place.
        match unsafe { (self.calls.submit_resp)(self.context, bytes.as_ptr().cast(), bytes.len()) } {
            0 => Ok(()),
            number => Err(-number),
        }
    }
}
