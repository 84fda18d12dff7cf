//! What concerns hosts rather than the disk: who believes what, who is stopped and why, what the watchdog is told.
//!
//! What the checks know of a host they have from outside: which renewals it saw completed, when it marked a lockspace dead, whom it
//! granted what. Times are the host's own.

use super::Checks;
use crate::clock::Micros;
use crate::layout;
use sanlock_lease::geometry::HostId;
use sanlock_lease::timing::{IoTimeout, MonoTime, WatchdogFire};
use std::ops::Range;

/// How long after its time the daemon may notice that a lockspace has failed: it looks once a second.
const LOOK_SECS: u64 = 2;

/// A lockspace that one of our daemons has joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Membership {
    life: u32,
    generation: u64,
    /// The io timeout that it has in there.
    io_timeout: IoTimeout,
    /// The last renewal seen to be complete.
    last_good: MonoTime,
    /// It is marked dead: nothing is written any more.
    gone: bool,
    /// Something that the daemon does not know uses it.
    used: bool,
    /// Its renewals found that it is not its own any more.
    corrupt: bool,
    /// It was last read, by its renewals or when it was to be left, as somebody else's, or of another generation.
    read_foreign: bool,
    /// Since when it is not this machine that wrote it last, or not with this generation.
    foreign_since: Option<Micros>,
    /// The host id.
    id: HostId,
    /// When its last renewal was seen to be complete.
    good_at: u64,
    /// It was given up, rightly, because it was not renewed in time, or not its host's any more. Nothing brings it back.
    failed: bool,
    /// When a renewal was seen to be complete so late that who was to hear of it may have given up by then.
    tardy_at: Option<u64>,
}

impl Membership {
    /// Seconds since its last renewal.
    pub(super) fn age(&self, now: MonoTime) -> u64 {
        now.secs_since(self.last_good)
    }

    /// 8T.
    pub(super) fn fail_secs(&self) -> u64 {
        self.io_timeout.renewal_fail_secs()
    }

    /// Whether it is marked dead.
    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    /// Whether it had a tardy renewal less than so many seconds ago.
    fn was_tardy(&self, now: u64, secs: u64) -> bool {
        self.tardy_at.is_some_and(|at| now.saturating_sub(at) < secs * crate::clock::SECOND)
    }
}

impl Checks {
    /// What the process holds.
    #[must_use]
    pub fn held_by(&self, host: HostId, pid: i32) -> Vec<u8> {
        self.holds_of(host).filter(|(_, p, _)| *p == pid).map(|(n, _, _)| n).collect()
    }

    /// What is held on a host: resource, process, and the daemon that granted it.
    pub(super) fn holds_of(&self, host: HostId) -> impl Iterator<Item = (u8, i32, u32)> {
        self.resources.iter().flat_map(move |(number, r)| {
            let alone = r.holder.filter(|h| h.host == host).map(|h| (*number, h.pid, h.life));
            let sharers = r.sharers.iter().filter(move |((h, _), _)| *h == host);
            alone.into_iter().chain(sharers.map(|((_, pid), s)| (*number, *pid, s.life)))
        })
    }

    /// The lockspaces that a host has joined.
    pub(super) fn memberships(&self, host: HostId) -> impl Iterator<Item = (u8, &Membership)> {
        let own = self.members.from((host, 0)).take_while(move |((h, _), _)| *h == host);
        own.map(|((_, disk), m)| (*disk, m))
    }

    /// Who holds a resource, one of them if it is shared: host and process.
    #[must_use]
    pub fn somebody_with(&self, resource: u8) -> Option<(HostId, i32)> {
        let r = self.resources.get(&resource)?;
        r.holder.map(|h| (h.host, h.pid)).or_else(|| r.sharers.keys().next().copied())
    }

    /// The release of a resource is accepted, or of one of several shared holds.
    pub fn given_up(&mut self, resource: u8, host: HostId, pid: i32, all: bool) {
        if !all && self.token_given_up(resource, host, pid) {
            return;
        }
        self.dropped(resource, host, pid);
        let was = self.registered.get_mut(&(host, pid)).is_some_and(|all| all.remove(&resource));
        if was {
            // In a failed lockspace nothing is done on disk: with this the last use of it may be over, and wdmd has not heard.
            self.user_ended(host, layout::disk_of(resource));
        }
    }

