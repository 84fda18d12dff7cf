//! Watching a lockspace until nobody who matters can be alive (lease-algorithms.md 3).
//!
//! A host lives as long as it renews, and is dead when its record stood still for longer than 8T + F, T being its own io timeout: by
//! then it has stopped what used its leases, or its watchdog has reset it. A record of which it is free is that of no host. A record that
//! cannot be read says neither, nor with which io timeout its host runs: it counts as held, with the longest one there may be.

use super::lockspace::hosts;
use super::{Gone, sector_of};
use crate::geometry::{Geometry, HostId};
use crate::name::Name;
use crate::record::RawLeader;
use crate::timing::{IoTimeout, MonoTime, WatchdogFire};
use crate::verify::{self, Purpose};

/// What is known so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Nobody who matters is alive.
    Gone,
    /// Nobody has shown life, but somebody still may be alive until this time; this many hosts.
    Wait {
        /// When all of them are dead, if they stay silent.
        until: MonoTime,
        /// How many hosts.
        hosts: usize,
    },
    /// This host renewed, joined or left while it was watched.
    Alive(HostId),
}

/// A host under observation.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Watched {
    host: HostId,
    sector: Vec<u8>,
    /// Seconds of silence after which it is dead; `None`: its host id is free.
    dead_secs: Option<u64>,
}

/// The hosts that matter for a repair, since the first look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silence {
    geometry: Geometry,
    since: MonoTime,
    watched: Vec<Watched>,
}

impl Silence {
    /// Begins to watch. `now`: when the read of `area` *ended*, since a renewal may have been under way until then.
    /// `claims`: generations with which leases name host ids; a free record of an older one says nothing of those hosts. `unknown`: the
    /// io timeout of hosts whose records do not say it.
    #[must_use]
    pub fn new(
        now: MonoTime,
        area: &[u8],
        (geometry, name): (Geometry, Name),
        who: &[Gone],
        claims: &[(HostId, u64)],
        unknown: IoTimeout,
        fire: WatchdogFire,
    ) -> Self {
        let everybody = who.contains(&Gone::Everybody);
        let matters = |host: &HostId| everybody || who.contains(&Gone::Host(*host));
        let watched = hosts(geometry)
            .filter(matters)
            .map(|host| {
                let sector = sector_of(area, geometry, host.delta_sector()).to_vec();
                let record = RawLeader::from_sector(&sector);
                let claimed = claims.iter().filter(|(h, _)| *h == host).map(|(_, g)| *g).max().unwrap_or(0);
                Watched { host, dead_secs: dead_secs(&record, host, &name, claimed, unknown, fire), sector }
            })
            .collect();
        Self { geometry, since: now, watched }
    }

    /// The record of this host was rewritten by ourselves.
    pub fn rewritten(&mut self, host: HostId, sector: &[u8]) {
        for watched in self.watched.iter_mut().filter(|w| w.host == host) {
            watched.sector = sector.to_vec();
        }
    }

    /// What follows from another read of the lockspace. `asked`: when that read *began*: a renewal may have come in right behind it.
    #[must_use]
    pub fn look(&self, asked: MonoTime, area: &[u8]) -> Verdict {
        let silent = asked.secs_since(self.since);
        let (mut longest, mut waiting) = (0, 0);
        for watched in &self.watched {
            if sector_of(area, self.geometry, watched.host.delta_sector()) != watched.sector {
                return Verdict::Alive(watched.host);
            }
            // Dead when silent for *longer* than that.
            if let Some(dead) = watched.dead_secs.filter(|dead| silent <= *dead) {
                waiting += 1;
                longest = longest.max(dead);
            }
        }
        if waiting == 0 {
            return Verdict::Gone;
        }
        Verdict::Wait { until: MonoTime::from_secs(self.since.secs() + longest + 1), hosts: waiting }
    }
}

/// After how much silence a host is dead; `None` if its host id is free.
fn dead_secs(
    record: &RawLeader,
    host: HostId,
    name: &Name,
    claimed: u64,
    unknown: IoTimeout,
    fire: WatchdogFire,
) -> Option<u64> {
    let believed = verify::delta(record, Some(name), Purpose::Read).is_ok()
        && [0, host.get()].contains(&record.owner_id.get());
    if believed && record.timestamp.get() == 0 && record.owner_generation.get() >= claimed {
        return None;
    }
    let io_timeout = if believed && record.timestamp.get() != 0 {
        IoTimeout::from_disk(record.io_timeout.get(), unknown)
    } else {
        unknown
    };
    Some(io_timeout.host_dead_secs(fire))
}
