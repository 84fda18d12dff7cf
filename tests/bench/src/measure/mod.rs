//! The measures, one module each.

pub mod acquire;
pub mod ask;
pub mod handover;
pub mod join;
pub mod renewal;
pub mod startup;
pub mod takeover;
pub mod throughput;
pub mod tools;

use crate::place::{Place, PlaceKind};
use crate::row::Row;

/// How a measure is to be run.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// On what.
    pub place: PlaceKind,
    /// Few repetitions, small sizes: to see that everything works. The figures say little.
    pub quick: bool,
}

impl Setting {
    /// One of two values.
    #[must_use]
    pub fn pick<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }

    /// The io timeout of lockspaces in which something else is measured than renewals, in seconds: long enough that renewals
    /// hardly disturb, and a join still takes no more than a moment.
    #[must_use]
    pub fn io_timeout(&self) -> u32 {
        self.pick(1, 5)
    }

    /// Storage of `areas` areas.
    #[must_use]
    pub fn place(&self, areas: u64) -> Option<Place> {
        Place::new(self.place, areas)
    }
}

/// On which storage a measure says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// On every kind.
    Everywhere,
    /// Where the kernel counts what is read: not behind a file system in user space.
    Counted,
    /// It has nothing to do with the storage: on a file.
    File,
}

/// A measure.
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    /// For the command line.
    pub name: &'static str,
    /// For the list.
    pub about: &'static str,
    /// On what.
    pub storage: Where,
    /// Takes minutes however few repetitions: not part of a quick run unless asked for by name.
    pub long: bool,
    /// What to do; no rows where something is missing, which has been said.
    pub run: fn(&Setting) -> Vec<Row>,
}

impl Measure {
    /// Whether it says something on this kind of storage.
    #[must_use]
    pub fn suits(&self, place: PlaceKind) -> bool {
        match self.storage {
            Where::Everywhere => true,
            Where::Counted => place.delay_ms() == 0,
            Where::File => place == PlaceKind::File,
        }
    }
}

/// All of them, in the order in which they run.
pub const ALL: [Measure; 10] = [
    Measure {
        name: "acquire",
        about: "acquire and release of free leases, shared mode, conversion, several leases, several disks: one client",
        storage: Where::Everywhere,
        long: false,
        run: acquire::run,
    },
    Measure {
        name: "throughput",
        about: "acquires and releases of 8 and 64 clients on resources of their own",
        storage: Where::Everywhere,
        long: false,
        run: throughput::run,
    },
    Measure {
        name: "handover",
        about: "2, 4 and 8 hosts contend for one lease",
        storage: Where::Everywhere,
        long: false,
        run: handover::run,
    },
    Measure {
        name: "join",
        about: "join of 1, 8 and 40 lockspaces",
        storage: Where::Everywhere,
        long: false,
        run: join::clean,
    },
    Measure {
        name: "ask",
        about: "status and get_hosts with 40 lockspaces, requests per second",
        storage: Where::File,
        long: false,
        run: ask::run,
    },
    Measure {
        name: "renewal",
        about: "processor time, bytes read, context switches and memory with 1, 8, 40 and 200 lockspaces",
        storage: Where::Counted,
        long: false,
        run: renewal::run,
    },
    Measure {
        name: "startup",
        about: "start of the daemon until it answers",
        storage: Where::File,
        long: false,
        run: startup::run,
    },
    Measure {
        name: "tools",
        about: "direct init and direct dump of 1, 100 and 1000 leases",
        storage: Where::Counted,
        long: false,
        run: tools::run,
    },
    Measure {
        name: "rejoin",
        about: "join of 1, 8 and 40 lockspaces after an unclean stop, under the same host name",
        storage: Where::File,
        long: true,
        run: join::unclean,
    },
    Measure {
        name: "takeover",
        about: "a lease whose owner died, until another host has it",
        storage: Where::File,
        long: true,
        run: takeover::run,
    },
];
