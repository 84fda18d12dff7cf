//! What must hold, watched from outside.

use crate::disk::{Disk, SECTOR};
use crate::world::{AREA, BASE, SLOTS};
use sanlock_lease::name::Name;
use sanlock_lease::record::{PAXOS_MAGIC, RawLeader, RindexEntry};
use sanlock_lease::rindex::{Entry, RindexCommand, RindexError};

/// The names of the entries, by slot.
pub(crate) type Names = [Option<Name>; SLOTS];

#[derive(Debug, Default)]
pub(crate) struct Checks {
    pub(crate) violations: Vec<String>,
    /// Who holds the lease of the index.
    holder: Option<usize>,
    /// Who held it last.
    pub(crate) last_owner: Option<usize>,
}

/// The first byte of a slot's area.
pub(crate) fn area(slot: usize) -> u64 {
    BASE + (2 + slot as u64) * AREA
}

/// Entries as the disk has them.
pub(crate) fn names(disk: &Disk) -> Names {
    let sector = disk.sector(BASE / SECTOR as u64 + 1);
    std::array::from_fn(|slot| {
        let entry = RindexEntry::from_bytes(&sector[slot * RindexEntry::BYTES..]);
        (!entry.is_free()).then(|| Name::from_field(&entry.name))
    })
}

/// The lease in a slot's area.
pub(crate) fn lease(disk: &Disk, slot: usize) -> Option<Name> {
    let leader = RawLeader::from_sector(disk.sector(area(slot) / SECTOR as u64));
    (leader.magic.get() == PAXOS_MAGIC).then(|| Name::from_field(&leader.resource_name))
}

impl Checks {
    pub(crate) fn violation(&mut self, text: String) {
        self.violations.push(text);
    }

    /// X1.
    pub(crate) fn took(&mut self, host: usize) {
        if let Some(other) = self.holder.replace(host).filter(|other| *other != host) {
            self.violation(format!("X1: host {host} has the lease of the index, which host {other} holds"));
        }
    }

    /// It has given it back, or is no more.
    pub(crate) fn gave_back(&mut self, host: usize) {
        if self.holder == Some(host) {
            self.holder = None;
        }
    }

    /// X2 and X9, after something landed on the index or on an area.
    pub(crate) fn look(&mut self, disk: &Disk) {
        let names = names(disk);
        for (slot, name) in names.iter().enumerate() {
            let Some(name) = name else { continue };
            let found = lease(disk, slot);
            if found != Some(*name) {
                self.violation(format!("X2: entry {slot} says {name}, its area has {found:?}"));
            }
            if names[..slot].contains(&Some(*name)) {
                self.violation(format!("X9: {name} is there twice: {names:?}"));
            }
        }
    }

    /// X3: something is about to land on a slot's area.
    pub(crate) fn area_written(&mut self, host: usize, slot: usize, disk: &Disk) {
        if let Some(name) = names(disk)[slot] {
            self.violation(format!("X3: host {host} writes to the area of {name}, entry {slot}"));
        }
    }

    /// X4: the index was changed by a write for this command.
    pub(crate) fn changed(&mut self, host: usize, command: RindexCommand, before: &Names, after: &Names) {
        let changed = || before.iter().zip(after).filter(|(before, after)| before != after);
        let right = match command {
            RindexCommand::Create { name, .. } => {
                changed().all(|change| change == (&None, &Some(name))) && changed().count() <= 1
            }
            RindexCommand::Delete { name, .. } => {
                changed().all(|change| change == (&Some(name), &None)) && changed().count() <= 1
            }
            // What lies in an area stays: a rebuild only finds more.
            RindexCommand::Rebuild { .. } => changed().all(|(before, _)| before.is_none()),
            _ => before == after,
        };
        if !right {
            self.violation(format!("X4: host {host}, {command:?}: {before:?} became {after:?}"));
        }
    }

    /// X5: `now` is the index as it is while the lease is still held; `since`, all that it was since the operation began.
    pub(crate) fn result(
        &mut self,
        host: usize,
        command: RindexCommand,
        result: Result<Entry, RindexError>,
        (now, since): (&Names, &[Names]),
    ) {
        let at = |names: &Names, name: Name| names.iter().position(|n| *n == Some(name)).map(area);
        let right = match (command, result) {
            (RindexCommand::Create { name, .. }, Ok(entry)) => at(now, name) == Some(entry.offset),
            (_, Err(RindexError::Exists { name, offset })) => at(now, name) == Some(offset),
            (RindexCommand::Delete { name, .. }, Ok(_)) => at(now, name).is_none(),
            (RindexCommand::Delete { .. }, Err(RindexError::NoSuchName(name))) => at(now, name).is_none(),
            (RindexCommand::Create { .. }, Err(RindexError::Full(_))) => now.iter().all(Option::is_some),
            (RindexCommand::Lookup { name, .. }, Ok(entry)) if name.is_empty() => since
                .iter()
                .any(|names| names.iter().position(Option::is_none).map(area) == Some(entry.offset)),
            (RindexCommand::Lookup { name, .. }, Ok(entry)) => {
                since.iter().any(|names| at(names, name) == Some(entry.offset))
            }
            (RindexCommand::Lookup { .. }, Err(RindexError::Full(_))) => {
                since.iter().any(|names| names.iter().all(Option::is_some))
            }
            (RindexCommand::Lookup { .. }, Err(RindexError::NoSuchName(name))) => {
                since.iter().any(|names| at(names, name).is_none())
            }
            (RindexCommand::Rebuild { .. }, Ok(_))
            | (_, Err(RindexError::Io { .. } | RindexError::Acquire(_) | RindexError::LockspaceGone)) => true,
            _ => false,
        };
        if !right {
            self.violation(format!(
                "X5: host {host}, {command:?}: {result:?}, the index is {now:?}, was {since:?}"
            ));
        }
    }
}
