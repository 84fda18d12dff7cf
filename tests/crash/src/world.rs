//! A lockspace, a resource on one or more disks, and hosts that join, take, change and give up.

use crate::disk::{Area, Areas, Disk, Disks};
use crate::run::{Between, Recorder, Run};
use sanlock_lease::delta::{DeltaAcquire, DeltaConfig, Joined, RenewOutcome, Renewal};
use sanlock_lease::format;
use sanlock_lease::geometry::{Geometry, HostId};
use sanlock_lease::hosts::HostSeen;
use sanlock_lease::machine::{HostView, Machine};
use sanlock_lease::name::Name;
use sanlock_lease::paxos::acquire::{AcquireOptions, AcquireOutcome, Mode, PaxosAcquire};
use sanlock_lease::paxos::release::ReleaseOutcome;
use sanlock_lease::paxos::{AcquireError, Held, PaxosConfig, PaxosRelease, PaxosShare};
use sanlock_lease::record::{HostBlock, RawLeader};
use sanlock_lease::timing::{IoTimeout, MonoTime, WatchdogFire};
use std::collections::BTreeMap;

/// Highest host id that may use the resource.
pub const NUM_HOSTS: u16 = 8;
/// How often entering shared mode is tried again.
const SH_RETRIES: u32 = 8;

/// What a process holds, or relies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Nothing.
    Nothing,
    /// A shared lease.
    Shared,
    /// An exclusive lease.
    Exclusive,
}

/// A host of the lockspace.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// Its host id lease as last written.
    pub joined: Joined,
    /// When it stopped for good, if it has.
    pub died: Option<MonoTime>,
    /// What a process of it may be using.
    pub hold: Hold,
    /// The lease that goes with it.
    pub held: Option<Held>,
}

/// A disk and everybody on it. A copy of it is another future.
#[derive(Clone)]
pub struct World {
    /// The disks.
    pub disks: Disks,
    /// Where things are on them.
    pub areas: Areas,
    /// One clock for all: how clocks drift apart is the simulator's business.
    pub now: MonoTime,
    /// Sizes of lockspace and resource.
    pub geometry: Geometry,
    /// The resource's name.
    pub resource: Name,
    /// By host id.
    pub hosts: BTreeMap<u64, Host>,
}

/// What the renewals of a host have seen of the others.
#[derive(Clone, Debug, Default)]
pub struct Table(BTreeMap<u64, HostSeen>);

impl HostView for Table {
    fn seen(&self, host: HostId) -> Option<HostSeen> {
        self.0.get(&host.get()).copied()
    }
}

/// A name that fits.
#[must_use]
pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

/// A host id that exists.
#[must_use]
pub fn host_id(id: u64) -> HostId {
    HostId::new(id).unwrap()
}

impl World {
    /// The lockspace `ls` and the resource `res` on this many disks, just formatted. The first disk holds the lockspace too.
    #[must_use]
    pub fn new(geometry: Geometry, disks: usize) -> Self {
        let bytes = geometry.align().bytes();
        let area = |disk, offset| Area { disk, offset, bytes };
        let areas = Areas {
            lockspace: Some(area(0, 0)),
            resource: (0..disks).map(|disk| area(disk, bytes)).collect(),
        };
        let mut world = Self {
            disks: Disks((0..disks).map(|_| Disk::new(2 * bytes)).collect()),
            areas,
            now: MonoTime::from_secs(1000),
            geometry,
            resource: name("res"),
            hosts: BTreeMap::new(),
        };
        let lockspace = format::Lockspace { name: name("ls"), geometry, io_timeout: Self::io_timeout() };
        world.disks.write(area(0, 0), 0, &lockspace.area());
        world.disks.write(area(0, 0), 0, &lockspace.first_sector());
        let resource = format::Resource {
            lockspace: name("ls"),
            name: world.resource,
            geometry,
            num_hosts: NUM_HOSTS,
            cleared_at: None,
        };
        for disk in 0..disks {
            world.disks.write(area(disk, bytes), 0, &resource.area());
        }
        world
    }

    /// Every host's.
    #[must_use]
    pub fn io_timeout() -> IoTimeout {
        IoTimeout::DEFAULT
    }

    /// After this many seconds of silence, and one more, a host is dead.
    #[must_use]
    pub fn dead_secs() -> u64 {
        Self::io_timeout().host_dead_secs(WatchdogFire::DEFAULT) + 1
    }

    /// Host `id` as a member of the lockspace.
    #[must_use]
    pub fn delta_config(id: u64) -> DeltaConfig {
        DeltaConfig {
            lockspace: name("ls"),
            host: host_id(id),
            host_name: name(&format!("host-{id}")),
            io_timeout: Self::io_timeout(),
            fire: WatchdogFire::DEFAULT,
        }
    }

    /// Host `id` with the resource.
    #[must_use]
    pub fn config(&self, id: u64) -> PaxosConfig {
        PaxosConfig {
            lockspace: name("ls"),
            resource: self.resource,
            host: host_id(id),
            generation: self.hosts[&id].joined.generation(),
            io_timeout: Self::io_timeout(),
            fire: WatchdogFire::DEFAULT,
            geometry: self.geometry,
            disks: u8::try_from(self.areas.resource.len()).unwrap(),
        }
    }

