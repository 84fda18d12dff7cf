//! `next_free`: where the next lease can go (command-line.md 8.6).

use super::report::failed;
use super::scan::{Area, find_geometry};
use super::storage::{Storage, StorageError};
use crate::output::{FAILURE, SUCCESS, note, print};
use crate::subject;
use sanlock_blockio::Access;
use sanlock_lease::geometry::Geometry;
use sanlock_lease::record::{PAXOS_CLEARED_MAGIC, RawLeader};
use sanlock_lease::text::DiskSpec;

const ACTION: &str = "next_free";

pub(super) fn next_free(start: Option<&DiskSpec>, geometry: Option<Geometry>) -> u8 {
    let Some(start) = start else {
        note(ACTION, "no path given, use next_free PATH[:OFFSET]");
        return FAILURE;
    };
    match find(start, geometry) {
        Ok(Some(distance)) => {
            print(format!("{distance}\n"));
            SUCCESS
        }
        Ok(None) => FAILURE,
        Err(error) => failed(ACTION, &subject::place(start), &error),
    }
}

/// Bytes from the start to the first area without a lease.
fn find(start: &DiskSpec, geometry: Option<Geometry>) -> Result<Option<u64>, StorageError> {
    let mut storage = Storage::open(&start.path, Access::ReadOnly)?;
    let geometry = match geometry {
        Some(geometry) => Some(geometry),
        None => find_geometry(&mut storage, start.offset, None)?,
    };
    let Some(geometry) = geometry else {
        note(ACTION, "no lease found whose sizes could be used, set them with -Z and -A");
        return Ok(None);
    };
    let align = geometry.align().bytes();
    let mut distance = 0u64;
    loop {
        let offset = start.offset.saturating_add(distance);
        if storage.fixed_size().is_some_and(|size| size.saturating_sub(offset) < align) {
            note(ACTION, "every area up to the end of the device holds a lease");
            return Ok(None);
        }
        match storage.read(offset, geometry.sector().slice_len()) {
            Ok(sector) if Area::of(&sector).is_some() => distance = distance.saturating_add(align),
            Ok(sector) => {
                if ![0, PAXOS_CLEARED_MAGIC].contains(&RawLeader::from_sector(&sector).magic.get()) {
                    note(
                        ACTION,
                        &format!(
                            "{}: what is at offset {offset} is no lease, and not empty: it may be a damaged one, see 'sanlock fsck'",
                            subject::place(start)
                        ),
                    );
                }
                return Ok(Some(distance));
            }
            // A file grows when a lease is written behind its end.
            Err(error) if error.is_beyond_end() => return Ok(Some(distance)),
            Err(error) => return Err(error),
        }
    }
}
