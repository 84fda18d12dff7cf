//! Leases on several disks, as the checks look at them: what a majority says, and what any majority would say.

use crate::disk::SimDisk;
use crate::layout;
use sanlock_lease::geometry::HostId;
use sanlock_lease::record::Dblock;

/// Every smallest set of legs that is enough to work with.
pub(super) fn majorities(disk: &SimDisk) -> impl Iterator<Item = u8> + use<> {
    let (legs, least) = (disk.legs(), disk.majority());
    (1..1_u8 << legs).filter(move |set| set.count_ones() == least)
}

/// The legs in a set.
pub(super) fn legs_of(set: u8) -> impl Iterator<Item = u8> {
    (0..8).filter(move |leg| set & (1 << leg) != 0)
}

/// Whether whoever has written `b` has also written `a`, or something later.
fn covers(a: &Dblock, b: &Dblock) -> bool {
    let flag = a.is_released() || !b.is_released() || a.bal != b.bal;
    a.lver.get() > b.lver.get()
        || (a.lver == b.lver && a.mbal.get() >= b.mbal.get() && a.bal.get() >= b.bal.get() && flag)
}

/// The ballot records of a host that it cannot have failed to write or to read back: those that a majority of the legs has, or is
/// beyond. What reached fewer of them counts as not written.
pub(super) fn known_blocks(disk: &SimDisk, resource: u8, host: HostId) -> Vec<Dblock> {
    let all: Vec<Dblock> =
        (0..disk.legs()).map(|leg| layout::block_on(disk, resource, leg, host).dblock).collect();
    let known = |b: &&Dblock| {
        let beyond = all.iter().filter(|a| covers(a, b)).count();
        u32::try_from(beyond).is_ok_and(|beyond| beyond >= disk.majority())
    };
    all.iter().filter(known).copied().collect()
}
