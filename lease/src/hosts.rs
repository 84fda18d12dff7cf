//! What this host has seen of the others (lease-algorithms.md 3).
//!
//! All times are of our own clock; a peer's timestamp is compared for equality only. The table is filled by
//! [`crate::delta::HostScan`] and read through [`HostView`] by the algorithms, and through [`HostTable::list`] by commands.

use crate::delta::Event;
use crate::geometry::{Geometry, HostId};
use crate::machine::{HostView, Sectors};
use crate::name::Name;
use crate::record::{Bitmap, RawLeader};
use crate::timing::{IoTimeout, MonoTime, WatchdogFire};
use crate::verify::{self, LeaderError, Purpose};

/// The last seen state of one host's delta lease. All times are of our own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HostSeen {
    /// When we first looked.
    pub first_check: MonoTime,
    /// When we last looked.
    pub last_check: MonoTime,
    /// When the record last differed from what was stored; the first look at a record that was ever used counts.
    pub last_live: Option<MonoTime>,
    /// `owner_id` last seen.
    pub owner_id: u64,
    /// `owner_generation` last seen.
    pub owner_generation: u64,
    /// `timestamp` last seen: the peer's clock, good for equality only.
    pub timestamp: u64,
    /// Its io timeout (ours if the record says 0). Once an older generation's record came back, the longest one since.
    pub io_timeout: IoTimeout,
    /// The largest generation that was ever seen. Of a later instance than this the io timeout is not known.
    pub newest_generation: u64,
}

/// What tells one write of a host_id lease from another. The timestamp alone does not: an earlier instance may have written the same one,
/// in a record that lands late, over what the owner has written meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Written {
    owner_id: u64,
    generation: u64,
    timestamp: u64,
}

impl Written {
    /// What a record says.
    #[must_use]
    pub fn of(record: &RawLeader) -> Self {
        let RawLeader { owner_id, owner_generation, timestamp, .. } = record;
        Self { owner_id: owner_id.get(), generation: owner_generation.get(), timestamp: timestamp.get() }
    }
}

/// What commands report of a host (lease-algorithms.md 3.2). The numbers are those of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum HostState {
    /// No change seen yet, and not yet silent for 8T.
    Unknown = 1,
    /// Nobody holds the host id.
    Free = 2,
    /// Renewing.
    Live = 3,
    /// Silent for longer than 8T: its daemon is killing processes, or its watchdog is about to fire.
    Fail = 4,
    /// Silent for longer than 8T + F.
    Dead = 5,
}

/// The io timeout by which the instance with this generation is to be judged, whose host id has this record on disk and this entry in
/// our table: the longer of what the two say, for a host may have joined with another one.
///
/// A renewal of an earlier instance may land late and bring *its* io timeout back. Then the table's memory counts; and where that does
/// not reach to the instance either, nothing is known, and it has the longest there is. A record that says none has ours.
///
/// A formatted record is of nobody. Where the table does not know the instance either, it is judged by what was formatted or by ours: who
/// formats a lockspace has to know that nobody uses it, and after the restore of a disk everybody would wait 35 minutes for each lease.
#[must_use]
pub fn judged_by(record: &RawLeader, generation: u64, seen: Option<&HostSeen>, ours: IoTimeout) -> IoTimeout {
    let known = match seen {
        Some(seen) if seen.owner_generation == generation => seen.io_timeout,
        // Of another instance.
        Some(seen) => seen.io_timeout.max(ours),
        None => ours,
    };
    let earlier = record.owner_id.get() != 0 && record.owner_generation.get() < generation;
    if earlier && seen.is_none_or(|seen| seen.newest_generation < generation) {
        return IoTimeout::LONGEST;
    }
    IoTimeout::from_disk(record.io_timeout.get(), ours).max(known)
}

