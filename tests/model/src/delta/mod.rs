//! Host ids: two machines that claim the same one, and a third host that watches it, in discrete time.
//!
//! # What happens
//!
//! Every claimant runs the production machines of a host id ([`DeltaAcquire`], [`Renewal`], [`DeltaRelease`]) and asks the production
//! [`recovery`] what the age of its lease demands. Once joined it has a process that takes the one resource ([`PaxosAcquire`]) and
//! keeps it. The watcher holds another host id, looks at all hosts every 2T ([`HostScan`]) and wants the resource too, however long
//! it has to wait: it judges by the production host table.
//!
//! Time passes in steps of half a second, for everybody the same but for the seconds that a clock is allowed to gain or lose. The
//! checker decides when the claimants and the watcher begin, which operation hangs and when it ends, when a daemon dies (its process
//! and its watchdog go on), when a host is reset or stands still, and how long a process survives the signals. With T = 1 s and
//! F = 4 s a silent host is dead after 12 s.
//!
//! # What is assumed
//!
//! An operation that does not hang takes no time; two of different hosts in the same half second happen in any order. A timer is
//! served in the half second in which it is due, unless its host stands still. Reads and writes of the *resource* take no time at
//! all: [`crate::world`] is about their order. The watchdog resets a host F after its expiry at the latest (A4), and what was in
//! flight has landed by then or never will (A6). Records tell two
//! attempts apart: a daemon that died is not there again within the same second, and two machines that claim one id have not been up
//! for the same time to the second. Otherwise a late write could bring back the very record that somebody has seen or written
//! ([`Settings::same_uptime`] shows what comes of it). The watcher has no faults. A claimant that
//! stands still has a watchdog ([`Budget::freezes`]), or is joining ([`Budget::early_freezes`]): then what is under way takes effect before
//! or after, and is heard of as ended in time.
//!
//! [`DeltaAcquire`]: sanlock_lease::delta::DeltaAcquire
//! [`Renewal`]: sanlock_lease::delta::Renewal
//! [`DeltaRelease`]: sanlock_lease::delta::DeltaRelease
//! [`recovery`]: sanlock_lease::recovery
//! [`PaxosAcquire`]: sanlock_lease::paxos::PaxosAcquire
//! [`HostScan`]: sanlock_lease::delta::HostScan

mod claimant;
pub mod search;
mod settings;
mod step;
mod watcher;
pub mod world;

pub use search::{Found, Model, search};
pub use settings::{Budget, Rejoin, Settings, Twist, Watch};
pub use world::World;

/// Something that must never be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Property {
    /// S1: at most one process has the resource. A process counts until it has ended or its host is reset.
    OneOwner,
    /// S6: the process of a lockspace whose last renewal is 8T old is being ended.
    OldUsersAreEnded,
    /// S8: at most one claimant believes that it holds the id. It believes until its lockspace has failed, or was left.
    OneBeliever,
    /// S8: who believes it while the sector names another instance has noticed within one renewal interval.
    BelieverNotices,
    /// S9: the sector's generation never decreases, but for a write that hung or was held up.
    GenerationsRise,
    /// S11: an id that is not free is taken from its holder, and so is its resource, only more than 8T + F after the last landed renewal,
    /// unless the holder's machine itself takes it.
    OwnersAreSilent,
}

impl Property {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::OneOwner,
        Self::OldUsersAreEnded,
        Self::OneBeliever,
        Self::BelieverNotices,
        Self::GenerationsRise,
        Self::OwnersAreSilent,
    ];
}