    /// The process holds nothing any more.
    pub fn dropped_by(&mut self, host: HostId, pid: i32) {
        for resource in self.held_by(host, pid) {
            self.dropped(resource, host, pid);
        }
    }

    /// Sabotage: somebody else has taken a host id.
    pub fn taken_by_stranger(&mut self, disk: u8, sector: u64) {
        *self.delta_generation.or_default((disk, sector)) += 1;
        self.renewed.insert((disk, sector), self.now);
        self.overwritten_by(disk, sector, None, 0);
    }

    /// Nothing is left of it.
    pub fn process_gone(&mut self, host: HostId, pid: i32) {
        for resource in self.registered.remove(&(host, pid)).unwrap_or_default() {
            self.user_ended.insert((host, layout::disk_of(resource)), self.now);
        }
    }

    /// Something that used this lockspace has ended.
    pub fn user_ended(&mut self, host: HostId, disk: u8) {
        self.user_ended.insert((host, disk), self.now);
    }

    /// Whether the last user of this lockspace may have ended without the daemon having had time to notice.
    #[must_use]
    pub fn used_lately(&self, host: HostId, disk: u8) -> bool {
        let ended = self.user_ended.get(&(host, disk)).copied();
        ended.is_some_and(|ended| self.now.saturating_sub(ended) < LOOK_SECS * crate::clock::SECOND)
    }

    /// Power is cut.
    pub fn reset(&mut self, host: HostId) {
        self.not_held_too_long(host, |_| true);
        for r in self.resources.values_mut().filter(|r| r.holder.is_some_and(|h| h.host == host)) {
            r.holder = None;
        }
        for r in self.resources.values_mut() {
            r.sharers.retain(|(h, _), _| *h != host);
        }
        self.registered.retain(|(h, _), _| *h != host);
        self.daemon_ended(host);
        // Its clock begins anew.
        self.told.retain(|(_, h), _| *h != host);
        let all: Vec<_> =
            self.stamps.iter().filter(|((_, h), _)| *h == host).map(|(key, at)| (*key, *at)).collect();
        for (key, stamp) in all {
            self.stamps.remove(&key);
            self.stamps_before.insert(key, stamp);
        }
    }

    /// The daemon is gone.
    pub fn daemon_ended(&mut self, host: HostId) {
        self.values_gone(host);
        self.orphans_left_behind(host);
        self.members.retain(|(h, _), _| *h != host);
    }

    /// S8: a lockspace is joined, with this io timeout.
    pub fn joined(
        &mut self,
        host: HostId,
        disk: u8,
        life: u32,
        generation: u64,
        (last_good, io_timeout): (MonoTime, IoTimeout),
    ) {
        let id = self.id_of(host);
        let fresh = Membership {
            life,
            generation,
            io_timeout,
            last_good,
            gone: false,
            used: false,
            corrupt: false,
            read_foreign: false,
            foreign_since: None,
            id,
            good_at: self.now,
            failed: false,
            tardy_at: None,
        };
        self.is_the_only_one(host, disk, &fresh);
        if let Some(before) = self.members.insert((host, disk), fresh) {
            self.violated(format!("S8: {host:?} joins lockspace {disk} as {fresh:?} while it is {before:?}"));
        }
        self.last_goods.insert((host, disk, life), (last_good, io_timeout));
        let before = self.stamps_before.remove(&(disk, host));
        self.marks.clocks_anew += u64::from(before.is_some_and(|before| last_good.secs() < before));
        self.generation_is(host, disk, generation);
        let key = (disk, id.delta_sector());
        let written =
            (self.delta_last.get(&key).map(|last| last.0), self.delta_generation.get(&key).copied());
        if written != (Some(host), Some(generation)) {
            self.overwritten_by(disk, key.1, written.0, written.1.unwrap_or(0));
        }
    }

    /// A sector of a lockspace was written, by one of our machines or by somebody else: whoever believes to have that host id is from now on
    /// to notice that it has not, or has it again.
    pub(super) fn overwritten_by(&mut self, disk: u8, sector: u64, machine: Option<HostId>, generation: u64) {
        let now = self.now;
        for ((host, of), m) in self.members.iter_mut() {
            if *of == disk && m.id.delta_sector() == sector {
                let own = machine == Some(*host) && generation == m.generation;
                m.foreign_since = if own { None } else { m.foreign_since.or(Some(now)) };
            }
        }
    }