impl HostSeen {
    /// The record last seen.
    #[must_use]
    pub fn written(&self) -> Written {
        let Self { owner_id, owner_generation: generation, timestamp, .. } = *self;
        Written { owner_id, generation, timestamp }
    }

    /// What to report of this host. `ours`: whether it is this host's own id.
    #[must_use]
    pub fn state(&self, now: MonoTime, ours: bool, fire: WatchdogFire) -> HostState {
        let silent = now.secs_since(self.last_live.unwrap_or(self.first_check));
        let fail = self.io_timeout.renewal_fail_secs();
        if self.timestamp == 0 {
            HostState::Free
        } else if ours {
            HostState::Live
        } else if silent > self.io_timeout.host_dead_secs(fire) {
            HostState::Dead
        } else if silent > fail {
            HostState::Fail
        } else if self.last_live == Some(self.first_check) {
            HostState::Unknown
        } else {
            HostState::Live
        }
    }
}

/// A host as commands list it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HostStatus {
    /// The host id.
    pub host: HostId,
    /// Its host name as last seen in a good record.
    pub name: Name,
    /// What was seen.
    pub seen: HostSeen,
    /// What it means.
    pub state: HostState,
}

/// Something a scan found that somebody should hear of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HostNews {
    /// A host name or generation that was not there before.
    Instance {
        /// The host id.
        host: HostId,
        /// Its name.
        name: Name,
        /// Its generation.
        generation: u64,
    },
    /// A record that is no delta lease of this lockspace. Told the first time and every 100th.
    Bad {
        /// The host id.
        host: HostId,
        /// How often in a row.
        count: u32,
        /// What is wrong.
        error: LeaderError,
    },
    /// A record that was bad is good again.
    Good {
        /// The host id.
        host: HostId,
    },
    /// Our bit is set in the record of a host that is alive: it asks us to look at its event and at the requests for the
    /// resources we hold (disk-format.md 6.5).
    Notice {
        /// The host that asks.
        from: HostId,
        /// Its generation.
        generation: u64,
        /// Its event; number 0 if there is none.
        event: Event,
    },
}

/// How often a bad record is told again.
const BAD_TOLD_EVERY: u32 = 100;
/// Hosts that are looked at together unless one of their sectors cannot be read: every piece of a scan is a multiple of it.
pub const HOSTS_PER_GROUP: usize = 16;

/// When a group of hosts was looked at, or one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Checked {
    first: MonoTime,
    last: MonoTime,
}

impl Checked {
    fn again(before: Option<Self>, now: MonoTime) -> Self {
        Self { first: before.map_or(now, |checked| checked.first), last: now }
    }
}

/// Which looks at a host there were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Looks {
    /// Those at its group.
    OfGroup,
    /// Those that reached it, since its group was read one by one. `None`: there was none.
    Own(Option<Checked>),
}

/// A host whose record was ever used, is bad, or was read apart from its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Entry {
    host: HostId,
    /// The record's io timeout field; 0 means ours.
    io_timeout: u16,
    bad: u32,
    owner_id: u64,
    owner_generation: u64,
    newest_generation: u64,
    timestamp: u64,
    /// What the record says now, where that is no delta lease of this lockspace.
    damaged: Option<Written>,
    last_live: Option<MonoTime>,
    name: Name,
    looks: Looks,
}

impl Entry {
    fn written(&self) -> Written {
        let Self { owner_id, owner_generation: generation, timestamp, .. } = *self;
        Written { owner_id, generation, timestamp }
    }

    fn unused(host: HostId) -> Self {
        Self {
            host,
            io_timeout: 0,
            bad: 0,
            owner_id: 0,
            owner_generation: 0,
            newest_generation: 0,
            timestamp: 0,
            damaged: None,
            last_live: None,
            name: Name::default(),
            looks: Looks::OfGroup,
        }
    }

    /// Whether there was ever anything to be seen of it. If not, it is here for its own times.
    fn is_known(&self) -> bool {
        Self { looks: Looks::OfGroup, ..*self } != Self::unused(self.host)
    }
}

