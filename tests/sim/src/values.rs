//! What holders do with a lease besides holding it: value blocks, names, questions.
//!
//! Values: half of the acquires of a run that has any ask for the value block; holders read it, exclusive ones also set it, whole or
//! the beginning of it. Every value set is different from every other.
//! Names: a lease may get its other name with a release. Whoever wants it looks on the disk under which name it goes.
//! Versions: an acquire may demand the version that the leader showed when its client looked, or the one before.

use crate::clients::Asked;
use crate::layout;
use crate::world::World;
use sanlock_lease::name::Name;
use sanlock_lease::text::{DiskSpec, ResourceSpec};
use sanlock_manager::{Command, ConnId, ReleaseWhat, Reply, Target, Work};
use std::collections::BTreeSet;

impl World {
    /// The names and the place of a resource, as a client of this host would know them: under the name that its daemon holds it by, or
    /// else the one on the disk.
    pub(crate) fn spec_of(&self, host: usize, resource: u8) -> ResourceSpec {
        let spec = layout::resource_spec(resource, self.settings.legs, self.settings.geometry);
        let daemon = self.hosts[host].daemon.as_ref();
        let held = daemon.and_then(|d| {
            let here = |r: &&sanlock_manager::Resource| r.spec.disks == spec.disks;
            d.manager.resources().map(|(_, r)| r).filter(here).find(|r| matches!(r.work, Work::Held { .. }))
        });
        let on_disk = || layout::name_on(&self.disk, resource, self.dead_disk);
        ResourceSpec { name: held.map_or_else(on_disk, |r| r.spec.name), ..spec }
    }

    /// The resource that lies on these disks.
    pub(crate) fn resource_of(&self, disks: &[DiskSpec]) -> Option<u8> {
        disks.first().and_then(|place| layout::resource_at(place, self.settings.geometry))
    }

    /// Whether a holder looks at something now, rather than acquire or release.
    pub(crate) fn looks_at_holds(&mut self) -> bool {
        self.settings.values_per_mille > 0 && self.dice.per_mille(250)
    }

    /// A holder reads or sets a value, or asks what it holds.
    pub(crate) fn look_at_holds(&mut self, host: usize, pid: i32, conn: ConnId, held: &[u8]) {
        let id = self.hosts[host].id;
        let last = (held.len() as u64).saturating_sub(1);
        let at = usize::try_from(self.dice.between(0, last)).unwrap_or(0);
        let Some(resource) = held.get(at).copied() else { return };
        let ResourceSpec { lockspace, name, .. } = self.spec_of(host, resource);
        let exclusive = self.checks.holds(resource, id, pid) == Some(false);
        let (asked, command) = match self.dice.between(0, 5) {
            0 => (Asked::Inquire { pid }, Command::Inquire { target: Target::Own }),
            1..=3 if exclusive => {
                let bytes = self.new_value(resource);
                let asked = Asked::SetValue { pid, resource, bytes: bytes.clone() };
                (asked, Command::SetLvb { lockspace, name, bytes })
            }
            _ => {
                let length = if self.dice.per_mille(700) { 0 } else { 40 };
                (Asked::GetValue { pid, resource }, Command::GetLvb { lockspace, name, length })
            }
        };
        self.ask(host, conn, asked, command);
        self.wait_for_reply(host, pid);
    }

    /// A value unlike any other.
    fn new_value(&mut self, resource: u8) -> Vec<u8> {
        self.last_value += 1;
        let size = self.disk.sector_size().slice_len();
        let length = if self.dice.per_mille(600) { size } else { 48 };
        let text = format!("value {} of resource {resource}; ", self.last_value);
        text.bytes().cycle().take(length).collect()
    }