    /// S9: a machine joins with a generation larger than any that it has a record of, whatever the disk says.
    pub fn not_joined_before(&mut self, host: HostId, disk: u8, recorded: u64, generation: u64) {
        if generation <= recorded {
            self.violated(format!(
                "S9: {host:?} joins lockspace {disk} with generation {generation}, its record has {recorded}"
            ));
        }
    }

    /// W4, every second.
    pub fn nobody_holds_too_long(&mut self, host: HostId, now: MonoTime) {
        self.old_orphans_end(host, now);
        self.not_held_too_long(host, |_| true);
    }

    /// W4: whoever holds something is gone, or its host is reset, before 8T + F have passed since the last renewal, by so much as decision 6
    /// promises. To be called when a hold ends, too: of these.
    pub(super) fn not_held_too_long(&mut self, host: HostId, of: impl Fn(&(u8, i32, u32)) -> bool) {
        let Some(now) = self.clocks.get(&host).map(|clock| clock.at(self.now)) else { return };
        let held = self.holds_of(host).filter(|hold| hold.1 != 0 && of(hold));
        let ages = held.map(|(n, _, life)| {
            let good = self.last_goods.get(&(host, layout::disk_of(n), life)).copied();
            let (good, io_timeout) = good.unwrap_or((MonoTime::default(), IoTimeout::DEFAULT));
            let dead_secs = self.fire.map_or(0, |fire| io_timeout.host_dead_secs(fire));
            (n, now.millis_since(good), dead_secs * 1000 - self.reset_before_ms)
        });
        let worst = ages.filter(|(_, age, most)| age > most).max_by_key(|(_, age, _)| *age);
        if let Some((number, age, most)) = worst {
            self.violated(format!(
                "W4: {number} is held on {host:?} until {age} ms after its last renewal, not {most}"
            ));
        }
    }

    /// A renewal of ours is seen to be complete, at this time of its host's clock.
    pub fn renewed(&mut self, host: HostId, disk: u8, life: u32, last_good: MonoTime, now: MonoTime) {
        let Some(member) = self.members.get_mut(&(host, disk)).filter(|m| m.life == life) else { return };
        let fail_secs = member.fail_secs();
        if now.secs_since(member.last_good) + LOOK_SECS >= fail_secs {
            member.tardy_at = Some(self.now);
        }
        member.last_good = member.last_good.max(last_good);
        member.good_at = self.now;
        let renewed = *member;
        self.last_goods.insert((host, disk, life), (renewed.last_good, renewed.io_timeout));
        // A daemon that stood still may have given the lockspace up before it hears of a renewal that was complete long ago.
        if !renewed.gone {
            self.is_the_only_one(host, disk, &renewed);
        }
    }

    /// A renewal, or whoever leaves, has read the host's record: is it what this machine wrote?
    pub fn read_own(&mut self, host: HostId, disk: u8, own: bool) {
        if let Some(member) = self.members.get_mut(&(host, disk)) {
            member.read_foreign = !own;
        }
    }

    /// W12 (13.3, first row): whether the host may write its record, to renew it or to free it. Not after it was read as somebody else's.
    #[must_use]
    pub fn may_write_own(&self, host: HostId, disk: u8) -> bool {
        self.members.get(&(host, disk)).is_none_or(|m| !m.corrupt && !m.read_foreign)
    }

    /// S8: nobody else believes to have that host id. Whoever has not renewed for 8T does not rely on it any more.
    fn is_the_only_one(&mut self, host: HostId, disk: u8, fresh: &Membership) {
        let believes = |(other, d): &(HostId, u8), m: &Membership| {
            let young = self.now.saturating_sub(m.good_at) < m.fail_secs() * crate::clock::SECOND;
            *other != host && *d == disk && m.id == fresh.id && !m.gone && !m.corrupt && young
        };
        let found = self.members.iter().find(|(key, m)| believes(key, m)).map(|(key, m)| (key.0, *m));
        if let Some((other, m)) = found {
            self.violated(format!(
                "S8: {host:?} is in lockspace {disk} as {fresh:?}, which {other:?} is, too: {m:?}"
            ));
        }
    }

    /// A join has read these sectors of a lockspace.
    pub fn looked(&mut self, machine: HostId, disk: u8, sectors: Range<u64>) {
        if sectors.contains(&self.id_of(machine).delta_sector()) {
            self.looked.insert((machine, disk), self.now);
        }
    }

