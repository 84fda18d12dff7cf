//! One host: its clock, its daemon's memory, its processes, its watchdog.

use crate::clock::{Clock, Micros};
use crate::settings::Settings;
use crate::work::Work;
use sanlock_lease::delta::DeltaConfig;
use sanlock_lease::geometry::HostId;
use sanlock_lease::hosts::HostTable;
use sanlock_lease::machine::LockspaceNow;
use sanlock_lease::paxos::Held;
use sanlock_lease::timing::{IoTimeout, MonoTime, WatchdogFire};
use std::collections::BTreeMap;

/// What a machine works for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
pub enum JobKey {
    Join,
    Renewal,
    Scan,
    Leave,
    Resource(u8),
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

/// The daemon's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Daemon {
    /// It reacts at once.
    Runs,
    /// It stands still; its operations and the rest of the host go on.
    Paused,
    /// It crashed; its processes go on.
    Dead,
}

/// The way to the disk.
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

/// The lockspace on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// Not joined; to be joined at this time.
    Out {
        /// When to join.
        join_at: Micros,
    },
    /// Being joined.
    Joining,
    /// Joined.
    Joined {
        /// The generation.
        generation: u64,
        /// It failed, or is being left: no more acquires, processes are killed, and then it is over.
        ending: bool,
        /// Whether it is being left in an orderly way.
        leaving: bool,
    },
}

/// How often operations of this host go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Storage {
    pub(crate) timeouts_per_mille: u64,
    pub(crate) errors_per_mille: u64,
    pub(crate) slow_per_mille: u64,
}

/// What a resource's next attempt to get rid of it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "a handful per host")]
pub enum Then {
    /// Nothing: it is over.
    Nothing,
    /// A retract (or the reference's erase-all).
    Retract,
    /// The reference's repeated release.
    ReleaseAgain(Held),
}

/// The daemon's view of one resource (R3: nothing new starts while a write of the last machine is outstanding).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Not wanted.
    Idle,
    /// An acquire is running.
    Acquiring,
    /// Held by our process.
    Held(Held),
    /// A release or retract is running. The lease, if it is the reference's release.
    Releasing(Option<Held>),
    /// "Removing": writes are outstanding.
    Settling(Then),
    /// "Removing": the next attempt comes later.
    Later(Then),
}

/// A resource on this host.
#[derive(Clone, Debug)]
pub struct Resource {
    pub(crate) stage: Stage,
    pub(crate) client_alive: bool,
    /// The process, if there is one, by serial number.
    pub(crate) process: Option<u32>,
    /// Tells turns of this stage from turns planned earlier.
    pub(crate) serial: u32,
    /// Leases granted since the storm is over.
    pub(crate) granted_in_calm: u64,
}

/// A host.
#[derive(Clone, Debug)]
pub struct Host {
    pub(crate) id: HostId,
    pub(crate) reference: bool,
    pub(crate) clock: Clock,
    pub(crate) io_timeout: IoTimeout,
    pub(crate) storage: Storage,
    pub(crate) path: Path,
    /// Counts resets: everything of an earlier epoch is void.
    pub(crate) epoch: u32,
    pub(crate) up: bool,
    pub(crate) daemon: Daemon,
    pub(crate) membership: Membership,
    /// The generation joined with last: the one this machine can vouch for (R7).
    pub(crate) last_generation: Option<u64>,
    /// Expiry (own seconds) of the daemon's connection to wdmd, 0 if disarmed.
    pub(crate) expiry: u64,
    /// Expiry left behind by a daemon that crashed: nothing takes it back.
    pub(crate) doomed: Option<u64>,
    pub(crate) jobs: BTreeMap<JobKey, Job>,
    pub(crate) serials: u32,
    pub(crate) backlog: Vec<(u64, bool)>,
    pub(crate) resources: Vec<Resource>,
    /// What was seen of the others in an earlier membership.
    pub(crate) table: Option<HostTable>,
    pub(crate) next_scan: Micros,
}

impl Host {
    /// A host whose daemon was just started.
    #[must_use]
    pub fn new(id: HostId, reference: bool, clock: Clock, settings: &Settings) -> Self {
        let resource =
            Resource { stage: Stage::Idle, client_alive: true, process: None, serial: 0, granted_in_calm: 0 };
        Self {
            id,
            reference,
            clock,
            io_timeout: settings.io_timeout,
            storage: Storage {
                timeouts_per_mille: settings.timeouts_per_mille,
                errors_per_mille: settings.errors_per_mille,
                slow_per_mille: settings.slow_per_mille,
            },
            path: Path::Good,
            epoch: 0,
            up: true,
            daemon: Daemon::Runs,
            membership: Membership::Out { join_at: 0 },
            last_generation: None,
            expiry: 0,
            doomed: None,
            jobs: BTreeMap::new(),
            serials: 0,
            backlog: Vec::new(),
            resources: vec![resource; usize::from(settings.resources)],
            table: None,
            next_scan: 0,
        }
    }

    pub(crate) fn delta_config(&self) -> DeltaConfig {
        DeltaConfig {
            lockspace: crate::layout::lockspace(),
            host: self.id,
            host_name: crate::layout::name(&format!("machine-{}", self.id)),
            io_timeout: self.io_timeout,
            fire: WatchdogFire::DEFAULT,
        }
    }

    /// Whether the daemon reacts.
    pub(crate) fn runs(&self) -> bool {
        self.up && self.daemon == Daemon::Runs
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.up && self.daemon == Daemon::Paused
    }

    fn last_good(&self) -> Option<MonoTime> {
        self.jobs.get(&JobKey::Renewal)?.work.renewal().map(sanlock_lease::delta::Renewal::last_good)
    }

    /// Age of the last good renewal has reached 8T.
    pub(crate) fn too_old(&self, now: MonoTime) -> bool {
        let limit = self.io_timeout.renewal_fail_secs();
        self.last_good().is_none_or(|good| now.secs_since(good) >= limit)
    }

    /// The lockspace as a machine of this kind is to see it.
    pub(crate) fn lockspace_now(&self, now: MonoTime, key: JobKey) -> LockspaceNow {
        match (self.membership, key) {
            (Membership::Joined { generation, .. }, _) if self.reference => {
                LockspaceNow::Alive { generation }
            }
            (Membership::Joined { generation, ending: false, .. }, _) if !self.too_old(now) => {
                LockspaceNow::Alive { generation }
            }
            (Membership::Joining, JobKey::Join) => LockspaceNow::Alive { generation: 0 },
            _ => LockspaceNow::Gone,
        }
    }

    /// Whether a resource's write is allowed at this moment.
    pub(crate) fn believes(&self, now: Micros, key: JobKey) -> bool {
        let JobKey::Resource(_) = key else { return true };
        self.reference || self.lockspace_now(self.clock.at(now), key) != LockspaceNow::Gone
    }

    pub(crate) fn client_alive(&self, key: JobKey) -> bool {
        match key {
            JobKey::Resource(number) => {
                self.resources.get(usize::from(number)).is_some_and(|r| r.client_alive)
            }
            _ => true,
        }
    }

    /// The generation resources may be acquired with, if any may.
    pub(crate) fn generation(&self, now: Micros) -> Option<u64> {
        match self.lockspace_now(self.clock.at(now), JobKey::Renewal) {
            LockspaceNow::Alive { generation } if generation > 0 => match self.membership {
                Membership::Joined { ending: false, .. } => Some(generation),
                _ => None,
            },
            _ => None,
        }
    }
}
