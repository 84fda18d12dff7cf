//! Time, the hosts, and what befalls them.

use crate::checks::{Checks, Names, names};
use crate::disk::Disk;
use crate::hosts::Host;
use crate::sabotage::Sabotage;
use crate::transfers::Transfer;
use sanlock_lease::geometry::Geometry;
use sanlock_lease::machine::{Env, LockspaceNow, NoHosts};
use sanlock_lease::rindex::{Answer, RindexCommand, RindexConfig, RindexOperation, Want};
use sanlock_lease::timing::{IoTimeout, MonoTime, WatchdogFire};
use sanlock_sim::dice::Dice;
use sanlock_sim::layout;
use std::collections::BTreeMap;

/// Milliseconds of the run.
pub(crate) type Ms = u64;

pub(crate) const GEOMETRY: Geometry = layout::GEOMETRY;
/// Bytes of an area.
pub(crate) const AREA: u64 = 1 << 20;
/// Where the index begins: the lockspace lies before it.
pub(crate) const BASE: u64 = AREA;
/// Entries of the index.
pub(crate) const SLOTS: usize = 4;
/// Hosts.
pub(crate) const HOSTS: usize = 3;
/// Faults end then.
const CALM_AT: Ms = 600_000;
/// Nobody is reset, or has to be waited for, any more: X8 counts from here.
const QUIET_AT: Ms = CALM_AT + 400_000;
const END_AT: Ms = QUIET_AT + 240_000;

/// What is going to happen. Of a host that was reset meanwhile (another `life`) nothing does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// Its next renewal is due.
    Renew { host: usize, life: u32 },
    /// Its next command.
    Begin { host: usize, life: u32 },
    /// A piece of a transfer is carried out.
    Piece { transfer: u64, piece: usize },
    /// A transfer has ended.
    End { transfer: u64 },
    /// The submitter has waited long enough.
    Limit { transfer: u64 },
    /// What somebody wanted to wait for.
    Tick { host: usize, life: u32 },
    /// A host loses its way to the disk, for so long.
    Cut { host: usize, life: u32 },
    /// The watchdog fires unless there was a renewal.
    Watchdog { host: usize, life: u32 },
    /// The power goes.
    Reset { host: usize, life: u32 },
    /// It is back.
    Boot { host: usize },
}

/// What a run can come to; a test sees to it that all of it is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Met {
    Done,
    Failed,
    Refused,
    LateWrite,
    Doubtful,
    ResetAtWork,
    GoneAtWork,
    Rebuilt,
    TakenOver,
    Paused,
}

/// How often each was met, if ever.
pub(crate) type Counts = BTreeMap<Met, u64>;

/// Kinds of [`Met`].
pub(crate) const MET_KINDS: usize = Met::Paused as usize + 1;

pub(crate) struct World {
    pub(crate) now: Ms,
    pub(crate) dice: Dice,
    pub(crate) disk: Disk,
    pub(crate) hosts: Vec<Host>,
    pub(crate) transfers: BTreeMap<u64, Transfer>,
    events: BTreeMap<(Ms, u64), Event>,
    numbers: u64,
    pub(crate) checks: Checks,
    pub(crate) counts: Counts,
    pub(crate) sabotage: Option<Sabotage>,
    /// Whether this run has rebuilds; then it has no names that are there only in areas.
    pub(crate) rebuilds: bool,
    /// What happened, if anybody wants to know.
    pub(crate) log: Option<Vec<String>>,
    /// Chances in a thousand: a slow transfer, a failing one.
    pub(crate) slow: u64,
    pub(crate) failing: u64,
}

pub(crate) fn io_timeout() -> IoTimeout {
    IoTimeout::new(2).unwrap()
}

pub(crate) fn config() -> RindexConfig {
    RindexConfig { lockspace: layout::lockspace(0), offset: BASE, member: None, fire: WatchdogFire::DEFAULT }
}

