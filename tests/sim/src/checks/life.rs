//! Signs of life: what is written into host id leases, and what others do when there is nothing of it (S9, S11).

use super::{Checks, Resource, Writer, owner_of};
use crate::clock::{Micros, SECOND};
use crate::disk::{Area, SimDisk};
use crate::layout;
use sanlock_lease::geometry::HostId;
use sanlock_lease::limits::NAME_BYTES;
use sanlock_lease::record::RawLeader;
use sanlock_lease::timing::{IoTimeout, WatchdogFire};

/// A sign of life on the disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lived {
    /// The host's name: two machines may have claimed the host id with one generation.
    name: [u8; NAME_BYTES],
    generation: u64,
    timestamp: u64,
    at: Micros,
    io_timeout: IoTimeout,
    /// The longest silence of this generation before that.
    silence: Micros,
}

impl Checks {
    /// Silence after which a host with this io timeout may be replaced, in true time: a fast clock's seconds are short.
    fn dead_after(&self, io_timeout: IoTimeout) -> Micros {
        let secs = io_timeout.host_dead_secs(self.fire.unwrap_or(WatchdogFire::DEFAULT));
        secs * SECOND * 1_000_000 / (1_000_000 + self.drift_ppm)
    }

    /// A renewal that lands when its host must be dead prolongs nothing: by then its lockspace had failed, and its host was reset if
    /// anything was left to protect. Such a write is the exception to rule R3 (decision 8), and may land between somebody's last
    /// look at the host id and their ballot. A new generation is a new life.
    ///
    /// Nor does a record that lands over a newer one: its host reckons from the newer one, whatever others see.
    pub(super) fn delta_lands(&mut self, now: Micros, key: (u8, u64), leader: &RawLeader) {
        let io_timeout = IoTimeout::from_disk(leader.io_timeout.get(), IoTimeout::DEFAULT);
        let (generation, timestamp) = (leader.owner_generation.get(), leader.timestamp.get());
        let name = leader.resource_name;
        let fresh = Lived { name, generation, timestamp, at: now, io_timeout, silence: 0 };
        let Some(before) = self.lived.get(&key).copied() else {
            self.lived.insert(key, fresh);
            return;
        };
        let silent = now.saturating_sub(before.at);
        if (before.name, before.generation) != (name, generation) {
            self.lived.insert(key, fresh);
        } else if before.timestamp < timestamp && silent < self.dead_after(before.io_timeout) {
            self.lived.insert(key, Lived { silence: silent.max(before.silence), ..fresh });
        }
    }

    /// Rule R12, and decision 21: others reckon from the moment at which they see a change, so a host writes no record twice. Of two, the first one may land
    /// late, over newer ones; who has seen only the second would reckon from before those.
    pub(super) fn delta_submitted(&mut self, writer: Writer, disk: u8, leader: &RawLeader) {
        let told = (leader.owner_generation.get(), leader.timestamp.get());
        let before = self.told.insert((disk, writer.host), told);
        if before == Some(told) && told.1 != 0 && !writer.reference {
            self.violated(format!("R12: {writer:?} renews its host id twice with {leader:?}"));
        }
    }

    /// A write to a host id lease was refused: it lands never, so the same may be written again.
    pub(crate) fn delta_refused(&mut self, host: HostId, disk: u8) {
        self.told.remove(&(disk, host));
    }

    /// A host is about to write a leader. `misjudged`: the io timeout by which it took the owner for dead, if it was not the owner's.
    pub fn commits(&mut self, writer: Writer, resource: u8, misjudged: Option<IoTimeout>) {
        match misjudged {
            Some(io_timeout) => self.misjudged.insert((resource, writer.host), io_timeout),
            None => self.misjudged.remove(&(resource, writer.host)),
        };
    }

