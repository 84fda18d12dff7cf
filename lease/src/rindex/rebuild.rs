//! What a rebuild makes of an index and of what lies in its areas (lease-algorithms.md 11).
//!
//! A host that dies while it deletes a resource leaves its area as it was; if the resource was created again elsewhere, two areas have
//! the name. Which of them is the resource the index knew before: were both entered, hosts could go to different areas for one name
//! and both own it. If it did not know, as after damage, both are: an area that may be somebody's is not to be given away.

use super::index::{Index, resource_in};
use crate::name::Name;
use crate::record::{PAXOS_CLEARED_MAGIC, RawLeader};
use std::collections::BTreeMap;

/// Enters what lies in the area of a slot (its first sector: `sector`); [`settle`] decides between areas of one name.
///
/// What is neither a lease, nor a cleared one, nor empty may be a damaged lease: if it had an entry it keeps it, since an area without
/// one is the next to be initialised.
pub(super) fn enter(index: &mut Index, before: &Index, slot: u32, sector: &[u8]) {
    if let Some(name) = resource_in(sector) {
        index.set(slot, name);
    } else if !is_free(sector) && !before.entry(slot).is_free() {
        index.set(slot, before.name(slot));
    }
}

fn is_free(sector: &[u8]) -> bool {
    RawLeader::from_sector(sector).magic.get() == PAXOS_CLEARED_MAGIC || sector.iter().all(|byte| *byte == 0)
}

/// Where exactly one of the areas of a name was entered under it before, the name stays with that one: the others have the entry that
/// they had, or none.
pub(super) fn settle(index: &mut Index, before: &Index) {
    // Names that were in the index before and are where they were, and how often.
    let mut known: BTreeMap<Name, u32> = BTreeMap::new();
    let stays = |index: &Index, slot| {
        let name = index.name(slot);
        !name.is_empty() && !before.entry(slot).is_free() && before.name(slot) == name
    };
    for slot in index.slots() {
        if stays(index, slot) {
            *known.entry(index.name(slot)).or_default() += 1;
        }
    }
    for slot in index.slots() {
        if stays(index, slot) || known.get(&index.name(slot)) != Some(&1) {
            continue;
        }
        if before.entry(slot).is_free() {
            index.clear(slot);
        } else {
            index.set(slot, before.name(slot));
        }
    }
}