/// The hosts of one lockspace as seen by this host.
///
/// Hosts that were never there cost nothing but their share of a group, so a lockspace of three hosts takes some hundred
/// bytes; at most 2000 entries.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostTable {
    lockspace: Name,
    our_host: HostId,
    our_timeout: IoTimeout,
    fire: WatchdogFire,
    max_hosts: usize,
    checked: Vec<Option<Checked>>,
    /// Ascending host ids.
    entries: Vec<Entry>,
}

impl HostTable {
    /// A table that has seen nothing.
    #[must_use]
    pub fn new(
        lockspace: Name,
        our_host: HostId,
        our_timeout: IoTimeout,
        fire: WatchdogFire,
        geometry: Geometry,
    ) -> Self {
        let max_hosts = usize::from(geometry.max_hosts());
        let groups = max_hosts.div_ceil(HOSTS_PER_GROUP);
        Self {
            lockspace,
            our_host,
            our_timeout,
            fire,
            max_hosts,
            checked: vec![None; groups],
            entries: Vec::new(),
        }
    }

    /// Number of hosts there can be.
    #[must_use]
    pub fn max_hosts(&self) -> usize {
        self.max_hosts
    }

    /// Whether every host was looked at once, or is of a group that is read one by one because some of it cannot be read; before that commands answer "try again".
    #[must_use]
    pub fn is_complete(&self) -> bool {
        // Of a group that was read one by one the first host has times of its own, like all of it.
        let apart = |first| HostId::from_index(first).and_then(|host| self.entry(host)).map(|e| e.looks);
        let mut groups = (0..self.max_hosts).step_by(HOSTS_PER_GROUP).zip(&self.checked);
        groups.all(|(first, checked)| checked.is_some() || matches!(apart(first), Some(Looks::Own(_))))
    }

    /// The status of one host, whether free or not; `None` if it was never looked at.
    #[must_use]
    pub fn status(&self, host: HostId, now: MonoTime) -> Option<HostStatus> {
        let seen = self.seen(host)?;
        let name = self.entry(host).map(|e| e.name).unwrap_or_default();
        let state = seen.state(now, seen.owner_id == self.our_host.get(), self.fire);
        Some(HostStatus { host, name, seen, state })
    }