    /// S8: what a host has just joined with is on disk. An older write of its host may land between its last read and now, as well as a
    /// moment later: the next renewal finds that, and [`Checks::ages`] asks for it.
    fn generation_is(&mut self, machine: HostId, disk: u8, generation: u64) {
        let host = self.id_of(machine);
        let key = (disk, host.delta_sector());
        let on_disk = self.delta_generation.get(&key).copied().unwrap_or(0);
        let last_read = self.looked.get(&(machine, disk)).copied().unwrap_or(Micros::MAX);
        let unseen = |landed: &Micros| *landed >= last_read;
        if on_disk != generation && self.overwritten.get(&key).is_some_and(unseen) {
            self.marks.joins_overwritten += 1;
        } else if on_disk != generation {
            self.violated(format!(
                "S8: {host:?} believes in generation {generation}, the disk says {on_disk}"
            ));
        }
    }

    /// The renewals found a foreign lease.
    pub fn lost(&mut self, host: HostId, disk: u8) {
        if let Some(member) = self.members.get_mut(&(host, disk)) {
            member.corrupt = true;
        }
    }

    /// The lockspace is marked dead: it must have deserved it. A renewal that was complete in time, but of which the front has not
    /// heard yet, does not help it: one that comes so late may come too late.
    pub fn gone(&mut self, host: HostId, disk: u8, now: MonoTime, asked: bool) {
        let Some(member) = self.members.get_mut(&(host, disk)) else { return };
        let fail_secs = member.fail_secs();
        member.gone = true;
        let age = now.secs_since(member.last_good);
        member.failed = member.corrupt || age >= fail_secs || member.was_tardy(self.now, LOOK_SECS);
        if !asked && !member.failed {
            self.violated(format!("W3: {host:?} gives up a living lockspace {disk}, age {age} s"));
        }
        self.orphans_end(host, disk);
    }

    /// The lockspace is left.
    pub fn left(&mut self, host: HostId, disk: u8, now: MonoTime) {
        self.left_by_orphans(host, disk);
        let member = self.members.remove(&(host, disk));
        if member.is_some_and(|m| self.has_expired(&m, now)) {
            self.left_failed.insert(host, self.now);
        }
    }

    /// Whether a lockspace that had failed was left so short a time ago that wdmd may not have been told yet.
    #[must_use]
    pub fn left_a_failed_one_lately(&self, host: HostId) -> bool {
        let left = self.left_failed.get(&host).copied();
        left.is_some_and(|left| self.now.saturating_sub(left) < LOOK_SECS * crate::clock::SECOND)
    }

    /// S14: whether the host may write to resources of this lockspace, with this generation of its host id.
    pub fn may_write(&self, host: HostId, disk: u8, generation: u64, now: MonoTime) -> bool {
        self.members.get(&(host, disk)).is_some_and(|m| {
            !m.gone && !m.corrupt && m.generation == generation && now.secs_since(m.last_good) < m.fail_secs()
        })
    }

    /// The generation that this daemon has joined with.
    pub(super) fn generation_on(&self, host: HostId, disk: u8, life: u32) -> Option<u64> {
        self.members.get(&(host, disk)).filter(|m| m.life == life).map(|m| m.generation)
    }

    /// S6, S8: whoever holds something in a lockspace that is too old, or not its host's any more, is being stopped. To be called
    /// whenever the front has done something, which it does at least once a second unless it stands still.
    pub fn ages(&mut self, host: HostId, life: u32, now: MonoTime) {
        let mut broken = Vec::new();
        for (disk, m) in self.memberships(host).filter(|(_, m)| m.life == life) {
            let age = now.secs_since(m.last_good);
            let too_old = !m.gone && age >= m.fail_secs() + LOOK_SECS;
            let here = |(n, _, l): &(u8, i32, u32)| layout::disk_of(*n) == disk && *l == life;
            let held = || self.holds_of(host).find(here);
            if let Some((number, _, _)) = too_old.then(held).flatten() {
                broken.push(format!(
                    "S6: {number} is held on {host:?}, its lockspace is {age} s old and alive"
                ));
            }
            if m.foreign_since.is_some_and(|since| !m.gone && self.stale_since(m, since)) {
                let on_disk = self.delta_generation.get(&(disk, m.id.delta_sector())).copied().unwrap_or(0);
                broken.push(format!("S8: {host:?} believes in {m:?}, the disk says generation {on_disk}"));
            }
        }
        for what in broken {
            self.violated(what);
        }
    }

