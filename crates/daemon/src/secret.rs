//! Randomness for the parts that must not be guessed.
use std::fs::File;
use std::io::Read;

/// What makes initial sequence numbers (RFC 6528) and numbers of queue pairs unguessable. The error is a sentence.
pub(crate) fn secret() -> Result<[u8; 16], String> {
    let mut secret = [0; 16];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut secret));
    read.map(|()| secret).map_err(|e| format!("cannot read /dev/urandom: {e}"))
}
