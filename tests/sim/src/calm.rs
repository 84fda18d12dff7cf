//! The end of the storm, and what is asked of the calm after it: that everybody had a turn.

use crate::clock::{Micros, SECOND};
use crate::daemon::Thread;
use crate::host::Host;
use crate::layout;
use crate::peer::Membership;
use crate::world::{Event, Io, World};
use sanlock_lease::geometry::HostId;
use sanlock_lease::record::RawLeader;

/// How a lease is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kept {
    Shared,
    Exclusive,
}

impl World {
    /// The storm is over: paths are back, daemons go on, what would hang for ever is ended by a reset.
    pub(crate) fn calm_down(&mut self) {
        self.calm = true;
        self.say(|_| "calm".to_owned());
        if self.settings.format_mean_secs > 0 {
            // What is in pieces does not wait for the next one of the storm.
            self.at(self.now + SECOND, Event::Formats);
        }
        for host in 0..self.hosts.len() {
            self.good_paths(host);
            self.hosts[host].very_late = false;
            let stalled: Vec<Thread> =
                self.daemon(host).map(|d| d.stalled.iter().copied().collect()).unwrap_or_default();
            self.wd_calm(host);
            self.resume(host, None);
            for thread in stalled {
                self.resume(host, Some(thread));
            }
            let stuck = self.ios.values().any(|io| io.host == host && (io.very_late || io.ends.is_none()));
            let lost = self.hosts[host].claims != self.hosts[host].id;
            if (stuck || lost) && self.hosts[host].up {
                self.reset(host);
            }
            self.let_go(host);
        }
        // Nobody has a host id or a lease again before its late write has ended (rule R3). To join and to have a turn takes as long as
        // ever after that.
        let rest = self.settings.calm_secs() - self.settings.io_timeout.host_dead_secs(self.settings.fire);
        self.end = self.end.max(self.last_write_ends() + rest * SECOND);
    }

    /// When the last write in flight has ended for good: after its completion it may be in doubt.
    fn last_write_ends(&self) -> Micros {
        let end = |io: &Io| {
            let clock = &self.hosts[io.host].clock;
            let seen = io.ends?;
            let doubt_ms = io.will_be_in_doubt().map_or(0, |_| io.doubt_ms);
            Some(clock.when(clock.at(seen).plus_millis(doubt_ms)).max(seen))
        };
        self.flying().filter(|io| io.is_write()).filter_map(end).max().unwrap_or(self.now)
    }

    /// Whoever clings to a lease lets go, and what nobody could kill ends.
    fn let_go(&mut self, host: usize) {
        if !self.hosts[host].up {
            return;
        }
        let (epoch, id) = (self.hosts[host].epoch, self.hosts[host].id);
        let all: Vec<(i32, bool, bool)> =
            self.hosts[host].processes.iter().map(|(pid, p)| (*pid, p.alive, p.conn.is_some())).collect();
        for (pid, alive, connected) in all {
            if !alive {
                self.at(self.now + SECOND, Event::DescendantEnds { host, epoch, pid });
            } else if !connected && !self.checks.held_by(id, pid).is_empty() {
                self.at(self.now + SECOND, Event::Exit { host, epoch, pid });
            } else if self.dice.per_mille(500) || self.has_killpath(host, pid) {
                self.at(self.now + 2 * SECOND, Event::Exit { host, epoch, pid });
            } else if self.is_idle(host, pid) {
                self.turn_after(host, pid, SECOND);
            }
        }
        for resource in 0..self.settings.resources {
            self.peer_clings(host, resource, SECOND);
        }
    }

    /// L1, L3, L4: after the storm every host had its turn on every resource.
    pub(crate) fn progress_made(&mut self) {
        if !self.checks.violations.is_empty() {
            return;
        }
        for resource in self.settings.all_resources() {
            if self.is_stuck(resource, None) {
                self.checks.marks.generations_fell += 1;
                continue;
            }
            let kept = self.kept_at_the_wrong_place(resource);
            self.checks.marks.kept_for_good += u64::from(kept.is_some());
            if kept == Some(Kept::Exclusive) {
                continue;
            }
            let shared = self.settings.shared_per_mille > 0;
            let mut late: Vec<(HostId, &str)> = Vec::new();
            for h in self.hosts.iter().filter(|h| h.up) {
                if h.wrong_leg.is_some() && self.is_stuck(resource, h.wrong_leg) {
                    continue;
                }
                let got = |shared| h.granted_in_calm.get(&(resource, shared)).is_some_and(|n| *n > 0);
                if kept.is_none() && !got(false) && (!h.is_reference() || layout::disk_of(resource) == 0) {
                    late.push((h.id, "never got"));
                }
                if shared && !h.is_reference() && !got(true) {
                    late.push((h.id, "never shared"));
                }
            }
            for (id, never) in late {
                self.checks.violated(format!("L1/L3/L4: {id:?} {never} resource {resource} in the calm"));
            }
        }
        for host in 0..self.hosts.len() {
            let h = &self.hosts[host];
            let joined = match &h.peer {
                Some(peer) => !h.up || matches!(peer.membership, Membership::Joined { .. }),
                None => h.daemon.as_ref().is_some_and(|d| {
                    d.manager.lockspaces().filter(|(_, ls)| ls.usable()).count()
                        == usize::from(self.settings.disks)
                }),
            };
            if !joined {
                let what = format!("L: {:?} is not joined everywhere at the end", h.id);
                self.checks.violated(what);
            }
        }
    }