    /// S11: a silent owner is replaced only after its time. What the owner writes itself is no replacement, and leaders that
    /// others wrote in its name are left to S1.
    ///
    /// A reference peer judges by the time at which its look at the owner ends; what it sees may be older by as long as an operation of
    /// its may take (differences.md: silence before a take-over). A renewal that lands in between comes more than 8T after the one
    /// before, so it saves nobody as long as F is longer than that. And it judges by the io timeout that its host table has of the host id when
    /// the wait begins, be it another instance's (observed-behaviour.md).
    pub(super) fn owner_replaced(
        &mut self,
        now: Micros,
        resource: u8,
        before: &RawLeader,
        after: &RawLeader,
        disk: &SimDisk,
    ) {
        let number = layout::disk_of(resource);
        let replaced = before.timestamp.get() != 0
            && after.timestamp.get() != 0
            && after.lver.get() == before.lver.get() + 1
            && after.owner_id != before.owner_id
            && after.write_id != before.owner_id
            && before.write_id == before.owner_id;
        let Some(owner) = HostId::new(before.owner_id.get()).filter(|_| replaced) else { return };
        let delta = layout::delta_on(disk, number, owner);
        let same = delta.timestamp.get() != 0
            && delta.owner_id == before.owner_id
            && delta.owner_generation.get() <= before.owner_generation.get();
        // Whoever saw the flag under a foreign writer's leader is right, even if the owner's own, slow one has landed since, or its
        // block has gone on to the next version. Under the owner's own leader the flag says nothing.
        let given_up = (before.lver.get(), owner_of(before));
        // A free leader on one of several disks is seen by whoever looks before the next owner's takes its place there.
        let freed = (given_up.0, given_up.1.0, given_up.1.1);
        let flags = |r: &Resource| match disk.legs() {
            1 => r.flagged_for_all.contains(&given_up),
            // A majority may have another leader, and then the flag counts too.
            _ => r.flagged.contains(&given_up),
        };
        let gone = |r: &Resource| flags(r) || r.freed.contains(&freed);
        let released = self.resources.get(&resource).is_some_and(gone);
        if !same || released {
            return;
        }
        self.marks.taken_over += 1;
        let Some(lived) = self.lived.get(&(number, owner.delta_sector())).copied() else { return };
        let silent = now.saturating_sub(lived.at);
        let taker = HostId::new(after.owner_id.get()).filter(|taker| self.references.contains(taker));
        let unseen = taker.map_or(0, |taker| self.io_timeout(taker).secs() * SECOND);
        let limit = self.dead_after(lived.io_timeout);
        if silent < limit && taker.is_some_and(|taker| self.is_misjudged(resource, taker, silent)) {
            self.marks.misjudged += 1;
        } else if silent < limit && unseen > 0 && lived.silence + unseen >= limit {
            self.marks.overlooked += 1;
        } else if silent < limit {
            self.violated(format!("S11: {before:?} replaced by {after:?} after {silent} us of silence"));
        }
    }

    /// Whether a reference peer has waited for an owner as long as it must by the io timeout that it took for the owner's.
    fn is_misjudged(&self, resource: u8, taker: HostId, silent: Micros) -> bool {
        let io_timeout = self.misjudged.get(&(resource, taker));
        io_timeout.is_some_and(|io_timeout| silent >= self.dead_after(*io_timeout))
    }

    /// When a sector of a lockspace was last written.
    #[must_use]
    pub fn last_landing(&self, area: Area, sector: u64) -> u64 {
        let Area::Lockspace(disk) = area else { return 0 };
        self.renewed.get(&(disk, sector)).copied().unwrap_or(0)
    }