impl World {
    pub(crate) fn new(seed: u64, sabotage: Option<Sabotage>) -> Self {
        let mut dice = Dice::new(seed);
        let (slow, failing) = (dice.spread(1, 60), dice.spread(1, 20));
        let mut world = Self {
            now: 0,
            rebuilds: dice.per_mille(300),
            dice,
            disk: formatted(),
            hosts: (0..HOSTS).map(Host::new).collect(),
            transfers: BTreeMap::new(),
            events: BTreeMap::new(),
            numbers: 0,
            checks: Checks::default(),
            counts: Counts::new(),
            sabotage,
            log: None,
            slow,
            failing,
        };
        for host in 0..HOSTS {
            let at = world.dice.between(0, 5000);
            world.plan(at, Event::Boot { host });
        }
        world
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(crate) fn met(&mut self, what: Met) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Plans something this many milliseconds ahead.
    pub(crate) fn plan(&mut self, ahead: Ms, event: Event) {
        let number = self.number();
        self.events.insert((self.now + ahead, number), event);
    }

    pub(crate) fn mono(&self) -> MonoTime {
        MonoTime::from_millis(self.now)
    }

    pub(crate) fn calm(&self) -> bool {
        self.now >= CALM_AT
    }

    pub(crate) fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(format!("{:>9}.{:03} {}", self.now / 1000, self.now % 1000, text()));
        }
    }

    pub(crate) fn names(&self) -> Names {
        names(&self.disk)
    }

    /// Until the end, or the first violation.
    pub(crate) fn run(&mut self) {
        while let Some(((at, _), event)) = self.events.pop_first() {
            if at >= END_AT || !self.checks.violations.is_empty() {
                break;
            }
            self.now = at;
            if self.current(event) {
                self.happen(event);
            }
        }
        for (host, state) in self.hosts.iter().enumerate() {
            if self.checks.violations.is_empty() && state.done_at < QUIET_AT {
                let what = state.work.as_ref().map(|work| work.operation.clone());
                self.checks
                    .violation(format!("X8: host {host} got nothing done since {}: {what:?}", state.done_at));
                break;
            }
        }
    }

    /// Whether it is of a host as it is now.
    fn current(&self, event: Event) -> bool {
        match event {
            Event::Renew { host, life }
            | Event::Begin { host, life }
            | Event::Tick { host, life }
            | Event::Cut { host, life }
            | Event::Watchdog { host, life }
            | Event::Reset { host, life } => self.hosts[host].life == life && self.hosts[host].up,
            Event::Piece { transfer, .. } | Event::End { transfer } | Event::Limit { transfer } => {
                self.transfers.contains_key(&transfer)
            }
            Event::Boot { .. } => true,
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Renew { host, .. } => self.renew(host),
            Event::Begin { host, .. } => self.begin(host),
            Event::Piece { transfer, piece } => self.piece(transfer, piece),
            Event::End { transfer } => self.ended(transfer),
            Event::Limit { transfer } => self.limit(transfer),
            Event::Tick { host, .. } => self.tick(host),
            Event::Cut { host, life } => {
                if !self.calm() {
                    self.cut(host);
                    let next = self.dice.spread(20_000, 1_000_000);
                    self.plan(next, Event::Cut { host, life });
                }
            }
            Event::Watchdog { host, .. } => self.watchdog(host),
            Event::Reset { host, .. } => {
                if !self.calm() {
                    self.reset(host, "power");
                }
            }
            Event::Boot { host } => self.boot(host),
        }
    }
}

/// A lockspace and an empty index.
fn formatted() -> Disk {
    let mut disk = Disk::default();
    for host in 1..=HOSTS as u64 {
        let mut sector = vec![0; 512];
        layout::free_delta(0).encode(None, &mut sector);
        disk.land(host - 1, &sector);
    }
    let command = RindexCommand::Format { geometry: GEOMETRY, max_resources: u32::try_from(SLOTS).unwrap() };
    let mut operation = RindexOperation::new(config(), command);
    let env =
        Env { lockspace: LockspaceNow::Gone, client_alive: true, shutting_down: false, hosts: &NoHosts };
    let mut answer = Answer::Start;
    loop {
        match operation.step(MonoTime::from_millis(0), &env, answer) {
            Want::Write { offset, bytes, .. } => disk.land(offset / 512, &bytes),
            Want::Done => return disk,
            other => panic!("formatting wants {other:?}"),
        }
        answer = Answer::Written(Ok(()));
    }
}
