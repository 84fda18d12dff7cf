//! Who a machine says it is: its host id and its host name, as configured when its daemon starts.
//!
//! # Fault model
//!
//! * A daemon starts with a new name: the original's default name is a new one every time. No two machines ever have the same name
//!   (assumption A8).
//! * A machine comes back with another host id than its own, at once or after any time, with or without a reset: one that nobody has,
//!   or one that another machine has, has had, or is just about to take. What is left of its former daemon goes on with the former one.
//! * So two machines may have one host id, which A8 rules out. One of them must lose. That holds as long as no write to that host id
//!   lands late ([`World::lands_before`]): a claim or a release within its limit or never, a renewal before anybody else
//!   may take the id, or never. `tests/timelines.rs` has what a late renewal does here. Host ids that only one machine has ever been
//!   configured with have late writes like everywhere else; once a second one comes, what is still to land late never does.

use crate::clock::Micros;
use crate::disk::Area;
use crate::host::JobKey;
use crate::layout;
use crate::world::{Io, World};
use sanlock_lease::delta::JoinError;
use sanlock_lease::geometry::HostId;
use sanlock_lease::machine::IoFailure;

impl World {
    /// A daemon is about to start: its administrator may have changed something.
    pub(crate) fn new_identity(&mut self, host: usize) {
        let own = self.hosts[host].id;
        if self.hosts[host].is_reference() {
            return;
        }
        let claims = if self.calm {
            own
        } else if self.dice.per_mille(self.settings.misconfigured_per_mille) {
            self.wrong_id(host)
        } else if self.dice.per_mille(500) {
            own
        } else {
            self.hosts[host].claims
        };
        if !self.calm && self.dice.per_mille(self.settings.renamed_per_mille) {
            self.hosts[host].names += 1;
            self.checks.marks.new_names += 1;
        }
        self.hosts[host].claims = claims;
        self.checks.claims_to_be(own, claims);
        if claims != own {
            self.dispute(claims);
            let twin = self.has_twin(host);
            self.checks.marks.misconfigured += 1;
            self.checks.marks.twins += u64::from(twin);
            self.say(|_| format!("{own:?} is configured as {claims:?}, twin {twin}"));
        }
    }

    /// Some other machine's, or nobody's; often that of one that holds something.
    fn wrong_id(&mut self, host: usize) -> HostId {
        let mut holders = self.settings.all_resources().filter_map(|r| self.checks.somebody_with(r));
        let holder = holders.find(|(machine, _)| *machine != self.hosts[host].id).map(|(machine, _)| machine);
        if let Some(machine) = holder.filter(|_| self.dice.per_mille(500)) {
            let found = self.hosts.iter().find(|h| h.id == machine && !h.is_reference());
            if let Some(other) = found {
                return other.claims;
            }
        }
        // The last one is nobody's; those before it are the reference peers', who are left alone.
        match self.dice.between(0, self.settings.ours) {
            0 => layout::host_id(self.settings.host_ids()),
            id => layout::host_id(id),
        }
    }

    /// Whether another machine that is up has the same host id.
    pub(crate) fn has_twin(&self, host: usize) -> bool {
        let claims = self.hosts[host].claims;
        self.hosts.iter().enumerate().any(|(other, h)| other != host && h.up && h.claims == claims)
    }

    /// Another machine than its own has this host id from now on. Of what is to land there late nothing does any more, and it fails.
    fn dispute(&mut self, id: HostId) {
        self.disputed.insert(id);
        let there = |io: &Io| {
            matches!(io.area, Area::Lockspace(_))
                && io.write.as_ref().is_some_and(|(n, _)| *n == id.delta_sector())
        };
        for io in self
            .ios
            .values_mut()
            .filter(|io| there(io) && io.to_land && (io.doubtful || io.lands >= io.deadline))
        {
            io.to_land = false;
            io.result = Err(IoFailure::Os(5));
        }
    }

    /// When a write of its host id lease has landed or never does, from now, where machines have been configured with each other's host
    /// id: a claim or a release at its limit, a renewal before anybody else may take the id.
    pub(crate) fn lands_before(&self, host: usize, job: JobKey, limit: Micros) -> Option<Micros> {
        let h = &self.hosts[host];
        if !self.disputed.contains(&h.claims) {
            return None;
        }
        match job {
            JobKey::Join(_) | JobKey::Leave(_) => Some(limit),
            JobKey::Renewal(ls) => {
                let renewal = h.jobs.get(&job)?.work.renewal()?;
                let io_timeout = h.daemon.as_ref()?.workers.get(&ls)?.shared.io_timeout;
                let dead = renewal.last_good().plus_secs(io_timeout.host_dead_secs(h.fire));
                // By the fastest clock.
                let left = h.clock.when(dead).saturating_sub(self.now);
                Some(left - left * 2 * self.settings.drift_ppm.min(400_000) / 1_000_000)
            }
            _ => None,
        }
    }

    /// A join ended without success.
    pub(crate) fn refused_id(&mut self, error: &JoinError) {
        self.checks.marks.refused_ids += u64::from(matches!(error, JoinError::Busy { .. }));
        self.checks.marks.lost_ids += u64::from(matches!(error, JoinError::Lost { .. }));
    }
}
