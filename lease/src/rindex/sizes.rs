//! Do the sizes that an index's header states agree with its internal lease?
//!
//! The header has no checksum. Whoever takes the internal lease finds out that the sizes are wrong: it is not where they put it, or has
//! others itself. Whoever works without it (no lockspace, or a lookup) would look for areas where there are none, and write over what lies
//! behind a shorter index.

use super::LEASE_NAME;
use super::index::{Layout, resource_in};
use crate::geometry::{AlignSize, Geometry};
use crate::record::RawLeader;
use crate::verify;

/// Where the internal lease of an index can lie: where its header puts it, then where the other align sizes would. Offsets on the disk.
pub(super) fn places(layout: &Layout) -> impl Iterator<Item = u64> {
    let (own, base) = (layout.geometry.align(), layout.base());
    let others = AlignSize::ALL.into_iter().filter(move |align| *align != own);
    // No overflow: a layout's areas, of which the smallest has thousands, all have offsets.
    std::iter::once(own).chain(others).map(move |align| base + align.bytes())
}

/// The sizes that the internal lease was written for, if one lies at offset `at` (its first sector: `sector`) and belongs to an index at
/// `base`.
pub(super) fn of_lease(sector: &[u8], base: u64, at: u64) -> Option<Geometry> {
    resource_in(sector).filter(|name| name.as_bytes() == LEASE_NAME)?;
    // The checksum is not asked for: a lease that is damaged elsewhere contradicts the header all the same.
    let sizes = verify::sizes(&RawLeader::from_sector(sector)).ok()?;
    (base + sizes.align().bytes() == at).then_some(sizes)
}
