//! Many runs on all cores, and what they came to.

use crate::checks::Marks;
use crate::clock::SECOND;
use crate::fault::Struck;
use crate::record::Standing;
use crate::sabotage::Sabotage;
use crate::settings::{Kind, Settings};
use crate::world::World;
use nix::time::{ClockId, clock_gettime};
use std::fmt;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A run: the same case, the same run, event for event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Of all chance in it.
    pub seed: u64,
    /// What it consists of.
    pub settings: Settings,
    /// What is broken on purpose, and the text of the only violations that count.
    pub broken: Option<(Sabotage, &'static str)>,
}

/// How a run that found something ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which.
    pub case: Case,
    /// What was violated, or the message of a panic.
    pub violation: String,
    /// True seconds after its beginning; 0 for a panic.
    pub secs: u64,
}

impl Case {
    /// The case of this kind with this seed.
    #[must_use]
    pub fn drawn(kind: Kind, seed: u64, references: u64) -> Self {
        Self { seed, settings: kind.settings(seed, references), broken: None }
    }

    /// Its world before the first event.
    #[must_use]
    pub fn world(&self, logging: bool) -> World {
        let world = World::new(self.settings, self.seed, logging);
        match self.broken {
            Some((sabotage, wanted)) => world.with(sabotage, wanted),
            None => world,
        }
    }

    /// Runs it to its end or to the first violation.
    ///
    /// # Errors
    /// The violation, or the panic.
    pub fn run(&self) -> Result<World, Box<Failure>> {
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let mut world = self.world(false);
            world.run();
            world
        }));
        let (violation, secs) = match ended {
            Ok(world) => match world.checks.violations.first() {
                None => return Ok(world),
                Some(violation) => (violation.clone(), world.now / SECOND),
            },
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
                (format!("panic: {}", text.unwrap_or("of unknown kind")), 0)
            }
        };
        Err(Box::new(Failure { case: *self, violation, secs }))
    }

    /// The command that repeats it with its log.
    #[must_use]
    pub fn command(&self) -> String {
        let broken = match self.broken {
            Some((sabotage, wanted)) => format!(" --sabotage {} --wanted '{wanted}'", sabotage.name()),
            None => String::new(),
        };
        format!(
            "cargo run --release -p sanlock-sim -- replay --seed {} --settings '{}'{broken}",
            self.seed, self.settings
        )
    }
}

impl Failure {
    /// What kind of violation it is: the text before the first colon.
    #[must_use]
    pub fn code(&self) -> &str {
        self.violation.split(':').next().unwrap_or_default()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.violation)?;
        writeln!(f, "seed {}, after {} s, settings {}", self.case.seed, self.secs, self.case.settings)?;
        let command = self.case.command();
        writeln!(f, "replay: {command}")?;
        write!(f, "shrink: {}", command.replacen(" replay ", " shrink ", 1))
    }
}

/// What runs of one kind came to.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// How many.
    pub runs: u64,
    /// Among them with a reference peer.
    pub mixed: u64,
    /// Time in which a host was powered, of all hosts together.
    pub host_time: Duration,
    /// Of all threads.
    pub cpu: Duration,
    /// Faults that struck.
    pub struck: Struck,
    /// What was reached.
    pub marks: Marks,
}

impl Totals {
    /// Hours in which a host was powered.
    #[must_use]
    pub fn host_hours(&self) -> f64 {
        self.host_time.as_secs_f64() / 3600.0
    }

    /// Milliseconds of CPU time for each of them.
    #[must_use]
    pub fn cost_ms(&self) -> f64 {
        self.cpu.as_secs_f64() * 1000.0 / self.host_hours().max(f64::MIN_POSITIVE)
    }

    /// Large faults that struck.
    #[must_use]
    pub fn large_faults(&self) -> u64 {
        self.struck.all().filter(|(fault, _)| fault.is_large()).map(|(_, times)| times).sum()
    }

    /// Operations that did not go as they should: failed, late, or on a lost path.
    #[must_use]
    pub fn bad_ios(&self) -> u64 {
        self.marks.failed_ios + self.marks.late_ios + self.marks.lost_ios
    }

    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.mixed += other.mixed;
        self.host_time += other.host_time;
        self.cpu += other.cpu;
        self.struck.add(&other.struck);
        self.marks.add(&other.marks);
    }

    pub(crate) fn of(case: &Case, world: &World, cpu: Duration) -> Self {
        Self {
            runs: 1,
            mixed: u64::from(case.settings.references > 0),
            host_time: Duration::from_micros(world.powered),
            cpu,
            struck: world.struck,
            marks: world.checks.marks,
        }
    }
}

