//! What an area that is about to be formatted has in common with others: they destroy each other, whoever formats first.

use super::scan::Area;
use super::storage::{Storage, StorageError};
use sanlock_lease::geometry::{AlignSize, Geometry};
use sanlock_lease::limits::SECTOR_BYTES_MAX;

/// Areas are looked for at multiples of the smallest align size.
const STEP: u64 = 1 << 20;

/// What is to be said of an area at this offset before it is written: that it begins where none should, and which ones it overlaps. The look ends
/// where something cannot be read: storage that is silent is not waited for once more for each place.
pub(super) fn remarks(storage: &mut Storage, offset: u64, geometry: Geometry) -> Vec<String> {
    let len = geometry.align().bytes();
    let mut remarks = Vec::new();
    if offset % len != 0 {
        remarks.push(format!("offset {offset} is no multiple of the align size, {len}"));
    }
    let end = offset.saturating_add(len);
    let mut at = offset.saturating_sub(AlignSize::M8.bytes()).next_multiple_of(STEP);
    while at < end {
        let Ok(found) = area_at(storage, at) else { break };
        let Some((kind, bytes)) = found else {
            at += STEP;
            continue;
        };
        // Every record of a lockspace looks like its first one, so what lies within it is passed over.
        let next = at.saturating_add(bytes);
        // What is in this very place is formatted anew.
        if at != offset && next > offset {
            let what = match kind {
                Area::Lockspace => "lockspace",
                Area::Resource => "lease",
                Area::Rindex => "resource index",
            };
            remarks.push(format!(
                "the {len} bytes at offset {offset} overlap the {what} of {bytes} bytes at offset {at}: one destroys the other"
            ));
        }
        at = next;
    }
    remarks
}

/// What begins there, and how many bytes it has.
fn area_at(storage: &mut Storage, offset: u64) -> Result<Option<(Area, u64)>, StorageError> {
    let sector = storage.read(offset, SECTOR_BYTES_MAX)?;
    let kind = Area::of(&sector);
    Ok(kind.and_then(|kind| Some((kind, kind.geometry(&sector)?.align().bytes()))))
}