    /// What the daemon says.
    pub(crate) fn value_replied(&mut self, host: usize, asked: &Asked, reply: &Reply) {
        let id = self.hosts[host].id;
        let (Asked::Inquire { pid } | Asked::GetValue { pid, .. } | Asked::SetValue { pid, .. }) = *asked
        else {
            return;
        };
        match (asked, reply) {
            (Asked::GetValue { resource, .. }, Reply::Value(bytes)) => {
                self.say(|_| format!("{id:?} {pid} reads a value of {resource}"));
                if self.checks.holds(*resource, id, pid).is_some() {
                    self.checks.value_got(*resource, id, bytes, &self.disk);
                }
            }
            (Asked::SetValue { resource, bytes, .. }, Reply::Result(0)) => {
                self.say(|_| format!("{id:?} {pid} sets {:?}", String::from_utf8_lossy(&bytes[..20])));
                self.checks.value_set(*resource, id, bytes, &self.disk);
            }
            (Asked::Inquire { .. }, Reply::Held(specs)) => {
                let place = |spec: &ResourceSpec| Some((self.resource_of(&spec.disks)?, spec.shared));
                let said: BTreeSet<(u8, bool)> = specs.iter().filter_map(place).collect();
                if self.hosts[host].processes.get(&pid).is_some_and(|p| p.conn.is_some()) {
                    self.checks.inquired(id, pid, &said);
                }
            }
            (Asked::GetValue { .. } | Asked::SetValue { .. }, Reply::Result(code)) => {
                let refused = u64::from(*code != 0);
                self.checks.marks.values_refused += refused;
                let fits = self.settings.geometry.lvb_fits();
                self.checks.marks.values_without_room += if fits { 0 } else { refused };
            }
            _ => {}
        }
        let after = self.hold_time();
        self.answered(host, pid, after);
    }

    /// The other name of a lease, if it is to get it by the release of what is held.
    pub(crate) fn renames(&mut self, host: usize, pid: i32, given: &[u8]) -> Option<(Name, Name)> {
        let [resource] = *given else { return None };
        let id = self.hosts[host].id;
        let exclusive = self.checks.holds(resource, id, pid) == Some(false);
        if !exclusive || self.calm || !self.dice.per_mille(self.settings.renames_per_mille) {
            return None;
        }
        let from = self.spec_of(host, resource).name;
        let other = layout::other_name(resource);
        Some((from, if from == other { layout::resource(resource) } else { other }))
    }

    /// What a release is asked to give up, and the new name if there is one.
    pub(crate) fn what_to_release(
        &mut self,
        host: usize,
        pid: i32,
        given: &[u8],
        all: bool,
    ) -> (ReleaseWhat, Option<Name>) {
        if let (Some((from, to)), Some(resource)) = (self.renames(host, pid, given), given.first()) {
            let from = (layout::lockspace(layout::disk_of(*resource)), from);
            return (ReleaseWhat::Renamed { from, to }, Some(to));
        }
        let names = given.iter().map(|r| self.spec_of(host, *r)).map(|spec| (spec.lockspace, spec.name));
        (if all { ReleaseWhat::All } else { ReleaseWhat::Named(names.collect()) }, None)
    }

    /// The version an acquire demands, if it does.
    pub(crate) fn demands(&mut self, resource: u8) -> Option<u64> {
        if self.calm || !self.dice.per_mille(self.settings.demands_per_mille) {
            return None;
        }
        let leader = layout::leader_in_force(&self.disk, resource)?;
        Some(leader.lver.get().saturating_sub(u64::from(self.dice.per_mille(200)))).filter(|lver| *lver > 0)
    }

    /// Leases of which a version was demanded are granted.
    pub(crate) fn check_demands(&mut self, host: usize, pid: i32, demanded: &[(u8, u64)]) {
        let id = self.hosts[host].id;
        for (resource, lver) in demanded {
            let holder = self.checks.holder(*resource).filter(|h| h.host == id && h.pid == pid);
            if let Some(holder) = holder {
                self.checks.demand_met(*resource, id, *lver, holder.lver);
            }
        }
    }

    /// The number of hosts that the lease is to have from now on, if it is to be another one: never fewer than there are.
    pub(crate) fn wants_num_hosts(&mut self) -> Option<u64> {
        let hosts = self.hosts.len() as u64;
        let changes = !self.calm && self.dice.per_mille(self.settings.demands_per_mille);
        changes.then(|| self.dice.between(hosts, 3 * hosts + 4))
    }

    /// Whether an acquire asks for the value block.
    pub(crate) fn wants_value(&mut self) -> bool {
        self.dice.per_mille(self.settings.values_per_mille)
    }
}
