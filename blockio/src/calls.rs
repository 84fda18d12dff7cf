//! How many reads and writes may be under way, all of them hanging, for each kind of asker in the whole process.
//!
//! On storage that is silent every call keeps a thread, a buffer and a descriptor, for as long as it is silent, and whoever tries again adds
//! some. So each call begins with a place of its asker ([`Asker::calls_max`]) and has it until the kernel is done with it. Who finds none has not
//! begun, and nothing of that call will ever land.
//!
//! # Invariants
//! - What one kind of asker has under way takes no place from another kind. Renewals of lockspaces need no place: they are bounded by the
//!   lockspaces there are and the attempts each makes until it has failed.
//! - A device (a file system, or a block device) has a share of the places that becomes smaller as more of them are taken ([`share`]): one
//!   that is silent leaves three quarters to others at first, and however many are silent, half of the places are given out a few at a time.
//! - A path without a call under way gets a place as long as its device has fewer than two shares: so a path that hangs, on a device that
//!   answers, takes no place from the others there.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::disk::Disk;
use crate::opens::Asker;
use crate::stat::Device;

/// Pause before whoever found no place looks for one again, in milliseconds.
pub(crate) const RETRY_MS: u64 = 50;

/// Of so many calls at most, how many a device may have while `taken` are under way.
pub(crate) const fn share(taken: usize, max: usize) -> usize {
    if taken < max / 2 {
        max / 4
    } else if taken < max / 4 * 3 {
        max / 32
    } else if taken < max {
        1
    } else {
        0
    }
}

/// What is under way for one kind of asker.
struct Table {
    taken: usize,
    devices: Vec<(Device, usize)>,
    paths: Vec<(Key, usize)>,
}

/// A path, compared as it is written: with every call, so components are not taken apart.
#[derive(Debug)]
struct Key(Arc<Path>);

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.as_os_str() == other.0.as_os_str()
    }
}

/// How many `key` has.
fn count<K: PartialEq>(all: &[(K, usize)], key: &K) -> usize {
    all.iter().find(|(known, _)| known == key).map_or(0, |(_, count)| *count)
}

fn add<K: PartialEq>(all: &mut Vec<(K, usize)>, key: K) {
    match all.iter_mut().find(|(known, _)| *known == key) {
        Some((_, count)) => *count += 1,
        None => all.push((key, 1)),
    }
}

fn remove<K: PartialEq>(all: &mut Vec<(K, usize)>, key: &K) {
    let Some(at) = all.iter().position(|(known, _)| known == key) else { return };
    if let Some((_, count)) = all.get_mut(at) {
        *count -= 1;
        if *count == 0 {
            all.swap_remove(at);
        }
    }
}

impl Table {
    const fn new() -> Self {
        Self { taken: 0, devices: Vec::new(), paths: Vec::new() }
    }

    fn take(&mut self, max: usize, path: &Arc<Path>, device: Device) -> bool {
        let (share, of_device) = (share(self.taken, max), count(&self.devices, &device));
        let gets =
            of_device < share || (of_device < 2 * share && count(&self.paths, &Key(Arc::clone(path))) == 0);
        if gets {
            self.taken += 1;
            add(&mut self.devices, device);
            add(&mut self.paths, Key(Arc::clone(path)));
        }
        gets
    }

    fn give_back(&mut self, path: &Arc<Path>, device: Device) {
        self.taken = self.taken.saturating_sub(1);
        remove(&mut self.devices, &device);
        remove(&mut self.paths, &Key(Arc::clone(path)));
    }
}

static LEASES: Mutex<Table> = Mutex::new(Table::new());
static LOCKSPACES: Mutex<Table> = Mutex::new(Table::new());
static COMMANDS: Mutex<Table> = Mutex::new(Table::new());

fn table(asker: Asker) -> MutexGuard<'static, Table> {
    let table = match asker {
        Asker::Lease => &LEASES,
        Asker::Lockspace => &LOCKSPACES,
        Asker::Command => &COMMANDS,
    };
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

/// For a call that is under way, or about to be. Given back when it is dropped.
#[derive(Debug)]
pub struct CallPlace {
    asker: Asker,
    path: Arc<Path>,
    device: Device,
}

impl CallPlace {
    /// A place for a call on this disk. `None`: as many as may be are under way there, or in all, and it is not to begin.
    #[must_use]
    pub fn take(asker: Asker, disk: &Disk) -> Option<Self> {
        let (path, device) = (disk.shared_path(), disk.device());
        let gets = table(asker).take(asker.calls_max(), &path, device);
        gets.then(|| Self { asker, path, device })
    }
}

impl Drop for CallPlace {
    fn drop(&mut self) {
        table(self.asker).give_back(&self.path, self.device);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 512;

    fn path(name: impl ToString) -> Arc<Path> {
        Arc::from(Path::new(&name.to_string()))
    }

    /// Takes what there is for one path.
    fn fill(table: &mut Table, path: &Arc<Path>, device: Device) -> usize {
        (0..2 * MAX).take_while(|_| table.take(MAX, path, device)).count()
    }

    #[test]
    fn a_silent_path_leaves_places_to_others_on_its_device() {
        let mut table = Table::new();
        assert_eq!(fill(&mut table, &path("dead"), (8, 1)), MAX / 4);
        assert_eq!(fill(&mut table, &path("healthy"), (8, 1)), 1);
        // One fewer than a quarter: half of all is reached before.
        assert_eq!(fill(&mut table, &path("elsewhere"), (8, 2)), MAX / 4 - 1);
        table.give_back(&path("healthy"), (8, 1));
        assert!(table.take(MAX, &path("healthy"), (8, 1)), "the next one");
    }

    #[test]
    fn a_silent_device_with_any_number_of_paths_has_half_of_them_at_most() {
        let mut table = Table::new();
        let taken: usize = (0..2 * MAX).map(|n| fill(&mut table, &path(n), (8, 1))).sum();
        assert_eq!(taken, MAX / 2);
        assert!(fill(&mut table, &path("healthy"), (8, 2)) > 1);
    }

    #[test]
    fn silent_devices_get_fewer_the_more_there_are_and_never_more_than_all() {
        let mut table = Table::new();
        let taken: Vec<usize> = (0..200).map(|n| fill(&mut table, &path(n), (8, n))).collect();
        assert_eq!(taken[..4], [MAX / 4, MAX / 4, MAX / 32, MAX / 32]);
        assert!(taken[20..130].iter().all(|&count| count == 1), "{taken:?}");
        assert_eq!((taken.iter().sum::<usize>(), table.taken), (MAX, MAX));
        assert!(!table.take(MAX, &path("any"), (9, 9)));
    }

    #[test]
    fn all_that_is_given_back_is_there_again() {
        let mut table = Table::new();
        for n in 0..20 {
            for _ in 0..fill(&mut table, &path(n), (8, n / 3)) {
                table.give_back(&path(n), (8, n / 3));
            }
        }
        assert_eq!((table.taken, table.devices.len(), table.paths.len()), (0, 0, 0));
    }
}