    /// S9. What lands when its submitter is over is the one exception: a renewal whose host has given up and left, or has been replaced by
    /// another machine with its host id, and any write of a daemon that has died. Nothing keeps it from that (R3), and it harms nobody,
    /// because whoever it overwrites notices.
    pub(super) fn delta_landed(
        &mut self,
        (disk, sector): (u8, u64),
        machine: HostId,
        leader: &RawLeader,
        orphan: bool,
    ) {
        let generation = leader.owner_generation.get();
        let key = (disk, sector);
        let before = self.delta_generation.insert(key, generation).unwrap_or(0);
        self.overwritten_by(disk, sector, Some(machine), generation);
        let free = leader.timestamp.get() == 0;
        let last = self.delta_last.insert(key, (machine, free));
        if orphan {
            self.overwritten.insert(key, self.now);
            // Its host may still have been told that it renewed in time, and go by that.
            let stamp = self.stamps.or_insert((disk, machine), 0);
            *stamp = (*stamp).max(leader.timestamp.get());
            self.marks.late_delta_landed += 1;
            return;
        }
        self.overwritten.remove(&key);
        let stamp = self.stamps.or_insert((disk, machine), 0);
        // An older renewal of its own may land over a newer one, of which it has been told. It goes by that.
        let own = last == Some((machine, false)) && generation == before && !free;
        *stamp = if own { (*stamp).max(leader.timestamp.get()) } else { leader.timestamp.get() };
        if generation < before {
            self.violated(format!(
                "S9: generation in delta sector {sector} of {disk} falls from {before} to {generation}"
            ));
        }
        // Two machines that saw the same free record may both write the next generation, and one of them take its write back.
        if generation == before && !free && last == Some((machine, true)) {
            self.violated(format!(
                "S9: {machine:?} takes delta sector {sector} of {disk} again with generation {generation}"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: (u8, u64) = (0, 0);

    fn record(generation: u64, timestamp: u64) -> RawLeader {
        let (owner_generation, timestamp) = (generation.into(), timestamp.into());
        RawLeader { owner_generation, timestamp, io_timeout: 1.into(), ..RawLeader::zeroed() }
    }

    /// When a host is last seen to live, of records that land at these seconds.
    fn lived(records: &[(u64, RawLeader)]) -> u64 {
        let mut checks = Checks { fire: WatchdogFire::new(10).ok(), ..Checks::default() };
        for (at, record) in records {
            checks.delta_lands(at * SECOND, KEY, record);
        }
        checks.lived.get(&KEY).unwrap().at / SECOND
    }

    #[test]
    fn newer_records_in_time_prolong_life_and_others_do_not() {
        assert_eq!(lived(&[(100, record(1, 7)), (117, record(1, 9))]), 117);
        assert_eq!(lived(&[(100, record(1, 7)), (118, record(1, 9))]), 100, "8T + F");
        assert_eq!(
            lived(&[(100, record(1, 7)), (102, record(1, 9)), (103, record(1, 7))]),
            102,
            "it came back"
        );
        assert_eq!(lived(&[(100, record(1, 7)), (130, record(2, 3))]), 130, "another life");
        let other = RawLeader { resource_name: [b'x'; NAME_BYTES], ..record(1, 3) };
        assert_eq!(lived(&[(100, record(1, 7)), (101, other)]), 101, "another machine");
    }

    #[test]
    fn a_record_is_written_once() {
        let written = |reference: bool, records: &[RawLeader]| {
            let mut checks = Checks::default();
            let writer = Writer { host: HostId::new(1).unwrap(), reference };
            records.iter().for_each(|record| checks.delta_submitted(writer, 0, record));
            checks.violations.len()
        };
        assert_eq!(
            written(false, &[record(1, 7), record(1, 8), record(2, 8), record(2, 0), record(2, 0)]),
            0
        );
        assert_eq!(written(false, &[record(1, 7), record(1, 7)]), 1);
        assert_eq!(written(true, &[record(1, 7), record(1, 7)]), 0);
        // What was refused was not written.
        let (mut checks, host) = (Checks::default(), HostId::new(1).unwrap());
        for _ in 0..2 {
            checks.delta_submitted(Writer { host, reference: false }, 0, &record(1, 7));
            checks.delta_refused(host, 0);
        }
        assert!(checks.violations.is_empty());
    }

    #[test]
    fn a_peer_waits_for_as_long_as_the_io_timeout_says_that_it_goes_by() {
        let mut checks = Checks { fire: WatchdogFire::new(10).ok(), ..Checks::default() };
        let [taker, other] = [2, 3].map(|id| HostId::new(id).unwrap());
        let writer = Writer { host: taker, reference: true };
        checks.commits(writer, 0, IoTimeout::new(1).ok());
        let found = [(0, taker, 18), (0, taker, 17), (0, other, 18), (1, taker, 18)]
            .map(|(resource, host, secs)| checks.is_misjudged(resource, host, secs * SECOND));
        assert_eq!(found, [true, false, false, false]);
        checks.commits(writer, 0, None);
        assert!(!checks.is_misjudged(0, taker, 18 * SECOND), "it went by the owner's own");
    }
}