    /// What the others have seen: of the living a renewal just now, of the dead none since they died.
    #[must_use]
    pub fn table(&self) -> Table {
        let size = self.geometry.sector();
        let seen = self.hosts.iter().map(|(id, host)| {
            let sector = self.disks.sector(self.areas.lockspace.unwrap(), size, host_id(*id).delta_sector());
            let record = RawLeader::from_sector(&sector);
            let seen = HostSeen {
                first_check: MonoTime::from_secs(1),
                last_check: self.now,
                last_live: Some(host.died.unwrap_or(self.now)),
                owner_id: record.owner_id.get(),
                owner_generation: record.owner_generation.get(),
                timestamp: record.timestamp.get(),
                io_timeout: IoTimeout::from_disk(record.io_timeout.get(), Self::io_timeout()),
                newest_generation: record.owner_generation.get(),
            };
            (*id, seen)
        });
        Table(seen.collect())
    }

    /// Runs a machine of host `id` to its end. `recorder`: collects what its death would leave.
    pub fn drive<M: Machine>(
        &mut self,
        id: u64,
        machine: &mut M,
        recorder: Option<&mut Recorder>,
    ) -> M::Outcome {
        self.drive_with(id, machine, recorder, None)
    }

    /// The same with something happening before operations take effect.
    pub fn drive_with<M: Machine>(
        &mut self,
        id: u64,
        machine: &mut M,
        recorder: Option<&mut Recorder>,
        between: Option<&mut Between<'_>>,
    ) -> M::Outcome {
        let table = self.table();
        self.drive_seeing(&table, id, machine, recorder, between)
    }

    /// The same with a host table of its own.
    pub fn drive_seeing<M: Machine>(
        &mut self,
        hosts: &dyn HostView,
        id: u64,
        machine: &mut M,
        recorder: Option<&mut Recorder>,
        between: Option<&mut Between<'_>>,
    ) -> M::Outcome {
        let generation = self.hosts.get(&id).map_or(0, |host| host.joined.generation());
        let mut run = Run {
            disks: &mut self.disks,
            areas: &self.areas,
            now: &mut self.now,
            generation,
            hosts,
            recorder,
            between,
        };
        run.drive(machine)
    }

    /// Host `id` joins, and waits for its own dead lease if it has to: nothing vouches for an earlier life of it.
    pub fn join(&mut self, id: u64) {
        let joined = self.drive(id, &mut DeltaAcquire::new(Self::delta_config(id), None), None).unwrap();
        self.hosts.insert(id, Host { joined, died: None, hold: Hold::Nothing, held: None });
        self.renew_living();
    }

    /// Time passes; whoever lives goes on renewing.
    pub fn pass(&mut self, secs: u64) {
        self.now = self.now.plus_secs(secs);
        self.renew_living();
    }

    fn renew_living(&mut self) {
        let living: Vec<u64> =
            self.hosts.iter().filter(|(_, h)| h.died.is_none()).map(|(id, _)| *id).collect();
        for id in living {
            self.renew(id);
        }
    }

    /// One renewal of host `id`.
    pub fn renew(&mut self, id: u64) {
        let joined = self.hosts[&id].joined;
        let mut renewal = Renewal::new(Self::delta_config(id), &joined);
        let outcome = self.drive(id, &mut renewal, None);
        assert!(matches!(outcome, RenewOutcome::Renewed(_)), "host {id} lost its host id: {outcome:?}");
        let leader = self.delta(id);
        let last_good = renewal.last_good();
        self.hosts.get_mut(&id).unwrap().joined = Joined { leader, last_good, ..joined };
    }

    /// Host `id` stops for good.
    pub fn die(&mut self, id: u64, at: MonoTime) {
        self.hosts.get_mut(&id).unwrap().died = Some(at);
    }

    /// The machine that takes the resource.
    #[must_use]
    pub fn taking(&self, id: u64, hold: Hold, options: AcquireOptions) -> Taking {
        match hold {
            Hold::Shared => Taking::Shared(PaxosShare::new(self.config(id), options, SH_RETRIES)),
            _ => Taking::Exclusive(PaxosAcquire::new(self.config(id), options)),
        }
    }

    /// One attempt of host `id`, which takes back what a failure may leave, as the daemon does.
    ///
    /// # Errors
    /// It is refused.
    pub fn take(&mut self, id: u64, hold: Hold, options: AcquireOptions) -> Result<Held, AcquireError> {
        let table = self.table();
        self.take_seeing(&table, id, hold, options, None)
    }

