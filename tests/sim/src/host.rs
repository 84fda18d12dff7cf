//! One host: its clock, its ways to the disks, its daemon, its processes, its watchdog.

use crate::clients::Process;
use crate::clock::{Clock, Micros};
use crate::daemon::Daemon;
use crate::disk::Area;
use crate::layout::{self, DISKS_MAX, LOCKSPACES_MAX};
use crate::peer::Peer;
use crate::settings::Settings;
use crate::table::Table;
use crate::wdmd::Watchdog;
use crate::work::{Next, Work};
use sanlock_lease::delta::DeltaConfig;
use sanlock_lease::geometry::HostId;
use sanlock_lease::machine::{Env, HostView, Input, LockspaceNow, NoHosts, Op};
use sanlock_lease::record::RawLeader;
use sanlock_lease::timing::{IoTimeout, MonoTime, WatchdogFire};
use sanlock_manager::{RejoinEvidence, RejoinRecord};

/// What a machine works for: a lockspace or a task by the number its manager gave it, a request or a look for one, or a peer's resource.
/// All numbers have the same width: keys are compared with everything that happens, and so their kinds need not be told apart for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
pub enum JobKey {
    Join(u64),
    Renewal(u64),
    Scan(u64),
    Leave(u64),
    Task(u64),
    Errand(u64),
    Peer(u64),
}

/// A machine at work.
#[derive(Clone, Debug)]
pub struct Job {
    pub(crate) work: Work,
    /// Tells the completions of this machine from those of an earlier one under the same key.
    pub(crate) serial: u32,
    pub(crate) wait: Option<MonoTime>,
    pub(crate) done: bool,
}

impl Job {
    /// One step of the machine: what it wants next, and its serial number.
    fn step(&mut self, now: MonoTime, env: &Env<'_>, input: Input<'_>, ops: &mut Vec<Op>) -> (Next, u32) {
        let next = self.work.step(now, env, input, ops);
        match &next {
            Next::Io => self.wait = None,
            Next::Wait(until) => self.wait = Some(*until),
            Next::Pending | Next::Done(..) => {}
        }
        (next, self.serial)
    }
}

/// The way to a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// Works.
    Good,
    /// Operations hang until then.
    Hangs {
        /// When it is back.
        until: Micros,
    },
    /// Operations fail at once until then.
    Fails {
        /// When it is back.
        until: Micros,
    },
}

/// How often operations of this host go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Storage {
    pub(crate) timeouts_per_mille: u64,
    pub(crate) errors_per_mille: u64,
    pub(crate) slow_per_mille: u64,
}

/// A rejoin record, and the boot and the daemon that wrote it.
#[derive(Clone, Debug)]
pub struct Filed {
    pub(crate) boot: u32,
    pub(crate) life: u32,
    pub(crate) record: RejoinRecord,
}