    /// The hosts whose record is not free, ascending: what is listed when no host id is asked for.
    pub fn list(&self, now: MonoTime) -> impl Iterator<Item = HostStatus> + '_ {
        let held = self.entries.iter().filter(|e| e.timestamp != 0);
        held.filter_map(move |e| self.status(e.host, now))
    }

    /// How many records were no delta lease of this lockspace when they were looked at last. [`HostTable::status`] does not tell them from
    /// those of hosts that left.
    #[must_use]
    pub fn bad(&self) -> usize {
        self.entries.iter().filter(|e| e.bad > 0).count()
    }

    fn entry(&self, host: HostId) -> Option<&Entry> {
        self.entries.binary_search_by_key(&host, |e| e.host).ok().and_then(|at| self.entries.get(at))
    }

    /// The hosts among `first` to `first + count` (zero-based) that were ever there, and what lies between them: first and count, in
    /// whole groups like [`HostTable::update`] wants them. `None` if none was.
    #[must_use]
    pub fn span_in_use(&self, first: usize, count: usize) -> Option<(usize, usize)> {
        let end = first.saturating_add(count).min(self.max_hosts);
        let from = self.entries.partition_point(|e| e.host.index() < first);
        let to = self.entries.partition_point(|e| e.host.index() < end);
        let mut within = self.entries.get(from..to)?.iter().filter(|e| e.is_known()).map(|e| e.host.index());
        let low = within.next()?;
        let high = within.next_back().unwrap_or(low);
        let low = low / HOSTS_PER_GROUP * HOSTS_PER_GROUP;
        let high = ((high / HOSTS_PER_GROUP + 1) * HOSTS_PER_GROUP).min(end);
        Some((low, high - low))
    }

    /// Takes in the sectors of hosts `first` to `first + count` (zero-based), read just now: of whole groups, or a single one after
    /// [`HostTable::read_apart`].
    ///
    /// A record counts as changed if its owner, generation or timestamp is not what was there at the last look, bad records included: taking a
    /// record that we cannot read for a sign of life is safe, the other way round is not. Of a bad record only the timestamp
    /// is stored.
    pub fn update(
        &mut self,
        now: MonoTime,
        view: &dyn Sectors,
        first: usize,
        count: usize,
        news: &mut Vec<HostNews>,
    ) {
        let end = first.saturating_add(count).min(self.max_hosts);
        let groups = if count > 1 { first / HOSTS_PER_GROUP..end.div_ceil(HOSTS_PER_GROUP) } else { 0..0 };
        for group in self.checked.get_mut(groups).unwrap_or_default() {
            *group = Some(Checked::again(*group, now));
        }
        let from = self.entries.partition_point(|e| e.host.index() < first);
        let to = self.entries.partition_point(|e| e.host.index() < end);
        for entry in self.entries.get_mut(from..to).unwrap_or_default() {
            if let Looks::Own(own) = entry.looks {
                let own = Some(Checked::again(own, now));
                let of_group = self.checked.get(entry.host.index() / HOSTS_PER_GROUP).copied().flatten();
                entry.looks = if own == of_group { Looks::OfGroup } else { Looks::Own(own) };
            }
        }
        // Times of its own were all that some were here for.
        self.entries.retain(|e| *e != Entry::unused(e.host));
        // Sectors of zeros are skipped unless something was stored: they look like hosts that were never there.
        let mut index = first;
        while index < end {
            let in_use = view.next_in_use(index as u64).and_then(|i| usize::try_from(i).ok());
            let known = HostId::from_index(index).and_then(|h| self.next_entry(h));
            let Some(next) = in_use.into_iter().chain(known).min().filter(|i| *i < end) else { break };
            if let (Some(host), Some(sector)) = (HostId::from_index(next), view.sector(next as u64)) {
                self.update_host(now, host, sector, news);
            }
            index = next + 1;
        }
    }

    /// The hosts of the group of this one (zero-based) are read one by one: from now on each has times of its own, at first those of the group.
    pub fn read_apart(&mut self, host: usize) {
        let group = host / HOSTS_PER_GROUP;
        let Some(checked) = self.checked.get(group).copied() else { return };
        let first = group * HOSTS_PER_GROUP;
        for host in first..(first + HOSTS_PER_GROUP).min(self.max_hosts) {
            let Some(host) = HostId::from_index(host) else { continue };
            let at = match self.entries.binary_search_by_key(&host, |e| e.host) {
                Ok(at) => at,
                Err(at) => {
                    self.entries.insert(at, Entry::unused(host));
                    at
                }
            };
            if let Some(entry) = self.entries.get_mut(at).filter(|e| e.looks == Looks::OfGroup) {
                entry.looks = Looks::Own(checked);
            }
        }
    }

    /// Zero-based position of the first host at or after this one of which something is known.
    fn next_entry(&self, host: HostId) -> Option<usize> {
        let at = self.entries.partition_point(|e| e.host < host);
        self.entries.get(at..)?.iter().find(|e| e.is_known()).map(|e| e.host.index())
    }

    fn update_host(&mut self, now: MonoTime, host: HostId, sector: &[u8], news: &mut Vec<HostNews>) {
        let record = RawLeader::from_sector(sector);
        let position = self.entries.binary_search_by_key(&host, |e| e.host);
        let mut entry = match position {
            Ok(at) => self.entries[at],
            Err(_) => Entry::unused(host),
        };
        let before = entry;
        let written = Written::of(&record);
        let mut changed = written != entry.damaged.unwrap_or_else(|| entry.written());
        let learns = changed || entry.bad > 0;
        let check = self.check(&record, learns);
        match check {
            Err(error) => {
                entry.damaged = Some(written);
                if entry.bad % BAD_TOLD_EVERY == 0 {
                    news.push(HostNews::Bad { host, count: entry.bad.saturating_add(1), error });
                }
                entry.bad = entry.bad.saturating_add(1);
            }
            Ok(()) if entry.bad > 0 => {
                (entry.bad, entry.damaged) = (0, None);
                news.push(HostNews::Good { host });
                // As a bad one it said the same, perhaps, and was not taken in.
                changed |= written != entry.written();
            }
            Ok(()) => {}
        }
        if changed {
            entry.last_live = Some(now);
            entry.timestamp = record.timestamp.get();
        }
        if check.is_ok() && learns {
            self.store(&mut entry, &record, sector, news);
        }
        match position {
            Ok(at) => self.entries[at] = entry,
            Err(at) if entry != before => self.entries.insert(at, entry),
            Err(_) => {}
        }
    }

    /// Magic, version and name always; the checksum (W16) where something is to be learnt from the record.
    fn check(&self, record: &RawLeader, changed: bool) -> Result<(), LeaderError> {
        if changed {
            verify::delta(record, Some(&self.lockspace), Purpose::Read)
        } else {
            verify::delta_magic_version(record, Purpose::Read)?;
            verify::check_name(record, Some(&self.lockspace))
        }
    }

    fn store(&self, entry: &mut Entry, record: &RawLeader, sector: &[u8], news: &mut Vec<HostNews>) {
        let generation = record.owner_generation.get();
        let name = Name::from_field(&record.resource_name);
        if name != entry.name || generation != entry.owner_generation {
            news.push(HostNews::Instance { host: entry.host, name, generation });
        }
        entry.name = name;
        entry.owner_generation = generation;
        entry.owner_id = record.owner_id.get();
        let io_timeout = |field| IoTimeout::from_disk(field, self.our_timeout);
        // Where an earlier instance is back, whoever came after it may be alive, with the io timeout that it had. So may whoever was seen
        // with the same generation: a claim that came to nothing is followed by one that has it too, and may land over that one's record.
        // No instance changes its io timeout, so this is never longer than needed where there was one claim.
        let newer = entry.newest_generation == 0 || generation > entry.newest_generation;
        if newer || io_timeout(record.io_timeout.get()) > io_timeout(entry.io_timeout) {
            entry.io_timeout = record.io_timeout.get();
        }
        entry.newest_generation = entry.newest_generation.max(generation);
        if entry.host != self.our_host && Bitmap::from_sector(sector).contains(self.our_host) {
            let event = Event {
                generation: record.write_id.get(),
                event: record.write_generation.get(),
                data: record.write_timestamp.get(),
            };
            news.push(HostNews::Notice { from: entry.host, generation, event });
        }
    }
}

impl HostView for HostTable {
    fn seen(&self, host: HostId) -> Option<HostSeen> {
        let of_group = self.checked.get(host.index() / HOSTS_PER_GROUP).copied().flatten();
        if host.index() >= self.max_hosts {
            return None;
        }
        let entry = self.entry(host).copied().unwrap_or_else(|| Entry::unused(host));
        let checked = match entry.looks {
            Looks::OfGroup => of_group?,
            Looks::Own(own) => own?,
        };
        Some(HostSeen {
            first_check: checked.first,
            last_check: checked.last,
            last_live: entry.last_live,
            owner_id: entry.owner_id,
            owner_generation: entry.owner_generation,
            timestamp: entry.timestamp,
            io_timeout: IoTimeout::from_disk(entry.io_timeout, self.our_timeout),
            newest_generation: entry.newest_generation,
        })
    }
}
