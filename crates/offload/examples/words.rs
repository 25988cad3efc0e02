//! Offload functions in Rust.
use offload_api::Call;

/// The number at a place of the request.
fn word(call: &Call<'_>, at: usize) -> Result<u64, i32> {
    let bytes = call.request().get(at * 8..at * 8 + 8).and_then(|bytes| bytes.try_into().ok());
    bytes.map(u64::from_le_bytes).ok_or(libc::EINVAL)
}

/// The word at an address.
fn peek(call: &mut Call<'_>) -> Result<(), i32> {
    let address = word(call, 0)?;
    let response = call.alloc_resp(8)?;
    call.read(address, response)?;
    call.submit_resp(response)
}

/// Adds to the word at an address, and takes it off again by compare and swap: what it was.
fn add(call: &mut Call<'_>) -> Result<(), i32> {
    let (address, addend) = (word(call, 0)?, word(call, 1)?);
    let before = call.fetch_add(address, addend)?;
    if call.compare_swap(address, before + addend, before)? != before + addend {
        return Err(libc::EAGAIN);
    }
    let response = call.alloc_resp(8)?;
    response.copy_from_slice(&before.to_le_bytes());
    call.write(address, response)?;
    call.submit_resp(response)
}

offload_api::functions!(0x60 => peek, 0x61 => add);