/// One run in so many has a reference peer among its hosts, unless it is said otherwise.
pub const PEER_EVERY: u64 = 3;

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The first seed of each kind.
    pub first: u64,
    /// Host-hours of each kind.
    pub host_hours: Vec<(Kind, f64)>,
    /// Threads.
    pub threads: usize,
    /// One run in so many has a reference peer among its hosts; 0: none has.
    pub peer_every: u64,
}

impl Plan {
    /// So many host-hours, a twenty-fifth of them dense: with that about a fifth of the CPU time, and most of the faults.
    #[must_use]
    pub fn mixed(first: u64, host_hours: f64, threads: usize) -> Self {
        let dense = host_hours / 25.0;
        let host_hours = vec![(Kind::Dense, dense), (Kind::Long, host_hours - dense)];
        Self { first, host_hours, threads, peer_every: PEER_EVERY }
    }

    /// The run with this number among those of a kind, given by its place.
    pub(crate) fn case(&self, at: usize, number: u64) -> Case {
        let references = u64::from((number + 1).checked_rem(self.peer_every) == Some(0));
        Case::drawn(self.host_hours[at].0, self.first + number, references)
    }
}

/// What a campaign came to so far.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// By kind, in the order of the plan.
    pub kinds: Vec<(Kind, Totals)>,
    /// The first violation. Nothing was begun after it.
    pub failure: Option<Box<Failure>>,
}

impl Report {
    /// All kinds together.
    #[must_use]
    pub fn all(&self) -> Totals {
        let mut sum = Totals::default();
        for (_, totals) in &self.kinds {
            sum.add(totals);
        }
        sum
    }
}

fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// Runs a plan from where it stands to its end, to the first violation, or until `progress` breaks off. That is told of every run that
/// ended; those that are under way then still end.
pub fn run(plan: &Plan, from: Standing, progress: impl Fn(&Standing) -> ControlFlow<()> + Sync) -> Standing {
    let state = Mutex::new((from, ControlFlow::Continue(())));
    let locked = || -> MutexGuard<'_, _> { state.lock().unwrap_or_else(PoisonError::into_inner) };
    let next = || {
        let mut state = locked();
        if state.1.is_break() { None } else { state.0.next(plan) }
    };
    let work = || {
        while let Some((at, number)) = next() {
            let case = plan.case(at, number);
            let before = thread_time();
            let ended = case.run();
            let cpu = thread_time().saturating_sub(before);
            let mut state = locked();
            let (standing, goes_on) = &mut *state;
            standing.under_way.remove(&(at, number));
            match ended {
                Ok(world) => standing.report.kinds[at].1.add(&Totals::of(&case, &world, cpu)),
                Err(failure) => {
                    standing.report.failure.get_or_insert(failure);
                }
            }
            if progress(standing).is_break() {
                *goes_on = ControlFlow::Break(());
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..plan.threads.max(1) {
            scope.spawn(work);
        }
    });
    state.into_inner().unwrap_or_else(PoisonError::into_inner).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_campaign_runs_what_was_planned() {
        let host_hours = vec![(Kind::Dense, 2.0), (Kind::Long, 3.0)];
        let plan = Plan { first: 5, host_hours, threads: 2, peer_every: 2 };
        let report = run(&plan, Standing::new(&plan), |_| ControlFlow::Continue(())).report;
        assert_eq!(report.failure, None);
        for ((kind, totals), (_, wanted)) in report.kinds.iter().zip(&plan.host_hours) {
            assert!(totals.host_hours() >= *wanted && totals.runs > 0, "{kind:?} {totals:?}");
            assert!(totals.marks.acquired > 0 && totals.marks.good_ios > 1000, "{kind:?}");
        }
        assert!(report.all().large_faults() > 0);
    }

    #[test]
    fn a_panic_is_a_failure_that_names_its_case() {
        let mut case = Case::drawn(Kind::Dense, 1, 0);
        case.settings.ours = 3000; // there are no such host ids
        let failure = case.run().expect_err("a panic");
        assert_eq!((failure.code(), failure.case), ("panic", case));
    }
}