    /// Who holds what in a lockspace that has failed so long ago that its users are not asked any more, but made to end.
    #[must_use]
    pub fn past_gentle_time(
        &self,
        host: HostId,
        life: u32,
        now: MonoTime,
        grace_secs: u64,
    ) -> Vec<(u8, i32)> {
        // Nearly always nothing has failed.
        if !self.memberships(host).any(|(_, m)| m.gone) {
            return Vec::new();
        }
        let over = |disk: u8| {
            let member = self.members.get(&(host, disk)).filter(|m| m.life == life && m.gone);
            member.is_some_and(|m| now.secs_since(m.last_good) >= m.fail_secs() + grace_secs + LOOK_SECS)
        };
        let held = self.holds_of(host).filter(|(n, _, l)| *l == life && over(layout::disk_of(*n)));
        held.map(|(number, pid, _)| (number, pid)).collect()
    }

    /// Whether this was longer ago than 8T. A renewal that works finds it within its interval; one that hangs may not, and then the
    /// lockspace has failed by this time.
    fn stale_since(&self, member: &Membership, since: u64) -> bool {
        self.now.saturating_sub(since) > member.fail_secs() * crate::clock::SECOND
    }

    /// True time, for rules that no host's clock decides.
    pub fn time_is(&mut self, now: u64) {
        self.now = now;
    }

    /// Whether a lockspace in which the process was granted something is dead.
    #[must_use]
    pub fn has_lost_a_lockspace(&self, host: HostId, pid: i32) -> bool {
        let all = self.registered.get(&(host, pid)).into_iter().flatten();
        let dead = |r: &u8| self.members.get(&(host, layout::disk_of(*r))).is_some_and(|m| m.gone);
        all.into_iter().any(dead)
    }

    /// W3: a process is signalled. One of the lockspaces it was granted something in must be dead.
    pub fn killed(&mut self, host: HostId, pid: i32) {
        if !self.has_lost_a_lockspace(host, pid) {
            let all = self.registered.get(&(host, pid)).cloned().unwrap_or_default();
            self.violated(format!(
                "W3: {pid} of {host:?} is signalled, all lockspaces it uses are well: {all:?}"
            ));
        }
    }

    /// The USED flag of a lockspace is set or cleared.
    pub fn used_flag(&mut self, host: HostId, disk: u8, on: bool) {
        if let Some(member) = self.members.get_mut(&(host, disk)) {
            if member.used && !on {
                self.user_ended.insert((host, disk), self.now);
            }
            member.used = on;
        }
    }

    /// Whether it is set.
    #[must_use]
    pub fn has_used_flag(&self, host: HostId, disk: u8) -> bool {
        self.members.get(&(host, disk)).is_some_and(|m| m.used)
    }

    /// The lockspaces that were not renewed in time, or are not the host's any more.
    #[must_use]
    pub fn expired(&self, host: HostId, now: MonoTime) -> Vec<u8> {
        self.memberships(host).filter(|(_, m)| self.has_expired(m, now)).map(|(disk, _)| disk).collect()
    }

    /// A renewal after its time, or too short before it for wdmd to hear of it, does not undo that the watchdog counts.
    fn has_expired(&self, member: &Membership, now: MonoTime) -> bool {
        let fire_secs = self.fire.map_or(0, WatchdogFire::secs);
        member.corrupt
            || member.failed
            || now.secs_since(member.last_good) >= member.fail_secs()
            || member.was_tardy(self.now, fire_secs)
    }

    /// How many leases are held on this host.
    #[must_use]
    pub fn held_on(&self, host: HostId) -> usize {
        self.holds_of(host).count()
    }

    /// Whether a process, or what is left of one, was granted something in this lockspace and has not given it up.
    #[must_use]
    pub fn used(&self, host: HostId, disk: u8) -> bool {
        let here = |r: &u8| layout::disk_of(*r) == disk;
        self.has_used_flag(host, disk)
            || self.holds_of(host).any(|(r, pid, _)| pid < 0 && here(&r) && self.counts(host, disk, pid))
            || self.registered.iter().any(|((h, _), all)| *h == host && all.iter().any(here))
    }

