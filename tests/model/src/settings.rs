//! What a run is about: who takes part, which faults may happen how often, what is bent on purpose.

use crate::HOSTS;
use crate::checks::Property;

/// Whose machines a host runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The production machines.
    Ours,
    /// A peer that follows the original, weaknesses included ([`sanlock_sim::reference`]).
    Reference,
}

/// What a host's acquire is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Plan {
    /// An exclusive hold.
    #[default]
    Exclusive,
    /// A shared hold.
    Shared,
    /// A shared hold that is then converted to an exclusive one.
    SharedThenUp,
    /// An exclusive hold that is then converted to a shared one.
    ExclusiveThenDown,
}

/// How often something may still happen, over all hosts together. Everything else is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Budget {
    /// A write times out: it lands later or never.
    pub late: u8,
    /// An operation fails with an error.
    pub errors: u8,
    /// A host crashes.
    pub crashes: u8,
    /// A lockspace fails on a living host, or is removed and joined again, under a running operation.
    pub lapses: u8,
    /// A host that has not begun anything leaves the lockspace.
    pub leaves: u8,
    /// A machine that waits (between ballots, or for a dead owner) is woken at its time.
    pub waits: u8,
    /// A host loses its path to one of several disks; it may come back at any time.
    pub paths: u8,
}

/// Something made wrong on purpose, so that a property must fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Twist {
    /// Nothing.
    None,
    /// The disk reports writes of blocks as done and forgets them.
    BlocksVanish,
    /// The disk reports writes of leaders as done and forgets them.
    LeadersVanish,
    /// The same, but only with leaders of a version above 1.
    LaterLeadersVanish,
    /// Blocks and leaders.
    WritesVanish,
    /// Living hosts look dead to everybody.
    LivingLookDead,
    /// A process keeps its lease until the release is done.
    ReleasedTooEarly,
    /// The disk forgets the mode blocks.
    ModesVanish,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The hosts that take part: host ids 1, 2, 3.
    pub hosts: Vec<Kind>,
    /// How many acquires each host begins in its life.
    pub attempts: [u8; HOSTS],
    /// What each host's acquires are for, in order; exclusive holds if nothing is said.
    pub plans: [Vec<Plan>; HOSTS],
    /// How many disks the resource lies on.
    pub disks: u8,
    /// The disks on which faults may happen: writes that are late, errors, lost paths.
    pub faulty: Vec<u8>,
    /// Hosts and disks that never see each other, whichever disks are faulty.
    pub cut_off: Vec<(usize, u8)>,
    /// Whether a machine is told of the results of operations side by side in the order of the disks, or the other way round.
    pub told_backwards: bool,
    /// The limits of the rest.
    pub budget: Budget,
    /// Whether only writes of leaders time out, and not those of blocks.
    pub only_leaders_late: bool,
    /// Whether a read of several sectors sees each at a moment of its own.
    pub torn_reads: bool,
    /// Whether a host's table of the others is as old as its last look, which is an event of its own.
    pub stale_tables: bool,
    /// Whether acquires wait for a dead owner (without: `OWNER_NOWAIT`).
    pub patient: bool,
    /// Whether leases are renamed when they are released, to the name they have: what changes is the order of the writes.
    pub renames: bool,
    /// Whether a host's clock stands still between its acquires, so that their timestamps do not tell them apart.
    pub same_second: bool,
    /// What is bent.
    pub twist: Twist,
    /// What has to be reached, by the names of [`crate::checks::Marks`]: a run that never gets there shows nothing.
    pub sometimes: Vec<&'static str>,
    /// The properties to look at; a violation of another one is passed over.
    pub properties: Vec<Property>,
}

impl Settings {
    /// This many hosts of one kind, each with an acquire for each of its plans, no faults.
    #[must_use]
    pub fn planned(kind: Kind, plans: &[&[Plan]]) -> Self {
        let attempts: Vec<u8> = plans.iter().map(|p| u8::try_from(p.len()).unwrap_or(u8::MAX)).collect();
        let mut settings = Self::new(kind, &attempts);
        for (all, own) in settings.plans.iter_mut().zip(plans) {
            *all = own.to_vec();
        }
        settings
    }

    /// The same with faults.
    #[must_use]
    pub fn with(self, budget: Budget) -> Self {
        Self { budget, ..self }
    }

    /// The same, which has to reach these besides a grant.
    #[must_use]
    pub fn reaching(mut self, sometimes: &[&'static str]) -> Self {
        self.sometimes.extend(sometimes);
        self
    }

    /// What the acquire of a host is for when so many are left to it, itself not counted.
    pub(crate) fn plan(&self, host: usize, left: u8) -> Plan {
        let plans = &self.plans[host];
        let number = self.attempts[host].saturating_sub(left + 1);
        plans.get(usize::from(number)).copied().unwrap_or_default()
    }

    /// This many hosts of one kind, each with this many acquires, no faults.
    #[must_use]
    pub fn new(kind: Kind, attempts: &[u8]) -> Self {
        let mut each = [0; HOSTS];
        each[..attempts.len()].copy_from_slice(attempts);
        Self {
            hosts: vec![kind; attempts.len()],
            attempts: each,
            disks: 1,
            faulty: vec![0, 1, 2],
            cut_off: Vec::new(),
            told_backwards: false,
            plans: [const { Vec::new() }; HOSTS],
            budget: Budget::default(),
            only_leaders_late: false,
            torn_reads: false,
            stale_tables: false,
            patient: false,
            renames: false,
            same_second: false,
            twist: Twist::None,
            sometimes: vec!["granted"],
            properties: Property::ALL.to_vec(),
        }
    }
}
