//! The records, byte for byte: one struct per record, explicit little-endian fields, explicit padding, sizes and offsets
//! asserted at compile time (disk-format.md 5 to 8).
//!
//! What is read from a disk is *raw*. Algorithms accept only what [`crate::verify`] made of it.

mod block;
mod leader;
mod request;
mod rindex;

pub use block::{DBLOCK_RELEASED, Dblock, HostBlock, MODE_SHARED, ModeBlock};
pub use leader::{
    BITMAP_OFFSET, Bitmap, DELTA_MAGIC, DELTA_VERSION, FLAG_CAW, FLAG_SHORT_HOLD, PAXOS_CLEARED_MAGIC,
    PAXOS_MAGIC, PAXOS_VERSION, RawLeader,
};
pub use request::{REQUEST_MAGIC, REQUEST_VERSION, RequestError, RequestRecord, Wish};
pub use rindex::{RINDEX_MAGIC, RINDEX_VERSION, RindexEntry, RindexHeader};

/// Copies the first bytes of `sector` into a record. A sector shorter than the record is padded with zeros: such a read is an
/// error before it gets here, and zeros never verify.
pub(crate) fn prefix<T: zerocopy::FromBytes + zerocopy::IntoBytes + zerocopy::Immutable>(sector: &[u8]) -> T {
    let mut record = T::new_zeroed();
    let bytes = record.as_mut_bytes();
    let n = bytes.len().min(sector.len());
    bytes[..n].copy_from_slice(&sector[..n]);
    record
}