    /// S7: the watchdog is told when the lockspace expires: not later than 8T after what is on disk.
    pub fn expires(&mut self, host: HostId, disk: u8, expiry: u64, fail_secs: u64) {
        let landed = self.stamps.get(&(disk, host)).copied().unwrap_or(0);
        // 0: freed meanwhile; the message that takes the expiry back is on its way.
        if landed != 0 && expiry > landed + fail_secs {
            self.violated(format!(
                "S7: {host:?} says that {disk} expires at {expiry}, it was renewed at {landed}"
            ));
        }
    }

    /// S7: the watchdog forgets a lockspace: nobody may hold anything in it.
    pub fn disarmed(&mut self, host: HostId, life: u32, disk: u8) {
        self.marks.disarmed += 1;
        if self.members.get(&(host, disk)).is_some_and(|m| m.life == life && m.used) {
            self.violated(format!("S7: {host:?} disarms lockspace {disk}, which is in use (USED)"));
        }
        let here = |n: u8, pid: i32| layout::disk_of(n) == disk && self.counts(host, disk, pid);
        let held = self.holds_of(host).find(|(n, pid, l)| here(*n, *pid) && *l == life);
        if let Some((number, pid, _)) = held {
            let what = format!("S7: {host:?} disarms lockspace {disk} while {pid} holds {number}");
            self.violated(what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SECOND;
    use sanlock_lease::record::RawLeader;

    fn host() -> HostId {
        HostId::new(1).unwrap()
    }

    fn leader(generation: u64) -> RawLeader {
        RawLeader { owner_generation: generation.into(), timestamp: 5.into(), ..RawLeader::zeroed() }
    }

    /// A host joins with generation 2, after a write of generation 1 has landed and it has looked, one or the other first.
    fn joined(looks_first: bool, orphan: bool) -> Vec<String> {
        let mut checks = Checks::default();
        let sector = (0, host().delta_sector());
        checks.time_is(1000 * SECOND);
        checks.delta_landed(sector, host(), &leader(2), false);
        for look in [looks_first, !looks_first] {
            checks.time_is(checks.now + SECOND);
            if look {
                checks.looked(host(), 0, 0..1);
                checks.looked(host(), 1, 0..1);
            } else {
                checks.delta_landed(sector, host(), &leader(1), orphan);
            }
        }
        checks.looked(host(), 0, 1..9);
        checks.joined(host(), 0, 1, 2, (MonoTime::from_secs(990), IoTimeout::DEFAULT));
        checks.violations.into_iter().filter(|what| what.starts_with("S8")).collect()
    }

    #[test]
    fn who_joins_may_be_overwritten_after_its_last_read_by_an_older_write_only() {
        assert_eq!(joined(true, true), [""; 0]);
        assert_eq!(joined(false, true).len(), 1, "its last read was later");
        assert_eq!(joined(true, false).len(), 1, "somebody lives who writes this");
    }

    #[test]
    fn who_was_overwritten_when_it_joined_has_to_notice() {
        let mut checks = Checks::default();
        let sector = (0, host().delta_sector());
        checks.time_is(1000 * SECOND);
        checks.looked(host(), 0, 0..1);
        checks.delta_landed(sector, host(), &leader(1), true);
        checks.joined(host(), 0, 1, 2, (MonoTime::from_secs(1000), IoTimeout::DEFAULT));
        checks.time_is(1079 * SECOND);
        checks.ages(host(), 1, MonoTime::from_secs(1001));
        assert_eq!(checks.violations, [""; 0]);
        checks.time_is(1081 * SECOND);
        checks.ages(host(), 1, MonoTime::from_secs(1001));
        assert_eq!(checks.violations.len(), 1, "{:?}", checks.violations);
    }

    #[test]
    fn who_has_just_given_up_a_lease_used_its_lockspace_until_then() {
        let mut checks = Checks::default();
        checks.registered.or_default((host(), 100)).insert(0);
        checks.time_is(1000 * SECOND);
        checks.given_up(0, host(), 100, true);
        assert!(!checks.used(host(), 0));
        assert!(checks.used_lately(host(), 0));
        checks.time_is((1000 + LOOK_SECS) * SECOND);
        assert!(!checks.used_lately(host(), 0), "by now the watchdog must not count it");
    }
}