/// A host.
#[derive(Debug)]
pub struct Host {
    /// Which machine it is, for the log and the checks: the host id it should have.
    pub(crate) id: HostId,
    /// The host id it is configured with, in every lockspace. Another machine may have the same one.
    pub(crate) claims: HostId,
    /// The last record by which it claimed a host id, and by which machine. For sabotage.
    pub(crate) claimed: Option<(u32, RawLeader)>,
    /// Counts its host names.
    pub(crate) names: u32,
    pub(crate) clock: Clock,
    /// What its daemon goes by unless it is told otherwise when it is to join.
    pub(crate) io_timeout: IoTimeout,
    /// What it last joined each lockspace with.
    io_timeouts: [IoTimeout; LOCKSPACES_MAX as usize],
    pub(crate) fire: WatchdogFire,
    pub(crate) storage: Storage,
    pub(crate) paths: Vec<Path>,
    /// Until when a sector of each disk's lockspace hangs that is none of those anybody uses.
    pub(crate) spots: [Micros; LOCKSPACES_MAX as usize],
    /// Counts boots: everything of an earlier epoch is void.
    pub(crate) epoch: u32,
    pub(crate) up: bool,
    pub(crate) jobs: Table<JobKey, Job>,
    pub(crate) serials: u32,
    /// It is a reference peer.
    pub(crate) peer: Option<Peer>,
    /// Our daemon, while there is one.
    pub(crate) daemon: Option<Daemon>,
    /// Processes that live, or have left somebody behind who does, by pid.
    pub(crate) processes: Table<i32, Process>,
    pub(crate) last_pid: i32,
    /// The run directory, by disk and host id.
    pub(crate) records: Table<(u8, HostId), Filed>,
    /// The largest generations that its daemons have claimed, beside it, by disk and host id: until they fail for certain, or leave in good order.
    pub(crate) claims_recorded: Table<(u8, HostId), u64>,
    pub(crate) watchdog: Watchdog,
    /// The host_id record that it wrote last, by disk.
    pub(crate) own_records: Table<u8, RawLeader>,
    /// Its next renewal of a lockspace lands when all others have long forgotten it.
    pub(crate) very_late: bool,
    /// Whether the device can be disarmed.
    pub(crate) can_disarm: bool,
    /// How wrong it is.
    pub(crate) device_ppm: i64,
    /// The disk of every lease, not the first, for which it names the place of another one.
    pub(crate) wrong_leg: Option<u8>,
    /// Its wdmd is an old one ([`Settings::old_wdmds_per_mille`]).
    pub(crate) old_wdmd: bool,
    /// Until when the whole machine stands still, or last did.
    pub(crate) stopped_until: Micros,
    /// When its last daemon ended.
    pub(crate) ended: Micros,
    /// While its daemon goes on after standing still, and takes in what has ended meanwhile: since when it stood.
    pub(crate) going_on: Option<Micros>,
    /// When something of its daemon last stood still.
    pub(crate) excused: Micros,
    /// Until when a transfer was slow or failed that its renewals, its looks at others or requests depend on.
    pub(crate) troubled: Micros,
    /// Leases granted since the storm is over, by resource and whether shared.
    pub(crate) granted_in_calm: Table<(u8, bool), u64>,
    /// Attempts since then.
    pub(crate) tried_in_calm: Table<u8, u64>,
}

impl Host {
    /// Whether it names the place of another lease for this disk of every lease.
    pub(crate) fn misnames(&self, leg: u8) -> bool {
        self.wrong_leg == Some(leg)
    }

    /// The place that it names for a disk of a lease.
    pub(crate) fn named(&self, resource: u8, leg: u8) -> Area {
        Area::Resource(if self.misnames(leg) { layout::beside(resource) } else { resource }, leg)
    }

    /// A host that was just started.
    #[must_use]
    pub fn new(id: HostId, reference: bool, clock: Clock, settings: &Settings) -> Self {
        Self {
            id,
            claims: id,
            claimed: None,
            claims_recorded: Table::default(),
            names: 0,
            clock,
            io_timeout: settings.io_timeout,
            io_timeouts: [settings.io_timeout; LOCKSPACES_MAX as usize],
            fire: settings.fire,
            storage: Storage {
                timeouts_per_mille: settings.timeouts_per_mille,
                errors_per_mille: settings.errors_per_mille,
                slow_per_mille: settings.slow_per_mille,
            },
            paths: vec![Path::Good; usize::from(DISKS_MAX)],
            spots: [0; LOCKSPACES_MAX as usize],
            epoch: 0,
            up: true,
            jobs: Table::new(),
            serials: 0,
            peer: reference.then(|| Peer::new(settings.resources)),
            daemon: None,
            processes: Table::new(),
            last_pid: 100,
            records: Table::new(),
            watchdog: Watchdog::default(),
            own_records: Table::new(),
            very_late: false,
            can_disarm: true,
            device_ppm: 0,
            wrong_leg: None,
            old_wdmd: false,
            stopped_until: 0,
            ended: 0,
            going_on: None,
            excused: 0,
            troubled: 0,
            granted_in_calm: Table::new(),
            tried_in_calm: Table::new(),
        }
    }

    /// Its io timeout, in every lockspace.
    pub(crate) fn goes_by(&mut self, io_timeout: IoTimeout) {
        self.io_timeout = io_timeout;
        self.io_timeouts.fill(io_timeout);
    }