    /// The same with a host table of its own, and with a recorder.
    ///
    /// # Errors
    /// It is refused.
    pub fn take_seeing(
        &mut self,
        hosts: &dyn HostView,
        id: u64,
        hold: Hold,
        options: AcquireOptions,
        mut recorder: Option<&mut Recorder>,
    ) -> Result<Held, AcquireError> {
        let mut machine = self.taking(id, hold, options);
        match self.drive_seeing(hosts, id, &mut machine, recorder.as_deref_mut(), None) {
            AcquireOutcome::Acquired(held) => {
                self.holds(id, hold, Some(held));
                Ok(held)
            }
            AcquireOutcome::Failed { error, retract, geometry } => {
                if retract.is_some() {
                    let mut retract = PaxosRelease::retract(self.config(id), geometry).of_attempt(retract);
                    self.drive_seeing(hosts, id, &mut retract, recorder, None).result.unwrap();
                }
                Err(error)
            }
        }
    }

    /// Host `id` takes the resource, which nobody can refuse.
    pub fn must_take(&mut self, id: u64, hold: Hold) -> Held {
        let options = AcquireOptions::default();
        self.take(id, hold, options).unwrap_or_else(|e| panic!("host {id} is refused {hold:?}: {e}"))
    }

    /// Host `id` gives the resource up.
    pub fn release(&mut self, id: u64, held: Held) -> ReleaseOutcome {
        let outcome = self.drive(id, &mut PaxosRelease::new(self.config(id), held), None);
        outcome.result.unwrap();
        self.holds(id, Hold::Nothing, None);
        outcome
    }

    /// From now on host `id` holds this.
    pub fn holds(&mut self, id: u64, hold: Hold, held: Option<Held>) {
        let host = self.hosts.get_mut(&id).unwrap();
        (host.hold, host.held) = (hold, held);
    }

    /// The record of host id `id`.
    #[must_use]
    pub fn delta(&self, id: u64) -> RawLeader {
        let area = self.areas.lockspace.unwrap();
        RawLeader::from_sector(&self.disks.sector(area, self.geometry.sector(), host_id(id).delta_sector()))
    }

    /// The resource's leader on one disk.
    #[must_use]
    pub fn leader(&self, disk: usize) -> RawLeader {
        RawLeader::from_sector(&self.disks.sector(self.areas.resource[disk], self.geometry.sector(), 0))
    }

    /// The resource's name on each disk.
    #[must_use]
    pub fn names_on_disk(&self) -> Vec<Name> {
        (0..self.areas.resource.len())
            .map(|disk| Name::from_field(&self.leader(disk).resource_name))
            .collect()
    }

    fn common_name(&self) -> Option<Name> {
        let names = self.names_on_disk();
        names.iter().find(|name| names.iter().filter(|n| n == name).count() > names.len() / 2).copied()
    }

    /// The name that a majority of the disks has, or else the one that we know.
    #[must_use]
    pub fn name_on_disk(&self) -> Name {
        self.common_name().unwrap_or(self.resource)
    }

    /// Whether no majority of the disks has one name.
    #[must_use]
    pub fn is_nameless(&self) -> bool {
        self.common_name().is_none()
    }

    /// Gives the resource this name wherever it has another one, as `direct write_leader` does for somebody who knows that it is the
    /// same lease; nothing else of the leaders changes.
    pub fn name_leaders(&mut self, resource: Name) {
        for disk in 0..self.areas.resource.len() {
            let mut leader = self.leader(disk);
            if resource.matches(&leader.resource_name) {
                continue;
            }
            leader.resource_name = resource.to_field();
            leader.seal();
            let area = self.areas.resource[disk];
            let mut sector = self.disks.sector(area, self.geometry.sector(), 0);
            leader.overlay(&mut sector);
            self.disks.write(area, 0, &sector);
        }
    }

    /// Everything in the areas of the resource.
    #[must_use]
    pub fn resource_areas(&self) -> Vec<Vec<u8>> {
        let read = |area: &Area| {
            self.disks.0[area.disk].read(area.offset, usize::try_from(area.bytes).unwrap()).unwrap()
        };
        self.areas.resource.iter().map(read).collect()
    }

    /// The block of host `id` on one disk.
    #[must_use]
    pub fn block(&self, disk: usize, id: u64) -> HostBlock {
        let sector = host_id(id).block_sector();
        HostBlock::from_sector(&self.disks.sector(self.areas.resource[disk], self.geometry.sector(), sector))
    }
}

/// An attempt to take the resource in either mode.
#[derive(Clone, Debug)]
pub enum Taking {
    /// Exclusively.
    Exclusive(PaxosAcquire),
    /// Shared.
    Shared(PaxosShare),
}

impl Machine for Taking {
    type Outcome = AcquireOutcome;

    fn step(
        &mut self,
        now: MonoTime,
        env: &sanlock_lease::machine::Env<'_>,
        input: sanlock_lease::machine::Input<'_>,
    ) -> sanlock_lease::machine::Step<AcquireOutcome> {
        match self {
            Self::Exclusive(machine) => machine.step(now, env, input),
            Self::Shared(machine) => machine.step(now, env, input),
        }
    }
}

/// Does not wait for anybody to be dead.
#[must_use]
pub fn nowait() -> AcquireOptions {
    AcquireOptions { owner_nowait: true, mode: Mode::Exclusive, ..AcquireOptions::default() }
}
