//! The hosts as the others see them: which are alive, and what their host id leases and the host tables therefore say.
//!
//! Time is not counted. That a host has been silent for long enough is an event of its own ([`Life::Dead`]), after which every
//! table says so; before it, none does (lease-algorithms.md 13.4 is about why that holds).

use crate::HOSTS;
use crate::disk::host_id;
use crate::settings::{Settings, Twist};
use sanlock_lease::geometry::HostId;
use sanlock_lease::hosts::HostSeen;
use sanlock_lease::machine::HostView;
use sanlock_lease::timing::{IoTimeout, MonoTime};
use sanlock_sim::layout;

/// What has become of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Life {
    /// It holds its host id and renews.
    Joined,
    /// Its lockspace failed; it runs, and its processes may, for a while.
    Lost,
    /// It crashed; its processes may run until its watchdog fires.
    Down,
    /// It has been silent for longer than 8T + F.
    Dead,
    /// It gave its host id up in order.
    Left,
}

/// Life and generation of every host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lives(pub [(Life, u8); HOSTS]);

/// The timestamp of a host that does not renew any more.
const LAST_WORDS: u64 = 900;
/// How long a host has been silent that is known to be dead: longer than 8T + F.
const LONG_SECS: u64 = 500;
/// How long a host has been silent that is not.
const SHORT_SECS: u64 = 10;

impl Lives {
    /// The generation a host may write with, `None` if it may not.
    #[must_use]
    pub fn generation(&self, host: usize) -> Option<u64> {
        let (life, generation) = self.0[host];
        (life == Life::Joined).then_some(u64::from(generation))
    }

    /// What a host looks like to the others.
    fn looks(&self, host: usize, twist: Twist) -> (Life, u8) {
        match self.0[host] {
            (Life::Joined, generation) if twist == Twist::LivingLookDead => (Life::Dead, generation),
            as_it_is => as_it_is,
        }
    }

    /// Whether nobody is silent without being dead, and somebody is dead.
    #[must_use]
    pub fn silent_means_dead(&self) -> bool {
        let any = |life| self.0.iter().any(|(l, _)| *l == life);
        any(Life::Dead) && !any(Life::Down) && !any(Life::Lost)
    }

    fn timestamp(&self, host: usize, now: MonoTime, twist: Twist) -> u64 {
        match self.looks(host, twist).0 {
            // It renews all the time: never the same twice.
            Life::Joined => now.secs(),
            Life::Lost | Life::Down | Life::Dead => LAST_WORDS,
            Life::Left => 0,
        }
    }

    /// A host's host id lease as somebody reads it at its own `now`.
    #[must_use]
    pub fn delta_sector(&self, host: usize, now: MonoTime, twist: Twist) -> Vec<u8> {
        let mut delta = layout::free_delta(0);
        if host < HOSTS {
            delta.owner_id = host_id(host).get().into();
            delta.owner_generation = u64::from(self.0[host].1).into();
            delta.resource_name = layout::name(&format!("machine-{host}")).to_field();
            delta.timestamp = self.timestamp(host, now, twist).into();
            delta.io_timeout = IoTimeout::DEFAULT.to_disk().into();
        }
        delta.seal();
        let mut sector = vec![0; layout::GEOMETRY.sector().slice_len()];
        delta.encode(None, &mut sector);
        sector
    }

    /// Anybody's host table.
    #[must_use]
    pub fn table(&self, now: MonoTime, settings: &Settings) -> Table {
        let seen = |host| {
            let (life, generation) = self.looks(host, settings.twist);
            // Impatient acquires see a host that has just crashed as alive: the table is a moment old.
            let silent = match life {
                Life::Joined | Life::Left => 0,
                Life::Lost | Life::Down if !settings.patient => 0,
                Life::Lost | Life::Down => SHORT_SECS,
                Life::Dead => LONG_SECS,
            };
            HostSeen {
                first_check: MonoTime::from_secs(1),
                last_check: now,
                last_live: Some(MonoTime::from_millis(now.millis() - silent * 1000)),
                owner_id: host_id(host).get(),
                owner_generation: u64::from(generation),
                timestamp: self.timestamp(host, now, settings.twist),
                io_timeout: IoTimeout::DEFAULT,
                newest_generation: u64::from(generation),
            }
        };
        Table(std::array::from_fn(seen))
    }
}

/// What renewals have seen of the hosts.
#[derive(Clone, Debug)]
pub struct Table([HostSeen; HOSTS]);

impl HostView for Table {
    fn seen(&self, host: HostId) -> Option<HostSeen> {
        self.0.get(host.index()).copied()
    }
}