    /// It is about to join a lockspace with this one. Whether it last joined with another one.
    pub(crate) fn joins_with(&mut self, disk: u8, io_timeout: IoTimeout) -> bool {
        let Some(place) = self.io_timeouts.get_mut(usize::from(disk)) else { return false };
        std::mem::replace(place, io_timeout) != io_timeout
    }

    /// The one that it has, or last had, in a lockspace.
    pub(crate) fn io_timeout_in(&self, disk: u8) -> IoTimeout {
        self.io_timeouts.get(usize::from(disk)).copied().unwrap_or(self.io_timeout)
    }

    /// The longest of them: for what concerns the machine as a whole.
    pub(crate) fn longest_io_timeout(&self) -> IoTimeout {
        self.io_timeouts.iter().copied().fold(self.io_timeout, Ord::max)
    }

    /// Whether it is a reference peer.
    #[must_use]
    pub fn is_reference(&self) -> bool {
        self.peer.is_some()
    }

    /// One step of the machine under this key, if there is one, with what this host has seen of the others: a peer's own table, or the
    /// snapshot that the lockspace's thread published.
    pub(crate) fn step(
        &mut self,
        key: JobKey,
        now: MonoTime,
        (lockspace, client_alive): (LockspaceNow, bool),
        input: Input<'_>,
        ops: &mut Vec<Op>,
    ) -> Option<(Next, u32)> {
        let shutting_down = self.daemon.as_ref().is_some_and(|d| d.shutting_down);
        let env = Env { lockspace, client_alive, shutting_down, hosts: &NoHosts };
        if self.peer.is_some() {
            let mut job = self.jobs.remove(&key)?;
            let own = self.jobs.get(&JobKey::Scan(0)).and_then(|j| j.work.table());
            let hosts = own.map_or(env.hosts, |table| table as &dyn HostView);
            let stepped = job.step(now, &Env { hosts, ..env }, input, ops);
            self.jobs.insert(key, job);
            return Some(stepped);
        }
        let job = self.jobs.get_mut(&key)?;
        let JobKey::Task(task) = key else { return Some(job.step(now, &env, input, ops)) };
        let table = self.daemon.as_ref().and_then(|d| d.tasks.get(&task)).and_then(|t| t.hosts());
        let hosts = table.as_ref().map_or(env.hosts, |table| table.as_ref() as &dyn HostView);
        Some(job.step(now, &Env { hosts, ..env }, input, ops))
    }

    /// A good way to this disk, or what is wrong with it, at this time.
    pub(crate) fn path(&self, disk: u8, now: Micros) -> Path {
        match self.paths[usize::from(disk)] {
            Path::Hangs { until } | Path::Fails { until } if until <= now => Path::Good,
            path => path,
        }
    }

    pub(crate) fn delta_config(&self, disk: u8) -> DeltaConfig {
        DeltaConfig {
            lockspace: layout::lockspace(disk),
            host: self.claims,
            host_name: layout::name(&format!("machine-{}.{}", self.id, self.names)),
            io_timeout: self.io_timeout_in(disk),
            fire: self.fire,
        }
    }

    /// The generation of an earlier instance that the run directory has, 0 if none.
    pub(crate) fn recorded_generation(&self, disk: u8) -> u64 {
        self.records.get(&(disk, self.claims)).map_or(0, |filed| filed.record.instance.generation)
    }

    /// The generation of a claim that may still land, 0 if none.
    pub(crate) fn recorded_claim(&self, disk: u8) -> u64 {
        self.claims_recorded.get(&(disk, self.claims)).copied().unwrap_or(0)
    }

    /// What the run directory says of an earlier instance.
    pub(crate) fn evidence(&self, disk: u8) -> RejoinEvidence {
        let Some(Filed { boot, life, record }) = self.records.get(&(disk, self.claims)) else {
            return RejoinEvidence::None;
        };
        let instance = record.instance;
        if *boot != self.epoch {
            return RejoinEvidence::OtherBoot { instance };
        }
        let alive =
            record.outlived || record.pids.iter().any(|pid| self.processes.get(pid).is_some_and(|p| p.alive));
        let own = self.daemon.as_ref().is_some_and(|d| d.life == *life);
        RejoinEvidence::ThisBoot { instance, own, alive }
    }
}