    /// The disks of a lease disagree for good, for everybody or for a host to which one of them is lost, or a late renewal brought back
    /// an old generation of the owner, which had no record of the newer one: then its leases of the newer generation stay (W14).
    fn is_stuck(&self, resource: u8, lost: Option<u8>) -> bool {
        // No majority agrees, and the disks that are left differ in what the highest version cannot decide: how many hosts count, or
        // the name.
        let living: Vec<u8> = self.living_legs(resource, lost).collect();
        let basis = |leg: u8| {
            let leader = layout::leader_on(&self.disk, resource, leg);
            (leader.num_hosts, leader.resource_name)
        };
        let differ = living.windows(2).any(|pair| basis(pair[0]) != basis(pair[1]));
        let in_force = layout::leader_in_force(&self.disk, resource);
        let Some(leader) = in_force.filter(|_| !(differ && living.len() < usize::from(self.settings.legs)))
        else {
            return differ;
        };
        let Some(owner) = HostId::new(leader.owner_id.get()).filter(|_| leader.timestamp.get() != 0) else {
            return false;
        };
        let delta = layout::delta_on(&self.disk, layout::disk_of(resource), owner);
        delta.owner_generation.get() < leader.owner_generation.get()
    }

    /// The legs of a lease on disks that have not failed for ever, but for one that is lost to a host.
    fn living_legs(&self, resource: u8, lost: Option<u8>) -> impl Iterator<Item = u8> + '_ {
        let lives =
            move |leg: &u8| Some(layout::leg_disk(resource, *leg)) != self.dead_disk && Some(*leg) != lost;
        (0..self.settings.legs).filter(lives)
    }

    /// How a lease is held that its host cannot give back: it names another place for one of the disks, and to it the disks that are left
    /// disagree for good. It lives, so nobody can take the lease from it.
    fn kept_at_the_wrong_place(&self, resource: u8) -> Option<Kept> {
        let owner =
            layout::leader_in_force(&self.disk, resource).filter(|leader| leader.timestamp.get() != 0);
        let stuck = |h: &&Host| h.up && h.wrong_leg.is_some() && self.is_stuck(resource, h.wrong_leg);
        let kept = self.hosts.iter().filter(stuck).filter_map(|h| {
            let generation =
                layout::delta_on(&self.disk, layout::disk_of(resource), h.claims).owner_generation;
            let owns = |leader: &RawLeader| {
                leader.owner_id.get() == h.claims.get() && leader.owner_generation == generation
            };
            let shares = |leg| {
                let mode = layout::block_on(&self.disk, resource, leg, h.claims).mode;
                mode.is_shared() && mode.generation == generation
            };
            if owner.as_ref().is_some_and(owns) {
                Some(Kept::Exclusive)
            } else {
                self.living_legs(resource, h.wrong_leg).any(shares).then_some(Kept::Shared)
            }
        });
        kept.max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Area, SimView};
    use crate::host::JobKey;
    use crate::settings::Settings;
    use sanlock_lease::geometry::SectorSize;
    use sanlock_lease::machine::{Content, IoFailure, OpId};
    use std::rc::Rc;

    const DOUBT_SECS: u64 = 140;

    /// How much longer the calm is because of a write in flight that ends at this second of the run.
    fn longer(ends_secs: u64, failure: Option<IoFailure>) -> u64 {
        let mut world = World::new(Settings::quiet(), 1, false);
        let usual = world.end;
        let result = match failure {
            Some(failure) => Err(failure),
            None => Ok(SimView::new(SectorSize::B512, 0, 0)),
        };
        let write = Some((0, Rc::new(Content::Value([].into()))));
        let flying = Io {
            host: 0,
            epoch: 0,
            claims: crate::layout::host_id(1),
            job: JobKey::Renewal(1),
            serial: 1,
            op: OpId(1),
            write,
            area: Area::Lockspace(0),
            to_land: false,
            lands: Micros::MAX,
            since: 0,
            timed_out: true,
            doubt_ms: DOUBT_SECS * 1000,
            doubtful: false,
            failed_late: false,
            deadline: 0,
            ends: Some(ends_secs * SECOND),
            very_late: false,
            result,
        };
        world.ios.insert(1, Box::new(flying));
        world.now = world.settings.stormy_secs * SECOND;
        world.calm_down();
        world.end.saturating_sub(usual) / SECOND
    }

    #[test]
    fn the_calm_goes_on_after_the_last_write_has_ended_for_good() {
        let stormy = Settings::quiet().stormy_secs;
        let eio = Some(IoFailure::Os(5));
        assert_eq!(longer(stormy + 140, None), 0, "as one that died when the calm began");
        assert_eq!(longer(stormy + 150, None), 10);
        assert_eq!(longer(stormy, eio), 0);
        assert_eq!(longer(stormy + 150, eio), 10 + DOUBT_SECS);
        assert_eq!(longer(stormy + 150, Some(IoFailure::Os(28))), 10, "it says that nothing will land");
    }
}
